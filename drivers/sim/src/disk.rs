//! The journal of one host as bytes on a disk: framed records, one write per burst, and what a crash leaves of them.
//!
//! `length: u32 | crc32c: u32 | slot: u32 | position: u64 | record`; the length counts slot, position and record. Like
//! the real journal it truncates a torn tail at the first bad frame. Unlike the real one it knows what was durable, so it
//! reports every bad frame before that as corruption, whatever follows it.

use crate::draw::{mix, unit};
use crate::files::Files;
use crate::plan::Loss;
use kernel::{HostSlot, Position, planted};
use std::collections::{BTreeMap, VecDeque};

const FRAME_HEADER_BYTES: usize = 8;
const RECORD_HEADER_BYTES: usize = 12;
/// Of so many disks that rot, one loses the end of its journal.
const LOSES_ITS_END: u64 = 4;
/// Half of those lose no more than so many records.
const NEWEST: usize = 20;
/// Trimmed records are dropped from the disk when they may have come to this much, or half of it.
const COMPACT_ABOVE_BYTES: u64 = 64 << 10;

/// Where a frame stands. Offsets count from the first byte ever written.
#[derive(Clone, Copy, Debug)]
struct Frame {
    offset: u64,
    length: u32,
    host_slot: HostSlot,
    position: Position,
}

impl Frame {
    fn end(self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// A write whose landing the next sync gets wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misdirection {
    draw: u64,
}

/// A durable record cannot be read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Corrupt {
    pub(crate) host_slot: HostSlot,
    pub(crate) position: Position,
}

/// One host's journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    bytes: Vec<u8>,
    base: u64,
    frames: VecDeque<Frame>,
    durable: u64,
    /// Ends of the unsynced writes.
    writes: VecDeque<u64>,
    trims: BTreeMap<HostSlot, Position>,
    compacted_at: u64,
    misdirection: Option<Misdirection>,
    /// What nodes keep beside the journal.
    pub(crate) blobs: Files,
}

impl Disk {
    /// Where the next byte goes.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Everything before is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// How many bytes were written and not synced.
    pub(crate) fn unsynced(&self) -> u64 {
        self.end() - self.durable
    }

    /// Appends one record to the open write.
    pub(crate) fn append(&mut self, host_slot: HostSlot, position: Position, record: &[u8]) {
        let offset = self.end();
        let body = RECORD_HEADER_BYTES + record.len();
        self.bytes.extend_from_slice(&(body as u32).to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&host_slot.0.to_le_bytes());
        self.bytes.extend_from_slice(&position.0.to_le_bytes());
        self.bytes.extend_from_slice(record);
        let checksum = crc32c::crc32c(&self.bytes[start..]);
        self.bytes[start - 4..start].copy_from_slice(&checksum.to_le_bytes());
        let length = (FRAME_HEADER_BYTES + body) as u32;
        self.frames.push_back(Frame { offset, length, host_slot, position });
    }

    /// Ends the open write.
    pub(crate) fn end_write(&mut self) {
        let end = self.end();
        if self.writes.back().copied().unwrap_or(self.durable) < end {
            self.writes.push_back(end);
        }
    }

    /// A sync that covers everything before `target` has returned.
    pub(crate) fn synced(&mut self, target: u64) {
        if let Some(misdirection) = self.misdirection.take_if(|_| target > self.durable) {
            self.misdirect(misdirection, target);
        }
        self.durable = self.durable.max(target);
        while self.writes.front().is_some_and(|&end| end <= target) {
            self.writes.pop_front();
        }
        if self.end() - self.base > self.compacted_at + COMPACT_ABOVE_BYTES {
            self.compact();
        }
    }

    /// The sound records that lie in `after..through`, in order: what a sync, or a restart, has just made durable.
    pub(crate) fn records_between(
        &self,
        after: u64,
        through: u64,
    ) -> impl Iterator<Item = (HostSlot, Position, &[u8])> {
        let begin = self.frames.partition_point(|frame| frame.end() <= after);
        let new = self.frames.range(begin..).take_while(move |frame| frame.end() <= through);
        new.filter_map(|&frame| Some((frame.host_slot, frame.position, self.read(frame)?)))
    }

    /// The records of `slot` before `before` will not be asked for again.
    pub(crate) fn trim(&mut self, host_slot: HostSlot, before: Position) {
        let trim = self.trims.entry(host_slot).or_default();
        *trim = before.max(*trim);
    }

    fn trimmed(&self, frame: Frame) -> bool {
        self.trims.get(&frame.host_slot).is_some_and(|&before| frame.position < before)
    }

    /// Drops trimmed frames from the disk, byte for byte as they are, the corrupt ones with them.
    fn compact(&mut self) {
        let mut retained = Vec::with_capacity(self.bytes.len() / 2);
        let mut frames = VecDeque::with_capacity(self.frames.len() / 2);
        let unsynced = self.unsynced();
        for &frame in &self.frames {
            if frame.end() <= self.durable && self.trimmed(frame) {
                continue;
            }
            let start = (frame.offset - self.base) as usize;
            frames.push_back(Frame { offset: retained.len() as u64, ..frame });
            retained.extend_from_slice(&self.bytes[start..start + frame.length as usize]);
        }
        // Offsets go on growing, so that what waits for one is not released early.
        self.base = self.end() - retained.len() as u64;
        for frame in &mut frames {
            frame.offset += self.base;
        }
        debug_assert_eq!(self.durable + unsynced, self.base + retained.len() as u64);
        (self.bytes, self.frames) = (retained, frames);
        self.compacted_at = self.bytes.len() as u64;
    }

    /// The machine or the process stops: what of the unsynced writes survives? True if there were any and not all did.
    pub(crate) fn crash(&mut self, loss: Loss, draw: u64) -> bool {
        self.misdirection = None;
        let unsynced = self.unsynced();
        let start = (self.durable - self.base) as usize;
        let damaged = match loss {
            Loss::None => false,
            Loss::All => {
                self.bytes.truncate(start);
                unsynced > 0
            }
            Loss::Torn => {
                let survive = (unit(draw) * unsynced as f64) as usize;
                self.bytes.truncate(start + survive);
                unsynced > 0
            }
            Loss::Reordered => self.lose_some_writes(draw),
        };
        self.writes.clear();
        damaged
    }

    /// Loses each unsynced write with probability 1/2: a hole of zeros where it was, or a shorter file.
    fn lose_some_writes(&mut self, draw: u64) -> bool {
        let (mut start, mut survivors_end, mut lost) = (self.durable, self.durable, false);
        for (number, &end) in self.writes.iter().enumerate() {
            if mix(draw, number as u64) & 1 == 0 {
                let range = (start - self.base) as usize..(end - self.base) as usize;
                self.bytes[range].fill(0);
                lost = true;
            } else {
                survivors_end = end;
            }
            start = end;
        }
        // What the open write of an unfinished burst held never reached the disk.
        lost |= survivors_end < self.end();
        self.bytes.truncate((survivors_end - self.base) as usize);
        lost
    }

    /// Flips one durable bit, or takes the journal's end away, as when its newest segments are deleted or an old copy is put in its
    /// slot; false if nothing is durable.
    pub(crate) fn rot(&mut self, draw: u64) -> bool {
        let bits = (self.durable - self.base) * 8;
        if bits == 0 {
            return false;
        }
        if mix(draw, 1).is_multiple_of(LOSES_ITS_END) {
            return self.lose_end(mix(draw, 2));
        }
        let bit = ((u128::from(draw) * u128::from(bits)) >> 64) as usize;
        self.bytes[bit / 8] ^= 1 << (bit % 8);
        true
    }

    /// What is left is sound in itself.
    fn lose_end(&mut self, draw: u64) -> bool {
        let durable = self.frames.iter().take_while(|frame| frame.end() <= self.durable).count();
        let share = if draw & 1 == 0 { durable } else { durable.min(NEWEST) };
        let Some(frame) = durable.checked_sub(1 + (mix(draw, 3) as usize) % share.max(1)) else {
            return false;
        };
        let from = (self.frames[frame].offset - self.base) as usize;
        self.bytes[from..].fill(0);
        true
    }

    /// The next synced write will not be where it should be.
    pub(crate) fn misdirect_next(&mut self, draw: u64) {
        self.misdirection = Some(Misdirection { draw });
    }

    /// Calls off a misdirection that still waits; true if there was one.
    pub(crate) fn disarm(&mut self) -> bool {
        self.misdirection.take().is_some()
    }

    /// Whether a misdirection still waits for its write.
    pub(crate) fn misdirection_waits(&self) -> bool {
        self.misdirection.is_some()
    }

    fn misdirect(&mut self, misdirection: Misdirection, target: u64) {
        let from = (self.durable - self.base) as usize;
        let to = (target - self.base) as usize;
        let written = self.bytes[from..to].to_vec();
        if misdirection.draw & 1 == 1 && from > 0 {
            let at = (unit(misdirection.draw) * from as f64) as usize;
            let length = written.len().min(from - at);
            self.bytes[at..at + length].copy_from_slice(&written[..length]);
        }
        self.bytes[from..to].fill(0);
    }

    /// Reads the journal back as a new incarnation finds it: truncates the tail at the first bad frame, or reports it if it was
    /// durable. What is left is synced again before anybody acts on it.
    pub(crate) fn recover(&mut self) -> Result<(), Corrupt> {
        let good = self.frames.iter().position(|&frame| self.read(frame).is_none());
        if let Some(bad) = good {
            let frame = self.frames[bad];
            let end_is_gone =
                || self.bytes[(frame.offset - self.base) as usize..].iter().all(|byte| *byte == 0);
            // Segments say how far the journal was prepared, and other hosts how far it was durable.
            if frame.offset < self.durable && !(planted!(lost_journal_end_accepted) && end_is_gone()) {
                return Err(Corrupt { host_slot: frame.host_slot, position: frame.position });
            }
            self.bytes.truncate((frame.offset - self.base) as usize);
            self.frames.truncate(bad);
        }
        self.durable = self.end();
        self.writes.clear();
        Ok(())
    }

    fn read(&self, frame: Frame) -> Option<&[u8]> {
        let start = (frame.offset - self.base) as usize;
        let bytes = self.bytes.get(start..start + frame.length as usize)?;
        let (header, body) = bytes.split_at(FRAME_HEADER_BYTES);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let sound = length as usize == body.len() && checksum == crc32c::crc32c(body);
        sound.then(|| &body[RECORD_HEADER_BYTES..])
    }

    /// The records of `slot` that a restart hands back, in order: with `trimmed`, also those that were trimmed and are
    /// still on the disk. Call after [`Disk::recover`].
    pub(crate) fn records(
        &self,
        host_slot: HostSlot,
        trimmed: bool,
    ) -> impl Iterator<Item = (Position, &[u8])> {
        self.frames
            .iter()
            .filter(move |&&frame| frame.host_slot == host_slot && (trimmed || !self.trimmed(frame)))
            .map(|&frame| (frame.position, self.read(frame).expect("recovery has read every frame")))
    }

    /// The position after the last record of `slot`, over all incarnations.
    pub(crate) fn next_position(&self, host_slot: HostSlot) -> Position {
        let last = self.frames.iter().rev().find(|frame| frame.host_slot == host_slot);
        let trim = self.trims.get(&host_slot).copied().unwrap_or_default();
        last.map_or(trim, |frame| trim.max(Position(frame.position.0 + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_SLOT: HostSlot = HostSlot(3);

    /// Ten records, one write each, the first `synced` of them durable.
    fn disk(synced: u64) -> Disk {
        let mut disk = Disk::default();
        for position in 0..10 {
            disk.append(HOST_SLOT, Position(position), &[position as u8; 20]);
            disk.end_write();
            if position + 1 == synced {
                disk.synced(disk.end());
            }
        }
        disk
    }

    fn positions(disk: &Disk) -> Vec<u64> {
        disk.records(HOST_SLOT, false).map(|(position, _)| position.0).collect()
    }

    // A crash that loses a durable record, or leaves a gap, breaks the promise every protocol stands on.
    #[test]
    fn every_crash_leaves_a_prefix_that_holds_what_was_durable() {
        let mut lengths = [0usize; 11];
        for draw in 0..2000u64 {
            for loss in [Loss::None, Loss::All, Loss::Torn, Loss::Reordered] {
                let mut disk = disk(4);
                disk.crash(loss, mix(draw, 1));
                disk.recover().expect("nothing durable was touched");
                let retained = positions(&disk);
                assert!(
                    retained.len() >= 4 && retained.iter().copied().eq(0..retained.len() as u64),
                    "{loss:?}: {retained:?}"
                );
                assert_eq!(disk.unsynced(), 0);
                lengths[retained.len()] += 1;
            }
        }
        assert!(lengths[4..].iter().all(|&seen| seen > 0), "some prefixes never happened: {lengths:?}");
    }

    // A flipped durable bit taken for a torn tail would forget a promise silently.
    #[test]
    fn every_flipped_durable_bit_is_reported() {
        let whole = disk(10);
        let bits = whole.durable() * 8;
        for bit in 0..bits {
            let mut disk = whole.clone();
            disk.bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            assert!(disk.recover().is_err(), "bit {bit} went unnoticed");
        }
    }

    // A journal that ends early and is whole otherwise must not pass for all that was promised.
    #[test]
    fn an_end_that_is_gone_is_reported() {
        let mut lost = 0;
        for draw in 0..400 {
            let mut disk = disk(10);
            assert!(disk.rot(draw));
            lost += u64::from(disk.read(disk.frames[9]).is_none() && disk.bytes.ends_with(&[0; 20]));
            assert!(disk.recover().is_err(), "draw {draw}");
        }
        assert!(lost > 50, "only {lost} lost their end");
    }

    // A synced write that went elsewhere must not look like a clean journal.
    #[test]
    fn misdirected_writes_are_reported() {
        for draw in 0..64 {
            let mut disk = disk(4);
            disk.misdirect_next(mix(draw, 2));
            disk.synced(disk.end());
            assert!(!disk.misdirection_waits());
            assert!(disk.recover().is_err());
        }
    }

    // Compaction that shifts offsets or positions would release promises early or hand back the wrong records.
    #[test]
    fn compaction_keeps_offsets_and_what_is_needed() {
        let mut disk = Disk::default();
        let mut end_before = 0;
        for position in 0..10_000u64 {
            disk.append(HOST_SLOT, Position(position), &[7; 64]);
            disk.end_write();
            assert!(disk.end() > end_before);
            end_before = disk.end();
            disk.synced(end_before);
            disk.trim(HOST_SLOT, Position(position.saturating_sub(5)));
        }
        assert!(disk.bytes.len() < 200_000, "{} bytes were retained", disk.bytes.len());
        disk.recover().expect("nothing is corrupt");
        assert_eq!(positions(&disk), [9994, 9995, 9996, 9997, 9998, 9999]);
        assert!(disk.records(HOST_SLOT, true).count() > 6);
        assert_eq!(disk.next_position(HOST_SLOT), Position(10_000));
    }
}
