//! Writing a batch: what goes into it, which thread syncs it, and what its outcome changes.

use super::format::{self, BATCH_HEADER_BYTES, BatchHeader, STAND_BYTES, TRIM_BYTES};
use super::recover::Segment;
use super::sync::{Write, WriteError, Written};
use super::{CommitNumber, FsyncPlacement, InFlight, Journal, JournalError, Mark, Next};
use crate::direct::{BLOCK_BYTES, Blocks};
use crate::shortage::Shortage;
use crate::worker::Worker;
use kernel::{HostSlot, Position};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Above the one a thread waits for the disk, below the other the caller does: two thread hand-offs cost about 30 us on a
/// quick disk, a reactor that waits for a slow one costs everybody.
const TO_THREAD_ABOVE: Duration = Duration::from_micros(400);
const TO_INLINE_BELOW: Duration = Duration::from_micros(250);
/// One stray slow sync must not move the mean across the threshold.
const SAMPLE_MAX: Duration = Duration::from_millis(2);
/// A batch that takes so long is reported: a sound disk takes a tenth of it, a spinning one included.
const SLOW_SYNC: Duration = Duration::from_millis(500);
const BUFFER_RETAINED_BYTES: usize = 1 << 20;

impl Journal {
    /// Writes one batch of what fits; false if it must wait.
    pub(super) fn write(&mut self, witness: bool) -> Result<bool, JournalError> {
        self.check_prepared()?;
        if self.failed || self.in_flight.is_some() {
            return Ok(false);
        }
        let first_run = self.runs.front().map_or(0, |run| run.bytes);
        self.blocked = !self.make_room(first_run);
        if self.blocked {
            return Ok(false);
        }
        let mut blocks = std::mem::take(&mut self.spare);
        blocks.clear(BUFFER_RETAINED_BYTES);
        blocks.extend_from_slice(&[0; BATCH_HEADER_BYTES]);
        let trims = self.write_head(&mut blocks);
        self.write_runs(&mut blocks);
        let tail = self.segments.back_mut().expect("there is always a segment to write");
        let at = Mark { generation: tail.generation, offset: tail.end };
        let header = BatchHeader { chain: self.chain, number: self.number, durable: self.durable_mark };
        self.chain = format::seal(blocks.bytes_mut(), &header, self.incarnation, at);
        self.number += 1;
        blocks.pad();
        tail.end += blocks.len() as u64;
        let end = Mark { generation: tail.generation, offset: tail.end };
        let write = Write { file: Arc::clone(&tail.file), offset: at.offset, blocks };
        // What is appended while this is in flight belongs to the next commit.
        let commit = self.runs.front().map_or(self.pending, |run| CommitNumber(run.commit.0 - 1));
        self.pending = CommitNumber(self.pending.0 + 1);
        self.in_flight = Some(InFlight { end, batches: self.number, commit, trims, witness });
        self.perform(write)?;
        Ok(true)
    }

    pub(super) fn head_bytes(&self, tail: &Segment) -> usize {
        let stands = if is_fresh(tail) { self.host_slots.len() * STAND_BYTES } else { 0 };
        BATCH_HEADER_BYTES + stands + self.trims.len() * TRIM_BYTES
    }

    /// The first batch of a segment says where every slot stands, so that older segments can go.
    pub(super) fn write_head(&mut self, blocks: &mut Blocks) -> BTreeMap<HostSlot, Position> {
        let mut head = Vec::new();
        if is_fresh(self.tail()) {
            for (host_slot, stand) in &self.host_slots {
                format::push_stand(&mut head, *host_slot, stand.trimmed, stand.next);
            }
        }
        let trims = std::mem::take(&mut self.trims);
        for (host_slot, before) in &trims {
            format::push_trim(&mut head, *host_slot, *before);
        }
        blocks.extend_from_slice(&head);
        trims
    }

    pub(super) fn write_runs(&mut self, blocks: &mut Blocks) {
        let tail = self.segments.back_mut().expect("there is always a segment to write");
        let room = (tail.bytes - tail.end) as usize;
        let mut taken = 0;
        while let Some(run) = self.runs.front()
            && blocks.len() + taken + run.bytes <= room
        {
            taken += run.bytes;
            let stand = self.host_slots.entry(run.host_slot).or_default();
            stand.next = run.next;
            tail.ends.insert(run.host_slot, run.next);
            self.runs.pop_front();
        }
        blocks.extend_from_slice(&self.staged[..taken]);
        self.staged.drain(..taken);
    }

    pub(super) fn perform(&mut self, write: Write) -> Result<(), JournalError> {
        if self.inline {
            return self.on_written_or_stuck(write);
        }
        if self.committer.is_none() {
            let worker =
                Worker::start("journal-sync", Arc::clone(&self.notify), |write: Write| Some(write.perform()));
            match worker {
                Ok(worker) => self.committer = Some(worker),
                // Without a thread to be had, waiting here is still right.
                Err(_) => return self.on_written_or_stuck(write),
            }
        }
        if let Some(committer) = &self.committer {
            committer.push(write);
        }
        Ok(())
    }

    pub(super) fn on_written_or_stuck(&mut self, write: Write) -> Result<(), JournalError> {
        self.on_written(write.perform())
    }

    pub(super) fn on_written(&mut self, written: Written) -> Result<(), JournalError> {
        let Written { blocks, outcome, took } = written;
        let in_flight = self.in_flight.take().expect("one write is answered once");
        match outcome {
            Ok(()) => {}
            Err(WriteError::Write(error)) if Shortage::of(&error).is_some() => {
                self.shortage = Shortage::of(&error);
                let file = Arc::clone(&self.tail().file);
                let offset = in_flight.end.offset - blocks.len() as u64;
                self.stuck = Some(Write { file, offset, blocks });
                self.in_flight = Some(in_flight);
                self.full = true;
                return Ok(());
            }
            Err(WriteError::Write(source)) => {
                return Err(self.fail("write", in_flight.end.generation, source));
            }
            Err(WriteError::Sync(source)) => return Err(self.fail("sync", in_flight.end.generation, source)),
        }
        self.spare = blocks;
        // While the next segment is still tried for, there is no room, though a small batch found some.
        self.full &= !matches!(self.next, Next::Ready(_));
        self.durable_mark = in_flight.end;
        self.batches_durable = in_flight.batches;
        self.durable = self.durable.max(in_flight.commit);
        self.unwitnessed = !in_flight.witness;
        self.measure(took);
        for (host_slot, before) in in_flight.trims {
            let stand = self.host_slots.entry(host_slot).or_default();
            stand.trimmed = stand.trimmed.max(before);
        }
        self.retire();
        Ok(())
    }

    pub(super) fn measure(&mut self, took: Duration) {
        self.syncs += 1;
        self.latency.record(took);
        self.latency_recent.record(took, Instant::now());
        if took >= SLOW_SYNC {
            self.slow_sync = self.slow_sync.max(Some(took));
        }
        let sample = took.min(SAMPLE_MAX);
        self.mean = if self.syncs == 1 { sample } else { self.mean - self.mean / 8 + sample / 8 };
        self.inline = match self.options.placement {
            FsyncPlacement::Inline => true,
            FsyncPlacement::Thread => false,
            FsyncPlacement::Adaptive if self.inline => self.mean <= TO_THREAD_ABOVE,
            FsyncPlacement::Adaptive => self.mean < TO_INLINE_BELOW,
        };
    }
}

pub(super) fn is_fresh(segment: &Segment) -> bool {
    segment.end == BLOCK_BYTES as u64
}
