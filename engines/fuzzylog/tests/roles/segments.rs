//! The segments of a chain server: when a snapshot may end, what a restart waits for, and what goes.

use super::server::{PARTITION, client_role, node, order, serving_as};
use fuzzylog::chain_server::{ChainRecord, ChainTimer, Ping, Play, Project, StableThrough, Submit};
use fuzzylog::partition::command::Trim;
use fuzzylog::{
    ChainEpoch, ChainJournal, ChainMember, ChainProjection, ChainServer, Colour, ColourNode, ColourPlacement,
    FuzzyLog, FuzzyParameters, NodePosition, RowIndex,
};
use kernel::{
    BlobEffect, BlobId, BlobNotice, BlobRange, Bytes, Decode as _, Effect, HostId, HostSlot, NodeId,
    Role as _,
};
use std::collections::BTreeMap;
use std::time::Duration;
use table::{Did, Table, restored, sent};

/// A server whose segments have five nodes or so.
fn segmenting() -> ChainServer {
    let beside = NodeId::new(HostId(1), HostSlot(1));
    let parameters = FuzzyParameters {
        snapshot_every_bytes: 300,
        snapshot_chunk_bytes: 200,
        segment_bytes: 600,
        row_memory_bytes: 0,
        ..FuzzyParameters::default()
    };
    ChainServer::new(PARTITION, ColourPlacement::over(1), parameters, beside)
}

/// A server, and what its disk has.
struct OnDisk {
    table: Table<ChainServer>,
    journal: Vec<Bytes>,
    blobs: BTreeMap<BlobId, Bytes>,
    /// Blobs that are not on the disk yet.
    storing: BTreeMap<BlobId, Bytes>,
    dropped: Vec<BlobId>,
    needed: usize,
}

impl OnDisk {
    fn serving() -> Self {
        let table = serving_as(segmenting(), true);
        let (blobs, storing, dropped) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { table, journal: Vec::new(), blobs, storing, dropped, needed: 0 }
    }

    fn note(&mut self, did: Did<FuzzyLog>) {
        self.journal.extend(self.table.journal());
        for effect in did {
            match effect {
                Effect::Blob(BlobEffect::Store { id, bytes }) => _ = self.storing.insert(id, bytes),
                Effect::Blob(BlobEffect::Drop { id }) => {
                    self.dropped.push(id);
                    assert!(self.blobs.remove(&id).is_some(), "{id} is not there");
                }
                Effect::Trim { before } => self.needed = before.0 as usize,
                _ => {}
            }
        }
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.table.pass(Duration::from_millis(3));
            let did = self.table.timer(ChainTimer::Tick);
            self.note(did);
        }
    }

    /// What is on its way to the disk is there.
    fn store(&mut self) {
        for (id, bytes) in std::mem::take(&mut self.storing) {
            self.blobs.insert(id, bytes);
            let did = self.table.notice(BlobNotice::Stored { id });
            self.note(did);
        }
    }

    fn until_saved(&mut self, below: u64) {
        for _ in 0..500 {
            self.ticks(1);
            self.store();
            if self.table.role.saved_below() == RowIndex(below) && self.needed > 0 && self.is_whole(below) {
                return;
            }
        }
        panic!("no snapshot of {below} is complete");
    }

    /// A restart finds a snapshot of so many commands.
    fn is_whole(&self, below: u64) -> bool {
        self.read_back().saved_below() == RowIndex(below)
    }

    fn read_back(&self) -> ChainServer {
        restored(segmenting(), &self.journal[self.needed..])
    }

    /// The next incarnation, and which blobs it wants to be read.
    fn restart(&self) -> (Table<ChainServer>, Vec<BlobRange>) {
        let mut table = Table::unstarted(self.read_back(), node(1));
        // It draws other numbers than the run before.
        table.call(|_, cx| _ = cx.rng().bits());
        let did = table.start();
        let known: Vec<BlobId> = self.blobs.keys().copied().collect();
        assert!(did.iter().any(|it| matches!(it, Effect::Blob(BlobEffect::Keep { ids }) if *ids == known)));
        (table, loads(&did))
    }
}

fn loads(did: &Did<FuzzyLog>) -> Vec<BlobRange> {
    let of = |effect: &_| match effect {
        Effect::Blob(BlobEffect::Load { range }) => Some(*range),
        _ => None,
    };
    did.iter().filter_map(of).collect()
}

fn nodes(server: &ChainServer) -> Vec<ColourNode> {
    server.state().nodes(Colour(0), NodePosition(0)).cloned().collect()
}

fn trim(on_disk: &mut OnDisk, call: u64, before: u64) {
    let command = Trim { colour: Colour(0), before: NodePosition(before) }.into();
    on_disk.table.burst(client_role(), Submit { call, epoch: ChainEpoch(2), command });
    let through = on_disk.table.role.length();
    let did = on_disk.table.burst(node(2), StableThrough { epoch: ChainEpoch(2), through });
    on_disk.note(did);
}

// A snapshot that ends before what it names is on the disk has the journal trimmed, and a loss of power takes the rest.
#[test]
fn a_snapshot_ends_when_its_segments_are_on_the_disk() {
    let mut on_disk = OnDisk::serving();
    order(&mut on_disk.table, 0..40);
    on_disk.ticks(300);
    let count = on_disk.storing.len();
    assert!((2..=4).contains(&count), "{count} segments at the same time, and the next chunk waits");
    assert_eq!((on_disk.needed, on_disk.table.role.storing_bytes() > 0), (0, true), "nothing is trimmed");
    on_disk.until_saved(40);
    let stored = on_disk.blobs.len();
    assert!((5..20).contains(&stored), "{stored} segments");
    assert_eq!(on_disk.table.role.segments_named().count(), stored);
    let snapshot = on_disk.journal[on_disk.needed..].concat();
    let bodies = snapshot.windows(4).filter(|it| it == b"body").count();
    assert!(bodies < 5, "the snapshot has {bodies} of 40 nodes");
    // What was stored once is named again, and not written.
    let before: Vec<BlobId> = on_disk.blobs.keys().copied().collect();
    order(&mut on_disk.table, 40..100);
    on_disk.until_saved(100);
    assert!(before.iter().all(|id| on_disk.blobs.contains_key(id)) && on_disk.dropped.is_empty());
    assert!(on_disk.blobs.len() < 3 * stored, "{} segments", on_disk.blobs.len());
}

// A server that answers while its nodes are not there shows a log with holes; one that never begins is lost for its chain.
#[test]
fn a_restart_is_silent_until_its_segments_are_read() {
    let mut on_disk = OnDisk::serving();
    order(&mut on_disk.table, 0..40);
    on_disk.until_saved(40);
    let (mut again, mut wanted) = on_disk.restart();
    assert_eq!(again.role.segments_to_load(), on_disk.blobs.len());
    assert_eq!(again.role.state().tail(Colour(0)), NodePosition(40), "what decides is known");
    let play = Play { call: 5, colour: Colour(0), from: NodePosition(0), to: NodePosition(40) };
    while let Some(range) = wanted.pop() {
        for did in [again.burst(client_role(), play.clone()), again.burst(node(3), Ping {})] {
            assert!(sent(&did).is_empty(), "{did:?}");
        }
        let bytes = on_disk.blobs[&range.id].clone();
        wanted.extend(loads(&again.notice(BlobNotice::Loaded { range, bytes })));
    }
    assert_eq!(again.role.segments_to_load(), 0);
    assert_eq!(nodes(&again.role), nodes(&on_disk.table.role));
    assert_eq!(again.role.state().digest(), on_disk.table.role.state().digest());
    assert_eq!(again.role.statement().recounts.iter().find(|it| it.known != it.counted), None);
    assert_eq!(sent(&again.burst(client_role(), play)).len(), 1);
    assert_eq!(sent(&again.burst(node(3), Ping {})).len(), 1);
}

// A blob that goes before a snapshot that does not name it is on the disk is missed by the next restart; one that never goes fills the
// disk.
#[test]
fn a_segment_of_which_little_is_left_is_written_again_and_dropped() {
    let mut on_disk = OnDisk::serving();
    order(&mut on_disk.table, 0..40);
    on_disk.until_saved(40);
    let before: Vec<BlobId> = on_disk.blobs.keys().copied().collect();
    let first = on_disk.table.role.state().segments().next().expect("there is one");
    // Most of the first segment goes, and all of none.
    trim(&mut on_disk, 1_000, 6);
    order(&mut on_disk.table, 40..100);
    on_disk.ticks(300);
    assert!(on_disk.dropped.is_empty(), "the snapshot on the disk names all");
    on_disk.until_saved(101);
    assert_eq!(on_disk.dropped, [first.id], "of {before:?}");
    let (mut again, mut wanted) = on_disk.restart();
    while let Some(range) = wanted.pop() {
        let bytes = on_disk.blobs[&range.id].clone();
        wanted.extend(loads(&again.notice(BlobNotice::Loaded { range, bytes })));
    }
    assert_eq!(nodes(&again.role), nodes(&on_disk.table.role));
    // All that it has goes.
    trim(&mut on_disk, 1_001, 100);
    order(&mut on_disk.table, 100..210);
    on_disk.until_saved(212);
    let named: Vec<BlobId> = on_disk.table.role.segments_named().collect();
    assert!(named.iter().all(|id| !before.contains(id)), "of {before:?}, {named:?} are left");
    assert_eq!(on_disk.blobs.keys().copied().collect::<Vec<_>>(), named);
}

// A server that goes on without what it has acknowledged counts for a disk that it is not; one that drops the rest at once may have the
// only copy.
#[test]
fn who_has_lost_a_segment_begins_under_another_name() {
    let mut on_disk = OnDisk::serving();
    order(&mut on_disk.table, 0..40);
    on_disk.until_saved(40);
    let name = on_disk.table.role.journal();
    let (mut again, wanted) = on_disk.restart();
    let did = again.notice(BlobNotice::Lost { id: wanted[0].id });
    assert!(again.role.is_damaged() && again.role.segments_to_load() == 0);
    assert_eq!((again.role.length(), again.role.state().applied()), (RowIndex(0), RowIndex(0)));
    assert!(again.role.journal().is_some() && again.role.journal() != name);
    assert!(again.journal().is_empty() && !did.iter().any(|it| matches!(it, Effect::Blob(_))), "{did:?}");
    assert_eq!(sent(&again.burst(node(3), Ping {})).len(), 1, "it can be let in");
    // Others have everything, and it may copy that.
    let member = ChainMember { node: node(2), journal: Some(ChainJournal(7)) };
    let (epoch, whole_from) = (ChainEpoch(3), RowIndex(40));
    let projection = ChainProjection { partition: PARTITION, epoch, members: vec![member], whole_from };
    let did = again.burst(node(3), Project { projection, copies: true });
    let drops = did.iter().filter(|it| matches!(it, Effect::Blob(BlobEffect::Drop { .. }))).count();
    assert!(did.iter().any(|it| matches!(it, Effect::Trim { .. })) && drops == on_disk.blobs.len() - 1);
    let records = again.journal();
    let has = |wanted: fn(&ChainRecord) -> bool| {
        records.iter().filter_map(|it| ChainRecord::decoded(it).ok()).any(|it| wanted(&it))
    };
    assert!(has(|it| matches!(it, ChainRecord::Forgets(_))));
    // A restart finds that, whether or not the journal's beginning is gone.
    for earlier in [&on_disk.journal[on_disk.needed..], &[]] {
        let found = restored(segmenting(), &[earlier, &records].concat());
        assert_eq!((found.journal(), found.length()), (again.role.journal(), RowIndex(0)));
        assert_eq!((found.sealed(), found.segments_named().count()), (ChainEpoch(3), 0));
    }
}
