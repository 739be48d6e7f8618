//! What comes of it that colours move, and how an operator has them move.
//!
//! Who asks a partition that a colour has left, or that it has not come to yet, is refused, and asks again by a later map. Nothing is
//! executed at both: see [`crate::partition`]. An append keeps its name, so it is one wherever it is asked for.

use super::requests::{FuzzyRefusal, FuzzyResponse};
use super::several::SeveralTask;
use super::{ChangeStands, ChangeState, Command, FuzzyClient, Operation, Task};
use crate::map::ColourMoves;
use crate::messages::client::{ChangeDone, ChangeInFlight, ChangeRefused};
use crate::messages::director::{MorePartitions, PlacementChange, WantChange, WantMap};
use crate::partition::command::{Append, Restore, Trim};
use crate::terms::{ColourPlan, Content, MapVersion, Owner, PartitionId};
use kernel::{Cx, Instant};

/// What an operator wants, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    change: PlacementChange,
    /// The move that has begun for it.
    begun: Option<MapVersion>,
    /// It is asked for until then.
    until: Instant,
}

impl Changing {
    pub(super) fn new(change: PlacementChange, until: Instant) -> Self {
        Self { change, begun: None, until }
    }
}

impl FuzzyClient {
    /// Writes where a content's colours are into it, if that is not where the fixed spread has them. Returns their partitions.
    pub(super) fn plan(&self, content: &mut Content) -> Vec<PartitionId> {
        let version = self.map.version();
        content.plan = (version > MapVersion(0)).then(|| {
            let partitions = content.colours.iter().map(|&it| self.map.partition_of(it)).collect();
            Box::new(ColourPlan { version, partitions })
        });
        self.map.partitions_of(&content.colours)
    }

    /// Asks for a map of this version, or a later one, unless that was done lately.
    fn want_map(&mut self, version: MapVersion, cx: &mut Cx<'_, Self>) {
        let (now, at) = (cx.now(), self.asked_for_map_at);
        let is_late = at == Instant(0) || now.since(at) >= self.parameters.tick;
        if version > self.map.version() && is_late {
            self.asked_for_map_at = now;
            cx.multicast(self.directors.iter().copied(), WantMap { version });
        }
    }

    /// A server has not what was asked for. It is asked for elsewhere when that is known, or again after a while.
    pub(super) fn on_elsewhere(&mut self, call: u64, version: MapVersion, cx: &mut Cx<'_, Self>) {
        cx.mark("client.asked_where_a_colour_is_not");
        let known = self.map.version();
        let Some(operation) = self.operations.get(&call) else { return };
        if version > known {
            return self.want_map(version, cx);
        }
        if let Task::Several(task) = &operation.task
            && task.is_fixing()
            && !self.replan_several(call, cx)
        {
            // All had proposed, and one of them knows nothing of it.
            cx.mark("client.gave_up_an_append");
            self.end(call, FuzzyResponse::Refused(FuzzyRefusal::NumberUsed), cx);
        }
    }

    pub(super) fn on_placed(&mut self, moves: ColourMoves, cx: &mut Cx<'_, Self>) {
        if !self.map.take(moves) {
            return;
        }
        cx.mark("client.learned_where_colours_are");
        let calls: Vec<u64> = self.operations.keys().copied().collect();
        for call in calls {
            match self.is_of_too_few(call) {
                true => self.end(call, FuzzyResponse::Refused(FuzzyRefusal::MovedSince), cx),
                false => self.go_elsewhere(call, cx),
            }
        }
    }

    /// A cut or an opening that is not of all partitions any more.
    fn is_of_too_few(&self, call: u64) -> bool {
        let Some(operation) = self.operations.get(&call) else { return false };
        let is_of_all = operation.request.is_some_and(|request| self.of_all.contains(&request));
        let colours = match &operation.task {
            Task::One { command: Command::Append(append), .. } => &append.content.colours,
            Task::Several(task) => &task.content().colours,
            Task::One { .. } | Task::Reading(_) | Task::Changing(_) => return false,
        };
        is_of_all && *colours != self.map.one_of_each()
    }

    /// Goes on where the colours are by now, if that is elsewhere.
    fn go_elsewhere(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let map = self.map.clone();
        let Some(Operation { task, repeats, .. }) = self.operations.get_mut(&call) else { return };
        *repeats = 0;
        let is_elsewhere = match task {
            Task::Several(_) => {
                self.replan_several(call, cx);
                return;
            }
            Task::One { partition, command: Command::Append(append) } => {
                let has_old_plan = append.content.is_snapshot();
                has_old_plan || map.partitions_of(&append.content.colours) != [*partition]
            }
            Task::One { partition, command: Command::Trim(Trim { colour, .. }) }
            | Task::One { partition, command: Command::Restore(Restore { colour, .. }) } => {
                let before = std::mem::replace(partition, map.partition_of(*colour));
                before != *partition
            }
            Task::Reading(reading) => reading.moves_to(&map),
            Task::One { .. } | Task::Changing(_) => false,
        };
        if !is_elsewhere {
            return;
        }
        cx.mark("client.goes_on_where_a_colour_is");
        // Under a name of its own: late answers to the question before are not taken for answers to this one.
        let Some(Operation { request, task, .. }) = self.take(call) else { return };
        let task = match task {
            Task::One { command: Command::Append(append), .. } => self.appending(append, cx),
            other => other,
        };
        self.begin(request, task, cx);
    }

    /// An append of one partition was begun when its colours were in several.
    pub(super) fn go_on_as_several(&mut self, call: u64, owner: Owner, cx: &mut Cx<'_, Self>) {
        cx.mark("client.ends_an_append_that_was_begun_in_several");
        let Some(Operation { request, task, .. }) = self.take(call) else { return };
        let Task::One { command: Command::Append(append), .. } = task else { return };
        let Append { id, below, seen, mut content } = append;
        let partitions = self.plan(&mut content);
        let until = cx.now() + owner.patience() * self.parameters.stuck_after;
        let append = Append { id, below, seen, content };
        let task = SeveralTask::held(append, partitions, owner, until);
        self.begin(request, Task::Several(Box::new(task)), cx);
    }
}

/// For operators.
impl FuzzyClient {
    pub(super) fn say_change(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let task = self.operations.get(&call).map(|operation| &operation.task);
        let Some(Task::Changing(changing)) = task else { return };
        let Changing { change, begun, until } = (**changing).clone();
        if cx.now() >= until {
            cx.mark("client.asked_in_vain_for_a_change");
            return self.end(call, FuzzyResponse::ChangeUnknown, cx);
        }
        cx.multicast(self.directors.iter().copied(), WantChange { call, change, begun, client: None });
    }

    pub(super) fn on_change_stands(&mut self, message: ChangeStands, cx: &mut Cx<'_, Self>) {
        let ChangeStands { call, state } = message;
        let Some(Operation { task: Task::Changing(changing), repeats, .. }) = self.operations.get_mut(&call)
        else {
            return;
        };
        match state {
            ChangeState::ChangeDone(ChangeDone { version, partition }) => {
                self.end(call, FuzzyResponse::Changed { version, partition }, cx);
            }
            ChangeState::ChangeRefused(ChangeRefused { why }) => {
                self.end(call, FuzzyResponse::Refused(FuzzyRefusal::Change(why)), cx);
            }
            ChangeState::ChangeInFlight(ChangeInFlight { id, partition }) => {
                // It is asked for again soon: that is how it goes on.
                *repeats = 0;
                changing.begun = id.or(changing.begun);
                if let PlacementChange::MorePartitions(MorePartitions { added }) = &mut changing.change {
                    // From now on that one is asked for, and not another one behind it.
                    *added = added.or(partition);
                }
            }
        }
    }
}
