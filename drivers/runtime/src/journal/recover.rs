//! Opening a journal: finds the last batch that counts, and distinguishes a torn tail from damage.

use super::JournalError;
use super::extent::Extent;
use super::format::{
    BATCH_HEADER_BYTES, Batch, Entry, Generation, HeaderError, Mark, SegmentHeader, batch_at, begins_batch,
    each_entry, generation_of, segment_name,
};
use crate::direct::BLOCK_BYTES;
use crate::disk::{Disk, DiskFile};
use kernel::{HostSlot, Position};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a slot stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stand {
    /// Records before it are not needed.
    pub(crate) trimmed: Position,
    /// The first record still on disk.
    pub(crate) available: Position,
    /// The next record's position.
    pub(crate) next: Position,
}

/// A segment with what its records reach up to.
pub(crate) struct Segment {
    pub(crate) generation: Generation,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
    /// The end of the last batch that counts.
    pub(crate) end: u64,
    /// For each slot with records here, the position after the last.
    pub(crate) ends: BTreeMap<HostSlot, Position>,
}

/// What the batches of a segment that count hold, for those who only look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// Behind the last batch that counts stands one that was begun, and that nothing vouches for.
    pub(crate) torn: bool,
}

#[derive(Default)]
pub(crate) struct Scan {
    /// In order; the last is the one to go on writing. Empty for a new journal.
    pub(crate) segments: Vec<Segment>,
    /// For each segment that was read, the unused ones included.
    pub(crate) contents: Vec<Contents>,
    /// The segment prepared to follow.
    pub(crate) prepared: Option<Segment>,
    /// Segments that nothing refers to.
    pub(crate) surplus: Vec<Generation>,
    pub(crate) host_slots: BTreeMap<HostSlot, Stand>,
    /// The last batch's checksum and number, if there is a batch.
    pub(crate) last: Option<(u32, u64)>,
    /// How far the journal must reach; none where no version has said so yet.
    pub(crate) extent: Option<Extent>,
}

/// The disk is asked for so many segments before they are read, so that it works while the last one is looked at.
const READ_AHEAD: usize = 4;

/// What is being read, for messages.
struct At<'a> {
    disk: &'a dyn Disk,
    incarnation: u128,
    generation: Generation,
}

impl At<'_> {
    fn file(&self) -> PathBuf {
        self.disk.path_of(&segment_name(self.generation))
    }

    fn damaged(&self, offset: u64, cause: impl Into<String>) -> JournalError {
        JournalError::Damaged { file: self.file(), offset, cause: cause.into() }
    }

    fn io(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> JournalError {
        let file = self.file();
        move |source| JournalError::Io { action, file, source }
    }
}

/// Reads the whole journal once, one segment in memory at a time.
pub(crate) fn scan(disk: &dyn Disk, incarnation: u128) -> Result<Scan, JournalError> {
    let mut scan = Scan::default();
    scan_into(&mut scan, disk, incarnation)?;
    Ok(scan)
}

/// The same, leaving in `scan` what was read before an error.
pub(crate) fn scan_into(scan: &mut Scan, disk: &dyn Disk, incarnation: u128) -> Result<(), JournalError> {
    let directory = disk.path_of("");
    let names = disk.names().map_err(|source| JournalError::Io {
        action: "list",
        file: directory.clone(),
        source,
    })?;
    let mut generations: Vec<Generation> = names.iter().filter_map(|name| generation_of(name)).collect();
    generations.sort_unstable();
    scan.extent = Extent::read(disk, incarnation)?;
    let mut walk = Walk::default();
    if let Some(extent) = &scan.extent {
        walk.vouch(extent.durable);
    }
    let mut content = Vec::new();
    let read_soon = |index: usize| {
        let segment =
            generations.get(index).and_then(|&generation| disk.open(&segment_name(generation)).ok());
        segment.inspect(|segment| segment.read_soon());
    };
    (1..READ_AHEAD).for_each(read_soon);
    for (index, &generation) in generations.iter().enumerate() {
        read_soon(index + READ_AHEAD);
        let at = At { disk, incarnation, generation };
        let missing = (index > 0)
            .then(|| Generation(generations[index - 1].0 + 1))
            .filter(|&expected| expected != generation)
            .map(|generation| At { disk, incarnation, generation });
        let file = disk.open(&segment_name(generation)).map_err(at.io("open"))?;
        let bytes = read_segment(&at, &*file, &mut content)?;
        let mut segment = Segment { generation, file, bytes, end: BLOCK_BYTES as u64, ends: BTreeMap::new() };
        walk.after_gap = missing.is_some();
        let contents = walk.segment(&at, &content, &mut segment, &mut scan.host_slots)?;
        if let Some(missing) = missing.filter(|_| contents.batches == 0) {
            return Err(missing.damaged(0, "the segment is missing"));
        }
        scan.segments.push(segment);
        scan.contents.push(contents);
    }
    walk.check_evidence(disk, incarnation, &scan.segments)?;
    check_extent(disk, incarnation, scan.extent, generations.last().copied())?;
    scan.last = walk.last;
    split_off_unused(scan, walk.tail);
    for (host_slot, stand) in &scan.host_slots {
        if stand.trimmed < stand.available {
            let cause = format!(
                "records {} to {} of slot {} are missing",
                stand.trimmed.0, stand.available.0, host_slot.0
            );
            return Err(JournalError::Damaged { file: directory, offset: 0, cause });
        }
    }
    Ok(())
}

/// Calls `visit` with every record that is still needed, in the order they were appended.
pub(crate) fn replay<E>(
    disk: &dyn Disk,
    incarnation: u128,
    segments: &[&Segment],
    host_slots: &BTreeMap<HostSlot, Stand>,
    mut visit: impl FnMut(HostSlot, Position, &[u8]) -> Result<(), E>,
) -> Result<Result<(), E>, JournalError> {
    let mut content = Vec::new();
    let is_needed = |(host_slot, end): (&HostSlot, &Position)| {
        host_slots.get(host_slot).is_some_and(|stand| stand.trimmed < *end)
    };
    for segment in segments.iter().filter(|segment| segment.ends.iter().any(is_needed)) {
        let at = At { disk, incarnation, generation: segment.generation };
        content.resize(segment.end as usize, 0);
        let read = segment.file.read(0, &mut content).map_err(at.io("read"))?;
        let mut offset = BLOCK_BYTES;
        while (offset as u64) < segment.end {
            let batch = batch_at(&content[..read], incarnation, segment.generation, offset)
                .ok_or_else(|| at.damaged(offset as u64, "a batch changed between two reads"))?;
            let mut refused = None;
            each_entry(
                &content[batch.payload.clone()],
                |cause| at.damaged(offset as u64, cause),
                |entry| {
                    if let Entry::Record { host_slot, position, bytes } = entry
                        && refused.is_none()
                        && host_slots.get(&host_slot).is_some_and(|stand| position >= stand.trimmed)
                    {
                        refused = visit(host_slot, position, bytes).err();
                    }
                    Ok(())
                },
            )?;
            if let Some(refused) = refused {
                return Ok(Err(refused));
            }
            offset = batch.payload.end.next_multiple_of(BLOCK_BYTES);
        }
    }
    Ok(Ok(()))
}

/// Fills `content` with the segment and returns its length as the header has it.
fn read_segment(at: &At<'_>, file: &dyn DiskFile, content: &mut Vec<u8>) -> Result<u64, JournalError> {
    let bytes = file.bytes().map_err(at.io("measure"))?;
    content.resize(bytes as usize, 0);
    let read = file.read(0, content).map_err(at.io("read"))?;
    content.truncate(read);
    let header = SegmentHeader::decode(content).map_err(|error| match error {
        HeaderError::Newer(found) => JournalError::NewerFormat { file: at.file(), found },
        HeaderError::Damaged => at.damaged(0, "the segment's header is damaged"),
    })?;
    if header.generation != at.generation {
        return Err(at.damaged(0, format!("the header says segment {}", header.generation.0)));
    }
    if header.incarnation != at.incarnation {
        return Err(at.damaged(0, "the segment belongs to another data directory"));
    }
    if header.bytes > content.len() as u64 {
        let cause = format!("the file ends here, but was written with {} bytes", header.bytes);
        return Err(at.damaged(content.len() as u64, cause));
    }
    content.truncate(header.bytes as usize);
    Ok(header.bytes)
}

/// Follows the chain of batches through the segments, and collects what later batches vouch for.
#[derive(Default)]
struct Walk {
    /// The last batch of the chain.
    last: Option<(u32, u64)>,
    /// The index of the segment in which it stands.
    tail: usize,
    segments: usize,
    /// Segments before this one are gone. Its first batch, which says where every slot stands, shows whether anything of them is needed.
    after_gap: bool,
    /// For each generation that a batch vouches for, how far it was synced at least.
    evidence: BTreeMap<Generation, u64>,
}

impl Walk {
    fn segment(
        &mut self,
        at: &At<'_>,
        content: &[u8],
        segment: &mut Segment,
        host_slots: &mut BTreeMap<HostSlot, Stand>,
    ) -> Result<Contents, JournalError> {
        let index = self.segments;
        self.segments += 1;
        let mut contents = Contents::default();
        let mut offset = BLOCK_BYTES;
        while offset < content.len() {
            let Some(batch) = batch_at(content, at.incarnation, at.generation, offset) else { break };
            let after_gap = std::mem::take(&mut self.after_gap);
            if !after_gap && !self.continues(&batch) {
                break;
            }
            each_entry(
                &content[batch.payload.clone()],
                |cause| at.damaged(offset as u64, cause),
                |entry| {
                    contents.records += u64::from(matches!(entry, Entry::Record { .. }));
                    enter(entry, after_gap, host_slots, &mut segment.ends)
                        .map_err(|cause| at.damaged(offset as u64, cause))
                },
            )?;
            contents.batches += 1;
            self.vouch(batch.header.durable);
            self.last = Some((batch.crc, batch.header.number));
            self.tail = index;
            offset = batch.payload.end.next_multiple_of(BLOCK_BYTES);
        }
        segment.end = offset as u64;
        contents.torn = begins_batch(content, at.generation, offset);
        // Behind the chain's end: nothing counts, but whatever stands whole says what was synced before it.
        while offset + BATCH_HEADER_BYTES <= content.len() {
            if let Some(batch) = batch_at(content, at.incarnation, at.generation, offset) {
                self.vouch(batch.header.durable);
                contents.torn = true;
            }
            offset += BLOCK_BYTES;
        }
        Ok(contents)
    }

    fn continues(&self, batch: &Batch) -> bool {
        self.last.is_none_or(|(crc, number)| batch.header.chain == crc && batch.header.number == number + 1)
    }

    fn vouch(&mut self, durable: Mark) {
        let synced = self.evidence.entry(durable.generation).or_insert(0);
        *synced = durable.offset.max(*synced);
    }

    fn check_evidence(
        &self,
        disk: &dyn Disk,
        incarnation: u128,
        segments: &[Segment],
    ) -> Result<(), JournalError> {
        for segment in segments {
            let at = At { disk, incarnation, generation: segment.generation };
            let synced = self.evidence.get(&segment.generation).copied().unwrap_or(0);
            if synced > segment.end {
                let cause =
                    format!("the batch here is damaged, though the journal was synced up to {synced}");
                return Err(at.damaged(segment.end, cause));
            }
        }
        Ok(())
    }
}

/// The segments that were prepared last may have held what was acknowledged: if they are not there, nobody can decide.
fn check_extent(
    disk: &dyn Disk,
    incarnation: u128,
    extent: Option<Extent>,
    last: Option<Generation>,
) -> Result<(), JournalError> {
    let Some(generation) = extent.map(|extent| extent.prepared).filter(|&prepared| Some(prepared) > last)
    else {
        return Ok(());
    };
    let missing = At { disk, incarnation, generation };
    Err(missing.damaged(0, "the segment is missing, and with it perhaps the end of the journal"))
}

fn enter(
    entry: Entry<'_>,
    after_gap: bool,
    host_slots: &mut BTreeMap<HostSlot, Stand>,
    ends: &mut BTreeMap<HostSlot, Position>,
) -> Result<(), String> {
    match entry {
        Entry::Record { host_slot, position, .. } => {
            let stand = host_slots.entry(host_slot).or_insert(Stand {
                trimmed: Position(0),
                available: position,
                next: position,
            });
            if position != stand.next {
                return Err(format!(
                    "slot {} goes on at record {} instead of {}",
                    host_slot.0, position.0, stand.next.0
                ));
            }
            stand.next = Position(position.0.saturating_add(1));
            ends.insert(host_slot, stand.next);
        }
        Entry::Trim { host_slot, before } => {
            let stand = host_slots.entry(host_slot).or_default();
            stand.trimmed = stand.trimmed.max(before);
        }
        Entry::Stand { host_slot, trimmed, next } => {
            let stand = host_slots.entry(host_slot).or_insert(Stand { trimmed, available: next, next });
            if after_gap && next > stand.next {
                // What it appended in between is gone: an error in the end, unless it is trimmed.
                (stand.available, stand.next) = (next, next);
            }
            if next != stand.next {
                return Err(format!(
                    "slot {} stands at record {} instead of {}",
                    host_slot.0, next.0, stand.next.0
                ));
            }
            stand.trimmed = stand.trimmed.max(trimmed);
        }
    }
    Ok(())
}

/// Takes the segments behind the tail out of the row.
fn split_off_unused(scan: &mut Scan, tail: usize) {
    let mut unused = scan.segments.split_off((tail + 1).min(scan.segments.len())).into_iter();
    scan.prepared = unused.next();
    scan.surplus = unused.map(|segment| segment.generation).collect();
}
