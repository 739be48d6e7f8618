//! Nodes of a backup: put into colours out of view, and brought into view in all partitions at one time.
//!
//! What is out of view is in no sync, play, snapshot or scan, and counts as retained. The opening is ordered as a snapshot of all partitions
//! is, so nobody sees a part of a restore: who has seen a colour has seen the opening's time, and other partitions answer behind it.
//!
//! Invariant: a colour that is out of view has nothing in view and nothing on its way, and takes no append. The clock is not behind any
//! time that was restored, so an opening, and what comes after it, is later.

use super::command::{BeyondTail, CommandOrigin, Conflict, Moving, Restore, RestoredTo, Restoring};
use super::{ColourNode, PartitionState, Queued};
use crate::terms::{Colour, Content, NodePosition, RestoreId};

/// Times count appends: none comes so far.
const CLOCK_MAX: u64 = 1 << 62;

/// Where a page of nodes goes.
enum Place {
    /// The colour begins with it.
    Beginning,
    /// Behind what the restore has put there.
    Behind,
    /// It is there already.
    There(NodePosition),
}

impl PartitionState {
    /// True if a restore makes one of the colours that something is to be appended to.
    pub(super) fn is_restoring(&self, content: &Content) -> bool {
        let is_made = |&colour: &Colour| self.colours.restored(colour).is_some();
        !content.is_snapshot() && content.colours.iter().any(is_made)
    }

    /// True if something that is not delivered is on its way to the colour.
    fn awaits(&self, colour: Colour) -> bool {
        let is_of = |content: &Content| !content.is_snapshot() && content.colours.contains(&colour);
        self.queue.iter().any(|(_, queued)| matches!(queued, Queued::Single(it) if is_of(&it.content)))
            || self.several.values().any(|it| !it.is_delivered() && is_of(&it.content))
    }

    pub(super) fn restore(&mut self, command: &Restore, asker: CommandOrigin) {
        let Restore { restore, colour, at, begins, ref nodes } = *command;
        let is_late = |node: &ColourNode| node.at.clock > CLOCK_MAX || node.at.ahead > CLOCK_MAX;
        let is_in_order = nodes.windows(2).all(|pair| pair[0].at < pair[1].at);
        let is_sound = is_in_order && !nodes.iter().any(is_late) && restore != RestoreId(0);
        // Another region would take a restored colour's first node for its log's.
        if !is_sound || self.regions.is_some() {
            return self.answer(asker, Conflict {});
        }
        if !self.is_here(colour) {
            return self.answer(asker, self.elsewhere());
        }
        if self.leaves(colour) {
            return self.answer(asker, Moving {});
        }
        let tail = self.colours.tail(colour);
        if tail > NodePosition(0) {
            return self.answer(asker, BeyondTail { tail });
        }
        let place = match self.colours.restored(colour).filter(|(by, _)| *by == restore) {
            Some((_, chain)) => {
                let (first, tail) = (chain.first, chain.tail());
                let is_there = at >= first && at.plus(nodes.len() as u64) <= tail;
                match begins {
                    true if at == first && is_there => Place::There(tail),
                    true => Place::Beginning,
                    false if is_there && !nodes.is_empty() => Place::There(tail),
                    false if at != tail => return self.answer(asker, BeyondTail { tail }),
                    false if nodes.first().is_some_and(|node| node.at <= chain.last) => {
                        return self.answer(asker, Conflict {});
                    }
                    false => Place::Behind,
                }
            }
            None if begins => Place::Beginning,
            None => return self.answer(asker, BeyondTail { tail }),
        };
        match place {
            Place::There(tail) => {
                self.marks.push("partition.repeated_restore");
                return self.answer(asker, RestoredTo { tail });
            }
            Place::Beginning if self.awaits(colour) => return self.answer(asker, Restoring {}),
            Place::Beginning => self.colours.begin_restoring(colour, restore, at),
            Place::Behind => {}
        }
        for node in nodes {
            self.clock = self.clock.max(node.at.clock);
            self.colours.push_made(colour, node.compact());
        }
        self.answer(asker, RestoredTo { tail: at.plus(nodes.len() as u64) });
    }
}
