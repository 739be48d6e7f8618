//! Bounds on clients, and how the ports of a host share them.

use super::ClusterFile;
use super::file::Values;
use std::time::Duration;

/// Bounds on clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections of a host.
    pub connections_max: usize,
    /// Connections from one address.
    pub connections_per_address_max: usize,
    /// The largest frame of a client.
    pub request_bytes_max: usize,
    /// Answers waiting for one client.
    pub client_backlog_bytes_max: usize,
    /// Answers waiting for all clients.
    pub backlog_bytes_max: usize,
    /// How long a client may take nothing of what waits for it.
    pub unread_for_max: Duration,
}

impl Limits {
    pub(super) fn of(values: &Values<'_>) -> Self {
        let number = |name| values.number(name).unwrap_or(0) as usize;
        Self {
            connections_max: number("limits.connections_max"),
            connections_per_address_max: number("limits.connections_per_address_max"),
            request_bytes_max: values.size("limits.request_bytes_max"),
            client_backlog_bytes_max: values.size("limits.client_backlog_bytes_max"),
            backlog_bytes_max: values.size("limits.backlog_bytes_max"),
            unread_for_max: values.duration("limits.unread_for_max"),
        }
    }
}

/// A port's part of `limits.backlog_bytes_max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(usize);

impl Share {
    /// What may wait for its clients in all, in bytes; beyond it the one furthest behind is cut off.
    pub fn bytes_max(self) -> usize {
        self.0
    }

    /// What they may be promised, in bytes: events and what buffers take beside what is in them are the rest.
    pub fn promised_bytes_max(self) -> usize {
        self.0 / 5 * 4
    }
}

/// The parts of all ports; together they are no more than `limits.backlog_bytes_max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Of the native protocol: the key-value service, the sequence, the log.
    pub native: Share,
    /// Of ZooKeeper's clients.
    pub zookeeper: Share,
    /// Of Kafka's clients.
    pub kafka: Share,
}

impl ClusterFile {
    /// How the ports of a host share `limits.backlog_bytes_max`; where there is one port, it has all.
    pub fn backlog_shares(&self) -> Shares {
        let zookeeper = if self.coordination.is_some() { 2 } else { 0 };
        let kafka = usize::from(self.logs.as_ref().is_some_and(|logs| logs.kafka.is_some()));
        let part = self.limits.backlog_bytes_max / (1 + zookeeper + kafka);
        Shares { native: Share(part), zookeeper: Share(part * zookeeper), kafka: Share(part * kafka) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Overrides;
    use super::*;
    use std::path::Path;

    // Ports that each take the whole of what a host may hold take several times that.
    #[test]
    fn ports_share_what_may_wait_for_clients() {
        let kafka = "[log]\nspaces = 1\n[listen]\nkafka = \"127.0.0.1:9092\"";
        let all = format!("[coordination]\nengine = \"mason\"\n{kafka}");
        for (settings, wanted) in [("", (96, 0, 0)), (kafka, (48, 0, 48)), (&*all, (24, 48, 24))] {
            let text = format!(
                "cluster = \"c\"\n{settings}\n[limits]\nbacklog_bytes_max = \"96MiB\"\n[hosts]\na = \"a:1\""
            );
            let file = ClusterFile::parse(&text, Path::new("."), &Overrides::default()).expect("it is sound");
            let shares = file.backlog_shares();
            let parts = (shares.native.0 >> 20, shares.zookeeper.0 >> 20, shares.kafka.0 >> 20);
            assert_eq!(parts, wanted, "{settings}");
            assert!(shares.zookeeper.promised_bytes_max() <= shares.zookeeper.bytes_max());
        }
    }
}
