//! What a host is started with.

use crate::agreement::Agreement;
use crate::blobs::Archive;
use crate::clock::{ClockConfig, ClockSource};
use crate::descriptors::Descriptors;
use crate::disk::Disk;
use crate::event::EventSink;
use crate::inbound::Admission;
use crate::journal::JournalOptions;
use crate::link::PeerConfig;
use crate::tls::PeerTls;
use kernel::{ClusterName, HostId, HostSlot};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where a host keeps what it must not forget.
#[derive(Clone)]
pub enum Storage {
    /// Nowhere: messages are not held for any disk, and a restart begins from nothing.
    Memory,
    /// In a data directory.
    Directory {
        /// Which; made if it is not there.
        path: PathBuf,
        /// The journal's settings.
        journal: JournalOptions,
    },
    /// In a journal on the given disk, with the blobs beside it, without lock or owner: for tests.
    Disk {
        /// The directory.
        disk: Arc<dyn Disk>,
        /// The journal's settings.
        journal: JournalOptions,
    },
}

/// Everything a host needs to know; `HostConfig::new` has the defaults.
pub struct HostConfig {
    /// Peers and data directories of another cluster are refused.
    pub cluster: ClusterName,
    /// This host's name: its identity.
    pub name: String,
    /// Where other hosts connect.
    pub listen: Option<TcpListener>,
    /// The other hosts.
    pub peers: Vec<PeerConfig>,
    /// Those of them whose disks do not matter for what is made durable here.
    pub apart: Vec<HostId>,
    /// What survives a restart.
    pub storage: Storage,
    /// This host joins a living cluster: a data directory that is made by this start remembers it, see
    /// [`has_joined`](crate::has_joined).
    pub joins: bool,
    /// What all hosts must have alike; peers that differ are refused, and so is a data directory that was made with other values
    /// of what is for run.
    pub agreement: Agreement,
    /// Nodes that no longer live here, and never will again, whose records may be forgotten.
    pub forget: Vec<HostSlot>,
    /// The wall clock.
    pub clock: ClockConfig,
    /// Which incarnations of other hosts are let in; `None`: any without storage, else the first that is seen.
    pub admission: Option<Admission>,
    /// Hosts of the cluster that are no peers yet and are heard all the same, so that they can ask to be made members;
    /// nothing can be sent to them before they are peers. Zero: none.
    pub joining_max: usize,
    /// TLS between hosts.
    pub tls: Option<PeerTls>,
    /// The highest version of the messages that this build understands.
    pub message_version: u32,
    /// The lowest version that it still talks to; hosts that understand less are refused, and so are those that need more.
    pub message_version_min: u32,
    /// Bytes queued for one host while its link is up; more are dropped.
    pub queue_bytes_max: usize,
    /// Bytes queued for one host while its link is down.
    pub queue_bytes_max_down: usize,
    /// The largest frame between hosts, and so the largest message, in bytes.
    pub frame_body_max: usize,
    /// What clients of all ports may have of the descriptors that this process may have.
    pub descriptors: Descriptors,
    /// Where blobs are archived, if nodes ask for it.
    pub archive: Option<Arc<dyn Archive>>,
    /// The seed of the nodes' randomness; `None` for a seed of the system's.
    pub seed: Option<u64>,
    /// Keep the nodes' notes and report them as events.
    pub tracing: bool,
    /// Where events go.
    pub events: Option<EventSink>,
}

impl HostConfig {
    /// A host on its own, in memory, with a clock error of 10 ms.
    pub fn new(cluster: &str, name: &str) -> Self {
        Self {
            cluster: ClusterName(cluster.to_owned()),
            name: name.to_owned(),
            listen: None,
            peers: Vec::new(),
            apart: Vec::new(),
            storage: Storage::Memory,
            joins: false,
            agreement: Agreement::default(),
            forget: Vec::new(),
            clock: ClockConfig {
                source: ClockSource::Fixed { epsilon: Duration::from_millis(10) },
                error_max: Duration::from_millis(250),
                required: false,
            },
            admission: None,
            joining_max: 0,
            tls: None,
            message_version: 1,
            message_version_min: 1,
            queue_bytes_max: 64 << 20,
            queue_bytes_max_down: 1 << 20,
            frame_body_max: kernel::bounds::FRAME_BYTES_MAX,
            descriptors: Descriptors::default(),
            archive: None,
            seed: None,
            tracing: false,
            events: None,
        }
    }
}
