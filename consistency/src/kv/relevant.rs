//! What the values of a key say before any order is looked for: an answer that no write explains, and the calls of
//! unknown fate that can matter, because some other call shows or expects what they write.

use super::{Expected, KvCall, KvReply};
use crate::search::Interval;
use crate::terms::{Fate, Value};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The operations without the unknown ones that no answer can depend on. Where such a call took effect, nothing saw
/// it before the next write, so an order without it is as legal.
pub(super) fn relevant<'a>(
    ops: &[&'a Interval<KvCall, KvReply>],
) -> Vec<(usize, &'a Interval<KvCall, KvReply>)> {
    let all = || ops.iter().copied().enumerate().collect();
    let mut seen: HashMap<&Value, ()> = HashMap::new();
    for op in ops.iter().filter(|op| op.fate == Fate::Ok) {
        match (&op.call, &op.reply) {
            // It may have been refused for any value, or shows one that depends on what it was added to.
            (_, Some(KvReply::Found { value: None, .. })) | (KvCall::Increment(_), _) => return all(),
            (_, Some(KvReply::Found { value: Some(value), .. })) => {
                seen.insert(value, ());
            }
            (KvCall::CompareAndSet { expected: Expected::Value(value), .. }, _) => {
                seen.insert(value, ());
            }
            (KvCall::CompareAndSet { expected: Expected::Version(_), .. }, _) => return all(),
            (KvCall::Get | KvCall::Put(_) | KvCall::Delete, _) => {}
        }
    }
    // An unknown conditional write that matters makes the value matter that it expects.
    let mut expected_by: HashMap<&Value, Vec<&Value>> = HashMap::new();
    for op in ops.iter().filter(|op| op.fate == Fate::Unknown) {
        match &op.call {
            KvCall::CompareAndSet { expected: Expected::Value(expected), value } => {
                expected_by.entry(value).or_default().push(expected);
            }
            KvCall::CompareAndSet { expected: Expected::Version(_), .. } | KvCall::Increment(_) => {
                return all();
            }
            KvCall::Get | KvCall::Put(_) | KvCall::Delete => {}
        }
    }
    let mut open: Vec<&Value> = seen.keys().copied().collect();
    while let Some(value) = open.pop() {
        for expected in expected_by.get(value).into_iter().flatten().copied() {
            if let Entry::Vacant(entry) = seen.entry(expected) {
                entry.insert(());
                open.push(expected);
            }
        }
    }
    let matters = |op: &Interval<KvCall, KvReply>| match &op.call {
        KvCall::Get => false,
        KvCall::Put(value) | KvCall::CompareAndSet { value, .. } => seen.contains_key(value),
        KvCall::Delete => seen.contains_key(&Value::Nil),
        KvCall::Increment(_) => true,
    };
    ops.iter()
        .copied()
        .enumerate()
        .filter(|(_, op)| op.fate == Fate::Ok || op.fate == Fate::Unknown && matters(op))
        .collect()
}

/// An operation that shows or met a value which nothing ever wrote.
pub(super) fn unwritten(ops: &[&Interval<KvCall, KvReply>]) -> Option<usize> {
    let mut written: HashMap<&Value, ()> = HashMap::from([(&Value::Nil, ())]);
    for op in ops.iter().filter(|op| op.fate != Fate::Fail) {
        match &op.call {
            KvCall::Increment(_) => return None,
            KvCall::Put(value) | KvCall::CompareAndSet { value, .. } => {
                written.insert(value, ());
            }
            KvCall::Get | KvCall::Delete => {}
        }
    }
    ops.iter().position(|op| {
        let shown = match (&op.call, &op.reply) {
            (_, Some(KvReply::Found { value, .. })) => value.as_ref(),
            (
                KvCall::CompareAndSet { expected: Expected::Value(value), .. },
                Some(KvReply::Written { .. }),
            ) => Some(value),
            (_, Some(KvReply::Written { .. }) | None) => None,
        };
        op.fate == Fate::Ok && shown.is_some_and(|value| !written.contains_key(value))
    })
}
