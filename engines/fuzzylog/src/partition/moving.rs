//! Colours that move from one partition to another.
//!
//! ```text
//! row of the source          row of the target
//!   SealColours: what is on its way to them ends, nothing new begins
//!   (nothing is on its way)   TakeColours, page by page, out of view
//!                             (all of it is here: directors decide that they have moved)
//!   ForgetColours             OwnColours: they are in view
//! ```
//! If directors decide that a move is taken back, `KeepColours` stands in both rows. What is copied is the nodes, where they begin, and
//! of each user's client what it has answers to and its appends to the colours; so what is sent again is answered as it was.
//!
//! **What users have seen** stays true. A time (`seen`, a snapshot's id) is a clock and a partition that breaks ties, and no list by
//! partitions, so it means the same wherever a colour is. The target's clock is raised to the source's, which is not behind anything that
//! anybody was ever answered there; and nothing that is appended to the colour here goes ahead with a time that the source's clock had
//! passed. So who has seen the colour to be without a node, as of a time, is not contradicted by an earlier one.
//!
//! **A plan.** Who appends to several partitions says in which one it takes each colour to be, and by which version of the map. A
//! partition answers only if it agrees about itself. So each colour's owner is among those who answer, or nobody has all answers.
//! A colour that came here is refused to plans of versions before it came: a proposal that was made before cannot end an append to it.
//! Such proposals are made anew when it comes, behind its nodes.
//!
//! Which partition decides who takes an append over follows from the plan. So two of one generation may work on it while one of them has
//! an earlier map. That one has a partition against it, and ends and cleans up nothing; a partition obeys one owner of a generation.
//!
//! Invariant: of a colour, at most one partition answers appends, syncs and trims; a colour that leaves has nothing on its way to it when
//! it is copied, and takes nothing before the move is over.

use super::command::{
    Conflict, Elsewhere, ForgetColours, KeepColours, MovePage, MovePoint, MovedChain, MovedClient, Outcome,
    OwnColours, SealColours, TakeColours,
};
use super::several::Stage;
use super::{PartitionState, Queued, names};
use crate::map::ColourMove;
use crate::terms::{AppendId, AppendTime, Colour, Content, MapVersion, NodePosition, PartitionId};
use kernel::{PageBudget, planted};
use std::collections::BTreeMap;

/// What a colour costs that is not where the fixed spread has it, or was not.
const MARK_BYTES: usize = 48;

/// What is known of a colour that has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// It came here; the clock of where it came from was this.
    Here(u64),
    /// It has left (the forwarding mark).
    Gone,
}

/// Colours that come.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Taking {
    pub(super) begun: ColourMove,
    /// The next page begins here; none: all of it is here.
    pub(super) next: Option<MovePoint>,
    /// The source's clock.
    pub(super) clock: u64,
}

/// What a partition knows of colours that move.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Moves {
    pub(super) marks: BTreeMap<Colour, Mark>,
    pub(super) leaving: Option<ColourMove>,
    pub(super) taking: Option<Taking>,
    /// All moves up to this one are over here.
    pub(super) over: MapVersion,
    /// The last version of the map by which something ended here.
    pub(super) version: MapVersion,
    /// Colours came last by this version.
    pub(super) arrived: MapVersion,
    /// The latest time at which colours came or left.
    pub(super) since: AppendTime,
}

impl Moves {
    fn is_leaving(&self, colour: Colour) -> bool {
        self.leaving.as_ref().is_some_and(|it| it.colours.binary_search(&colour).is_ok())
    }

    fn end(&mut self, id: MapVersion, version: MapVersion) {
        self.over = id.max(self.over);
        self.version = version.max(self.version);
    }
}

/// What others may know.
impl PartitionState {
    /// True of a colour that is in this partition, whether or not it is about to leave.
    pub fn is_here(&self, colour: Colour) -> bool {
        match self.moves.marks.get(&colour) {
            Some(Mark::Here(_)) => true,
            Some(Mark::Gone) => false,
            None => self.placement.partition_of(colour) == self.partition,
        }
    }

    /// True of a colour that is here and does not leave: its end may be read.
    pub fn may_sync(&self, colour: Colour) -> bool {
        self.is_here(colour) && !self.moves.is_leaving(colour)
    }

    /// The move by which colours leave, in its row.
    pub fn leaving(&self) -> Option<&ColourMove> {
        self.moves.leaving.as_ref()
    }

    /// The move by which colours come, and where its next page begins, if not all of it is here.
    pub fn taking(&self) -> Option<(&ColourMove, Option<MovePoint>)> {
        self.moves.taking.as_ref().map(|it| (&it.begun, it.next))
    }

    /// All moves up to this one are over in its row.
    pub fn moves_over(&self) -> MapVersion {
        self.moves.over
    }

    /// By this version of the map, or a later one, are its colours where it has them.
    pub fn map_version(&self) -> MapVersion {
        self.moves.version
    }

    /// Colours that are here and not by the fixed spread, or the other way round.
    pub fn moved_colours(&self) -> usize {
        self.moves.marks.len()
    }

    /// True if colours are about to leave or to come: a scan may have them in two partitions, or in none.
    pub fn is_moving(&self) -> bool {
        self.moves.leaving.is_some() || self.moves.taking.is_some()
    }

    /// True if colours came or left since a cut was ordered here.
    pub fn has_moved_since(&self, cut: AppendTime) -> bool {
        self.moves.since > AppendTime::ZERO && cut <= self.moves.since
    }

    /// True if nothing is on its way to the colours that leave by a move.
    pub fn is_sealed_for(&self, id: MapVersion) -> bool {
        let Some(leaving) = self.moves.leaving.as_ref().filter(|it| it.id == id) else { return false };
        let concerns = |content: &Content| content.colours.iter().any(|it| leaving.colours.contains(it));
        let is_queued = self.queue.iter().any(|(_, queued)| match queued {
            Queued::Single(single) => concerns(&single.content),
            Queued::Pending | Queued::Fixed(_) => false,
        });
        let is_begun = || self.several.values().any(|it| concerns(&it.content));
        let is_restored = || leaving.colours.iter().any(|&it| self.colours.made(it).is_some());
        planted!(seal_is_not_awaited) || !is_queued && !is_begun() && !is_restored()
    }

    /// A page of what moves, of so many bytes; none if that is not to be had yet, or not any more.
    pub fn move_page(&self, id: MapVersion, at: MovePoint, page_bytes: usize) -> Option<MovePage> {
        let leaving = self.moves.leaving.as_ref().filter(|_| self.is_sealed_for(id))?;
        let mut budget = PageBudget::new(page_bytes);
        let (clients, next) = match at.past_clients || planted!(clients_do_not_move) {
            true => (Vec::new(), None),
            false => self.clients.moved_page(at, &leaving.colours, &mut budget),
        };
        let (chains, next) = match next {
            Some(next) => (Vec::new(), Some(next)),
            None => self.moved_chains(at, &leaving.colours, &mut budget),
        };
        Some(MovePage { at, next, clock: self.clock, clients, chains })
    }

    fn moved_chains(
        &self,
        at: MovePoint,
        colours: &[Colour],
        budget: &mut PageBudget,
    ) -> (Vec<MovedChain>, Option<MovePoint>) {
        let mut chains = Vec::new();
        for &colour in colours.iter().filter(|it| !at.past_clients || **it >= at.colour) {
            let Some(chain) = self.colours.chain(colour) else { continue };
            let from = if at.past_clients && colour == at.colour { at.position } else { NodePosition(0) };
            let from = from.max(chain.first);
            let mut moved =
                MovedChain { colour, first: chain.first, last: chain.last, at: from, nodes: Vec::new() };
            for (position, node) in (from.0..).map(NodePosition).zip(self.colours.nodes(colour, from)) {
                if !budget.admits(node.bytes()) {
                    let next = MovePoint { past_clients: true, colour, position, ..MovePoint::default() };
                    if !moved.nodes.is_empty() {
                        chains.push(moved);
                    }
                    return (chains, Some(next));
                }
                moved.nodes.push(node.clone());
            }
            // A colour whose nodes are all trimmed goes on where it is.
            if !moved.nodes.is_empty() || chain.nodes.is_empty() {
                chains.push(moved);
            }
        }
        (chains, None)
    }
}

/// What is refused.
impl PartitionState {
    pub(super) fn elsewhere(&self) -> Elsewhere {
        Elsewhere { version: self.moves.version }
    }

    /// True if a colour of it leaves: nothing begins there.
    pub(super) fn is_for_leaving(&self, content: &Content) -> bool {
        content.colours.iter().any(|&it| self.moves.is_leaving(it))
    }

    pub(super) fn leaves(&self, colour: Colour) -> bool {
        self.moves.is_leaving(colour)
    }

    /// True of what is to be of all partitions, a cut for a backup perhaps, by one who may not know of all: colours have come here or left
    /// since its map was made.
    pub(super) fn may_lack_partitions(&self, content: &Content) -> bool {
        content.is_snapshot()
            && content.plan_version() < self.moves.version
            && self.placement.partitions_of(&content.colours).len()
                >= usize::from(self.placement.partitions())
    }

    /// What an append to several partitions is answered if it is not one of this partition, as who asks has it and as it is.
    pub(super) fn refuses_plan(&self, id: AppendId, content: &Content) -> Option<Outcome> {
        let mut concerns = false;
        for (index, &colour) in content.colours.iter().enumerate() {
            let is_here = self.is_here(colour);
            if (content.planned(index, self.placement) == Some(self.partition)) != is_here {
                return Some(self.elsewhere().into());
            }
            concerns |= is_here;
        }
        // Where nothing has moved it is of several partitions.
        let is_one = self.moves.version == MapVersion(0)
            && content.plan.is_none()
            && self.placement.partitions_of(&content.colours).len() < 2;
        if !concerns || is_one || !names(id, content) {
            return Some(Conflict {}.into());
        }
        if self.may_lack_partitions(content) {
            return Some(self.elsewhere().into());
        }
        let is_old = content.plan_version() < self.moves.arrived;
        is_old.then(|| Elsewhere { version: self.moves.arrived }.into())
    }

    /// False of a time ahead of what is pending that one of the colours had passed before it came here.
    pub(super) fn may_be_dated(&self, content: &Content, at: AppendTime) -> bool {
        self.moves.marks.is_empty()
            || content.colours.iter().all(|colour| match self.moves.marks.get(colour) {
                Some(Mark::Here(clock)) => at.clock > *clock,
                Some(Mark::Gone) | None => true,
            })
    }
}

/// Commands.
impl PartitionState {
    pub(super) fn seal_colours(&mut self, command: &SealColours) {
        let SealColours { begun } = command;
        let is_new = begun.id > self.moves.over && self.moves.leaving.is_none();
        let is_ours = begun.from == self.partition && begun.colours.iter().all(|&it| self.is_here(it));
        // Regions copy partition by partition, as the fixed spread has them.
        if is_new && is_ours && self.regions.is_none() {
            self.moves.leaving = Some(begun.clone());
            self.marks.push("partition.sealed_colours");
            if !self.is_sealed_for(begun.id) {
                self.marks.push("partition.colours_wait_for_what_is_on_its_way");
            }
        }
    }

    pub(super) fn take_colours(&mut self, command: &TakeColours) {
        let TakeColours { begun, page } = command;
        if begun.id <= self.moves.over || begun.to != self.partition || self.regions.is_some() {
            return self.marks.push("partition.page_of_a_move_that_is_over");
        }
        if self.moves.taking.is_none() {
            let (next, clock) = (Some(MovePoint::default()), 0);
            self.moves.taking = Some(Taking { begun: begun.clone(), next, clock });
        }
        let Some(taking) = &mut self.moves.taking else { return };
        if taking.begun.id != begun.id || taking.next != Some(page.at) {
            // Two heads have asked for it, one after the other.
            return self.marks.push("partition.page_of_a_move_came_twice");
        }
        (taking.next, taking.clock) = (page.next, page.clock.max(taking.clock));
        if page.next.is_some() {
            self.marks.push("partition.took_colours_in_pages");
        }
        self.clock = self.clock.max(page.clock);
        for MovedClient { client, below, done } in &page.clients {
            self.clients.take(*client, *below, done, self.applied);
        }
        for MovedChain { colour, first, last, at, nodes } in &page.chains {
            if at == first {
                self.colours.begin_taking(*colour, begun.id, *first, *last);
            }
            for node in nodes {
                self.colours.push_made(*colour, node.compact());
            }
        }
    }

    pub(super) fn own_colours(&mut self, command: &OwnColours) {
        let OwnColours { id, version } = *command;
        let Some(taking) = self.moves.taking.take_if(|it| it.begun.id == id) else { return };
        let Taking { begun, next, clock } = taking;
        kernel::invariant!(DUR, next.is_none(), "{begun:?} is here, but for what is from {next:?} on");
        self.forget_marks();
        for &colour in &begun.colours {
            self.colours.show(colour);
            self.moves.marks.insert(colour, Mark::Here(clock));
        }
        self.moves.end(id, version);
        self.moves.arrived = version.max(self.moves.arrived);
        self.note_moved();
        self.marks.push("partition.owns_colours_that_came");
        self.propose_again(&begun.colours);
        self.deliver();
    }

    /// What was begun here while its other colour was elsewhere and is not delivered was not begun there, so nobody has all proposals.
    /// What is delivered here was cleaned up there before the colour left, so it is delivered everywhere.
    fn propose_again(&mut self, colours: &[Colour]) {
        let concerns = |content: &Content| content.colours.iter().any(|it| colours.contains(it));
        let begun = self.several.iter().filter(|(_, several)| concerns(&several.content));
        let begun: Vec<AppendId> = begun.map(|(&id, _)| id).collect();
        for id in begun {
            let Some(several) = self.several.get_mut(&id) else { continue };
            match &mut several.stage {
                Stage::Proposed(at) => {
                    self.clock += 1;
                    let later = AppendTime { clock: self.clock, partition: self.partition, ahead: 0 };
                    self.queue.remove(at);
                    self.queue.insert(later, Queued::Pending);
                    *at = later;
                    self.marks.push("partition.proposed_again_for_a_colour_that_came");
                }
                // What came of it is in the table of clients, which has the colour's part as well.
                Stage::Delivered(_) => self.forget(id),
                Stage::Fixed(at) => kernel::invariant!(
                    ATOMIC,
                    planted!(seal_is_not_awaited) || planted!(forwarding_mark_is_missing),
                    "{id:?} is fixed at {at:?}, and a colour of it came here since"
                ),
            }
        }
    }

    pub(super) fn forget_colours(&mut self, command: &ForgetColours) {
        let ForgetColours { id, version } = *command;
        let Some(left) = self.moves.leaving.take_if(|it| it.id == id) else { return };
        self.forget_marks();
        for &colour in &left.colours {
            self.colours.remove(colour);
            let is_home = self.placement.partition_of(colour) == self.partition;
            match is_home && !planted!(forwarding_mark_is_missing) {
                true => drop(self.moves.marks.insert(colour, Mark::Gone)),
                false => drop(self.moves.marks.remove(&colour)),
            }
        }
        self.clients.forget_colours(&left.colours);
        self.moves.end(id, version);
        self.note_moved();
        self.marks.push("partition.forgot_colours_that_left");
    }

    pub(super) fn keep_colours(&mut self, command: &KeepColours) {
        let KeepColours { id, version } = *command;
        if self.moves.leaving.take_if(|it| it.id == id).is_some() {
            self.moves.end(id, version);
            self.marks.push("partition.retained_colours_that_were_to_leave");
        }
        if let Some(taking) = self.moves.taking.take_if(|it| it.begun.id == id) {
            for &colour in &taking.begun.colours {
                self.colours.remove_taken(colour, id);
            }
            self.clients.forget_colours(&taking.begun.colours);
            self.moves.end(id, version);
            self.marks.push("partition.dropped_colours_that_were_to_come");
        }
    }

    fn note_moved(&mut self) {
        self.moves.since =
            AppendTime { clock: self.clock, partition: PartitionId(u16::MAX), ahead: u64::MAX };
    }

    /// Forgets of colours that are at home again when that was.
    fn forget_marks(&mut self) {
        let (placement, own, last) = (self.placement, self.partition, self.last);
        self.moves.marks.retain(|&colour, mark| match mark {
            Mark::Here(clock) => placement.partition_of(colour) != own || *clock >= last.clock,
            Mark::Gone => true,
        });
    }

    /// What it costs that colours have moved, about.
    pub(super) fn moved_bytes(&self) -> usize {
        MARK_BYTES * self.moves.marks.len()
    }
}
