//! A log over chains: what storage servers, sequencers and auxiliaries have reported is what a restart would find on their disks.
//!
//! A storage server's disk is looked at as its next incarnation would: by a server that reads the records.

use super::rising::Rising;
use corfu::auxiliary::{AuxiliaryIn, AuxiliaryRecord, Vote, Whole};
use corfu::client::ClientIn;
use corfu::sequencer::{Began, SequencerIn};
use corfu::storage::{StorageIn, StorageRecord};
use corfu::{Auxiliary, CorfuMessage, Entry, Epoch, JournalId, LogPosition, Projection, StorageServer};
use kernel::{Bytes, Decode, HostId, HostSlot, NodeId, Position, Role, invariant};
use parts::Ballot;
use sim::Fact;
use std::collections::{BTreeMap, BTreeSet};

/// Every promise of one log.
#[derive(Debug, Default)]
pub(crate) struct CorfuAudit {
    storage: BTreeMap<NodeId, StorageDisk>,
    /// The position after the last one that any server of a chain has ever had durably; a chain's servers have one slot on their hosts.
    written: BTreeMap<HostSlot, LogPosition>,
    sequencers: BTreeMap<NodeId, Began>,
    auxiliaries: BTreeMap<NodeId, AuxiliaryRecord>,
    /// Who has ever voted durably for what, by epoch and ballot.
    votes: BTreeMap<(Epoch, Ballot), (Projection, BTreeSet<NodeId>)>,
    /// The last position given away in each epoch.
    given: BTreeMap<Epoch, LogPosition>,
    /// Who has promised what, in which incarnation, and what it had accepted.
    promised: BTreeMap<(Epoch, Ballot, NodeId), Promised>,
    rising: Rising,
}

/// In which incarnation an auxiliary promised, and what it had accepted.
#[derive(Clone, Debug)]
struct Promised {
    journal: Option<JournalId>,
    accepted: Option<Vote>,
}

/// Which role a slot is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Journal {
    Storage,
    Sequencer,
    Auxiliary,
    /// One that keeps nothing.
    Client,
}

/// True if a message makes a promise that it must honour.
pub(crate) fn is_claim(message: &CorfuMessage) -> bool {
    match message {
        CorfuMessage::Client(message) => match message {
            ClientIn::Token(_)
            | ClientIn::TailIs(_)
            | ClientIn::Written(_)
            | ClientIn::Occupied(_)
            | ClientIn::Found(_)
            | ClientIn::Sealed(_)
            | ClientIn::Installed(_)
            | ClientIn::Gone(_) => true,
            ClientIn::Trimmed(_) | ClientIn::Measured(_) => false,
        },
        CorfuMessage::Auxiliary(message) => !matches!(message, AuxiliaryIn::WantProjection(_)),
        CorfuMessage::Storage(message) => matches!(message, StorageIn::Project(_) | StorageIn::Seal(_)),
        CorfuMessage::Sequencer(message) => matches!(message, SequencerIn::Begin(_)),
    }
}

/// What a restart of a storage server would find.
#[derive(Debug)]
struct StorageDisk {
    records: Vec<(Position, StorageRecord)>,
    found: StorageServer,
    /// What it has ever had in each position: an answer may leave when it is dropped again.
    ever: BTreeMap<LogPosition, Vec<Entry>>,
    /// The last epoch that it has entered.
    opened: Epoch,
    /// The last epoch for which it has said that it is sealed.
    sealed: Epoch,
}

impl Default for StorageDisk {
    fn default() -> Self {
        let found = StorageServer::new(u64::MAX);
        Self { records: Vec::new(), found, ever: BTreeMap::new(), opened: Epoch(0), sealed: Epoch(1) }
    }
}

impl StorageDisk {
    /// A server enters an epoch after it has said that it serves none before it.
    fn on_durable(&mut self, node: NodeId, position: Position, record: StorageRecord) {
        if let StorageRecord::Serves(epoch) = record {
            let sealed = self.sealed;
            invariant!(AGREE, epoch <= sealed, "{node} enters {epoch:?}, and was sealed for {sealed:?}");
            self.opened = self.opened.max(epoch);
        }
        if let StorageRecord::Retained(at, entry) = &record {
            self.ever.entry(*at).or_default().push(entry.clone());
        }
        self.found.restore(position, record.clone());
        self.records.push((position, record));
    }

    /// What is trimmed was needed by nobody: a restart finds the same without it.
    fn on_trimmed(&mut self, node: NodeId, before: Position) {
        self.records.retain(|(position, _)| *position >= before);
        let mut left = StorageServer::new(u64::MAX);
        self.records.iter().for_each(|(position, record)| left.restore(*position, record.clone()));
        let was = std::mem::replace(&mut self.found, left);
        let left = &self.found;
        invariant!(
            DUR,
            (was.journal(), was.epoch(), was.serves(), was.first())
                == (left.journal(), left.epoch(), left.serves(), left.first()),
            "{node} trimmed what it stands by: {:?} {:?} serves {} from {}, now {:?} {:?} serves {} from {}",
            was.journal(),
            was.epoch(),
            was.serves(),
            was.first(),
            left.journal(),
            left.epoch(),
            left.serves(),
            left.first()
        );
        let lost = was.entries().find(|(at, entry)| left.entry(*at) != Some(*entry));
        invariant!(DUR, lost.is_none(), "{node} trimmed its entry {lost:?}");
    }

    fn has(&self, position: LogPosition) -> bool {
        position < self.found.first() || self.ever.contains_key(&position)
    }

    fn has_entry(&self, position: LogPosition, entry: &Entry) -> bool {
        position < self.found.first() || self.ever.get(&position).is_some_and(|ever| ever.contains(entry))
    }

    /// The position after the last one that was ever written.
    fn next(&self) -> LogPosition {
        let last = self.ever.last_key_value().map(|(position, _)| position.next());
        last.unwrap_or(self.found.first()).max(self.found.first())
    }
}

fn read<T: Decode>(record: &Bytes) -> T {
    T::decoded(record).expect("a journal holds what its role wrote")
}

impl CorfuAudit {
    /// There are so many auxiliaries.
    pub(crate) fn on_fact(
        &mut self,
        fact: Fact<CorfuMessage>,
        auxiliaries: usize,
        journal_of: impl Fn(NodeId) -> Journal,
    ) {
        match fact {
            Fact::Durable { node, position, record } => match journal_of(node) {
                Journal::Storage => self.on_stored(node, position, read(&record)),
                Journal::Sequencer => {
                    self.sequencers.insert(node, read(&record));
                }
                Journal::Auxiliary => self.on_decision(node, read(&record), auxiliaries),
                Journal::Client => {}
            },
            Fact::Trimmed { node, before } => {
                if let Some(disk) = self.storage.get_mut(&node) {
                    disk.on_trimmed(node, before);
                }
            }
            Fact::Reported { from, message, .. } => match journal_of(from) {
                Journal::Storage => self.on_storage(from, &message),
                Journal::Sequencer => self.on_sequencer(from, &message),
                Journal::Auxiliary => self.on_auxiliary(from, &message, auxiliaries),
                Journal::Client => {}
            },
            Fact::DiskLost { host } => self.on_disk_lost(host),
        }
    }

    /// Nothing is dropped that was never written: a later append would be lost.
    fn on_stored(&mut self, node: NodeId, position: Position, record: StorageRecord) {
        let written = self.written.entry(node.host_slot()).or_insert(LogPosition(0));
        match &record {
            StorageRecord::Retained(at, _) => *written = at.next().max(*written),
            StorageRecord::Trimmed(before) => {
                invariant!(DUR, before <= written, "{node} drops what is below {before}, {written} is next");
            }
            StorageRecord::Sealed(_)
            | StorageRecord::JournalId(_)
            | StorageRecord::Serves(_)
            | StorageRecord::Dropped(_) => {}
        }
        self.storage.entry(node).or_default().on_durable(node, position, record);
    }

    /// What is installed was voted for by a majority, in one ballot.
    fn on_decision(&mut self, node: NodeId, record: AuxiliaryRecord, auxiliaries: usize) {
        if let Some(vote) = &record.accepted {
            let of_ballot = self.votes.entry((vote.projection.epoch, vote.ballot));
            let (projection, voters) =
                of_ballot.or_insert_with(|| (vote.projection.clone(), BTreeSet::new()));
            invariant!(
                AGREE,
                *projection == vote.projection,
                "{node} votes for {:?}, another in the same ballot for {projection:?}",
                vote.projection
            );
            voters.insert(node);
        }
        let before = self.auxiliaries.get(&node).map(|disk| disk.installed.epoch);
        let installed = &record.installed;
        if installed.epoch > Epoch(1) && before < Some(installed.epoch) {
            let epoch = installed.epoch;
            let mut of_epoch = self
                .votes
                .range((epoch, Ballot::ZERO)..(epoch.next(), Ballot::ZERO))
                .filter(|(_, (projection, _))| projection == installed);
            invariant!(
                AGREE,
                of_epoch.any(|(_, (_, voters))| 2 * voters.len() > auxiliaries),
                "{node} has {installed:?} installed; votes on disks: {:?}",
                self.votes
            );
        }
        self.auxiliaries.insert(node, record);
    }

    /// A vote that counts was cast in that ballot, durably.
    pub(crate) fn check_counted(&self, id: NodeId, auxiliary: &Auxiliary) {
        for (vote, voter) in auxiliary.counted() {
            let cast = self.votes.get(&(vote.projection.epoch, vote.ballot));
            invariant!(
                AGREE,
                cast.is_some_and(|(_, voters)| voters.contains(&voter)),
                "{id} counts a vote of {voter} for {vote:?}; votes on disks: {cast:?}"
            );
        }
    }

    /// Who asks for votes has the promises of a quorum of incarnations that have a vote, by the projection that it knows. There are so many
    /// auxiliaries.
    pub(crate) fn check_promises(&mut self, id: NodeId, auxiliary: &Auxiliary, auxiliaries: usize) {
        let installed = auxiliary.installed();
        if let Some((epoch, ballot)) = auxiliary.asks_for_votes().filter(|_| installed.is_bootstrapped()) {
            let of_ballot = self.promised.range((epoch, ballot, NodeId::ZERO)..);
            let of_ballot =
                of_ballot.take_while(|((of, promised, _), _)| (*of, *promised) == (epoch, ballot));
            let made = of_ballot
                .filter(|((_, _, node), Promised { journal, .. })| {
                    journal.is_some_and(|journal| installed.means(*node, journal))
                })
                .count();
            invariant!(
                AGREE,
                2 * made > auxiliaries,
                "{id} asks for votes in {ballot:?} of {epoch:?}, which {made} of {auxiliaries} have promised that have a vote"
            );
        }
        self.rising.look(id, ["the epoch installed"], [installed.epoch.0]);
    }

    /// A host starts a new incarnation.
    pub(crate) fn forget(&mut self, host: HostId) {
        self.rising.forget(host);
    }

    fn on_disk_lost(&mut self, host: HostId) {
        self.storage.retain(|node, _| node.host() != host);
        self.sequencers.retain(|node, _| node.host() != host);
        self.auxiliaries.retain(|node, _| node.host() != host);
    }

    fn on_storage(&mut self, from: NodeId, message: &CorfuMessage) {
        let disk = self.storage.entry(from).or_default();
        let is_retained = match message {
            CorfuMessage::Client(ClientIn::Written(it)) => disk.has(it.position),
            CorfuMessage::Client(ClientIn::Occupied(it)) => disk.has_entry(it.position, &it.entry),
            CorfuMessage::Client(ClientIn::Found(it)) => {
                it.entry.as_ref().is_none_or(|entry| disk.has_entry(it.position, entry))
            }
            CorfuMessage::Client(ClientIn::Sealed(it)) => disk.found.epoch() >= it.epoch,
            CorfuMessage::Client(ClientIn::Gone(it)) => disk.found.first() >= it.resume_from,
            CorfuMessage::Auxiliary(AuxiliaryIn::SealAck(it)) => {
                disk.found.epoch() >= it.epoch && disk.found.journal() == it.journal && disk.next() >= it.next
            }
            CorfuMessage::Auxiliary(AuxiliaryIn::Beyond(it)) => disk.found.epoch() >= it.epoch,
            CorfuMessage::Auxiliary(AuxiliaryIn::Whole(it)) => {
                disk.found.epoch() >= it.epoch && disk.found.journal() == Some(it.journal)
            }
            CorfuMessage::Auxiliary(AuxiliaryIn::StoragePong(it)) => {
                let journal = it.status.as_ref().map(|status| status.journal);
                disk.found.epoch() >= it.epoch
                    && journal.is_none_or(|journal| disk.found.journal() == Some(journal))
            }
            _ => true,
        };
        if let CorfuMessage::Auxiliary(AuxiliaryIn::SealAck(it)) = message {
            disk.sealed = disk.sealed.max(it.epoch);
        }
        if let CorfuMessage::Auxiliary(AuxiliaryIn::Whole(it)) = message {
            disk.sealed = disk.sealed.max(it.epoch);
        }
        let (epoch, opened) = (served_in(message), disk.opened);
        invariant!(
            AGREE,
            epoch <= Some(opened),
            "{from} serves {epoch:?}, and its disk has entered {opened:?}: {message:?}"
        );
        invariant!(
            DUR,
            is_retained,
            "{from} says {message:?}; its disk is sealed for {:?}, in journal {:?}, from {} to {}, with {:?} there",
            disk.found.epoch(),
            disk.found.journal(),
            disk.found.first(),
            disk.next(),
            position_of(message).map(|position| disk.found.entry(position))
        );
        if let CorfuMessage::Auxiliary(AuxiliaryIn::Whole(it)) = message {
            self.check_whole(from, it);
        }
    }

    /// Who says that its copy is whole has what its source has, durably, while that is sealed for the same epoch and serves nobody.
    fn check_whole(&self, learner: NodeId, whole: &Whole) {
        let (Some(copy), Some(source)) = (self.storage.get(&learner), self.storage.get(&whole.source)) else {
            return;
        };
        if source.found.epoch() != whole.epoch || source.found.serves() {
            return;
        }
        let all = source.found.entries().filter(|(at, _)| *at >= copy.found.first());
        let lacks = all.into_iter().find(|(at, entry)| copy.found.entry(*at) != Some(*entry));
        invariant!(
            NEST,
            lacks.is_none(),
            "{learner} says that it has all of {}, and lacks {lacks:?}",
            whole.source
        );
    }

    fn on_sequencer(&mut self, from: NodeId, message: &CorfuMessage) {
        let disk = self.sequencers.get(&from);
        let (began, journal) = disk.map_or((Epoch(0), None), |began| (began.epoch, began.journal));
        let notified = match message {
            CorfuMessage::Client(ClientIn::Token(it)) => {
                let last = self.given.insert(it.epoch, it.position);
                invariant!(
                    UNIQ,
                    last.is_none_or(|last| last < it.position),
                    "{from} gives {} of {:?} away after {last:?}",
                    it.position,
                    it.epoch
                );
                it.epoch
            }
            CorfuMessage::Client(ClientIn::TailIs(it)) => it.epoch,
            CorfuMessage::Client(ClientIn::Sealed(it)) => it.epoch,
            CorfuMessage::Auxiliary(AuxiliaryIn::SequencerPong(it)) => {
                invariant!(
                    DUR,
                    it.journal == journal,
                    "{from} says {message:?}, and its disk has {journal:?}"
                );
                it.began
            }
            _ => return,
        };
        invariant!(DUR, notified <= began, "{from} says {message:?}, and its disk has begun {began:?}");
    }

    fn on_auxiliary(&mut self, from: NodeId, message: &CorfuMessage, auxiliaries: usize) {
        let installed = match message {
            CorfuMessage::Auxiliary(AuxiliaryIn::Promise(it)) => {
                let promise = Promised { journal: it.journal, accepted: it.accepted.clone() };
                self.promised.entry((it.epoch, it.ballot, from)).or_insert(promise);
                return self.check_ballot(from, it.epoch, it.ballot, it.journal, message);
            }
            CorfuMessage::Auxiliary(AuxiliaryIn::Accepted(it)) => {
                self.check_ballot(from, it.epoch, it.ballot, it.journal, message);
                let accepted = self.auxiliaries.get(&from).and_then(|disk| disk.accepted.as_ref());
                let decided = self.installed(from) >= Some(it.epoch);
                let retained = accepted.is_some_and(|vote| vote.ballot >= it.ballot);
                invariant!(
                    AGREE,
                    retained || decided,
                    "{from} says {message:?}, and its disk has {accepted:?}"
                );
                return;
            }
            CorfuMessage::Auxiliary(AuxiliaryIn::Prepare(it)) => {
                let journal = self.auxiliaries.get(&from).and_then(|disk| disk.journal);
                return self.check_ballot(from, it.base.epoch.next(), it.ballot, journal, message);
            }
            CorfuMessage::Auxiliary(AuxiliaryIn::Accept(it)) => {
                self.check_asked(from, &it.vote, auxiliaries);
                let journal = self.auxiliaries.get(&from).and_then(|disk| disk.journal);
                return self.check_ballot(from, it.vote.projection.epoch, it.vote.ballot, journal, message);
            }
            CorfuMessage::Auxiliary(AuxiliaryIn::Install(it)) => it.projection.epoch,
            CorfuMessage::Auxiliary(AuxiliaryIn::Hello(it)) => it.epoch,
            CorfuMessage::Client(ClientIn::Installed(it)) => it.projection.epoch,
            CorfuMessage::Storage(StorageIn::Project(it)) => it.projection.epoch,
            CorfuMessage::Sequencer(SequencerIn::Begin(it)) => it.epoch,
            // Sealed for what follows a projection that is forgotten, servers would refuse it to everybody.
            CorfuMessage::Storage(StorageIn::Seal(it)) => Epoch(it.epoch.0.saturating_sub(1)),
            _ => return,
        };
        // The first projection is nobody's decision.
        let known = self.installed(from);
        invariant!(
            AGREE,
            installed <= Epoch(1) || known >= Some(installed),
            "{from} says {message:?}, and its disk has {known:?}"
        );
    }

    fn installed(&self, of: NodeId) -> Option<Epoch> {
        self.auxiliaries.get(&of).map(|disk| disk.installed.epoch)
    }

    /// What is asked for is what was accepted in the highest ballot that a quorum of those who promised knows of, or free where they know of
    /// nothing.
    fn check_asked(&self, from: NodeId, vote: &Vote, auxiliaries: usize) {
        let Some(disk) = self.auxiliaries.get(&from).filter(|disk| disk.installed.is_bootstrapped()) else {
            return;
        };
        let of = (vote.projection.epoch, vote.ballot);
        let of_ballot = self.promised.range((of.0, of.1, NodeId::ZERO)..);
        let of_ballot = of_ballot.take_while(|((epoch, ballot, _), _)| (*epoch, *ballot) == of);
        let counts = of_ballot.filter(|((_, _, node), Promised { journal, .. })| {
            journal.is_some_and(|journal| disk.installed.means(*node, journal))
        });
        let accepted: Vec<&Option<Vote>> = counts.map(|(_, promised)| &promised.accepted).collect();
        let same = accepted.iter().copied().flatten().filter(|known| known.projection == vote.projection);
        let highest = same.map(|known| known.ballot).max();
        let agree = accepted.iter().filter(|known| known.as_ref().map(|known| known.ballot) <= highest);
        invariant!(
            AGREE,
            2 * agree.count() > auxiliaries || disk.installed.epoch >= of.0,
            "{from} asks for {vote:?}, and who has promised that has accepted {accepted:?}"
        );
    }

    /// A ballot that was promised, or is asked for, is on the disk, unless the epoch is decided.
    fn check_ballot(
        &self,
        from: NodeId,
        epoch: Epoch,
        ballot: Ballot,
        journal: Option<JournalId>,
        message: &CorfuMessage,
    ) {
        let disk = self.auxiliaries.get(&from);
        let retained = disk.is_some_and(|disk| {
            let decided = disk.installed.epoch >= epoch;
            disk.journal == journal
                && (decided || disk.installed.epoch.next() == epoch && disk.promised >= ballot)
        });
        invariant!(
            AGREE,
            retained,
            "{from} says {message:?}, and its disk has {:?}",
            disk.map(|disk| (disk.installed.epoch, disk.promised, disk.journal))
        );
    }
}

/// The epoch in which a server did what it answers.
fn served_in(message: &CorfuMessage) -> Option<Epoch> {
    match message {
        CorfuMessage::Client(ClientIn::Written(it)) => Some(it.epoch),
        CorfuMessage::Client(ClientIn::Occupied(it)) => Some(it.epoch),
        CorfuMessage::Client(ClientIn::Found(it)) => Some(it.epoch),
        _ => None,
    }
}

fn position_of(message: &CorfuMessage) -> Option<LogPosition> {
    match message {
        CorfuMessage::Client(ClientIn::Written(it)) => Some(it.position),
        CorfuMessage::Client(ClientIn::Occupied(it)) => Some(it.position),
        CorfuMessage::Client(ClientIn::Found(it)) => Some(it.position),
        _ => None,
    }
}

/// A node of the log, and what a restart would make of it: it knows all that it knew, and has what it had.
pub(crate) fn on_dry_restart(id: NodeId, running: &corfu::Member, restarted: &corfu::Member) {
    match (running, restarted) {
        (corfu::Member::Storage(running), corfu::Member::Storage(restarted)) => {
            let stands = |it: &StorageServer| (it.journal(), it.epoch(), it.opened(), it.first());
            let (known, found) = (stands(running), stands(restarted));
            invariant!(DUR, known == found, "{id} is {known:?}, and would be {found:?} after a restart");
            let differs = running.entries().zip(restarted.entries()).find(|(known, found)| known != found);
            let (known, found) = (running.len(), restarted.len());
            invariant!(
                DUR,
                known == found && differs.is_none(),
                "{id} has {known} entries, and would have {found} after a restart, one of them another: {differs:?}"
            );
        }
        (corfu::Member::Sequencer(running), corfu::Member::Sequencer(restarted)) => {
            let (known, found) = (running.record(), restarted.record());
            invariant!(
                UNIQ,
                known == found,
                "{id} knows {known:?}, and would know {found:?} after a restart"
            );
        }
        (corfu::Member::Auxiliary(running), corfu::Member::Auxiliary(restarted)) => {
            let (known, found) = (running.record(), restarted.record());
            invariant!(
                AGREE,
                known == found,
                "{id} knows {known:?}, and would know {found:?} after a restart"
            );
        }
        // Clients journal nothing.
        _ => {}
    }
}
