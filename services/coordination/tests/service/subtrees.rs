//! What is below a path: found, reaped, removed and renamed.

use crate::client::{Client, Heard, Reply, create, delete, path_and_int, read, rename};
use crate::driver::Cluster;
use crate::requests::clusters;
use coordination::wire::{JuteInput, JuteOutput, op};

// What the session owns, and how much there is below a path.
#[test]
fn ephemerals_and_descendants_are_found_on_all_shards() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        client.ask(c, op::CREATE, &create("/d", b"", 0));
        for n in 0..9 {
            client.ask(c, op::CREATE, &create(&format!("/d/{n}"), b"", n % 2));
        }
        let owned = client.ask(c, op::GET_EPHEMERALS, &path_and_int("/d", 0)[..6]).names();
        assert_eq!(owned, ["/d/1", "/d/3", "/d/5", "/d/7"]);
        let count = |reply: &Reply| JuteInput(&reply.body).i32();
        let reply = client.ask(c, op::GET_ALL_CHILDREN_NUMBER, &path_and_int("/d", 0)[..6]);
        assert_eq!(count(&reply), Ok(9));
        let reply = client.ask(c, op::GET_ALL_CHILDREN_NUMBER, &path_and_int("/", 0)[..5]);
        assert_eq!(count(&reply), Ok(13));
        assert_eq!(client.ask(c, op::GET_ALL_CHILDREN_NUMBER, &path_and_int("/x", 0)[..6]).error, -101);
    }
}

// A container that stays fills the tree, one that goes too early takes its children's home away.
#[test]
fn containers_and_old_nodes_are_reaped() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        for path in ["/used", "/unused", "/full"] {
            assert_eq!(client.ask(c, op::CREATE_CONTAINER, &create(path, b"", 4)).error, 0);
        }
        for path in ["/used/c", "/full/c"] {
            assert_eq!(client.ask(c, op::CREATE, &create(path, b"", 0)).error, 0);
        }
        assert_eq!(client.ask(c, op::DELETE, &delete("/used/c", -1)).error, 0);
        for (path, ttl) in [("/short", 5000), ("/long", 5_000_000)] {
            let mut body = create(path, b"", 5);
            body.put_i64(ttl);
            assert_eq!(client.ask(c, op::CREATE_TTL, &body).error, 0);
        }
        for _ in 0..30 {
            c.pass(5000);
            client.send_as(c, -2, op::PING, &[]);
            client.hear(c);
        }
        let names = client.ask(c, op::GET_CHILDREN, &read("/", false)).names();
        assert_eq!(names, ["full", "long", "unused", "zookeeper"]);
        c.agree();
    }
}

// A subtree that is moved or removed in part is worse than one that stays.
#[test]
fn subtrees_are_removed_and_renamed_at_once() {
    for mut cluster in clusters() {
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        for path in ["/t", "/t/a", "/t/b", "/t/a/x", "/t/a/y", "/t/b/z", "/to"] {
            assert_eq!(client.ask(c, op::CREATE, &create(path, path.as_bytes(), 0)).error, 0);
        }
        let count = |reply: &Reply| (reply.error, JuteInput(&reply.body).i32().ok());
        let reply = client.ask(c, op::RENAME, &rename("/t", "/to/t2", 100));
        assert_eq!(count(&reply), (0, Some(6)));
        assert_eq!(client.ask(c, op::EXISTS, &read("/t", false)).error, -101);
        let moved = client.ask(c, op::GET_DATA, &read("/to/t2/a/y", false));
        assert_eq!((moved.data(), moved.stat().czxid), (b"/t/a/y".to_vec(), reply.zxid));
        assert_eq!(client.ask(c, op::RENAME, &rename("/to/t2", "/none/t", 100)).error, -101);
        assert_eq!(
            client.ask(c, op::RENAME, &rename("/to/t2", "/to/t3", 5)).error,
            -8,
            "more than the limit"
        );
        assert_eq!(client.ask(c, op::REMOVE_RECURSIVE, &path_and_int("/to/t2", 5)).error, -8);
        let removed = client.ask(c, op::REMOVE_RECURSIVE, &path_and_int("/to/t2", 6));
        assert_eq!(count(&removed), (0, Some(6)));
        assert_eq!(client.ask(c, op::GET_CHILDREN, &read("/to", false)).names(), [""; 0]);
        assert_eq!(client.ask(c, op::REMOVE_RECURSIVE, &path_and_int("/to/t2", 6)).error, -101);
        c.agree();
    }
}

// A removal that races with creates below must take them along or be repeated, and never leave an orphan.
#[test]
fn a_removal_that_races_leaves_no_orphans() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(2, 2, 4, 900 + seed);
        let c = &mut cluster;
        let (mut client, mut writer) = (Client::connect(c, 0), Client::connect(c, 1));
        for path in ["/t", "/t/a", "/t/a/x"] {
            assert_eq!(client.ask(c, op::CREATE, &create(path, b"", 0)).error, 0);
        }
        let xid = client.send(c, op::REMOVE_RECURSIVE, &path_and_int("/t", 100));
        for n in 0..4 {
            let steps = c.rng.index(30);
            c.work(steps);
            writer.send(c, op::CREATE, &create(&format!("/t/a/n{n}"), b"", 0));
        }
        c.settle();
        let heard = client.hear(c);
        assert!(
            matches!(&heard[..], [Heard::Reply(reply)] if reply.xid == xid && reply.error == 0),
            "{heard:?}"
        );
        writer.hear(c);
        assert_eq!(writer.ask(c, op::EXISTS, &read("/t", false)).error, -101);
        let reply = writer.ask(c, op::GET_ALL_CHILDREN_NUMBER, &path_and_int("/", 0)[..5]);
        assert_eq!(JuteInput(&reply.body).i32(), Ok(3), "orphans");
        c.agree();
    }
}
