//! Everything that reads bytes, on a million inputs that nobody would write: no panic, no memory beyond the input's size.

use coordination::gateway::Settings;
use coordination::wire::{
    Acl, Body, Caller, ConnectRequest, ConnectionEpoch, HomeNotice, Identity, JuteOutput, Origin, Query,
    Request, RestoredNode, SessionAnswer, WatchEvent, WatchSeq, WriteHead, WriteOperation, ZkSessionId, op,
};
use coordination::{HomeSessions, Placement, SessionSettings, Znodes};
use kernel::{Bytes, NodeId, Rng};
use mason::{Group, GroupTime, Gsn, Number, Order, Placed, Shard, ShardOut, Space, Stub, StubOut};

const OPCODES: [i32; 31] = [
    op::CREATE,
    op::DELETE,
    op::EXISTS,
    op::GET_DATA,
    op::SET_DATA,
    op::GET_ACL,
    op::SET_ACL,
    op::GET_CHILDREN,
    op::SYNC,
    op::PING,
    op::GET_CHILDREN2,
    op::MULTI,
    op::CREATE2,
    op::RECONFIG,
    op::CHECK_WATCHES,
    op::REMOVE_WATCHES,
    op::CREATE_CONTAINER,
    op::CREATE_TTL,
    op::MULTI_READ,
    op::AUTH,
    op::SET_WATCHES,
    op::SASL,
    op::GET_EPHEMERALS,
    op::GET_ALL_CHILDREN_NUMBER,
    op::SET_WATCHES2,
    op::ADD_WATCH,
    op::WHO_AM_I,
    op::CLOSE,
    op::RENAME,
    op::REMOVE_RECURSIVE,
    op::RESTORE,
];

/// Something that begins well: small numbers, short texts, headers of multis.
fn plausible(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.index(12) {
        match rng.below(7) {
            0 => out.put_i32(rng.below(30) as i32 - 2),
            1 => {
                out.put_text(["/", "/a", "/a/b", "a", "/a/b-0000000001", "", "/\u{1}", "world"][rng.index(8)])
            }
            2 => out.put_buffer(Some(&vec![7; rng.index(9)])),
            3 => out.push(rng.below(2) as u8),
            4 => {
                out.put_i32(OPCODES[rng.index(OPCODES.len())]);
                out.push(0);
                out.put_i32(-1);
            }
            5 => {
                out.put_i32(1);
                out.put_i32(31);
                out.put_text("world");
                out.put_text("anyone");
            }
            _ => out.put_u64(rng.bits() >> rng.below(64)),
        }
    }
    if rng.chance(0.3) {
        out.put_i32(-1);
        out.push(1);
        out.put_i32(-1);
    }
    out
}

fn mutated(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.index(4) {
        if !bytes.is_empty() {
            let at = rng.index(bytes.len());
            bytes[at] = rng.bits() as u8;
        }
    }
    bytes.truncate(rng.index(bytes.len() + 1).max(bytes.len() / 2));
    bytes
}

fn restore(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let paths =
        ["/", "/a", "/a/b", "/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/zookeeper_limits", "x"];
    RestoredNode {
        path: paths[rng.index(paths.len())],
        data: Some(&[b'x'; 30][..rng.index(30)]),
        acl: vec![Acl { permissions: 31, who: Identity::new("world", "anyone") }],
        flags: [0, 0, 4, 5, 1, -1][rng.index(6)],
        ttl: [-1, -1, 1, 0][rng.index(4)],
        version: rng.bits() as i32,
        creates: rng.bits() as i32,
        aversion: rng.bits() as i32,
        ctime: rng.bits() as i64,
        mtime: rng.bits() as i64,
    }
    .write(&mut out);
    out
}

fn bodies(rng: &mut Rng) -> Vec<u8> {
    let restores = rng.chance(0.2);
    let request = if restores { restore(rng) } else { plausible(rng) };
    let head = WriteHead {
        session: ZkSessionId(rng.below(3)),
        epoch: ConnectionEpoch(1),
        ephemeral: rng.chance(0.5),
        ttl_allowed: rng.chance(0.5),
        caller: Caller::of(&[Identity::new("ip", "::1")]),
        opcode: if restores {
            op::RESTORE
        } else {
            [op::MULTI, op::CREATE, op::SET_DATA, op::DELETE][rng.index(4)]
        },
    };
    let node = NodeId::from_u64(rng.below(9));
    let origin = Origin { gateway: node, connection: node };
    let session = ZkSessionId(1 << 48 | rng.below(3));
    match rng.below(8) {
        0 => Body::Open { origin, nonce: 1, timeout: rng.bits() as i32, address: "::1" }.written(),
        1 => Body::Attach { session, password: &request, origin, timeout: 5, address: "::1" }.written(),
        2 => Body::Touch { sessions: vec![(session, ConnectionEpoch(1)); rng.index(4)] }.written(),
        3 => Body::CleanUp { session, spaces: vec![Space(rng.below(9) as u16); rng.index(4)] }.written(),
        4 => Body::Reap { path: "/a" }.written(),
        5 => Body::Close { session, epoch: ConnectionEpoch(1) }.written(),
        _ => Body::Write { head, request: &request }.written(),
    }
}

fn queries(rng: &mut Rng) -> Vec<u8> {
    let caller = Caller::default();
    let watch = Some(WatchSeq(rng.below(5)));
    match rng.below(6) {
        5 => Query::Quotas { paths: vec!["/", "/a", "/b"][..rng.index(4)].to_vec() },
        0 => Query::Node { caller, opcode: rng.below(14) as i32, path: "/a", watch },
        1 => Query::Nodes { caller, reads: vec![(4, "/a"), (8, "/")] },
        2 => Query::Forget { through: WatchSeq(3), paths: vec!["/a", "/b"] },
        3 => Query::Descendants { path: "/" },
        _ => Query::Reapable { now: rng.bits(), limit: 3 },
    }
    .written()
}

// One client that can stop a server with a few bytes stops everybody's.
#[test]
fn a_million_inputs_are_read_or_refused() {
    let mut rng = Rng::seeded(1);
    let (mut read, mut refused) = (0u32, 0u32);
    let mut count = |good: bool| if good { read += 1 } else { refused += 1 };
    for _ in 0..250_000 {
        let bytes = plausible(&mut rng);
        let bytes = mutated(&mut rng, bytes);
        count(Request::read(OPCODES[rng.index(OPCODES.len())], &bytes).is_ok());
        let (body, query) = (bodies(&mut rng), queries(&mut rng));
        let (body, query) = (mutated(&mut rng, body), mutated(&mut rng, query));
        count(match Body::read(&body) {
            Ok(Body::Write { head, request }) => head.operation(request).is_ok(),
            other => other.is_ok(),
        });
        count(Query::read(&query).is_ok());
        count(match rng.below(4) {
            0 => WatchEvent::read_all(&bytes).is_ok(),
            1 => SessionAnswer::read(&bytes).is_ok(),
            2 => HomeNotice::read(&bytes).is_ok(),
            _ => ConnectRequest::read(&bytes).is_ok(),
        });
    }
    assert_eq!(read + refused, 1_000_000);
    assert!(read > 100_000 && refused > 100_000, "{read} {refused}");
}

// What a write looks like on the way and on arrival must be the same, or shards execute what nobody asked.
#[test]
fn bodies_round_trip() {
    let mut rng = Rng::seeded(2);
    for _ in 0..20_000 {
        let bytes = bodies(&mut rng);
        let body = Body::read(&bytes).expect("as it was written");
        assert_eq!(body.written(), bytes);
    }
    assert_eq!(WriteOperation::read(99, &mut coordination::wire::JuteInput(&[])), Ok(None));
}

// A proxy or a shard that falls over a body falls over it on every replica, and again after every restart.
#[test]
fn stubs_and_shards_survive_any_body() {
    let mut rng = Rng::seeded(3);
    let placement = Placement::new(4);
    let mut stub = HomeSessions::new(Group(0), SessionSettings::new(placement, [1; 32]));
    let mut shard = Znodes::new(Space(1), placement, 1);
    for gsn in 1..40_000u64 {
        let body = bodies(&mut rng);
        let body = Bytes::from(mutated(&mut rng, body));
        let spaces = stub.spaces(&body, &mason::ShardMap::at_bootstrap(4));
        assert!(spaces.is_sorted_by(|a, b| a < b) && spaces.iter().all(|space| space.0 < 4));
        let numbers = spaces.iter().map(|space| Placed { space: *space, number: Number(gsn) }).collect();
        let order = Order { numbers, gsn: Gsn(gsn), time: gsn };
        let (mut out, mut done) = (StubOut::default(), ShardOut::default());
        let ordered = (!spaces.is_empty()).then_some(&order);
        stub.apply(&body, ordered, GroupTime(gsn), &mut out);
        stub.apply_follow_up(&body, ordered, GroupTime(gsn), &mut out);
        stub.on_clock(GroupTime(gsn), gsn % 1000 == 0, &mut out);
        let mut inputs = Vec::new();
        shard.inputs(&body, &order, &mut inputs);
        let garbage = Bytes::from(plausible(&mut rng));
        let others = [(Space(0), if gsn % 2 == 0 { garbage } else { Bytes::new() })];
        shard.execute(&body, &order, &others[..usize::from(gsn % 3 > 0)], &mut done);
        let (query, mut answer) = (queries(&mut rng), Vec::new());
        shard.read(NodeId::from_u64(gsn % 3), &mutated(&mut rng, query), &mut answer);
        assert!(answer.len() >= 12, "an answer without zxid and code");
        if gsn % 100 == 0 {
            let mut copy = Znodes::new(Space(1), Placement::new(4), 1);
            copy.reset();
            let _refused = copy.install(&plausible(&mut rng));
            let _refused = stub.load(&plausible(&mut rng)[..]);
        }
    }
    assert!(!shard.is_empty());
}

// Defaults that differ from ZooKeeper's surprise those who bring their clients along.
#[test]
fn defaults_are_zookeepers() {
    let routes = coordination::Routes { proxies: Vec::new(), shards: Vec::new() };
    let settings = Settings::new(routes, Placement::new(1));
    assert_eq!(settings.frame_bytes_max, 1_048_575);
    assert_eq!(settings.session_timeouts, (4000, 40_000));
}
