//! The replicated state of a proxy: what its log has assigned, executed alike on every replica of the group.

mod arrangement;
mod inspection;
mod operations;
mod retained;
mod snapshot;

use super::delivery::{Run, Runs};
use super::entry::{AssignmentBatch, Claim, Entry, Item, Question};
use super::{
    Applied, AwaitsTime, Began, DidFill, DidMove, DidSeal, DidSettle, FollowUp, NextTag, ProxyIn, Reached,
    Viewed,
};
use crate::messages::sequencer::{Moved, SequencerIn};
use crate::messages::shard::{self, Deliver, Settled, ShardBehind, ShardIn};
use crate::order::{ConsistentCut, Group, GroupTime, Gsn, MultiNumber, Number, Order, Placed, Range, Space};
use crate::service::{Stub, StubOut};
use crate::topology::{Layout, Topology};
use crate::view::View;
use arrangement::Arrangement;
use kernel::{
    Bytes, Capture, Decode, DecodeError, Encode, HostId, NodeId, Recount, SnapshotStep, StateMachine, planted,
};
use parts::Ballot;
use paxos::Members;
use retained::Retained;
use std::collections::VecDeque;
use std::sync::Arc;

kernel::record! {
    /// Everything that is a function of the log, apart from the stub and what is retained for shards.
    struct Assigned {
        ballot: Ballot,
        epoch: u64,
        index: u64,
        sequencer: u64,
        request: u64,
        view: View,
        gsn: Gsn,
        now: GroupTime,
        tags: Vec<NextTag>,
        follow_ups: Vec<FollowUp>,
        next_follow_up: u64,
        /// Servers that lack operations below these numbers take a peer's snapshot.
        durable: Vec<Placed>,
        /// Whose the sequencer's epoch is.
        claim: Option<Claim>,
        /// The hosts, since they are others than at the bootstrap.
        members: Option<Members>,
        /// How many groups are in use, since that is not as at the bootstrap.
        arrangement: Option<Arrangement>,
        /// The version of the members that are all the group needs, since they are others than at the bootstrap.
        settled: Option<u64>,
        /// The newest: a server that has everything may lack only the word that this is everything.
        cut: Option<ConsistentCut>,
    }
}

impl Default for Assigned {
    fn default() -> Self {
        Self {
            ballot: Ballot::ZERO,
            epoch: 0,
            index: 0,
            sequencer: 0,
            request: 0,
            view: View::default(),
            gsn: Gsn(0),
            now: GroupTime(0),
            tags: Vec::new(),
            follow_ups: Vec::new(),
            next_follow_up: 1,
            durable: Vec::new(),
            claim: None,
            members: None,
            arrangement: None,
            settled: None,
            cut: None,
        }
    }
}

/// The state machine of a proxy's log.
///
/// Invariant: a number is assigned at most once, and only by a batch of the leader and the sequencer in force.
#[derive(Clone, Debug)]
pub struct ProxyMachine<S> {
    group: Group,
    topology: Arc<Topology>,
    /// The version of the members that was reported to this host's roles.
    reported: u64,
    /// The version that was reported to its proxy as all the group needs.
    reported_settled: u64,
    /// How many groups were in use at the bootstrap.
    bootstrap: Layout,
    /// How far the group is, and what it hands over, is due to be reported to this host's proxies.
    status_due: bool,
    /// What was reported of its need for the clock.
    reported_awaiting: Option<bool>,
    pages_due: bool,
    host: HostId,
    page_bytes: usize,
    stub: S,
    state: Assigned,
    /// What shards may still ask for, by space and first number.
    retained: Retained,
    notices: Vec<(NodeId, Bytes)>,
    out: StubOut,
    writing: VecDeque<Bytes>,
    /// The pieces that were installed of what is not complete.
    installing: Vec<u8>,
}

// Out of the derive: the buffer of stub calls is empty between calls.
impl Clone for StubOut {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<S: Stub> ProxyMachine<S> {
    /// The machine of `group`'s replica on `host`, before the first entry.
    pub fn new(group: Group, host: HostId, topology: Arc<Topology>, page_bytes: usize, stub: S) -> Self {
        Self {
            group,
            bootstrap: topology.layout.clone(),
            status_due: true,
            reported_awaiting: None,
            pages_due: true,
            topology,
            reported: 0,
            reported_settled: 0,
            host,
            page_bytes,
            stub,
            state: Assigned::default(),
            retained: Retained::default(),
            notices: Vec::new(),
            out: StubOut::default(),
            writing: VecDeque::new(),
            installing: Vec::new(),
        }
    }

    /// Its group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The numbers assigned, for invariants.
    pub fn view(&self) -> &View {
        &self.state.view
    }

    /// The service's part.
    pub fn stub(&self) -> &S {
        &self.stub
    }

    /// The group's clock.
    pub fn now(&self) -> GroupTime {
        self.state.now
    }

    /// The sequencer in force.
    pub fn sequencer(&self) -> u64 {
        self.state.sequencer
    }

    /// Whose the epoch of the sequencer in force is, for invariants.
    pub fn claim(&self) -> Option<&Claim> {
        self.state.claim.as_ref()
    }

    /// Bytes of operations retained for shards.
    pub fn retained_bytes(&self) -> usize {
        self.retained.bytes()
    }

    fn proxy(&self) -> Option<NodeId> {
        self.topology.proxy_on(self.group, self.host)
    }

    fn notify_proxy(&mut self, message: impl Into<ProxyIn>) {
        if let Some(proxy) = self.proxy() {
            self.notices.push((proxy, message.into().encoded().into()));
        }
    }
}

/// Applying entries.
impl<S: Stub> ProxyMachine<S> {
    fn execute(&mut self, entry: Entry) {
        match entry {
            Entry::Begin { ballot, leader } => self.begin(ballot, leader),
            Entry::Batch(batch) => self.assign(batch),
            Entry::Seal { epoch, claim } => self.seal(epoch, claim),
            Entry::Fill { epoch, holes } => self.fill(epoch, &holes),
            Entry::Clock { epoch, now } => {
                if epoch == self.state.epoch && now > self.state.now {
                    self.state.now = now;
                    self.clock(false);
                }
            }
            Entry::Collected { low_watermarks } => {
                for low_watermark in &low_watermarks {
                    self.state.view.collect(low_watermark);
                }
            }
            Entry::Durable { low_watermarks, version } => {
                // Counted among servers that have left, a low watermark would be one that too few reach.
                if version.unwrap_or(0) == self.members_version() {
                    self.forget_durable(&low_watermarks);
                }
            }
            Entry::Members(members) => {
                if members.version > self.members_version() && !members.hosts.is_empty() {
                    self.state.members = Some(members);
                }
            }
            Entry::Settled { version } => {
                // About members that have been replaced since, it says nothing any more.
                if version == self.members_version() {
                    self.state.settled = Some(version);
                }
            }
            Entry::Layout { layout, below, gsn } => self.lay_out(layout, &below, gsn),
            Entry::Page(page) => self.take_page(&page, self.state.now),
            Entry::Arrived { at, version } => self.forget_pages(at, version),
            Entry::Retire { version } => self.retire(version),
            Entry::Reshard { epoch, shard_map, order } => self.reshard(epoch, shard_map, order),
        }
    }

    fn begin(&mut self, ballot: Ballot, leader: NodeId) {
        if ballot < self.state.ballot {
            return;
        }
        // Said again where it is: a leader whose replica took a snapshot was not notified.
        if ballot > self.state.ballot {
            (self.state.ballot, self.state.epoch, self.state.index) = (ballot, self.state.epoch + 1, 0);
            self.clock(true);
        }
        let state = &self.state;
        let began = Began {
            epoch: state.epoch,
            ballot,
            leader,
            sequencer: state.sequencer,
            request: state.request,
            next: placed_below(&state.view, &self.topology),
            gsn: state.gsn,
            now: state.now,
            tags: state.tags.clone(),
            follow_ups: state.follow_ups.clone(),
            claim: state.claim.clone(),
            durable: Some(state.durable.clone()),
        };
        self.notify_proxy(began);
    }

    fn report_whether_it_awaits_time(&mut self) {
        let awaits = Some(self.stub.awaits_time());
        if let Some(awaits) = awaits.filter(|_| awaits != self.reported_awaiting) {
            self.reported_awaiting = Some(awaits);
            self.notify_proxy(AwaitsTime { awaits });
        }
    }

    fn clock(&mut self, new_leader: bool) {
        self.stub.on_clock(self.state.now, new_leader, &mut self.out);
        self.carry_out(None);
    }

    fn assign(&mut self, batch: AssignmentBatch) {
        let state = &self.state;
        let follows = batch.epoch == state.epoch && batch.index == state.index + 1;
        if !follows || (batch.sequencer != state.sequencer && !planted!(epoch_checked_at_arrival_only)) {
            return;
        }
        if !batch.rows.is_empty() && !self.assigns() {
            return;
        }
        let state = &mut self.state;
        state.index = batch.index;
        if batch.request > 0 {
            state.request = batch.request;
        }
        let AssignmentBatch { rows, cut, time, items, gsn, .. } = batch;
        let mut runs = Runs::default();
        if items.is_empty() {
            self.assign_no_ops(&rows, time, &mut runs);
        } else {
            self.assign_items(&rows, items, (gsn, time), &mut runs);
        }
        self.deliver(runs.finish(), cut.clone());
        let newer = |cut: &ConsistentCut| self.state.cut.as_ref().is_none_or(|known| known.gsn < cut.gsn);
        if let Some(cut) = cut.filter(newer) {
            self.state.cut = Some(cut);
        }
        let Assigned { epoch, index, sequencer, .. } = self.state;
        self.notify_proxy(Applied { epoch, index, sequencer });
    }

    fn assign_items(&mut self, rows: &[Range], items: Vec<Item>, from: (Gsn, u64), runs: &mut Runs) {
        for row in rows {
            kernel::invariant!(UNIQ, !self.state.view.intersects(row), "of {row:?} some is assigned twice");
            self.state.view.insert_range(row);
        }
        let (mut gsn, time) = from;
        let mut next: Vec<(Space, Number)> = rows.iter().map(|row| (row.space, row.first)).collect();
        for item in items {
            // A leader counts what it asks for by the same rule.
            let Some(numbers) = take_numbers(&mut next, &item.spaces) else { continue };
            if numbers.is_empty() {
                self.apply_item(item, None);
                continue;
            }
            self.state.gsn = self.state.gsn.max(gsn);
            let order = Order { numbers, gsn, time };
            let operation = self.apply_item(item, Some(&order));
            for placed in &order.numbers {
                let run = runs.at(placed, time);
                match &operation {
                    Some(operation) => run.push(&order.numbers, gsn, operation),
                    None => run.push_no_op(gsn),
                }
            }
            gsn = gsn.next();
        }
        for (row, (space, rest)) in rows.iter().zip(next) {
            let end = row.first.plus(row.count);
            kernel::invariant!(CONTIG, rest <= end, "operations got numbers below {rest} of {row:?}");
            for number in (rest.0..row.first.plus(row.count).0).map(Number) {
                runs.at(&Placed { space, number }, time).push_no_op(Gsn(0));
            }
        }
    }

    fn assign_no_ops(&mut self, rows: &[Range], time: u64, runs: &mut Runs) {
        for row in rows {
            for number in row.numbers() {
                let placed = Placed { space: row.space, number };
                if !self.state.view.contains(&placed) {
                    runs.at(&placed, time).push_no_op(Gsn(0));
                    self.state.view.insert(placed);
                }
            }
        }
    }

    fn seal(&mut self, epoch: u64, claim: Option<Claim>) {
        if epoch < self.state.sequencer {
            return;
        }
        if epoch > self.state.sequencer {
            (self.state.sequencer, self.state.request, self.state.claim) = (epoch, 0, claim);
            if let Some(arrangement) = &mut self.state.arrangement {
                (arrangement.sealed, arrangement.unsealed) = (arrangement.layout.version, false);
                self.status_due = true;
            }
        } else if planted!(second_claim_replaces_first) {
            self.state.claim = claim;
        }
        self.report_seal();
    }

    fn report_seal(&mut self) {
        let Assigned { epoch: leader, index, sequencer, gsn, .. } = self.state;
        let (view, claim) = (self.state.view.clone(), self.state.claim.clone());
        let (layout, handed) = (Some(self.layout().clone()), self.handed().cloned());
        self.notify_proxy(DidSeal { epoch: leader, index, sequencer, view, gsn, claim, layout, handed });
    }

    fn fill(&mut self, epoch: u64, holes: &[Range]) {
        if epoch != self.state.sequencer || !self.assigns() {
            return;
        }
        let mut runs = Runs::default();
        self.assign_no_ops(holes, 0, &mut runs);
        self.deliver(runs.finish(), None);
        self.notify_proxy(DidFill { sequencer: epoch });
    }

    fn members_version(&self) -> u64 {
        self.state.members.as_ref().map_or(0, |members| members.version)
    }

    /// Notifies this host's roles who the members are: when they change, and when an incarnation or a snapshot has begun.
    fn report_members(&mut self) {
        self.report_change();
        let settled = self.state.settled.unwrap_or(0);
        if settled > self.reported_settled {
            self.reported_settled = settled;
            self.notify_proxy(DidSettle { version: settled });
        }
    }

    fn report_change(&mut self) {
        let Some(members) = self.state.members.clone().filter(|members| members.version > self.reported)
        else {
            return;
        };
        self.reported = members.version;
        if members.version > self.topology.version {
            self.topology = Arc::new(self.topology.moved_to(&members));
        }
        let durable = self.state.durable.clone();
        self.notify_proxy(DidMove { members: members.clone(), durable });
        let servers = self.topology.servers_on(self.host).map(|(_, server)| server);
        let moved = ShardIn::from(shard::Moved { members: members.clone() }).encoded();
        self.notices.extend(servers.map(|server| (server, moved.clone().into())));
        if let Some(sequencer) = self.topology.sequencer_on(self.host) {
            self.notices.push((sequencer, SequencerIn::from(Moved { members }).encoded().into()));
        }
    }

    /// Keeps what is new, and hands it to the servers of this host; every one that is in use gets the consistent cut.
    fn deliver(&mut self, mut runs: Vec<Run>, cut: Option<ConsistentCut>) {
        runs.iter().for_each(|run| self.retained.insert(run.clone()));
        let in_use = |space| self.topology.layout.shard_map.spaces().any(|used| used == space);
        for (space, server) in self.topology.servers_on(self.host) {
            let mine: Vec<Run> = runs.extract_if(.., |run| run.space == space).collect();
            if !mine.is_empty() || cut.is_some() && in_use(space) {
                let bytes: usize = mine.iter().map(Run::size).sum();
                let deliver = Deliver { group: self.group, runs: mine, cut: cut.clone(), more: false };
                let mut notice = Vec::with_capacity(bytes + 256);
                ShardIn::from(deliver).encode(&mut notice);
                self.notices.push((server, notice.into()));
            }
        }
    }

    fn forget_durable(&mut self, low_watermarks: &[Placed]) {
        self.status_due |= self.is_retired();
        for low_watermark in low_watermarks {
            for (_, server) in
                self.topology.servers_on(self.host).filter(|(space, _)| *space != low_watermark.space)
            {
                let settled = ShardIn::from(Settled { below: low_watermark.clone() });
                self.notices.push((server, settled.encoded().into()));
            }
            match self.state.durable.iter_mut().find(|known| known.space == low_watermark.space) {
                Some(known) => known.number = known.number.max(low_watermark.number),
                None => self.state.durable.push(low_watermark.clone()),
            }
            self.retained.forget_below(low_watermark);
        }
    }

    fn answer_lacking(&self, from: &Placed) -> ShardIn {
        let durable = self.state.durable.iter().find(|known| known.space == from.space);
        if let Some(durable) = durable.filter(|durable| from.number < durable.number) {
            return ShardBehind { durable: durable.number }.into();
        }
        let (runs, more) = self.retained.page_from(from, self.page_bytes);
        let cut = self.state.cut.clone().filter(|_| !more);
        Deliver { group: self.group, runs, cut, more }.into()
    }
}

/// The number after the last one assigned, in each space.
fn placed_below(view: &View, topology: &Topology) -> Vec<Placed> {
    topology.spaces().map(|space| Placed { space, number: view.end(space) }).collect()
}

/// The next number of each of the spaces; none if the rows have no such space.
fn take_numbers(next: &mut [(Space, Number)], spaces: &[Space]) -> Option<MultiNumber> {
    let taken = spaces.iter().map(|&space| {
        let (_, number) = next.iter_mut().find(|(known, _)| *known == space)?;
        let placed = Placed { space, number: *number };
        *number = number.next();
        Some(placed)
    });
    taken.collect()
}

impl<S: Stub> StateMachine for ProxyMachine<S> {
    fn apply(&mut self, command: &[u8], _response: &mut Vec<u8>) {
        self.apply_entry(&Bytes::copy_from_slice(command));
    }

    fn apply_entry(&mut self, entry: &Bytes) {
        // Our own leaders wrote it; one of a newer version may have written what this one does not know.
        if let Ok(entry) = Entry::decoded(entry) {
            self.execute(entry);
            self.report_members();
        }
    }

    fn query(&self, query: &[u8], response: &mut Vec<u8>) {
        match Question::read(query) {
            Ok(Question::Reach) => {
                let mut numbers = placed_below(&self.state.view, &self.topology);
                numbers.iter_mut().for_each(|placed| placed.number = Number(placed.number.0 - 1));
                Reached { numbers, layout: Some(self.layout().clone()) }.encode(response);
            }
            Ok(Question::View) => ProxyIn::from(Viewed { view: self.state.view.clone() }).encode(response),
            Ok(Question::Lacking { from }) => self.answer_lacking(&from).encode(response),
            Err(_) => {}
        }
    }

    fn take_notices(&mut self, notices: &mut Vec<(NodeId, Bytes)>) {
        // A log that is not in use has no next entry to report it with.
        self.report_members();
        self.report_status();
        self.report_whether_it_awaits_time();
        notices.append(&mut self.notices);
    }

    fn begin_snapshot(&mut self) {
        self.writing = self.own_chunks();
        self.writing.extend(self.retained.chunks(u64::MAX, self.page_bytes));
    }

    fn snapshot_step(&mut self, _budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        if let Some(page) = self.writing.pop_front() {
            chunk.extend_from_slice(&page);
        }
        if self.writing.is_empty() { SnapshotStep::Done } else { SnapshotStep::More }
    }

    fn capture(&mut self) -> Option<Capture> {
        Some(Capture { number: self.retained.mark(), chunks: self.own_chunks() })
    }

    fn needed_of(&self, capture: u64) -> usize {
        self.retained.bytes_before(capture)
    }

    fn completion(&self, capture: u64) -> VecDeque<Bytes> {
        self.retained.chunks(capture, self.page_bytes)
    }

    fn reset(&mut self) {
        self.state = Assigned::default();
        (self.status_due, self.pages_due) = (true, true);
        self.retained.clear();
        self.notices.clear();
        self.writing.clear();
        self.installing.clear();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.install_chunk(chunk)
    }

    fn recounts(&self) -> Vec<Recount> {
        self.retained.recounts().to_vec()
    }

    fn digest(&self) -> u64 {
        let mut bytes = self.state.encoded();
        self.stub.digest().encode(&mut bytes);
        parts::digest(&bytes)
    }
}
