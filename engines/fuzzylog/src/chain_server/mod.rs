//! A chain server: has the row of a partition, and applies it as far as all servers of the chain have it on their disks.
//!
//! `admission` is what a head takes, `strict` how it dates that in the strict order, `row` how commands go down the chain and words of disks come back, `reads` are syncs and plays, `epochs` how it is sealed and
//! serves, `regions` how other regions' nodes come and this one's go, `moving` how colours leave and come, `copy` how one that joins gets the row, `snapshot` what replaces
//! the row's beginning, `segments` what that names of the disk, `retained` what one that joins lacks meanwhile, `stuck` how a head notices what is not going on.
//!
//! Invariant: what a server has applied is on the disks of all servers of its chain, or leaves it when it is on its own, and it is the
//! last; while it is sealed for an epoch that it does not serve its row stays as it is; in an epoch each server's row begins with the
//! row of the one behind it.

mod admission;
mod copy;
mod epochs;
mod idle_clients;
mod moving;
mod reads;
mod record;
mod regions;
mod retained;
mod row;
mod segments;
mod snapshot;
mod stored;
mod strict;
mod stuck;

pub use crate::messages::chain_server::*;
pub use record::{
    Applied, ChainRecord, Copies, CutBack, Forgets, JournalName, Ordered, SealedFor, Serves, SnapshotPart,
};
pub use regions::{OtherRegion, RegionPlan, SourceSeen};
pub(crate) use row::{APPENDS_MAX, append_bytes};
pub(crate) use strict::latest;

use crate::FuzzyLog;
use crate::map::ColourMap;
use crate::parameters::FuzzyParameters;
use crate::partition::PartitionState;
use crate::partition::command::RowEntry;
use crate::projection::ChainProjection;
use crate::terms::{ChainEpoch, ChainJournal, ColourPlacement, PartitionId, RowIndex};
use admission::Unconfirmed;
use copy::Copy;
use idle_clients::PassedRow;
use kernel::{AwaitedTimers, BlobNotice, Cx, Instant, NodeId, Position, Recount, Role, Statement};
use moving::Mover;
use reads::WaitingSync;
use regions::Replicator;
use retained::Retained;
use segments::Blobs;
use snapshot::Saved;
use std::collections::VecDeque;
use std::sync::Arc;
use stored::StoredRow;
use stuck::Watched;

kernel::timers! {
    /// The chain server's timers.
    pub enum ChainTimer {
        /// Look after what is late.
        Tick,
        /// Write the next chunk of a snapshot.
        Snapshot,
    }
}

/// What a server knows of its neighbours in the epoch that it serves.
#[derive(Clone, Debug, Default)]
struct Links {
    /// All servers before it have the row on their disks up to here.
    above: RowIndex,
    /// Something came from the one before.
    heard: bool,
    /// All servers have the row on their disks up to here, as was said in this epoch.
    stable: RowIndex,
    /// All servers before it take several appends in one command.
    takes_many: bool,
    /// What came of commands from here on is answered.
    answers_from: RowIndex,
    /// The one behind has the row up to here; none before it says so.
    received: Option<RowIndex>,
    /// What was sent to it goes up to here.
    sent: RowIndex,
    /// What it was said to be durable goes up to here.
    said: Option<RowIndex>,
    /// When something went on last.
    moved: Instant,
    /// The one before is to learn how long the row is.
    owes_length: bool,
    /// The one behind is to learn what is durable.
    owes_durable: bool,
    /// The others are to learn what is stable.
    owes_stable: bool,
    /// Regions that all servers behind were started without.
    without: Vec<LeavingRegion>,
}

/// How long the row is that others say to have, in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// The epoch.
    pub epoch: ChainEpoch,
    /// What is durable at all servers before it, by word of the nearest.
    pub durable: Option<(NodeId, RowIndex)>,
    /// What the one behind it has.
    pub received: Option<(NodeId, RowIndex)>,
    /// What is durable everywhere, by word of the tail.
    pub stable: Option<(NodeId, RowIndex)>,
}

/// A server of one partition.
#[derive(Clone, Debug)]
pub struct ChainServer {
    partition: PartitionId,
    placement: ColourPlacement,
    parameters: FuzzyParameters,
    /// The client role beside it, which takes over what is stuck.
    client: NodeId,
    journal: Option<ChainJournal>,
    /// Drawn at each start.
    run: u64,
    /// It serves no epoch below.
    sealed: ChainEpoch,
    /// The epoch for which this run has said that it is sealed. An earlier run may have served that one, and lost what it wrote.
    sealed_here: ChainEpoch,
    /// The last epoch that it has begun to serve, in any run.
    opened: ChainEpoch,
    /// It serves that one, in this run.
    serving: bool,
    /// The last projection that this run was notified of.
    projection: Option<ChainProjection>,
    row: StoredRow,
    saved: Saved,
    blobs: Blobs,
    retained: Retained,
    state: PartitionState,
    links: Links,
    syncs: VecDeque<WaitingSync>,
    copy: Option<Copy>,
    /// The epoch of the row of which it has a copy, whether or not it is still being made.
    copied: Option<ChainEpoch>,
    unconfirmed: Unconfirmed,
    watched: Watched,
    passed: PassedRow,
    replicator: Option<Replicator>,
    mover: Mover,
    /// It is of a partition that may be added, and was asked nothing yet.
    rests: bool,
    /// Bytes of commands that are not applied.
    window: usize,
    /// What was applied when the last burst ended.
    was_applied: RowIndex,
}

impl ChainServer {
    /// A server that waits for the order to serve.
    pub fn new(
        partition: PartitionId,
        placement: ColourPlacement,
        parameters: FuzzyParameters,
        client: NodeId,
    ) -> Self {
        Self {
            partition,
            placement,
            client,
            journal: None,
            run: 0,
            sealed: ChainEpoch(1),
            sealed_here: ChainEpoch(0),
            opened: ChainEpoch(0),
            serving: false,
            projection: None,
            row: StoredRow::default(),
            saved: Saved::default(),
            blobs: Blobs::default(),
            retained: Retained::default(),
            state: PartitionState::new(partition, placement, parameters.order),
            parameters,
            links: Links::default(),
            syncs: VecDeque::new(),
            copy: None,
            copied: None,
            unconfirmed: Unconfirmed::default(),
            watched: Watched::default(),
            passed: PassedRow::default(),
            replicator: None,
            mover: Mover::new(ColourMap::new(placement)),
            rests: false,
            window: 0,
            was_applied: RowIndex(0),
        }
    }

    /// The same server, of a partition that may be added: it has no journal and looks after nothing before somebody asks it something.
    #[must_use]
    pub fn resting(self) -> Self {
        Self { rests: true, ..self }
    }

    /// The same server, of one region among others.
    #[must_use]
    pub fn in_regions(mut self, plan: Option<Arc<RegionPlan>>) -> Self {
        self.replicator = plan.map(|plan| Replicator::new(plan, self.placement, self.partition));
        self
    }

    /// Its partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// What it has applied.
    pub fn state(&self) -> &PartitionState {
        &self.state
    }

    /// Its journal's name; none before it has started.
    pub fn journal(&self) -> Option<ChainJournal> {
        self.journal
    }

    /// The epoch that it serves; none while it serves none.
    pub fn serves(&self) -> Option<ChainEpoch> {
        (self.serving && self.opened == self.sealed).then_some(self.opened)
    }

    /// The last epoch that it has begun to serve, in any run.
    pub fn opened(&self) -> ChainEpoch {
        self.opened
    }

    /// It serves no epoch below.
    pub fn sealed(&self) -> ChainEpoch {
        self.sealed
    }

    /// Bytes of the commands that it has in memory.
    pub fn row_bytes(&self) -> usize {
        self.row.bytes()
    }

    /// Bytes of commands that it retains at most, beside its own, for servers that take its snapshot.
    pub fn retained_bytes_max(&self) -> usize {
        self.retained.bytes_max()
    }

    /// How often a server that joined lacked more than the snapshot that it took, and began again.
    pub fn outrun(&self) -> u64 {
        self.retained.given_up()
    }

    /// The length of its row.
    pub fn length(&self) -> RowIndex {
        self.row.length()
    }

    /// A command of its row, if it is in memory.
    pub fn entry(&self, index: RowIndex) -> Option<&RowEntry> {
        self.row.get(index)
    }

    /// The first command that it has in memory.
    pub fn begins_at(&self) -> RowIndex {
        self.row.base()
    }

    /// True while it copies a chain that it is not in.
    pub fn is_copying(&self) -> bool {
        self.copy.is_some()
    }

    /// The projection that it serves by; none while it serves none.
    fn serving_projection(&self) -> Option<&ChainProjection> {
        let epoch = self.serves()?;
        self.projection.as_ref().filter(|projection| projection.epoch == epoch)
    }

    /// How long the row is that it takes for durable at all servers before it, and the nearest of them; none at a head.
    pub fn durable_before(&self, me: NodeId) -> Option<(NodeId, RowIndex)> {
        let before = self.serving_projection()?.before(me)?;
        Some((before, self.links.above))
    }

    /// What it counts of what the others of its chain have said in its epoch. For invariants.
    pub fn counts(&self, me: NodeId) -> Option<Counts> {
        let projection = self.serving_projection()?;
        Some(Counts {
            epoch: projection.epoch,
            durable: projection.before(me).map(|before| (before, self.links.above)),
            received: projection.behind(me).zip(self.links.received),
            stable: projection.tail().filter(|&tail| tail != me).map(|tail| (tail, self.links.stable)),
        })
    }

    /// True if it serves as its chain's head: it orders, and copies other regions.
    pub fn is_serving_head(&self) -> bool {
        let head = self.serving_projection().and_then(ChainProjection::head);
        head.is_some_and(|head| self.serves().is_some() && head.host() == self.client.host())
    }

    fn is_head(&self, me: NodeId) -> bool {
        self.serving_projection().is_some_and(|projection| projection.head() == Some(me))
    }

    fn is_tail(&self, me: NodeId) -> bool {
        self.serving_projection().is_some_and(|projection| projection.tail() == Some(me))
    }

    /// The journal was read back.
    fn start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(ChainTimer::Tick, self.parameters.tick);
        if !self.start_segments(cx) {
            self.begin(cx);
        }
    }

    /// Everything was read back.
    fn begin(&mut self, cx: &mut Cx<'_, Self>) {
        if self.journal.is_none() {
            let journal = ChainJournal(cx.rng().bits());
            self.journal = Some(journal);
            cx.append(&JournalName { journal }.into());
        }
        self.end_restoring();
        self.window = self.row.from(self.state.applied()).map(row::entry_bytes).sum();
        self.was_applied = self.state.applied();
    }

    fn tick(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_loading() {
            return;
        }
        self.look_after_row(cx);
        self.look_after_snapshots(cx);
        self.look_after_copy(cx);
        self.look_after_stuck(cx);
        self.look_after_clients(cx);
        self.look_after_regions(cx);
        self.go_on_moving(cx);
        self.write_snapshot(cx);
    }
}

impl Role for ChainServer {
    type Family = FuzzyLog;
    type In = ChainServerIn;
    type Timer = ChainTimer;
    type Record = ChainRecord;

    fn restore(&mut self, position: Position, record: ChainRecord) {
        match record {
            // It has been applied: an earlier version copied it once more behind a row that it had cut back too far.
            ChainRecord::Ordered(record) if record.index < self.state.applied() => {}
            ChainRecord::Ordered(record) => {
                self.saved.has_grown(row::entry_bytes(&record.entry));
                self.row.restore(position, record.index, record.entry);
            }
            ChainRecord::SealedFor(record) => self.sealed = self.sealed.max(record.epoch),
            ChainRecord::Serves(record) => {
                self.opened = self.opened.max(record.epoch);
                self.sealed = self.sealed.max(record.epoch);
                self.copied.take_if(|copied| *copied < record.epoch);
            }
            ChainRecord::JournalName(record) => self.journal = Some(record.journal),
            ChainRecord::CutBack(record) => self.restore_cut(record.length),
            ChainRecord::SnapshotPart(record) => self.restore_part(record.part),
            ChainRecord::Applied(record) => self.restore_applied(record.through),
            ChainRecord::Copies(record) => self.copied = Some(record.epoch),
            ChainRecord::Forgets(_) => self.forget_everything(),
        }
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.run = cx.rng().bits();
        self.rests &= self.journal.is_none();
        if !self.rests {
            self.start(cx);
        }
    }

    fn on_blob(&mut self, notice: BlobNotice, cx: &mut Cx<'_, Self>) {
        self.on_blob_notice(notice, cx);
    }

    fn on_message(&mut self, from: NodeId, message: ChainServerIn, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.rests) {
            self.start(cx);
        }
        if self.is_loading() {
            return cx.mark("chain.was_asked_while_it_loads");
        }
        match message {
            ChainServerIn::Client(FromClient::Submit(message)) => self.on_submit(from, message, cx),
            ChainServerIn::Client(FromClient::Sync(message)) => self.on_sync(from, &message, cx),
            ChainServerIn::Client(FromClient::SyncThrough(message)) => {
                self.on_sync_through(from, &message, cx);
            }
            ChainServerIn::Client(FromClient::Play(message)) => self.on_play(from, &message, cx),
            ChainServerIn::Client(FromClient::CountLogs(message)) => self.on_count_logs(from, &message, cx),
            ChainServerIn::Client(FromClient::FindLogs(message)) => self.on_find_logs(from, &message, cx),
            ChainServerIn::Client(FromClient::Scan(message)) => self.on_scan(from, &message, cx),
            ChainServerIn::Server(FromServer::Forward(message)) => self.on_forward(from, message, cx),
            ChainServerIn::Server(FromServer::DurableThrough(message)) => {
                self.on_durable_through(from, &message, cx);
            }
            ChainServerIn::Server(FromServer::Received(message)) => self.on_received(from, &message, cx),
            ChainServerIn::Server(FromServer::StableThrough(message)) => {
                self.on_stable_through(from, &message, cx);
            }
            ChainServerIn::Server(FromServer::PullRow(message)) => self.on_pull(from, &message, cx),
            ChainServerIn::Server(FromServer::Pulled(message)) => self.on_pulled(from, message, cx),
            ChainServerIn::Server(FromServer::PullState(message)) => {
                self.on_pull_snapshot(from, &message, cx);
            }
            ChainServerIn::Server(FromServer::SnapshotPage(message)) => {
                self.on_snapshot_page(from, message, cx);
            }
            ChainServerIn::Server(FromServer::PullColours(message)) => {
                self.on_pull_colours(from, &message, cx)
            }
            ChainServerIn::Server(FromServer::ColoursPulled(message)) => self.on_colours_pulled(message, cx),
            ChainServerIn::Region(FromRegion::PullNodes(message)) => self.on_pull_nodes(from, &message, cx),
            ChainServerIn::Region(FromRegion::NodesPulled(message)) => {
                self.on_nodes_pulled(from, message, cx);
            }
            ChainServerIn::Director(FromDirector::Ping(Ping {})) => self.report(from, cx),
            ChainServerIn::Director(FromDirector::SealChain(message)) => self.on_seal(from, &message, cx),
            ChainServerIn::Director(FromDirector::Project(message)) => self.on_project(message, cx),
            ChainServerIn::Director(FromDirector::PlaceColours(message)) => self.on_place(message, cx),
        }
    }

    fn on_timer(&mut self, timer: ChainTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ChainTimer::Tick => {
                self.tick(cx);
                cx.set_timer(ChainTimer::Tick, self.parameters.tick);
            }
            ChainTimer::Snapshot if self.is_loading() => {}
            ChainTimer::Snapshot => self.write_snapshot(cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(ChainTimer::Tick, !self.rests)
    }

    fn statement(&self) -> Statement {
        if self.is_loading() {
            // Nothing is counted before everything is read back.
            return Statement::default();
        }
        let not_applied = || self.row.from(self.state.applied());
        let mut recounts = self.state.recounts();
        recounts.push(Recount::of(
            "bytes of its window",
            self.window,
            not_applied().map(row::entry_bytes).sum(),
        ));
        // What another chain has gone on without is dropped, or replaced, when it joins.
        let mut unfinished = Vec::new();
        if self.serves().is_some() {
            let (unconfirmed, found) = self.unconfirmed.recount(not_applied());
            recounts.push(Recount::of("calls on their way", unconfirmed, found));
            unfinished = vec![
                ("appends to several partitions", self.state.unfinished_count()),
                ("appends that wait", self.state.queued()),
                ("calls on their way", unconfirmed),
            ];
        }
        Statement { recounts, unfinished, ..Statement::default() }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_loading() {
            return;
        }
        self.pass_on(cx);
        self.pass_on_to_regions(cx);
        self.go_on_moving(cx);
        self.drop_commands(cx);
    }
}
