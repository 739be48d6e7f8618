//! A journal as it lies on disk, read without being opened: nothing is written, truncated or prepared.

use super::recover::{self, Contents, Scan, Segment};
use super::{Generation, JournalError};
use crate::disk::Disk;
use kernel::{HostSlot, Position};
use std::path::PathBuf;

/// What recovery finds in a journal, and what it would say.
pub struct Survey<'a> {
    disk: &'a dyn Disk,
    incarnation: u128,
    scan: Scan,
    /// What recovery comes to. After an error the rest is what was read before it.
    pub outcome: Result<(), JournalError>,
}

/// One segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentSurvey {
    /// Where it is.
    pub file: PathBuf,
    /// Which use of the file it is.
    pub generation: Generation,
    /// Its size.
    pub bytes: u64,
    /// Bytes from its start to the end of the last batch that counts.
    pub end: u64,
    /// Batches that count.
    pub batches: u64,
    /// Records in them, the trimmed ones included.
    pub records: u64,
    /// At `end` or behind it stands what was written and never vouched for: the next start truncates it.
    pub torn: bool,
    /// What it is to the journal.
    pub state: SegmentState,
}

/// What a segment is to the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Behind it the journal went on in the next.
    Full,
    /// The last one with batches: the journal goes on here.
    Tail,
    /// Made ahead, without a batch.
    Prepared,
}

/// The records of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSurvey {
    /// The slot.
    pub host_slot: HostSlot,
    /// Records before it are not needed any more.
    pub trimmed: Position,
    /// The position of the next record.
    pub next: Position,
}

impl<'a> Survey<'a> {
    /// Reads the whole journal in `disk`, of which only `names`, `open`, `path_of` and the reading of files are used.
    pub fn of(disk: &'a dyn Disk, incarnation: u128) -> Self {
        let mut scan = Scan::default();
        let outcome = recover::scan_into(&mut scan, disk, incarnation);
        Self { disk, incarnation, scan, outcome }
    }

    /// The segments in order. Those that no start would go on with are left out but for the one prepared to follow.
    pub fn segments(&self) -> Vec<SegmentSurvey> {
        let written = self.scan.segments.len();
        let segments = self.scan.segments.iter().chain(&self.scan.prepared);
        let describe = |(index, (segment, contents)): (usize, (&Segment, &Contents))| {
            let state = match index {
                index if index + 1 < written => SegmentState::Full,
                index if index < written => SegmentState::Tail,
                _ => SegmentState::Prepared,
            };
            let Contents { batches, records, torn } = *contents;
            let file = self.disk.path_of(&super::format::segment_name(segment.generation));
            let Segment { generation, bytes, end, .. } = *segment;
            SegmentSurvey { file, generation, bytes, end, batches, records, torn, state }
        };
        segments.zip(&self.scan.contents).enumerate().map(describe).collect()
    }

    /// The slots that have ever appended.
    pub fn host_slots(&self) -> impl Iterator<Item = SlotSurvey> {
        let host_slots = self.scan.host_slots.iter();
        host_slots.map(|(&host_slot, stand)| SlotSurvey {
            host_slot,
            trimmed: stand.trimmed,
            next: stand.next,
        })
    }

    /// Calls `visit` with every record that is still needed, in the order they were appended; after an error of the
    /// survey, with those that were read before it.
    pub fn replay<E>(
        &self,
        visit: impl FnMut(HostSlot, Position, &[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, JournalError> {
        let segments: Vec<&Segment> = self.scan.segments.iter().collect();
        recover::replay(self.disk, self.incarnation, &segments, &self.scan.host_slots, visit)
    }
}
