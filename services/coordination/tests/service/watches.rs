//! Watches: who is notified, when, and in which order with the answers.

use crate::client::{Client, Heard, create, delete, multi, path_and_int, read, set, set_watches};
use crate::driver::Cluster;
use coordination::wire::op;

const CREATED: i32 = 1;
const DELETED: i32 = 2;
const CHANGED: i32 = 3;
const CHILDREN: i32 = 4;

fn both() -> impl Iterator<Item = Cluster> {
    [1, 4].into_iter().map(|shards| Cluster::new(2, 2, shards, 21))
}

fn reported(events: &[(i32, &str)]) -> Vec<(i32, String)> {
    events.iter().map(|(kind, path)| (*kind, (*path).to_owned())).collect()
}

// A watch that fires twice, or for what it does not watch, makes clients read in circles.
#[test]
fn one_shot_watches_fire_once_by_zookeepers_table() {
    for mut cluster in both() {
        let c = &mut cluster;
        let (mut watcher, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        assert_eq!(writer.ask(c, op::CREATE, &create("/d", b"", 0)).error, 0);
        assert_eq!(watcher.ask(c, op::EXISTS, &read("/d/x", true)).error, -101);
        assert_eq!(watcher.ask(c, op::GET_DATA, &read("/d/x", true)).error, -101);
        assert_eq!(watcher.ask(c, op::GET_CHILDREN, &read("/d", true)).error, 0);
        writer.ask(c, op::CREATE, &create("/d/x", b"", 0));
        assert_eq!(watcher.events(c), reported(&[(CREATED, "/d/x"), (CHILDREN, "/d")]));
        writer.ask(c, op::SET_DATA, &set("/d/x", b"1", -1));
        writer.ask(c, op::CREATE, &create("/d/y", b"", 0));
        assert_eq!(watcher.events(c), []);
        watcher.ask(c, op::GET_DATA, &read("/d/x", true));
        watcher.ask(c, op::GET_CHILDREN, &read("/d/x", true));
        writer.ask(c, op::SET_DATA, &set("/d/x", b"2", -1));
        assert_eq!(watcher.events(c), reported(&[(CHANGED, "/d/x")]));
        watcher.ask(c, op::EXISTS, &read("/d/x", true));
        writer.ask(c, op::DELETE, &delete("/d/x", -1));
        assert_eq!(watcher.events(c), reported(&[(DELETED, "/d/x")]), "once, for data and children");
        // A multi that fails triggers nothing.
        watcher.ask(c, op::GET_DATA, &read("/d/y", true));
        let failing = multi(&[(op::SET_DATA, set("/d/y", b"", -1)), (op::CHECK, path_and_int("/none", 0))]);
        assert_eq!(writer.ask(c, op::MULTI, &failing).steps(), [(-1, 0), (-1, -101)]);
        assert_eq!(watcher.events(c), []);
        c.agree();
    }
}

// A client that has its own write's answer before the event takes the event for somebody else's.
#[test]
fn the_event_comes_before_the_answer_to_the_own_write() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(2, 2, 4, seed);
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        for n in 0..6 {
            let path = format!("/n{n}");
            assert_eq!(client.ask_heard(c, op::CREATE, &create(&path, b"", 0)).1.error, 0);
            client.ask_heard(c, op::GET_DATA, &read(&path, true));
            client.ask_heard(c, op::GET_CHILDREN, &read("/", true));
            let (heard, _) = client.ask_heard(c, op::SET_DATA, &set(&path, b"x", -1));
            assert!(
                matches!(&heard[..], [Heard::Event { kind: CHANGED, path: reported, .. }] if *reported == path),
                "{heard:?}"
            );
        }
    }
}

// Trap 2: data that are newer than an event which the client has not had yet.
#[test]
fn events_come_before_newer_data_across_shards() {
    let mut mixed = 0;
    for seed in 0..60 {
        let mut cluster = Cluster::new(2, 2, 4, 100 + seed);
        let c = &mut cluster;
        let (mut watcher, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        let paths: Vec<String> = (0..8).map(|n| format!("/k{n}")).collect();
        for path in &paths {
            assert_eq!(writer.ask(c, op::CREATE, &create(path, b"0", 0)).error, 0);
        }
        let (flag, data) = (&paths[0], &paths[1 + (seed % 7) as usize]);
        watcher.ask(c, op::GET_DATA, &read(flag, true));
        // The flag is changed before the data are: who sees new data must have heard of the flag.
        writer.send(c, op::SET_DATA, &set(flag, b"1", -1));
        writer.send(c, op::SET_DATA, &set(data, b"1", -1));
        let xid = watcher.send(c, op::GET_DATA, &read(data, false));
        c.settle();
        let heard = watcher.hear(c);
        let event =
            heard.iter().position(|heard| matches!(heard, Heard::Event { .. })).expect("the flag's event");
        let reply = heard.iter().position(|heard| matches!(heard, Heard::Reply(reply) if reply.xid == xid));
        let Heard::Reply(answer) = &heard[reply.expect("an answer")] else { panic!("{heard:?}") };
        if answer.data() == b"1" {
            assert!(event < reply.expect("an answer"), "seed {seed}: {heard:?}");
            mixed += 1;
        }
    }
    assert!(mixed > 5, "the dice never let the read see the new data");
}

// Trap 2 again: an answer that overtakes an event of a shard that lags.
#[test]
fn an_answer_waits_for_the_events_of_a_slow_shard() {
    let mut cluster = Cluster::new(2, 1, 4, 23);
    let c = &mut cluster;
    let (mut watcher, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
    let paths: Vec<String> = (0..12).map(|n| format!("/k{n}")).collect();
    paths.iter().for_each(|path| assert_eq!(writer.ask(c, op::CREATE, &create(path, b"", 0)).error, 0));
    let slow = c.space_of(&paths[0]);
    let other = paths.iter().find(|path| c.space_of(path) != slow).expect("four shards share twelve paths");
    watcher.ask(c, op::GET_DATA, &read(&paths[0], true));
    c.held.push((0, slow));
    assert_eq!(writer.ask(c, op::SET_DATA, &set(&paths[0], b"1", -1)).error, 0);
    watcher.send(c, op::SET_DATA, &set(other, b"2", -1));
    c.settle();
    assert_eq!(watcher.hear(c), [], "the answer came before the event of the slow shard");
    c.held.clear();
    c.settle();
    let heard = watcher.hear(c);
    assert!(matches!(&heard[..], [Heard::Event { kind: CHANGED, .. }, Heard::Reply(_)]), "{heard:?}");
}

// The header of an answer says that everything up to its zxid was announced: an event below it that comes behind is never waited for.
#[test]
fn an_event_that_waited_for_its_watch_comes_before_the_next_answer() {
    let mut shown = 0;
    for seed in 0..40 {
        let mut cluster = Cluster::new(2, 1, 4, 700 + seed);
        let c = &mut cluster;
        let (mut watcher, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        let paths: Vec<String> = (0..12).map(|n| format!("/k{n}")).collect();
        paths.iter().for_each(|path| assert_eq!(writer.ask(c, op::CREATE, &create(path, b"", 0)).error, 0));
        let slow = c.space_of(&paths[0]);
        let mut others = paths.iter().filter(|path| c.space_of(path) != slow);
        let (changed, old) = (others.next().expect("a path elsewhere"), others.next().expect("another one"));
        c.settle();
        c.held.push((0, slow));
        // All shards but one have the watch. The first answer will show more than what they had then.
        watcher.send(c, op::GET_DATA, &read(&paths[0], false));
        watcher.send(c, op::ADD_WATCH, &path_and_int("/", 1));
        c.settle();
        assert_eq!(writer.ask(c, op::SET_DATA, &set(changed, b"1", -1)).error, 0);
        assert_eq!(writer.ask(c, op::SET_DATA, &set(&paths[0], b"1", -1)).error, 0);
        let last = watcher.send(c, op::GET_DATA, &read(old, false));
        c.settle();
        c.held.clear();
        c.settle();
        let heard = watcher.hear(c);
        let reported = |heard: &Heard| match heard {
            Heard::Event { path, zxid, .. } if path == changed => Some(*zxid),
            _ => None,
        };
        let event = heard.iter().position(|heard| reported(heard).is_some()).expect("the event");
        let replied = |heard: &Heard| matches!(heard, Heard::Reply(reply) if reply.xid == last);
        let reply = heard.iter().position(replied).expect("the last answer");
        let (Some(zxid), Heard::Reply(answer)) = (reported(&heard[event]), &heard[reply]) else {
            panic!("{heard:?}")
        };
        if answer.zxid >= zxid {
            assert!(event < reply, "seed {seed}: {heard:?}");
            shown += 1;
        }
    }
    assert!(shown > 5, "the first answer never showed more than the watch");
}

// Trap 1: a zxid that one shard has pushed up must not hide what another shard changed meanwhile.
#[test]
fn set_watches_loses_nothing_and_repeats_nothing() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(2, 2, if seed % 2 == 0 { 4 } else { 1 }, 300 + seed);
        let c = &mut cluster;
        let (mut client, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        let paths: Vec<String> = (0..8).map(|n| format!("/k{n}")).collect();
        paths.iter().for_each(|path| assert_eq!(writer.ask(c, op::CREATE, &create(path, b"", 0)).error, 0));
        for path in &paths {
            client.ask(c, op::GET_DATA, &read(path, true));
            client.ask(c, op::GET_CHILDREN, &read(path, true));
        }
        client.ask(c, op::EXISTS, &read("/none", true));
        // Other nodes push the zxid up.
        for _ in 0..3 {
            client.ask(c, op::CREATE, &create("/push-", b"", 2));
        }
        let (zxid, session, password) = (client.last_zxid, client.session, client.password.clone());
        c.disconnect(client.node);
        writer.ask(c, op::SET_DATA, &set(&paths[1], b"x", -1));
        writer.ask(c, op::CREATE, &create(&format!("{}/child", paths[2]), b"", 0));
        writer.ask(c, op::DELETE, &delete(&paths[3], -1));
        writer.ask(c, op::CREATE, &create("/none", b"", 0));
        let mut again =
            Client::resume(c, (seed % 2) as usize, session, &password, zxid, 10_000).expect("renewed");
        let all: Vec<&str> = paths.iter().map(String::as_str).collect();
        again.send_as(c, -8, op::SET_WATCHES, &set_watches(zxid, [&all, &["/none"], &all], None));
        c.settle();
        let mut heard = again.hear(c);
        let last = heard.pop();
        assert!(
            matches!(&last, Some(Heard::Reply(reply)) if reply.xid == -8 && reply.error == 0),
            "{last:?}"
        );
        let mut events: Vec<(i32, String)> = heard
            .into_iter()
            .map(|heard| match heard {
                Heard::Event { kind, path, .. } => (kind, path),
                other => panic!("{other:?}"),
            })
            .collect();
        events.sort();
        let expected =
            [(CREATED, "/none"), (DELETED, &paths[3]), (CHANGED, &paths[1]), (CHILDREN, &paths[2])];
        assert_eq!(events, reported(&expected), "seed {seed}");
        // What was not missed is armed again.
        writer.ask(c, op::SET_DATA, &set(&paths[5], b"y", -1));
        assert_eq!(again.events(c), reported(&[(CHANGED, &paths[5])]));
        writer.ask(c, op::SET_DATA, &set(&paths[1], b"y", -1));
        assert_eq!(again.events(c), [], "what was missed is not armed");
    }
}

// A recursive watch on the root that misses a shard misses a quarter of the tree.
#[test]
fn persistent_and_recursive_watches_stay() {
    for mut cluster in both() {
        let c = &mut cluster;
        let (mut watcher, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        assert_eq!(watcher.ask(c, op::ADD_WATCH, &path_and_int("/", 1)).body, [0; 4]);
        assert_eq!(watcher.ask(c, op::ADD_WATCH, &path_and_int("/a", 0)).error, 0);
        assert_eq!(watcher.ask(c, op::ADD_WATCH, &path_and_int("/a", 7)).error, -5);
        let mut expected = Vec::new();
        writer.ask(c, op::CREATE, &create("/a", b"", 0));
        expected.push((CREATED, "/a".to_owned()));
        for n in 0..10 {
            let path = format!("/a/{n}");
            writer.ask(c, op::CREATE, &create(&path, b"", 0));
            expected.extend([(CREATED, path), (CHILDREN, "/a".to_owned())]);
        }
        writer.ask(c, op::SET_DATA, &set("/a/3", b"", -1));
        expected.push((CHANGED, "/a/3".to_owned()));
        assert_eq!(watcher.events(c), expected);
        assert_eq!(watcher.ask(c, op::CHECK_WATCHES, &path_and_int("/a", 3)).error, 0);
        assert_eq!(watcher.ask(c, op::REMOVE_WATCHES, &path_and_int("/", 3)).error, 0);
        assert_eq!(watcher.ask(c, op::REMOVE_WATCHES, &path_and_int("/", 3)).error, -121);
        writer.ask(c, op::CREATE, &create("/b", b"", 0));
        writer.ask(c, op::SET_DATA, &set("/a", b"", -1));
        assert_eq!(watcher.events(c), reported(&[(CHANGED, "/a")]), "only the one that was not removed");
    }
}

// An event for a watch whose answer the client has not had finds nobody to notify; one that is lost is lost for good.
#[test]
fn an_event_follows_the_answer_that_announces_its_watch() {
    let mut fired = 0;
    for seed in 0..80 {
        let mut cluster = Cluster::new(2, 2, 4, 500 + seed);
        let c = &mut cluster;
        let (mut watcher, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        let paths: Vec<String> = (0..6).map(|n| format!("/k{n}")).collect();
        paths.iter().for_each(|path| assert_eq!(writer.ask(c, op::CREATE, &create(path, b"0", 0)).error, 0));
        let xids: Vec<i32> =
            paths.iter().map(|path| watcher.send(c, op::GET_DATA, &read(path, true))).collect();
        for path in &paths {
            let steps = c.rng.index(12);
            c.work(steps);
            writer.send(c, op::SET_DATA, &set(path, b"1", -1));
        }
        c.settle();
        let heard = watcher.hear(c);
        let mut old = Vec::new();
        for (at, heard_now) in heard.iter().enumerate() {
            match heard_now {
                Heard::Reply(reply) => {
                    let path = &paths[xids.iter().position(|xid| *xid == reply.xid).expect("asked")];
                    if reply.data() == b"0" {
                        old.push(path.clone());
                    }
                }
                Heard::Event { path, .. } => {
                    let Some(known) = old.iter().position(|old| old == path) else {
                        panic!("seed {seed}: event at {at} before its answer: {heard:?}");
                    };
                    old.remove(known);
                    fired += 1;
                }
            }
        }
        assert_eq!(old, Vec::<String>::new(), "seed {seed}: old data without an event: {heard:?}");
        let replies: Vec<i32> = heard
            .iter()
            .filter_map(|heard| match heard {
                Heard::Reply(reply) => Some(reply.xid),
                Heard::Event { .. } => None,
            })
            .collect();
        assert_eq!(replies, xids);
    }
    assert!(fired > 20, "{fired} events only");
}

// Watches of those who are gone fill the memory of shards.
#[test]
fn nobody_is_reported_after_leaving() {
    for mut cluster in both() {
        let c = &mut cluster;
        let (mut gone, mut stays, mut writer) =
            (Client::connect(c, 0), Client::connect(c, 0), Client::connect(c, 1));
        writer.ask(c, op::CREATE, &create("/a", b"", 0));
        for client in [&mut gone, &mut stays] {
            client.ask(c, op::GET_DATA, &read("/a", true));
            client.ask(c, op::GET_CHILDREN, &read("/a", true));
        }
        gone.ask(c, op::ADD_WATCH, &path_and_int("/a", 1));
        c.disconnect(gone.node);
        c.settle();
        assert_eq!(c.metrics(0).watches, 1);
        writer.ask(c, op::SET_DATA, &set("/a", b"", -1));
        assert_eq!(stays.events(c), reported(&[(CHANGED, "/a")]));
        assert_eq!(gone.events(c), []);
    }
}
