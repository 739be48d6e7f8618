//! The journal on a disk that crashes, tears, rots and fills up.

use super::*;
use crate::disk::faulty::FaultyDisk;
use kernel::Rng;

const OPTIONS: JournalOptions =
    JournalOptions { segment_bytes: 64 << 10, placement: FsyncPlacement::Inline, prepare_inline: true };
const HOST_SLOT: HostSlot = HostSlot(7);
const OTHER: HostSlot = HostSlot(9);

fn open(disk: &FaultyDisk) -> Result<Journal, JournalError> {
    open_with(disk, OPTIONS)
}

fn open_with(disk: &FaultyDisk, options: JournalOptions) -> Result<Journal, JournalError> {
    Journal::open(Arc::new(disk.clone()), options, 5, Arc::new(|| {}))
}

/// Every record has a content that its slot and position give, so that stale or misplaced ones show.
fn content(host_slot: HostSlot, position: Position) -> Vec<u8> {
    let mut rng = Rng::seeded(u64::from(host_slot.0) << 32 | position.0);
    let most = if rng.chance(0.1) { 6000 } else { 120 };
    let bytes = rng.below(most);
    (0..bytes).map(|_| rng.bits() as u8).collect()
}

fn append(journal: &mut Journal, host_slot: HostSlot, first: u64, count: u64) {
    let contents: Vec<Vec<u8>> = (first..first + count).map(|at| content(host_slot, Position(at))).collect();
    let records = contents.iter().enumerate();
    journal.append(
        host_slot,
        records.map(|(i, bytes)| Journaled { position: Position(first + i as u64), bytes }),
    );
}

/// The positions of the records that come back, after their contents were checked.
fn positions(journal: &Journal, host_slot: HostSlot) -> Vec<u64> {
    let mut found = Vec::new();
    let outcome: Result<Result<(), ()>, JournalError> = journal.replay(|of, position, bytes| {
        assert_eq!(bytes, content(of, position), "slot {} record {}", of.0, position.0);
        if of == host_slot {
            found.push(position.0);
        }
        Ok(())
    });
    assert!(matches!(outcome, Ok(Ok(()))), "{outcome:?}");
    found
}

/// A journal in its second run with a few hundred records over recycled segments, all synced and vouched for.
fn used_disk() -> (FaultyDisk, u64) {
    let disk = FaultyDisk::default();
    let mut next = 0;
    for _run in 0..2 {
        let mut journal = open(&disk).expect("a sound journal opens");
        assert_eq!(journal.next_position(HOST_SLOT).0, next);
        for _ in 0..60 {
            append(&mut journal, HOST_SLOT, next, 5);
            next += 5;
            journal.commit().expect("the disk is sound");
            journal.trim(HOST_SLOT, Position(next.saturating_sub(50)));
        }
        assert_eq!(journal.durable().0 + 1, journal.pending().0);
        journal.finish().expect("the disk is sound");
    }
    let first = open(&disk).expect("it opens").segments[0].generation;
    assert!(first.0 > 3, "segments were recycled: the first left is {first:?}");
    (disk, next)
}

// A batch torn at any byte must vanish silently and wholly; what was synced must stay, and the journal must go on.
#[test]
fn a_tail_torn_at_any_byte_is_truncated() {
    let (disk, next) = used_disk();
    let mut journal = open(&disk).expect("it opens");
    append(&mut journal, HOST_SLOT, next, 8);
    journal.commit().expect("the disk is sound");
    append(&mut journal, HOST_SLOT, next + 8, 40);
    disk.fail_syncs(Some(libc::EIO));
    journal.commit().expect_err("the sync fails");
    let bytes = disk.last_unsynced();
    assert!(bytes >= 8192, "the torn batch has several blocks: {bytes}");
    let mut whole = 0;
    for torn in 0..=bytes {
        let disk = disk.after_crash(|file, offset, written| {
            let retained = torn.min(written.len());
            file[offset..offset + retained].copy_from_slice(&written[..retained]);
        });
        let mut journal = open(&disk).expect("a torn tail is no error");
        let found = positions(&journal, HOST_SLOT);
        let last = *found.last().expect("there are synced records");
        assert!(last == next + 7 || last == next + 47, "torn at {torn}: up to {last}");
        whole += u64::from(last == next + 47);
        append(&mut journal, HOST_SLOT, last + 1, 2);
        journal.commit().expect("the disk is sound");
        if torn % 64 == 0 {
            let journal = open(&disk.copy()).expect("the repaired journal opens");
            assert_eq!(positions(&journal, HOST_SLOT).last(), Some(&(last + 2)), "torn at {torn}");
        }
    }
    assert!(whole > 0, "the whole batch is a batch");
}

// A file truncated by somebody else must be an error or cost nothing: it was written to its full length long ago.
#[test]
fn a_truncated_file_is_an_error_at_every_byte() {
    let (disk, next) = used_disk();
    let (mut errors, names) = (0, segments_of(&disk));
    let last = names.last().expect("there are segments");
    for name in [&names[0], last] {
        for length in (0..64 << 10).rev() {
            disk.edit(name, |bytes| bytes.truncate(length));
            match open_read_only(&disk) {
                Ok(journal) => assert_eq!(positions(&journal, HOST_SLOT).last(), Some(&(next - 1))),
                Err(JournalError::Damaged { .. }) => errors += 1,
                Err(error) => panic!("{length} bytes of {name}: {error}"),
            }
        }
        disk.edit(name, |bytes| bytes.resize(64 << 10, 0));
    }
    assert_eq!(errors, 2 * (64 << 10));
}

/// Opens a copy, so that the original stays as it is.
fn open_read_only(disk: &FaultyDisk) -> Result<Journal, JournalError> {
    recover::scan(disk, 5).and_then(|_| open(&disk.copy()))
}

// A flipped bit in what was synced must never lose or change a record in silence.
#[test]
fn ten_thousand_flipped_bits_are_found_or_do_no_harm() {
    let (disk, next) = used_disk();
    let expected = positions(&open_read_only(&disk).expect("it opens"), HOST_SLOT);
    assert_eq!(expected.last(), Some(&(next - 1)));
    let names = segments_of(&disk);
    let (mut rng, mut found, mut harmless) = (Rng::seeded(1), 0, 0);
    for _ in 0..10_000 {
        let name = rng.pick(&names).expect("there are files");
        let bit = rng.index((64 << 10) * 8);
        disk.edit(name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        match open_read_only(&disk) {
            Ok(journal) => {
                assert_eq!(positions(&journal, HOST_SLOT), expected, "bit {bit} of {name}");
                harmless += 1;
            }
            Err(error @ JournalError::Io { .. }) => panic!("bit {bit} of {name}: {error}"),
            Err(JournalError::Damaged { file, .. } | JournalError::NewerFormat { file, .. }) => {
                assert!(file.ends_with(name), "{} is blamed for {name}, bit {bit}", file.display());
                found += 1;
            }
        }
        disk.edit(name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
    }
    assert!(found > 1000 && harmless > 1000, "{found} found, {harmless} harmless");
}

/// Appends, commits and trims at random until the disk fails; returns what was durable and asked for, by slot.
struct Workload {
    next: BTreeMap<HostSlot, u64>,
    durable: BTreeMap<HostSlot, u64>,
    trimmed: BTreeMap<HostSlot, u64>,
}

fn run(disk: &FaultyDisk, rng: &mut Rng, steps: u64) -> (Workload, Option<JournalError>) {
    let mut work = Workload { next: BTreeMap::new(), durable: BTreeMap::new(), trimmed: BTreeMap::new() };
    let mut journal = match open(disk) {
        Ok(journal) => journal,
        Err(error) => return (work, Some(error)),
    };
    for host_slot in [HOST_SLOT, OTHER] {
        work.next.insert(host_slot, journal.next_position(host_slot).0);
    }
    for _ in 0..steps {
        let host_slot = if rng.chance(0.7) { HOST_SLOT } else { OTHER };
        let outcome = match rng.below(10) {
            0..6 => {
                let (next, count) = (work.next[&host_slot], {
                    let most = if rng.chance(0.05) { 400 } else { 20 };
                    rng.between(1, most)
                });
                append(&mut journal, host_slot, next, count);
                work.next.insert(host_slot, next + count);
                Ok(())
            }
            6 => journal.witness(),
            7 => {
                let before = work.durable.get(&host_slot).map_or(0, |durable| rng.below(durable + 1));
                journal.trim(host_slot, Position(before));
                let trimmed = work.trimmed.entry(host_slot).or_insert(0);
                *trimmed = before.max(*trimmed);
                Ok(())
            }
            _ => {
                let (mine, next) = (journal.pending(), work.next.clone());
                let outcome = journal.commit().map(|()| assert!(!journal.is_blocked()));
                // A commit that failed halfway may have confirmed something all the same.
                if journal.durable() >= mine {
                    work.durable = next;
                }
                outcome
            }
        };
        if let Err(error) = outcome {
            return (work, Some(error));
        }
    }
    (work, None)
}

/// After a crash at every operation of a run, with sectors of the last writes lost by chance: everything durable is there,
/// nothing wrong is, and the journal goes on. Includes crashes between the steps of preparing and recycling segments.
#[test]
fn a_crash_at_any_operation_loses_nothing_durable() {
    let (mut crashes, mut recycled) = (0, 0);
    for seed in 0..12 {
        let total = {
            let disk = FaultyDisk::default();
            run(&disk, &mut Rng::seeded(seed), 300);
            disk.operations()
        };
        for power in (0..total).step_by(5) {
            let disk = FaultyDisk::default();
            disk.power_off_after(power);
            let (work, error) = run(&disk, &mut Rng::seeded(seed), 300);
            assert!(error.is_some(), "the power failed at {power} of {total}");
            let mut rng = Rng::seeded(power as u64);
            let disk = disk.after_random_crash(&mut rng);
            let journal = open(&disk).unwrap_or_else(|error| panic!("seed {seed} power {power}: {error}"));
            recycled += u64::from(journal.segments[0].generation.0 > 1);
            for host_slot in [HOST_SLOT, OTHER] {
                let found = positions(&journal, host_slot);
                let durable = work.durable.get(&host_slot).copied().unwrap_or(0);
                let trimmed = work.trimmed.get(&host_slot).copied().unwrap_or(0);
                let end = journal.next_position(host_slot).0;
                assert!(end >= durable, "seed {seed} power {power}: {end} of {durable} durable records");
                let first = found.first().copied().unwrap_or(end);
                assert!(first <= trimmed, "seed {seed} power {power}: begins at {first}, not {trimmed}");
                assert!(
                    found.iter().copied().eq(first..end),
                    "seed {seed} power {power}: a hole in {found:?}"
                );
            }
            drop(journal);
            let (_, error) = run(&disk, &mut Rng::seeded(seed + 100), 50);
            assert!(error.is_none(), "seed {seed} power {power}: goes on, but {error:?}");
            crashes += 1;
        }
    }
    assert!(crashes > 500 && recycled > 50, "{crashes} crashes, {recycled} with recycled segments");
}

// After a failed write or sync nothing may be confirmed any more, whatever the disk says later.
#[test]
fn after_a_failed_sync_nothing_is_confirmed() {
    for (writes, syncs) in [(Some(libc::EIO), None), (None, Some(libc::EIO)), (None, Some(libc::ENOSPC))] {
        let disk = FaultyDisk::default();
        let mut journal = open(&disk).expect("it opens");
        append(&mut journal, HOST_SLOT, 0, 3);
        journal.commit().expect("the disk is sound");
        let durable = journal.durable();
        append(&mut journal, HOST_SLOT, 3, 3);
        disk.fail_writes(writes);
        disk.fail_syncs(syncs);
        let error = journal.commit().expect_err("the disk fails");
        assert!(error.to_string().contains("segment-0000000000000001"), "{error}");
        disk.fail_writes(None);
        disk.fail_syncs(None);
        append(&mut journal, HOST_SLOT, 6, 3);
        for _ in 0..3 {
            journal.commit().expect("does nothing");
            journal.retry().expect("does nothing");
            journal.finish().expect("does nothing");
        }
        assert_eq!(journal.durable(), durable);
        let reopened = open(&disk.after_crash(|_, _, _| {})).expect("it opens");
        assert_eq!(positions(&reopened, HOST_SLOT), [0, 1, 2]);
    }
}

// A full disk must stop the journal without an error, lose nothing, and be forgotten when there is space again.
#[test]
fn a_full_disk_holds_records_until_there_is_space() {
    let disk = FaultyDisk::default();
    disk.limit_space(Some(2 * OPTIONS.segment_bytes as usize));
    let mut journal = open(&disk).expect("two segments fit");
    let mut next = 0;
    while !journal.is_blocked() {
        append(&mut journal, HOST_SLOT, next, 5);
        next += 5;
        journal.commit().expect("a full disk is no error");
        assert!(next < 10_000, "never blocked");
    }
    assert!(journal.is_disk_full() && journal.staged_bytes() > 0 && journal.durable() < journal.pending());
    let held = journal.durable();
    journal.retry().expect("still full");
    assert_eq!(journal.durable(), held);
    disk.limit_space(None);
    journal.retry().expect("there is space");
    assert!(!journal.is_blocked() && !journal.is_disk_full() && journal.staged_bytes() == 0);
    assert!(journal.durable() > held);
    journal.finish().expect("the disk is sound");
    let reopened = open(&disk).expect("it opens");
    assert_eq!(positions(&reopened, HOST_SLOT).len() as u64, next);
}

// A host without a file descriptor for its next segment took its journal for damaged, and stopped for good.
#[test]
fn want_of_descriptors_holds_records_until_there_are_some() {
    for (errno, wanted) in [
        (libc::EMFILE, Shortage::Files),
        (libc::ENFILE, Shortage::FilesOfSystem),
        (libc::ENOMEM, Shortage::Memory),
    ] {
        let disk = FaultyDisk::default();
        let mut journal = open(&disk).expect("it opens");
        disk.fail_opens(Some(errno));
        let mut next = 0;
        while !journal.is_blocked() {
            append(&mut journal, HOST_SLOT, next, 5);
            next += 5;
            journal.commit().expect("want of descriptors is no error of the disk");
            assert!(next < 10_000, "never blocked");
        }
        assert_eq!(journal.shortage(), Some(wanted));
        journal.retry().expect("still short");
        assert!(journal.is_blocked());
        disk.fail_opens(None);
        journal.retry().expect("there are some again");
        assert!(!journal.is_blocked() && journal.shortage().is_none());
        journal.finish().expect("the disk is sound");
        assert_eq!(positions(&open(&disk).expect("it opens"), HOST_SLOT).len() as u64, next);
    }
}

// Some file systems allocate even when blocks are overwritten: a write without room is repeated, not given up.
#[test]
fn a_write_without_room_is_repeated() {
    let disk = FaultyDisk::default();
    let mut journal = open(&disk).expect("it opens");
    append(&mut journal, HOST_SLOT, 0, 3);
    disk.fail_writes(Some(libc::ENOSPC));
    journal.commit().expect("a full disk is no error");
    assert!(journal.is_blocked() && journal.is_disk_full());
    disk.fail_writes(None);
    append(&mut journal, HOST_SLOT, 3, 3);
    journal.retry().expect("there is space");
    journal.finish().expect("the disk is sound");
    assert_eq!(positions(&open(&disk).expect("it opens"), HOST_SLOT), [0, 1, 2, 3, 4, 5]);
}

// Space must come back after a trim, but not before the trim itself is on the disk.
#[test]
fn trimmed_segments_are_used_again() {
    let disk = FaultyDisk::default();
    let mut journal = open(&disk).expect("it opens");
    for first in (0..4000).step_by(10) {
        append(&mut journal, HOST_SLOT, first, 10);
        journal.commit().expect("the disk is sound");
        journal.trim(HOST_SLOT, Position(first));
    }
    assert!(journal.tail().generation.0 > 8, "{:?} segments were written", journal.tail().generation);
    let files = disk.file_names().len();
    assert!(files <= 6, "{files} files are left");
    append(&mut journal, OTHER, 0, 1);
    journal.commit().expect("the disk is sound");
    journal.finish().expect("the disk is sound");
    let mut journal = open(&disk).expect("it opens");
    assert_eq!(positions(&journal, HOST_SLOT), (3990..4000).collect::<Vec<_>>());
    // All of one slot is trimmed and its segments go: its position must go on all the same.
    journal.trim(HOST_SLOT, Position(4000));
    for first in (1..2001).step_by(10) {
        append(&mut journal, OTHER, first, 10);
        journal.commit().expect("the disk is sound");
    }
    journal.finish().expect("the disk is sound");
    let journal = open(&disk).expect("it opens");
    assert_eq!((journal.next_position(HOST_SLOT), positions(&journal, HOST_SLOT).len()), (Position(4000), 0));
}

// A slot that appends once and is silent must not hold up what all others have trimmed: the journal would grow for ever. What it said
// must come back, and a segment that is gone with records that are needed must be missed.
#[test]
fn a_slot_that_writes_nothing_holds_up_its_own_segment_only() {
    let disk = FaultyDisk::default();
    let mut journal = open(&disk).expect("it opens");
    append(&mut journal, OTHER, 0, 2);
    for run in 0..3 {
        for first in (run * 4000..(run + 1) * 4000).step_by(10) {
            append(&mut journal, HOST_SLOT, first, 10);
            journal.commit().expect("the disk is sound");
            journal.trim(HOST_SLOT, Position(first));
        }
        journal.finish().expect("the disk is sound");
        assert!(journal.tail().generation.0 > 8, "{:?} segments were written", journal.tail().generation);
        let files = disk.file_names().len();
        assert!(files <= 7, "{files} files are left");
        journal = open(&disk).expect("it opens");
        assert_eq!(positions(&journal, OTHER), [0, 1]);
        let last = (run + 1) * 4000;
        assert_eq!(positions(&journal, HOST_SLOT), (last - 10..last).collect::<Vec<_>>());
    }
    let needed = FaultyDisk::default();
    let mut journal = open(&needed).expect("it opens");
    for first in (0..3000).step_by(10) {
        append(&mut journal, HOST_SLOT, first, 10);
        journal.commit().expect("the disk is sound");
    }
    journal.finish().expect("the disk is sound");
    let names = needed.file_names();
    for name in &names[1..names.len() - 2] {
        let holed = needed.copy();
        holed.remove(name).expect("it is there");
        let error = open(&holed).err().expect("refused").to_string();
        assert!(error.contains("of slot 7 are missing"), "{name}: {error}");
    }
}

// A journal of a later version, of another directory, or with a segment missing must be refused in so many words.
#[test]
fn what_is_not_ours_is_refused() {
    let (disk, _) = used_disk();
    let names = segments_of(&disk);
    let newer = disk.copy();
    newer.edit(&names[0], |bytes| bytes[8] = 2);
    let error = open(&newer).err().expect("refused").to_string();
    assert!(error.contains("has format 2; this version reads up to 1"), "{error}");
    let error = recover::scan(&disk, 6).err().expect("refused").to_string();
    assert!(error.contains("belongs to another data directory"), "{error}");
    let holed = disk.copy();
    holed.remove(&names[1]).expect("it is there");
    let error = open(&holed).err().expect("refused").to_string();
    assert!(error.contains("the segment is missing"), "{error}");
    let untrimmed = FaultyDisk::default();
    let mut journal = open(&untrimmed).expect("it opens");
    for first in (0..1000).step_by(10) {
        append(&mut journal, HOST_SLOT, first, 10);
        journal.commit().expect("the disk is sound");
    }
    untrimmed.remove(&segments_of(&untrimmed)[0]).expect("it is there");
    let error = open(&untrimmed).err().expect("refused").to_string();
    assert!(error.contains("of slot 7 are missing"), "{error}");
}

// The thread that syncs must give the same promises in the same order.
#[test]
fn a_thread_syncs_as_the_caller_does() {
    let disk = FaultyDisk::default();
    let (woken, wakes) = std::sync::mpsc::channel();
    let notify: Arc<dyn Fn() + Send + Sync> = Arc::new(move || _ = woken.send(()));
    let options = JournalOptions { placement: FsyncPlacement::Thread, prepare_inline: false, ..OPTIONS };
    let mut journal = Journal::open(Arc::new(disk.clone()), options, 5, notify).expect("it opens");
    let mut durable = journal.durable();
    for first in (0..2000).step_by(10) {
        append(&mut journal, HOST_SLOT, first, 10);
        let mine = journal.pending();
        journal.commit().expect("the disk is sound");
        while journal.durable() < mine {
            wakes.recv().expect("the threads live as long as the journal");
            journal.poll().expect("the disk is sound");
            assert!(journal.durable() >= durable);
            durable = journal.durable();
        }
        let seen = open(&disk.after_crash(|_, _, _| {})).expect("it opens");
        assert_eq!(seen.next_position(HOST_SLOT).0, first + 10, "confirmed before it was synced");
    }
}

// Who looks at a journal must see what recovery sees, and leave every byte as it was: damage is evidence.
#[test]
fn a_survey_reports_what_recovery_does_and_changes_nothing() {
    let (disk, next) = used_disk();
    let survey = Survey::of(&disk, 5);
    assert!(survey.outcome.is_ok(), "{:?}", survey.outcome);
    let host_slot = survey.host_slots().find(|it| it.host_slot == HOST_SLOT).expect("it has appended");
    assert_eq!((host_slot.trimmed.0, host_slot.next.0), (next - 50, next));
    let segments = survey.segments();
    let states: Vec<SegmentState> = segments.iter().map(|segment| segment.state).collect();
    assert!(states.contains(&SegmentState::Tail), "{states:?}");
    assert!(segments.iter().all(|segment| !segment.torn), "{segments:?}");
    let mut found = 0;
    let replayed = survey.replay(|_, position, bytes| {
        assert_eq!(bytes, content(HOST_SLOT, position));
        found += 1;
        Ok::<(), ()>(())
    });
    assert!(matches!(replayed, Ok(Ok(()))) && found == 50, "{found} records: {replayed:?}");

    let first = segment_name_of(&segments[0]);
    let damaged = disk.copy();
    damaged.edit(&first, |bytes| bytes[2 * 4096 + 70] ^= 1);
    let survey = Survey::of(&damaged, 5);
    let said = survey.outcome.as_ref().expect_err("a flipped bit is found").to_string();
    assert!(said.contains(&first) && said.contains("is damaged at byte"), "{said}");
}

fn segment_name_of(segment: &SegmentSurvey) -> String {
    segment.file.file_name().expect("a segment has a name").to_string_lossy().into_owned()
}

fn segments_of(disk: &FaultyDisk) -> Vec<String> {
    let names = disk.file_names();
    names.into_iter().filter(|name| name.starts_with("segment-")).collect()
}

// A host whose newest segments are gone votes as if it had never acknowledged what they held.
#[test]
fn newest_segments_that_are_gone_are_missed() {
    for stops in [false, true] {
        let (disk, next) = used_disk();
        let mut journal = open(&disk).expect("it opens");
        append(&mut journal, HOST_SLOT, next, 300);
        journal.commit().expect("the disk is sound");
        if stops {
            journal.finish().expect("it is sound");
            journal.close().expect("there is room");
        }
        drop(journal);
        let whole = segments_of(&disk);
        for gone in 1..=whole.len() {
            let disk = disk.copy();
            whole.iter().rev().take(gone).for_each(|name| disk.remove(name).expect("it is there"));
            let error =
                open(&disk).err().unwrap_or_else(|| panic!("{gone} of {whole:?} are gone, and it opens"));
            assert!(error.to_string().contains("missing"), "{error}");
            let survey = Survey::of(&disk, 5);
            assert!(survey.outcome.is_err(), "a survey of what a start refuses finds it sound");
        }
        open(&disk).expect("all are there");
    }
}

// After a clean stop nothing is torn: what is not there any more was acknowledged.
#[test]
fn the_end_of_a_clean_stop_is_proved() {
    let (disk, next) = used_disk();
    let mut journal = open(&disk).expect("it opens");
    append(&mut journal, HOST_SLOT, next, 8);
    journal.commit().expect("the disk is sound");
    journal.finish().expect("the disk is sound");
    journal.close().expect("there is room");
    let (name, end) = (format::segment_name(journal.tail().generation), journal.tail().end as usize);
    drop(journal);
    // The batch and its witness: nothing behind them vouches for either.
    for blocks in 1..=2 {
        let disk = disk.copy();
        disk.edit(&name, |bytes| bytes[end - blocks * 4096..end].fill(0));
        let error = open(&disk).err().expect("the end is gone");
        assert!(error.to_string().contains("synced up to"), "{error}");
    }
    open(&disk).expect("all is there");
}

// A journal of the version before says nothing of its end, and must start; from then on it does.
#[test]
fn a_journal_without_an_extent_gets_one() {
    let (disk, next) = used_disk();
    disk.remove(extent::EXTENT).expect("it is there");
    let mut journal = open(&disk).expect("it is of an older version");
    assert_eq!(journal.next_position(HOST_SLOT).0, next);
    journal.close().expect("there is room");
    drop(journal);
    let newest = segments_of(&disk).pop().expect("there are segments");
    disk.remove(&newest).expect("it is there");
    assert!(open(&disk).is_err());
}

// A host that stops on a full disk must not miss the segment that it could not prepare.
#[test]
fn what_was_never_prepared_is_not_missed() {
    let (disk, mut next) = used_disk();
    let mut journal = open(&disk).expect("it opens");
    disk.limit_space(Some(0));
    for _ in 0..200 {
        append(&mut journal, HOST_SLOT, next, 5);
        next += 5;
        journal.commit().expect("a full disk is no failure");
        if journal.is_disk_full() {
            break;
        }
    }
    assert!(journal.is_disk_full());
    disk.limit_space(None);
    journal.close().expect("there is room again");
    drop(journal);
    open(&disk).expect("nothing is missing");
}
