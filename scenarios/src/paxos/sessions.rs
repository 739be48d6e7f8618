//! Which sessions are open, by a plain list: what is executed opens, closes and uses them, and of too many the one goes that was used
//! least recently. Replicas that forget another one all forget the same, so comparing them shows nothing.

use kernel::{Decode, NodeId, invariant};
use parts::{Sequence, SessionId, Slot};
use paxos::{Batch, CommandGroup, GroupKind, Value};
use std::collections::BTreeMap;

/// The sessions of the slots below `below`, least recently used first.
#[derive(Default)]
pub(super) struct Table {
    below: Slot,
    open: Vec<(SessionId, Slot, Sequence)>,
    /// A slot that nobody has shown: nothing can be said any more.
    lost: bool,
}

impl Table {
    /// Replays what is chosen up to where this replica is, if no other one has been so far, and compares.
    pub(super) fn check(
        &mut self,
        (id, executed): (NodeId, Slot),
        chosen: &BTreeMap<Slot, Value>,
        acknowledged: impl Iterator<Item = (SessionId, Sequence)>,
        sessions_max: usize,
    ) {
        if self.lost || executed <= self.below {
            return;
        }
        while self.below < executed {
            let Some(value) = chosen.get(&self.below) else {
                self.lost = true;
                return;
            };
            self.execute(value, sessions_max);
            self.below = self.below.next();
        }
        let mut known: Vec<(SessionId, Sequence)> = acknowledged.collect();
        let mut wanted: Vec<(SessionId, Sequence)> =
            self.open.iter().map(|&(session, _, acknowledged)| (session, acknowledged)).collect();
        known.sort_unstable();
        wanted.sort_unstable();
        invariant!(
            SESS,
            known == wanted,
            "{id} has sessions {known:?} after slot {executed}, and what was executed makes {wanted:?}"
        );
    }

    fn execute(&mut self, value: &Value, sessions_max: usize) {
        let Value::Batch(batch) = value else { return };
        let Ok(batch) = Batch::decoded(batch.bytes()) else { return };
        batch.groups.iter().for_each(|group| self.execute_group(group, sessions_max));
    }

    fn execute_group(&mut self, group: &CommandGroup, sessions_max: usize) {
        let at = self.open.iter().position(|&(session, ..)| session == group.session);
        match (group.kind, at) {
            (GroupKind::Open, None) => {
                let room = sessions_max.max(1) - 1;
                self.open.drain(..self.open.len().saturating_sub(room));
                self.open.push((group.session, self.below, Sequence(0)));
            }
            (GroupKind::Close, Some(at)) => {
                self.open.remove(at);
            }
            (GroupKind::ExecuteIn(opened), Some(at)) if self.open[at].1 != opened => {}
            (GroupKind::Execute | GroupKind::ExecuteIn(_), Some(at)) => {
                let (session, opened, acknowledged) = self.open.remove(at);
                self.open.push((session, opened, acknowledged.max(group.acknowledged)));
            }
            (GroupKind::Open, Some(_))
            | (GroupKind::Close | GroupKind::Execute | GroupKind::ExecuteIn(_), None) => {}
        }
    }
}
