//! What a host's HTTP handlers share, and where a service's handlers are.

use super::counts::Counts;
use super::own_names::OwnNames;
use crate::access::Access;
use crate::cluster::ClusterFile;
use crate::cluster::description::Listed;
use crate::family::HostedNode;
use crate::health::HealthWatch;
use crate::latency::Latencies;
use crate::secure::HostTls;
use crate::trace::Traces;
use axum::Router;
use runtime::HostHandle;
use std::sync::Arc;

/// What a service serves over HTTP.
#[derive(Debug)]
pub struct HttpRoutes {
    /// Whose they are.
    pub service: &'static Listed,
    /// How the paths begin that its users call.
    pub paths: &'static [&'static str],
    /// What its users call; it says so where the service is off.
    pub of_users: fn() -> Router<Arc<Admin>>,
    /// What operators call, at the admin port alone.
    pub of_operators: fn() -> Router<Arc<Admin>>,
}

/// What handlers share.
pub struct Admin {
    /// The host.
    pub handle: HostHandle<HostedNode>,
    /// Its cluster file.
    pub file: ClusterFile,
    /// Its name.
    pub host: String,
    /// When it started.
    pub started: std::time::Instant,
    /// How long users' calls take.
    pub latencies: Latencies,
    /// What became of connections.
    pub(super) counts: Arc<Counts>,
    /// How it may be called.
    pub(super) names: OwnNames,
    /// Whether its users are served.
    pub health: HealthWatch,
    /// Who may do what.
    pub access: Access,
    /// When certificates end, if TLS is on.
    pub tls: Option<HostTls>,
    /// What is followed of requests.
    pub traces: Traces,
}

impl Admin {
    /// What handlers share from a host's start on.
    pub fn new(
        handle: HostHandle<HostedNode>,
        file: ClusterFile,
        host: &str,
        started: std::time::Instant,
        latencies: Latencies,
        health: HealthWatch,
        access: Access,
        tls: Option<HostTls>,
        traces: Traces,
    ) -> Self {
        let reads = file.services().iter().filter_map(|service| service.listed().reads.as_ref());
        let counts = Arc::new(Counts::of(reads));
        let hosts = file.hosts.iter().map(|host| host.address.as_str());
        let listen = &file.listen;
        let ports = [Some(&listen.admin), listen.http.as_ref(), listen.http_secure.as_ref()];
        let addresses = hosts.chain(ports.into_iter().flatten().map(String::as_str));
        let named = file.hosts.iter().map(|host| &host.name).chain(&listen.names);
        let names = OwnNames::of(addresses, named.map(String::as_str));
        Self {
            handle,
            file,
            host: host.to_owned(),
            started,
            latencies,
            counts,
            names,
            health,
            access,
            tls,
            traces,
        }
    }
}
