//! What users ask.

use super::{CallKey, Condition, KeyScan, KeyWrite, Timestamp, TxnLevel};
use kernel::Bytes;

kernel::messages! {
    /// Everything a user asks of the transaction service. Each call has the user's number for it, and all but `Status` the session's
    /// token: the timestamp up to which the user has seen what was committed.
    pub enum TxnCall {
        /// Reads, writes nothing.
        1 => ReadOnly {
            /// The user's number for this call.
            id: u64,
            /// The session's token.
            token: Timestamp,
            /// How fresh.
            level: TxnLevel,
            /// Keys to read.
            keys: Vec<Bytes>,
            /// Ranges to read.
            scans: Vec<KeyScan>,
        },
        /// If all conditions hold: writes, and reads what was there before. Else: reads what `otherwise` names.
        2 => OneShot {
            /// The user's number for this call.
            id: u64,
            /// The session's token.
            token: Timestamp,
            /// What the commit is called, so that it can be sent again.
            key: Option<CallKey>,
            /// The session has the answers to its commits below this number.
            acknowledged: u64,
            /// The conditions.
            conditions: Vec<Condition>,
            /// The writes.
            writes: Vec<KeyWrite>,
            /// Keys to read with the writes.
            reads: Vec<Bytes>,
            /// Keys to read if a condition does not hold.
            otherwise: Vec<Bytes>,
        },
        /// Begins an interactive transaction. `id` names it in the calls that follow.
        3 => Begin {
            /// The user's number for this call, and the transaction's.
            id: u64,
            /// The session's token.
            token: Timestamp,
            /// The priority that the first attempt was given; none: this is the first.
            priority: Option<Timestamp>,
        },
        /// Reads within an interactive transaction: nobody writes what is read before it ends.
        4 => ReadWithin {
            /// The user's number for this call.
            id: u64,
            /// The transaction.
            txn: u64,
            /// Keys to read.
            keys: Vec<Bytes>,
            /// Ranges to read.
            scans: Vec<KeyScan>,
        },
        /// Commits an interactive transaction with these writes.
        5 => Commit {
            /// The user's number for this call.
            id: u64,
            /// The transaction.
            txn: u64,
            /// What the commit is called, so that its fate can be asked for.
            key: Option<CallKey>,
            /// The session has the answers to its commits below this number.
            acknowledged: u64,
            /// The writes.
            writes: Vec<KeyWrite>,
        },
        /// Gives up an interactive transaction. Not answered.
        6 => GiveUp {
            /// The transaction.
            txn: u64,
        },
        /// Answered when every later transaction, of any session, sees what this session has seen.
        7 => Fence {
            /// The user's number for this call.
            id: u64,
            /// The session's token.
            token: Timestamp,
        },
        /// What became of a commit?
        8 => CommitStatus {
            /// The user's number for this call.
            id: u64,
            /// What it was called.
            key: CallKey,
        },
    }
}
