//! What transactions a load consists of: Retwis and YCSB as the papers have them, and the smallest ones.

use kernel::{Bytes, Rng};
use std::sync::Arc;
use wire::txn::{CallKey, KeyRange, KeyScan, KeyWrite, OneShot, ReadOnly, Timestamp, TxnCall, TxnLevel};

/// Numbers from 0 on, the smaller ones more often: the k-th with a weight of 1/k^theta.
#[derive(Debug)]
pub struct Zipf {
    /// The sum of the weights up to each number, over the sum of all.
    up_to: Vec<f64>,
}

impl Zipf {
    /// Of so many numbers; theta 0: all alike.
    pub fn new(count: u64, theta: f64) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=count.max(1))
            .map(|rank| {
                sum += (rank as f64).powf(-theta);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|part| *part /= sum);
        Self { up_to }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.bits() as f64 / u64::MAX as f64;
        (self.up_to.partition_point(|part| *part < at) as u64).min(self.up_to.len() as u64 - 1)
    }
}

macro_rules! workloads {
    ($($(#[doc = $about:literal])+ $TxnWorkload:ident => $name:literal,)+) => {
        /// A kind of load.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum TxnWorkload { $( $(#[doc = $about])+ $TxnWorkload ),+ }

        impl TxnWorkload {
            /// All of them.
            pub const ALL: &'static [Self] = &[ $( Self::$TxnWorkload ),+ ];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self { $( Self::$TxnWorkload => $name ),+ }
            }

            /// What it consists of.
            pub fn about(self) -> &'static str {
                match self { $( Self::$TxnWorkload => concat!($($about),+).trim_ascii_start() ),+ }
            }
        }
    };
}

workloads! {
    /// One put of one key.
    Put => "put",
    /// A read of one key.
    Read => "read",
    /// 5 % add-user (1 get, 3 puts), 15 % follow (2, 2), 30 % post-tweet (3, 5), 50 % load-timeline (1 to 10 gets).
    Retwis => "retwis",
    /// Half reads, half puts.
    YcsbA => "ycsb-a",
    /// 95 % reads, 5 % puts.
    YcsbB => "ycsb-b",
    /// Reads.
    YcsbC => "ycsb-c",
    /// 95 % reads of what was written last, 5 % puts of new keys.
    YcsbD => "ycsb-d",
    /// 95 % scans of up to 100 rows, 5 % puts of new keys.
    YcsbE => "ycsb-e",
    /// Half reads, half reads and writes of a key.
    YcsbF => "ycsb-f",
    /// Reads and writes of four keys.
    YcsbT => "ycsb-t",
}

impl TxnWorkload {
    /// The workload of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|workload| workload.name() == name)
    }
}

/// Draws transactions.
#[derive(Clone, Debug)]
pub struct Draws {
    /// What they are.
    pub workload: TxnWorkload,
    /// Of those that write nothing.
    pub level: TxnLevel,
    /// Which keys.
    pub zipf: Arc<Zipf>,
    /// How many there are.
    pub keys: u64,
    /// What is written.
    pub value: Bytes,
}

/// The key of a number.
pub fn key(number: u64) -> Bytes {
    // Ranks are distributed over the shards, and neighbours by rank are no neighbours by key.
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes().into()
}

impl Draws {
    fn any(&self, rng: &mut Rng) -> Bytes {
        key(self.zipf.draw(rng))
    }

    fn several(&self, count: u64, rng: &mut Rng) -> Vec<Bytes> {
        let mut keys: Vec<Bytes> = Vec::new();
        while (keys.len() as u64) < count.min(self.keys) {
            let drawn = self.any(rng);
            if !keys.contains(&drawn) {
                keys.push(drawn);
            }
        }
        keys
    }

    fn read(&self, keys: Vec<Bytes>, token: Timestamp) -> TxnCall {
        ReadOnly { id: 0, token, level: self.level, keys, scans: Vec::new() }.into()
    }

    /// Reads the first keys and writes the last ones.
    fn write(&self, reads: Vec<Bytes>, writes: &[Bytes], token: Timestamp) -> TxnCall {
        let write = |key: &Bytes| KeyWrite { key: key.clone(), value: Some(self.value.clone()) };
        let writes = writes.iter().map(write).collect();
        let (conditions, otherwise) = (Vec::new(), Vec::new());
        let key: Option<CallKey> = None;
        OneShot { id: 0, token, key, acknowledged: 0, conditions, writes, reads, otherwise }.into()
    }

    /// The next transaction of a session with this token. `inserted`: keys that were added so far.
    pub fn call(&self, token: Timestamp, inserted: &mut u64, rng: &mut Rng) -> TxnCall {
        let percent = rng.below(100);
        let insert = |inserted: &mut u64| {
            *inserted += 1;
            self.write(Vec::new(), &[key(self.keys + *inserted)], token)
        };
        match self.workload {
            TxnWorkload::Put => self.write(Vec::new(), &self.several(1, rng), token),
            TxnWorkload::Read | TxnWorkload::YcsbC => self.read(self.several(1, rng), token),
            TxnWorkload::Retwis => {
                let (gets, puts) = match percent {
                    0..=4 => (1, 3),
                    5..=19 => (2, 2),
                    20..=49 => (3, 5),
                    _ => {
                        let count = 1 + rng.below(10);
                        return self.read(self.several(count, rng), token);
                    }
                };
                let keys = self.several(gets.max(puts), rng);
                self.write(keys[..gets as usize].to_vec(), &keys[..puts as usize], token)
            }
            TxnWorkload::YcsbA | TxnWorkload::YcsbB => {
                let reads = if self.workload == TxnWorkload::YcsbA { 50 } else { 95 };
                let keys = self.several(1, rng);
                if percent < reads { self.read(keys, token) } else { self.write(Vec::new(), &keys, token) }
            }
            TxnWorkload::YcsbD if percent < 95 => {
                let back = self.zipf.draw(rng);
                self.read(vec![key((self.keys + *inserted).saturating_sub(back))], token)
            }
            TxnWorkload::YcsbE if percent < 95 => {
                let limit = 1 + rng.below(100) as u32;
                let range = KeyRange { start: self.any(rng), end: None };
                let scans = vec![KeyScan { range, limit }];
                ReadOnly { id: 0, token, level: self.level, keys: Vec::new(), scans }.into()
            }
            TxnWorkload::YcsbD | TxnWorkload::YcsbE => insert(inserted),
            TxnWorkload::YcsbF => {
                let keys = self.several(1, rng);
                if percent < 50 { self.read(keys, token) } else { self.write(keys.clone(), &keys, token) }
            }
            TxnWorkload::YcsbT => {
                let keys = self.several(4, rng);
                self.write(keys.clone(), &keys, token)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // No skew, or too much of it, makes figures that nobody can compare.
    #[test]
    fn ranks_are_drawn_by_their_weights() {
        let (zipf, mut rng) = (Zipf::new(1_000, 0.7), Rng::seeded(7));
        let mut counts = vec![0u64; 1_000];
        (0..200_000).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
        let weights: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-0.7)).sum();
        for rank in [1u64, 2, 10, 100] {
            let expected = 200_000.0 * (rank as f64).powf(-0.7) / weights;
            let found = counts[rank as usize - 1] as f64;
            assert!((found / expected - 1.0).abs() < 0.2, "rank {rank}: {found} of {expected}");
        }
        let flat = Zipf::new(4, 0.0);
        let mut counts = [0u64; 4];
        (0..4_000).for_each(|_| counts[flat.draw(&mut rng) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    // A mix that is another one than its name says.
    #[test]
    fn retwis_is_mixed_as_the_paper_has_it() {
        let draws = Draws {
            workload: TxnWorkload::Retwis,
            level: TxnLevel::Rss,
            zipf: Arc::new(Zipf::new(1_000, 0.7)),
            keys: 1_000,
            value: Bytes::new(),
        };
        let (mut rng, mut inserted, mut kinds) = (Rng::seeded(3), 0, [0u32; 4]);
        for _ in 0..20_000 {
            match draws.call(Timestamp(0), &mut inserted, &mut rng) {
                TxnCall::ReadOnly(read) => {
                    assert!((1..=10).contains(&read.keys.len()));
                    kinds[3] += 1;
                }
                TxnCall::OneShot(call) => match (call.reads.len(), call.writes.len()) {
                    (1, 3) => kinds[0] += 1,
                    (2, 2) => kinds[1] += 1,
                    (3, 5) => kinds[2] += 1,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
        for (kind, percent) in kinds.iter().zip([5, 15, 30, 50]) {
            assert!(kind.abs_diff(percent * 200) < 600, "{kinds:?}");
        }
    }
}
