//! The blobs of one host's nodes: files that a crash leaves whole or not at all, that take time, and that may rot.

use super::{Host, Input};
use crate::archive::{SimulatedArchive, Taken};
use crate::class::Class;
use crate::disk::Disk;
use crate::draw::mix;
use crate::files::{rots_a_blob, whole};
use crate::outside::{Happening, Outside};
use crate::queue::Event;
use kernel::{ArchiveObject, BlobEffect, BlobId, BlobNotice, BlobRange, Bytes, HostSlot, Node};
use std::collections::BTreeMap;

/// Something in flight between a node and its blobs.
#[derive(Clone, Debug)]
enum Task {
    Store { id: BlobId, bytes: Bytes },
    Load { range: BlobRange },
    Archive { id: BlobId, object: ArchiveObject },
    Notify { id: BlobId },
}

/// What a host's disk is doing for its nodes' blobs.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    tasks: BTreeMap<u32, (usize, Task)>,
    begun: u32,
}

impl InFlight {
    /// The process ends: each file that was being written is there or not, and so is each object on its way to the archive.
    pub(crate) fn crash(
        &mut self,
        disk: &mut Disk,
        archive: &mut SimulatedArchive,
        slot_of: impl Fn(usize) -> HostSlot,
        draw: u64,
    ) {
        for (ticket, (seat, task)) in std::mem::take(&mut self.tasks) {
            if mix(draw, u64::from(ticket)) & 1 == 1 {
                continue;
            }
            let host_slot = slot_of(seat);
            match task {
                Task::Store { id, bytes } => disk.blobs.write(host_slot, id, &bytes),
                Task::Archive { id, object } => {
                    if let Some(bytes) = disk.blobs.read(host_slot, whole(id)) {
                        archive.put(&object, &bytes);
                    }
                }
                Task::Load { .. } | Task::Notify { .. } => {}
            }
        }
    }
}

impl<N: Node> Host<N> {
    /// Carries out what the node of `seat` asks for. The caller has waited until a drop may take effect.
    pub(crate) fn carry_out_blob(&mut self, seat: usize, effect: BlobEffect, out: &mut Outside<N::Family>) {
        let host_slot = self.seats[seat].id.host_slot();
        let slowness = u64::from(self.disk_slowness);
        match effect {
            BlobEffect::Store { id, bytes } => {
                let lasts = (out.swarm.sync + out.swarm.sync / 2) * slowness;
                let at = (out.now + lasts).max(self.disk_full_until);
                self.begin_blob(seat, Task::Store { id, bytes }, at, out);
            }
            BlobEffect::Load { range } => {
                let at = out.now + out.swarm.sync / 4 * slowness + 1;
                self.begin_blob(seat, Task::Load { range }, at, out);
            }
            BlobEffect::Archive { id, object } => {
                let at = out.now + out.archive.lasts(out.swarm.sync);
                self.begin_blob(seat, Task::Archive { id, object }, at, out);
            }
            BlobEffect::Drop { id } => {
                let dropped = |seat_of: usize, task: &Task| {
                    seat_of == seat && matches!(task, Task::Store { id: stored, .. } if *stored == id)
                };
                self.blobs.tasks.retain(|_, (seat_of, task)| !dropped(*seat_of, task));
                self.disk.blobs.drop(host_slot, id);
            }
            BlobEffect::Keep { ids } => {
                for id in self.disk.blobs.keep(host_slot, ids) {
                    self.begin_blob(seat, Task::Notify { id }, out.now + 1, out);
                }
            }
        }
    }

    fn begin_blob(&mut self, seat: usize, task: Task, at: u64, out: &mut Outside<N::Family>) {
        let ticket = self.blobs.begun;
        self.blobs.begun += 1;
        self.blobs.tasks.insert(ticket, (seat, task));
        out.queue.push(at, Event::Blob { host: self.index, ticket, incarnation: self.incarnation });
    }

    /// The disk is fast again, and has room.
    pub(crate) fn hurry_blobs(&self, out: &mut Outside<N::Family>) {
        for &ticket in self.blobs.tasks.keys() {
            let event = Event::Blob { host: self.index, ticket, incarnation: self.incarnation };
            out.queue.push(out.now + out.swarm.sync, event);
        }
    }

    /// A blob's task is done; true if the host works off at once what comes of it.
    pub(crate) fn blob_done(&mut self, ticket: u32, out: &mut Outside<N::Family>) -> bool {
        let Some((seat, task)) = self.blobs.tasks.remove(&ticket) else { return false };
        let host_slot = self.seats[seat].id.host_slot();
        let notice = match task {
            Task::Store { id, bytes } => {
                if out.now < self.disk_full_until {
                    // The disk filled up while it was written.
                    let at = self.disk_full_until;
                    self.begin_blob(seat, Task::Store { id, bytes }, at, out);
                    return false;
                }
                if let Some(fault) = self.write_error.take() {
                    out.triggered.push(fault);
                    return false;
                }
                self.disk.blobs.write(host_slot, id, &bytes);
                BlobNotice::Stored { id }
            }
            Task::Load { range } => match self.disk.blobs.read(host_slot, range) {
                Some(bytes) => BlobNotice::Loaded { range, bytes },
                None => BlobNotice::Lost { id: range.id },
            },
            Task::Archive { id, object } => self.archive(host_slot, id, &object, out),
            Task::Notify { id } => BlobNotice::Lost { id },
        };
        out.happened(Happening::Blob, self.seats[seat].id.as_u64(), u64::from(ticket));
        self.arrive(Input::Blob { seat, notice }, out)
    }

    /// Copies a blob into the archive, as far as that has a mind to.
    fn archive(
        &self,
        host_slot: HostSlot,
        id: BlobId,
        object: &ArchiveObject,
        out: &mut Outside<N::Family>,
    ) -> BlobNotice {
        let taken = out.archive.takes(self.index, out.now);
        if taken == Taken::Failed {
            return BlobNotice::Unarchived { id };
        }
        match self.disk.blobs.read(host_slot, whole(id)) {
            Some(bytes) => out.archive.put(object, &bytes),
            None if out.archive.has(object) => {}
            None => return BlobNotice::Lost { id },
        }
        if taken == Taken::Done { BlobNotice::Archived { id } } else { BlobNotice::Unarchived { id } }
    }

    /// Whether a durable byte is wrong, or is about to be.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged || self.disk.blobs.are_rotten()
    }

    /// Flips a bit of a blob, if there are any and `draw` wills it: the host finds out when it reads it.
    pub(crate) fn rot_blob(&mut self, draw: u64, out: &mut Outside<N::Family>) -> bool {
        let rots = rots_a_blob(draw) && self.disk.blobs.rot(draw);
        if rots {
            out.injections.count(Class::BitRot);
        }
        rots
    }
}
