//! The classes of faults.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! fault_classes {
    ($( $(#[$doc:meta])* $Class:ident => $name:literal ),* $(,)?) => {
        /// A class of faults: switched on or off by each seed, counted by each run.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Class { $( $(#[$doc])* $Class ),* }

        impl Class {
            /// All classes.
            pub const ALL: &'static [Class] = &[ $( Class::$Class ),* ];
            /// How many classes there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self { $( Self::$Class => $name ),* }
            }
        }
    };
}

fault_classes! {
    /// A message is lost.
    Loss => "loss",
    /// A message arrives twice.
    Duplication => "duplication",
    /// A message is overtaken by those sent soon after it.
    Reorder => "reorder",
    /// A message arrives very late.
    Delay => "delay",
    /// A link stops for a while, then floods.
    Clog => "clog",
    /// Two sides that do not hear each other.
    Partition => "partition",
    /// One side does not hear the other.
    OneWayPartition => "partition-one-way",
    /// Two sides joined by one host, or a ring of which each host hears its neighbours only.
    BridgePartition => "partition-bridge",
    /// A process is killed and restarted; what it wrote survives.
    Crash => "crash",
    /// A crash that loses what was written and not synced.
    LostWrites => "crash-lost-writes",
    /// A crash in the middle of a write.
    TornWrite => "crash-torn-write",
    /// A crash after which some unsynced writes are there and earlier ones are not.
    ReorderedWrites => "crash-reordered-writes",
    /// A bit of the durable journal flips.
    BitRot => "bit-rot",
    /// A synced write is not there, or landed elsewhere.
    MisdirectedWrite => "misdirected-write",
    /// A write or fsync fails; the node stops.
    WriteError => "write-error",
    /// The disk is full for a while.
    DiskFull => "disk-full",
    /// A host loses its disk.
    DiskLost => "disk-lost",
    /// A wall clock is off, within its declared error.
    ClockSkew => "clock-skew",
    /// A wall clock jumps, within its declared error.
    ClockJump => "clock-jump",
    /// A clock runs fast or slow.
    ClockDrift => "clock-drift",
    /// A wall clock is off beyond its declared error.
    ClockLie => "clock-lie",
    /// A process stops for a while and goes on.
    Pause => "pause",
    /// A host computes slowly.
    SlowNode => "slow-node",
    /// A disk syncs slowly.
    SlowDisk => "slow-disk",
    /// The membership of the cluster changes.
    Membership => "membership",
    /// A host is restarted in another version.
    Upgrade => "upgrade",
    /// A structural event of the scenario's own, such as killing the leader of the moment.
    Strike => "strike",
    /// Nobody keeps a wall clock for a while.
    ClockLoss => "clock-loss",
    /// Somebody sets a wall clock; its interval is wider until it is right again.
    ClockStep => "clock-step",
}

impl Class {
    /// Whether it strikes single messages, at a probability per message.
    pub fn strikes_messages(self) -> bool {
        matches!(self, Self::Loss | Self::Duplication | Self::Reorder | Self::Delay)
    }

    /// Whether it strikes only roles that rest on the wall clock; see [`crate::Tuning::clock_error_max`].
    pub fn needs_clock(self) -> bool {
        matches!(self, Self::ClockLoss | Self::ClockStep)
    }

    /// Whether it may cost a host its journal.
    pub fn loses_disks(self) -> bool {
        matches!(self, Self::BitRot | Self::MisdirectedWrite | Self::DiskLost)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of classes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Classes(u64);

impl Classes {
    /// No class.
    pub const NONE: Classes = Classes(0);
    /// Every class.
    pub const ALL: Classes = Classes((1 << Class::COUNT) - 1);
    /// What any protocol of crash-stop-recover hosts must bear: no disk is ever lost, no clock lies, and nothing needs
    /// the scenario's help.
    pub const PHYSICAL: Classes = Classes::ALL
        .without(Class::BitRot)
        .without(Class::MisdirectedWrite)
        .without(Class::DiskLost)
        .without(Class::ClockLie)
        .without(Class::Membership)
        .without(Class::Upgrade)
        .without(Class::Strike);

    /// This set and `class`.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class as u8)
    }

    /// This set but `class`.
    #[must_use]
    pub const fn without(self, class: Class) -> Self {
        Self(self.0 & !(1 << class as u8))
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Classes) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether `class` is in it.
    pub const fn has(self, class: Class) -> bool {
        self.0 & 1 << class as u8 != 0
    }

    /// Its members.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL.iter().copied().filter(move |&class| self.has(class))
    }
}

impl FromIterator<Class> for Classes {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        classes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(Class::name)).finish()
    }
}

/// How often each class struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Injections([u64; Class::COUNT]);

impl Injections {
    /// Counts one.
    pub fn count(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// How often `class` struck.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Injections) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Every class that struck, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Class, u64)> + '_ {
        Class::ALL.iter().map(|&class| (class, self.of(class))).filter(|&(_, count)| count > 0)
    }
}
