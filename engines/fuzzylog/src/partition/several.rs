//! Appends to several partitions, as one of them knows them.
//!
//! Invariant: a partition proposes one time for an append, no matter who asks and however often; so everybody who has all proposals comes to
//! the same time. Owners decide who goes on: nothing that a replaced one asks for is done, late clean-ups above all.

use super::command::{
    CleanUp, CommandOrigin, Conflict, Delivered, Fix, Fixed, Forgotten, Held, Outcome, ProposeTime, Proposed,
    TakeOver, Unknown,
};
use super::{PartitionState, Queued, cost_of};
use crate::terms::{AppendId, AppendTime, Content, MapVersion, Owner};
use kernel::planted;

/// How far an append to several partitions is in one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeveralStage {
    /// A time is proposed.
    Proposed,
    /// Its time is known.
    Fixed,
    /// It is in its colours here.
    Delivered,
}

/// The same, with what is known at each stage.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Stage {
    Proposed(AppendTime),
    Fixed(AppendTime),
    Delivered(Delivered),
}

impl Stage {
    pub(super) fn name(&self) -> SeveralStage {
        match self {
            Self::Proposed(_) => SeveralStage::Proposed,
            Self::Fixed(_) => SeveralStage::Fixed,
            Self::Delivered(_) => SeveralStage::Delivered,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Proposed(at) => Proposed { at: *at }.into(),
            Self::Fixed(at) => Fixed { at: *at }.into(),
            Self::Delivered(delivered) => delivered.clone().into(),
        }
    }
}

/// An append to several partitions that is not cleaned up.
#[derive(Clone, Debug)]
pub(super) struct Several {
    pub(super) owner: Owner,
    pub(super) content: Content,
    pub(super) stage: Stage,
    /// Who asked last.
    pub(super) asker: CommandOrigin,
}

impl Several {
    pub(super) fn is_delivered(&self) -> bool {
        matches!(self.stage, Stage::Delivered(_))
    }
}

impl PartitionState {
    pub(super) fn propose(&mut self, command: &ProposeTime, asker: CommandOrigin) {
        let ProposeTime { id, below, seen, owner, ref content } = *command;
        self.clients.acknowledge(id.client, below, self.applied);
        if let Some(refusal) = self.refuses_plan(id, content) {
            return self.answer(asker, refusal);
        }
        if let Some(several) = self.several.get_mut(&id) {
            if several.owner != owner {
                let owner = several.owner;
                return self.answer(asker, Held { owner });
            }
            several.asker = asker;
            if planted!(repeated_proposal_is_new)
                && let Stage::Proposed(at) = several.stage
            {
                self.queue.remove(&at);
                self.forget(id);
                return self.enter(id, owner, seen, content.clone(), asker);
            }
            let outcome = several.stage.outcome();
            self.marks.push("partition.repeated_phase_1");
            return self.answer(asker, outcome);
        }
        if let Some(outcome) = self.outcome_so_far(id) {
            self.marks.push("partition.refused_a_late_phase_1");
            return self.answer(asker, outcome);
        }
        if let Some(refusal) = self.refuses_to_begin(content) {
            return self.answer(asker, refusal);
        }
        self.enter(id, owner, seen, content.clone(), asker);
    }

    /// Proposes a time.
    fn enter(
        &mut self,
        id: AppendId,
        owner: Owner,
        seen: AppendTime,
        content: Content,
        asker: CommandOrigin,
    ) {
        self.clock = self.clock.max(seen.clock) + 1;
        let at = AppendTime { clock: self.clock, partition: self.partition, ahead: 0 };
        self.queue.insert(at, Queued::Pending);
        let content = content.compact();
        self.remember(id, Several { owner, content, stage: Stage::Proposed(at), asker });
        self.answer(asker, Proposed { at });
    }

    pub(super) fn remember(&mut self, id: AppendId, several: Several) {
        self.content_bytes += cost_of(&several.content);
        self.several.insert(id, several);
    }

    pub(super) fn forget(&mut self, id: AppendId) {
        self.content_bytes -= self.several.remove(&id).map_or(0, |it| cost_of(&it.content));
    }

    pub(super) fn fix(&mut self, command: &Fix, asker: CommandOrigin) {
        let Fix { id, owner, at } = *command;
        let Some(several) = self.several.get_mut(&id) else {
            let outcome = match self.delivered(id) {
                Some(delivered) => delivered.into(),
                None if self.clients.has_forgotten(id) => Outcome::from(Forgotten {}),
                // It may have left with one of its colours.
                None if self.map_version() > MapVersion(0) => self.elsewhere().into(),
                None => Unknown {}.into(),
            };
            return self.answer(asker, outcome);
        };
        if several.owner != owner && !planted!(other_owners_not_replaced) {
            let owner = several.owner;
            self.marks.push("partition.refused_a_replaced_owner");
            return self.answer(asker, Held { owner });
        }
        several.asker = asker;
        match several.stage.clone() {
            Stage::Proposed(proposed) => {
                let is_late = at >= proposed || planted!(repeated_proposal_is_new);
                // It is another partition's, or this one's own proposal.
                let is_proposed = at == proposed || at.partition != self.partition;
                let is_sound =
                    is_late && at.ahead == 0 && (is_proposed || planted!(repeated_proposal_is_new));
                if !is_sound || at != proposed && self.queue.contains_key(&at) {
                    return self.answer(asker, Conflict {});
                }
                several.stage = Stage::Fixed(at);
                self.queue.remove(&proposed);
                self.queue.insert(at, Queued::Fixed(id));
                if !planted!(clock_not_raised) {
                    self.clock = self.clock.max(at.clock);
                }
                self.deliver();
            }
            Stage::Fixed(known) if known == at => self.marks.push("partition.repeated_phase_2"),
            Stage::Delivered(delivered) if delivered.at == at => {
                self.marks.push("partition.repeated_phase_2");
                self.answer(asker, delivered);
            }
            // Only a stranger asks for another time than the latest of all proposals.
            Stage::Fixed(_) | Stage::Delivered(_) => self.answer(asker, Conflict {}),
        }
    }

    pub(super) fn deliver_several(&mut self, id: AppendId, at: AppendTime) {
        let Some(several) = self.several.get(&id) else { return };
        let (content, asker) = (several.content.clone(), several.asker);
        let delivered = self.place(id, at, content);
        self.clients.finish(id, &delivered);
        if let Some(several) = self.several.get_mut(&id) {
            several.stage = Stage::Delivered(delivered.clone());
        }
        self.answer(asker, delivered);
    }

    pub(super) fn take_over(&mut self, command: &TakeOver, asker: CommandOrigin) {
        let TakeOver { id, expected, owner, ref content } = *command;
        if let Some(refusal) = self.refuses_plan(id, content) {
            return self.answer(asker, refusal);
        }
        let Some(several) = self.several.get_mut(&id) else {
            let outcome = match self.delivered(id) {
                Some(delivered) => delivered.into(),
                // Its client has the answer: it is delivered everywhere, and who asks is late.
                None if self.clients.has_forgotten(id) => Outcome::from(Forgotten {}),
                None => match self.refuses_to_begin(content) {
                    Some(refusal) => refusal,
                    None => {
                        self.marks.push("partition.taken_over_before_phase_1");
                        return self.enter(id, owner, AppendTime::ZERO, content.clone(), asker);
                    }
                },
            };
            return self.answer(asker, outcome);
        };
        let replaces = match expected {
            Some(expected) if planted!(test_and_set_compares_too_little) => {
                expected.identity == several.owner.identity || owner.generation > several.owner.generation
            }
            Some(expected) => {
                expected == several.owner && expected.generation.checked_add(1) == Some(owner.generation)
            }
            None => owner.generation > several.owner.generation && !planted!(other_owners_not_replaced),
        };
        if several.owner != owner && !replaces && !planted!(other_owners_not_replaced) {
            let owner = several.owner;
            self.marks.push("partition.refused_a_take_over");
            return self.answer(asker, Held { owner });
        }
        if replaces {
            several.owner = owner;
        }
        several.asker = asker;
        let outcome = several.stage.outcome();
        self.answer(asker, outcome);
    }

    /// It is forgotten once; late messages of its owners find that it is done.
    pub(super) fn clean_up(&mut self, command: &CleanUp) {
        let CleanUp { id, owner } = *command;
        let is_over = self
            .several
            .get(&id)
            .is_some_and(|several| several.owner == owner && matches!(several.stage, Stage::Delivered(_)));
        if is_over {
            self.forget(id);
        }
    }
}
