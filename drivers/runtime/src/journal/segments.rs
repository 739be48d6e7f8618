//! Where batches go: segments prepared ahead, retired when all is trimmed, and used again.

use super::extent::Extent;
use super::format::SegmentHeader;
use super::recover::Segment;
use super::sync::{self, Chore, Prepared};
use super::{Generation, Journal, JournalError, Mark, Next};
use crate::direct::BLOCK_BYTES;
use crate::disk::DiskFile;
use crate::shortage::Shortage;
use crate::worker::Worker;
use kernel::{HostSlot, Position};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Retired segments retained for use; more are deleted.
const RETIRED_MAX: usize = 2;

impl Journal {
    /// Sees to it that a batch with a run of `run_bytes` fits behind the tail; false if no segment is at hand.
    pub(super) fn make_room(&mut self, run_bytes: usize) -> bool {
        let needed = self.head_bytes(self.tail()) + run_bytes;
        let tail = self.tail();
        if tail.end + needed as u64 <= tail.bytes {
            return true;
        }
        let generation = Generation(tail.generation.0 + 1);
        match std::mem::replace(&mut self.next, Next::Wanted) {
            Next::Ready(file) => {
                self.segments.push_back(self.new_segment(generation, file));
                self.prepare();
                let tail = self.tail();
                let needed = self.head_bytes(tail) + run_bytes;
                assert!(tail.end + needed as u64 <= tail.bytes, "a batch of {needed} bytes fits no segment");
                true
            }
            other => {
                self.next = other;
                self.prepare();
                // Prepared on this very thread, it may be there by now.
                matches!(self.next, Next::Ready(_)) && self.make_room(run_bytes)
            }
        }
    }

    /// Retires the segments in which no record is needed, wherever they stand: a slot that seldom appends would else hold up all
    /// that others have trimmed since. The trims are durable, and so is the first batch
    /// of the segment being written, which says where every slot stands.
    pub(super) fn retire(&mut self) {
        assert_eq!(
            self.durable_mark.generation,
            self.tail().generation,
            "a batch of an older segment ends last"
        );
        let written = self.segments.len() - 1;
        for _ in 0..written {
            let Some(segment) = self.segments.pop_front() else { break };
            let is_needed =
                |(host_slot, end): (&HostSlot, &Position)| self.host_slots[host_slot].trimmed < *end;
            if segment.ends.iter().any(is_needed) {
                self.segments.push_back(segment);
            } else {
                self.retired.push_back(segment);
            }
        }
        // The one being written stands last again.
        self.segments.rotate_left(1);
        self.prepare();
        while self.retired.len() > RETIRED_MAX {
            if let Some(segment) = self.retired.pop_front() {
                self.chore(Chore::Remove(segment.generation));
            }
        }
    }

    /// Has the next segment made, if that is not in flight.
    pub(super) fn prepare(&mut self) {
        if !matches!(self.next, Next::Wanted | Next::NoSpace) {
            return;
        }
        // A full disk is tried again on `retry`, unless an old segment can be had.
        let fits = self.retired.front().is_some_and(|segment| segment.bytes == self.options.segment_bytes);
        if matches!(self.next, Next::NoSpace) && !fits {
            return;
        }
        let reuse = if fits { self.retired.pop_front().map(|segment| segment.generation) } else { None };
        let generation = Generation(self.tail().generation.0 + 1);
        self.next = Next::InFlight;
        self.chore(self.preparation(generation, reuse));
    }

    pub(super) fn preparation(&self, generation: Generation, reuse: Option<Generation>) -> Chore {
        let extent = Extent { prepared: self.extent.prepared.max(generation), durable: self.retained_mark() };
        let header =
            SegmentHeader { generation, bytes: self.options.segment_bytes, incarnation: self.incarnation };
        Chore::Prepare { header, reuse, extent }
    }

    /// What is durable and in a segment that is not used again before the next one is prepared.
    fn retained_mark(&self) -> Mark {
        let tail = self.segments.back().map_or(Generation(0), |tail| tail.generation);
        if self.durable_mark.generation == tail { self.durable_mark } else { Mark::default() }
    }

    pub(super) fn chore(&mut self, chore: Chore) {
        if self.preparer.is_none() && !self.options.prepare_inline {
            let disk = Arc::clone(&self.disk);
            let work = move |chore| sync::perform_chore(&*disk, chore);
            self.preparer = Worker::start("journal-prepare", Arc::clone(&self.notify), work).ok();
        }
        if let Some(preparer) = &self.preparer {
            preparer.push(chore);
        } else if let Some(prepared) = sync::perform_chore(&*self.disk, chore) {
            self.note_prepared(prepared);
        }
    }

    pub(super) fn on_prepared(&mut self, prepared: Prepared) -> Result<(), JournalError> {
        self.note_prepared(prepared);
        self.check_prepared()
    }

    pub(super) fn check_prepared(&mut self) -> Result<(), JournalError> {
        match self.prepare_error.take() {
            Some(source) => Err(self.fail("prepare", Generation(self.tail().generation.0 + 1), source)),
            None => Ok(()),
        }
    }

    pub(super) fn note_prepared(&mut self, prepared: Prepared) {
        self.next = match prepared {
            Ok(file) => {
                let next = Generation(self.tail().generation.0 + 1);
                self.extent.prepared = self.extent.prepared.max(next);
                self.full = self.stuck.is_some();
                Next::Ready(file)
            }
            Err(error) if Shortage::of(&error).is_some() => {
                self.shortage = Shortage::of(&error);
                self.full = true;
                Next::NoSpace
            }
            Err(error) => {
                self.prepare_error = Some(error);
                // Not tried again: the journal fails at the next call.
                Next::InFlight
            }
        };
    }

    pub(super) fn new_segment(&self, generation: Generation, file: Arc<dyn DiskFile>) -> Segment {
        let bytes = self.options.segment_bytes;
        Segment { generation, file, bytes, end: BLOCK_BYTES as u64, ends: BTreeMap::new() }
    }
}
