//! Bounds on clients, and how the ports of a host share them.

use super::values::Values;
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
    /// Connections that there are descriptors for, whatever a port may have.
    pub descriptors: usize,
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
            descriptors: usize::MAX,
        }
    }
}

/// A port's part of `limits.backlog_bytes_max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(pub(super) usize);

impl Share {
    /// What may wait for its clients in all, in bytes; beyond it the one furthest behind is disconnected.
    pub fn bytes_max(self) -> usize {
        self.0
    }

    /// What they may be promised, in bytes: events and what buffers take beside what is in them are the rest.
    pub fn promised_bytes_max(self) -> usize {
        self.0 / 5 * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterFile;
    use crate::cluster::file::Overrides;
    use crate::services::Port;
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
            let ports: Vec<Port> = file.services().iter().flat_map(|service| service.ports()).collect();
            let of = |key: &str| ports.iter().find(|port| port.key == key).map(|port| file.share_of(port));
            let [zookeeper, kafka] = ["listen.zookeeper", "listen.kafka"].map(of);
            let mebibytes = |share: Option<Share>| share.map_or(0, |share| share.bytes_max() >> 20);
            let parts = (mebibytes(Some(file.native_share())), mebibytes(zookeeper), mebibytes(kafka));
            assert_eq!(parts, wanted, "{settings}");
            assert!(zookeeper.is_none_or(|share| share.promised_bytes_max() <= share.bytes_max()));
        }
    }
}
