//! Operations whose fate is unknown, grouped: equal calls may be placed in the order of their invocation.

use super::{Interval, Object};
use crate::hash::{FixedState, mix};
use crate::terms::{Fate, Time};
use std::collections::HashMap;

/// Calls that are equal, with the same answer if a later reader showed it.
struct Group {
    /// (invocation, operation), earliest first.
    members: Vec<(Time, usize)>,
    placed: usize,
}

/// What makes two calls equal.
#[derive(PartialEq, Eq, Hash)]
struct Alike<'a, C, R> {
    call: &'a C,
    reply: Option<&'a R>,
}

/// The groups, and which of their members are placed.
pub(super) struct Unknown {
    groups: Vec<Group>,
    group_of: HashMap<usize, usize, FixedState>,
    /// Groups that may change any state.
    anywhere: Vec<usize>,
    /// Groups that change states of one class only.
    by_class: HashMap<u64, Vec<usize>, FixedState>,
    placed_count: usize,
    fingerprint: u64,
}

impl Unknown {
    pub(super) fn of<O: Object>(object: &O, ops: &[&Interval<O::Call, O::Reply>]) -> Unknown {
        let mut found: HashMap<Alike<'_, O::Call, O::Reply>, usize, FixedState> = HashMap::default();
        let mut unknown = Unknown {
            groups: Vec::new(),
            group_of: HashMap::default(),
            anywhere: Vec::new(),
            by_class: HashMap::default(),
            placed_count: 0,
            fingerprint: 0,
        };
        for (index, op) in ops.iter().enumerate().filter(|(_, op)| op.fate == Fate::Unknown) {
            let group =
                *found.entry(Alike { call: &op.call, reply: op.reply.as_ref() }).or_insert_with(|| {
                    unknown.groups.push(Group { members: Vec::new(), placed: 0 });
                    let group = unknown.groups.len() - 1;
                    match object.class_of_call(&op.call) {
                        Some(class) => unknown.by_class.entry(class).or_default().push(group),
                        None => unknown.anywhere.push(group),
                    }
                    group
                });
            unknown.groups[group].members.push((op.invoke, index));
            unknown.group_of.insert(index, group);
        }
        unknown.groups.iter_mut().for_each(|group| group.members.sort_unstable());
        unknown
    }

    /// The next operation from `position` on that was invoked by `until`, and the position behind it.
    pub(super) fn candidate(&self, class: u64, position: usize, until: Time) -> Option<(usize, usize)> {
        let of_class = self.by_class.get(&class).map_or(&[][..], |groups| groups);
        let groups = self.anywhere.iter().chain(of_class).enumerate().skip(position);
        for (at, group) in groups {
            let group = &self.groups[*group];
            if let Some((_, op)) = group.members.get(group.placed).filter(|(invoke, _)| *invoke <= until) {
                return Some((*op, at + 1));
            }
        }
        None
    }

    pub(super) fn take(&mut self, op: usize) {
        let group = self.group_of[&op];
        self.fingerprint ^= mix(group as u64, self.groups[group].placed as u64);
        self.groups[group].placed += 1;
        self.placed_count += 1;
    }

    pub(super) fn give_back(&mut self, op: usize) {
        let group = self.group_of[&op];
        self.groups[group].placed -= 1;
        self.placed_count -= 1;
        self.fingerprint ^= mix(group as u64, self.groups[group].placed as u64);
    }

    pub(super) fn placed_count(&self) -> usize {
        self.placed_count
    }

    /// Equal for equal sets of placed operations.
    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// (group, placed) of the groups of which some are placed.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u32, u32)> {
        let groups = self.groups.iter().enumerate().filter(|(_, group)| group.placed > 0);
        groups.map(|(at, group)| (at as u32, group.placed as u32))
    }
}
