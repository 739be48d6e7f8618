//! The partially ordered log: what users ask and are answered. Colours are named by text; a node is in one or several of them.

mod calls;
mod codec;
mod limits;
mod replies;
mod snapshot_id;

pub use calls::*;
pub use codec::{TO_CLIENT, TO_HOST, native_call, native_reply, read_native_call, read_native_reply};
pub use limits::{FuzzyFault, check_colour};
pub use replies::*;
pub use snapshot_id::{NoSnapshotId, SNAPSHOT_BYTES_MAX, SnapshotAcross, SnapshotId};

use kernel::Bytes;
use std::fmt;
use std::str::FromStr;

/// The longest name of a colour, in bytes.
pub const COLOUR_BYTES_MAX: usize = 128;
/// Colours of one node, and of one snapshot.
pub const COLOURS_MAX: usize = 64;
/// Nodes of one call.
pub const NODES_MAX: usize = 256;
/// What the nodes of one call may hold together, in bytes of bodies, each with the names of its colours.
pub const NODES_BYTES_MAX: usize = 1 << 20;
/// Numbers of a client that it does not have the answers to.
pub const NUMBERS_MAX: u64 = 1_024;
/// The longest that a sync waits for a node, in milliseconds.
pub const WAIT_MS_MAX: u32 = 30_000;
/// How much longer than others an operator's change of where colours are is waited for, in milliseconds.
pub const CHANGE_WAIT_MS: u32 = 20_000;

kernel::record! {
    /// A time of the log's order: what a user has seen. Opaque; later times are larger.
    #[derive(Copy, Eq, PartialOrd, Ord, Default)]
    pub struct SeenTime {
        /// A logical clock.
        clock: u64,
        /// The partition that it is of.
        partition: u16,
        /// Distinguishes nodes that went ahead of one that was pending.
        ahead: u64,
    }
}

/// As answers over HTTP write it: `CLOCK-PARTITION-AHEAD`, in hexadecimal digits.
impl fmt::Display for SeenTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.clock, self.partition, self.ahead)
    }
}

/// A text that is no time of an answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no time that an answer has in \"seen\"")]
pub struct NoSeenTime(pub String);

impl FromStr for SeenTime {
    type Err = NoSeenTime;

    fn from_str(text: &str) -> Result<Self, NoSeenTime> {
        let mut parts = text.splitn(3, '-').map(|part| u64::from_str_radix(part, 16).ok());
        let mut next = || parts.next().flatten();
        let seen = (|| {
            let (clock, partition, ahead) = (next()?, next()?, next()?);
            Some(Self { clock, partition: u16::try_from(partition).ok()?, ahead })
        })();
        seen.filter(|_| !text.contains('+')).ok_or_else(|| NoSeenTime(text.to_owned()))
    }
}

kernel::record! {
    /// By whom, and as which of its appends and snapshots, something is done once.
    #[derive(Copy, Eq)]
    pub struct NumberedBy {
        /// 64 bits that no other client has.
        client: u64,
        /// Its number for this.
        number: u64,
        /// It has the answers to all numbers below.
        below: u64,
    }
}

kernel::record! {
    /// A node to be appended.
    #[derive(Eq)]
    pub struct NewNode {
        /// Its colours, each once.
        colours: Vec<Bytes>,
        /// One body for all colours, or one for each, in their order.
        bodies: Vec<Bytes>,
    }
}

kernel::record! {
    /// A node that was appended.
    #[derive(Eq)]
    pub struct AppendedNode {
        /// When.
        at: SeenTime,
        /// Its position in each of its colours, in the order of the call.
        positions: Vec<u64>,
    }
}

kernel::record! {
    /// A node of a colour, as it is played.
    #[derive(Eq)]
    pub struct PlayedNode {
        /// When it was appended; the same in all its colours.
        at: SeenTime,
        /// All its colours. None: it is of another colour whose name has the same digest.
        colours: Vec<Bytes>,
        /// What it holds for this colour.
        body: Bytes,
    }
}

kernel::record! {
    /// So many nodes of a region's log of a colour, from its first on.
    #[derive(Eq)]
    pub struct LogCount {
        /// The region.
        region: Bytes,
        /// How many.
        count: u64,
    }
}

kernel::record! {
    /// Where a node was appended.
    #[derive(Eq)]
    pub struct NodeOrigin {
        /// The region.
        region: Bytes,
        /// Which node of that region's log of the colour; the first is 0.
        number: u64,
        /// What of other regions comes before it, beyond what comes before the nodes before it in its log.
        edges: Vec<LogCount>,
    }
}

kernel::record! {
    /// A place among a partition's nodes: by colour, and in a colour by position.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct NodePoint {
        /// The colour, as the engine knows it.
        colour: u64,
        /// The position.
        position: u64,
    }
}

kernel::record! {
    /// A node of a scan.
    #[derive(Eq)]
    pub struct NodeAt {
        /// Where it is.
        at: NodePoint,
        /// The node as the engine has it, with its name, its time and its colours. None: all nodes of the colour were trimmed, up to there.
        node: Option<Bytes>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A time that is read as an earlier one lets an append go before what its user has seen.
    #[test]
    fn times_are_read_as_they_are_written() {
        let seen = SeenTime { clock: u64::MAX, partition: 300, ahead: 17 };
        assert_eq!(seen.to_string().parse(), Ok(seen));
        for bad in ["", "1", "1-2", "1-2-3-4", "x-0-0", "1-10000-0", "-1-0-0", "+1-0-0"] {
            assert!(bad.parse::<SeenTime>().is_err(), "{bad}");
        }
    }
}
