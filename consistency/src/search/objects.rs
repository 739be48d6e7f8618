//! Objects for the search: a queue, a log with holes, a tree of versioned nodes.

use super::{Found, Interval, Object, SearchBudget, linearize};
use crate::terms::{Fate, Value};
use std::collections::{BTreeMap, VecDeque};

/// A first-in first-out queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue;

/// What a queue is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum QueueCall {
    /// Put at the end.
    Enqueue(Value),
    /// Take from the front.
    Dequeue,
}

/// What a queue answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum QueueReply {
    /// The value is in.
    Enqueued,
    /// The front, or nothing from an empty queue.
    Dequeued(Option<Value>),
}

impl Object for Queue {
    type State = VecDeque<Value>;
    type Call = QueueCall;
    type Reply = QueueReply;

    fn initial(&self) -> VecDeque<Value> {
        VecDeque::new()
    }

    fn step(
        &self,
        state: &VecDeque<Value>,
        call: &QueueCall,
        reply: Option<&QueueReply>,
    ) -> Option<VecDeque<Value>> {
        let mut after = state.clone();
        let answer = match call {
            QueueCall::Enqueue(value) => {
                after.push_back(value.clone());
                QueueReply::Enqueued
            }
            QueueCall::Dequeue => QueueReply::Dequeued(after.pop_front()),
        };
        reply.is_none_or(|reply| *reply == answer).then_some(after)
    }
}

/// A shared log whose positions only grow; positions that no append got are holes (no-ops).
#[derive(Clone, Copy, Debug)]
pub struct LogModel;

/// What a log is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LogCall {
    /// Append; answered with the position.
    Append(Value),
    /// Read a position.
    Read(u64),
    /// The first position that no append has or will be given below.
    Tail,
}

/// What a log answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LogReply {
    /// Where the append went.
    At(u64),
    /// What stands there; nothing for a hole or what is not written yet.
    Holds(Option<Value>),
}

/// A log and the least position the next append may get.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LogState {
    entries: BTreeMap<u64, Value>,
    tail: u64,
}

impl Object for LogModel {
    type State = LogState;
    type Call = LogCall;
    type Reply = LogReply;

    fn initial(&self) -> LogState {
        LogState::default()
    }

    fn step(&self, state: &LogState, call: &LogCall, reply: Option<&LogReply>) -> Option<LogState> {
        let mut after = state.clone();
        match (call, reply) {
            (LogCall::Append(value), Some(LogReply::At(position))) if *position >= state.tail => {
                after.entries.insert(*position, value.clone());
                after.tail = position.checked_add(1)?;
            }
            (LogCall::Tail, Some(LogReply::At(position))) if *position >= state.tail => {
                after.tail = *position
            }
            (LogCall::Read(position), Some(LogReply::Holds(value))) => {
                if state.entries.get(position) != value.as_ref() {
                    return None;
                }
            }
            (LogCall::Append(_) | LogCall::Tail | LogCall::Read(_), None) => {}
            (LogCall::Append(_) | LogCall::Tail | LogCall::Read(_), Some(_)) => return None,
        }
        Some(after)
    }
}

/// Whether a log is linearizable. An append of unknown fate counts where a read showed its (unique) value.
pub fn linearize_log(ops: &[Interval<LogCall, LogReply>], budget: &mut SearchBudget) -> Found {
    let mut shown: BTreeMap<&Value, u64> = BTreeMap::new();
    for op in ops {
        if let (LogCall::Read(position), Some(LogReply::Holds(Some(value)))) = (&op.call, &op.reply) {
            shown.insert(value, *position);
        }
    }
    let resolved: Vec<Interval<LogCall, LogReply>> = ops
        .iter()
        .map(|op| {
            let mut op = op.clone();
            if let (LogCall::Append(value), Fate::Unknown) = (&op.call, op.fate) {
                op.reply = shown.get(value).map(|position| LogReply::At(*position));
            }
            op
        })
        .collect();
    linearize(&LogModel, &resolved.iter().collect::<Vec<_>>(), budget)
}

/// A tree of versioned nodes with atomic multi, as ZooKeeper's. The root exists and is empty.
#[derive(Clone, Copy, Debug)]
pub struct Znodes;

/// What a tree of nodes is asked. Paths begin with a slash.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ZnodeCall {
    /// Create a node under an existing parent.
    Create(String, Value),
    /// Set a node's data, at this data version if one is given.
    Set(String, Value, Option<i64>),
    /// Delete a node without children, at this data version if one is given.
    Delete(String, Option<i64>),
    /// Read a node.
    Get(String),
    /// Only check that the node stands at this data version.
    Check(String, i64),
    /// All or nothing.
    Multi(Vec<ZnodeCall>),
}

/// What it answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ZnodeReply {
    /// Done.
    Done,
    /// Set: the new data version.
    Version(i64),
    /// Read: data and data version.
    Data(Value, i64),
    /// All parts of a multi were done.
    Multi(Vec<ZnodeReply>),
    /// Refused, with nothing changed: no node, node exists, bad version, not empty.
    Refused,
}

impl Object for Znodes {
    type State = BTreeMap<String, (Value, i64)>;
    type Call = ZnodeCall;
    type Reply = ZnodeReply;

    fn initial(&self) -> Self::State {
        BTreeMap::from([("/".to_owned(), (Value::Nil, 0))])
    }

    fn step(&self, state: &Self::State, call: &ZnodeCall, reply: Option<&ZnodeReply>) -> Option<Self::State> {
        let mut after = state.clone();
        let answer = apply(&mut after, call);
        if answer == ZnodeReply::Refused {
            after.clone_from(state);
        }
        reply.is_none_or(|reply| *reply == answer).then_some(after)
    }
}

fn apply(nodes: &mut BTreeMap<String, (Value, i64)>, call: &ZnodeCall) -> ZnodeReply {
    let stands = |nodes: &BTreeMap<String, (Value, i64)>, path: &str, version: Option<i64>| {
        nodes.get(path).is_some_and(|(_, known)| version.is_none_or(|version| version == *known))
    };
    match call {
        ZnodeCall::Create(path, data) => {
            let parent = match path.rsplit_once('/') {
                Some(("", _)) => "/",
                Some((parent, _)) => parent,
                None => return ZnodeReply::Refused,
            };
            if nodes.contains_key(path) || !nodes.contains_key(parent) {
                return ZnodeReply::Refused;
            }
            nodes.insert(path.clone(), (data.clone(), 0));
            ZnodeReply::Done
        }
        ZnodeCall::Set(path, data, version) => match nodes.get_mut(path) {
            Some((held, known)) if version.is_none_or(|version| version == *known) => {
                (*held, *known) = (data.clone(), *known + 1);
                ZnodeReply::Version(*known)
            }
            Some(_) | None => ZnodeReply::Refused,
        },
        ZnodeCall::Delete(path, version) => {
            let below = format!("{}/", path.trim_end_matches('/'));
            let parent =
                nodes.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below));
            if path == "/" || parent || !stands(nodes, path, *version) {
                return ZnodeReply::Refused;
            }
            nodes.remove(path);
            ZnodeReply::Done
        }
        ZnodeCall::Get(path) => match nodes.get(path) {
            Some((data, version)) => ZnodeReply::Data(data.clone(), *version),
            None => ZnodeReply::Refused,
        },
        ZnodeCall::Check(path, version) => {
            if stands(nodes, path, Some(*version)) {
                ZnodeReply::Done
            } else {
                ZnodeReply::Refused
            }
        }
        ZnodeCall::Multi(parts) => {
            let before = nodes.clone();
            let mut answers = Vec::with_capacity(parts.len());
            for part in parts {
                let answer = apply(nodes, part);
                if answer == ZnodeReply::Refused {
                    *nodes = before;
                    return ZnodeReply::Refused;
                }
                answers.push(answer);
            }
            ZnodeReply::Multi(answers)
        }
    }
}

/// Searches part by part: calls with different parts never meet in one state (P-compositionality). The answer of
/// the first part that does not hold, with its name.
pub fn linearize_parts<O: Object, P: Ord>(
    object: &O,
    ops: &[Interval<O::Call, O::Reply>],
    part_of: impl Fn(&Interval<O::Call, O::Reply>) -> P,
    budget: &mut SearchBudget,
) -> Result<(), (P, Found)> {
    let mut parts: BTreeMap<P, Vec<usize>> = BTreeMap::new();
    for (index, op) in ops.iter().enumerate() {
        parts.entry(part_of(op)).or_default().push(index);
    }
    let mut undecided = None;
    for (part, indices) in parts {
        let ops: Vec<_> = indices.iter().map(|index| &ops[*index]).collect();
        match linearize(object, &ops, budget) {
            Found::Holds(_) => {}
            violated @ Found::Violated { .. } => return Err((part, violated)),
            Found::Undecided => undecided = undecided.or(Some(part)),
        }
    }
    undecided.map_or(Ok(()), |part| Err((part, Found::Undecided)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, Time};

    fn op<C, R>(invoke: u64, complete: u64, call: C, reply: Option<R>) -> Interval<C, R> {
        let fate = if reply.is_some() { Fate::Ok } else { Fate::Unknown };
        let complete = if reply.is_some() { Time(complete) } else { Time::NEVER };
        Interval { process: Process(invoke), invoke: Time(invoke), complete, fate, call, reply }
    }

    fn holds<O: Object>(object: &O, ops: &[Interval<O::Call, O::Reply>]) -> bool {
        let views: Vec<_> = ops.iter().collect();
        matches!(linearize(object, &views, &mut SearchBudget::default()), Found::Holds(_))
    }

    #[test]
    fn a_queue_is_first_in_first_out() {
        // A stack, or a queue that loses what timed out, would pass a weaker check.
        let (one, two) = (Value::Int(1), Value::Int(2));
        let put =
            |at, value: &Value| op(at, at + 1, QueueCall::Enqueue(value.clone()), Some(QueueReply::Enqueued));
        let take = |at, value: &Value| {
            op(at, at + 1, QueueCall::Dequeue, Some(QueueReply::Dequeued(Some(value.clone()))))
        };
        assert!(holds(&Queue, &[put(0, &one), put(5, &two), take(10, &one), take(15, &two)]));
        assert!(!holds(&Queue, &[put(0, &one), put(5, &two), take(10, &two)]));
        let lost = op(0, 0, QueueCall::Enqueue(one.clone()), None);
        assert!(holds(&Queue, &[lost.clone(), take(10, &one)]));
        assert!(!holds(&Queue, &[lost, take(10, &one), take(20, &one)]));
    }

    #[test]
    fn a_log_keeps_positions_in_real_time_with_holes() {
        // A sequencer that hands out an old position after a newer one was acknowledged breaks the order.
        let put = |at, value, position| {
            op(at, at + 1, LogCall::Append(Value::Int(value)), Some(LogReply::At(position)))
        };
        let read = |at, position, value: Option<i64>| {
            op(at, at + 1, LogCall::Read(position), Some(LogReply::Holds(value.map(Value::Int))))
        };
        let decide = |ops: &[_]| linearize_log(ops, &mut SearchBudget::default());
        assert!(matches!(
            decide(&[put(0, 7, 0), put(5, 8, 3), read(10, 1, None), read(12, 3, Some(8))]),
            Found::Holds(_)
        ));
        assert!(matches!(decide(&[put(0, 7, 3), put(5, 8, 1)]), Found::Violated { .. }));
        let lost = op(0, 0, LogCall::Append(Value::Int(9)), None);
        assert!(matches!(decide(&[lost.clone(), read(10, 4, Some(9))]), Found::Holds(_)));
        assert!(matches!(decide(&[lost, read(10, 4, Some(9)), read(20, 4, None)]), Found::Violated { .. }));
    }

    #[test]
    fn a_multi_is_all_or_nothing() {
        // A multi that fails half way and leaves its first half behind is what shards get wrong.
        let path = |name: &str| name.to_owned();
        let create = |name: &str| ZnodeCall::Create(path(name), Value::Int(1));
        let multi = ZnodeCall::Multi(vec![create("/a"), create("/b/c")]);
        let refused = op(0, 1, multi, Some(ZnodeReply::Refused));
        let get = |reply| op(5, 6, ZnodeCall::Get(path("/a")), Some(reply));
        assert!(holds(&Znodes, &[refused.clone(), get(ZnodeReply::Refused)]));
        assert!(!holds(&Znodes, &[refused, get(ZnodeReply::Data(Value::Int(1), 0))]));
        let set = |at, version, reply| {
            op(at, at + 1, ZnodeCall::Set(path("/a"), Value::Int(2), Some(version)), Some(reply))
        };
        let made = op(0, 1, create("/a"), Some(ZnodeReply::Done));
        assert!(holds(
            &Znodes,
            &[made.clone(), set(2, 0, ZnodeReply::Version(1)), set(4, 0, ZnodeReply::Refused)]
        ));
        assert!(!holds(
            &Znodes,
            &[made, set(2, 0, ZnodeReply::Version(1)), set(4, 0, ZnodeReply::Version(2))]
        ));
    }

    #[test]
    fn parts_are_searched_alone() {
        // Without parts, forty overlapping operations on twenty nodes would take longer than anybody waits.
        let ops: Vec<_> = (0..400)
            .map(|at| {
                op(at, 1000, ZnodeCall::Create(format!("/n{}", at % 100), Value::Int(at as i64)), {
                    Some(if at < 100 { ZnodeReply::Done } else { ZnodeReply::Refused })
                })
            })
            .collect();
        let part = |op: &Interval<ZnodeCall, ZnodeReply>| match &op.call {
            ZnodeCall::Create(path, _) => path.clone(),
            _ => String::new(),
        };
        let mut budget = SearchBudget { steps: 100_000, ..SearchBudget::default() };
        assert!(linearize_parts(&Znodes, &ops, part, &mut budget).is_ok());
    }
}
