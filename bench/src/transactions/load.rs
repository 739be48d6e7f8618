//! What sessions ask, each with the token of what it has seen.

use super::workload::Draws;
use kernel::client::Response;
use kernel::{Bytes, Decode, Encode, Rng};
use sim::cost::{Class, Load, LoadSession};
use spanner::Spanner;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;
use wire::txn::{Timestamp, TxnCall, TxnReply};

/// Read-only transactions.
pub const READ_ONLY: Class = Class(0);
/// Transactions that write.
pub const READ_WRITE: Class = Class(1);

/// Sessions that draw one transaction after the other.
#[derive(Clone, Debug)]
pub struct TxnLoad {
    draws: Draws,
    inserted: u64,
    /// By session; one that has seen nothing yet has none.
    tokens: HashMap<u64, Timestamp, BuildHasherDefault<DefaultHasher>>,
}

impl TxnLoad {
    /// Sessions that draw these.
    pub fn new(draws: Draws) -> Self {
        Self { draws, inserted: 0, tokens: HashMap::default() }
    }

    /// Sessions that have seen something and have not left.
    pub fn sessions(&self) -> usize {
        self.tokens.len()
    }
}

impl Load<Spanner> for TxnLoad {
    fn ask(&mut self, session: LoadSession, rng: &mut Rng) -> (Bytes, Class) {
        let token = self.tokens.get(&session.number).copied().unwrap_or_default();
        let call = self.draws.call(token, &mut self.inserted, rng);
        let class = if matches!(call, TxnCall::ReadOnly(_)) { READ_ONLY } else { READ_WRITE };
        (call.encoded().into(), class)
    }

    fn answered(&mut self, session: LoadSession, _: Class, response: &Response, _now: Duration) -> bool {
        let token = match TxnReply::decoded(&response.0) {
            Ok(TxnReply::ReadRows(reply)) => reply.token,
            Ok(TxnReply::Committed(reply)) => reply.token,
            Ok(_) | Err(_) => return false,
        };
        let seen = self.tokens.entry(session.number).or_default();
        *seen = token.max(*seen);
        true
    }

    fn left(&mut self, session: LoadSession) {
        self.tokens.remove(&session.number);
    }
}
