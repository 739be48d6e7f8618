//! Blobs on their way to an archive that fails, that has them already, and that never answers.

use super::*;
use crate::disk::faulty::FaultyDisk;
use kernel::ArchiveObject;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

const HOST_SLOT: HostSlot = HostSlot(7);

#[derive(Default)]
struct Shelf {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    fails: AtomicBool,
    /// Requests wait until its other end is gone.
    hangs: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Archive for Shelf {
    fn has(&self, object: &ArchiveObject) -> Result<bool, ArchiveError> {
        let hangs = self.hangs.lock().expect("nobody panics").take();
        if let Some(hangs) = hangs {
            let _ = hangs.recv();
        }
        match self.fails.load(Ordering::Relaxed) {
            true => Err(ArchiveError("it is away".to_owned())),
            false => Ok(self.objects.lock().expect("nobody panics").contains_key(&object.name)),
        }
    }

    fn put(&self, object: &ArchiveObject, contents: Bytes) -> Result<(), ArchiveError> {
        let bytes = [&object.head[..], &contents].concat();
        self.objects.lock().expect("nobody panics").insert(object.name.clone(), bytes);
        Ok(())
    }
}

fn id(first: u64) -> BlobId {
    BlobId { series: 3, first }
}

fn next(blobs: &mut Blobs) -> BlobNotice {
    loop {
        if let Some((_, notice)) = blobs.poll(Instant(0)).expect("no write fails for good") {
            return notice;
        }
        std::thread::yield_now();
    }
}

fn archive(blobs: &mut Blobs, first: u64) -> BlobNotice {
    let object = ArchiveObject { name: format!("a/{first}"), head: Bytes::from_static(b"head ") };
    blobs.carry_out(HOST_SLOT, BlobEffect::Archive { id: id(first), object });
    next(blobs)
}

fn store(blobs: &mut Blobs, first: u64, bytes: &'static [u8]) {
    blobs.carry_out(HOST_SLOT, BlobEffect::Store { id: id(first), bytes: Bytes::from_static(bytes) });
    assert_eq!(next(blobs), BlobNotice::Stored { id: id(first) });
}

// What is said to be archived and is not will be dropped, and is gone then.
#[test]
fn what_is_archived_is_there_with_its_head() {
    let (disk, shelf) = (FaultyDisk::default(), Arc::new(Shelf::default()));
    let disks: [Option<Arc<dyn Disk>>; 2] = [None, Some(Arc::new(disk.clone()))];
    for (first, disk) in (0..).step_by(10).zip(disks) {
        let mut blobs = Blobs::open(disk, Some(shelf.clone()), Arc::new(|| {})).expect("it opens");
        store(&mut blobs, first, b"contents");
        assert_eq!(archive(&mut blobs, first), BlobNotice::Archived { id: id(first) });
        let there = shelf.objects.lock().expect("nobody panics").get(&format!("a/{first}")).cloned();
        assert_eq!(there.as_deref(), Some(&b"head contents"[..]));
        assert_eq!(archive(&mut blobs, first + 1), BlobNotice::Lost { id: id(first + 1) });
        // What another host has written is as good, and what is lost here is not asked for.
        shelf.objects.lock().expect("nobody panics").insert(format!("a/{}", first + 2), Vec::new());
        assert_eq!(archive(&mut blobs, first + 2), BlobNotice::Archived { id: id(first + 2) });
        let counts = blobs.archive_counts().expect("there is an archive");
        assert_eq!((counts.objects, counts.bytes, counts.failures), (1, 13, 0));
    }
}

// An archive that is away, and nobody is notified; or everybody, at each attempt.
#[test]
fn failures_are_reported_once_and_so_is_their_end() {
    let shelf = Arc::new(Shelf::default());
    let mut blobs = Blobs::open(None, Some(shelf.clone()), Arc::new(|| {})).expect("it opens");
    store(&mut blobs, 1, b"contents");
    shelf.fails.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(archive(&mut blobs, 1), BlobNotice::Unarchived { id: id(1) });
    }
    let counts = blobs.archive_counts().expect("there is an archive");
    assert_eq!((counts.failures, counts.error.as_deref()), (3, Some("it is away")));
    assert!(matches!(blobs.archive_change(), Some(Changed::Failing(why)) if why == "it is away"));
    assert!(blobs.archive_change().is_none());
    shelf.fails.store(false, Ordering::Relaxed);
    assert_eq!(archive(&mut blobs, 1), BlobNotice::Archived { id: id(1) });
    assert!(matches!(blobs.archive_change(), Some(Changed::Back)));
    assert_eq!(blobs.archive_counts().and_then(|counts| counts.error), None);
    let mut without = Blobs::open(None, None, Arc::new(|| {})).expect("it opens");
    assert_eq!(archive(&mut without, 1), BlobNotice::Unarchived { id: id(1) });
    assert!(without.archive_counts().is_none());
}

// A host that cannot stop, or stores nothing, because an archive does not answer.
#[test]
fn an_archive_that_never_answers_holds_up_nothing() {
    let (end, hangs) = mpsc::channel();
    let shelf = Arc::new(Shelf { hangs: Mutex::new(Some(hangs)), ..Shelf::default() });
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::default());
    let mut blobs = Blobs::open(Some(disk), Some(shelf), Arc::new(|| {})).expect("it opens");
    store(&mut blobs, 1, b"contents");
    let object = |first| ArchiveObject { name: format!("a/{first}"), head: Bytes::new() };
    blobs.carry_out(HOST_SLOT, BlobEffect::Archive { id: id(1), object: object(1) });
    store(&mut blobs, 2, b"more");
    // Whichever of the two comes first hangs; the other thread goes on.
    let reported = archive(&mut blobs, 2);
    assert!([1, 2].map(|first| BlobNotice::Archived { id: id(first) }).contains(&reported), "{reported:?}");
    drop(blobs);
    drop(end);
}
