//! What calls of the transaction service need.

use super::http::calls_of;
use crate::access::{Area, Denied, Need, NeededNames, PortCaller, Right};
use crate::admin::call::HttpCall;
use wire::txn::{KeyScan, TxnCall};

/// Whether the caller may do what it asks, all of it.
pub(super) fn may(caller: &mut PortCaller, call: &TxnCall) -> bool {
    check(caller, call).is_ok()
}

fn check(caller: &mut PortCaller, call: &TxnCall) -> Result<(), Denied> {
    match call {
        TxnCall::ReadOnly(call) => {
            each(caller, Right::Read, call.keys.iter())?;
            scans(caller, &call.scans)
        }
        // A condition shows whether a key has a version.
        TxnCall::OneShot(call) => {
            each(caller, Right::Read, call.conditions.iter().map(|it| &it.key))?;
            each(caller, Right::Read, call.reads.iter().chain(&call.otherwise))?;
            each(caller, Right::Write, call.writes.iter().map(|it| &it.key))
        }
        TxnCall::ReadWithin(call) => {
            each(caller, Right::Read, call.keys.iter())?;
            scans(caller, &call.scans)
        }
        TxnCall::Commit(call) => each(caller, Right::Write, call.writes.iter().map(|it| &it.key)),
        TxnCall::Begin(_) | TxnCall::GiveUp(_) | TxnCall::Fence(_) | TxnCall::CommitStatus(_) => some(caller),
    }
}

/// What concerns no key is for those who have been granted some.
fn some(caller: &mut PortCaller) -> Result<(), Denied> {
    let need = |right| Need { right, area: Area::Txn, names: NeededNames::Some };
    if caller.would_be_allowed(need(Right::Write)) { Ok(()) } else { caller.check(need(Right::Read)) }
}

fn each<'a>(
    caller: &mut PortCaller,
    right: Right,
    mut keys: impl Iterator<Item = &'a kernel::Bytes>,
) -> Result<(), Denied> {
    keys.try_for_each(|key| caller.check(Need::of(right, Area::Txn, key)))
}

fn scans(caller: &mut PortCaller, scans: &[KeyScan]) -> Result<(), Denied> {
    scans.iter().try_for_each(|scan| {
        let names = NeededNames::Range { start: &scan.range.start, end: scan.range.end.as_deref() };
        caller.check(Need { right: Right::Read, area: Area::Txn, names })
    })
}

/// What is called over HTTP. What cannot be read is refused by who serves it.
pub(super) fn check_http(call: &HttpCall<'_>, caller: &mut PortCaller) -> Result<(), Denied> {
    match calls_of(call.uri.path(), call.body) {
        Some(call) => check(caller, &call),
        None => some(caller),
    }
}
