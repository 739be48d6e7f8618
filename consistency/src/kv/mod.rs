//! Recording a key-value history in memory, and deciding whether it is linearizable.
//!
//! Linearizability is local, so every key is decided alone. Where the service returned versions the answer is
//! exact in O(n log n) (`sweep`); keys the sweep cannot settle go through the memoised [`crate::search`].

mod effects;
mod object;
mod relevant;
mod sweep;
mod write;

#[cfg(test)]
mod tests;

use crate::search::{Found, Interval, SearchBudget, linearize};
use crate::terms::{Fate, Process, Time, Value, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

pub use object::{KvObject, KvState};

/// What a client asks of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvCall {
    /// Read the key.
    Get,
    /// Write the key, whatever it holds.
    Put(Value),
    /// Remove the key. A delete that removes something makes a version; on an absent key it may make none.
    Delete,
    /// Write the key if it still is what the client believes.
    CompareAndSet {
        /// What the client believes.
        expected: Expected,
        /// What it writes.
        value: Value,
    },
    /// Add to the number the key holds; an absent key counts as 0.
    Increment(i64),
}

/// The condition of a compare-and-set.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expected {
    /// The key stands at this version.
    Version(Version),
    /// The key holds this value; [`Value::Nil`] for an absent key.
    Value(Value),
}

/// What the service answered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KvReply {
    /// The answer of a get, of a refused compare-and-set or increment, of a delete that found nothing: what
    /// stands there, as far as the service reported it. A get always reports the value ([`Value::Nil`]: absent).
    Found {
        /// What the key holds.
        value: Option<Value>,
        /// The version it stands at.
        version: Option<Version>,
    },
    /// The write took effect.
    Written {
        /// The value after an increment.
        value: Option<Value>,
        /// The version it made, larger than every earlier one of the key, also across delete and re-creation.
        version: Option<Version>,
    },
}

impl KvReply {
    /// A get that found `value` at `version`.
    pub fn found(value: impl Into<Value>, version: Version) -> KvReply {
        KvReply::Found { value: Some(value.into()), version: Some(version) }
    }

    /// A get, or a delete, that found no such key, by a service that keeps no version for absent keys.
    pub fn absent() -> KvReply {
        KvReply::Found { value: Some(Value::Nil), version: None }
    }

    /// A refused compare-and-set that reported the version it found.
    pub fn refused(version: Version) -> KvReply {
        KvReply::Found { value: None, version: Some(version) }
    }

    /// A put, delete or compare-and-set that made `version`.
    pub fn written(version: Version) -> KvReply {
        KvReply::Written { value: None, version: Some(version) }
    }

    /// An increment that made `value` at `version`.
    pub fn incremented(value: i64, version: Version) -> KvReply {
        KvReply::Written { value: Some(Value::Int(value)), version: Some(version) }
    }
}

/// An operation of a [`KvHistory`], by the order of invocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OperationId(pub usize);

/// A history of a key-value store. Operations never completed count as of unknown fate.
///
/// ```
/// use consistency::kv::{KvCall, KvHistory, KvReply, KvVerdict};
/// use consistency::{Process, Time, Value, Version};
///
/// let mut history = KvHistory::new();
/// let put = history.invoke(Process(1), "x", KvCall::Put(Value::from("a")), Time(10));
/// let get = history.invoke(Process(2), "x", KvCall::Get, Time(12));
/// history.complete(put, KvReply::written(Version(1)), Time(20));
/// history.complete(get, KvReply::found("a", Version(1)), Time(21));
/// assert!(history.check_linearizable().holds());
///
/// // A later read that misses the acknowledged put convicts the store, and says why.
/// let stale = history.invoke(Process(2), "x", KvCall::Get, Time(30));
/// history.complete(stale, KvReply::absent(), Time(35));
/// let KvVerdict::Violated { sentences, .. } = history.check_linearizable() else { panic!() };
/// assert!(sentences[0].contains("answered"));
/// let mut file = Vec::new();
/// history.write_jsonl(&mut file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KvHistory {
    operations: Vec<Interval<KvCall, KvReply>>,
    keys: Vec<Arc<str>>,
    names: BTreeMap<Arc<str>, ()>,
}

impl KvHistory {
    /// An empty history.
    pub fn new() -> KvHistory {
        KvHistory::default()
    }

    /// Records that `process` asked `call` of `key` at `at`.
    pub fn invoke(&mut self, process: Process, key: &str, call: KvCall, at: Time) -> OperationId {
        let key = match self.names.get_key_value(key) {
            Some((known, ())) => known.clone(),
            None => {
                let fresh: Arc<str> = Arc::from(key);
                self.names.insert(fresh.clone(), ());
                fresh
            }
        };
        self.keys.push(key);
        self.operations.push(Interval {
            process,
            invoke: at,
            complete: Time::NEVER,
            fate: Fate::Unknown,
            call,
            reply: None,
        });
        OperationId(self.operations.len() - 1)
    }

    /// Records the answer. Panics if `at` is before the invocation: the recorder's clock went backwards.
    pub fn complete(&mut self, operation: OperationId, reply: KvReply, at: Time) {
        self.end(operation, Fate::Ok, at);
        self.operations[operation.0].reply = Some(reply);
    }

    /// Records that the operation certainly had no effect.
    pub fn fail(&mut self, operation: OperationId, at: Time) {
        self.end(operation, Fate::Fail, at);
    }

    /// Records that nobody will ever report its outcome (a timeout, a crash): the same as saying nothing.
    pub fn unknown(&mut self, operation: OperationId) {
        let operation = &mut self.operations[operation.0];
        (operation.fate, operation.complete, operation.reply) = (Fate::Unknown, Time::NEVER, None);
    }

    fn end(&mut self, operation: OperationId, fate: Fate, at: Time) {
        let operation = &mut self.operations[operation.0];
        assert!(at >= operation.invoke, "answered at {at}, before its invocation at {}", operation.invoke);
        (operation.fate, operation.complete, operation.reply) = (fate, at, None);
    }

    /// The operations in the order of invocation calls, each with its key.
    pub fn operations(&self) -> impl Iterator<Item = (&str, &Interval<KvCall, KvReply>)> {
        self.keys.iter().map(|key| &**key).zip(&self.operations)
    }

    /// How many operations were recorded.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True before the first invocation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether the history is linearizable, within the default search budget.
    pub fn check_linearizable(&self) -> KvVerdict {
        self.check_linearizable_within(&mut SearchBudget::default())
    }

    /// Whether the history is linearizable. The budget bounds only the search on keys without usable versions.
    pub fn check_linearizable_within(&self, budget: &mut SearchBudget) -> KvVerdict {
        let mut by_key: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, key) in self.keys.iter().enumerate() {
            by_key.entry(key).or_default().push(index);
        }
        let mut undecided = None;
        for (key, indices) in &by_key {
            let ops: Vec<&Interval<KvCall, KvReply>> =
                indices.iter().map(|index| &self.operations[*index]).collect();
            match decide_key(key, &ops, budget) {
                KeyVerdict::Holds => {}
                KeyVerdict::Violated { operations, sentences } => {
                    let operations = operations.into_iter().map(|at| OperationId(indices[at])).collect();
                    return KvVerdict::Violated { key: (*key).to_owned(), operations, sentences };
                }
                KeyVerdict::Undecided => undecided = undecided.or(Some((*key).to_owned())),
            }
        }
        match undecided {
            Some(key) => KvVerdict::Undecided { key },
            None => KvVerdict::Holds {
                answered: self.operations.iter().filter(|op| op.fate == Fate::Ok).count(),
                keys: by_key.len(),
            },
        }
    }
}

/// The answer for a whole history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KvVerdict {
    /// Linearizable. Look at `answered`: an empty history holds too.
    Holds {
        /// Operations that answered ok.
        answered: usize,
        /// Keys that were touched.
        keys: usize,
    },
    /// Not linearizable.
    Violated {
        /// The first key, in order, that is not.
        key: String,
        /// The operations that contradict each other.
        operations: Vec<OperationId>,
        /// Why, in plain sentences.
        sentences: Vec<String>,
    },
    /// The search budget ran out on this key; nothing was found wrong elsewhere.
    Undecided {
        /// The key.
        key: String,
    },
}

impl KvVerdict {
    /// True only for a certain yes.
    pub fn holds(&self) -> bool {
        matches!(self, KvVerdict::Holds { .. })
    }
}

enum KeyVerdict {
    Holds,
    Violated { operations: Vec<usize>, sentences: Vec<String> },
    Undecided,
}

fn decide_key(key: &str, ops: &[&Interval<KvCall, KvReply>], budget: &mut SearchBudget) -> KeyVerdict {
    match sweep::sweep(key, ops) {
        sweep::Swept::Holds => return KeyVerdict::Holds,
        sweep::Swept::Violated { operations, sentences } => {
            return KeyVerdict::Violated { operations, sentences };
        }
        sweep::Swept::Unclear => {}
    }
    if let Some(stuck) = relevant::unwritten(ops) {
        let sentence = format!("key {key}: {} shows what nothing wrote", describe(ops[stuck]));
        return KeyVerdict::Violated { operations: vec![stuck], sentences: vec![sentence] };
    }
    let (positions, searched): (Vec<usize>, Vec<_>) = relevant::relevant(ops).into_iter().unzip();
    match linearize(&KvObject, &searched, budget) {
        Found::Holds(_) => KeyVerdict::Holds,
        Found::Undecided => KeyVerdict::Undecided,
        Found::Violated { longest, stuck } => {
            let stuck = positions[stuck];
            let sentence = format!(
                "key {key}: {} cannot be placed: no order of the {} operations before it ends in a state that \
                 answers so",
                describe(ops[stuck]),
                longest.len(),
            );
            let last = longest.last().map(|op| positions[*op]);
            let operations = last.into_iter().chain([stuck]).collect();
            KeyVerdict::Violated { operations, sentences: vec![sentence] }
        }
    }
}

/// One operation in words, with its interval.
fn describe(op: &Interval<KvCall, KvReply>) -> String {
    let call = match &op.call {
        KvCall::Get => "get".to_owned(),
        KvCall::Put(value) => format!("put {value}"),
        KvCall::Delete => "delete".to_owned(),
        KvCall::CompareAndSet { expected: Expected::Version(version), value } => {
            format!("compare-and-set to {value} at version {version}")
        }
        KvCall::CompareAndSet { expected: Expected::Value(old), value } => {
            format!("compare-and-set from {old} to {value}")
        }
        KvCall::Increment(by) => format!("increment by {by}"),
    };
    let at =
        |version: &Option<Version>| version.map_or(String::new(), |version| format!(" version {version}"));
    let reply = match &op.reply {
        None => " (no answer)".to_owned(),
        Some(KvReply::Found { value, version }) => {
            let value = value.as_ref().map_or(String::new(), |value| format!(" {value}"));
            format!(" = found{value}{}", at(version))
        }
        Some(KvReply::Written { value, version }) => {
            let value = value.as_ref().map_or(String::new(), |value| format!(" {value}"));
            format!(" = wrote{value}{}", at(version))
        }
    };
    format!("{}'s {call}{reply} [{}..{}]", op.process, op.invoke, op.complete)
}
