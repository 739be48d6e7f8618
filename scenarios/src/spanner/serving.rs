//! Which calls are carried out, by kind.

use crate::served::Served;
use wire::txn::{TxnCall, TxnFailure, TxnLevel, TxnReply};

/// Counts a call that was answered.
pub(super) fn note(call: &TxnCall, reply: Option<&TxnReply>, served: &mut Served) {
    let kind = match call {
        TxnCall::ReadOnly(call) if matches!(call.level, TxnLevel::Strict | TxnLevel::Rss) => "reads",
        TxnCall::OneShot(_) => "one-shots",
        TxnCall::Fence(_) => "fences",
        _ => return,
    };
    match reply {
        Some(TxnReply::Failed(failed)) => match failed.why {
            TxnFailure::Aborted | TxnFailure::Busy | TxnFailure::Unavailable => served.refused(kind),
            _ => {}
        },
        Some(_) => served.done(kind),
        None => {}
    }
}
