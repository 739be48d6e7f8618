//! Every key of the cluster file: its kind, default, meaning, and what goes wrong with a bad value. `ordinate config
//! explain` prints this table; flags and environment variables are made from it.

/// What a key takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of the given words.
    Word(&'static [&'static str]),
    /// `host:port`.
    Address,
    /// `name=host:port`, separated by commas.
    Addresses,
    /// A whole number in the range.
    Number(u64, u64),
    /// `file:///DIRECTORY` or `s3://BUCKET/PREFIX`.
    Archive,
    /// A number with a unit: `30ms`, `2s`.
    Duration,
    /// A number with a unit: `64KiB`, `1MiB`.
    Size,
    /// Names, separated by commas.
    Names,
    /// A path; relative ones start at the cluster file's folder.
    Path,
    /// `true` or `false`.
    Switch,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with its section.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it; empty: none.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What breaks when it is wrong.
    pub risk: &'static str,
}

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
    risk: &'static str,
) -> Key {
    Key { name, kind, default, meaning, risk }
}

/// All of them, apart from the open sections `[hosts]` and `[[place]]`.
pub const KEYS: &[Key] = &[
    key(
        "cluster",
        Kind::Text,
        "",
        "the cluster's name; hosts refuse peers and data of another cluster",
        "a host with another name never joins",
    ),
    key(
        "data",
        Kind::Path,
        "ordinate-data",
        "where a host keeps its journal; each host uses the folder of its name in it",
        "two clusters must not share it; a host started on an empty folder under a known name is refused",
    ),
    key(
        "listen.native",
        Kind::Address,
        "127.0.0.1:7071",
        "where clients of the native protocol connect",
        "an occupied port is an error at start",
    ),
    key(
        "listen.admin",
        Kind::Address,
        "127.0.0.1:7070",
        "web page, HTTP API, metrics and health",
        "it answers without a password: keep it on a private address",
    ),
    key(
        "listen.zookeeper",
        Kind::Address,
        "127.0.0.1:2181",
        "where ZooKeeper's clients connect, if coordination.engine is set",
        "an occupied port is an error at start",
    ),
    key(
        "listen.zookeeper_secure",
        Kind::Address,
        "",
        "a second port for ZooKeeper's clients, with TLS; listen.zookeeper is then without it, so that clients can move one by one",
        "it needs [tls]; as long as listen.zookeeper stays open, clients without a certificate are served there",
    ),
    key(
        "listen.zookeeper_advertised",
        Kind::Address,
        "",
        "the address at which ZooKeeper's clients reach this host, for /zookeeper/config, where it is not listen.zookeeper",
        "clients that follow /zookeeper/config replace their list of servers by what it says",
    ),
    key(
        "listen.kafka",
        Kind::Address,
        "",
        "where Kafka's clients connect; without it they are not served. The logs of log.spaces are their topics",
        "an occupied port is an error at start; it must be set on all hosts, since clients are sent to any of them",
    ),
    key(
        "coordination.engine",
        Kind::Word(&["mason", "paxos", "none"]),
        "none",
        "what orders the coordination service: mason spreads znodes over shards, paxos is one replicated state machine",
        "all hosts must agree, from the first start on",
    ),
    key(
        "coordination.shards",
        Kind::Number(1, 256),
        "4",
        "over how many shards znodes are spread",
        "what the cluster is born with, equal on all hosts; ordinate cluster shards changes it later; with engine = \"paxos\" there is one",
    ),
    key(
        "coordination.spread_levels",
        Kind::Number(0, 100),
        "2",
        "so many levels of the tree are spread over the shards: what is deeper lives with its ancestor at that level; 0 spreads all",
        "all hosts must agree, for the life of the data; a subtree at that level is one shard's, and changes within it are one shard's",
    ),
    key(
        "coordination.proxies",
        Kind::Number(1, 256),
        "3",
        "how many replicated proxies order operations; their leaders are spread over the hosts",
        "what the cluster is born with, equal on all hosts; ordinate cluster proxies changes it later; with engine = \"paxos\" there is one",
    ),
    key(
        "coordination.reads",
        Kind::Word(&["linearizable", "sequential"]),
        "linearizable",
        "what reads promise: every write answered before, or ZooKeeper's own promise",
        "sequential reads may miss what another client has just written",
    ),
    key(
        "coordination.session_timeout_min",
        Kind::Duration,
        "4s",
        "the shortest session timeout that is granted",
        "too short: sessions of busy clients expire",
    ),
    key(
        "coordination.session_timeout_max",
        Kind::Duration,
        "40s",
        "the longest session timeout that is granted",
        "too long: locks of dead clients are held as long",
    ),
    key(
        "coordination.request_bytes_max",
        Kind::Size,
        "1048575",
        "the largest request (ZooKeeper's jute.maxbuffer), up to 3129344",
        "a client that sends more is disconnected",
    ),
    key(
        "coordination.node_bytes_max",
        Kind::Size,
        "1048575",
        "the largest data of one node",
        "a longer write is refused with ZooKeeper's error -8 and counted in nodes_refused",
    ),
    key(
        "coordination.connections_max",
        Kind::Number(1, 1_000_000),
        "",
        "connections at a host's ZooKeeper port; without it limits.connections_max holds there, too",
        "further ones are refused",
    ),
    key(
        "coordination.connections_per_address_max",
        Kind::Number(1, 1_000_000),
        "",
        "those of them from one address (ZooKeeper's maxClientCnxns); without it limits.connections_per_address_max",
        "further ones are refused",
    ),
    key(
        "coordination.sessions_max",
        Kind::Number(1, 1_000_000_000),
        "1000000",
        "sessions of the whole cluster; each proxy takes an equal share",
        "further ones are refused as expired ones are, and counted in sessions_refused; must be equal on all hosts",
    ),
    key(
        "coordination.ttl_nodes",
        Kind::Switch,
        "true",
        "whether nodes with a time to live may be made (ZooKeeper's extendedTypesEnabled, which is false there)",
        "without them createTTL is answered with ZooKeeper's error -6",
    ),
    key(
        "coordination.enforce_quota",
        Kind::Switch,
        "false",
        "whether writes beyond the hard limits of quotas are refused (ZooKeeper's enforceQuota)",
        "usage is counted once a second: a burst through several hosts can exceed a limit by what it writes meanwhile",
    ),
    key(
        "coordination.outstanding_max",
        Kind::Number(1, 1_000_000),
        "1000",
        "requests of one connection that may be under way before it is read no further",
        "too many: one client takes the memory of all",
    ),
    key(
        "coordination.watches_max",
        Kind::Number(1, 100_000_000),
        "100000",
        "paths that one connection may watch",
        "too many: one client takes the memory of all",
    ),
    key(
        "coordination.reap_every",
        Kind::Duration,
        "60s",
        "how often empty containers and nodes whose time to live is over are looked for",
        "too short: each look costs a pass over all such nodes; too long: they stay that much longer",
    ),
    key(
        "coordination.four_letter_words",
        Kind::Text,
        "",
        "the four-letter words that are answered, separated by commas; * for all; without it those that only read",
        "crst, srst and stmk change what others read; dump and wchc show sessions and paths to everybody who connects",
    ),
    key(
        "coordination.secret",
        Kind::Text,
        "",
        "what sessions' passwords are made from; without it the cluster's name serves",
        "who knows it can take over any session",
    ),
    key(
        "coordination.super_digest",
        Kind::Text,
        "",
        "user:base64(sha1(user:password)) of a user who may do everything",
        "who knows the password can",
    ),
    key(
        "sequence.spaces",
        Kind::Names,
        "",
        "names of the sequence's spaces, separated by commas; without it there is no sequence service",
        "all hosts must agree on them and their order, from the first start on",
    ),
    key(
        "sequence.proxies",
        Kind::Number(1, 256),
        "3",
        "how many replicated proxies assign the sequence's numbers; their leaders are spread over the hosts",
        "all hosts must agree, from the first start on",
    ),
    key(
        "log.engine",
        Kind::Word(&["mason", "paxos", "corfu"]),
        "mason",
        "what orders the shared log: mason spreads logs over spaces, paxos is one replicated state machine, corfu is a baseline to \
         compare with, one log by a bare sequencer and chains of servers; the last two have one space",
        "all hosts must agree, from the first start on; docs/operations.md says what corfu does not do",
    ),
    key(
        "log.spaces",
        Kind::Number(0, 256),
        "0",
        "among how many spaces the logs are spread by their names, each executed by itself; 0: there is no shared log",
        "all hosts must agree, from the first start on",
    ),
    key(
        "log.proxies",
        Kind::Number(1, 256),
        "3",
        "how many replicated proxies order the log's appends; their leaders are spread over the hosts",
        "all hosts must agree, from the first start on",
    ),
    key(
        "log.space_bytes",
        Kind::Size,
        "268435456",
        "what the logs of one space may be created to hold together: on the disk of every host",
        "too large: disks run full, and clients wait; too small: logs cannot be created",
    ),
    key(
        "log.memory_bytes",
        Kind::Size,
        "64MiB",
        "what one space's entries may take of a host's memory, 32 MiB at least: those not on the disk yet, and those read lately",
        "too large: hosts run out of memory; too small: reads wait for the disk, and appends when it is slow",
    ),
    key(
        "log.archive",
        Kind::Archive,
        "",
        "where trimmed segments of logs go before they go from the disks: file:///DIRECTORY, the same on every host (a shared file \
         system), or s3://BUCKET/PREFIX, with credentials, region and endpoint in the environment, as AWS_ACCESS_KEY_ID, \
         AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT and their like; without it they are dropped",
        "all hosts must agree; taken out again, what still waits for the archive is dropped",
    ),
    key(
        "log.archive_backlog_bytes",
        Kind::Size,
        "268435456",
        "with more than so many bytes of a space's trimmed segments waiting for the archive, a host refuses appends to its logs",
        "too large: disks run full while the archive is away; too small: writers are refused at the first hiccup",
    ),
    key(
        "kafka.brokers",
        Kind::Addresses,
        "",
        "where Kafka's clients reach hosts, like a=a.example.net:9092,b=...; without it (or for hosts left out) where \
         [hosts] has them, at the port of listen.kafka",
        "an address that clients cannot reach: they connect, and then time out",
    ),
    key(
        "kafka.create_topics",
        Kind::Switch,
        "true",
        "whether a topic is made when a client asks for one that is not there (Kafka's auto.create.topics.enable)",
        "with it, a mistyped name takes memory",
    ),
    key(
        "kafka.retain_bytes",
        Kind::Size,
        "16MiB",
        "what a topic may hold, in bytes, unless its maker gives retention.bytes; beyond it the oldest records go",
        "too large: log.space_bytes is used up by few topics; too small: slow consumers miss records",
    ),
    key(
        "kv.engine",
        Kind::Word(&["paxos"]),
        "paxos",
        "what orders the key-value service's commands",
        "all hosts must agree",
    ),
    key(
        "durability.ack",
        Kind::Word(&["majority-fsync", "memory"]),
        "majority-fsync",
        "what an acknowledgement promises",
        "with memory, a power failure loses acknowledged writes",
    ),
    key(
        "paxos.faults",
        Kind::Number(0, 5),
        "",
        "how many hosts may fail; the default is as many as the hosts allow",
        "more faults need more hosts",
    ),
    key(
        "paxos.heartbeat_every",
        Kind::Duration,
        "30ms",
        "how often a leader tells that it lives",
        "too long: hangs are noticed late",
    ),
    key(
        "paxos.election_timeout",
        Kind::Duration,
        "150ms",
        "the least silence before another leader is elected",
        "too short: elections without need on a slow disk or network",
    ),
    key(
        "paxos.resend_after",
        Kind::Duration,
        "100ms",
        "how long an unanswered message waits before it is sent again",
        "too short: needless traffic under load",
    ),
    key(
        "paxos.window",
        Kind::Number(16, 65_536),
        "512",
        "how many slots may be under way; a new membership is in force that many slots later",
        "must be equal on all hosts, for ever",
    ),
    key(
        "paxos.batch_bytes_max",
        Kind::Size,
        "256KiB",
        "the most that one batch holds, and the largest request; 3.7 MiB at most",
        "large batches raise latency",
    ),
    key(
        "paxos.batch_delay",
        Kind::Duration,
        "0ms",
        "how long a batcher waits for a batch to fill",
        "adds to the latency of every write and linearizable read",
    ),
    key(
        "paxos.batches_in_flight_max",
        Kind::Number(1, 4_096),
        "8",
        "batches that one host has under way",
        "too few: idle disks; too many: small batches",
    ),
    key(
        "paxos.thrifty",
        Kind::Switch,
        "false",
        "ask only as many acceptors as a quorum needs, the others when those are slow",
        "a dead acceptor costs a resend for some slots",
    ),
    key(
        "paxos.snapshot_every_bytes",
        Kind::Size,
        "64MiB",
        "a replica writes a snapshot after this many bytes of commands",
        "too large: long restarts; too small: the disk writes snapshots all the time",
    ),
    key(
        "limits.connections_max",
        Kind::Number(1, 1_000_000),
        "20000",
        "client connections of a host",
        "further ones are refused",
    ),
    key(
        "limits.connections_per_address_max",
        Kind::Number(1, 1_000_000),
        "20000",
        "client connections from one address",
        "further ones are refused",
    ),
    key(
        "limits.request_bytes_max",
        Kind::Size,
        "2MiB",
        "the largest frame a client may send",
        "a larger one closes the connection",
    ),
    key(
        "limits.client_backlog_bytes_max",
        Kind::Size,
        "8MiB",
        "answers that wait for one client to read them, beside one answer of any size; at a quarter of it the client is read no further",
        "too large: few clients that do not read take what is there for all; too small: clients far away wait for each answer",
    ),
    key(
        "limits.backlog_bytes_max",
        Kind::Size,
        "192MiB",
        "answers that wait for all clients of a host together, shared by its ports: no more are made before clients read what waits. A \
         host takes a quarter more while it makes them",
        "too large: clients that do not read take the host's memory; too small: many readers of large answers wait for each other, and \
         an answer larger than about a third of it is refused",
    ),
    key(
        "limits.unread_for_max",
        Kind::Duration,
        "30s",
        "how long a client may take nothing of the answers that wait for it, before it is closed",
        "too short: clients that pause are closed; too long: what waits for dead ones is kept as long",
    ),
    key(
        "tls.ca",
        Kind::Path,
        "",
        "the authority that signs hosts and clients; switches TLS on for all ports but admin",
        "plaintext is refused then",
    ),
    key("tls.cert", Kind::Path, "", "this host's certificate", "must name the host"),
    key("tls.key", Kind::Path, "", "this host's private key", "must be readable by the server alone"),
];

/// The key called `name`.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name that `name` was most likely meant to be.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let closest = known.into_iter().map(|known| (distance(name, known), known)).min()?;
    (closest.0 <= name.len().max(closest.1.len()) / 2).then_some(closest.1)
}

/// How many letters to add, drop or change (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// `30ms`, `2s`, `1m`, `500us`.
pub fn parse_duration(text: &str) -> Option<std::time::Duration> {
    let (number, unit) = split_unit(text)?;
    let nanos = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    number.checked_mul(nanos).map(std::time::Duration::from_nanos)
}

/// `100`, `64KiB`, `1MiB`, `2GiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A typo that is accepted silently runs a cluster with a default nobody asked for.
    #[test]
    fn typos_find_their_key() {
        let names = || KEYS.iter().map(|key| key.name);
        assert_eq!(nearest("durability.akc", names()), Some("durability.ack"));
        assert_eq!(nearest("paxos.electiontimeout", names()), Some("paxos.election_timeout"));
        assert_eq!(nearest("zzzzzzzzzzzz", names()), None);
    }

    // A unit read wrongly turns 30 ms into 30 s.
    #[test]
    fn units_are_read() {
        assert_eq!(parse_duration("30ms"), Some(std::time::Duration::from_millis(30)));
        assert_eq!(parse_duration("30"), None);
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("1 MiB"), Some(1 << 20));
        assert_eq!(parse_size("64kb"), None);
    }

    // A default that its own kind refuses would make every start fail.
    #[test]
    fn every_default_is_valid() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(super::super::file::check_value(key, key.default).is_ok(), "{}", key.name);
        }
    }
}
