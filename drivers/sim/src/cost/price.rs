//! What things cost.

use kernel::Family;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul};
use std::time::Duration;

/// A span of a core's time, in picoseconds: costs of a byte are below a nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cost(pub u64);

impl Cost {
    /// Nothing.
    pub const ZERO: Cost = Cost(0);

    /// So many nanoseconds; negative ones count as none.
    pub fn nanos(nanos: f64) -> Self {
        Self((nanos * 1e3).round().max(0.0) as u64)
    }

    /// In nanoseconds.
    pub fn as_nanos(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl From<Duration> for Cost {
    fn from(duration: Duration) -> Self {
        Self(duration.as_nanos().min(u128::from(u64::MAX / 1_000)) as u64 * 1_000)
    }
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost(self.0 + other.0)
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.0 += other.0;
    }
}

impl Mul<u64> for Cost {
    type Output = Cost;

    fn mul(self, times: u64) -> Cost {
        Cost(self.0 * times)
    }
}

impl Div<u64> for Cost {
    type Output = Cost;

    fn div(self, parts: u64) -> Cost {
        Cost(self.0 / parts)
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::ZERO, Cost::add)
    }
}

/// A kind of message, as the tariff's table knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageKind(pub u16);

/// What a message is to a tariff; its bytes are counted by the simulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Its kind.
    pub kind: MessageKind,
    /// How many commands, reads or answers are in it.
    pub items: u32,
}

/// Weighs the messages of a family.
pub trait Scale<F: Family> {
    /// What `message` is to a tariff.
    fn weigh(&self, message: &F::Message) -> Weight;
}

/// What a handler costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handling {
    /// A message.
    pub message: Cost,
    /// And for each item in it.
    pub item: Cost,
}

/// How a journal becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fsync {
    /// From the request until the disk answers.
    pub latency: Duration,
    /// The core waits for it, as the runtime does where disks are fast.
    pub blocks: bool,
}

/// What a host's core spends, step by step.
#[derive(Clone, Debug)]
pub struct Tariff {
    /// A burst: waking up, and looking who has something.
    pub burst: Cost,
    /// Reading from one other host in a burst, however much there is.
    pub read: Cost,
    /// Writing to one other host in a burst, however much there is.
    pub write: Cost,
    /// A message from another host, before its handler sees it.
    pub receive: Cost,
    /// And for each of its bytes.
    pub receive_byte: Cost,
    /// A message to another host.
    pub send: Cost,
    /// And for each of its bytes.
    pub send_byte: Cost,
    /// A byte added to the journal.
    pub append_byte: Cost,
    /// A timer's handler.
    pub timer: Cost,
    /// A local application's call.
    pub request: Cost,
    /// Handlers, by kind; what is beyond the table costs nothing.
    pub handle: Vec<Handling>,
    /// Inputs that one burst takes; with 1, nothing is worked off together.
    pub burst_inputs_max: usize,
    /// None: the journal is memory, and everything in it counts as durable.
    pub fsync: Option<Fsync>,
}

impl Tariff {
    /// All is free: for clients, of which there are always enough.
    pub fn free() -> Self {
        Self {
            burst: Cost::ZERO,
            read: Cost::ZERO,
            write: Cost::ZERO,
            receive: Cost::ZERO,
            receive_byte: Cost::ZERO,
            send: Cost::ZERO,
            send_byte: Cost::ZERO,
            append_byte: Cost::ZERO,
            timer: Cost::ZERO,
            request: Cost::ZERO,
            handle: Vec::new(),
            burst_inputs_max: usize::MAX,
            fsync: None,
        }
    }

    /// What the handler of such a message costs.
    pub fn handling(&self, weight: Weight) -> Cost {
        let Some(handling) = self.handle.get(usize::from(weight.kind.0)) else { return Cost::ZERO };
        handling.message + handling.item * u64::from(weight.items)
    }
}

/// One of a testbed's tariffs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TariffIndex(pub(super) usize);
