//! Why a transaction has no result.

use crate::CallError;
use wire::txn::{CallFault, CallKey, TxnFailure};

/// Why a transaction has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TxnError {
    /// The host's word: it says whether anything was executed, and whether the same may be tried again.
    #[error("{0}")]
    Failed(TxnFailure),
    /// Never sent: a limit is exceeded, or the call makes no sense.
    #[error("not sent: {0}")]
    Fault(CallFault),
    /// The commit may have been executed, and may still be: [`crate::TxnClient::status`] answers which.
    #[error("the commit {id} may have been executed, or may still be: ask for its status")]
    Unknown {
        /// Its name.
        id: CallKey,
    },
    /// No host was reached. Nothing was executed.
    #[error("no host was reached, and nothing was executed: {0}")]
    Unreached(CallError),
    /// All attempts were aborted in favour of older transactions, or for want of a leader.
    #[error("{attempts} attempts within {within:?}, the last one: {last}; nothing was executed")]
    Exhausted {
        /// How many.
        attempts: u32,
        /// The time limit.
        within: std::time::Duration,
        /// Why the last one was aborted.
        last: TxnFailure,
    },
}

impl TxnError {
    /// True if it surely had no effect.
    pub fn is_surely_void(&self) -> bool {
        match self {
            Self::Failed(why) => why.is_surely_void(),
            Self::Unknown { .. } => false,
            Self::Fault(_) | Self::Unreached(_) | Self::Exhausted { .. } => true,
        }
    }
}
