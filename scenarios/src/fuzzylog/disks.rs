//! What a crash would leave of each chain server, held against what it has said.

use super::Node;
use ::fuzzylog::chain_server::{ChainRecord, ChainServerIn, Counts, FromServer, Ordered};
use ::fuzzylog::director::DirectorIn;
use ::fuzzylog::messages::client::FuzzyClientIn;
use ::fuzzylog::partition::command::RowEntry;
use ::fuzzylog::partition::snapshot::SnapshotItem;
use ::fuzzylog::{ChainEpoch, ChainServer, FuzzyMessage, PartitionState, RowIndex};
use kernel::{BlobId, Bytes, Decode, HostId, HostSlot, NodeId, Position, Reader, Role, invariant};
use parts::SnapshotRecord;
use sim::{Cluster, Fact};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One server's part of its host's disk.
#[derive(Default)]
struct Disk {
    /// What is durable and not trimmed.
    records: VecDeque<(Position, Bytes)>,
    bytes: usize,
    /// The snapshot that is being written is of all commands below.
    begun: Option<RowIndex>,
    /// How long the row is that a restart finds.
    length: RowIndex,
    /// How long it was at the most: a server that is left out cuts its row back, and what it said before may leave after that.
    longest: RowIndex,
    /// Commands that were durable here and are not replayed.
    rows: BTreeMap<RowIndex, RowEntry>,
    /// What its server has applied, in the run that was seen last.
    applied: RowIndex,
    /// Segments that the last complete snapshot names.
    named: BTreeSet<BlobId>,
    /// Those of the snapshot that is being written.
    naming: BTreeSet<BlobId>,
    /// How often blobs had come or gone when they were looked for.
    looked_at: u64,
}

/// All disks.
#[derive(Default)]
pub(super) struct Disks {
    disks: BTreeMap<NodeId, Disk>,
    /// Commands that were applied and durable on a server that has cut them back since, by its slot: that of its partition.
    stable: BTreeMap<(HostSlot, RowIndex), RowEntry>,
    /// For which epochs servers have said that they are sealed.
    seals: BTreeMap<NodeId, ChainEpoch>,
    /// The most that each server has said of its row, by epoch.
    said: BTreeMap<(NodeId, ChainEpoch, Word), RowIndex>,
}

/// True of a message that promises something of the row of its sender, or of the epoch that it serves.
pub(super) fn is_claim(message: &FuzzyMessage) -> bool {
    promised(message).is_some() || in_force(message).is_some() || said(message).is_some()
}

/// What servers of a chain say to each other of how long the row is that they have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Word {
    Durable,
    Received,
    Stable,
}

/// What the sender says of its row, and in which epoch.
fn said(message: &FuzzyMessage) -> Option<(ChainEpoch, Word, RowIndex)> {
    let FuzzyMessage::ChainServer(ChainServerIn::Server(message)) = message else { return None };
    match message {
        FromServer::DurableThrough(it) => Some((it.epoch, Word::Durable, it.through)),
        FromServer::Received(it) => Some((it.epoch, Word::Received, it.length)),
        FromServer::StableThrough(it) => Some((it.epoch, Word::Stable, it.through)),
        _ => None,
    }
}

/// The epoch that the sender says to serve.
fn in_force(message: &FuzzyMessage) -> Option<ChainEpoch> {
    match message {
        FuzzyMessage::Client(FuzzyClientIn::EpochInForce(it)) => Some(it.epoch),
        FuzzyMessage::Client(FuzzyClientIn::InForceThrough(it)) => Some(it.epoch),
        FuzzyMessage::Client(FuzzyClientIn::Synced(it)) => Some(it.epoch),
        FuzzyMessage::Client(_)
        | FuzzyMessage::ChainServer(_)
        | FuzzyMessage::Director(_)
        | FuzzyMessage::Log(_) => None,
    }
}

/// How long the row is, at the least, that the sender says to be durable.
fn promised(message: &FuzzyMessage) -> Option<RowIndex> {
    match message {
        FuzzyMessage::ChainServer(ChainServerIn::Server(FromServer::DurableThrough(it))) => Some(it.through),
        FuzzyMessage::ChainServer(ChainServerIn::Server(FromServer::StableThrough(it))) => Some(it.through),
        FuzzyMessage::Director(DirectorIn::SealAck(it)) => Some(it.length),
        FuzzyMessage::ChainServer(_)
        | FuzzyMessage::Director(_)
        | FuzzyMessage::Client(_)
        | FuzzyMessage::Log(_) => None,
    }
}

/// The segments that a chunk of a snapshot names.
fn segments_of(chunk: Bytes) -> Vec<BlobId> {
    let (mut reader, mut named) = (Reader::new(chunk), Vec::new());
    while reader.remaining() > 0
        && let Ok(item) = Bytes::decode(&mut reader)
    {
        if let Ok(SnapshotItem::SegmentStored(it)) = SnapshotItem::decoded(&item) {
            named.push(it.segment.id);
        }
    }
    named
}

impl Disk {
    fn write(&mut self, position: Position, bytes: Bytes) -> BTreeMap<RowIndex, RowEntry> {
        let mut cut = BTreeMap::new();
        let Ok(record) = ChainRecord::decoded(&bytes) else { return cut };
        self.bytes += bytes.len();
        self.records.push_back((position, bytes));
        match record {
            ChainRecord::Ordered(Ordered { index, entry }) => {
                cut = self.cut(index);
                self.length = index.next();
                self.rows.insert(index, entry);
            }
            ChainRecord::CutBack(it) => cut = self.cut(it.length),
            ChainRecord::Forgets(_) => {
                cut = self.cut(RowIndex(0));
                self.named.clear();
            }
            ChainRecord::SnapshotPart(it) => match it.part {
                SnapshotRecord::Begin { below } => (self.begun, self.naming) = (Some(below), BTreeSet::new()),
                SnapshotRecord::Chunk { bytes } => self.naming.extend(segments_of(bytes)),
                SnapshotRecord::End => {
                    self.length = self.length.max(self.begun.take().unwrap_or_default());
                    (self.named, self.looked_at) = (std::mem::take(&mut self.naming), 0);
                }
            },
            ChainRecord::SealedFor(_)
            | ChainRecord::Serves(_)
            | ChainRecord::JournalName(_)
            | ChainRecord::Applied(_)
            | ChainRecord::Copies(_) => {}
        }
        self.longest = self.longest.max(self.length);
        cut
    }

    /// Returns what is cut back and was applied: a restart may have forgotten that it was.
    fn cut(&mut self, length: RowIndex) -> BTreeMap<RowIndex, RowEntry> {
        self.length = length;
        let mut cut = self.rows.split_off(&length);
        cut.split_off(&self.applied);
        cut
    }

    /// What is left after a trim is a server that has as much as before. Returns its state, as its snapshot and the segments have it; none if
    /// one of them is damaged.
    fn trim(
        &mut self,
        node: NodeId,
        before: Position,
        mut restored: ChainServer,
        blob: impl Fn(NodeId, BlobId) -> Option<Bytes>,
    ) -> Option<PartitionState> {
        while let Some((_, bytes)) = self.records.pop_front_if(|(position, _)| *position < before) {
            self.bytes -= bytes.len();
        }
        for (position, bytes) in &self.records {
            if let Ok(record) = ChainRecord::decoded(bytes) {
                restored.restore(*position, record);
            }
        }
        let (begins, applied) = (restored.begins_at(), restored.state().applied());
        invariant!(
            DUR,
            begins <= applied && restored.length() == self.length && restored.journal().is_some(),
            "the disk of {node} has a state after {applied} and commands from {begins} to {}, of {}",
            restored.length(),
            self.length
        );
        let mut state = restored.state().clone();
        let missing: Vec<BlobId> = state.missing_segments().map(|it| it.id).collect();
        for id in missing {
            let loaded = state.load_segment(id, &blob(node, id)?);
            invariant!(DUR, loaded.is_ok(), "segment {id} of {node} reads back as {loaded:?}");
        }
        Some(state)
    }
}

impl Disks {
    /// Returns what a disk has of a state, when a snapshot has replaced the beginning of a row.
    pub(super) fn on_fact(
        &mut self,
        fact: Fact<FuzzyMessage>,
        is_server: impl Fn(NodeId) -> bool,
        server: impl FnOnce(NodeId) -> ChainServer,
        blob: impl Fn(NodeId, BlobId) -> Option<Bytes>,
    ) -> Option<(NodeId, PartitionState)> {
        match fact {
            Fact::Durable { node, position, record } if is_server(node) => {
                let cut = self.disks.entry(node).or_default().write(position, record);
                self.stable.extend(cut.into_iter().map(|(index, entry)| ((node.host_slot(), index), entry)));
            }
            Fact::Trimmed { node, before } if is_server(node) => {
                let state = self.disks.entry(node).or_default().trim(node, before, server(node), blob);
                return state.map(|state| (node, state));
            }
            Fact::Durable { .. } | Fact::Trimmed { .. } => {}
            Fact::Reported { from, message, .. } => {
                self.check_seals(from, &message);
                if let Some((epoch, word, length)) = said(&message) {
                    let known = self.said.entry((from, epoch, word)).or_default();
                    *known = length.max(*known);
                }
                let longest = self.disks.get(&from).map_or(RowIndex(0), |disk| disk.longest);
                let promised = promised(&message).unwrap_or_default();
                invariant!(
                    DUR,
                    promised <= longest,
                    "{from} had {longest} on its disk, and says {message:?}"
                );
            }
            Fact::DiskLost { host } => {
                self.disks.retain(|node, _| node.host() != host);
                self.seals.retain(|node, _| node.host() != host);
            }
        }
        None
    }

    /// What complete snapshots name is on the disk, readable or not; and nothing is found lost that was not damaged.
    pub(super) fn check_segments(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        let changes = cluster.blob_changes(host);
        for (&node, disk) in self.disks.iter_mut().filter(|(node, _)| node.host() == host) {
            if disk.looked_at == changes {
                continue;
            }
            disk.looked_at = changes;
            let missing = disk.named.iter().find(|id| !cluster.has_blob(node, **id));
            invariant!(DUR, missing.is_none(), "a snapshot of {node} names {missing:?}, which is not there");
        }
        for (node, it) in cluster.called_nodes_of(host) {
            let Node::ChainServer(server) = it else { continue };
            invariant!(
                DUR,
                !server.is_damaged() || cluster.is_damaged(host),
                "{node} has lost a segment, and its disk is sound"
            );
        }
    }

    /// Who has said that it serves no epoch below one answers no sync of one below: it may be left out by now.
    fn check_seals(&mut self, from: NodeId, message: &FuzzyMessage) {
        if let FuzzyMessage::Director(DirectorIn::SealAck(ack)) = message {
            let known = self.seals.entry(from).or_default();
            *known = ack.epoch.max(*known);
        }
        if let (Some(epoch), Some(sealed)) = (in_force(message), self.seals.get(&from)) {
            invariant!(FENCE, epoch >= *sealed, "{from} is sealed for {sealed}, and says {message:?}");
        }
    }

    /// What a server takes for durable at the one before it is on the disk of that.
    pub(super) fn check_before(&self, id: NodeId, server: &ChainServer, cluster: &Cluster<'_, Node>) {
        let Some((before, through)) = server.durable_before(id) else { return };
        let Some(Node::ChainServer(other)) = cluster.node(before) else { return };
        // One that has gone on without this server may have cut its row back.
        if other.serves() != server.serves() {
            return;
        }
        let durable = self.length(before);
        invariant!(
            DUR,
            through <= durable,
            "{id} takes {through} commands for durable at {before}, whose disk has {durable}"
        );
    }

    /// What a server counts was said in its epoch, and by whom it is to be said.
    pub(super) fn check_counted(&self, id: NodeId, server: &ChainServer) {
        let Some(Counts { epoch, durable, received, stable }) = server.counts(id) else { return };
        let said = |by, word| self.said.get(&(by, epoch, word)).copied().unwrap_or_default();
        // What is stable the one behind has, whether or not it has said so.
        let tail = stable.map_or(RowIndex(0), |(tail, _)| said(tail, Word::Stable));
        let counted = [
            ("durable", durable.map(|(by, most)| (most, said(by, Word::Durable)))),
            ("received", received.map(|(by, most)| (most, said(by, Word::Received).max(tail)))),
            ("stable", stable.map(|(_, most)| (most, tail))),
        ];
        for (what, (counts, said)) in counted.into_iter().filter_map(|(what, it)| Some((what, it?))) {
            invariant!(
                DUR,
                counts <= said,
                "{id} counts {counts} commands as {what} in epoch {epoch}, and was said to be so of {said}"
            );
        }
    }

    /// How long the row is that a restart finds.
    pub(super) fn length(&self, node: NodeId) -> RowIndex {
        self.disks.get(&node).map_or(RowIndex(0), |disk| disk.length)
    }

    /// Bytes that are not trimmed.
    pub(super) fn bytes(&self, node: NodeId) -> usize {
        self.disks.get(&node).map_or(0, |disk| disk.bytes)
    }

    /// A command that was durable there.
    pub(super) fn entry(&self, node: NodeId, index: RowIndex) -> Option<&RowEntry> {
        let own = self.disks.get(&node)?.rows.get(&index);
        own.or_else(|| self.stable.get(&(node.host_slot(), index)))
    }

    /// A server was seen.
    pub(super) fn note_applied(&mut self, node: NodeId, serves: bool, applied: RowIndex) {
        let disk = self.disks.entry(node).or_default();
        if applied < disk.applied {
            // It was started again: what was durable of the rest was stable all the same.
            let rest = disk.rows.range(applied..disk.applied);
            self.stable.extend(rest.map(|(&index, entry)| ((node.host_slot(), index), entry.clone())));
        }
        disk.applied = if serves { applied } else { applied.min(disk.applied) };
    }

    /// Commands below are not asked for any more.
    pub(super) fn forget(&mut self, node: NodeId, below: RowIndex) {
        if let Some(disk) = self.disks.get_mut(&node) {
            while disk.rows.first_key_value().is_some_and(|(&index, _)| index < below) {
                disk.rows.pop_first();
            }
        }
    }
}

/// A server, and what a restart would make of it: it serves no epoch that it would not serve, and its row is as long.
pub(super) fn on_dry_restart(id: NodeId, running: &ChainServer, restarted: &ChainServer) {
    if running.is_damaged() {
        // What is on its disk is not this server's any more.
        return;
    }
    let stands = |it: &ChainServer| (it.journal(), it.sealed(), it.opened(), it.length());
    let (known, found) = (stands(running), stands(restarted));
    invariant!(DUR, known == found, "{id} is {known:?}, and would be {found:?} after a restart");
    let first = running.begins_at().max(restarted.begins_at());
    let differs = (first.0..running.length().0)
        .map(RowIndex)
        .find(|&index| running.entry(index) != restarted.entry(index));
    invariant!(DUR, differs.is_none(), "{id} would have another command at {differs:?} after a restart");
}
