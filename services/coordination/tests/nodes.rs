//! What stands in the tree's colour over FuzzyLog, and what the home is asked: golden bytes, and hostile ones.

use coordination::feeder::pack::{OwedWork, Pack, PackItem, Respread, Tick};
use coordination::home::{HomeQuery, LocateQuery, VoidsQuery};
use kernel::{Bytes, Decode, Encode, NodeId, Rng};
use mason::{Number, Operation, Placed, Space};

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pack() -> Pack {
    let body = Bytes::from_static(b"x");
    let operation = Operation { origin: NodeId::ZERO, incarnation: 1, tag: 2, body: body.clone() };
    let items = vec![
        PackItem::Asked(operation),
        PackItem::FollowUp(OwedWork { id: 3, body }),
        PackItem::Tick(Tick { after: 4, passed: 11 }),
        PackItem::Reshard(Respread { version: 5, shards: 6 }),
    ];
    Pack { feeder: NodeId::ZERO, run: 7, number: 8, time: 9, trimmed: 10, items }
}

fn queries() -> [HomeQuery; 2] {
    let wanted = vec![Placed { space: Space(2), number: Number(3) }];
    [
        HomeQuery::Voids(VoidsQuery { from: 1, to: 2 }),
        HomeQuery::Locate(LocateQuery { wanted, from: 4, to: 5 }),
    ]
}

// Nodes stay in the colour across versions: one that reads otherwise is executed otherwise.
#[test]
fn nodes_have_golden_bytes() {
    let golden = [
        "0000000000000000",
        "0700000000000000",
        "0800000000000000",
        "0900000000000000",
        "0a00000000000000",
        "04000000",
        "01 0000000000000000 0100000000000000 0200000000000000 01000000 78",
        "02 0300000000000000 01000000 78",
        "03 0400000000000000 0b00000000000000",
        "04 0500000000000000 0600",
    ];
    assert_eq!(hexadecimal(&pack().encoded()), golden.concat().replace(' ', ""));
}

fn read_back<T: Encode + Decode + PartialEq + std::fmt::Debug>(written: &T) {
    let bytes = Bytes::from(written.encoded());
    assert_eq!(T::decoded(&bytes).as_ref(), Ok(written));
    for end in 0..bytes.len() {
        assert!(T::decoded(&bytes.slice(..end)).is_err(), "{written:?} reads back from {end} bytes");
    }
}

// A node that another host has appended, or a part of one, must not be taken for something else.
#[test]
fn a_part_is_refused_and_noise_does_no_harm() {
    read_back(&pack());
    queries().iter().for_each(read_back);
    let (mut rng, whole) = (Rng::seeded(5), pack().encoded());
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..rng.between(1, 4) {
            let at = rng.index(bytes.len());
            bytes[at] = rng.bits() as u8;
        }
        let bytes = Bytes::from(bytes);
        if let Ok(read) = Pack::decoded(&bytes) {
            assert!(read.items.len() <= bytes.len());
        }
        let _ = HomeQuery::decoded(&bytes);
    }
}
