//! The keys of the cluster file that are the partially ordered log's.

use super::ENGINES;
use crate::cluster::keys::{Key, KeyKind, OrNone, key};

/// All of them.
pub const KEYS: &[Key] = &[
    key(
        "fuzzylog.engine",
        KeyKind::Engine(ENGINES, OrNone::Always),
        "fuzzylog",
        "what orders the partially ordered log: chains of servers, one a partition, and no common sequencer",
        "all hosts must agree, from the first start of the service on",
    ),
    key(
        "fuzzylog.partitions",
        KeyKind::Number(0, 64),
        "0",
        "among how many partitions colours are distributed, as long as the cluster exists; 0: there is no partially ordered log",
        "all hosts must agree, from the first start of the service on; too few: one host orders everything; more: an append to several \
         colours more often needs two phases",
    ),
    key(
        "fuzzylog.order",
        KeyKind::Word(&["serializable", "strict"]),
        "serializable",
        "strict: times follow real time over all colours, and appends, syncs and snapshots are strictly serializable; hosts need a \
         clock ([clock]), and an append waits until its time has passed, twice the clock's error",
        "all hosts must agree, from the first start of the service on; strict: without a clock nothing is appended or read, and nothing \
         goes ahead of a pending append",
    ),
    key(
        "fuzzylog.replicas",
        KeyKind::Number(1, 8),
        "3",
        "how many of the hosts hold each partition; all, if there are fewer",
        "all hosts must agree, from the first start of the service on; an append waits for the disks of all of them that are there",
    ),
    key(
        "fuzzylog.replicas_min",
        KeyKind::Number(1, 8),
        "2",
        "a partition serves while at least so many of its hosts are there; all of them, if it has fewer",
        "1: what was acknowledged while one host was there alone is lost with its disk",
    ),
    key(
        "fuzzylog.partition_bytes",
        KeyKind::Size,
        "1GiB",
        "how much may live of a partition, in memory and in journals: nodes that are not trimmed, colours, users' clients",
        "too large: memory and the time of a restart; appends beyond it are refused until something is trimmed",
    ),
    key(
        "fuzzylog.snapshot_bytes",
        KeyKind::Size,
        "16MiB",
        "a host writes a snapshot of a partition when commands of so many bytes have come since the last one, and as many as that one has",
        "too small: much is written twice; too large: journals grow, and a restart applies more commands",
    ),
    key(
        "fuzzylog.segment_bytes",
        KeyKind::Size,
        "1MiB",
        "so many bytes of nodes become a segment: a file that snapshots name, instead of having its nodes",
        "too small: many files, each written and synced by itself; too large: memory, four segments of a partition at most, and more is \
         written again after a trim",
    ),
    key(
        "fuzzylog.map_bytes",
        KeyKind::Size,
        "256MiB",
        "what the views of maps that are in use may take in memory at a host; while one is stored or loaded, it is there twice",
        "too small: puts are refused, and beyond an eighth more reads, too; too large: memory",
    ),
    key(
        "fuzzylog.map_log_bytes",
        KeyKind::Size,
        "8MiB",
        "a map's view is stored when so many bytes of its log were played since the last one; the log behind that one is trimmed then",
        "too small: views are written all the time; too large: a host that opens a map plays more, and partitions hold up to three \
         times as much of each of its shards",
    ),
];
