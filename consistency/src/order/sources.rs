//! Every write of the history, findable by value and by timestamp.

use super::{NONE, WriteSlot, fate};
use crate::hash::FixedState;
use crate::history::{Access, AccessKind, History, HistoryError, OpIndex, Symbol, Timestamp};
use crate::rules::Rules;
use crate::terms::Fate;
use std::collections::HashMap;

/// One value written or element appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub(super) slot: u32,
    /// Position of the access in its operation.
    pub(super) access: u32,
    /// Its operation left this in the key, and nothing after it.
    pub(super) last: bool,
}

/// The write did not read its key first.
pub(super) const BLIND: u32 = NONE - 1;

/// All writes.
pub(super) struct Sources {
    pub(super) slots: Vec<WriteSlot>,
    pub(super) observed: Vec<bool>,
    by_value: HashMap<u64, Instance, FixedState>,
    /// (key, timestamp) -> slot, for answered writes.
    by_timestamp: Vec<(Symbol, Timestamp, u32)>,
    /// Values written by two operations: the other slot.
    twice: HashMap<u64, u32, FixedState>,
    /// The write each slot's operation read before it wrote: a slot, [`NONE`] for the initial version,
    /// [`BLIND`] where it read nothing.
    pub(super) follows: Vec<u32>,
    /// Where the slots of each operation begin.
    begins: Vec<u32>,
}

fn joined(key: Symbol, value: Symbol) -> u64 {
    u64::from(key.0) << 32 | u64::from(value.0)
}

fn written(access: &Access) -> Option<Symbol> {
    match access.kind {
        AccessKind::Write(value) | AccessKind::Append(value) => Some(value),
        AccessKind::Read(_) | AccessKind::ReadList(_) => None,
    }
}

impl Sources {
    pub(super) fn of(history: &History, rules: &Rules) -> Sources {
        let operations = history.operations();
        let mut sources = Sources {
            slots: Vec::new(),
            observed: vec![false; operations.len()],
            by_value: HashMap::with_hasher(FixedState),
            by_timestamp: Vec::new(),
            twice: HashMap::with_hasher(FixedState),
            follows: Vec::new(),
            begins: Vec::with_capacity(operations.len() + 1),
        };
        for index in 0..operations.len() {
            sources.begins.push(sources.slots.len() as u32);
            sources.admit(history, index, fate(history, index, rules));
        }
        sources.begins.push(sources.slots.len() as u32);
        sources.follows = vec![BLIND; sources.slots.len()];
        sources.by_timestamp.sort_unstable();
        sources
    }

    /// The slot that `op` wrote in `key`.
    pub(super) fn slot_of(&self, op: usize, key: Symbol) -> Option<u32> {
        (self.begins[op]..self.begins[op + 1]).find(|slot| self.slots[*slot as usize].key == key)
    }

    /// Enters the writes of one operation, the last of each key first.
    fn admit(&mut self, history: &History, index: usize, fate: Fate) {
        let accesses = history.accesses(&history.operations()[index]);
        let own = self.slots.len();
        for (at, access) in accesses.iter().enumerate().rev() {
            let Some(value) = written(access) else { continue };
            let known = (own..self.slots.len()).find(|slot| self.slots[*slot].key == access.key);
            let slot = known.unwrap_or(self.slots.len()) as u32;
            if known.is_none() {
                let op = OpIndex(index as u32);
                let timestamp = access.timestamp;
                self.slots.push(WriteSlot {
                    op,
                    vertex: NONE,
                    key: access.key,
                    next: NONE,
                    timestamp,
                    value,
                });
                if let (Some(timestamp), Fate::Ok) = (timestamp, fate) {
                    self.by_timestamp.push((access.key, timestamp, slot));
                }
            }
            let instance = Instance { slot, access: at as u32, last: known.is_none() };
            self.enter(history, joined(access.key, value), instance, fate);
        }
    }

    fn enter(&mut self, history: &History, name: u64, instance: Instance, fate: Fate) {
        let Some(known) = self.by_value.get(&name) else {
            self.by_value.insert(name, instance);
            return;
        };
        let (known_slot, new_slot) = (known.slot, instance.slot);
        if known_slot == new_slot || fate == Fate::Fail {
            return;
        }
        let known_failed = history.operations()[self.slots[known_slot as usize].op.at()].fate == Fate::Fail;
        self.by_value.insert(name, instance);
        if !known_failed {
            self.twice.insert(name, known_slot);
        }
    }

    /// The write of `value`, if exactly one operation can have made it.
    pub(super) fn by_value(
        &self,
        history: &History,
        reader: usize,
        key: Symbol,
        value: Symbol,
    ) -> Result<Option<Instance>, HistoryError> {
        let name = joined(key, value);
        let found = self.by_value.get(&name).copied();
        if let (Some(found), Some(other)) = (found, self.twice.get(&name)) {
            let line = |slot: u32| history.operations()[self.slots[slot as usize].op.at()].line;
            return Err(HistoryError::DuplicateValue {
                line: history.operations()[reader].line,
                key: history.keys().value(key).to_string(),
                value: history.values().value(value).to_string(),
                first: line(*other),
                second: line(found.slot),
            });
        }
        Ok(found)
    }

    /// The write of `element`, also where two operations appended it.
    pub(super) fn any_by_value(&self, key: Symbol, element: Symbol) -> Option<Instance> {
        self.by_value.get(&joined(key, element)).copied()
    }

    /// The answered write that made the version `timestamp` of `key`.
    pub(super) fn by_timestamp(&self, key: Symbol, timestamp: Timestamp) -> Option<u32> {
        let at = self.by_timestamp.partition_point(|entry| (entry.0, entry.1) < (key, timestamp));
        self.by_timestamp.get(at).filter(|entry| (entry.0, entry.1) == (key, timestamp)).map(|entry| entry.2)
    }

    /// The slots of every key whose operations are retained.
    pub(super) fn slots_by_key(&self, keys: usize) -> SlotsByKey {
        let mut start = vec![0u32; keys + 1];
        for slot in self.slots.iter().filter(|slot| slot.vertex != NONE) {
            start[slot.key.at() + 1] += 1;
        }
        for key in 0..keys {
            start[key + 1] += start[key];
        }
        let mut fill = start.clone();
        let mut slots = vec![0u32; start[keys] as usize];
        for (index, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.vertex != NONE) {
            slots[fill[slot.key.at()] as usize] = index as u32;
            fill[slot.key.at()] += 1;
        }
        SlotsByKey { start, slots }
    }
}

/// Slots, grouped.
pub(super) struct SlotsByKey {
    start: Vec<u32>,
    slots: Vec<u32>,
}

impl SlotsByKey {
    pub(super) fn of(&self, key: usize) -> &[u32] {
        &self.slots[self.start[key] as usize..self.start[key + 1] as usize]
    }
}
