//! Total-order models straight from their definitions: every subset of pending operations, every order.

use crate::history::{AccessKind, History, Operation, Symbol, Timestamp};
use crate::{Fate, Level, Model, Time};
use std::collections::BTreeMap;

/// Whether the model's definition is met. Values must be unique per key.
pub(crate) fn holds(history: &History, model: Model) -> bool {
    let world = World::of(history);
    let demanded = world.demanded(model);
    let mut placed = vec![false; history.operations().len()];
    world.extend(&demanded, &mut placed, &mut Vec::new())
}

pub(super) struct World<'a> {
    pub(super) history: &'a History,
    /// Values written, by key: who.
    pub(super) writer: BTreeMap<(Symbol, Symbol), usize>,
    /// Timestamps known: of answered writers, and of writers whose readers reported it.
    timestamps: BTreeMap<(Symbol, usize), Timestamp>,
}

impl World<'_> {
    pub(super) fn of(history: &History) -> World<'_> {
        let mut writer = BTreeMap::new();
        for (index, op) in history.operations().iter().enumerate().filter(|(_, op)| op.fate != Fate::Fail) {
            for access in history.accesses(op) {
                if let AccessKind::Write(value) | AccessKind::Append(value) = access.kind {
                    writer.insert((access.key, value), index);
                }
            }
        }
        let mut timestamps = BTreeMap::new();
        for (index, op) in history.operations().iter().enumerate() {
            for access in history.accesses(op) {
                let (Some(timestamp), Fate::Ok) = (access.timestamp, op.fate) else { continue };
                match access.kind {
                    AccessKind::Write(_) | AccessKind::Append(_) => {
                        timestamps.insert((access.key, index), timestamp);
                    }
                    AccessKind::Read(value) => {
                        if let Some(writer) = writer.get(&(access.key, value))
                            && history.operations()[*writer].fate == Fate::Unknown
                        {
                            timestamps.insert((access.key, *writer), timestamp);
                        }
                    }
                    AccessKind::ReadList(_) => {}
                }
            }
        }
        World { history, writer, timestamps }
    }

    fn op(&self, index: usize) -> &Operation {
        &self.history.operations()[index]
    }

    fn count(&self) -> usize {
        self.history.operations().len()
    }

    fn written(&self, index: usize) -> Vec<Symbol> {
        self.keys(index, true)
    }

    fn keys(&self, index: usize, written: bool) -> Vec<Symbol> {
        let accesses = self.history.accesses(self.op(index)).iter();
        accesses
            .filter(|access| matches!(access.kind, AccessKind::Write(_) | AccessKind::Append(_)) == written)
            .map(|access| access.key)
            .collect()
    }

    /// Whether `a` answered before `b` was invoked.
    pub(super) fn precedes(&self, a: usize, b: usize) -> bool {
        self.op(a).fate == Fate::Ok && self.op(a).complete < self.op(b).invoke
    }

    pub(super) fn session(&self, a: usize, b: usize) -> bool {
        self.op(a).process == self.op(b).process
            && self.op(a).fate == Fate::Ok
            && self.op(a).invoke < self.op(b).invoke
    }

    /// Causal order over actions, as the paper has it: process order, messages, reads-from, closed.
    /// Actions are the invocation and the response of each operation and both ends of each message. Operations that do not
    /// keep the order of their process stand apart, but for what they read.
    pub(super) fn causal(&self, keeps_order: impl Fn(usize) -> bool) -> Vec<Vec<bool>> {
        // Action numbers: 2i the invocation and 2i + 1 the response of operation i; then the message events.
        let count = self.count();
        let events = self.history.messages();
        let total = 2 * count + events.len();
        let mut before = vec![vec![false; total]; total];
        let process = |action: usize| match action < 2 * count {
            true => self.op(action / 2).process,
            false => events[action - 2 * count].process,
        };
        // After an operation of unknown fate the process is a new one.
        let epoch = |action: usize| match action < 2 * count {
            true => 0,
            false => {
                let event = &events[action - 2 * count];
                let lost = |op: &&Operation| {
                    op.fate == Fate::Unknown && op.process == event.process && op.invoke <= event.at
                };
                self.history.operations().iter().filter(lost).count()
            }
        };
        let exists = |action: usize| {
            action >= 2 * count || action.is_multiple_of(2) || self.op(action / 2).fate == Fate::Ok
        };
        let time = |action: usize| match (action < 2 * count, action % 2) {
            (true, 0) => self.op(action / 2).invoke,
            (true, _) => self.op(action / 2).complete,
            (false, _) => events[action - 2 * count].at,
        };
        for a in 0..total {
            for b in 0..total {
                let (is_a, is_b) = (a < 2 * count, b < 2 * count);
                let own = is_a && is_b && a / 2 == b / 2;
                if !own && (is_a && !keeps_order(a / 2) || is_b && !keeps_order(b / 2)) {
                    continue;
                }
                if a == b || !exists(a) || !exists(b) || process(a) != process(b) || epoch(a) != epoch(b) {
                    continue;
                }
                // A process that waits for an answer that never comes does nothing else.
                let both_operations = is_a && is_b && !own && self.session(a / 2, b / 2);
                let received_and_sent = !is_a
                    && !is_b
                    && !events[a - 2 * count].sent
                    && events[b - 2 * count].sent
                    && time(a) < time(b);
                let mixed = is_a != is_b && time(a) < time(b);
                let carried = mixed
                    && match is_a {
                        true => a % 2 == 1 && events[b - 2 * count].sent,
                        false => !events[a - 2 * count].sent && b % 2 == 0,
                    };
                before[a][b] = own && a % 2 == 0 || both_operations || received_and_sent || carried;
            }
        }
        self.carry(&mut before);
        let mut causal = vec![vec![false; count]; count];
        for a in 0..count {
            for b in (0..count).filter(|b| *b != a) {
                let response = before[2 * a + 1][2 * b] || before[2 * a + 1][2 * b + 1];
                let read = before[2 * a][2 * b + 1];
                causal[a][b] = response || read;
            }
        }
        for via in 0..count {
            for a in 0..count {
                for b in 0..count {
                    causal[a][b] |= causal[a][via] && causal[via][b];
                }
            }
        }
        causal
    }

    /// Adds messages and reads-from to process order, and closes it.
    fn carry(&self, before: &mut [Vec<bool>]) {
        let (count, events) = (self.count(), self.history.messages());
        for (a, send) in events.iter().enumerate().filter(|(_, event)| event.sent) {
            for (b, receive) in events.iter().enumerate().filter(|(_, event)| !event.sent) {
                before[2 * count + a][2 * count + b] |= send.message == receive.message;
            }
        }
        for reader in (0..count).filter(|op| self.op(*op).fate == Fate::Ok) {
            for (key, value) in self.seen(reader) {
                if let Some(writer) = self.writer.get(&(key, value)).filter(|writer| **writer != reader) {
                    // A pending writer has no response to be read from; legality alone places it. For the models
                    // without a total order its write is what is read.
                    before[2 * writer][2 * reader + 1] = true;
                }
            }
        }
        let total = before.len();
        for via in 0..total {
            for a in 0..total {
                for b in 0..total {
                    before[a][b] |= before[a][via] && before[via][b];
                }
            }
        }
    }

    /// What an operation read from others: (key, value), for lists each element.
    pub(super) fn seen(&self, index: usize) -> Vec<(Symbol, Symbol)> {
        let mut seen = Vec::new();
        for access in self.history.accesses(self.op(index)) {
            match &access.kind {
                AccessKind::Read(value) => seen.push((access.key, *value)),
                AccessKind::ReadList(range) => {
                    // The last element alone: a read of it reads the version that its append made.
                    let list = self.history.elements(range).iter().rev();
                    let mut others =
                        list.filter(|value| self.writer.get(&(access.key, **value)) != Some(&index));
                    seen.extend(others.next().map(|value| (access.key, *value)));
                }
                AccessKind::Write(_) | AccessKind::Append(_) => {}
            }
        }
        seen
    }

    /// Pairs that the model wants in order.
    fn demanded(&self, model: Model) -> Vec<Vec<bool>> {
        let count = self.count();
        let mut demanded = vec![vec![false; count]; count];
        let is_by_level = model == Model::ByLevel;
        let level = |op: usize| if is_by_level { self.op(op).level } else { Level::Strict };
        let causal = self.causal(|op| level(op) >= Level::ProcessOrdered);
        for a in 0..count {
            for b in (0..count).filter(|b| *b != a) {
                let (a_writes, b_writes) = (!self.written(a).is_empty(), !self.written(b).is_empty());
                let conflict =
                    b_writes || self.keys(b, false).iter().any(|key| self.written(a).contains(key));
                let fenced = self.op(a).fence
                    && self.op(a).service == self.op(b).service
                    && !(is_by_level && self.op(b).fence);
                let weaker = level(a).min(level(b));
                let regular = causal[a][b] || self.precedes(a, b) && (a_writes && conflict || fenced);
                demanded[a][b] = match model {
                    Model::ByLevel => {
                        self.as_of(a, b)
                            || match weaker {
                                Level::Strict => regular || self.precedes(a, b),
                                Level::Rss => regular,
                                Level::ProcessOrdered | Level::At | Level::Stale => causal[a][b],
                            }
                    }
                    Model::Serializable => false,
                    Model::ProcessOrderedSerializable | Model::Sequential => self.session(a, b),
                    Model::Rss | Model::Rsc => regular,
                    Model::StrictSerializable | Model::Linearizable => self.precedes(a, b),
                    Model::OscU => self.session(a, b) || self.precedes(a, b) && b_writes,
                    Model::Regular => self.precedes(a, b) && a_writes,
                    _ => false,
                };
            }
        }
        demanded
    }

    /// Whether a timestamp says that `a` comes before `b`: one of them wrote, and the other read as of one.
    fn as_of(&self, a: usize, b: usize) -> bool {
        let reads_as_of = |op: usize| self.op(op).as_of.filter(|_| self.op(op).fate == Fate::Ok);
        let written = |writer: usize, reader: usize| -> Vec<Timestamp> {
            let keys = self.keys(reader, false);
            keys.iter().filter_map(|key| self.timestamps.get(&(*key, writer)).copied()).collect()
        };
        let shown = |at: crate::Version, written: Timestamp| written <= Timestamp::version(at.0);
        reads_as_of(b).is_some_and(|at| written(a, b).into_iter().any(|it| shown(at, it)))
            || reads_as_of(a).is_some_and(|at| written(b, a).into_iter().any(|it| !shown(at, it)))
    }

    fn extend(&self, demanded: &[Vec<bool>], placed: &mut Vec<bool>, order: &mut Vec<usize>) -> bool {
        let waits = |op: usize, placed: &[bool]| !placed[op] && self.op(op).fate == Fate::Ok;
        if (0..self.count()).all(|op| !waits(op, placed)) {
            return true;
        }
        for op in (0..self.count()).filter(|op| self.op(*op).fate != Fate::Fail) {
            let blocked = (0..self.count()).any(|other| waits(other, placed) && demanded[other][op]);
            // A pending operation that comes later than the ones it must precede has missed its position.
            let missed = self.op(op).fate == Fate::Unknown && order.iter().any(|later| demanded[op][*later]);
            if placed[op] || blocked || missed {
                continue;
            }
            order.push(op);
            placed[op] = true;
            if self.legal(order) && self.timestamped(order) && self.extend(demanded, placed, order) {
                return true;
            }
            placed[op] = false;
            order.pop();
        }
        false
    }

    /// Known timestamps grow along each key.
    fn timestamped(&self, order: &[usize]) -> bool {
        let Some(last) = order.last() else { return true };
        self.written(*last).iter().all(|key| {
            let Some(own) = self.timestamps.get(&(*key, *last)) else { return true };
            order[..order.len() - 1]
                .iter()
                .filter_map(|op| self.timestamps.get(&(*key, *op)))
                .all(|earlier| earlier < own)
        })
    }

    /// Runs the order against a store; every answered read must see what the store holds.
    fn legal(&self, order: &[usize]) -> bool {
        let mut registers: BTreeMap<Symbol, Symbol> = BTreeMap::new();
        let mut lists: BTreeMap<Symbol, Vec<Symbol>> = BTreeMap::new();
        for index in order {
            let op = self.op(*index);
            for access in self.history.accesses(op) {
                let right = match &access.kind {
                    AccessKind::Write(value) => {
                        registers.insert(access.key, *value);
                        true
                    }
                    AccessKind::Append(value) => {
                        lists.entry(access.key).or_default().push(*value);
                        true
                    }
                    AccessKind::Read(value) => match registers.get(&access.key) {
                        Some(held) => held == value,
                        None => self.history.is_initial(*value),
                    },
                    AccessKind::ReadList(range) => {
                        let held = lists.get(&access.key).map_or(&[][..], |list| list);
                        held == self.history.elements(range)
                    }
                };
                if !right && op.fate == Fate::Ok {
                    return false;
                }
            }
        }
        true
    }
}

/// The last time anything happened; used by the weak models.
pub(super) fn end_of_writes(history: &History) -> Time {
    let ends =
        history.operations().iter().filter(|op| history.writes(op, false)).filter_map(|op| match op.fate {
            Fate::Ok => Some(op.complete),
            Fate::Unknown => Some(op.invoke),
            Fate::Fail => None,
        });
    ends.max().unwrap_or(Time(0))
}
