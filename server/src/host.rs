//! One host of a cluster: its roles, its journal, its ports.

use crate::access::Access;
use crate::cluster::{ClusterFile, Durability};
use crate::family::{HostedNode, Ordinate, OrdinateMessage};
use crate::gate::Gate;
use crate::latency::Latencies;
use crate::native::{NativePort, NativeService};
use crate::owed;
use crate::secure::HostTls;
use crate::services::{Listed, SERVICES, StartError, Starting, client_limits};
use kernel::{HostId, HostSlot};
use runtime::{
    Descriptors, EventSink, FrontEndConfig, Host, HostConfig, JournalOptions, ObservedBy, PeerConfig, Storage,
};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

/// What hosts say to each other, and the oldest that this one talks with. 2: batches name the rules by which they are executed, and who does not know them
/// would execute otherwise. 3: appends say how they were admitted, and who does not read that would not count what a log drops. 4: what is said again and again has a number.
/// 5: that a host is alive is said once for all of its logs.
const MESSAGE_VERSION: u32 = 6;
const MESSAGE_VERSION_MIN: u32 = 3;

/// Hosts that wait to be made members.
const JOINING_MAX: usize = 16;

/// The sockets of a host, bound before it starts so that an occupied port is known at once.
pub struct Sockets {
    /// For peers.
    pub peer: TcpListener,
    /// For clients of the native protocol.
    pub native: TcpListener,
    /// For users of services that have ports of their own, by the keys that say where.
    pub users: BTreeMap<&'static str, TcpListener>,
}

/// Starts the host `name` of `file`. Clients are served while `gate` is open; how long their calls take is counted.
pub fn start(
    file: &ClusterFile,
    name: &str,
    joins: bool,
    mut sockets: Sockets,
    gate: Gate,
    latencies: &Latencies,
    events: Option<EventSink>,
    descriptors: Descriptors,
    tls: Option<HostTls>,
    access: &Access,
    observer: ObservedBy<OrdinateMessage>,
) -> Result<Host<HostedNode>, StartError> {
    let peers = file.hosts.iter().filter(|host| host.name != name).chain(&file.elsewhere);
    // The cluster file of a host that joined stays unconfirmed for as long as its data live, however it is started.
    let remembered = match file.durability {
        Durability::Memory => false,
        Durability::MajorityFsync => {
            runtime::has_joined(&file.data.join(name)).map_err(runtime::HostError::Data)?
        }
    };
    let joins = joins || remembered;
    let storage = match file.durability {
        Durability::Memory => Storage::Memory,
        Durability::MajorityFsync => {
            Storage::Directory { path: file.data.join(name), journal: JournalOptions::default() }
        }
    };
    let mut archive: Option<Arc<dyn runtime::blobs::Archive>> = None;
    for service in file.services() {
        archive = archive.or(service.archive()?);
    }
    let config = HostConfig {
        archive,
        descriptors,
        listen: Some(sockets.peer),
        peers: peers
            .map(|host| PeerConfig { name: host.name.clone(), address: host.address.clone() })
            .collect(),
        storage,
        joins,
        agreement: file.agreement(),
        clock: file.clock_config(),
        joining_max: JOINING_MAX,
        tls: tls.as_ref().map(|tls| tls.peers.clone()),
        events,
        message_version: MESSAGE_VERSION,
        message_version_min: MESSAGE_VERSION_MIN,
        apart: file.elsewhere.iter().map(|host| HostId::named(&host.name)).collect(),
        ..HostConfig::new(&file.identity(), name)
    };
    let sockets_of = &mut sockets.users;
    let tls = tls.as_ref().map(|tls| &tls.users);
    let mut users = Starting { file, host: name, gate: &gate, latencies, sockets: sockets_of, tls, access };
    let mut front_ends = vec![native(&users, sockets.native)?];
    let mut beside = Vec::new();
    for service in file.services() {
        let started = service.start(&mut users)?;
        front_ends.extend(started.front_ends);
        beside.extend(started.beside);
    }
    let roles = {
        let (file, name) = (file.clone(), name.to_owned());
        move || all_nodes(&file, &name, joins)
    };
    let host = Host::start_observed(config, roles, front_ends, observer)?;
    beside.into_iter().for_each(|go_on| go_on(host.handle()));
    Ok(host)
}

fn all_nodes(file: &ClusterFile, name: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
    file.services().iter().flat_map(|service| service.nodes(file, name, joins)).collect()
}

/// The native port: all services that have calls there.
fn native(at: &Starting<'_>, listen: TcpListener) -> Result<FrontEndConfig<Ordinate>, StartError> {
    let (file, name, gate, latencies) = (at.file, at.host, at.gate.clone(), at.latencies.clone());
    let access = at.access.clone();
    let of =
        |listed: &'static Listed| (listed, file.on(listed).and_then(|service| service.native(file, name)));
    let services: Vec<NativeService> = SERVICES.iter().map(|listed| of(listed)).collect();
    let (body_max, connections_max) = (file.limits.request_bytes_max, file.limits.connections_max);
    let share = file.native_share();
    Ok(FrontEndConfig {
        name: "native",
        listen,
        build: Box::new(move || {
            Box::new(NativePort {
                services: services.into(),
                body_max,
                gate,
                connections_max,
                owed: owed::pool(share.promised_bytes_max()),
                latencies,
                writer: Rc::default(),
                access,
            })
        }),
        limits: client_limits(&file.limits, body_max + kernel::FRAME_HEADER_BYTES, share),
        tls: at.tls(),
        secure: None,
    })
}
