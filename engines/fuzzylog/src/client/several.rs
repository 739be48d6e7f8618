//! Appends to several partitions, and how they are taken over.
//!
//! ```text
//! origin                    partition 1   partition 2
//!   | Propose                    |             |         phase 1
//!   |--------------------------->|------------>|
//!   |<------------------ Proposed|<-- Proposed |
//!   | Fix (the latest of them)   |             |         phase 2
//!   |--------------------------->|------------>|
//!   |<----------------- Delivered|<- Delivered |
//!   | CleanUp                    |             |
//!   |--------------------------->|------------>|
//! ```
//! Who takes over asks the append's first partition to replace the owner that is known there (test and set). One of several who try
//! wins; it replaces the owners at the others, whatever they know of the append, and has all proposals then. Its phase 2 is the origin's.

use super::requests::{FuzzyRefusal, FuzzyResponse};
use super::{FuzzyClient, Operation, StuckAppend, Task, delivered, response_of};
use crate::partition::command::{
    Append, CleanUp, Command, Delivered, Fix, Outcome, Placed, ProposeTime, TakeOver,
};
use crate::terms::{AppendId, AppendTime, Content, Owner, PartitionId};
use kernel::{Cx, Instant, planted};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one partition has said in this phase, or before.
#[derive(Clone, PartialEq, Debug)]
enum Said {
    Nothing,
    Proposed(AppendTime),
    Fixed(AppendTime),
    Delivered(Delivered),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// Phase 1.
    Propose,
    /// Somebody else works on it: wait, then take over from that one.
    BackOff { until: Instant, from: Owner },
    /// The first partition is asked to replace this owner.
    Test { from: Owner },
    /// The others are.
    TakeOver,
    /// Phase 2.
    Fix { at: AppendTime },
}

/// An append or a snapshot of several partitions in flight.
#[derive(Clone, Debug)]
pub(super) struct SeveralTask {
    id: AppendId,
    below: u64,
    seen: AppendTime,
    content: Content,
    owner: Owner,
    phase: Phase,
    said: BTreeMap<PartitionId, Said>,
    /// How often it has tried to take over.
    tries: u32,
    /// The owner where it was reported as stuck; none at its origin.
    reported: Option<Owner>,
}

/// How far an append to several partitions is, as one client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeveralInFlight {
    /// It is in phase 2.
    pub is_phase_2: bool,
    /// This client is not its origin, or has been replaced.
    pub is_taken_over: bool,
    /// It waits before it takes over.
    pub waits: bool,
    /// Partitions that have answered in this phase.
    pub answered: usize,
    /// Its partitions.
    pub asked: usize,
}

/// How often somebody tries to take over what nobody here waits for, before it waits to be asked again.
const TRIES_MAX: u32 = 4;

/// A fresh identity of an owner.
pub(super) fn identity(cx: &mut Cx<'_, FuzzyClient>) -> u64 {
    if planted!(test_and_set_compares_too_little) { cx.node().as_u64() } else { cx.rng().bits() }
}

impl SeveralTask {
    pub(super) fn new(
        id: AppendId,
        below: u64,
        seen: AppendTime,
        content: Content,
        partitions: Vec<PartitionId>,
        identity: u64,
    ) -> Self {
        let said = partitions.into_iter().map(|partition| (partition, Said::Nothing)).collect();
        let owner = Owner { generation: 0, identity };
        Self { id, below, seen, content, owner, phase: Phase::Propose, said, tries: 0, reported: None }
    }

    /// Bytes of what it appends.
    pub(super) fn bytes(&self) -> usize {
        self.content.bytes()
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    /// All have said what this phase needs: where it goes on is not known yet.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.phase, Phase::BackOff { .. }) && self.waiting_for().is_empty()
    }

    pub(super) fn is_fixing(&self) -> bool {
        matches!(self.phase, Phase::Fix { .. })
    }

    /// The same, of an append that somebody else has begun, to be taken over.
    pub(super) fn held(append: Append, partitions: Vec<PartitionId>, from: Owner, until: Instant) -> Self {
        let Append { id, below, seen, content } = append;
        let new = Self::new(id, below, seen, content, partitions, 0);
        Self { phase: Phase::BackOff { until, from }, ..new }
    }

    /// Its colours are elsewhere: all partitions are asked anew. What they proposed counts where they say so again.
    fn replan(&mut self, content: Content, partitions: Vec<PartitionId>, now: Instant) -> Phase {
        let decider = self.decider();
        self.content = content;
        self.said = partitions.into_iter().map(|partition| (partition, Said::Nothing)).collect();
        match self.phase {
            // Another partition decides now, which has made somebody else the owner of this generation, perhaps.
            Phase::Propose | Phase::TakeOver | Phase::Fix { .. }
                if self.owner.generation > 0 && decider != self.decider() =>
            {
                Phase::BackOff { until: now, from: self.owner }
            }
            // All had proposed, so nothing moves before it is over: they answer what came of it.
            Phase::Propose | Phase::Fix { .. } if self.owner.generation == 0 => Phase::Propose,
            Phase::Propose | Phase::TakeOver | Phase::Fix { .. } => Phase::TakeOver,
            Phase::Test { from } => Phase::Test { from },
            Phase::BackOff { until, from } => Phase::BackOff { until, from },
        }
    }

    /// The partition that decides who takes over.
    fn decider(&self) -> Option<PartitionId> {
        self.said.keys().next().copied()
    }

    /// Partitions that have not said yet what this phase needs.
    pub(super) fn waiting_for(&self) -> Vec<PartitionId> {
        let waits = |(partition, said): (&PartitionId, &Said)| match (self.phase, said) {
            (Phase::BackOff { .. }, _) => false,
            (Phase::Test { .. }, _) => self.decider() == Some(*partition),
            (Phase::Propose | Phase::TakeOver, said) => *said == Said::Nothing,
            (Phase::Fix { .. }, said) => !matches!(said, Said::Delivered(_)),
        };
        self.said.iter().filter(|it| waits(*it)).map(|(&partition, _)| partition).collect()
    }

    pub(super) fn waits_for(&self, partition: PartitionId) -> bool {
        self.waiting_for().contains(&partition)
    }

    pub(super) fn in_flight(&self) -> SeveralInFlight {
        let answered = self.said.len() - self.waiting_for().len();
        SeveralInFlight {
            is_phase_2: matches!(self.phase, Phase::Fix { .. }),
            is_taken_over: self.owner.generation > 0,
            waits: matches!(self.phase, Phase::BackOff { .. }),
            answered,
            asked: self.said.len(),
        }
    }

    pub(super) fn describe(&self) -> String {
        format!("{:?} in {:?} by {:?}: {:?}", self.id, self.phase, self.owner, self.said)
    }

    /// What a partition is asked now.
    fn command(&self) -> Option<Command> {
        let (id, owner, content) = (self.id, self.owner, self.content.clone());
        Some(match self.phase {
            Phase::Propose => ProposeTime { id, below: self.below, seen: self.seen, owner, content }.into(),
            Phase::BackOff { .. } => return None,
            Phase::Test { from } => TakeOver { id, expected: Some(from), owner, content }.into(),
            Phase::TakeOver => TakeOver { id, expected: None, owner, content }.into(),
            Phase::Fix { at } => Fix { id, owner, at }.into(),
        })
    }

    /// The time of the append: fixed somewhere, or the latest of all proposals.
    fn time(&self) -> AppendTime {
        let mut fixed = self.said.values().filter_map(|said| match said {
            Said::Fixed(at) => Some(*at),
            Said::Delivered(delivered) => Some(delivered.at),
            Said::Nothing | Said::Proposed(_) => None,
        });
        let proposed = self.said.values().filter_map(|said| match said {
            Said::Proposed(at) => Some(*at),
            Said::Nothing | Said::Fixed(_) | Said::Delivered(_) => None,
        });
        fixed.next().or(proposed.max()).unwrap_or_default()
    }
}

impl FuzzyClient {
    fn several(&mut self, call: u64) -> Option<&mut SeveralTask> {
        match &mut self.operations.get_mut(&call)?.task {
            Task::Several(task) => Some(task),
            Task::One { .. } | Task::Reading(_) | Task::Changing(_) => None,
        }
    }

    pub(super) fn say_several(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(task) = self.several(call) else { return };
        let (partitions, Some(command)) = (task.waiting_for(), task.command()) else { return };
        for partition in partitions {
            self.submit(call, partition, command.clone(), cx);
        }
    }

    /// Begins a phase under a name of its own: late answers to the one before are not taken for answers to this one.
    fn enter(&mut self, call: u64, phase: Phase, cx: &mut Cx<'_, Self>) {
        let Some(Operation { request, task: Task::Several(mut task), .. }) = self.take(call) else { return };
        task.phase = phase;
        let (id, is_answered) = (task.id, task.is_answered());
        let next = self.begin(request, Task::Several(task), cx);
        if request.is_none() {
            self.recovering.insert(id, next);
        }
        if is_answered {
            // Where all colours are in the partition that decides who takes over, nobody else is asked.
            self.go_on(next, cx);
        }
    }

    pub(super) fn on_several(
        &mut self,
        call: u64,
        partition: PartitionId,
        outcome: Outcome,
        cx: &mut Cx<'_, Self>,
    ) {
        let Some(task) = self.several(call).filter(|task| task.waits_for(partition)) else { return };
        let is_fixing = matches!(task.phase, Phase::Fix { .. });
        let said = match outcome {
            Outcome::Proposed(_) if is_fixing => return,
            Outcome::Proposed(it) => Said::Proposed(it.at),
            Outcome::Fixed(it) => Said::Fixed(it.at),
            Outcome::Delivered(it) => Said::Delivered(it),
            Outcome::Held(held) => return self.back_off(call, held.owner, cx),
            Outcome::Forgotten(_) if self.is_reported(call) => return self.clean_up_again(call, cx),
            other @ (Outcome::Forgotten(_)
            | Outcome::Conflict(_)
            | Outcome::Unknown(_)
            | Outcome::TrimmedTo(_)
            | Outcome::Restoring(_)
            | Outcome::RestoredTo(_)
            | Outcome::Moving(_)
            | Outcome::Elsewhere(_)
            | Outcome::BeyondTail(_)) => {
                cx.mark("client.gave_up_an_append");
                return self.end(call, response_of(other, None), cx);
            }
        };
        task.said.insert(partition, said);
        self.go_on(call, cx);
    }

    fn is_reported(&mut self, call: u64) -> bool {
        self.several(call).is_some_and(|task| task.reported.is_some())
    }

    /// Some partition has forgotten the append: it is delivered everywhere, and its user has the answer. A clean-up was lost on its way to
    /// the one that has reported it.
    fn clean_up_again(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        cx.mark("client.cleaned_up_again");
        let Some(task) = self.several(call) else { return };
        // Where this one has taken over, it is the owner; elsewhere that is who was reported.
        let (id, owners) = (task.id, [Some(task.owner), task.reported]);
        let partitions: Vec<PartitionId> = task.said.keys().copied().collect();
        self.end(call, FuzzyResponse::Refused(FuzzyRefusal::Forgotten), cx);
        let nobody = self.new_call();
        for partition in partitions {
            for owner in owners.into_iter().flatten() {
                self.submit(nobody, partition, CleanUp { id, owner }.into(), cx);
            }
        }
    }

    /// Goes to the next phase if all have said what this one needs.
    fn go_on(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(task) = self.several(call) else { return };
        let waits = match task.phase {
            Phase::Test { .. } => false,
            Phase::BackOff { .. } => true,
            Phase::Propose | Phase::TakeOver | Phase::Fix { .. } => !task.waiting_for().is_empty(),
        };
        if waits {
            return;
        }
        match task.phase {
            Phase::Test { .. } => {
                cx.mark("client.took_an_append_over");
                let decider = task.decider();
                for (partition, said) in &mut task.said {
                    if Some(*partition) != decider {
                        *said = Said::Nothing;
                    }
                }
                self.enter(call, Phase::TakeOver, cx);
            }
            Phase::Propose | Phase::TakeOver => {
                let at = task.time();
                if task.said.values().all(|said| matches!(said, Said::Delivered(_))) {
                    return self.finish_several(call, cx);
                }
                self.enter(call, Phase::Fix { at }, cx);
            }
            Phase::Fix { .. } => self.finish_several(call, cx),
            Phase::BackOff { .. } => {}
        }
    }

    fn finish_several(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(task) = self.several(call) else { return };
        let (id, owner, content) = (task.id, task.owner, task.content.clone());
        let is_fixing = task.is_fixing();
        let (mut placed, mut times): (Vec<Placed>, Vec<AppendTime>) = (Vec::new(), Vec::new());
        for said in task.said.values() {
            if let Said::Delivered(it) = said {
                placed.extend(it.placed.iter().cloned());
                times.push(it.at);
            }
        }
        placed.sort_by_key(|it| it.colour);
        // A colour that has moved meanwhile is named by both partitions, at one position.
        placed.dedup();
        if placed.len() < content.colours.len() && is_fixing {
            // Phase 2 names no plan, and a colour has left one of them since: the partition that has it by now is to answer.
            cx.mark("client.was_answered_for_a_part");
            return self.ask_by_plan(call, cx);
        }
        let at = times.first().copied().unwrap_or_default();
        let partitions: Vec<PartitionId> = task.said.keys().copied().collect();
        kernel::invariant!(
            ATOMIC,
            times.iter().all(|it| *it == at)
                || planted!(repeated_proposal_is_new)
                || planted!(other_owners_not_replaced),
            "{id:?} is delivered at {times:?}"
        );
        // By one plan all owners of its colours have answered. What one of them lacks it has forgotten with its user's client.
        self.end_when_passed(call, delivered(at, placed, &content), at, cx);
        let nobody = self.new_call();
        for partition in partitions {
            self.submit(nobody, partition, CleanUp { id, owner }.into(), cx);
        }
    }

    fn back_off(&mut self, call: u64, from: Owner, cx: &mut Cx<'_, Self>) {
        let (least, most) = (self.parameters.stuck_after, self.parameters.back_off_max);
        let wait = from.patience() * (least + cx.rng().duration(Duration::ZERO, most));
        let until = cx.now() + wait;
        let Some(task) = self.several(call) else { return };
        task.tries += 1;
        let gives_up = task.tries > TRIES_MAX;
        match task.phase {
            Phase::Test { .. } => cx.mark("client.lost_the_test_and_set"),
            Phase::Propose | Phase::TakeOver | Phase::Fix { .. } => cx.mark("client.found_itself_replaced"),
            Phase::BackOff { .. } => {}
        }
        let is_awaited = self.operations.get(&call).is_some_and(|operation| operation.request.is_some());
        if gives_up && !is_awaited {
            return self.end(call, FuzzyResponse::Refused(FuzzyRefusal::Busy), cx);
        }
        self.enter(call, Phase::BackOff { until, from }, cx);
    }

    /// Where its colours are has changed: it begins anew, as far as it is not done; false if it concerns the same partitions.
    pub(super) fn replan_several(&mut self, call: u64, cx: &mut Cx<'_, Self>) -> bool {
        let Some(task) = self.several(call) else { return false };
        let mut content = task.content.clone();
        let before: Vec<PartitionId> = task.said.keys().copied().collect();
        let partitions = self.plan(&mut content);
        let Some(task) = self.several(call) else { return false };
        let same = partitions == before
            && match (&content.plan, &task.content.plan) {
                (Some(new), Some(old)) => new.partitions == old.partitions,
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
        if same && task.is_fixing() {
            // Phase 2 names no plan, but a take-over behind it does, and partitions refuse an old one.
            task.content = content;
            return false;
        }
        self.ask_by_plan(call, cx);
        !same
    }

    /// It is delivered, and who has its colours is to say where.
    fn ask_by_plan(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(task) = self.several(call) else { return };
        let mut content = task.content.clone();
        let partitions = self.plan(&mut content);
        let Some(task) = self.several(call) else { return };
        let phase = task.replan(content, partitions, cx.now());
        self.enter(call, phase, cx);
    }

    pub(super) fn end_back_offs(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let over = self.operations.iter().filter_map(|(&call, operation)| match &operation.task {
            Task::Several(task) => match task.phase {
                Phase::BackOff { until, from } if until <= now => Some((call, from)),
                Phase::BackOff { .. }
                | Phase::Propose
                | Phase::Test { .. }
                | Phase::TakeOver
                | Phase::Fix { .. } => None,
            },
            Task::One { .. } | Task::Reading(_) | Task::Changing(_) => None,
        });
        for (call, from) in over.collect::<Vec<_>>() {
            let identity = identity(cx);
            let Some(task) = self.several(call) else { continue };
            task.owner = Owner { generation: from.generation.saturating_add(1), identity };
            task.said.values_mut().for_each(|said| *said = Said::Nothing);
            self.enter(call, Phase::Test { from }, cx);
        }
    }

    pub(super) fn on_stuck(&mut self, message: StuckAppend, cx: &mut Cx<'_, Self>) {
        let StuckAppend { id, owner, content } = message;
        let is_own = |operation: &Operation| matches!(&operation.task, Task::Several(task) if task.id == id);
        let has_room = self.recovering.len() < self.parameters.recoveries_max
            && self.bytes + content.bytes() <= 2 * self.parameters.calls_bytes_max;
        if self.operations.values().any(is_own) || !has_room {
            // It is reported again.
            return;
        }
        let mut content = content;
        let partitions = self.plan(&mut content);
        // When colours have moved it may be one.
        let is_sound = id.content == content.digest() && (partitions.len() > 1 || content.plan.is_some());
        if !is_sound || content.flaw(self.parameters.colours_max, self.parameters.append_bytes_max).is_some()
        {
            return cx.reject("report of an append that cannot be");
        }
        cx.mark("client.begins_to_recover");
        let wait = cx.rng().duration(Duration::ZERO, self.parameters.back_off_max);
        let mut task = SeveralTask::new(id, 0, AppendTime::ZERO, content, partitions, 0);
        (task.phase, task.reported) = (Phase::BackOff { until: cx.now() + wait, from: owner }, Some(owner));
        let call = self.begin(None, Task::Several(Box::new(task)), cx);
        self.recovering.insert(id, call);
    }
}
