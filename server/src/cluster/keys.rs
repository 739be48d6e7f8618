//! Keys of the cluster file: each one's kind, default, meaning, and what goes wrong with a bad value. Here are those that are no service's
//! own; the table of all is `key_table`.

use super::engine::Engine;

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum KeyKind {
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
    /// One of these engines, or also none: the service is off.
    Engine(&'static [Engine], OrNone),
    /// What a service checks itself, and what that looks like.
    Checked(fn(&str) -> bool, &'static str),
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
    /// A section whose lines the operator names; this is what they look like.
    Section(&'static str),
}

/// Whether a service may be without an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrNone {
    /// It is always on, or switched on otherwise.
    Always,
    /// `none` switches it off.
    OrNone,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, with its section.
    pub name: &'static str,
    /// What it takes.
    pub kind: KeyKind,
    /// What holds without it; empty: none.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What breaks when it is wrong.
    pub risk: &'static str,
}

impl Key {
    /// What stands before the dot of its name; empty for those at the top of the file.
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }
}

/// A key, as the tables of keys write it.
pub const fn key(
    name: &'static str,
    kind: KeyKind,
    default: &'static str,
    meaning: &'static str,
    risk: &'static str,
) -> Key {
    Key { name, kind, default, meaning, risk }
}

/// The sections whose lines the operator names.
pub(super) const SECTIONS: &[Key] = &[
    key(
        "hosts",
        KeyKind::Section(
            "a line for each host: its name, and the address where other hosts connect, like a = \"a.example.net:7072\"",
        ),
        "",
        "the hosts of the cluster",
        "the names are equal on all hosts, for ever; an address is looked up whenever it is dialled",
    ),
    key(
        "place",
        KeyKind::Section("[[place]] with role, on and, of acceptors, columns"),
        "",
        "which hosts play a role of the replicated log; without it every host plays every role",
        "all hosts must agree, for ever",
    ),
    key(
        "regions",
        KeyKind::Section("two lines or more, each a region's name and its hosts, like ohio = \"a,b,c\""),
        "",
        "hosts that are far from those of other regions; each region has its own members, chains and directors, and serves while it is \
         cut from the others. Only [fuzzylog] goes with it",
        "all hosts must agree, for ever, apart from hosts that are replaced; regions are neither added nor removed later",
    ),
];

/// Those of the cluster and of where hosts listen, apart from the open sections.
pub(super) const OF_THE_CLUSTER: &[Key] = &[
    key(
        "cluster",
        KeyKind::Text,
        "",
        "the cluster's name; hosts refuse peers and data of another cluster",
        "a host with another name never joins",
    ),
    key(
        "data",
        KeyKind::Path,
        "ordinate-data",
        "where a host keeps its journal; each host uses the folder of its name in it",
        "two clusters must not share it; a host started on an empty folder under a known name is refused",
    ),
    key(
        "listen.native",
        KeyKind::Address,
        "127.0.0.1:7071",
        "where clients of the native protocol connect",
        "an occupied port is an error at start",
    ),
    key(
        "listen.admin",
        KeyKind::Address,
        "127.0.0.1:7070",
        "web page, metrics, health, what changes the cluster, and applications' HTTP where it has no port of its own",
        "it answers without a password: keep it on a private address",
    ),
    key(
        "listen.http",
        KeyKind::Address,
        "",
        "a port of its own for applications' HTTP (/v1/kv, /v1/log, /v1/txn, /v1/sequence), which the admin port then has no more; \
         with TLS where [tls] is set and listen.http_secure is not",
        "without TLS it answers everybody who reaches it",
    ),
    key(
        "listen.http_secure",
        KeyKind::Address,
        "",
        "a second port for applications' HTTP, with TLS; listen.http is then without it, so that clients can move one by one",
        "it needs [tls]; as long as listen.http stays open, clients without a certificate are served there",
    ),
    key(
        "listen.names",
        KeyKind::Names,
        "",
        "names by which HTTP clients call this host, beside those in [hosts], the machine's own, localhost and addresses in numbers",
        "a request for another name is refused, because it may be a web page's whose name was made to point here",
    ),
];

/// True if traces can be sent there.
fn is_collector(text: &str) -> bool {
    let Some(address) = text.strip_prefix("http://") else { return false };
    let authority = address.split('/').next().unwrap_or_default();
    !address.contains(char::is_whitespace)
        && authority
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Those that all services share.
pub(super) const SHARED: &[Key] = &[
    key(
        "access.file",
        KeyKind::Path,
        "",
        "who may do what: identities, and what each is granted; with it, everything is refused that it does not grant",
        "the same file on all hosts; a host takes it over when it changes; without it every client may do everything",
    ),
    key(
        "log_output.format",
        KeyKind::Word(&["text", "json"]),
        "text",
        "how a host writes its log to standard error: lines for people, or an object a line, with time, level, host and target",
        "a program that reads the log must know which; the lines of the start are text always",
    ),
    key(
        "log_output.slow_call",
        KeyKind::Duration,
        "1s",
        "calls of users that take longer are counted in the host's log, by service and operation, every ten seconds at most; 0s: never",
        "too short: a line every ten seconds says what everybody knows",
    ),
    key(
        "trace.endpoint",
        KeyKind::Checked(is_collector, "the URL of a collector, like http://127.0.0.1:4318"),
        "",
        "where traces of requests are sent: a collector of OpenTelemetry that takes OTLP over HTTP; without it none are made",
        "spans that the collector does not take are dropped and counted; no request waits for it",
    ),
    key(
        "trace.one_in",
        KeyKind::Number(1, 1_000_000_000),
        "1000",
        "one request in so many is followed, over all roles and hosts that it crosses",
        "equal on all hosts, or traces have holes; a small number costs time with each request",
    ),
    key(
        "durability.ack",
        KeyKind::Word(&["majority-fsync", "memory"]),
        "majority-fsync",
        "what an acknowledgement promises",
        "with memory, a power failure loses acknowledged writes",
    ),
    key(
        "paxos.faults",
        KeyKind::Number(0, 5),
        "",
        "how many hosts may fail; the default is as many as the hosts allow",
        "more faults need more hosts",
    ),
    key(
        "paxos.heartbeat_every",
        KeyKind::Duration,
        "30ms",
        "how often a leader sends heartbeats",
        "too long: hangs are noticed late",
    ),
    key(
        "paxos.election_timeout",
        KeyKind::Duration,
        "150ms",
        "the least silence before another leader is elected",
        "too short: elections without need on a slow disk or network",
    ),
    key(
        "paxos.resend_after",
        KeyKind::Duration,
        "100ms",
        "how long an unanswered message waits before it is sent again",
        "too short: needless traffic under load",
    ),
    key(
        "paxos.window",
        KeyKind::Number(16, 65_536),
        "512",
        "how many slots may be in flight; a new membership is in force that many slots later",
        "must be equal on all hosts, for ever",
    ),
    key(
        "paxos.batch_bytes_max",
        KeyKind::Size,
        "256KiB",
        "the most that one batch holds, and the largest request; 3.7 MiB at most",
        "large batches raise latency",
    ),
    key(
        "paxos.batch_delay",
        KeyKind::Duration,
        "0ms",
        "how long a batcher waits for a batch to fill",
        "adds to the latency of every write and linearizable read",
    ),
    key(
        "paxos.batches_in_flight_max",
        KeyKind::Number(1, 4_096),
        "8",
        "batches that one host has in flight",
        "too few: idle disks; too many: small batches",
    ),
    key(
        "paxos.thrifty",
        KeyKind::Switch,
        "false",
        "ask only as many acceptors as a quorum needs, the others when those are slow",
        "a dead acceptor costs a resend for some slots",
    ),
    key(
        "paxos.snapshot_every_bytes",
        KeyKind::Size,
        "64MiB",
        "a replica writes a snapshot after this many bytes of commands",
        "too large: long restarts; too small: the disk writes snapshots all the time",
    ),
    key(
        "limits.connections_max",
        KeyKind::Number(1, 1_000_000),
        "20000",
        "client connections of a host",
        "further ones are refused",
    ),
    key(
        "limits.connections_per_address_max",
        KeyKind::Number(1, 1_000_000),
        "20000",
        "client connections from one address",
        "further ones are refused",
    ),
    key(
        "limits.request_bytes_max",
        KeyKind::Size,
        "2MiB",
        "the largest frame a client may send",
        "a larger one closes the connection",
    ),
    key(
        "limits.client_backlog_bytes_max",
        KeyKind::Size,
        "8MiB",
        "answers that wait for one client to read them, beside one answer of any size; at a quarter of it the client is read no further",
        "too large: few clients that do not read take what is there for all; too small: clients far away wait for each answer",
    ),
    key(
        "limits.backlog_bytes_max",
        KeyKind::Size,
        "192MiB",
        "answers that wait for all clients of a host together, shared by its ports: no more are made before clients read what waits. A \
         host takes a quarter more while it makes them",
        "too large: clients that do not read take the host's memory; too small: many readers of large answers wait for each other, and \
         an answer larger than about a third of it is refused",
    ),
    key(
        "limits.unread_for_max",
        KeyKind::Duration,
        "30s",
        "how long a client may take nothing of the answers that wait for it, before it is closed",
        "too short: clients that pause are closed; too long: what waits for dead ones is held as long",
    ),
    key(
        "clock.source",
        KeyKind::Word(&["auto", "clockbound", "chrony", "kernel", "fixed"]),
        "auto",
        "who bounds the error of the wall clock: auto takes the first that works of clockbound, chrony and kernel; fixed believes \
         clock.epsilon. ordinate clock measures them",
        "fixed vouches for a clock that nobody may be keeping; without a usable one, services that rest on it do not start",
    ),
    key(
        "clock.epsilon",
        KeyKind::Duration,
        "10ms",
        "with clock.source = fixed: how far the clock may be off true time, either way",
        "too small: clients far apart see writes out of order; too large: each commit waits twice as long",
    ),
    key(
        "clock.error_max",
        KeyKind::Duration,
        "250ms",
        "with a larger error the wall clock is not usable, and what rests on it is given up until the error is smaller",
        "too small: duties are given up between two corrections of the clock; too large: commits wait as long",
    ),
    key(
        "backup.to",
        KeyKind::Text,
        "",
        "where backups of all services are taken to: a directory that all hosts share, or s3://BUCKET/PREFIX with credentials in the \
         environment; without it none are taken",
        "a directory that hosts do not share has part of the backups on each",
    ),
    key(
        "backup.every",
        KeyKind::Duration,
        "24h",
        "how old the newest backup may be before the next one is taken, by one host that does not lead",
        "too often: the host copies its state each time; too seldom: what came since is lost with the cluster",
    ),
    key(
        "backup.keep",
        KeyKind::Number(1, 100_000),
        "7",
        "how many backups are retained; older ones are removed behind each new one",
        "too few: what was deleted unnoticed is gone from all of them",
    ),
    key(
        "backup.token_file",
        KeyKind::Path,
        "",
        "a file with the token of an identity that may take backups, where access control is on",
        "without it, and with access control, no backup is taken, and the log says so",
    ),
    key(
        "tls.ca",
        KeyKind::Path,
        "",
        "the authority that signs hosts and clients; switches TLS on for all ports but admin",
        "plaintext is refused then",
    ),
    key("tls.cert", KeyKind::Path, "", "this host's certificate", "must name the host"),
    key("tls.key", KeyKind::Path, "", "this host's private key", "must be readable by the server alone"),
];

/// The known name that `name` was most likely meant to be.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let closest = known.into_iter().map(|known| (strsim::levenshtein(name, known), known)).min()?;
    (closest.0 <= name.len().max(closest.1.len()) / 2).then_some(closest.1)
}

/// `30ms`, `2s`, `1m`, `500us`.
pub fn parse_duration(text: &str) -> Option<std::time::Duration> {
    humantime::parse_duration(text).ok()
}

/// `100`, `64KiB`, `1MiB`, `2GiB`. Libraries take `64kb` as well, for 64,000 bytes, which nobody means who writes it.
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

    // A unit read wrongly turns 30 ms into 30 s.
    #[test]
    fn units_are_read() {
        assert_eq!(parse_duration("30ms"), Some(std::time::Duration::from_millis(30)));
        assert_eq!(parse_duration("30"), None);
        let units =
            [("5us", 5_000), ("2 s", 2_000_000_000), ("3m", 180_000_000_000), ("1h", 3_600_000_000_000)];
        for (text, nanos) in
            [&units[..], &[("7d", 604_800_000_000_000), ("1h30m", 5_400_000_000_000)]].concat()
        {
            assert_eq!(parse_duration(text), Some(std::time::Duration::from_nanos(nanos)), "{text}");
        }
        assert_eq!(parse_duration("99999999999999999999s"), None);
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("1 MiB"), Some(1 << 20));
        assert_eq!(parse_size("64kb"), None);
    }
}
