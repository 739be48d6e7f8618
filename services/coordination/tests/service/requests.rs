//! Requests one by one, and what they are answered.

use crate::client::{
    Client, Heard, Reply, acl, auth, create, create_with, delete, multi, path_and_int, read, set,
};
use crate::driver::{Cluster, Shape};
use coordination::wire::{Body, JuteInput, JuteOutput, RestoredNode, Stat, op};

/// Every test runs with one shard and with four.
pub(crate) fn clusters() -> impl Iterator<Item = Cluster> {
    [(1, 1, 1), (1, 2, 4), (3, 2, 4)]
        .into_iter()
        .zip(1..)
        .map(|((hosts, groups, shards), seed)| Cluster::new(hosts, groups, shards, seed))
}

// The plainest of sessions: if any of this fails nothing else matters.
#[test]
fn nodes_are_made_read_changed_and_deleted() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        assert_eq!(client.ask(c, op::CREATE, &create("/a", b"one", 0)).text(), "/a");
        assert_eq!(client.ask(c, op::CREATE, &create("/a", b"", 0)).error, -110);
        assert_eq!(client.ask(c, op::CREATE, &create("/x/y", b"", 0)).error, -101);
        for n in 0..20 {
            assert_eq!(client.ask(c, op::CREATE, &create(&format!("/a/n{n}"), b"", 0)).error, 0);
        }
        let got = client.ask(c, op::GET_DATA, &read("/a", false));
        assert_eq!((got.data(), got.stat().num_children, got.stat().cversion), (b"one".to_vec(), 20, 20));
        assert_eq!(client.ask(c, op::SET_DATA, &set("/a", b"two", 7)).error, -103);
        assert_eq!(client.ask(c, op::SET_DATA, &set("/a", b"two", 0)).stat().version, 1);
        assert_eq!(client.ask(c, op::DELETE, &delete("/a", -1)).error, -111);
        assert_eq!(client.ask(c, op::DELETE, &delete("/a/n7", -1)).error, 0);
        assert_eq!(client.ask(c, op::DELETE, &delete("/a/n7", -1)).error, -101);
        let names = client.ask(c, op::GET_CHILDREN2, &read("/a", false));
        assert_eq!((names.names().len(), names.stat().cversion), (19, 21));
        assert_eq!(client.ask(c, op::EXISTS, &read("/a/n7", false)).error, -101);
        let reply = client.ask(
            c,
            op::MULTI,
            &multi(&[
                (op::CREATE, create("/m", b"", 0)),
                (op::SET_DATA, set("/m", b"x", 0)),
                (op::DELETE, delete("/a/n1", 0)),
            ]),
        );
        assert_eq!((reply.error, reply.steps()), (0, vec![(1, 0), (5, 0), (2, 0)]));
        assert_eq!(client.ask(c, op::SYNC, &path_and_int("/a", 0)[..6]).text(), "/a");
        client.send(c, op::CLOSE, &[]);
        c.settle();
        assert_eq!(client.hear(c).len(), 1);
        assert!(c.closed.contains_key(&client.node));
        c.agree();
    }
}

// A node that is brought along without its counter gives out names that are taken; one that is made over by anybody is nobody's.
#[test]
fn nodes_are_restored_as_they_were() {
    let restore = |path: &'static str, data: &'static [u8], creates: i32| RestoredNode {
        path,
        data: Some(data),
        acl: vec![acl(31, "sasl", "alice"), acl(17, "world", "anyone")],
        flags: 0,
        ttl: -1,
        version: 7,
        creates,
        aversion: 3,
        ctime: 1_000,
        mtime: 2_000,
    };
    let body = |restore: RestoredNode<'_>| {
        let mut body = Vec::new();
        restore.write(&mut body);
        body
    };
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        assert_eq!(client.ask(c, op::RESTORE, &body(restore("/x/y", b"", 0))).error, -101);
        let open = RestoredNode { acl: vec![acl(31, "world", "anyone")], ..restore("/r", b"one", 1000) };
        for _again in 0..2 {
            assert_eq!(client.ask(c, op::RESTORE, &body(open.clone())).error, 0);
            for child in ["/r/a", "/r/b-0000000999"] {
                let of = RestoredNode { path: child, creates: 0, ..open.clone() };
                assert_eq!(client.ask(c, op::RESTORE, &body(of)).error, 0);
            }
            let stat = client.ask(c, op::EXISTS, &read("/r", false)).stat();
            assert_eq!((stat.version, stat.aversion, stat.ctime, stat.mtime), (7, 3, 1_000, 2_000));
            assert_eq!((stat.num_children, stat.cversion), (2, 1998), "children do not count again");
        }
        let next = client.ask(c, op::CREATE, &create("/r/b-", b"", 2)).text();
        assert_eq!(next, "/r/b-0000001000", "names go on where they were");
        let other = RestoredNode { flags: 4, ..open.clone() };
        assert_eq!(client.ask(c, op::RESTORE, &body(other)).error, -110, "another kind");
        let sealed = RestoredNode { creates: 1, flags: 4, ..restore("/box", b"", 0) };
        assert_eq!(client.ask(c, op::RESTORE, &body(sealed)).error, 0);
        // The list of /box lets nobody here write.
        assert_eq!(
            client.ask(c, op::RESTORE, &body(RestoredNode { flags: 4, ..restore("/box", b"x", 0) })).error,
            -102
        );
        assert_eq!(client.ask(c, op::RESTORE, &body(restore("/box/in", b"", 0))).error, -102);
        for wrong in [
            RestoredNode { flags: 1, ..restore("/w", b"", 0) },
            RestoredNode { flags: 5, ttl: 0, ..restore("/w", b"", 0) },
            RestoredNode { ctime: -1, ..restore("/w", b"", 0) },
        ] {
            assert_eq!(client.ask(c, op::RESTORE, &body(wrong)).error, -8);
        }
        let auth = RestoredNode { acl: vec![acl(31, "auth", "")], ..restore("/w", b"", 0) };
        assert_eq!(client.ask(c, op::RESTORE, &body(auth)).error, -114);
        let in_a_multi = client.ask(c, op::MULTI, &multi(&[(op::RESTORE, body(restore("/w", b"", 0)))]));
        assert_eq!(in_a_multi.error, -5, "restoring is no step");
        c.agree();
    }
}

// Traps 6 and 8: a create that does not ask the parent, and a sequential name that is looked for elsewhere.
#[test]
fn parents_are_asked_and_sequences_follow_them() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let (mut ann, mut eve) = (Client::connect(c, 0), Client::connect(c, 0));
        ann.send_as(c, -4, op::AUTH, &auth("digest", b"ann:secret"));
        c.settle();
        assert_eq!(ann.hear(c).len(), 1);
        let mine = [acl(31, "auth", ""), acl(1, "world", "anyone")];
        assert_eq!(ann.ask(c, op::CREATE, &create_with("/own", b"", 0, &mine)).error, 0);
        for name in ["x", "y", "z", "w"] {
            let path = format!("/own/{name}");
            assert_eq!(eve.ask(c, op::CREATE, &create(&path, b"", 0)).error, -102);
            assert_eq!(ann.ask(c, op::CREATE, &create(&path, b"", 1)).error, 0);
            assert_eq!(eve.ask(c, op::CREATE, &create(&format!("{path}/c"), b"", 0)).error, -108);
            assert_eq!(eve.ask(c, op::DELETE, &delete(&path, -1)).error, -102);
        }
        assert_eq!(
            eve.ask(c, op::CREATE, &create_with("/a", b"", 0, &mine)).error,
            -114,
            "nobody is authenticated"
        );
        // Counters count every create, failed ones do not count, names sort as they were made.
        let names: Vec<String> =
            (0..5).map(|_| ann.ask(c, op::CREATE, &create("/own/n-", b"", 2)).text()).collect();
        assert_eq!(names[0], "/own/n-0000000004");
        assert!(names.is_sorted());
        for name in &names {
            assert_eq!(ann.ask(c, op::GET_DATA, &read(name, false)).error, 0);
        }
        let listed = eve.ask(c, op::GET_ACL, &read("/own", false)[..8]);
        assert!(String::from_utf8_lossy(&listed.body).contains("ann:x"), "the digest is hidden");
        c.agree();
    }
}

// Trap 7, and names that one step makes and the next one counts.
#[test]
fn multi_is_whole_or_nothing() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        let failing = multi(&[
            (op::CREATE, create("/a", b"", 0)),
            (op::CHECK, path_and_int("/none", -1)),
            (op::DELETE, delete("/a", -1)),
        ]);
        let reply = client.ask(c, op::MULTI, &failing);
        assert_eq!((reply.error, reply.steps()), (0, vec![(-1, 0), (-1, -101), (-1, -2)]));
        assert_eq!(client.ask(c, op::EXISTS, &read("/a", false)).error, -101);
        assert_eq!(client.ask(c, op::MULTI, &multi(&[])).steps(), []);
        let sequences = multi(&[
            (op::CREATE, create("/d", b"", 0)),
            (op::CREATE, create("/d/s", b"", 2)),
            (op::CREATE2, create("/d/s", b"", 2)),
            (op::DELETE, delete("/d/s0000000000", -1)),
            (op::SET_DATA, set("/d/s0000000001", b"x", 0)),
        ]);
        let reply = client.ask(c, op::MULTI, &sequences);
        assert_eq!(reply.steps(), [(1, 0), (1, 0), (15, 0), (2, 0), (5, 0)]);
        let stat = client.ask(c, op::GET_CHILDREN2, &read("/d", false)).stat();
        assert_eq!((stat.czxid, stat.pzxid, stat.cversion), (reply.zxid, reply.zxid, 3));
        // A step of a kind that a multi does not know.
        let closes = multi(&[(op::CLOSE, vec![])]);
        assert_eq!(client.ask(c, op::MULTI, &closes).error, -5);
        c.agree();
    }
}

// A client that pipelines relies on its requests being executed in the order sent.
#[test]
fn pipelined_requests_are_executed_in_order() {
    for seed in 0..30 {
        let shape = Shape { hosts: 2, groups: 2, shards: 4, seed: 40 + seed };
        let mut cluster = Cluster::with(shape, |settings| {
            // Without barriers nothing but the session's own order makes a read wait.
            if seed % 3 == 0 {
                settings.consistency = coordination::Consistency::Sequential;
            }
        });
        let c = &mut cluster;
        let mut client = Client::connect(c, (seed % 2) as usize);
        let mut expected = Vec::new();
        // A write that is lost is late, and what was asked after it must wait.
        c.loss = if seed % 3 == 0 { 0.3 } else { 0.0 };
        for n in 0..12 {
            let path = format!("/p{n}");
            expected.push((client.send(c, op::EXISTS, &read(&path, false)), -101));
            expected.push((client.send(c, op::CREATE, &create(&path, b"0", 0)), 0));
            expected.push((client.send(c, op::GET_DATA, &read(&path, false)), 0));
            expected.push((client.send(c, op::SET_DATA, &set(&path, b"1", 0)), 0));
            expected.push((client.send(c, op::SET_DATA, &set(&path, b"2", 0)), -103));
            expected.push((client.send(c, op::DELETE, &delete(&path, 1)), 0));
            let steps = c.rng.index(20);
            c.work(steps);
        }
        c.pass(if seed % 3 == 0 { 9000 } else { 0 });
        c.settle();
        let heard: Vec<(i32, i32)> = client
            .hear(c)
            .into_iter()
            .map(|heard| match heard {
                Heard::Reply(reply) => (reply.xid, reply.error),
                Heard::Event { .. } => panic!("nothing is watched"),
            })
            .collect();
        assert_eq!(heard, expected, "seed {seed}");
    }
}

// A read of several shards that mixes two moments shows a state that never was.
#[test]
fn a_multi_read_shows_one_moment() {
    let mut moved = 0;
    for seed in 0..60 {
        let mut cluster = Cluster::new(2, 2, 4, 700 + seed);
        let c = &mut cluster;
        let (mut reader, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        let paths: Vec<String> = (0..6).map(|n| format!("/k{n}")).collect();
        paths.iter().for_each(|path| assert_eq!(writer.ask(c, op::CREATE, &create(path, b"0", 0)).error, 0));
        let all: Vec<(i32, Vec<u8>)> = paths.iter().map(|path| (op::GET_DATA, read(path, false))).collect();
        let xid = reader.send(c, op::MULTI_READ, &multi(&all));
        for round in 1..4u8 {
            let steps = c.rng.index(25);
            c.work(steps);
            // All at once: a moment shows the same number everywhere.
            let sets: Vec<(i32, Vec<u8>)> =
                paths.iter().map(|path| (op::SET_DATA, set(path, &[b'0' + round], -1))).collect();
            writer.send(c, op::MULTI, &multi(&sets));
        }
        c.settle();
        let heard = reader.hear(c);
        let [Heard::Reply(reply)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!(reply.xid, xid);
        let mut input = JuteInput(&reply.body);
        let mut values = Vec::new();
        while let (Ok(op::GET_DATA), Ok(false), Ok(0)) = (input.i32(), input.bool(), input.i32()) {
            values.push(input.buffer().expect("data").expect("not null").to_vec());
            Stat::read(&mut input).expect("a stat");
        }
        assert_eq!(values.len(), paths.len());
        assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: {values:?}");
        moved += u32::from(values[0] != b"0");
    }
    assert!(moved > 5, "no read was ever overtaken: {moved}");
}

// Two reads of one session, sent together to two shards: the second must not show an older state than the first.
#[test]
fn pipelined_reads_do_not_go_back_in_time() {
    let (mut new, mut again) = (0, 0);
    for seed in 0..150 {
        let mut cluster = Cluster::new(2, 2, 4, 1200 + seed);
        let c = &mut cluster;
        let (mut reader, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        let paths: Vec<String> = (0..6).map(|n| format!("/k{n}")).collect();
        paths.iter().for_each(|path| assert_eq!(writer.ask(c, op::CREATE, &create(path, b"0", 0)).error, 0));
        let xids: Vec<i32> =
            paths.iter().map(|path| reader.send(c, op::GET_DATA, &read(path, false))).collect();
        // Written from the last to the first: who sees a new one sees all behind it.
        for path in paths.iter().rev() {
            let steps = c.rng.index(15);
            c.work(steps);
            writer.send(c, op::SET_DATA, &set(path, b"1", -1));
        }
        c.settle();
        let heard = reader.hear(c);
        let values: Vec<Vec<u8>> = heard
            .iter()
            .map(|heard| match heard {
                Heard::Reply(reply) => reply.data(),
                Heard::Event { .. } => panic!("nothing is watched"),
            })
            .collect();
        assert_eq!(values.len(), xids.len());
        assert!(values.is_sorted(), "seed {seed}: {values:?}");
        new += u32::from(values[0] != values[5]);
        again += c.metrics(0).reads_again;
    }
    assert!(new > 5 && again > 5, "{new} {again}");
}

// An error of one part is that part's alone.
#[test]
fn a_multi_read_reports_errors_one_by_one() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        client.ask(c, op::CREATE, &create("/a", b"x", 0));
        let parts = [
            (op::GET_CHILDREN, read("/", false)),
            (op::GET_DATA, read("/none", false)),
            (op::GET_DATA, read("/a", false)),
        ];
        let reply = client.ask(c, op::MULTI_READ, &multi(&parts));
        let mut input = JuteInput(&reply.body);
        assert_eq!((input.i32(), input.bool(), input.i32()), (Ok(op::GET_CHILDREN), Ok(false), Ok(0)));
        assert_eq!(input.texts(), Ok(vec!["a", "zookeeper"]));
        assert_eq!(
            (input.i32(), input.bool(), input.i32(), input.i32()),
            (Ok(-1), Ok(false), Ok(-101), Ok(-101))
        );
        assert_eq!((input.i32(), input.bool(), input.i32()), (Ok(op::GET_DATA), Ok(false), Ok(0)));
        assert_eq!(input.buffer(), Ok(Some(&b"x"[..])));
    }
}

// Who may do what, and as whom, decides over every secret in the tree.
#[test]
fn users_are_who_they_prove_to_be() {
    let shape = Shape { hosts: 1, groups: 1, shards: 4, seed: 31 };
    let mut cluster = Cluster::with(shape, |settings| {
        settings.super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
    });
    let c = &mut cluster;
    let (mut client, mut admin) = (Client::connect(c, 0), Client::connect(c, 0));
    let nobody = [acl(31, "digest", "x:y")];
    assert_eq!(client.ask(c, op::CREATE, &create_with("/secret", b"s", 0, &nobody)).error, 0);
    assert_eq!(client.ask(c, op::GET_DATA, &read("/secret", false)).error, -102);
    assert_eq!(client.ask(c, op::EXISTS, &read("/secret", true)).error, -102);
    let by_address = [acl(31, "ip", "10.1.0.0/16")];
    assert_eq!(client.ask(c, op::CREATE, &create_with("/net", b"s", 0, &by_address)).error, 0);
    assert_eq!(client.ask(c, op::GET_DATA, &read("/net", false)).error, 0);
    admin.send_as(c, -4, op::AUTH, &auth("digest", b"super:test"));
    assert_eq!(admin.hear(c), [Heard::Reply(Reply { xid: -4, zxid: 0, error: 0, body: vec![] })]);
    assert_eq!(admin.ask(c, op::GET_DATA, &read("/secret", false)).data(), b"s");
    let who = admin.ask(c, op::WHO_AM_I, &[]);
    let text = String::from_utf8_lossy(&who.body).into_owned();
    assert!(text.contains("10.1.2.3") && text.contains("digest") && !text.contains("D/InIHSb"), "{text}");
    client.send_as(c, -4, op::AUTH, &auth("kerberos", b""));
    assert!(matches!(&client.hear(c)[..], [Heard::Reply(Reply { error: -115, .. })]));
    assert!(c.closed.contains_key(&client.node));
}

// An answer that clients do not expect makes them close; a frame that is too long must not be read.
#[test]
fn what_is_not_understood_is_refused_in_zookeepers_way() {
    let mut cluster = Cluster::new(1, 1, 4, 33);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    assert_eq!(client.ask(c, op::GET_DATA, &[0, 0, 0, 9, b'/']).error, -5);
    assert_eq!(client.ask(c, op::RECONFIG, &[]).error, -123);
    for (flags, ttl, error) in [(5, 100, 0), (5, 0, -8), (0, 7, -8), (9, -1, -8), (6, 1 << 50, -8)] {
        let mut body = create("/ttl", b"", flags);
        body.put_i64(ttl);
        assert_eq!(client.ask(c, op::CREATE_TTL, &body).error, error, "flags {flags} ttl {ttl}");
    }
    for path in ["/", "/zookeeper", "/zookeeper/config", "relative"] {
        assert_eq!(client.ask(c, op::DELETE, &delete(path, -1)).error, -8, "{path}");
    }
    assert_eq!(client.ask(c, op::CREATE, &create("/a//b", b"", 0)).error, -101);
    assert_eq!(client.ask(c, op::CREATE, &create("/a\u{1}", b"", 0)).error, -8);
    assert_eq!(client.ask(c, op::CREATE, &create("/", b"", 0)).error, -110);
    let unknown = client.ask(c, 500, &[]);
    assert_eq!(unknown.error, -6);
    assert!(c.closed.contains_key(&client.node), "closed behind the answer");
    let other = Client::connect(c, 0);
    c.input(other.node, vec![0, 0x20, 0, 0]);
    assert!(c.closed.contains_key(&other.node));
    assert_eq!(c.metrics(0).frames_refused, 1);
}

// Trap 9: Curator replaces its list of servers by what it finds in this node.
#[test]
fn the_config_node_lists_the_gateways_of_members() {
    let shape = Shape { hosts: 1, groups: 1, shards: 4, seed: 35 };
    let mut cluster = Cluster::with(shape, |settings| {
        settings.super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
    });
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    let shown = |client: &mut Client, c: &mut Cluster| {
        let reply = client.ask(c, op::GET_DATA, &read("/zookeeper/config", false));
        let text = String::from_utf8(reply.data()).expect("text");
        let lines = text.lines().filter(|line| line.starts_with("server.")).map(str::to_owned);
        (lines.collect::<Vec<_>>().join(" "), reply.stat().version)
    };
    let say = |c: &mut Cluster, host: u32, line: &str, members: &[u32]| {
        c.advertise(0, Body::Advertise { host, line, members: members.to_vec() }.written());
    };
    assert_eq!(shown(&mut client, c), (String::new(), 0));
    say(c, 7, "b:1:1:participant;b:2181", &[5, 7]);
    say(c, 5, "a:1:1:participant;a:2181", &[5, 7]);
    let both = "server.5=a:1:1:participant;a:2181 server.7=b:1:1:participant;b:2181";
    assert_eq!(shown(&mut client, c), (both.to_owned(), 2));
    say(c, 5, "a:1:1:participant;a:2181", &[5, 7]);
    let last = c.gsn;
    for _ in 0..20 {
        say(c, 5, "a:1:1:participant;a:2181", &[5, 7]);
        c.pass(4_000);
    }
    assert_eq!(c.gsn, last, "what stands there is written again");
    let mut client = Client::connect(c, 0);
    assert_eq!(shown(&mut client, c), (both.to_owned(), 2), "nothing new");
    say(c, 5, "a:1:1:participant;a:2182", &[5]);
    assert_eq!(shown(&mut client, c), ("server.5=a:1:1:participant;a:2182".to_owned(), 3));
    assert_eq!(client.ask(c, op::SET_DATA, &set("/zookeeper/config", b"", -1)).error, -102);
    let mut admin = Client::connect(c, 0);
    admin.send_as(c, -4, op::AUTH, &auth("digest", b"super:test"));
    assert!(matches!(&admin.hear(c)[..], [Heard::Reply(Reply { error: 0, .. })]));
    let written = set("/zookeeper/config", b"server.9=c:1:1:participant;c:2181", -1);
    assert_eq!(admin.ask(c, op::SET_DATA, &written).error, 0);
    c.pass(60_000);
    say(c, 5, "a:1:1:participant;a:2182", &[5]);
    let mut client = Client::connect(c, 0);
    assert_eq!(shown(&mut client, c).0, "server.5=a:1:1:participant;a:2182");
}

// A sync that answers zxid 0 shows its client nothing about where it stands.
#[test]
fn the_answer_to_a_sync_says_how_far_the_service_is() {
    let mut cluster = Cluster::new(1, 1, 4, 47);
    let c = &mut cluster;
    let mut writer = Client::connect(c, 0);
    let written = writer.ask(c, op::CREATE, &create("/s", b"", 0));
    let mut reader = Client::connect(c, 0);
    let mut path = Vec::new();
    path.put_text("/");
    let reply = reader.ask(c, op::SYNC, &path);
    assert_eq!(reply.error, 0);
    assert!(reply.zxid >= written.zxid && written.zxid > 0, "{reply:?} after {written:?}");
}

// One that asks faster than it is answered must be stopped, and go on when there is room.
#[test]
fn the_fast_are_paused_and_lose_nothing() {
    let shape = Shape { hosts: 1, groups: 1, shards: 4, seed: 39 };
    let mut cluster = Cluster::with(shape, |settings| settings.outstanding_max = 10);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    c.held.extend((0..4).map(|space| (0, mason::Space(space))));
    let xids: Vec<i32> = (0..50).map(|_| client.send(c, op::CREATE, &create("/s-", b"", 2))).collect();
    c.settle();
    assert_eq!((c.paused.get(&client.node), c.metrics(0).outstanding), (Some(&true), 10));
    c.held.clear();
    c.settle();
    let heard = client.hear(c);
    assert_eq!(heard.len(), xids.len());
    assert_eq!(c.paused.get(&client.node), Some(&false));
}

// A client whose shards are silent must get the chance to try elsewhere.
#[test]
fn who_is_not_answered_is_let_go() {
    let mut cluster = Cluster::new(2, 1, 4, 41);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    c.held.extend((0..4).map(|space| (0, mason::Space(space))));
    client.send(c, op::GET_DATA, &read("/", false));
    c.pass(9000);
    assert!(!c.closed.contains_key(&client.node));
    c.pass(3000);
    assert!(c.closed.contains_key(&client.node));
    assert_eq!(c.metrics(0).stalled, 1);
}
