//! Gives the coordination service's gateway what only this process knows: for `/zookeeper/config` where it is reached, and for
//! ZooKeeper's four-letter words who leads, ports, folders, descriptors.

use super::advertise::Advertised;
use super::{Coordination, CoordinationStatus, gateway_of};
use crate::cluster::ClusterFile;
use crate::family::{HostedNode, LocalRequest};
use crate::status::{HostStatus, OF_LATE};
use coordination::gateway::{HostCall, HostFacts};
use kernel::{Encode, HostId};
use runtime::{HostHandle, NoAnswer};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Where ZooKeeper's clients connect.
#[derive(Clone, Copy, Default)]
pub struct Ports {
    /// Without TLS, or with it where there is one port.
    pub client: u16,
    /// With TLS, beside the other.
    pub secure: Option<u16>,
}

impl Ports {
    /// As they are bound.
    pub fn of(client: Option<SocketAddr>, secure: Option<SocketAddr>) -> Self {
        Self { client: client.map_or(0, |at| at.port()), secure: secure.map(|at| at.port()) }
    }
}

/// Watches from a thread of its own until the host ends.
pub fn watch(
    handle: HostHandle<HostedNode>,
    file: ClusterFile,
    host: String,
    ports: Ports,
    advertised: Option<Advertised>,
) {
    let began = Instant::now();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
        let gateway = gateway_of(&host).host_slot();
        let environment = environment();
        loop {
            let of_late = HostStatus::of_late(&handle, &file, &host, OF_LATE);
            if let Some((status, _)) = runtime.block_on(of_late).as_deref() {
                let advertises = advertised.as_ref().and_then(|it| it.operation(&status.membership.hosts));
                let facts = Some(facts(status, &file, ports, began.elapsed(), &environment));
                let advertises = advertises.map(Into::into);
                let call = HostCall { advertises, facts, probes: false }.encoded();
                let reported = handle.request_unused(gateway, LocalRequest::Service(call.into()));
                if let Err(NoAnswer::Stopped) = reported.wait(LOOK_EVERY) {
                    return;
                }
            } else if let Err(NoAnswer::Stopped) = handle.metrics().wait(LOOK_EVERY) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    });
}

fn facts(
    status: &HostStatus,
    file: &ClusterFile,
    ports: Ports,
    up: Duration,
    environment: &[(String, String)],
) -> HostFacts {
    let found = status.services.get::<CoordinationStatus>();
    let leads = found.is_some_and(|found| found.groups.sequencer.is_some());
    let others = status.membership.hosts.len().saturating_sub(1).max(file.hosts.len() - 1);
    // One replicated state machine has no sequencer: the host that leads its log leads.
    let over_mason = file.service::<Coordination>().is_some_and(Coordination::is_over_mason);
    let leads_log = found.is_some_and(|found| !found.groups.leads.is_empty());
    // Nor has a chain: the host whose director leads does.
    let directs = found.is_some_and(|found| found.chain.as_ref().is_some_and(|chain| chain.directs));
    let leads = if over_mason { leads } else { leads_log || directs };
    let mode = match (others, leads) {
        (0, _) => "standalone",
        (_, true) => "leader",
        (_, false) => "follower",
    };
    let mut monitor = descriptors();
    monitor.push(("uptime".to_owned(), up.as_millis().to_string()));
    monitor.push(("global_sessions".to_owned(), found.map_or(0, |found| found.sessions).to_string()));
    monitor.push(("quorum_size".to_owned(), (others + 1).to_string()));
    if mode == "leader" {
        monitor.push(("followers".to_owned(), others.to_string()));
        monitor.push(("synced_followers".to_owned(), status.links_up.to_string()));
        monitor.push(("learners".to_owned(), others.to_string()));
        monitor.push(("pending_syncs".to_owned(), "0".to_owned()));
    }
    HostFacts {
        mode: mode.to_owned(),
        monitor,
        settings: settings(status, file, ports),
        environment: environment.to_vec(),
    }
}

/// The names that ZooKeeper's `conf` has.
fn settings(status: &HostStatus, file: &ClusterFile, ports: Ports) -> Vec<(String, String)> {
    let folder = file.data.join(&status.host).display().to_string();
    let peer = status.membership.hosts.get(&status.host).and_then(|address| address.rsplit_once(':'));
    let peer_port = peer.map_or("0", |(_, port)| port);
    let rows = [
        ("clientPort", ports.client.to_string()),
        ("secureClientPort", ports.secure.map_or("-1".to_owned(), |port| port.to_string())),
        ("dataDir", folder.clone()),
        ("dataDirSize", status.activity.journal_bytes.to_string()),
        ("dataLogDir", folder),
        ("dataLogSize", status.activity.journal_bytes.to_string()),
        ("serverId", HostId::named(&status.host).0.to_string()),
        ("quorumPort", peer_port.to_owned()),
        ("peerType", "0".to_owned()),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The names of ZooKeeper's `envi` that mean something without a Java machine.
fn environment() -> Vec<(String, String)> {
    let read =
        |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let folder = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
    let rows = [
        ("host.name", read("/proc/sys/kernel/hostname")),
        ("os.name", read("/proc/sys/kernel/ostype")),
        ("os.arch", std::env::consts::ARCH.to_owned()),
        ("os.version", read("/proc/sys/kernel/osrelease")),
        ("user.name", std::env::var("USER").unwrap_or_default()),
        ("user.home", std::env::var("HOME").unwrap_or_default()),
        ("user.dir", folder),
    ];
    rows.map(|(name, value)| (name.to_owned(), value)).into()
}

fn descriptors() -> Vec<(String, String)> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let most = line.and_then(|line| line.split_whitespace().nth(3)).unwrap_or("0");
    vec![
        ("open_file_descriptor_count".to_owned(), open.to_string()),
        ("max_file_descriptor_count".to_owned(), most.to_owned()),
    ]
}
