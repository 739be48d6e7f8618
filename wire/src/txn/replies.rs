//! What users are answered.

use super::{KeyRow, ScannedRows, Timestamp};
use kernel::{Decode, DecodeError, Encode, Reader};
use std::fmt;

kernel::messages! {
    /// Everything a user is answered. Each answer has the user's number of the call, and the session's token where it has grown.
    pub enum TxnReply {
        /// To a read-only transaction.
        1 => ReadRows {
            /// The user's number of the call.
            id: u64,
            /// The session's token from now on.
            token: Timestamp,
            /// The transaction is placed here.
            at: Timestamp,
            /// The keys, in the order in which they were asked for.
            rows: Vec<KeyRow>,
            /// The scans, in the order in which they were asked for.
            scans: Vec<ScannedRows>,
        },
        /// To a commit: it is durable, and its time has surely passed.
        2 => Committed {
            /// The user's number of the call.
            id: u64,
            /// The session's token from now on.
            token: Timestamp,
            /// The commit timestamp: the version of what was written.
            at: Timestamp,
            /// What was read, in the order in which it was asked for.
            rows: Vec<KeyRow>,
        },
        /// To a commit with conditions: one does not hold; nothing was written.
        3 => NotMet {
            /// The user's number of the call.
            id: u64,
            /// The session's token from now on.
            token: Timestamp,
            /// The index of the first condition that does not hold.
            condition: u32,
            /// What was to be read otherwise.
            rows: Vec<KeyRow>,
        },
        /// To the beginning of an interactive transaction.
        4 => Begun {
            /// The user's number of the call, and the transaction's.
            id: u64,
            /// What a later attempt gives, so that it is not always the younger one.
            priority: Timestamp,
        },
        /// To a read within an interactive transaction.
        5 => RowsWithin {
            /// The user's number of the call.
            id: u64,
            /// The session's token from now on: the user has seen this, whatever becomes of the transaction.
            token: Timestamp,
            /// The keys, in the order in which they were asked for.
            rows: Vec<KeyRow>,
            /// The scans, in the order in which they were asked for.
            scans: Vec<ScannedRows>,
        },
        /// To a fence.
        6 => Fenced {
            /// The user's number of the call.
            id: u64,
            /// The session's token.
            token: Timestamp,
        },
        /// To a question for a commit's fate.
        7 => CommitFate {
            /// The user's number of the call.
            id: u64,
            /// Its timestamp, if it was committed. None: it was not, or that is not known any more.
            committed: Option<Timestamp>,
        },
        /// To a call that was not executed, or of which that is not known.
        8 => Failed {
            /// The user's number of the call.
            id: u64,
            /// Why.
            why: TxnFailure,
        },
    }
}

/// Why a call has no result. Says whether it may be sent again, and whether it may have been executed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TxnFailure {
    /// Not executed: an older transaction needed its locks, or a host forgot them. The whole transaction may be tried again.
    Aborted,
    /// Not executed: too much is waiting. May be sent again, after a while.
    Busy,
    /// A commit that may have been executed, and may still be: ask for its status.
    Unknown,
    /// Never executed: a limit is exceeded, or the call is malformed.
    Malformed,
    /// Not executed: the versions of that time are not retained any more.
    Collected,
    /// Not executed: the timestamp or token is in the future.
    FromTheFuture,
    /// Not executed: the host's clock cannot be relied on.
    NoClock,
    /// Not executed: the disks are full.
    DiskFull,
    /// Not executed: there is no such transaction; it has ended, or was idle for too long.
    NoTransaction,
    /// Not executed in time: a shard has no leader that can be reached. May be sent again.
    Unavailable,
    /// Never executed: the caller was not granted it.
    NotGranted,
}

impl TxnFailure {
    /// All, in the order of their numbers on the wire, from 1 on.
    pub const ALL: [Self; 11] = [
        Self::Aborted,
        Self::Busy,
        Self::Unknown,
        Self::Malformed,
        Self::Collected,
        Self::FromTheFuture,
        Self::NoClock,
        Self::DiskFull,
        Self::NoTransaction,
        Self::Unavailable,
        Self::NotGranted,
    ];

    /// True if the call surely had no effect.
    pub fn is_surely_void(self) -> bool {
        self != Self::Unknown
    }

    /// True if the same call may be sent again and may succeed then.
    pub fn may_be_retried(self) -> bool {
        matches!(self, Self::Aborted | Self::Busy | Self::NoClock | Self::DiskFull | Self::Unavailable)
    }
}

impl fmt::Display for TxnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "aborted in favour of an older transaction: nothing was executed, try again",
            Self::Busy => "busy: nothing was executed, try again later",
            Self::Unknown => "the commit may have been executed, or may still be: ask for its status",
            Self::Malformed => "malformed, or beyond a limit: nothing was executed",
            Self::Collected => "the versions of that time are not retained any more: nothing was executed",
            Self::FromTheFuture => "the timestamp or token is in the future: nothing was executed",
            Self::NoClock => "the host's clock cannot be relied on: nothing was executed",
            Self::DiskFull => "the disks are full: nothing was executed",
            Self::NoTransaction => {
                "there is no such transaction: it has ended, or was idle for too long; nothing was executed"
            }
            Self::Unavailable => "a shard cannot be reached: nothing was executed, try again",
            Self::NotGranted => "not granted: nothing was executed",
        })
    }
}

impl Encode for TxnFailure {
    fn encode(&self, out: &mut Vec<u8>) {
        let at = Self::ALL.iter().position(|known| known == self).unwrap_or(0);
        out.push(at as u8 + 1);
    }
}

impl Decode for TxnFailure {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let tag = u8::decode(input)?;
        let known = usize::from(tag).checked_sub(1).and_then(|at| Self::ALL.get(at));
        known.copied().ok_or(DecodeError::UnknownTag("failure of a transaction", tag))
    }
}
