//! Blobs on a disk that loses power, runs full and flips bits.

use super::*;
use crate::disk::faulty::FaultyDisk;

const HOST_SLOT: HostSlot = HostSlot(7);

fn id(first: u64) -> BlobId {
    BlobId { series: 3, first }
}

fn open(disk: &FaultyDisk) -> Blobs {
    Blobs::open(Some(Arc::new(disk.clone())), None, Arc::new(|| {})).expect("the directory can be listed")
}

/// The next notice, once its thread has it.
fn next(blobs: &mut Blobs) -> BlobNotice {
    loop {
        if let Some((host_slot, notice)) = blobs.poll(Instant(0)).expect("no write fails for good") {
            assert_eq!(host_slot, HOST_SLOT);
            return notice;
        }
        std::thread::yield_now();
    }
}

fn store(blobs: &mut Blobs, first: u64, contents: &[u8]) {
    blobs.carry_out(HOST_SLOT, BlobEffect::Store { id: id(first), bytes: Bytes::copy_from_slice(contents) });
}

fn load(blobs: &mut Blobs, first: u64, offset: u64, bytes: u64) -> Option<Bytes> {
    blobs.carry_out(HOST_SLOT, BlobEffect::Load { range: BlobRange { id: id(first), offset, bytes } });
    match next(blobs) {
        BlobNotice::Loaded { bytes, .. } => Some(bytes),
        BlobNotice::Lost { .. } => None,
        notice => panic!("nothing else was asked for: {notice:?}"),
    }
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
}

// A part that begins or ends in the middle of a page, or beyond the end, comes back as other bytes.
#[test]
fn parts_read_back_as_they_were_written() {
    let (disk, whole) = (FaultyDisk::default(), contents(200_000));
    let mut memory = Blobs::open(None, None, Arc::new(|| {})).expect("memory needs no directory");
    let mut onto_disk = open(&disk);
    for blobs in [&mut memory, &mut onto_disk] {
        store(blobs, 1, &whole);
        assert_eq!(blobs.is_ready(), matches!(blobs.store, Store::Memory(_)), "no thread gives notice of it");
        assert_eq!(next(blobs), BlobNotice::Stored { id: id(1) });
        for (offset, bytes) in
            [(0, 200_000), (0, 1), (65_535, 2), (65_536, 65_536), (131_000, 90_000), (200_000, 5)]
        {
            let end = (offset + bytes).min(whole.len());
            let part = load(blobs, 1, offset as u64, bytes as u64);
            assert_eq!(part.as_deref(), Some(&whole[offset..end]), "{bytes} bytes at {offset}");
        }
        assert_eq!(load(blobs, 2, 0, 1), None);
        let BlobCounts { files, bytes, stores, loads, lost, .. } = blobs.counts();
        assert_eq!((files, bytes, stores, loads, lost), (1, 200_000, 1, 6, 1));
        blobs.carry_out(HOST_SLOT, BlobEffect::Drop { id: id(1) });
        store(blobs, 2, b"behind the drop");
        assert_eq!(next(blobs), BlobNotice::Stored { id: id(2) });
        assert_eq!(load(blobs, 1, 0, 1), None, "dropped");
    }
}

// Bytes that are not what was written, handed out as if they were.
#[test]
fn every_flipped_bit_is_noticed() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&disk);
    store(&mut blobs, 1, &contents(100));
    next(&mut blobs);
    let name = file_name(HOST_SLOT, id(1));
    let bits = disk.edit(&name, |file| file.len() * 8);
    for bit in 0..bits {
        disk.edit(&name, |file| file[bit / 8] ^= 1 << (bit % 8));
        assert_eq!(load(&mut blobs, 1, 0, 100), None, "bit {bit} went unnoticed");
        disk.edit(&name, |file| file[bit / 8] ^= 1 << (bit % 8));
    }
    disk.edit(&name, |file| file.truncate(120));
    assert_eq!(load(&mut blobs, 1, 0, 1), None, "truncated");
}

// A blob that was reported stored and is half there after a power failure; a half one under its name.
#[test]
fn what_was_stored_survives_a_power_failure_and_what_was_not_is_no_blob() {
    for left in 0..8 {
        let disk = FaultyDisk::default();
        let mut blobs = open(&disk);
        store(&mut blobs, 1, &contents(3_000));
        next(&mut blobs);
        disk.power_off_after(left);
        store(&mut blobs, 2, &contents(5_000));
        let stored = loop {
            match blobs.poll(Instant(0)) {
                Ok(Some((_, notice))) => break notice == BlobNotice::Stored { id: id(2) },
                Ok(None) => std::thread::yield_now(),
                Err(error) => {
                    assert!(error.to_string().starts_with("cannot write "), "{error}");
                    break false;
                }
            }
        };
        let mut after = open(&disk.after_crash(|_, _, _| {}));
        assert_eq!(load(&mut after, 1, 0, 9_999).as_deref(), Some(&contents(3_000)[..]));
        match load(&mut after, 2, 0, 9_999) {
            Some(bytes) => assert_eq!(bytes, contents(5_000)),
            None => assert!(!stored, "{left} operations: stored, and gone"),
        }
    }
}

// A blob lost because the disk was full for a moment; one that is written although it was given up meanwhile.
#[test]
fn a_full_disk_delays_what_is_stored() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&disk);
    disk.limit_space(Some(1_000));
    for first in 1..4 {
        store(&mut blobs, first, &contents(2_000));
    }
    while blobs.stuck.len() < 3 {
        assert!(blobs.poll(Instant(0)).expect("a full disk is no error").is_none());
        std::thread::yield_now();
    }
    let due = blobs.due().expect("it is tried again");
    blobs.carry_out(HOST_SLOT, BlobEffect::Drop { id: id(2) });
    disk.limit_space(None);
    blobs.retry(Instant(0));
    assert!(blobs.due().is_some(), "not yet");
    blobs.retry(due);
    assert_eq!(
        [next(&mut blobs), next(&mut blobs)],
        [1, 3].map(|first| BlobNotice::Stored { id: id(first) })
    );
    assert!(blobs.due().is_none());
}

// Files that nobody knows fill the disk; one that a node knows and that is gone is never fetched again.
#[test]
fn what_nobody_knows_is_removed_and_what_is_gone_is_said() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&disk);
    for first in 1..4 {
        store(&mut blobs, first, b"x");
        next(&mut blobs);
    }
    drop(blobs);
    let mut blobs = open(&disk);
    assert_eq!(blobs.counts().files, 3);
    blobs.carry_out(HOST_SLOT, BlobEffect::Keep { ids: vec![id(9), id(2)] });
    assert_eq!(next(&mut blobs), BlobNotice::Lost { id: id(9) });
    assert_eq!(load(&mut blobs, 2, 0, 1).as_deref(), Some(&b"x"[..]));
    drop(blobs);
    assert_eq!(disk.file_names(), [file_name(HOST_SLOT, id(2))]);
    assert_eq!(parse_file_name(&disk.file_names()[0]), Some((HOST_SLOT, id(2))));
    assert_eq!(parse_file_name("segment-0000000000000001"), None);
}
