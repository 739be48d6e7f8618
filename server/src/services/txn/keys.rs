//! The transaction service's keys of the cluster file.

use super::ENGINES;
use crate::cluster::keys::{Key, KeyKind, OrNone, key};

/// All of them.
pub const KEYS: &[Key] = &[
    key(
        "txn.engine",
        KeyKind::Engine(ENGINES, OrNone::Always),
        "spanner",
        "what orders transactions: spanner places them by clocks of known error and locks, over shards that are replicated logs",
        "all hosts must agree, from the first start of the service on",
    ),
    key(
        "txn.shards",
        KeyKind::Number(0, 256),
        "0",
        "among how many shards keys are distributed, as long as the cluster exists; 0: there is no transaction service",
        "all hosts must agree, from the first start of the service on; too few: one host's leader orders everything",
    ),
    key(
        "txn.replicas",
        KeyKind::Number(1, 64),
        "3",
        "how many of the hosts hold each shard; all, if there are fewer. Shards are distributed over all hosts, which serve all the same",
        "all hosts must agree; one survives no crash of its host, and two no more than one does; more: every write is stored so often",
    ),
    key(
        "txn.spread_levels",
        KeyKind::Number(0, 16),
        "2",
        "keys whose first so many parts, separated by slashes, are the same live on one shard: with 2, bank/1/x beside bank/1/y; 0: \
         each key by itself",
        "all hosts must agree, from the first start of the service on; too few: many keys on one shard; too many: more commits need two",
    ),
    key(
        "txn.keep",
        KeyKind::Duration,
        "10m",
        "how long earlier versions can be read, and how long a commit that is sent again is recognized",
        "all hosts must agree; too long: memory; too short: snapshot reads and retries are refused",
    ),
    key(
        "txn.fence_bound",
        KeyKind::Duration,
        "500ms",
        "the most by which a client's end follows its commit timestamp (L of the paper): what a fence between two services waits for",
        "all hosts must agree; too short: commits that take longer get later timestamps; too long: fences wait",
    ),
    key(
        "txn.idle_max",
        KeyKind::Duration,
        "10s",
        "how long an interactive transaction may be idle before it is given up with its locks",
        "all hosts must agree; too long: forgotten transactions hold locks",
    ),
];
