//! The journal of one acceptor, and what it has reported to others of its promises and votes.

use kernel::{NodeId, Position, invariant};
use parts::{Ballot, Slot};
use paxos::multipaxos::acceptor::AcceptorRecord;
use std::collections::BTreeMap;

/// What a crash would leave of an acceptor.
#[derive(Debug, Default)]
pub(super) struct AcceptorDisk {
    /// The incarnations that its records name.
    incarnations: Vec<(Position, u64)>,
    active: Vec<Position>,
    ballots: Vec<(Position, Ballot)>,
    sealed: Vec<(Position, u64)>,
    /// The last vote in each slot, and where it stands.
    votes: BTreeMap<Slot, (Ballot, Position)>,
    /// Chosen values that it did not vote for, and where they stand.
    learned: BTreeMap<Slot, Position>,
    truncated: Vec<(Position, Slot)>,
    notified: Reported,
}

/// What others rely on.
#[derive(Debug, Default)]
struct Reported {
    incarnation: Option<u64>,
    promised: Option<Ballot>,
    sealed: u64,
    votes: BTreeMap<Slot, Ballot>,
    /// It has voted, so it must know that it may.
    active: bool,
}

fn highest<T: Copy + Ord>(of: &[(Position, T)]) -> Option<T> {
    of.iter().map(|(_, value)| *value).max()
}

impl AcceptorDisk {
    pub(super) fn on_durable(&mut self, position: Position, record: &AcceptorRecord) {
        match record {
            AcceptorRecord::Blank { incarnation } => self.incarnations.push((position, *incarnation)),
            AcceptorRecord::Active { .. } => self.active.push(position),
            AcceptorRecord::Promise { ballot } => self.ballots.push((position, *ballot)),
            AcceptorRecord::Sealed { version } => self.sealed.push((position, *version)),
            AcceptorRecord::Vote { ballot, slot, .. } => {
                self.ballots.push((position, *ballot));
                self.votes.insert(*slot, (*ballot, position));
            }
            AcceptorRecord::Learned { slot, .. } => {
                self.learned.insert(*slot, position);
            }
            AcceptorRecord::Executed { .. } => {}
            AcceptorRecord::Summary(summary) => {
                self.incarnations.push((position, summary.incarnation));
                self.ballots.push((position, summary.promised));
                self.sealed.push((position, summary.sealed));
                self.truncated.push((position, summary.truncated_below));
                if summary.active {
                    self.active.push(position);
                }
            }
        }
    }

    /// What was truncated, durably: votes below are in snapshots.
    pub(super) fn truncated_below(&self) -> Slot {
        highest(&self.truncated).unwrap_or(Slot(0))
    }

    /// True if it would answer a reader of this configuration after a restart.
    pub(super) fn answers_readers_of(&self, version: u64) -> bool {
        !self.active.is_empty() && highest(&self.sealed).unwrap_or(0) <= version
    }

    pub(super) fn on_trimmed(&mut self, node: NodeId, before: Position) {
        let stays = |position: &Position| *position >= before;
        self.incarnations.retain(|(position, _)| stays(position));
        self.active.retain(stays);
        self.ballots.retain(|(position, _)| stays(position));
        self.sealed.retain(|(position, _)| stays(position));
        self.truncated.retain(|(position, _)| stays(position));
        self.votes.retain(|_, (_, position)| stays(position));
        let below = self.truncated_below();
        self.learned = self.learned.split_off(&below);
        let lost = self.learned.iter().find(|(_, position)| !stays(position));
        invariant!(
            AGREE,
            lost.is_none(),
            "{node} trimmed what it has learned of {lost:?}; its disk is truncated below {below}"
        );
        self.notified.votes = self.notified.votes.split_off(&below);
        let Reported { incarnation, promised, sealed, votes, active } = &self.notified;
        let known =
            incarnation.is_none_or(|notified| self.incarnations.iter().any(|(_, known)| *known == notified));
        invariant!(AGREE, known, "{node} trimmed its incarnation {incarnation:?}");
        invariant!(
            AGREE,
            *promised <= highest(&self.ballots) && *sealed <= highest(&self.sealed).unwrap_or(0),
            "{node} trimmed what it has promised: {promised:?}, sealed for {sealed}"
        );
        invariant!(AGREE, !active || !self.active.is_empty(), "{node} trimmed that it may vote");
        let lost = votes.iter().find(|(slot, ballot)| !self.has_vote(**slot, **ballot));
        invariant!(
            AGREE,
            lost.is_none(),
            "{node} trimmed its vote {lost:?}; its disk is truncated below {below}"
        );
    }

    fn has_vote(&self, slot: Slot, ballot: Ballot) -> bool {
        self.votes.get(&slot).is_some_and(|(voted, _)| *voted >= ballot)
    }

    pub(super) fn on_incarnation(&mut self, node: NodeId, incarnation: u64) {
        self.notified.incarnation = Some(incarnation);
        let known = self.incarnations.iter().any(|(_, known)| *known == incarnation);
        invariant!(AGREE, known, "{node} reported an incarnation that is not on its disk");
    }

    pub(super) fn on_promise(&mut self, node: NodeId, ballot: Ballot) {
        self.notified.promised = self.notified.promised.max(Some(ballot));
        let durable = highest(&self.ballots);
        invariant!(
            AGREE,
            Some(ballot) <= durable,
            "{node} reported its promise of {ballot:?}, and its disk has {durable:?}"
        );
    }

    pub(super) fn on_vote(&mut self, node: NodeId, slot: Slot, ballot: Ballot) {
        if slot < self.truncated_below() {
            return;
        }
        let notified = self.notified.votes.entry(slot).or_insert(ballot);
        *notified = ballot.max(*notified);
        self.notified.active = true;
        invariant!(
            AGREE,
            self.has_vote(slot, ballot),
            "{node} reported its vote in slot {slot} of {ballot:?}, and its disk has {:?}",
            self.votes.get(&slot)
        );
    }

    pub(super) fn on_sealed(&mut self, node: NodeId, version: u64) {
        self.notified.sealed = version.max(self.notified.sealed);
        let durable = highest(&self.sealed).unwrap_or(0);
        invariant!(
            AGREE,
            version <= durable,
            "{node} reported that it is sealed for {version}, and its disk has {durable}"
        );
    }

    /// A page of votes leaves none out that others rely on.
    pub(super) fn on_page(
        &self,
        node: NodeId,
        truncated_below: Slot,
        votes: &BTreeMap<Slot, Ballot>,
        more: Option<Slot>,
    ) {
        let Some((&first, _)) = votes.first_key_value() else { return };
        let end = more.unwrap_or(Slot(u64::MAX));
        for (slot, ballot) in
            self.notified.votes.range(first.max(truncated_below)..end.max(first.max(truncated_below)))
        {
            let reported = votes.get(slot);
            invariant!(
                AGREE,
                reported.is_some_and(|reported| reported >= ballot),
                "{node} voted in slot {slot} of {ballot:?} and reports to a candidate {reported:?}"
            );
        }
    }

    /// The votes in memory of an acceptor that runs hold all that others rely on.
    pub(super) fn check_memory(
        &self,
        node: NodeId,
        truncated_below: Slot,
        vote_in: impl Fn(Slot) -> Option<Ballot>,
    ) {
        for (slot, ballot) in self.notified.votes.range(truncated_below..) {
            let known = vote_in(*slot);
            invariant!(
                AGREE,
                known.is_some_and(|known| known >= *ballot),
                "{node} has reported its vote in slot {slot} of {ballot:?} and knows of {known:?}, truncated below {truncated_below}"
            );
        }
    }
}
