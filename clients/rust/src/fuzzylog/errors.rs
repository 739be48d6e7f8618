//! Why a call of the partially ordered log has no result.

use crate::CallError;
use wire::fuzzylog::{FuzzyFailure, FuzzyFault};

/// Why a call of the partially ordered log has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FuzzyError {
    /// The host's word: it says whether anything was executed. Of [`FuzzyLog::append_all`](crate::FuzzyLog::append_all) it is that of the
    /// first node that failed: others may be appended.
    #[error("{0}")]
    Failed(FuzzyFailure),
    /// The nodes asked for are gone, and nothing was played: load a view of the state before, and go on.
    #[error("nodes below {resume_from} were trimmed: load the state before from elsewhere, and go on there")]
    AlreadyTrimmed {
        /// The first position that is left.
        resume_from: u64,
    },
    /// There is no such position yet; nothing was done.
    #[error("the colour ends at {tail}")]
    BeyondTail {
        /// The colour's end.
        tail: u64,
    },
    /// Never sent: a limit is exceeded, or the call makes no sense.
    #[error("not sent: {0}")]
    Fault(FuzzyFault),
    /// An append or a trim that may have been executed, or may still be: play the colours to see.
    #[error("no answer in time: it may have been executed, or may still be ({0})")]
    Unknown(CallError),
    /// No host has answered; a sync, a play or a snapshot changes nothing.
    #[error(transparent)]
    Unreached(CallError),
    /// Not played: the views of maps may take no more memory in this process.
    #[error("the views of maps take {used} bytes of memory here, and {max} are allowed")]
    NoMemory {
        /// What they take, in bytes.
        used: usize,
        /// What they may.
        max: usize,
    },
    /// The map is removed. What the call changes is no part of any map.
    #[error("the map is removed")]
    MapRemoved,
}

impl FuzzyError {
    /// True if the call surely had no effect, and never will.
    pub fn is_surely_void(&self) -> bool {
        match self {
            Self::Failed(why) => why.is_surely_void(),
            Self::AlreadyTrimmed { .. }
            | Self::BeyondTail { .. }
            | Self::Fault(_)
            | Self::Unreached(_)
            | Self::NoMemory { .. }
            | Self::MapRemoved => true,
            Self::Unknown(_) => false,
        }
    }

    /// The same of what was to follow an append that is there: the whole of it is not surely void.
    pub(crate) fn behind_an_append(self) -> Self {
        match self {
            Self::Unreached(why) => Self::Unknown(why),
            Self::MapRemoved => Self::MapRemoved,
            error if error.is_surely_void() => Self::Failed(FuzzyFailure::Unknown),
            error => error,
        }
    }
}

impl From<FuzzyFault> for FuzzyError {
    fn from(fault: FuzzyFault) -> Self {
        Self::Fault(fault)
    }
}
