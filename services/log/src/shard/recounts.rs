//! Numbers that a shard of logs keeps beside what they count, and what they come to.

use super::Logs;
use crate::log::Log;
use crate::segment::Part;
use crate::storage::StorageStat;
use kernel::Recount;

impl Logs {
    pub(super) fn all_recounts(&self) -> Vec<Recount> {
        let logs = || self.logs.values();
        let bytes = |log: &Log| log.parts.iter().map(|part| part.bytes() as u64).sum::<u64>();
        let [numbers, names] = [self.numbers.len(), self.logs.len()];
        let mut all = self.storage.recounts();
        all.extend(logs().map(|log| Recount {
            what: "bytes of a log",
            known: log.bytes,
            counted: bytes(log),
        }));
        all.extend([
            Recount {
                what: "bytes of all logs",
                known: self.storage.entry_bytes,
                counted: logs().map(bytes).sum(),
            },
            Recount {
                what: "reserved bytes",
                known: self.reserved,
                counted: logs().map(|log| log.retain_bytes).sum(),
            },
            Recount::of("numbers of logs", numbers, names),
            Recount::of(
                "bytes of open segments beyond their bound",
                logs().map(Log::open_bytes).sum::<usize>().saturating_sub(self.storage.bounds.open_bytes),
                0,
            ),
            self.producers.recount(),
            self.groups.recount(),
        ]);
        all
    }

    /// What is where.
    pub fn storage(&self) -> StorageStat {
        let mut stat = StorageStat::default();
        for part in self.logs.values().flat_map(|log| &log.parts) {
            match part {
                Part::InMemory(_) => stat.memory_bytes += part.bytes() as u64,
                Part::Stored(stored) => {
                    stat.segments += 1;
                    stat.stored_bytes += stored.blob.bytes;
                }
            }
        }
        (stat.waiting, stat.waiting_bytes) =
            (self.storage.retired.all().count() as u64, self.storage.retired.bytes());
        (stat.cached_bytes, stat.hits, stat.loads) = self.storage.cache.counts();
        stat
    }
}
