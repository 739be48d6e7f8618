//! A space whose trimmed segments wait for an archive.

use kernel::{BlobId, Bytes, Decode, Encode, NodeId, SnapshotStep};
use mason::{Archived as _, BlobBacked as _, Gsn, Number, Order, Placed, Shard, ShardOut, Space};
use shared_log::archive::ArchivedSegment;
use shared_log::{
    Answer, Append, Archiving, Create, LogIdentity, Logs, Named, Part, RETAIN_BYTES_MIN, Read, Request, Rows,
    SpaceBounds, Trim, Why,
};
use std::collections::{BTreeMap, BTreeSet};

const CREATED: u64 = 1_700_000_000_000;
const BACKLOG: u64 = 1_000;

struct Space0 {
    logs: Logs,
    gsn: u64,
    disk: BTreeMap<BlobId, Bytes>,
    archive: BTreeMap<String, Bytes>,
}

/// Segments of a few entries, pages of two.
fn tiny() -> SpaceBounds {
    SpaceBounds { segment_bytes: 100, open_bytes: 300, page_bytes: 20, unstored_bytes: 400, cache_bytes: 60 }
}

fn logs() -> Logs {
    let archiving = Archiving { cluster: "prod".to_owned(), backlog_bytes_max: BACKLOG };
    Logs::new(Space(0), 1, tiny()).with_archive(archiving)
}

impl Space0 {
    /// With a log `a`.
    fn new() -> Self {
        let mut one = Self { logs: logs(), gsn: 0, disk: BTreeMap::new(), archive: BTreeMap::new() };
        one.create();
        one
    }

    fn create(&mut self) {
        let (name, retain_bytes) = ("a".to_owned(), RETAIN_BYTES_MIN);
        let create = Create {
            name,
            retain_bytes,
            retain_ms: 0,
            capacity: RETAIN_BYTES_MIN,
            cleanup: None,
            first: None,
        };
        assert_eq!(self.ask(&Request::Create(create)), Answer::Done);
    }

    fn ask(&mut self, request: &Request) -> Answer {
        self.gsn += 1;
        let numbers = [Placed { space: Space(0), number: Number(self.gsn) }].into();
        let order = Order { numbers, gsn: Gsn(self.gsn), time: CREATED + self.gsn };
        let mut out = ShardOut::default();
        self.logs.execute(&request.encoded().into(), &order, &[], &mut out);
        Answer::decoded(&out.into_parts().0.into()).expect("shards answer in their own words")
    }

    fn append(&mut self, entries: u64) {
        for nth in 0..entries {
            let mut rows = Rows::default();
            rows.push(format!("entry {nth}").as_bytes());
            let part = Part { name: "a".to_owned(), expect: None, entries: rows.into_bytes() };
            assert!(matches!(
                self.ask(&Request::Append(Append { parts: vec![part], admitted: None })),
                Answer::Appended(_)
            ));
        }
    }

    fn trim(&mut self, before: u64) {
        self.ask(&Request::Trim(Trim { name: "a".to_owned(), before }));
    }

    fn delete(&mut self) {
        self.ask(&Request::Delete(Named { name: "a".to_owned() }));
    }

    fn blobs(&self) -> BTreeSet<BlobId> {
        self.logs.blobs().iter().map(|blob| blob.id).collect()
    }

    fn store(&mut self) {
        while let Some((id, bytes)) = self.logs.unstored() {
            self.disk.insert(id, bytes);
            self.logs.stored(id);
        }
    }

    /// Archives what waits, at most `most` segments.
    fn archive(&mut self, most: usize) -> usize {
        let ids = self.logs.to_archive(most);
        for &id in &ids {
            let object = self.logs.archive_object(id).expect("it waits");
            let bytes = [&object.head[..], &self.disk[&id]].concat();
            self.archive.insert(object.name, bytes.into());
            self.logs.archived(id);
        }
        ids.len()
    }

    fn copy(&mut self) -> Self {
        self.logs.begin_snapshot();
        let mut copy =
            Self { disk: self.disk.clone(), gsn: self.gsn, logs: logs(), archive: BTreeMap::new() };
        copy.logs.reset();
        loop {
            let mut chunk = Vec::new();
            let step = self.logs.snapshot_step(100, &mut chunk);
            copy.logs.install(&chunk).expect("a chunk reads back");
            if step == SnapshotStep::Done {
                return copy;
            }
        }
    }

    fn query(&mut self, request: &Request) -> Answer {
        let mut out = Vec::new();
        while let Some(range) = self.logs.read(NodeId::ZERO, &request.encoded(), &mut out) {
            let (start, end) = (range.offset as usize, (range.offset + range.bytes) as usize);
            self.logs.loaded(range, &self.disk[&range.id].slice(start..end));
        }
        Answer::decoded(&out.into()).expect("shards answer in their own words")
    }

    fn identity(&mut self) -> LogIdentity {
        match self.query(&Request::Identify(Named { name: "a".to_owned() })) {
            Answer::Identity(identity) => identity,
            other => panic!("{other:?}"),
        }
    }

    /// The positions that can be recalled, from `from` to the tail; or where there are some again.
    fn recall(&mut self, from: u64) -> Result<Vec<String>, u64> {
        let mut words = Vec::new();
        loop {
            let (from, name) = (from + words.len() as u64, "a".to_owned());
            let read = Read { name, from, entries_max: 7, bytes_max: 1 << 20, wait_ms: 0 };
            match self.query(&Request::Recall(read)) {
                Answer::Entries(read) => {
                    let entry = |entry: &[u8]| String::from_utf8_lossy(entry).into_owned();
                    words.extend(Rows::iter(&read.rows).map(entry));
                    if read.next == read.tail {
                        return Ok(words);
                    }
                }
                Answer::Refused(refused) if refused.why == Why::Trimmed => return Err(refused.at),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The entries of the archive, by their positions.
    fn archived(&self) -> BTreeMap<u64, String> {
        let mut entries = BTreeMap::new();
        for (name, object) in &self.archive {
            let (segment, rows) = ArchivedSegment::read(object).expect("it is sound");
            assert_eq!(segment.object_name(), *name);
            assert_eq!((segment.cluster.as_str(), segment.log.as_str()), ("prod", "a"));
            for (position, entry) in (segment.first..).zip(Rows::iter(&rows)) {
                let before = entries.insert(position, String::from_utf8_lossy(entry).into_owned());
                assert_eq!(before, None, "position {position} is archived once");
            }
        }
        entries
    }
}

fn words(from: u64, to: u64) -> Vec<String> {
    (from..to).map(|nth| format!("entry {nth}")).collect()
}

// A segment that is dropped when it is trimmed, and not when it is archived, is gone; one that is never dropped fills the disk.
#[test]
fn what_is_trimmed_is_retained_until_it_is_archived() {
    let mut one = Space0::new();
    one.append(100);
    one.store();
    let all = one.blobs();
    one.trim(50);
    assert_eq!(one.blobs(), all, "nothing goes");
    let whole = one.logs.to_archive(100);
    let before = one.logs.storage();
    assert!(
        whole.len() > 5 && before.waiting == whole.len() as u64 && before.waiting_bytes > 500,
        "{before:?}"
    );
    assert_eq!(one.recall(0), Ok(words(0, 100)), "and all of it is read");
    assert_eq!(one.archive(2), 2);
    assert_eq!(one.blobs().len(), all.len() - 2);
    let stored = one.identity().retained;
    assert!(stored > 0 && stored < 50);
    assert_eq!(one.recall(0), Err(stored));
    assert_eq!(one.recall(stored), Ok(words(stored, 100)));
    one.archive(100);
    let stored = one.identity().retained;
    assert!(stored < 50, "the segment that is trimmed in part stays");
    assert_eq!((one.logs.storage().waiting, one.logs.storage().waiting_bytes), (0, 0));
    assert_eq!(one.archived().into_values().collect::<Vec<_>>(), words(0, stored));
    assert_eq!(one.recall(stored - 1), Err(stored));
}

// The open segment is in no file when it is trimmed: it has to be written first, and what comes after begins another.
#[test]
fn an_open_segment_that_is_trimmed_is_stored_and_archived_too() {
    let mut one = Space0::new();
    one.append(5);
    one.trim(5);
    assert_eq!((one.logs.to_archive(10), one.logs.storage().waiting), (vec![], 1), "it is not stored yet");
    assert_eq!(one.recall(2), Ok(words(2, 5)));
    one.append(3);
    one.store();
    assert_eq!(one.archive(10), 1);
    assert_eq!(one.archived().into_values().collect::<Vec<_>>(), words(0, 5));
    assert_eq!(one.recall(5), Ok(words(0, 3)));
    // A peer's word may come before the disk's.
    one.append(1);
    one.trim(9);
    let id = one.logs.unstored().expect("it ended").0;
    one.logs.archived(id);
    one.logs.stored(id);
    assert_eq!((one.logs.storage().waiting, one.logs.blobs()), (0, vec![]));
}

// Deleting a log must not take along what an archive is there to keep, nor mix it up with the next log of the name.
#[test]
fn a_deleted_log_is_archived_under_its_own_incarnation() {
    let mut one = Space0::new();
    let first = one.identity();
    assert_eq!((first.number, first.created_ms), (1, CREATED + 1));
    one.append(30);
    one.delete();
    one.create();
    one.append(30);
    one.store();
    let second = one.identity();
    assert_ne!((first.number, first.created_ms), (second.number, second.created_ms));
    assert_eq!(one.recall(0), Ok(words(0, 30)), "of the second alone");
    one.archive(100);
    assert_eq!(one.archived().into_values().collect::<Vec<_>>(), words(0, 30));
    one.archive.clear();
    one.trim(30);
    one.store();
    one.archive(100);
    assert_eq!(one.archived().len(), 30);
    assert!(one.archive.keys().all(|name| name.contains(&format!("{:016x}/", second.number))));
}

// A server that starts again, or catches up, and has forgotten what waits.
#[test]
fn snapshots_carry_what_waits() {
    let mut one = Space0::new();
    one.append(40);
    one.store();
    one.append(20);
    one.trim(60);
    one.append(4);
    let mut copy = one.copy();
    assert_eq!(copy.logs.storage().waiting, one.logs.storage().waiting);
    assert_eq!(copy.logs.storage().waiting_bytes, one.logs.storage().waiting_bytes);
    assert_eq!((copy.identity(), copy.logs.digest()), (one.identity(), one.logs.digest()));
    assert_eq!(copy.recall(0), one.recall(0));
    for one in [&mut one, &mut copy] {
        one.store();
        one.archive(100);
    }
    assert_eq!(copy.archive, one.archive, "servers write the same objects");
    assert_eq!(copy.archived().len(), 60);
}

// An archive that is away fills the disk.
#[test]
fn too_much_that_waits_is_reported() {
    let mut one = Space0::new();
    one.append(30);
    one.store();
    one.trim(30);
    assert_eq!(one.logs.overfull(), 0, "{:?}", one.logs.storage());
    one.append(60);
    one.store();
    one.trim(90);
    assert_eq!(one.logs.overfull(), one.logs.storage().waiting_bytes);
    assert!(one.logs.overfull() > BACKLOG);
    one.archive(100);
    assert_eq!(one.logs.overfull(), 0);
}

// Without an archive nothing waits, whatever a peer's snapshot holds.
#[test]
fn without_an_archive_what_is_trimmed_goes() {
    let mut one = Space0::new();
    one.append(40);
    one.store();
    one.trim(40);
    one.logs.begin_snapshot();
    let mut chunk = Vec::new();
    assert_eq!(one.logs.snapshot_step(1 << 20, &mut chunk), SnapshotStep::Done);
    let mut other = Logs::new(Space(0), 1, tiny());
    other.install(&chunk).expect("it reads back");
    assert_eq!((other.storage().waiting, other.blobs()), (0, vec![]));
    assert_eq!(other.digest(), one.logs.digest());
}
