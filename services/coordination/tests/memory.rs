//! How much memory nodes take; measured by counting what is allocated.

use coordination::wire::{
    Acl, Body, Caller, ConnectionEpoch, Identity, JuteOutput, WriteHead, ZkSessionId, op, write_acls,
};
use coordination::{Placement, Znodes};
use kernel::Bytes;
use mason::{Gsn, Number, Order, Placed, Shard, ShardOut, Space};

fn create(path: &str, data: &[u8]) -> Bytes {
    let mut request = Vec::new();
    request.put_text(path);
    request.put_buffer(Some(data));
    write_acls(&[Acl { permissions: 31, who: Identity::new("world", "anyone") }], &mut request);
    request.put_i32(0);
    let head = WriteHead {
        session: ZkSessionId(1),
        epoch: ConnectionEpoch(1),
        ephemeral: false,
        ttl_allowed: false,
        caller: Caller::default(),
        opcode: op::CREATE,
    };
    Body::Write { head, request: &request }.written().into()
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
}

// A tree that takes three times its data's size does not fit where ZooKeeper's did.
#[test]
fn a_node_of_a_hundred_bytes_takes_little_more() {
    const NODES: u64 = 200_000;
    let mut shard = Znodes::new(Space(0), Placement::new(1), 1);
    let before = resident();
    let data = [7; 100];
    let mut number = 0;
    let mut execute = |shard: &mut Znodes, path: &str| {
        number += 1;
        let numbers = vec![Placed { space: Space(0), number: Number(number) }];
        let order = Order { numbers: numbers.into(), gsn: Gsn(number), time: 1 };
        let mut out = ShardOut::default();
        shard.execute(&create(path, &data), &order, &[], &mut out);
        assert_eq!(out.into_parts().0[..4], [0; 4], "{path}");
    };
    for directory in 0..NODES / 1000 {
        execute(&mut shard, &format!("/dir-{directory}"));
        for n in 0..999 {
            execute(&mut shard, &format!("/dir-{directory}/node-{n:08}"));
        }
    }
    assert_eq!(shard.len() as u64, NODES + 4);
    let taken = resident().saturating_sub(before) / NODES;
    // 300 MiB for a million.
    assert!(before == 0 || taken <= 314, "{taken} bytes a node");
    println!("{taken} bytes a node");
}
