//! One key of a key-value store as a sequential object.

use super::{Expected, KvCall, KvReply};
use crate::hash::FixedState;
use crate::search::Object;
use crate::terms::{Value, Version};
use std::hash::BuildHasher;

/// One key; absent and at version 0 before the first operation.
#[derive(Clone, Copy, Debug)]
pub struct KvObject;

/// What the key holds. After a write of unknown version only a lower bound of the version is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KvState {
    value: Value,
    version: Version,
    exact: bool,
}

impl KvState {
    fn stands_at(&self, version: Version) -> bool {
        if self.exact { version == self.version } else { version >= self.version }
    }

    fn number(&self) -> Option<i64> {
        if self.value == Value::Nil { Some(0) } else { self.value.as_int() }
    }

    /// The state after a write that may have reported its version.
    fn written(&self, value: Value, version: Option<Version>) -> Option<KvState> {
        match version {
            Some(version) if version > self.version => Some(KvState { value, version, exact: true }),
            Some(_) => None,
            None => Some(KvState { value, version: Version(self.version.0.saturating_add(1)), exact: false }),
        }
    }

    /// The state, made more precise by an answer that changed nothing.
    fn found(&self, value: Option<&Value>, version: Option<Version>) -> Option<KvState> {
        if value.is_some_and(|value| *value != self.value) {
            return None;
        }
        match version {
            Some(version) if self.stands_at(version) => {
                Some(KvState { value: self.value.clone(), version, exact: true })
            }
            Some(_) => None,
            None => Some(self.clone()),
        }
    }

    /// This state, if it meets the condition; at the expected version when that was the condition.
    fn meeting(&self, expected: &Expected) -> Option<KvState> {
        match expected {
            Expected::Value(value) => (*value == self.value).then(|| self.clone()),
            Expected::Version(version) => self.found(None, Some(*version)),
        }
    }

    /// Whether the condition may be false here.
    fn may_refuse(&self, expected: &Expected) -> bool {
        match expected {
            Expected::Value(value) => *value != self.value,
            Expected::Version(version) => !self.exact || *version != self.version,
        }
    }
}

impl Object for KvObject {
    type State = KvState;
    type Call = KvCall;
    type Reply = KvReply;

    fn initial(&self) -> KvState {
        KvState { value: Value::Nil, version: Version::INITIAL, exact: true }
    }

    fn step(&self, state: &KvState, call: &KvCall, reply: Option<&KvReply>) -> Option<KvState> {
        match reply {
            None => Some(unanswered(state, call)),
            Some(KvReply::Found { value, version }) => {
                let after = state.found(value.as_ref(), *version)?;
                let possible = match call {
                    KvCall::Get => value.is_some(),
                    KvCall::Put(_) => false,
                    KvCall::Delete => state.value == Value::Nil,
                    KvCall::CompareAndSet { expected, .. } => after.may_refuse(expected),
                    KvCall::Increment(by) => state.number().and_then(|old| old.checked_add(*by)).is_none(),
                };
                possible.then_some(after)
            }
            Some(KvReply::Written { value: reported, version }) => {
                let (before, value) = match call {
                    KvCall::Get => return None,
                    KvCall::Put(value) => (state.clone(), value.clone()),
                    KvCall::Delete => (state.clone(), Value::Nil),
                    KvCall::CompareAndSet { expected, value } => (state.meeting(expected)?, value.clone()),
                    KvCall::Increment(by) => (state.clone(), Value::Int(state.number()?.checked_add(*by)?)),
                };
                if reported.as_ref().is_some_and(|reported| *reported != value) {
                    return None;
                }
                before.written(value, *version)
            }
        }
    }

    /// A conditional write changes only what holds the value it expects.
    fn class_of_call(&self, call: &KvCall) -> Option<u64> {
        match call {
            KvCall::CompareAndSet { expected: Expected::Value(value), .. } => {
                Some(FixedState.hash_one(value))
            }
            KvCall::CompareAndSet { expected: Expected::Version(_), .. } => None,
            KvCall::Get | KvCall::Put(_) | KvCall::Delete | KvCall::Increment(_) => None,
        }
    }

    fn class_of_state(&self, state: &KvState) -> u64 {
        FixedState.hash_one(&state.value)
    }
}

/// The state after an operation of unknown fate took effect; where it has none, the same state.
fn unanswered(state: &KvState, call: &KvCall) -> KvState {
    let written = match call {
        KvCall::Get => None,
        KvCall::Put(value) => state.written(value.clone(), None),
        KvCall::Delete => state.written(Value::Nil, None),
        KvCall::CompareAndSet { expected, value } => {
            state.meeting(expected).and_then(|before| before.written(value.clone(), None))
        }
        KvCall::Increment(by) => state
            .number()
            .and_then(|old| old.checked_add(*by))
            .and_then(|sum| state.written(Value::Int(sum), None)),
    };
    written.unwrap_or_else(|| state.clone())
}
