//! The shared log: named logs over Mason, over FuzzyLog, over one replicated state machine, or one log over CORFU'; and Kafka's
//! protocol over them.

mod access;
pub mod archive;
mod budget;
mod corfu;
mod http;
mod kafka;
mod keys;
mod native;
mod nodes;
mod over_fuzzylog;
mod permits;
mod series;
mod settings;
mod status;
mod tail;

pub use over_fuzzylog::{ColourExtent, LogChainsStatus};
pub use settings::{ArchiveLocation, SharedLog};
pub use status::LogStatus;

use super::records::{self, RecordOwner};
use super::{
    CannotJoin, Engine, Follower, LargeReads, Listed, NativeCalls, Port, ReadyProbe, Service, ServiceStatus,
    StartError, Started, Starting, slots,
};
use crate::admin::exposition::MetricsPage;
use crate::admin::state::{Admin, HttpRoutes};
use crate::cluster::ClusterFile;
use crate::cluster::agreement::FIXED;
use crate::family::{HostedNode, LocalRequest, LocalResponse};
use ::kafka::node_of;
use axum::http::Method;
use axum::routing::{get, post};
use axum::{Extension, Router};
use kafka::{Directory, Kafka};
use kernel::{Decode as _, Encode as _, HostId, HostSlot, NodeId};
use runtime::blobs::{Archive, ArchiveError};
use runtime::{Agreement, FrontEndConfig, HostView};
use shared_log::native::{TO_CLIENT, TO_HOST};
use shared_log::{Answer, List};
use std::sync::Arc;

const ENGINES: &[Engine] = &[Engine::Mason, Engine::Paxos, Engine::Corfu, Engine::FuzzyLog];
/// Reads of logs whose answers are not sent. Those who follow a log have slots of their own.
const READS_MAX: usize = 128;

/// The service's line of the list.
pub const LISTED: Listed = Listed {
    name: "log",
    engines: ENGINES,
    keys: keys::KEYS,
    slots: &[slots::LOG, slots::LOG_OVER_CORFU, slots::LOG_OVER_FUZZYLOG],
    receivers: &[TO_HOST, TO_CLIENT],
    off: "call of the log, which is off",
    read: settings::read,
    check_http: access::check_http,
    reads: Some(LargeReads {
        max: READS_MAX,
        includes: |method, path| {
            *method == Method::GET && path.starts_with("/v1/log/") && !path.ends_with("/tail")
        },
    }),
    owner,
};

/// What it serves over HTTP.
pub const HTTP_ROUTES: HttpRoutes =
    HttpRoutes { service: &LISTED, paths: &["/v1/log"], of_users: routes, of_operators: Router::new };

const KAFKA_PORT: &str = "listen.kafka";
/// Bytes before a request of Kafka's that say how long it is.
const LENGTH_BYTES: usize = 4;

fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/log/{name}", get(http::read).put(http::create))
        .route("/v1/log/{name}/append", post(http::append))
        .route("/v1/log/{name}/tail", get(tail::tail))
        .layer(Extension(crate::services::events::Readers::default()))
}

fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    let over_mason = records::mason_owner(LISTED.name, slots::LOG, slots::LOG.first, host_slot);
    over_mason.or_else(|| corfu::owner(host_slot)).or_else(|| over_fuzzylog::owner(host_slot))
}

impl SharedLog {
    /// Over the others its gateways and shards are Mason's.
    fn is_over_corfu(&self) -> bool {
        self.engine == Engine::Corfu
    }

    /// The gateway of a host.
    fn gateway(&self, file: &ClusterFile, host: &str) -> NodeId {
        match self.is_over_corfu() {
            true => corfu::gateway(host),
            false => nodes::deployment(file, self).gateway_of(HostId::named(host)),
        }
    }

    fn kafka_port(&self) -> Option<Port> {
        let kafka = self.kafka.as_ref()?;
        Some(Port { key: KAFKA_PORT, address: kafka.listen.clone(), parts: 1 })
    }
}

impl Service for SharedLog {
    fn listed(&self) -> &'static Listed {
        &LISTED
    }

    fn engine(&self) -> Engine {
        self.engine
    }

    fn agree(&self, agreement: &mut Agreement) {
        agreement.add("log.engine", self.engine.name(), FIXED);
        agreement.add("log.spaces", &self.spaces.to_string(), FIXED);
        agreement.add("log.proxies", &self.proxies.to_string(), FIXED);
        let archive = self.archive.as_ref().map_or_else(String::new, ToString::to_string);
        agreement.add("log.archive", &archive, !FIXED);
    }

    fn admits_joining(&self) -> Result<(), CannotJoin> {
        if self.is_over_corfu() { Err(corfu::CANNOT_JOIN) } else { Ok(()) }
    }

    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
        match self.engine {
            Engine::Corfu => corfu::nodes(file, self, host),
            Engine::FuzzyLog => over_fuzzylog::nodes(file, self, host, joins),
            Engine::Mason | Engine::Paxos | Engine::Spanner => nodes::nodes(file, self, host, joins),
        }
    }

    fn followers(&self, file: &ClusterFile, host: &str) -> Vec<Follower> {
        match self.engine {
            Engine::Corfu => Vec::new(),
            Engine::FuzzyLog => over_fuzzylog::followers(file, self, host),
            Engine::Mason | Engine::Paxos | Engine::Spanner => {
                super::mason::proxies(&nodes::deployment(file, self), host)
            }
        }
    }

    fn ports(&self) -> Vec<Port> {
        self.kafka_port().into_iter().collect()
    }

    fn start(&self, at: &mut Starting<'_>) -> Result<Started, StartError> {
        let (Some(kafka), Some(port)) = (&self.kafka, self.kafka_port()) else {
            return Ok(Started::default());
        };
        let Some(listen) = at.sockets.remove(KAFKA_PORT) else { return Ok(Started::default()) };
        let (file, gate, gateway) = (at.file, at.gate.clone(), self.gateway(at.file, at.host));
        let directory = Directory::new(file, self, at.host);
        let settings = ::kafka::Settings {
            creates_topics: kafka.creates_topics,
            retain_bytes: kafka.retain_bytes,
            retain_ms: kafka.retain.as_millis() as u64,
            node: node_of(HostId::named(at.host)),
        };
        let (request_bytes_max, latencies) = (file.limits.request_bytes_max, at.latencies.clone());
        let (clients, access) = (directory.clone(), at.access.clone());
        let is_secure = at.tls().is_some();
        let front_end = FrontEndConfig {
            name: "kafka",
            listen,
            build: Box::new(move || {
                let (shared, directory) = (kafka::shared(), clients);
                let port = Kafka {
                    gateway,
                    directory,
                    settings,
                    shared,
                    request_bytes_max,
                    gate,
                    latencies,
                    access,
                    is_secure,
                };
                Box::new(port)
            }),
            limits: at.limits(request_bytes_max + LENGTH_BYTES, file.share_of(&port)),
            tls: at.tls(),
            secure: None,
        };
        let (file, log, host) = (file.clone(), self.clone(), at.host.to_owned());
        Ok(Started {
            front_ends: vec![front_end],
            beside: vec![Box::new(move |handle| kafka::watch(handle, file, log, host, &directory))],
        })
    }

    fn archive(&self) -> Result<Option<Arc<dyn Archive>>, ArchiveError> {
        let Some(host_slot) = &self.archive else { return Ok(None) };
        Ok(Some(Arc::new(archive::Waiting::open(host_slot)?)))
    }

    fn native(&self, file: &ClusterFile, host: &str) -> Option<Box<dyn NativeCalls>> {
        Some(Box::new(native::Calls { gateway: self.gateway(file, host) }))
    }

    fn probe(&self, file: &ClusterFile, host: &str) -> ReadyProbe {
        ReadyProbe {
            host_slot: self.gateway(file, host).host_slot(),
            request: || {
                let list = List { after: String::new(), limit: 1 };
                LocalRequest::Service(shared_log::Request::List(list).encoded().into())
            },
            is_logged: false,
            accepts: |answer| {
                let LocalResponse::Service(body) = answer else { return false };
                matches!(Answer::decoded(body), Ok(Answer::Logs(_)))
            },
        }
    }

    fn status(&self, file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus> {
        let nodes = view.nodes().map(|(_, node)| node);
        let mut status = LogStatus::of(self, file, nodes, view.metrics().archive.as_ref());
        let nodes: Vec<&HostedNode> = view.nodes().map(|(_, node)| node).collect();
        status.chains = LogChainsStatus::of(file, nodes.into_iter());
        Box::new(status)
    }

    fn series(&self, view: &HostView<'_, HostedNode>, page: &mut MetricsPage) {
        series::add(view.nodes().map(|(_, node)| node), page);
    }

    fn banner(&self, file: &ClusterFile) -> Vec<(&'static str, String)> {
        let engine = match self.engine {
            Engine::Corfu => format!("corfu, {} chains", file.hosts.len()),
            Engine::Mason => format!("mason, {} spaces, {} proxies", self.spaces, self.proxies),
            Engine::FuzzyLog => format!("fuzzylog, {} spaces on {} chains", self.spaces, self.proxies),
            Engine::Paxos | Engine::Spanner => "paxos, one replicated state machine".to_owned(),
        };
        let archive = self.archive.iter().map(|archive| ("archive", archive.to_string()));
        let kafka = self.kafka.iter().map(|kafka| ("kafka", kafka.listen.clone()));
        [("log", engine)].into_iter().chain(archive).chain(kafka).collect()
    }
}
