//! A key-value history as reads and writes, for the models beyond linearizability.

use super::{Expected, KvCall, KvHistory, KvReply};
use crate::history::{Draft, History, Timestamp};
use crate::terms::{Fate, Value, Version};

impl KvHistory {
    /// The same operations, in the same order, by their effect: a delete writes nil, a compare-and-set and an
    /// increment read and then write, a refusal reads. A condition on a version alone lends no read.
    pub fn to_history(&self) -> History {
        let mut history = History::new();
        for (key, op) in self.operations() {
            let mut draft = Draft::new(op.process, op.invoke, op.complete);
            let timestamped = |draft: Draft, version: &Option<Version>| match version {
                Some(Version(number)) => draft.timestamped(Timestamp::version(*number)),
                None => draft,
            };
            draft = match (&op.call, &op.reply) {
                (KvCall::Get, None) => draft,
                (_, Some(KvReply::Found { value: Some(value), version })) => {
                    timestamped(draft.read(key, value.clone()), version)
                }
                (_, Some(KvReply::Found { value: None, .. })) => draft,
                (call, reply) => {
                    let (version, reported) = match reply {
                        Some(KvReply::Written { version, value }) => (*version, value.clone()),
                        Some(KvReply::Found { .. }) | None => (None, None),
                    };
                    let (before, after) = effect(call, reported);
                    if let Some(before) = before.filter(|_| op.fate == Fate::Ok) {
                        draft = draft.read(key, before);
                    }
                    match after {
                        Some(after) => timestamped(draft.write(key, after), &version),
                        None => draft,
                    }
                }
            };
            if op.call != KvCall::Get {
                draft = draft.asking_write();
            }
            history.add(match op.fate {
                Fate::Ok => draft,
                Fate::Fail => draft.failed(),
                Fate::Unknown => draft.unknown(),
            });
        }
        history
    }
}

/// What a successful call read, where that is certain, and what it wrote.
fn effect(call: &KvCall, reported: Option<Value>) -> (Option<Value>, Option<Value>) {
    match call {
        KvCall::Get => (None, None),
        KvCall::Put(value) => (None, Some(value.clone())),
        KvCall::Delete => (None, Some(Value::Nil)),
        KvCall::CompareAndSet { expected: Expected::Value(old), value } => {
            (Some(old.clone()), Some(value.clone()))
        }
        KvCall::CompareAndSet { expected: Expected::Version(_), value } => (None, Some(value.clone())),
        KvCall::Increment(by) => match reported.as_ref().and_then(Value::as_int) {
            Some(sum) => {
                let old = sum.checked_sub(*by).filter(|old| *old != 0);
                (old.map(Value::Int), Some(Value::Int(sum)))
            }
            None => (None, None),
        },
    }
}
