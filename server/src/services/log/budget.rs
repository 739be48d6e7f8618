//! How much of a host's disk its logs may take.

use super::SharedLog;
use crate::cluster::ClusterFile;
use crate::cluster::Durability;
use runtime::disk::DiskSpace;
use std::path::Path;

/// Where entries are in memory alone.
const MEMORY_BYTES: u64 = 1 << 30;
/// Where nobody says how large the disk is.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The budget of a host's logs, in bytes: what the cluster file says, or what there is room for now.
pub(super) fn disk_bytes(file: &ClusterFile, logs: &SharedLog, host: &str) -> u64 {
    match (logs.disk_bytes, file.durability) {
        (Some(bytes), _) => bytes,
        (None, Durability::Memory) => MEMORY_BYTES,
        (None, Durability::MajorityFsync) => {
            let segments = file.data.join(host).join(runtime::SEGMENTS);
            DiskSpace::of(&segments).map_or(UNKNOWN_BYTES, |space| share_of(space, bytes_in(&segments)))
        }
    }
}

/// All but a tenth of the file system, or half of what is free if that is less.
fn share_of(space: DiskSpace, used: u64) -> u64 {
    used + space.free - (space.total / 10).min(space.free / 2)
}

/// What the files of a folder hold; 0 if there is none.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    // A budget beyond what is free lets a disk run full; one of nothing refuses the first append on a disk that is nearly full.
    #[test]
    fn a_share_leaves_a_reserve_and_is_never_nothing() {
        let share = |total, free, used| share_of(DiskSpace { total, free }, used);
        assert_eq!(share(1_000, 800, 0), 700);
        assert_eq!(share(1_000, 100, 0), 50);
        assert_eq!(share(1_000, 100, 400), 450);
        assert_eq!(share(1_000, 0, 400), 400);
    }
}
