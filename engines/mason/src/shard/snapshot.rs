//! Snapshots of a shard: written to the journal so that proxies may forget what is in them, and handed to servers that lag.
//!
//! A snapshot is a row of chunks: a head, pages of inputs that others may still ask for, an empty page, then the service's own. No
//! chunk grows with what a shard holds, for each becomes one record of the journal, which has a bound; and none costs more than
//! a burst may last.

use super::blobs::blobs_of;
use super::inputs::{Part, Sent};
use super::{PullShardSnapshot, ShardBehind, ShardServer, ShardSnapshotChunk, ShardTimer};
use crate::messages::client::{GatewayNotice, Skipped};
use crate::messages::proxy;
use crate::order::{Gsn, Number, Placed, Space};
use crate::service::Shard;
use crate::topology::ShardMap;
use kernel::{
    BlobId, Bytes, Cx, Decode, DecodeError, Encode, Instant, NodeId, PageBudget, Position, invariant,
};
use parts::{Look, Page, ReadBack, Restored, Served, SnapshotRecord, TakenPage, WantedPage, chunk_of};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const REPORT_EVERY: Duration = Duration::from_secs(1);
/// What has not changed is reported again after so many times as long: leaders come and go.
const REPORT_AGAIN_TIMES: u32 = 4;

/// When the next snapshot is due, and what was said of the last.
#[derive(Debug, Default)]
pub(super) struct Due {
    reported_at: Option<Instant>,
    reported_below: Option<Number>,
    executed_bytes: u64,
    /// How many of a peer's it has taken.
    skips: u64,
    /// A snapshot of a peer that turned out not to decode is half installed: nothing may be executed on it.
    half: bool,
}

/// Produces the chunks of the snapshot that the service has begun.
#[derive(Debug)]
pub(super) struct Writer {
    below: Number,
    stage: Writing,
    /// The blobs that it names.
    named: BTreeSet<BlobId>,
}

/// What comes next.
#[derive(Debug)]
enum Writing {
    Head(Bytes),
    /// Inputs of operations from this number and this part of its on.
    Sent(Number, usize),
    Service,
}

kernel::record! {
    struct Head {
        below: Number,
        executed: Gsn,
        covered: Gsn,
        /// None for the bootstrap's.
        shard_map: Option<ShardMap>,
    }
}

kernel::record! {
    struct SentAt {
        number: Number,
        others: Vec<Placed>,
        inputs: Bytes,
        /// For whom; none: for all.
        to: Option<Space>,
        /// How many parts there are for this number.
        parts: Option<u32>,
    }
}

/// A snapshot that is being installed, chunk by chunk: what is not the service's waits for the last one.
#[derive(Debug, Default)]
pub(super) struct Installation {
    head: Option<Head>,
    sent: Vec<SentAt>,
    /// The service's chunks follow.
    has_all_sent: bool,
    /// Why it cannot be installed.
    fault: Option<DecodeError>,
}

/// A page of inputs: `bytes`, or one part, of those of numbers from `from` on and below `below`; and where the next page begins.
///
/// What is settled while pages are written is in none of them, and nobody asks for it any more.
fn page_of(
    sent: &BTreeMap<Number, Sent>,
    from: (Number, usize),
    below: Number,
    bytes: usize,
) -> (Bytes, (Number, usize)) {
    let (mut page, mut next, mut budget) = (Vec::new(), from, PageBudget::new(bytes));
    for (&number, Sent { others, parts }) in sent.range(from.0..below) {
        let skipped = if number == from.0 { from.1 } else { 0 };
        for (index, Part { to, bytes: inputs }) in parts.iter().enumerate().skip(skipped) {
            if !budget.admits(SENT_HEAD_BYTES + others.len() * PLACED_BYTES + inputs.len()) {
                return (page.encoded().into(), next);
            }
            let (others, inputs) = (others.clone(), inputs.clone());
            page.push(SentAt { number, others, inputs, to: *to, parts: Some(parts.len() as u32) });
            next = (number, index + 1);
        }
    }
    (page.encoded().into(), next)
}

/// What a part's row adds to its bytes, but for the numbers of the others.
const SENT_HEAD_BYTES: usize = 32;
/// A number in a space, and the space.
const PLACED_BYTES: usize = 10;

/// What `page_of` has written, but operations that were settled before all of their parts were.
fn sent_of(rows: Vec<SentAt>) -> BTreeMap<Number, Sent> {
    let mut sent: BTreeMap<Number, (Sent, usize)> = BTreeMap::new();
    for SentAt { number, others, inputs, to, parts } in rows {
        let of = parts.unwrap_or(1) as usize;
        let (sent, _) = sent.entry(number).or_insert((Sent { others, parts: Vec::new() }, of));
        sent.parts.push(Part { to, bytes: inputs });
    }
    sent.into_iter()
        .filter(|(_, (sent, of))| sent.parts.len() == *of)
        .map(|(at, (sent, _))| (at, sent))
        .collect()
}

impl Writer {
    /// The next chunk, and whether it is the last. The operation at hand may have been announced already; it is announced anew when it
    /// is executed.
    fn next<S: Shard>(
        &mut self,
        service: &mut S,
        sent: &BTreeMap<Number, Sent>,
        chunk_bytes: usize,
    ) -> (Bytes, bool) {
        match &self.stage {
            Writing::Head(head) => {
                let head = head.clone();
                self.stage = Writing::Sent(Number(0), 0);
                (head, false)
            }
            &Writing::Sent(from, part) => {
                let (page, next) = page_of(sent, (from, part), self.below, chunk_bytes);
                let done = next == (from, part);
                self.stage = if done { Writing::Service } else { Writing::Sent(next.0, next.1) };
                (page, false)
            }
            Writing::Service => chunk_of(chunk_bytes, |budget, chunk| service.snapshot_step(budget, chunk)),
        }
    }
}

impl Due {
    pub(super) fn skips(&self) -> u64 {
        self.skips
    }

    /// The next snapshot is due.
    pub(super) fn hurry(&mut self) {
        self.executed_bytes = u64::MAX / 2;
    }

    pub(super) fn count_executed(&mut self, bytes: usize) {
        self.executed_bytes += bytes as u64;
    }
}

impl<S: Shard> ShardServer<S> {
    pub(super) fn is_installing_half(&self) -> bool {
        self.due.half
    }

    fn begin_writer(&mut self) -> Writer {
        self.service.begin_snapshot();
        let shard_map = Some(self.shard_map().clone());
        let head = Head { below: self.next, executed: self.executed, covered: self.covered, shard_map };
        let named = blobs_of(&self.service).iter().map(|blob| blob.id).collect();
        Writer { below: self.next, stage: Writing::Head(head.encoded().into()), named }
    }

    pub(super) fn step_snapshot(&mut self, cx: &mut Cx<'_, Self>) {
        let share = self.snapshots.bytes() / self.parameters.snapshots_per_size.max(1);
        let is_due = self.due.executed_bytes >= self.parameters.snapshot_every_bytes.max(share);
        if self.snapshots.is_idle()
            && is_due
            && !self.due.half
            && (self.has_all_blobs() || kernel::planted!(snapshot_before_blobs_fetched))
        {
            self.due.executed_bytes = 0;
            let writer = self.begin_writer();
            self.snapshots.begin(writer.below, writer, cx);
            if kernel::planted!(shard_snapshot_durable_when_begun) {
                self.snapshots.set_durable(self.next);
            }
        }
        let (service, sent) = (&mut self.service, self.inputs.sent());
        let next = |writer: &mut Writer| writer.next(service, sent, self.parameters.snapshot_chunk_bytes);
        let Some(written) = self.snapshots.step(ShardTimer::Snapshot, cx, next) else { return };
        cx.trim(written.begin);
        self.drop_blobs_but(written.writer.named, cx);
        cx.mark("shard.wrote_a_snapshot");
        self.due.reported_at = None;
    }

    /// Reports to those who keep things for this server how far it is durable.
    pub(super) fn report_durable(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let (below, every) = (self.snapshots.durable_below(), REPORT_EVERY);
        let every = if self.due.reported_below == Some(below) { REPORT_AGAIN_TIMES * every } else { every };
        let reported = self.due.reported_at.is_some_and(|at| now.since(at) < every);
        if reported || self.snapshots.durable_below() <= Number(1) {
            return;
        }
        (self.due.reported_at, self.due.reported_below) = (Some(now), Some(below));
        let (durable, next) = (self.snapshots.durable_below(), self.next);
        invariant!(DUR, durable <= next, "below {durable} is durable, and {next} is not executed");
        let below = Placed { space: self.space, number: self.snapshots.durable_below() };
        for group in self.topology.groups() {
            let proxies = self.topology.proxies(group).iter().copied();
            cx.repeat_durable(proxies, proxy::ShardDurable { below: below.clone() });
        }
    }

    pub(super) fn restore_snapshot(&mut self, position: Position, record: SnapshotRecord<Number>) {
        match self.snapshots.restore_by_chunks(position, record) {
            ReadBack::Nothing => {}
            ReadBack::Chunk(chunk) => {
                let mut installation = std::mem::take(&mut self.restoring);
                self.install_chunk(&mut installation, &chunk);
                self.restoring = installation;
            }
            ReadBack::Whole(Restored { below, chunks }) => {
                let begun = std::mem::take(&mut self.restoring);
                let installed = self.install(begun, chunks);
                invariant!(
                    DUR,
                    installed == Ok(below),
                    "own snapshot below {below} reads back as {installed:?}"
                );
                self.snapshots.set_durable(below);
            }
        }
    }

    /// Replaces the state by a snapshot, of which some chunks may have been installed already. Each is freed when it is installed, or the
    /// state would be in memory twice.
    fn install(&mut self, mut installation: Installation, chunks: Vec<Bytes>) -> Result<Number, DecodeError> {
        for chunk in chunks {
            self.install_chunk(&mut installation, &chunk);
        }
        let Installation { head, sent, has_all_sent, fault } = installation;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let Head { below, executed, covered, .. } =
            head.filter(|_| has_all_sent).ok_or(DecodeError::Truncated)?;
        let sent = if kernel::planted!(inputs_not_in_snapshot) { Vec::new() } else { sent };
        self.inputs.begin_at(below, sent_of(sent));
        self.next = below;
        self.executed = if kernel::planted!(last_gsn_not_in_snapshot) { Gsn(0) } else { executed };
        self.covered = self.covered.max(covered);
        self.waiting = self.waiting.split_off(&below);
        self.due.half = false;
        Ok(below)
    }

    /// Takes the next chunk, unless one before it was not what it must be.
    fn install_chunk(&mut self, installation: &mut Installation, chunk: &Bytes) {
        if installation.fault.is_none() {
            installation.fault = self.take_chunk(installation, chunk).err();
        }
    }

    fn take_chunk(&mut self, installation: &mut Installation, chunk: &Bytes) -> Result<(), DecodeError> {
        if installation.head.is_none() {
            installation.head = Some(Head::decoded(chunk)?);
            return Ok(());
        }
        if installation.has_all_sent {
            return self.service.install(chunk);
        }
        let page = Vec::<SentAt>::decoded(chunk)?;
        if page.is_empty() {
            installation.has_all_sent = true;
            self.service.reset();
            if let Some(shard_map) = installation.head.as_mut().and_then(|head| head.shard_map.take()) {
                self.restore_shard_map(shard_map);
            }
        }
        installation.sent.extend(page);
        Ok(())
    }
}

/// Handing snapshots over.
impl<S: Shard> ShardServer<S> {
    pub(super) fn on_behind(&mut self, message: ShardBehind, cx: &mut Cx<'_, Self>) {
        if message.durable <= self.next && !self.due.half {
            return;
        }
        self.begin_transfer(cx);
    }

    fn begin_transfer(&mut self, cx: &mut Cx<'_, Self>) {
        if self.snapshots.is_taking() {
            return;
        }
        let Some(peer) = self.any_peer(cx) else { return };
        Self::pull(self.snapshots.take_from(peer, cx), cx);
    }

    fn pull(WantedPage { peer, transfer, index }: WantedPage, cx: &mut Cx<'_, Self>) {
        cx.send(peer, PullShardSnapshot { transfer, index });
    }

    pub(super) fn retry_transfer(&mut self, cx: &mut Cx<'_, Self>) {
        self.snapshots.drop_abandoned(cx.now());
        if self.due.half && !self.snapshots.is_taking() {
            return self.begin_transfer(cx);
        }
        match self.snapshots.look(cx.now()) {
            Look::Ask(wanted) => Self::pull(wanted, cx),
            Look::Fine | Look::GivenUp => {}
        }
    }

    pub(super) fn on_pull_snapshot(
        &mut self,
        from: NodeId,
        message: PullShardSnapshot,
        cx: &mut Cx<'_, Self>,
    ) {
        let PullShardSnapshot { transfer, index } = message;
        let (wanted, now) = ((from, transfer, index), cx.now());
        let begun = (index == 0 && self.snapshots.is_idle() && !self.due.half).then(|| self.begin_writer());
        let (service, sent) = (&mut self.service, self.inputs.sent());
        let mut next = |writer: &mut Writer| writer.next(service, sent, self.parameters.snapshot_chunk_bytes);
        if let Some(writer) = begun {
            self.snapshots.serve(wanted, (writer.below, writer), now, &mut next);
        }
        if let Served::Chunk { below, bytes: chunk, last } = self.snapshots.on_wanted(wanted, now, next) {
            cx.send(from, ShardSnapshotChunk { transfer, below, index, chunk, last });
        }
    }

    pub(super) fn on_snapshot_chunk(
        &mut self,
        from: NodeId,
        message: ShardSnapshotChunk,
        cx: &mut Cx<'_, Self>,
    ) {
        let ShardSnapshotChunk { transfer, below, index, chunk, last } = message;
        let page = Page { transfer, version: below, index, bytes: chunk, last };
        let chunks = match self.snapshots.on_chunk(from, page, cx.now()) {
            TakenPage::Stale | TakenPage::OfAnother => return,
            TakenPage::Next(wanted) => return Self::pull(wanted, cx),
            TakenPage::Whole(wanted, chunks) => {
                Self::pull(wanted, cx);
                chunks
            }
        };
        if below <= self.next && !self.due.half {
            return;
        }
        self.snapshots.drop_job();
        self.due.half = true;
        let shard_map = self.shard_map().clone();
        match self.install(Installation::default(), chunks) {
            Ok(_) => {
                cx.mark("shard.took_a_snapshot_from_a_peer");
                self.due.skips += 1;
                if kernel::planted!(peer_snapshot_called_durable) {
                    self.snapshots.set_durable(self.next);
                }
                self.skip_reshard(&shard_map, cx);
                self.service.installed(&mut self.out);
                for (reader, body) in self.out.notices.drain(..) {
                    cx.send(reader, GatewayNotice { space: self.space, gsn: self.executed, body });
                }
                for &observer in &self.observers {
                    cx.send(observer, Skipped { space: self.space });
                }
                self.due.hurry();
                self.look_for_missing_blobs();
                self.execute(cx);
            }
            Err(_) => cx.reject("snapshot that does not decode"),
        }
    }
}
