//! What must hold of a one-shot that was committed: its conditions, just before, and that it lies behind what its session had seen.

use super::truth::Truth;
use kernel::invariant;
use wire::txn::{Condition, OneShot, Timestamp, TxnCall};

/// `is_again`: it was sent before, and may have been committed then, with another token.
pub(super) fn check(call: &TxnCall, at: Timestamp, is_again: bool, truth: &Truth) {
    let (token, conditions) = match call {
        TxnCall::OneShot(OneShot { token, conditions, .. }) => (*token, &conditions[..]),
        TxnCall::Begin(call) => (call.token, &[][..]),
        TxnCall::ReadOnly(_)
        | TxnCall::ReadWithin(_)
        | TxnCall::Commit(_)
        | TxnCall::GiveUp(_)
        | TxnCall::Fence(_)
        | TxnCall::CommitStatus(_) => return,
    };
    invariant!(
        TOKEN,
        is_again || at > token || at == Timestamp(0),
        "who has seen {token} has committed at {at}: {call:?}"
    );
    for Condition { key, version } in conditions {
        if at <= truth.collected(std::iter::once(key)) {
            continue;
        }
        let (value, found) = truth.at(key, at.before());
        let found = if value.is_some() { found } else { Timestamp(0) };
        invariant!(
            SNAP,
            found == *version,
            "committed at {at} if {key:?} has the version {version}, and it had {found}"
        );
    }
}
