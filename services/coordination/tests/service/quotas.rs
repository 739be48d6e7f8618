//! Quotas of users and bounds of the service: counted, held, and reported.

use crate::client::{Client, acl, create, delete, multi, path_and_int, read, set, set_watches};
use crate::driver::{Cluster, Shape};
use coordination::wire::{JuteOutput, RestoredNode, op};

// A quota that does not count what is there, or refuses what is allowed, is worse than none.
#[test]
fn quotas_count_and_refuse() {
    for (shards, seed) in [(1, 1), (4, 2)] {
        let mut cluster = Cluster::with(Shape { hosts: 3, groups: 2, shards, seed }, |settings| {
            settings.enforce_quota = true;
        });
        let c = &mut cluster;
        let mut client = Client::connect(c, 0);
        for path in ["/app", "/app/a", "/app/a/b", "/application"] {
            assert_eq!(client.ask(c, op::CREATE, &create(path, b"12345", 0)).error, 0);
        }
        let limits: &[u8] = b"count=3,bytes=-1=;byteHardLimit=100;countHardLimit=5";
        for (path, data) in [
            ("/zookeeper/quota/app", &b""[..]),
            ("/zookeeper/quota/app/zookeeper_limits", limits),
            ("/zookeeper/quota/app/zookeeper_stats", b"count=0,bytes=0"),
        ] {
            assert_eq!(client.ask(c, op::CREATE, &create(path, data, 0)).error, 0);
        }
        let stats = |c: &mut Cluster, client: &mut Client| {
            // A round finds the quota, the next one counts.
            (0..3).for_each(|_| c.pass(1100));
            let got = client.ask(c, op::GET_DATA, &read("/zookeeper/quota/app/zookeeper_stats", false));
            let text = String::from_utf8(got.data()).expect("text");
            assert_eq!(got.stat().data_length as usize, text.len());
            text
        };
        assert_eq!(stats(c, &mut client), "count=3,bytes=15");
        assert_eq!(c.metrics(0).quotas_exceeded, 0);
        assert_eq!(client.ask(c, op::CREATE, &create("/app/c", b"1", 0)).error, 0);
        let steps = [(op::CREATE, create("/app/d", b"", 0)), (op::CREATE, create("/app/e", b"", 0))];
        assert_eq!(client.ask(c, op::CREATE, &create("/app/big", &[b'x'; 90], 0)).error, -125, "bytes");
        assert_eq!(client.ask(c, op::CREATE, &create("/app/d", b"", 0)).error, 0);
        assert_eq!(client.ask(c, op::CREATE, &create("/app/e", b"", 0)).error, -125, "nodes");
        let refused = client.ask(c, op::MULTI, &multi(&steps));
        assert_eq!((refused.error, refused.steps()), (0, vec![(-1, -125), (-1, -2)]));
        assert_eq!(client.ask(c, op::CREATE, &create("/application/free", b"", 0)).error, 0, "another path");
        assert_eq!(client.ask(c, op::SET_DATA, &set("/app/a", b"123", -1)).error, 0);
        assert_eq!(client.ask(c, op::DELETE, &delete("/app/c", -1)).error, 0);
        assert_eq!(stats(c, &mut client), "count=4,bytes=13");
        assert_eq!(
            (c.metrics(0).quotas, c.metrics(0).quotas_exceeded, c.metrics(0).quota_refused),
            (1, 1, 3)
        );
        assert_eq!(client.ask(c, op::CREATE, &create("/app/e", b"", 0)).error, 0, "there is room again");
        assert_eq!(client.ask(c, op::DELETE, &delete("/zookeeper/quota/app/zookeeper_limits", -1)).error, 0);
        (0..3).for_each(|_| c.pass(1100));
        assert_eq!(
            client.ask(c, op::CREATE, &create("/app/f", &[b'x'; 90], 0)).error,
            0,
            "no quota any more"
        );
        c.agree();
    }
}

// A bound that is not held lets one client take the memory of all.
#[test]
fn bounds_are_held_and_reported() {
    let shape = Shape { hosts: 1, groups: 1, shards: 4, seed: 1 };
    let mut cluster = Cluster::with(shape, |settings| {
        (settings.node_bytes_max, settings.watches_max) = (10, 3);
        settings.ttl_allowed = false;
    });
    let c = &mut cluster;
    let mut client = Client::connect(c, 0);
    assert_eq!(client.ask(c, op::CREATE, &create("/a", &[b'x'; 10], 0)).error, 0);
    assert_eq!(client.ask(c, op::CREATE, &create("/b", &[b'x'; 11], 0)).error, -8);
    assert_eq!(client.ask(c, op::SET_DATA, &set("/a", &[b'x'; 11], -1)).error, -8);
    let both = multi(&[(op::SET_DATA, set("/a", b"", -1)), (op::CREATE, create("/b", &[b'x'; 11], 0))]);
    assert_eq!(client.ask(c, op::MULTI, &both).error, -8);
    assert_eq!(client.ask(c, op::GET_DATA, &read("/a", true)).stat().version, 0, "a part was executed");
    assert_eq!(client.ask(c, op::ADD_WATCH, &path_and_int("/p", 0)).error, 0);
    assert_eq!(client.ask(c, op::ADD_WATCH, &path_and_int("/q", 1)).error, 0);
    assert_eq!(client.ask(c, op::ADD_WATCH, &path_and_int("/r", 1)).error, -127);
    assert_eq!(client.ask(c, op::EXISTS, &read("/r", true)).error, -127);
    let many = set_watches(0, [&["/r"], &[], &[]], None);
    assert_eq!(client.ask(c, op::SET_WATCHES, &many).error, -127);
    let mut mortal = create("/mortal", b"", 5);
    mortal.put_i64(1000);
    assert_eq!(client.ask(c, op::CREATE_TTL, &mortal).error, -6, "they are switched off");
    let mut brought = Vec::new();
    let restore = RestoredNode {
        path: "/mortal",
        data: None,
        acl: vec![acl(31, "world", "anyone")],
        flags: 5,
        ttl: 1000,
        version: 0,
        creates: 0,
        aversion: 0,
        ctime: 0,
        mtime: 0,
    };
    restore.write(&mut brought);
    assert_eq!(client.ask(c, op::RESTORE, &brought).error, -6, "nor can they be brought");
    let metrics = c.metrics(0);
    assert_eq!((metrics.nodes_refused, metrics.watches_refused, metrics.watches), (3, 3, 3));
}
