//! One replicated log: votes that were reported are durable, what is executed was chosen by a quorum of them, and nothing is forgotten
//! that too few have in durable snapshots.

mod changes;
mod restarts;

use self::changes::needed_of;
use super::acceptor::AcceptorDisk;
use super::rising::Rising;
use super::snapshots::{Snapshots, Written};
use kernel::{Bytes, Decode, HostId, NodeId, Position, StateMachine, invariant};
use parts::{Ballot, Sequence, SessionId, Slot, SnapshotRecord, Tally};
use paxos::multipaxos::acceptor::{Acceptor, AcceptorIn, AcceptorRecord};
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::leader::{Leader, LeaderIn, LeaderRecord};
use paxos::multipaxos::proxy_leader::{ProxyLeader, ProxyLeaderIn};
use paxos::multipaxos::replica::{Replica, ReplicaIn};
use paxos::{Configuration, Member, Message, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What has become of one log.
#[derive(Debug, Default)]
pub(crate) struct LogAudit {
    acceptors: BTreeMap<NodeId, AcceptorDisk>,
    replicas: BTreeMap<NodeId, Snapshots<Slot>>,
    /// The rounds that leaders' disks have.
    rounds: BTreeMap<NodeId, u64>,
    /// What was ever voted for in each slot, and by whom durably.
    proposals: BTreeMap<Slot, BTreeMap<Ballot, Proposal>>,
    /// What candidates learned of each acceptor's votes, by their ballots.
    reports: BTreeMap<(Ballot, NodeId), BTreeMap<Slot, (Ballot, Value)>>,
    /// What was executed in each slot.
    chosen: BTreeMap<Slot, Value>,
    /// Of a replica after each slot: of the machine, and of everything executed, answered and retained for clients.
    digests: BTreeMap<Slot, (u64, u64, u64)>,
    configurations: BTreeMap<u64, Configuration>,
    executed: BTreeMap<NodeId, Slot>,
    /// How far each acceptor's word of what is chosen was looked at, and below what its votes were.
    believed: BTreeMap<NodeId, (Slot, Slot)>,
    truncated: BTreeMap<NodeId, Slot>,
    /// Below which of its commands each client has said that it has every answer.
    acknowledged: BTreeMap<SessionId, Sequence>,
    /// Acceptors whose disks have ever said that they may vote.
    bootstrapped: BTreeSet<NodeId>,
    /// Acceptors whose disks say that they were there at a bootstrap: with whom, and of which incarnations.
    founders: BTreeMap<NodeId, Vec<(NodeId, u64)>>,
    /// The furthest that a leader has had forgotten.
    truncation: Slot,
    /// How far each acceptor's pages reach that answer an inquiry, by ballot and inquiry, and from where on it was asked.
    pages: BTreeMap<(Ballot, u64), Pages>,
    /// Who has sent the last page of an answer in a Phase 1, by ballot and inquiry.
    answered: BTreeSet<(Ballot, u64, NodeId)>,
    /// The latest configuration in which somebody has voted.
    in_force: u64,
    rising: Rising,
}

/// The answers to one inquiry.
#[derive(Debug, Default)]
struct Pages {
    from: Option<Slot>,
    /// All votes below are in the pages of this acceptor.
    through: BTreeMap<NodeId, Slot>,
}

#[derive(Debug)]
struct Proposal {
    value: Value,
    voters: BTreeSet<NodeId>,
}

/// True if a message makes a promise that it must honour.
pub(crate) fn is_claim(message: &Message) -> bool {
    match message {
        Message::Leader(message) => matches!(
            message,
            LeaderIn::Phase1b(_)
                | LeaderIn::Executed(_)
                | LeaderIn::Sealed(_)
                | LeaderIn::Enlist(_)
                | LeaderIn::Heartbeat(_)
        ),
        Message::ProxyLeader(message) => matches!(message, ProxyLeaderIn::Phase2b(_)),
        Message::Replica(message) => {
            matches!(
                message,
                ReplicaIn::Chosen(_)
                    | ReplicaIn::Resumed(_)
                    | ReplicaIn::ChosenValues(_)
                    | ReplicaIn::ReadBatch(_)
            )
        }
        Message::Acceptor(message) => {
            matches!(message, AcceptorIn::Blank(_) | AcceptorIn::BlankToo(_) | AcceptorIn::Phase1a(_))
        }
        Message::Batcher(message) => matches!(message, BatcherIn::Submit(_) | BatcherIn::Query(_)),
        Message::Unbatcher(_) | Message::Client(_) => false,
    }
}

fn read<T: Decode>(record: &Bytes) -> T {
    T::decoded(record).expect("a journal holds what its role wrote")
}

/// Which role a record is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Journal {
    Acceptor,
    Replica,
    Leader,
    /// One that nobody relies on.
    Other,
}

impl LogAudit {
    pub(crate) fn on_durable(&mut self, journal: Journal, node: NodeId, position: Position, record: &Bytes) {
        match journal {
            Journal::Acceptor => {
                let record: AcceptorRecord = read(record);
                if let AcceptorRecord::Vote { ballot, slot, value } = &record {
                    self.check_proposal(*slot, *ballot, value);
                    self.check_change(*slot, value);
                    self.check_in_force(node, *slot);
                    self.propose(node, *slot, *ballot, value, true);
                }
                if let AcceptorRecord::Learned { slot, value } = &record {
                    let chosen = self.chosen.get(slot);
                    invariant!(
                        AGREE,
                        chosen.is_none_or(|chosen| chosen == value),
                        "{node} wrote down {value:?} for slot {slot}, where {chosen:?} is chosen"
                    );
                }
                if let AcceptorRecord::Active { members } = &record {
                    self.bootstrapped.insert(node);
                    self.found(node, members);
                }
                self.acceptors.entry(node).or_default().on_durable(position, &record);
            }
            Journal::Replica => {
                let written = match read::<SnapshotRecord<Slot>>(record) {
                    SnapshotRecord::Begin { below } => Written::Begin(below),
                    SnapshotRecord::Chunk { .. } => Written::Chunk,
                    SnapshotRecord::End => Written::End,
                };
                self.replicas.entry(node).or_default().on_durable(node, position, written);
            }
            Journal::Leader => {
                let LeaderRecord { round } = read(record);
                self.rounds.insert(node, round);
            }
            Journal::Other => {}
        }
    }

    pub(crate) fn on_trimmed(&mut self, journal: Journal, node: NodeId, before: Position) {
        match journal {
            Journal::Acceptor => self.acceptors.entry(node).or_default().on_trimmed(node, before),
            Journal::Replica => self.replicas.entry(node).or_default().on_trimmed(node, before),
            Journal::Leader | Journal::Other => {}
        }
    }

    pub(crate) fn on_disk_lost(&mut self, host: HostId) {
        self.acceptors.retain(|node, _| node.host() != host);
        self.founders.retain(|node, _| node.host() != host);
        self.rounds.retain(|node, _| node.host() != host);
        self.replicas
            .iter_mut()
            .filter(|(node, _)| node.host() == host)
            .for_each(|(_, disk)| disk.on_disk_lost());
        self.forget(host);
    }

    /// Acceptors that were at a bootstrap together have counted each other: one that has lost votes is another one.
    fn found(&mut self, node: NodeId, members: &[(NodeId, u64)]) {
        if members.is_empty() {
            return;
        }
        for (other, known) in &self.founders {
            let incarnation =
                |of: NodeId, list: &[(NodeId, u64)]| list.iter().find(|it| it.0 == of).map(|it| it.1);
            let alike = |of: NodeId| incarnation(of, known) == incarnation(of, members);
            invariant!(
                AGREE,
                alike(node) && alike(*other),
                "{node} began with {members:?}, and {other} with {known:?}"
            );
        }
        self.founders.insert(node, members.to_vec());
    }

    /// How many acceptors of these hosts have ever known durably that they may vote.
    pub(crate) fn bootstrapped(&self, hosts: &[HostId]) -> usize {
        self.bootstrapped.iter().filter(|node| hosts.contains(&node.host())).count()
    }

    /// A host starts a new incarnation.
    pub(crate) fn forget(&mut self, host: HostId) {
        self.executed.retain(|node, _| node.host() != host);
        self.believed.retain(|node, _| node.host() != host);
        self.truncated.retain(|node, _| node.host() != host);
        self.rising.forget(host);
    }

    /// In one ballot there is one value for a slot.
    fn propose(&mut self, node: NodeId, slot: Slot, ballot: Ballot, value: &Value, durable: bool) {
        let proposals = self.proposals.entry(slot).or_default();
        let proposal = proposals
            .entry(ballot)
            .or_insert_with(|| Proposal { value: value.clone(), voters: BTreeSet::new() });
        invariant!(
            AGREE,
            proposal.value == *value,
            "in {ballot:?} slot {slot} was voted for with {:?}, and by {node} with {value:?}",
            proposal.value
        );
        if durable {
            proposal.voters.insert(node);
        }
    }

    /// What is proposed in a ballot for the first time is the value of the highest vote that some read quorum has reported, or is free if
    /// one has reported none.
    fn check_proposal(&self, slot: Slot, ballot: Ballot, value: &Value) {
        let is_known = self.proposals.get(&slot).is_some_and(|proposals| proposals.contains_key(&ballot));
        let Some(governing) = self.governing(slot).filter(|_| !is_known) else { return };
        // Acceptors forget votes that snapshots hold: one that reports none may have had one.
        let is_last =
            self.proposals.get(&slot).is_some_and(|known| known.keys().all(|known| *known < ballot));
        let chosen = self.chosen.get(&slot).filter(|_| is_last);
        invariant!(
            AGREE,
            chosen.is_none_or(|chosen| chosen == value),
            "{value:?} is proposed for slot {slot} in {ballot:?}, where {chosen:?} was chosen before"
        );
        let group = &governing.acceptors.groups()[governing.acceptors.group_of(slot)];
        let numbered = group.members().iter().enumerate();
        let notified: Vec<(usize, Option<&(Ballot, Value)>)> = numbered
            .filter_map(|(index, acceptor)| Some((index, self.reports.get(&(ballot, *acceptor))?.get(&slot))))
            .collect();
        let is_reported_by_quorum = |highest: Option<Ballot>| {
            let mut tally = Tally::default();
            let within = notified.iter().filter(|(_, vote)| vote.map(|(voted, _)| *voted) <= highest);
            within.for_each(|(index, _)| tally.insert(*index));
            group.is_read_quorum(tally)
        };
        let of_value = notified.iter().filter_map(|(_, vote)| vote.filter(|(_, voted)| voted == value));
        let mut highest = of_value.map(|(voted, _)| Some(*voted)).chain([None]);
        invariant!(
            AGREE,
            highest.any(is_reported_by_quorum),
            "{value:?} is proposed for slot {slot} in {ballot:?}, whose leader was sent {notified:?}"
        );
    }

    /// A configuration is voted in when no read quorum of the one before answers readers any more.
    fn check_in_force(&mut self, node: NodeId, slot: Slot) {
        let Some(version) = self.governing(slot).map(|known| known.version) else { return };
        let Some(before) = version.checked_sub(1).and_then(|before| self.configurations.get(&before)) else {
            return;
        };
        if self.in_force >= version {
            return;
        }
        self.in_force = version;
        let answers = |acceptor: &NodeId| {
            self.acceptors.get(acceptor).is_some_and(|disk| disk.answers_readers_of(version - 1))
        };
        for group in before.acceptors.groups() {
            let mut tally = Tally::default();
            let members = group.members().iter().enumerate();
            members.filter(|(_, member)| answers(member)).for_each(|(index, _)| tally.insert(index));
            invariant!(
                LIN,
                !group.is_read_quorum(tally),
                "{node} votes in slot {slot} of configuration {version}, and {tally:?} of the one before answer readers"
            );
        }
    }

    fn governing(&self, slot: Slot) -> Option<&Configuration> {
        self.configurations.values().rev().find(|known| known.first_slot <= slot)
    }

    /// What the machines of replicas were that had executed all slots below this one, if that is known.
    pub(crate) fn machine_digest(&self, below: Slot) -> Option<u64> {
        self.digests.get(&below).map(|(machine, ..)| *machine)
    }

    pub(crate) fn on_report(&mut self, from: NodeId, message: &Message) {
        match message {
            Message::Leader(LeaderIn::Phase1b(page)) => {
                let votes = page.votes.iter().map(|vote| (vote.slot, vote.ballot)).collect();
                if page.more.is_none() {
                    self.answered.insert((page.ballot, page.inquiry, from));
                }
                let pages = self.pages.entry((page.ballot, page.inquiry)).or_default();
                let through = pages.through.entry(from).or_default();
                *through = page.more.unwrap_or(Slot(u64::MAX)).max(*through);
                let disk = self.acceptors.entry(from).or_default();
                disk.on_promise(from, page.ballot);
                disk.on_page(from, page.truncated_below, &votes, page.more);
                for vote in &page.votes {
                    disk.on_vote(from, vote.slot, vote.ballot);
                }
                for vote in &page.votes {
                    self.propose(from, vote.slot, vote.ballot, &vote.value, false);
                }
                let notified = self.reports.entry((page.ballot, from)).or_default();
                notified.extend(page.votes.iter().map(|vote| (vote.slot, (vote.ballot, vote.value.clone()))));
            }
            Message::Leader(LeaderIn::Executed(report)) if report.snapshot > Slot(0) => {
                self.replicas.entry(from).or_default().on_report(from, report.snapshot);
            }
            Message::Leader(LeaderIn::Sealed(sealed)) => {
                self.acceptors.entry(from).or_default().on_sealed(from, sealed.version);
            }
            Message::Leader(LeaderIn::Enlist(enlist)) if enlist.acceptor.is_none() => {
                self.acceptors.entry(from).or_default().on_incarnation(from, enlist.incarnation);
            }
            Message::Leader(LeaderIn::Heartbeat(heartbeat)) => {
                let pulse = &heartbeat.pulse;
                self.on_truncation(from, pulse.configurations.latest(), pulse.truncate_below);
            }
            Message::Batcher(BatcherIn::Submit(submit)) => {
                let known = self.acknowledged.entry(submit.session).or_default();
                *known = submit.acknowledged.max(*known);
            }
            Message::ProxyLeader(ProxyLeaderIn::Phase2b(vote)) => {
                self.acceptors.entry(from).or_default().on_vote(from, vote.slot, vote.ballot);
            }
            Message::Acceptor(AcceptorIn::Blank(blank)) => {
                self.acceptors.entry(from).or_default().on_incarnation(from, blank.incarnation);
            }
            Message::Acceptor(AcceptorIn::Phase1a(question)) => {
                let durable = self.rounds.get(&from).copied();
                invariant!(
                    AGREE,
                    durable.is_some_and(|durable| durable >= question.ballot.round),
                    "{from} asks for {:?}, and its disk has round {durable:?}",
                    question.ballot
                );
                let pages = self.pages.entry((question.ballot, question.inquiry)).or_default();
                pages.from = Some(pages.from.map_or(question.from, |from| from.min(question.from)));
            }
            Message::Replica(ReplicaIn::Chosen(chosen)) => {
                self.check_quorum(from, chosen.slot, Some(chosen.ballot), chosen.value.as_ref());
            }
            Message::Replica(ReplicaIn::Resumed(page)) => self.on_values(from, page.from, &page.values),
            Message::Replica(ReplicaIn::ChosenValues(page)) => {
                self.check_read_back(from, page.from, page.values.len());
                self.on_values(from, page.from, &page.values);
            }
            _ => {}
        }
    }

    /// What a leader reads back from acceptors is the highest vote of a read quorum that has sent all of its votes up to there.
    fn check_read_back(&self, from: NodeId, first: Slot, count: usize) {
        let of_leader: Vec<&Pages> = self
            .pages
            .iter()
            .filter(|((ballot, _), _)| ballot.leader == from)
            .map(|(_, pages)| pages)
            .collect();
        if of_leader.is_empty() {
            return;
        }
        for slot in (first.0..first.0 + count as u64).map(Slot) {
            let Some(governing) = self.governing(slot) else { return };
            let group = &governing.acceptors.groups()[governing.acceptors.group_of(slot)];
            let is_whole = |pages: &&Pages| {
                let mut tally = Tally::default();
                let whole = pages.through.iter().filter(|(_, through)| **through > slot);
                whole.filter_map(|(node, _)| group.index_of(*node)).for_each(|index| tally.insert(index));
                pages.from.is_some_and(|from| from <= slot) && group.is_read_quorum(tally)
            };
            invariant!(
                AGREE,
                of_leader.iter().any(is_whole),
                "{from} reads slot {slot} back, and no read quorum has sent it all votes up to there"
            );
        }
    }

    /// What is handed on as chosen was chosen.
    fn on_values(&self, from: NodeId, first: Slot, values: &[Value]) {
        for (slot, value) in (first.0..).map(Slot).zip(values) {
            let known = self.chosen.get(&slot);
            invariant!(
                AGREE,
                known.is_none_or(|known| known == value),
                "{from} hands {value:?} on for slot {slot}, where {known:?} was chosen"
            );
        }
    }

    /// A leader has votes forgotten that as many replicas as may fail, plus one, have in durable snapshots.
    fn on_truncation(&mut self, leader: NodeId, latest: &Configuration, below: Slot) {
        if below <= self.truncation {
            return;
        }
        self.truncation = below;
        let reach = |node: &&NodeId| {
            self.replicas.get(node).and_then(Snapshots::furthest).is_some_and(|through| through >= below)
        };
        // A leader may know of a change that is not in force yet: it counts among the replicas of the latest.
        let count = latest.replicas.iter().filter(reach).count();
        let needed = needed_of(latest);
        invariant!(
            DUR,
            count >= needed,
            "{leader} has votes below {below} forgotten, and {count} of {needed} replicas have them in durable snapshots"
        );
    }

    /// Looks at one member of the log after a burst.
    pub(crate) fn check<S: StateMachine>(&mut self, id: NodeId, member: &Member<S>) {
        match member {
            Member::Replica(replica) => self.check_replica(id, replica),
            Member::Acceptor(acceptor) => self.check_acceptor(id, acceptor),
            Member::ProxyLeader(proxy_leader) => self.check_counted(id, proxy_leader),
            Member::Leader(leader) => self.check_leader(id, leader),
            Member::Batcher(_) | Member::Unbatcher(_) | Member::Client(_) => {}
        }
    }

    /// What a candidate counts are whole answers to its present question.
    fn check_leader(&mut self, id: NodeId, leader: &Leader) {
        for counted in leader.counted() {
            invariant!(
                AGREE,
                self.answered.contains(&counted),
                "{id} counts an answer in Phase 1 that was not given: {counted:?}"
            );
        }
        let numbers = [leader.highest_round(), leader.known_executed().0];
        self.rising.look(id, ["the highest round", "what is executed"], numbers);
    }

    fn check_replica<S: StateMachine>(&mut self, id: NodeId, replica: &Replica<S>) {
        if replica.is_joining() {
            return;
        }
        let executed = replica.executed();
        let checked = self.executed.insert(id, executed);
        if checked == Some(executed) {
            return;
        }
        let all = replica.configurations().all();
        let numbers = [executed.0, replica.snapshot_through().0, all[all.len() - 1].version];
        self.rising.look(id, ["what is executed", "its snapshot", "its configuration"], numbers);
        if self.configurations.last_key_value().is_none_or(|(last, _)| *last < all[all.len() - 1].version) {
            for known in all {
                self.configurations.entry(known.version).or_insert_with(|| known.clone());
            }
        }
        for (slot, value) in
            replica.retained().skip_while(|(slot, _)| checked.is_some_and(|checked| *slot < checked))
        {
            match self.chosen.get(&slot) {
                Some(known) => invariant!(
                    AGREE,
                    known == value,
                    "slot {slot} holds {known:?}, and {id} executed {value:?} there"
                ),
                None => {
                    self.check_quorum(id, slot, None, Some(value));
                    self.chosen.insert(slot, value.clone());
                }
            }
        }
        for (session, below) in replica.acknowledged() {
            let said = self.acknowledged.get(&session).copied().unwrap_or_default();
            invariant!(
                RETAIN,
                below <= said,
                "{id} keeps the answers of {session} from {below} on, and its client has acknowledged those below {said}"
            );
        }
        let digest = (replica.machine().digest(), replica.digest(), replica.sessions_digest());
        let known = *self.digests.entry(executed).or_insert(digest);
        invariant!(PREFIX, known == digest, "{id} differs from another replica after slot {executed}");
        invariant!(
            PREFIX,
            replica.diverged().is_none(),
            "{id} stopped: most replicas stood otherwise after slot {:?}",
            replica.diverged()
        );
    }

    /// What is executed, or called chosen, was voted for in one ballot by a quorum whose disks have the votes: in this one, if it is named.
    fn check_quorum(&self, id: NodeId, slot: Slot, ballot: Option<Ballot>, value: Option<&Value>) {
        let Some(governing) = self.governing(slot) else { return };
        let group = &governing.acceptors.groups()[governing.acceptors.group_of(slot)];
        let is_chosen = |(of, proposal): (&Ballot, &Proposal)| {
            let mut tally = Tally::default();
            proposal
                .voters
                .iter()
                .filter_map(|&voter| group.index_of(voter))
                .for_each(|index| tally.insert(index));
            ballot.is_none_or(|ballot| ballot == *of)
                && value.is_none_or(|value| proposal.value == *value)
                && group.is_write_quorum(tally)
        };
        let proposals = self.proposals.get(&slot);
        invariant!(
            AGREE,
            proposals.is_some_and(|proposals| proposals.iter().any(is_chosen)),
            "{id} takes {value:?} for chosen in slot {slot}, in {ballot:?}; votes on disks: {proposals:?}"
        );
    }

    /// A vote that counts was cast in that ballot, durably.
    fn check_counted(&self, id: NodeId, proxy_leader: &ProxyLeader) {
        for (slot, ballot, acceptor) in proxy_leader.counted() {
            let proposal = self.proposals.get(&slot).and_then(|proposals| proposals.get(&ballot));
            invariant!(
                AGREE,
                proposal.is_some_and(|proposal| proposal.voters.contains(&acceptor)),
                "{id} counts a vote of {acceptor} for slot {slot} in {ballot:?}; votes on disks: {proposal:?}"
            );
        }
    }

    fn check_acceptor(&mut self, id: NodeId, acceptor: &Acceptor) {
        let below = acceptor.truncated_below();
        if let Some(summary) = acceptor.summary() {
            let numbers = [summary.promised.round, summary.voted_through.0, below.0, summary.sealed];
            let names = ["the round promised", "the end of its votes", "what is truncated", "its seal"];
            self.rising.look(id, names, numbers);
        }
        if self.truncated.insert(id, below) != Some(below)
            && let Some(disk) = self.acceptors.get(&id)
        {
            disk.check_memory(id, below, |slot| acceptor.vote(slot).map(|(ballot, _)| ballot));
        }
        let executed = acceptor.executed();
        let seen = (executed.start, executed.end);
        let before = self.believed.insert(id, seen);
        if before == Some(seen) {
            return;
        }
        let new = match before {
            Some((from, end)) if from == executed.start => end..executed.end,
            _ => executed,
        };
        for slot in (new.start.max(below).0..new.end.0).map(Slot) {
            let (Some(chosen), value) = (self.chosen.get(&slot), acceptor.executed_value(slot)) else {
                continue;
            };
            invariant!(
                AGREE,
                value == Some(chosen),
                "{id} calls {value:?} in slot {slot} chosen, which is {chosen:?}"
            );
        }
    }
}
