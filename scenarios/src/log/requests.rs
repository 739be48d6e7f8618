//! What users of the logs ask, over whichever engine.

use super::history::History;
use super::{DROPPING, NAMES, RETAINED};
use crate::limits::{OPERATION_BYTES_MAX, Sizes};
use kernel::{Bytes, Rng};
use shared_log::{Append, Cleanup, Create, Part, Read, Request, Rows};
use sim::OperationId;

/// Rows for one of so many logs, whose words occur once in a run.
pub(crate) fn entries(sizes: Sizes, operation: OperationId, logs: usize, rng: &mut Rng) -> Bytes {
    let mut rows = Rows::default();
    let count = rng.between(1, 4);
    let most = OPERATION_BYTES_MAX / (logs * count as usize);
    for nth in 0..count {
        let word = format!("{}.{}.{nth}", operation.client, operation.nth);
        rows.push(sizes.stretch(word, most, rng).as_bytes());
    }
    rows.into_bytes()
}

/// To all of these logs, or to none.
pub(crate) fn append(
    sizes: Sizes,
    names: &[&str],
    operation: OperationId,
    expect: Option<u64>,
    rng: &mut Rng,
) -> Request {
    let parts = names.iter().map(|name| Part {
        name: (*name).to_owned(),
        expect,
        entries: entries(sizes, operation, names.len(), rng),
    });
    Request::Append(Append { parts: parts.collect(), admitted: None })
}

/// Where some writers know the tail, some are late, some early.
pub(crate) fn append_at_tail(
    (sizes, history): (Sizes, &History),
    name: &str,
    operation: OperationId,
    rng: &mut Rng,
) -> Request {
    let expect = Some((history.tail(name) + 1).saturating_sub(rng.below(3)));
    append(sizes, &[name], operation, expect, rng)
}

/// To several logs, or to this one.
pub(crate) fn append_to_several(sizes: Sizes, one: &str, operation: OperationId, rng: &mut Rng) -> Request {
    let mut names: Vec<&str> = NAMES.into_iter().filter(|_| rng.chance(0.5)).collect();
    if names.is_empty() {
        names.push(one);
    }
    append(sizes, &names, operation, None, rng)
}

/// Users begin by making all logs.
pub(crate) fn create(name: &str) -> Request {
    Request::Create(Create {
        name: name.to_owned(),
        retain_bytes: 0,
        retain_ms: if name == RETAINED { 1_000 } else { 0 },
        capacity: 0,
        cleanup: Some(if name == DROPPING { Cleanup::DropOldest } else { Cleanup::Refuse }),
        first: None,
    })
}

/// At the tail, perhaps waiting there, or somewhere before.
pub(crate) fn read(history: &History, name: &str, rng: &mut Rng) -> Request {
    let tail = history.tail(name);
    let from = if rng.chance(0.5) { tail } else { rng.below(tail + 1) };
    let (entries_max, bytes_max) = (rng.between(1, 40) as u32, 1 << rng.between(2, 10));
    let wait_ms = if rng.chance(0.5) { 400 } else { 0 };
    let read = Read { name: name.to_owned(), from, entries_max, bytes_max, wait_ms };
    if rng.chance(0.2) { Request::Recall(read) } else { Request::Read(read) }
}
