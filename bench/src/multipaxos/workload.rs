//! What clients of the store ask for.

use kernel::{Bytes, Rng};
use kv::{Command, Query};
use paxos::{Call, Level, Outcome, Parameters, Paxos};
use sim::cost::{Class, Load, LoadSession};
use std::time::Duration;

/// Puts.
pub const WRITES: Class = Class(0);
/// Gets.
pub const READS: Class = Class(1);

/// Puts and gets of integer keys, drawn uniformly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Workload {
    /// The share of gets, 0 to 1.
    pub reads: f64,
    /// How fresh they are.
    pub level: Level,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How many keys there are.
    pub keys: u64,
}

impl Workload {
    /// Puts alone, of so many bytes.
    pub fn writes(value_bytes: usize) -> Self {
        Self { reads: 0.0, level: Level::Linearizable, value_bytes, keys: 10_000 }
    }

    /// With so large a share of gets.
    pub fn with_reads(self, reads: f64, level: Level) -> Self {
        Self { reads, level, ..self }
    }

    /// So many commands may share a batch, by the bytes that a batch may have unless somebody changed them.
    pub fn fits(&self, commands: usize) -> bool {
        commands <= 1 || commands * self.put(0).len() <= Parameters::default().batch_bytes_max
    }

    /// A put, encoded.
    pub fn put(&self, key: u64) -> Bytes {
        let value = vec![b'v'; self.value_bytes];
        let mut command = Vec::with_capacity(self.value_bytes + 32);
        Command::Put { key: &key.to_le_bytes(), value: &value }.encode(&mut command);
        command.into()
    }

    /// A get, encoded.
    pub fn get(&self, key: u64) -> Bytes {
        let mut query = Vec::with_capacity(32);
        Query::Get { key: &key.to_le_bytes() }.encode(&mut query);
        query.into()
    }
}

impl Load<Paxos> for Workload {
    fn ask(&mut self, _session: LoadSession, rng: &mut Rng) -> (Call, Class) {
        let key = rng.below(self.keys);
        if rng.chance(self.reads) {
            (Call::Read { query: self.get(key), level: self.level }, READS)
        } else {
            (Call::Write(self.put(key)), WRITES)
        }
    }

    fn answered(&mut self, _session: LoadSession, _class: Class, outcome: &Outcome, _now: Duration) -> bool {
        matches!(outcome, Outcome::Done(_))
    }
}
