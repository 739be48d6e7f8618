//! Reading a snapshot of the logs back, item by item.

use super::Logs;
use crate::log::{Dropped, Log};
use crate::producers::Known;
use crate::retired::Origin;
use crate::segment::Part;
use crate::snapshot::{Cleaned, Created, Head, Numbered, SavedOrigin, SavedSegment, SavedStored};
use crate::wire::{Cleanup, GroupState, LogStat};
use kernel::{BlobId, Decode, DecodeError, Reader};
use std::collections::VecDeque;
use std::sync::Arc;

impl Logs {
    /// The log whose parts are being installed.
    fn installing(&mut self) -> Result<&mut Log, DecodeError> {
        let name = self.installing.as_ref();
        name.and_then(|name| self.logs.get_mut(name)).ok_or(DecodeError::Invalid("part of no log"))
    }

    /// Adds the next part of the log whose parts are being installed.
    fn install_part(&mut self, part: Option<Part>) -> Result<(), DecodeError> {
        let part = part.ok_or(DecodeError::Invalid("segment"))?;
        let name = self.installing.as_ref();
        let log = name.and_then(|name| self.logs.get_mut(name));
        let log = log.ok_or(DecodeError::Invalid("part of no log"))?;
        log.bytes += part.bytes() as u64;
        self.storage.entry_bytes += part.bytes() as u64;
        // Of a log with an open segment that is the last part, which shows when no other follows.
        let ended = if log.open { log.parts.back() } else { Some(&part) };
        if let Some(Part::InMemory(segment)) = ended {
            self.storage.ended(log.blob_id(segment.first), segment.bytes());
        }
        log.parts.push_back(part);
        Ok(())
    }

    /// Begins with a log; its parts follow.
    fn install_log(&mut self, stat: LogStat) {
        let LogStat { name, first, next, retain_bytes, retain_ms, sealed, .. } = stat;
        self.installing = Some(name.clone());
        if !kernel::planted!(room_not_counted_from_snapshot) {
            self.reserved += retain_bytes;
        }
        // What was written before logs had numbers has none here either: they get them in the order of their names.
        self.created += 1;
        let (number, open, parts) = (self.created, !sealed, VecDeque::new());
        let origin = Arc::new(Origin { name: name.clone(), number, created_ms: 0 });
        let (cleanup, dropped) = (Cleanup::Refuse, Dropped::default());
        let log = Log {
            origin,
            first,
            next,
            bytes: 0,
            retain_bytes,
            retain_ms,
            sealed,
            cleanup,
            dropped,
            open,
            parts,
        };
        self.numbers.insert(number, name.clone());
        self.logs.insert(name, log);
    }

    pub(super) fn install_item(&mut self, input: &mut Reader) -> Result<(), DecodeError> {
        match u8::decode(input)? {
            1 => self.digest = Head::decode(input)?.digest,
            2 => self.install_log(LogStat::decode(input)?),
            3 => {
                let part = SavedSegment::decode(input)?.part();
                self.install_part(part)?;
            }
            4 => self.producers.install(Known::decode(input)?),
            5 => self.groups.install(GroupState::decode(input)?),
            6 => self.created = u64::decode(input)?,
            7 => {
                let Numbered { number, open } = Numbered::decode(input)?;
                // The number that it got when its name was read is given back.
                self.created -= 1;
                let log = self.installing()?;
                let (before, name) = (log.origin.number, log.origin.name.clone());
                (Arc::make_mut(&mut log.origin).number, log.open) = (number, open);
                self.numbers.remove(&before);
                self.numbers.insert(number, name);
            }
            8 => {
                let saved = SavedStored::decode(input)?;
                let series = self.installing()?.origin.number;
                self.install_part(saved.part(series))?;
            }
            9 => {
                let Created { created_ms } = Created::decode(input)?;
                Arc::make_mut(&mut self.installing()?.origin).created_ms = created_ms;
            }
            11 => {
                let Cleaned { cleanup, dropped, dropped_bytes } = Cleaned::decode(input)?;
                let log = self.installing()?;
                log.cleanup = cleanup;
                log.dropped = Dropped { entries: dropped, bytes: dropped_bytes };
            }
            10 => {
                let SavedOrigin { name, number, created_ms } = SavedOrigin::decode(input)?;
                let origin = Arc::new(Origin { name, number, created_ms });
                let part = match u8::decode(input)? {
                    3 => SavedSegment::decode(input)?.part(),
                    8 => SavedStored::decode(input)?.part(number),
                    tag => return Err(DecodeError::UnknownTag("segment that waits", tag)),
                };
                let part = part.ok_or(DecodeError::Invalid("segment"))?;
                let id = BlobId { series: number, first: part.first() };
                self.storage.retired(id, &origin, part);
            }
            tag => return Err(DecodeError::UnknownTag("snapshot item", tag)),
        }
        Ok(())
    }
}
