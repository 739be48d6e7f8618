//! Requests one by one, and what they are answered.

use crate::client::{Client, create, delete, multi, path_and_int, read, set};
use crate::driver::Cluster;
use coordination::wire::op;

/// Every test runs with one shard and with four.
fn clusters() -> impl Iterator<Item = Cluster> {
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
