//! The coordination service: ZooKeeper's protocol, over shards under Mason or FuzzyLog, or over one replicated state machine.

mod advertise;
mod arrangement;
mod commands;
mod facts;
mod guard;
mod keys;
mod nodes;
mod over_fuzzylog;
mod port;
mod sessions;
mod settings;
mod status;
pub mod subject;
mod timing;

pub use over_fuzzylog::TreeChainStatus;
pub use settings::Coordination;
pub use status::CoordinationStatus;

use super::records::{self, RecordOwner};
use super::{
    Engine, Follower, Listed, Port, ReadyProbe, Service, ServiceStatus, StartError, Started, Starting,
    client_limits, slots,
};
use crate::admin::state::{Admin, HttpRoutes};
use crate::cluster::ClusterFile;
use crate::cluster::agreement::FIXED;
use crate::family::{CoordinationMember, HostedNode, LocalRequest, LocalResponse};
use ::coordination::gateway::HostCall;
use advertise::Advertised;
use axum::Router;
use axum::routing::get;
use facts::Ports;
use kernel::{Encode as _, HostId, HostSlot, NodeId};
use mason::Deployment;
use port::ZooKeeper;
use runtime::{Agreement, ClientLimits, FrontEndConfig, HostView};
use std::sync::Arc;

const ENGINES: &[Engine] = &[Engine::Mason, Engine::Paxos, Engine::FuzzyLog];

/// The service's line of the list. Its users speak ZooKeeper's protocol, not the native one.
pub const LISTED: Listed = Listed {
    name: "coordination",
    engines: ENGINES,
    keys: keys::KEYS,
    slots: &[slots::COORDINATION, slots::COORDINATION_OVER_FUZZYLOG],
    receivers: &[],
    off: "call of the coordination service, which is off",
    read: settings::read,
    check_http: |_, _| Ok(()),
    reads: None,
    owner,
};

/// What it serves over HTTP.
pub const HTTP_ROUTES: HttpRoutes =
    HttpRoutes { service: &LISTED, paths: &[], of_users: Router::new, of_operators: admin_routes };

const PORT: &str = "listen.zookeeper";
const SECURE_PORT: &str = "listen.zookeeper_secure";
/// Its clients are many, and their answers large.
const PARTS: usize = 2;

/// Bytes before a request that say how long it is.
const LENGTH_BYTES: usize = 4;

fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    let over_mason = records::mason_owner(LISTED.name, slots::COORDINATION, 0, host_slot);
    over_mason.or_else(|| over_fuzzylog::owner(host_slot))
}

fn admin_routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/commands", get(commands::list))
        .route("/commands/{name}", get(commands::command))
        .route("/v1/zookeeper/sessions", get(sessions::list))
        .route("/v1/zookeeper/proxies", get(arrangement::proxies).put(arrangement::change_proxies))
        .route("/v1/zookeeper/shards", get(arrangement::shards).put(arrangement::change_shards))
}

/// The role of the service that a node is, if it is one.
fn member_of(node: &HostedNode) -> Option<&CoordinationMember> {
    let HostedNode::Coordination(embedded) = node else { return None };
    Some(embedded.node())
}

fn gateway_of(host: &str) -> NodeId {
    Deployment::gateway(HostId::named(host))
}

impl Coordination {
    fn port(&self) -> Port {
        Port { key: PORT, address: self.listen.clone(), parts: PARTS }
    }
}

impl Service for Coordination {
    fn listed(&self) -> &'static Listed {
        &LISTED
    }

    fn engine(&self) -> Engine {
        self.engine
    }

    fn agree(&self, agreement: &mut Agreement) {
        agreement.add("coordination.engine", self.engine.name(), FIXED);
        agreement.add("coordination.shards", &self.shards.to_string(), FIXED);
        agreement.add("coordination.spread_levels", &self.spread_levels.to_string(), FIXED);
        agreement.add("coordination.proxies", &self.proxies.to_string(), FIXED);
        agreement.add("coordination.sessions_max", &self.sessions_max.to_string(), !FIXED);
        // So few bits show that secrets differ, and not what they are.
        let bits = parts::digest(self.secret.as_bytes()) as u16;
        agreement.add("coordination.secret", &format!("({bits:04x})"), !FIXED);
    }

    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
        match self.engine {
            Engine::FuzzyLog => over_fuzzylog::nodes(file, self, host, joins),
            Engine::Mason | Engine::Paxos | Engine::Corfu | Engine::Spanner => {
                nodes::nodes(file, self, host, joins)
            }
        }
    }

    fn followers(&self, file: &ClusterFile, host: &str) -> Vec<Follower> {
        match self.engine {
            Engine::FuzzyLog => over_fuzzylog::followers(file, host),
            Engine::Mason | Engine::Paxos | Engine::Corfu | Engine::Spanner => {
                super::mason::proxies(&nodes::deployment(file, self), host)
            }
        }
    }

    fn ports(&self) -> Vec<Port> {
        let secure = self.listen_secure.clone();
        // Both ports are one front end.
        let secure = secure.map(|address| Port { key: SECURE_PORT, address, parts: 0 });
        [self.port()].into_iter().chain(secure).collect()
    }

    fn own_connections_max(&self) -> Option<(&'static str, usize)> {
        self.connections_max.map(|max| ("coordination.connections_max", max))
    }

    fn start(&self, at: &mut Starting<'_>) -> Result<Started, StartError> {
        let (file, gateway, gate) = (at.file, gateway_of(at.host), at.gate.clone());
        let (request_bytes_max, latencies) = (self.request_bytes_max, at.latencies.clone());
        let access = at.access.clone();
        let share = file.share_of(&self.port());
        let limits = ClientLimits {
            connections_max: self.connections_max(&file.limits),
            connections_per_address_max: self.connections_per_address_max(&file.limits),
            ..client_limits(&file.limits, request_bytes_max + LENGTH_BYTES, share)
        };
        let listens = at.address_of(PORT);
        let ports = Ports::of(listens, at.address_of(SECURE_PORT));
        let tls = at.tls();
        // With a port for TLS, the other one is without it.
        let (listen, tls, secure) = match (at.sockets.remove(PORT), at.sockets.remove(SECURE_PORT)) {
            (Some(plain), Some(secure)) => (Some(plain), None, tls.map(|tls| (secure, tls))),
            (listen, secure) => (listen.or(secure), tls, None),
        };
        let front_end = listen.map(|listen| FrontEndConfig {
            name: "zookeeper",
            listen,
            build: Box::new(move || {
                Box::new(ZooKeeper { gateway, gate, request_bytes_max, latencies, access })
            }),
            limits,
            tls,
            secure,
        });
        let advertised = listens.map(|at_| Advertised::new(at.host, at_, self.advertised.clone()));
        let (file, host) = (file.clone(), at.host.to_owned());
        Ok(Started {
            front_ends: front_end.into_iter().collect(),
            beside: vec![Box::new(move |handle| facts::watch(handle, file, host, ports, advertised))],
        })
    }

    fn probe(&self, _file: &ClusterFile, host: &str) -> ReadyProbe {
        ReadyProbe {
            host_slot: gateway_of(host).host_slot(),
            request: || {
                let call = HostCall { advertises: None, facts: None, probes: true };
                LocalRequest::Service(call.encoded().into())
            },
            is_logged: false,
            accepts: |answer| matches!(answer, LocalResponse::Service(body) if *body == ::coordination::Gateway::READY),
        }
    }

    fn status(&self, file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus> {
        let nodes: Vec<&HostedNode> = view.nodes().map(|(_, node)| node).collect();
        Box::new(CoordinationStatus::of(file, &nodes))
    }

    fn banner(&self, _file: &ClusterFile) -> Vec<(&'static str, String)> {
        let engine = match self.engine {
            Engine::Mason => format!("mason, {} shards, {} proxies", self.shards, self.proxies),
            Engine::FuzzyLog => format!("fuzzylog, {} shards, one colour", self.shards),
            Engine::Paxos | Engine::Corfu | Engine::Spanner => {
                "paxos, one replicated state machine".to_owned()
            }
        };
        let plain = ("zookeeper", format!("{}   ({engine})", self.listen));
        let secure = self.listen_secure.iter().map(|address| ("", format!("{address}   (TLS)")));
        [plain].into_iter().chain(secure).collect()
    }
}
