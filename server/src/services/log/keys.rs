//! The shared log's keys of the cluster file, and those of Kafka's protocol over it.

use super::ENGINES;
use super::settings::ArchiveLocation;
use crate::cluster::keys::{Key, KeyKind, OrNone, key, parse_size};

fn is_archive(value: &str) -> bool {
    ArchiveLocation::parse(value).is_ok()
}

fn is_budget(value: &str) -> bool {
    value == AUTO || parse_size(value).is_some_and(|bytes| bytes > 0)
}

/// The disk budget that the host works out.
pub(super) const AUTO: &str = "auto";

/// All of them.
pub const KEYS: &[Key] = &[
    key(
        "listen.kafka",
        KeyKind::Address,
        "",
        "where Kafka's clients connect; without it they are not served. The logs of log.spaces are their topics",
        "an occupied port is an error at start; it must be set on all hosts, since clients are sent to any of them",
    ),
    key(
        "log.engine",
        KeyKind::Engine(ENGINES, OrNone::Always),
        "mason",
        "what orders the shared log: mason and fuzzylog spread logs over spaces, mason by a sequencer, fuzzylog on chains of servers; \
         paxos is one replicated state machine, corfu is a baseline to compare with, one log by a bare sequencer and chains of servers; \
         the last two have one space",
        "all hosts must agree, from the first start on; docs/operations.md says what corfu does not do, and what fuzzylog promises of \
         appends over several logs",
    ),
    key(
        "log.spaces",
        KeyKind::Number(0, 256),
        "0",
        "among how many spaces the logs are spread by their names, each executed by itself; 0: there is no shared log",
        "all hosts must agree, from the first start on",
    ),
    key(
        "log.proxies",
        KeyKind::Number(1, 256),
        "3",
        "how many replicated proxies order the log's appends, their leaders spread over the hosts; over fuzzylog, on how many chains the \
         spaces are",
        "all hosts must agree, from the first start on",
    ),
    key(
        "log.space_bytes",
        KeyKind::Size,
        "268435456",
        "what the logs of one space that have limits of their own (retain_bytes) may be created to hold together; over corfu, what the \
         log may hold before its oldest entries go",
        "too large: log.disk_bytes is reached before those limits; too small: such logs cannot be created",
    ),
    key(
        "log.disk_bytes",
        KeyKind::Checked(is_budget, "auto, or a size like 64GiB"),
        "auto",
        "what the entries of all logs may take of a host's disk, with what waits for the archive; beyond it, appends through this host \
         are refused, but to logs made with cleanup = drop-oldest. auto: what is free at the start and what segments take already, less \
         a tenth of the file system, or half of what is free if that is less; 1 GiB with durability.ack = memory",
        "give all hosts the same where their disks differ: a host that lets less in executes all the same what others let in",
    ),
    key(
        "log.memory_bytes",
        KeyKind::Size,
        "64MiB",
        "what one space's entries may take of a host's memory, 32 MiB at least: those not on the disk yet, and those read lately",
        "too large: hosts run out of memory; too small: reads wait for the disk, and appends when it is slow",
    ),
    key(
        "log.archive",
        KeyKind::Checked(is_archive, "an archive: file:///DIRECTORY or s3://BUCKET/PREFIX"),
        "",
        "where trimmed segments of logs go before they go from the disks: file:///DIRECTORY, the same on every host (a shared file \
         system), or s3://BUCKET/PREFIX, with credentials, region and endpoint in the environment, as AWS_ACCESS_KEY_ID, \
         AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT and their like; without it they are dropped",
        "all hosts must agree; taken out again, what still waits for the archive is dropped",
    ),
    key(
        "log.archive_backlog_bytes",
        KeyKind::Size,
        "268435456",
        "with more than so many bytes of a space's trimmed segments waiting for the archive, a host refuses appends to its logs",
        "too large: disks run full while the archive is away; too small: writers are refused at the first hiccup",
    ),
    key(
        "kafka.brokers",
        KeyKind::Addresses,
        "",
        "where Kafka's clients reach hosts, like a=a.example.net:9092,b=...; without it (or for hosts left out) where \
         [hosts] has them, at the port of listen.kafka",
        "an address that clients cannot reach: they connect, and then time out",
    ),
    key(
        "kafka.create_topics",
        KeyKind::Switch,
        "true",
        "whether a topic is made when a client asks for one that is not there (Kafka's auto.create.topics.enable)",
        "with it, a mistyped name takes memory",
    ),
    key(
        "kafka.retain_bytes",
        KeyKind::Size,
        "0",
        "what a topic may hold, in bytes, unless its maker gives retention.bytes; beyond it the oldest records go. 0: no limit but \
         log.disk_bytes",
        "with a limit, slow consumers miss records, and the topics of a space need room in log.space_bytes",
    ),
    key(
        "kafka.retain",
        KeyKind::Duration,
        "7d",
        "how long a topic's records are retained unless its maker gives retention.ms, looked at when something is appended",
        "too short: slow consumers miss records; too long: log.disk_bytes is reached",
    ),
];
