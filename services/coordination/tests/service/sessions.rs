//! Sessions: opened, moved, expired, closed, and what becomes of their nodes.

use crate::client::{Client, connect_frame, create, read, set};
use crate::driver::Cluster;
use coordination::wire::{JuteInput, op};

fn response(cluster: &mut Cluster, host: usize, frame: Vec<u8>) -> (Vec<u8>, bool) {
    let node = cluster.connect(host);
    cluster.input(node, frame);
    cluster.settle();
    (cluster.output(node), cluster.closed.contains_key(&node))
}

// A client of another age that is answered a byte too many takes the next frame for garbage.
#[test]
fn handshakes_of_all_shapes() {
    let mut cluster = Cluster::new(2, 2, 4, 1);
    let c = &mut cluster;
    let (old, _) = response(c, 0, connect_frame(0, 10_000, 0, &[0; 16], false));
    assert_eq!(old.len(), 4 + 36);
    let (new, _) = response(c, 0, connect_frame(0, 10_000, 0, &[0; 16], true));
    assert_eq!(new.len(), 4 + 37);
    let granted = |bytes: &[u8]| JuteInput(&bytes[8..]).i32();
    for (asked, expected) in [(1, 4000), (10_000, 10_000), (1_000_000, 40_000), (-5, 4000)] {
        let (bytes, _) = response(c, 1, connect_frame(0, asked, 0, &[0; 16], true));
        assert_eq!(granted(&bytes), Ok(expected));
    }
    for garbage in [vec![0, 0, 0, 3, 1, 2, 3], vec![0xff; 4], vec![0x7f, 0xff, 0xff, 0xff], vec![0; 4]] {
        let (bytes, closed) = response(c, 0, garbage);
        assert!(bytes.is_empty() && closed);
    }
    // A request before the handshake is a malformed handshake.
    let (bytes, closed) =
        response(c, 0, crate::client::framed(&[0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, b'/', 0]));
    assert!(bytes.is_empty() && closed);
}

// A session that a stranger can take over, or that is open in two groups, protects nothing.
#[test]
fn sessions_move_and_passwords_protect() {
    for shards in [1, 4] {
        let mut cluster = Cluster::new(2, 2, shards, 3);
        let c = &mut cluster;
        let mut first = Client::connect(c, 0);
        assert_eq!(first.ask(c, op::CREATE, &create("/e", b"", 1)).error, 0);
        assert!(Client::resume(c, 1, first.session, &[9; 16], 0, 10_000).is_none(), "a wrong password");
        assert!(!c.closed.contains_key(&first.node));
        let mut second =
            Client::resume(c, 1, first.session, &first.password, first.last_zxid, 8000).expect("renewed");
        assert_eq!((second.session, second.timeout), (first.session, 8000));
        assert!(c.closed.contains_key(&first.node), "the old connection is closed");
        let owner = second.ask(c, op::EXISTS, &read("/e", false)).stat().ephemeral_owner;
        assert_eq!(owner, first.session);
        assert_eq!(second.ask(c, op::SET_DATA, &set("/e", b"x", -1)).error, 0);
        c.agree();
    }
}

// A write of a connection that has been superseded must not land after one of its successor.
#[test]
fn an_old_connection_writes_nothing() {
    let mut cluster = Cluster::new(2, 1, 4, 5);
    let c = &mut cluster;
    let mut first = Client::connect(c, 0);
    assert_eq!(first.ask(c, op::CREATE, &create("/a", b"", 0)).error, 0);
    // The gateway of the first does not hear of the move before the write is on its way.
    let node = c.connect(1);
    c.input(node, connect_frame(0, 10_000, first.session, &first.password, true));
    c.pass(0);
    let xid = first.send(c, op::SET_DATA, &set("/a", b"late", -1));
    c.settle();
    let heard = first.hear(c);
    assert!(heard.is_empty() || format!("{heard:?}").contains("-118"), "{xid}: {heard:?}");
    let mut other = Client::connect(c, 0);
    assert_eq!(other.ask(c, op::GET_DATA, &read("/a", false)).stat().version, 0);
    c.agree();
}

// Expiry that is early kills the healthy, expiry that is partial leaves locks that nobody holds.
#[test]
fn sessions_expire_late_and_whole() {
    for shards in [1, 4] {
        let mut cluster = Cluster::new(2, 2, shards, 7);
        let c = &mut cluster;
        let mut owner = Client::connect(c, 0);
        let mut watcher = Client::connect(c, 1);
        assert_eq!(owner.ask(c, op::CREATE, &create("/dir", b"", 0)).error, 0);
        for n in 0..12 {
            assert_eq!(owner.ask(c, op::CREATE, &create(&format!("/dir/e{n}"), b"", 1)).error, 0);
        }
        assert_eq!(owner.ask(c, op::CREATE, &create("/dir/s-", b"", 3)).text(), "/dir/s-0000000012");
        // Pings keep it alive.
        for _ in 0..8 {
            c.pass(3000);
            owner.send_as(c, -2, op::PING, &[]);
            watcher.send_as(c, -2, op::PING, &[]);
            c.settle();
            assert_eq!((owner.hear(c).len(), watcher.hear(c).len()), (1, 1));
        }
        c.disconnect(owner.node);
        let children = watcher.ask(c, op::GET_CHILDREN, &read("/dir", true)).names();
        assert_eq!(children.len(), 13);
        c.pass(9500);
        assert_eq!(watcher.ask(c, op::GET_CHILDREN, &read("/dir", false)).names().len(), 13, "too early");
        // Not earlier than the timeout, not much later than it.
        c.pass(2500);
        let (heard, reply) = watcher.ask_heard(c, op::GET_CHILDREN2, &read("/dir", false));
        assert_eq!((reply.names().len(), reply.stat().cversion), (0, 26));
        assert!(matches!(&heard[..], [crate::client::Heard::Event { kind: 4, .. }]), "{heard:?}");
        assert!(Client::resume(c, 1, owner.session, &owner.password, 0, 10_000).is_none());
        let gsns: Vec<i64> =
            (0..3).map(|_| watcher.ask(c, op::EXISTS, &read("/dir", false)).stat().pzxid).collect();
        assert!(gsns.windows(2).all(|pair| pair[0] == pair[1]));
        c.agree();
    }
}

// A group whose leader was away for long must not take its own silence for that of its sessions.
#[test]
fn a_new_leader_and_a_loaded_snapshot_expire_nobody_early() {
    let mut cluster = Cluster::new(1, 1, 4, 9);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    assert_eq!(client.ask(c, op::CREATE, &create("/e", b"", 1)).error, 0);
    c.pass(9000);
    c.reload_group(0);
    c.clock(0, true);
    c.pass(9000);
    assert_eq!(c.sessions(0), 1, "expired by the old deadline");
    assert_eq!(client.ask(c, op::EXISTS, &read("/e", false)).error, 0);
    c.disconnect(client.node);
    c.reload_group(0);
    c.pass(12_000);
    assert_eq!(c.sessions(0), 0, "a loaded session never expires");
    let mut other = Client::connect(c, 0);
    assert_eq!(other.ask(c, op::EXISTS, &read("/e", false)).error, -101);
}

// Replicas of a group that expire a session by different clocks are not replicas: one that was restarted has it from a snapshot.
#[test]
fn a_shorter_timeout_counts_at_once_and_after_a_restart() {
    for reloads in [false, true] {
        let mut cluster = Cluster::new(1, 1, 4, 9);
        let c = &mut cluster;
        let first = Client::connect(c, 0);
        let again = Client::resume(c, 0, first.session, &first.password, 0, 4_000).expect("it is open");
        if reloads {
            c.reload_group(0);
        }
        c.disconnect(again.node);
        c.pass(3_500);
        assert_eq!(c.sessions(0), 1, "expired early; reloads: {reloads}");
        c.pass(2_500);
        assert_eq!(c.sessions(0), 0, "expires by the timeout that it had before; reloads: {reloads}");
    }
}

// A sign of life that meets a session on its way out says that it is gone. Who asked for its end would be disconnected by it, and never
// learn that its nodes are gone.
#[test]
fn a_close_is_answered_though_a_sign_of_life_finds_the_session_closing() {
    let mut cluster = Cluster::new(2, 2, 4, 17);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    assert_eq!(client.ask(c, op::CREATE, &create("/e", b"", 1)).error, 0);
    c.holds_follow_ups = true;
    let xid = client.send(c, op::CLOSE, &[]);
    // Its gateway reports to the group who was heard, and is answered.
    c.pass(1_000);
    assert!(!c.closed.contains_key(&client.node), "disconnected: {:?}", c.closed);
    assert!(client.hear(c).is_empty(), "its node is there");
    c.holds_follow_ups = false;
    c.follow_up();
    c.settle();
    let heard = format!("{:?}", client.hear(c));
    assert!(heard.contains(&format!("xid: {xid}")) && heard.contains("error: 0"), "{heard}");
}

// A close that is answered before the nodes are gone lets the next owner find the lock taken.
#[test]
fn closing_removes_all_nodes_under_one_gsn() {
    for shards in [1, 4] {
        let mut cluster = Cluster::new(2, 2, shards, 11);
        let c = &mut cluster;
        let (mut owner, mut other) = (Client::connect(c, 0), Client::connect(c, 1));
        for parent in ["/p", "/q"] {
            assert_eq!(owner.ask(c, op::CREATE, &create(parent, b"", 0)).error, 0);
            for n in 0..5 {
                assert_eq!(owner.ask(c, op::CREATE, &create(&format!("{parent}/{n}"), b"", 1)).error, 0);
            }
        }
        let reply = owner.ask(c, op::CLOSE, &[]);
        assert_eq!(reply.error, 0);
        assert!(c.closed.contains_key(&owner.node));
        let stats = ["/p", "/q"].map(|path| other.ask(c, op::EXISTS, &read(path, false)).stat());
        assert_eq!(stats.map(|stat| stat.num_children), [0, 0]);
        assert_eq!(stats[0].pzxid, stats[1].pzxid, "one event, one zxid");
        assert!(Client::resume(c, 0, owner.session, &owner.password, 0, 10_000).is_none());
        c.agree();
    }
}

// Ids that collide with what stands for "container" or "time to live" make ephemeral nodes immortal.
#[test]
fn session_ids_are_positive_and_distinct() {
    let mut cluster = Cluster::new(1, 7, 1, 13);
    let c = &mut cluster;
    let mut ids: Vec<i64> = (0..30).map(|_| Client::connect(c, 0).session).collect();
    assert!(ids.iter().all(|id| *id > 0 && (id >> 56) as u8 != 0xff));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 30);
    let homes: std::collections::BTreeSet<i64> = ids.iter().map(|id| id >> 48).collect();
    assert_eq!(homes.len(), 7, "sessions are spread over the groups");
}

// A gateway that takes a liar for a client from the future, or the reverse, shows it an older view.
#[test]
fn a_client_from_the_future_is_turned_away() {
    let mut cluster = Cluster::new(2, 2, 4, 15);
    let c = &mut cluster;
    let mut writer = Client::connect(c, 0);
    for n in 0..10 {
        assert_eq!(writer.ask(c, op::CREATE, &create(&format!("/n{n}"), b"", 0)).error, 0);
    }
    let (zxid, session, password) = (writer.last_zxid, writer.session, writer.password.clone());
    let (bytes, closed) = response(c, 1, connect_frame(zxid + 1000, 10_000, session, &password, true));
    assert!(bytes.is_empty() && closed, "{bytes:?}");
    assert_eq!(c.metrics(1).from_the_future, 1);
    assert!(Client::resume(c, 1, session, &password, zxid, 10_000).is_some());
}

// Submissions that are lost must be made up for, in order and once.
#[test]
fn lost_submissions_are_sent_again() {
    let mut cluster = Cluster::new(1, 2, 4, 17);
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    c.loss = 0.5;
    let xids: Vec<i32> = (0..40).map(|_| client.send(c, op::CREATE, &create("/s-", b"", 2))).collect();
    let mut heard = Vec::new();
    for _ in 0..60 {
        c.pass(200);
        heard.extend(client.hear(c));
    }
    let names: Vec<(i32, String)> = heard
        .iter()
        .map(|heard| match heard {
            crate::client::Heard::Reply(reply) => (reply.xid, reply.text()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected: Vec<(i32, String)> =
        xids.iter().enumerate().map(|(n, xid)| (*xid, format!("/s-{n:010}"))).collect();
    assert_eq!(names, expected);
}

// A group's word that is lost must not leave a connection that reads on for a session that has moved.
#[test]
fn a_connection_learns_of_the_move_all_the_same() {
    let mut cluster = Cluster::new(2, 2, 4, 19);
    let c = &mut cluster;
    let first = Client::connect(c, 0);
    c.deaf = true;
    let second = Client::resume(c, 1, first.session, &first.password, 0, 10_000).expect("renewed");
    assert!(!c.closed.contains_key(&first.node));
    first.send_as(c, -2, op::PING, &[]);
    c.pass(1000);
    assert!(c.closed.contains_key(&first.node));
    assert!(!c.closed.contains_key(&second.node));
}

// A session that comes to another group with its connection, and loses a write, the order of its writes, or its nodes on the way.
#[test]
fn sessions_come_to_another_group_while_they_write() {
    let mut cluster = Cluster::new(2, 2, 4, 17);
    let c = &mut cluster;
    let mut users: Vec<Client> = (0..4).map(|user| Client::connect(c, user % 2)).collect();
    for (number, user) in users.iter_mut().enumerate() {
        assert_eq!(user.ask(c, op::CREATE, &create(&format!("/e{number}"), b"", 1)).error, 0);
    }
    assert_eq!((c.sessions(0), c.sessions(1)), (2, 2));
    // The gateways do not know, and ask the group that does not serve any more; then the one that has not got the sessions yet.
    c.lay_out(1, 2);
    assert_eq!(c.sessions(1), 0);
    for (number, user) in users.iter_mut().enumerate() {
        for version in 0..3 {
            user.send(c, op::SET_DATA, &set(&format!("/e{number}"), &[version as u8], version));
        }
    }
    c.pass(400);
    c.reshard();
    for (number, user) in users.iter_mut().enumerate() {
        // One more on the way before it is known that the first of them will be taken.
        user.send(c, op::SET_DATA, &set(&format!("/e{number}"), b"3", 3));
    }
    c.pass(1000);
    assert_eq!((c.sessions(0), c.sessions(1)), (4, 0));
    for (number, user) in users.iter_mut().enumerate() {
        let heard = user.hear(c);
        let versions = heard.iter().filter_map(|heard| match heard {
            crate::client::Heard::Reply(reply) if reply.error == 0 => Some(reply.stat().version),
            _ => None,
        });
        assert_eq!(versions.collect::<Vec<_>>(), [1, 2, 3, 4], "user {number}: {heard:?}");
    }
    // And back, with nobody writing: who has nothing to say keeps its session, too.
    c.lay_out(2, 2);
    c.reshard();
    c.pass(9000);
    assert_eq!((c.sessions(0), c.sessions(1)), (2, 2));
    for (number, user) in users.iter_mut().enumerate() {
        user.send(c, op::PING, &[]);
        c.pass(100);
        assert_eq!(user.hear(c).len(), 1);
        let stat = user.ask(c, op::EXISTS, &read(&format!("/e{number}"), false)).stat();
        assert_eq!(stat.ephemeral_owner, user.session, "user {number}");
    }
    c.agree();
}

// A group that has nothing to do with a session any more answers for it: its user holds a lock that is another's by now.
#[test]
fn only_who_has_a_session_says_that_it_is_alive() {
    let mut cluster = Cluster::new(1, 2, 4, 17);
    let c = &mut cluster;
    let users: Vec<Client> = (0..4).map(|_| Client::connect(c, 0)).collect();
    assert_eq!((c.sessions(0), c.sessions(1)), (2, 2));
    c.pass(500);
    // Two sessions have left their group, and do not arrive.
    c.lay_out(1, 2);
    let open_in = |c: &Cluster| users.iter().filter(|user| !c.closed.contains_key(&user.node)).count();
    for _ in 0..6 {
        let open = users.iter().filter(|user| !c.closed.contains_key(&user.node)).collect::<Vec<_>>();
        open.into_iter().for_each(|user| {
            user.send_as(c, -2, op::PING, &[]);
        });
        c.pass(1000);
    }
    assert_eq!(open_in(c), 4, "not for two thirds of the timeout yet");
    for _ in 0..3 {
        let open = users.iter().filter(|user| !c.closed.contains_key(&user.node)).collect::<Vec<_>>();
        open.into_iter().for_each(|user| {
            user.send_as(c, -2, op::PING, &[]);
        });
        c.pass(1000);
    }
    assert_eq!(open_in(c), 2, "those whose group has them all the time");
}

// Who was heard from before its session left keeps it, however long the gateway knew of the group of before only.
#[test]
fn what_was_reported_to_the_wrong_group_is_reported_to_the_right_one() {
    let mut cluster = Cluster::new(1, 2, 4, 17);
    let c = &mut cluster;
    let users: Vec<Client> = (0..4).map(|_| Client::connect(c, 0)).collect();
    c.lay_out(1, 2);
    users.iter().for_each(|user| {
        user.send_as(c, -2, op::PING, &[]);
    });
    c.pass(5000);
    c.reshard();
    c.pass(5000);
    assert_eq!(c.sessions(0), 4);
    assert!(users.iter().all(|user| !c.closed.contains_key(&user.node)));
}

// A write of a group that was added is acknowledged, and then somebody reads what was there before, because their gateway does not know
// of the group.
#[test]
fn a_barrier_asks_groups_that_its_gateway_did_not_know() {
    let mut cluster = Cluster::new(2, 2, 4, 17);
    let c = &mut cluster;
    let mut user = Client::connect(c, 0);
    assert_eq!(user.ask(c, op::CREATE, &create("/r", b"", 0)).error, 0);
    c.lay_out(1, 1);
    c.reshard();
    c.pass(2000);
    assert_eq!(user.ask(c, op::EXISTS, &read("/r", false)).error, 0, "one group is asked");
    c.lay_out(2, 2);
    c.reshard();
    c.deaf_group = Some(mason::Group(1));
    user.send(c, op::EXISTS, &read("/r", false));
    c.pass(1000);
    assert!(user.hear(c).is_empty(), "the added group has not said how far it is");
    c.deaf_group = None;
    c.pass(1000);
    assert_eq!(user.hear(c).len(), 1);
}

// A write is accepted by the session's new group while one before it is still on its way to the old one.
#[test]
fn no_write_overtakes_another_on_the_way_to_another_group() {
    let mut cluster = Cluster::new(1, 2, 4, 17);
    let c = &mut cluster;
    let mut users: Vec<Client> = (0..2).map(|_| Client::connect(c, 0)).collect();
    assert_eq!((c.sessions(0), c.sessions(1)), (1, 1));
    for (number, user) in users.iter_mut().enumerate() {
        assert_eq!(user.ask(c, op::CREATE, &create(&format!("/o{number}"), b"", 0)).error, 0);
    }
    let set_each = |c: &mut Cluster, users: &mut Vec<Client>, version: i32| {
        for (number, user) in users.iter_mut().enumerate() {
            user.send(c, op::SET_DATA, &set(&format!("/o{number}"), b"", version));
        }
    };
    c.deaf_group = Some(mason::Group(1));
    set_each(c, &mut users, 0);
    c.lay_out(1, 2);
    c.reshard();
    c.pass(2000);
    set_each(c, &mut users, 1);
    c.pass(2000);
    c.deaf_group = None;
    c.pass(2000);
    for user in &mut users {
        let heard = user.hear(c);
        let errors = heard.iter().filter_map(|heard| match heard {
            crate::client::Heard::Reply(reply) => Some(reply.error),
            _ => None,
        });
        assert_eq!(errors.collect::<Vec<_>>(), [0, 0], "{heard:?}");
    }
}
