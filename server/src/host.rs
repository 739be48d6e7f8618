//! One host of a cluster: its roles, its journal, its ports.

use crate::cluster::{ClusterFile, Durability, RoleName};
use crate::family::{KvMember, Node};
use crate::native::{Gate, Native};
use crate::owed;
use crate::services::coordination::port::ZooKeeper;
use crate::services::log::archive;
use crate::services::log::kafka::{self, Directory, Kafka};
use kernel::{HostId, NodeId, Place};
use kv::Store;
use mason::Deployment;
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::batcher::Batcher;
use paxos::multipaxos::client::Client;
use paxos::multipaxos::leader::Leader;
use paxos::multipaxos::proxy_leader::ProxyLeader;
use paxos::multipaxos::replica::Replica;
use paxos::multipaxos::unbatcher::Unbatcher;
use paxos::{Configurations, Member};
use runtime::{
    ClientCertificates, ClientLimits, Descriptors, EventSink, FrontEndConfig, Host, HostConfig,
    JournalOptions, PeerConfig, PeerTls, ServerTls, Storage,
};
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The client role that serves this host's HTTP API.
pub const GATEWAY: Place = Place(7);

/// What hosts say to each other, and the oldest that this one talks with. 2: batches name the rules by which they are executed, and who does not know them
/// would execute otherwise.
const MESSAGE_VERSION: u32 = 2;
const MESSAGE_VERSION_MIN: u32 = 2;

/// Hosts that wait to be made members.
const JOINING_MAX: usize = 16;

/// The sockets of a host, bound before it starts so that an occupied port is known at once.
pub struct Sockets {
    /// For peers.
    pub peer: TcpListener,
    /// For clients of the native protocol.
    pub native: TcpListener,
    /// For ZooKeeper's clients, if the coordination service is on.
    pub zookeeper: Option<TcpListener>,
    /// The same with TLS, where the other is without it.
    pub zookeeper_secure: Option<TcpListener>,
    /// For Kafka's clients, if they are served.
    pub kafka: Option<TcpListener>,
}

/// A failure to start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] runtime::TlsError),
    /// What the environment says of the archive makes no sense.
    #[error("the archive cannot be used: {0}")]
    Archive(#[from] runtime::blobs::ArchiveError),
    /// The runtime refused.
    #[error(transparent)]
    Host(#[from] runtime::HostError),
}

/// Starts the host `name` of `file`. Clients are served while `gate` is open.
pub fn start(
    file: &ClusterFile,
    name: &str,
    joins: bool,
    sockets: Sockets,
    gate: Gate,
    events: Option<EventSink>,
    descriptors: Descriptors,
) -> Result<Host<Node>, StartError> {
    let peers = file.hosts.iter().filter(|host| host.name != name);
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
    let tls = file.tls.as_ref().map(|files| runtime::TlsFiles {
        certificates: files.cert.clone(),
        key: files.key.clone(),
        authorities: files.ca.clone(),
    });
    let place = file.logs.as_ref().and_then(|logs| logs.archive.as_ref());
    let archive: Option<Arc<dyn runtime::blobs::Archive>> = match place {
        Some(place) => Some(Arc::new(archive::Waiting::open(place)?)),
        None => None,
    };
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
        joining_max: JOINING_MAX,
        tls: tls.as_ref().map(PeerTls::load).transpose()?,
        events,
        message_version: MESSAGE_VERSION,
        message_version_min: MESSAGE_VERSION_MIN,
        ..HostConfig::new(&file.cluster, name)
    };
    let batcher = RoleName::Batcher.on(name);
    let body_max = file.limits.request_bytes_max;
    let shares = file.backlog_shares();
    let connections_max = file.limits.connections_max;
    let sequence = file
        .sequence
        .as_ref()
        .map(|sequence| crate::services::sequence::nodes::gateway(file, sequence, name));
    let logs = file.logs.as_ref().map(|logs| crate::services::log::nodes::gateway(file, logs, name));
    let (zookeeper_gate, kafka_gate) = (gate.clone(), gate.clone());
    let front_end = FrontEndConfig {
        listen: sockets.native,
        build: Box::new(move || {
            Box::new(Native {
                batcher,
                sequence,
                logs,
                body_max,
                gate,
                connections_max,
                owed: owed::pool(shares.native.promised_bytes_max()),
                writer: Rc::default(),
            })
        }),
        limits: ClientLimits {
            connections_max,
            connections_per_address_max: file.limits.connections_per_address_max,
            input_bytes_max: body_max + kernel::FRAME_HEADER_BYTES,
            output_bytes_max: file.limits.client_backlog_bytes_max,
            output_bytes_max_total: shares.native.bytes_max(),
            unread_for_max: file.limits.unread_for_max,
            handshake_within: Duration::from_secs(10),
        },
        tls: tls.as_ref().map(|tls| ServerTls::load(tls, ClientCertificates::Required)).transpose()?,
        secure: None,
    };
    let mut front_ends = vec![front_end];
    if let Some(coordination) = &file.coordination {
        let gateway = Deployment::gateway(HostId::named(name));
        let request_bytes_max = coordination.request_bytes_max;
        let tls = tls.as_ref().map(|tls| ServerTls::load(tls, ClientCertificates::Required)).transpose()?;
        // With a port for TLS, the other one is without it.
        let (listen, tls, secure) = match (sockets.zookeeper, sockets.zookeeper_secure) {
            (Some(plain), Some(secure)) => (Some(plain), None, tls.map(|tls| (secure, tls))),
            (listen, secure) => (listen.or(secure), tls, None),
        };
        if let Some(listen) = listen {
            front_ends.push(FrontEndConfig {
                listen,
                build: Box::new(move || {
                    Box::new(ZooKeeper { gateway, gate: zookeeper_gate, request_bytes_max })
                }),
                limits: ClientLimits {
                    connections_max: coordination.connections_max.unwrap_or(connections_max),
                    connections_per_address_max: coordination
                        .connections_per_address_max
                        .unwrap_or(file.limits.connections_per_address_max),
                    input_bytes_max: coordination.request_bytes_max + 4,
                    output_bytes_max: file.limits.client_backlog_bytes_max,
                    output_bytes_max_total: shares.zookeeper.bytes_max(),
                    unread_for_max: file.limits.unread_for_max,
                    handshake_within: Duration::from_secs(10),
                },
                tls,
                secure,
            });
        }
    }
    let directory = file.logs.as_ref().map(|logs| Directory::new(file, logs, name));
    if let (Some(listen), Some(gateway), Some(directory)) = (sockets.kafka, logs, &directory)
        && let Some(kafka) = file.logs.as_ref().and_then(|logs| logs.kafka.as_ref())
    {
        let (directory, request_bytes_max) = (directory.clone(), body_max);
        let settings = ::kafka::Settings {
            creates_topics: kafka.creates_topics,
            retain_bytes: kafka.retain_bytes,
            node: ::kafka::node_of(HostId::named(name)),
        };
        front_ends.push(FrontEndConfig {
            listen,
            build: Box::new(move || {
                let shared = kafka::shared();
                Box::new(Kafka { gateway, directory, settings, shared, request_bytes_max, gate: kafka_gate })
            }),
            limits: ClientLimits {
                connections_max,
                connections_per_address_max: file.limits.connections_per_address_max,
                input_bytes_max: request_bytes_max + 4,
                output_bytes_max: file.limits.client_backlog_bytes_max,
                output_bytes_max_total: shares.kafka.bytes_max(),
                unread_for_max: file.limits.unread_for_max,
                handshake_within: Duration::from_secs(10),
            },
            tls: tls.as_ref().map(|tls| ServerTls::load(tls, ClientCertificates::Required)).transpose()?,
            secure: None,
        });
    }
    let roles = {
        let (file, name) = (file.clone(), name.to_owned());
        move || all_nodes(&file, &name, joins)
    };
    let host = Host::start(config, roles, front_ends)?;
    if let Some(directory) = directory {
        kafka::watch(host.handle(), file.clone(), name.to_owned(), &directory);
    }
    Ok(host)
}

fn all_nodes(file: &ClusterFile, name: &str, joins: bool) -> Vec<(Place, Node)> {
    let mut nodes: Vec<(Place, Node)> =
        kv_nodes(file, name, joins).into_iter().map(|(place, member)| (place, member.into())).collect();
    if let Some(coordination) = &file.coordination {
        nodes.extend(crate::services::coordination::nodes::nodes(file, coordination, name, joins));
    }
    if let Some(sequence) = &file.sequence {
        nodes.extend(crate::services::sequence::nodes::nodes(file, sequence, name, joins));
    }
    if let Some(logs) = &file.logs {
        nodes.extend(crate::services::log::nodes::nodes(file, logs, name, joins));
    }
    nodes
}

/// The roles of the key-value store placed on a host; all of them on one that joins.
fn kv_nodes(file: &ClusterFile, name: &str, joins: bool) -> Vec<(Place, KvMember)> {
    let host = HostId::named(name);
    let first = file.placement.configuration();
    let known = if joins {
        Configurations::unconfirmed(first.clone())
    } else {
        Configurations::starting_with(first.clone())
    };
    let parameters = || file.parameters.clone();
    let at = |role: RoleName| Place(role as u32);
    let mut nodes: Vec<(Place, KvMember)> = Vec::new();
    let mut plays = |placed: &[NodeId], role: RoleName, build: &dyn Fn() -> KvMember| {
        if joins || placed.iter().any(|node| node.host() == host) {
            nodes.push((at(role), build()));
        }
    };
    let replica = (joins || first.has_replica_on(host)).then(|| RoleName::Replica.on(name));
    let acceptors: Vec<NodeId> = first.acceptors.nodes().collect();
    let batcher = || Member::Batcher(Batcher::new(parameters(), known.clone(), RoleName::Unbatcher.on(name)));
    plays(&first.batchers, RoleName::Batcher, &batcher);
    plays(&first.unbatchers, RoleName::Unbatcher, &|| Member::Unbatcher(Unbatcher));
    plays(&first.leaders, RoleName::Leader, &|| Member::Leader(Leader::new(parameters(), known.clone())));
    let proxy = || Member::ProxyLeader(ProxyLeader::new(parameters(), known.clone()));
    plays(&first.proxy_leaders, RoleName::ProxyLeader, &proxy);
    let new_acceptor = if joins { Acceptor::joining } else { Acceptor::new };
    plays(&acceptors, RoleName::Acceptor, &|| {
        Member::Acceptor(new_acceptor(parameters(), known.clone(), replica))
    });
    let new_replica = if joins { Replica::joining } else { Replica::new };
    let store = || Store::new(std::process::id().into());
    plays(&first.replicas, RoleName::Replica, &|| {
        Member::Replica(new_replica(parameters(), known.clone(), store()))
    });
    let near = if first.batchers.iter().any(|batcher| batcher.host() == host) || joins {
        vec![RoleName::Batcher.on(name)]
    } else {
        first.batchers.clone()
    };
    nodes.push((GATEWAY, Member::Client(Client::new(near, Duration::from_millis(500)))));
    nodes
}
