//! Calls that no history records: batches, conditions, counters and pages. Each answer is held against a model (`judged.rs`).

use ::paxos::{Call, Level};
use kernel::Rng;
use kv::{Command, Expect, Query};

/// Numbers, most of the time.
const COUNTERS: [&[u8]; 2] = [b"n0", b"n1"];
/// What batches write, and no other call: few values, so that conditions hold now and then.
const SHARED: [&[u8]; 3] = [b"m0", b"m1", b"m2"];
const VALUES: [&[u8]; 3] = [b"", b"a", b"bc"];
/// Between these keys stand all but the large ones.
const BORDERS: [&[u8]; 6] = [b"k", b"k1", b"m0", b"m2", b"n1", b"s0"];

fn one_of<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.index(of.len())]
}

/// A call of anything but single keys.
pub(super) fn draw(rng: &mut Rng) -> Call {
    let mut bytes = Vec::new();
    match rng.below(8) {
        0..=2 => {
            let commands = (0..rng.between(1, 4)).map(|_| command(rng)).collect();
            Command::Batch { commands }.encode(&mut bytes);
            Call::Write(bytes.into())
        }
        3..=5 => {
            command(rng).encode(&mut bytes);
            Call::Write(bytes.into())
        }
        6 => {
            let keys = SHARED.iter().chain(&COUNTERS).copied().filter(|_| rng.chance(0.7)).collect();
            Query::GetMany { keys }.encode(&mut bytes);
            read(bytes, rng)
        }
        _ => {
            let end = rng.chance(0.7).then(|| one_of(&BORDERS, rng));
            Query::Scan { start: one_of(&BORDERS, rng), end, limit: rng.between(1, 5) as u32 }
                .encode(&mut bytes);
            read(bytes, rng)
        }
    }
}

fn read(query: Vec<u8>, rng: &mut Rng) -> Call {
    let level = one_of(&[Level::Linearizable, Level::Sequential, Level::Eventual], rng);
    Call::Read { query: query.into(), level }
}

fn command(rng: &mut Rng) -> Command<'static> {
    let (key, value) = (one_of(&SHARED, rng), one_of(&VALUES, rng));
    match rng.below(8) {
        0 | 1 => Command::Put { key, value },
        2 => Command::Delete { key },
        3 => Command::Put { key: one_of(&COUNTERS, rng), value: one_of(&[b"7", b"x"], rng) },
        4 | 5 => {
            let by = one_of(&[1, 3, -2, i64::MAX], rng);
            Command::Increment { key: one_of(&COUNTERS, rng), by }
        }
        _ => {
            let expect = match rng.below(4) {
                0 => Expect::Absent,
                1 => Expect::Version(rng.below(64)),
                _ => Expect::Value(one_of(&VALUES, rng)),
            };
            Command::CompareAndSet { key, expect, value: rng.chance(0.6).then_some(value) }
        }
    }
}
