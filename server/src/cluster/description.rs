//! What a cluster file describes: the hosts, where they listen, and the services that are on, each by what it gives the rest of the
//! server.

use super::clock::ClockKeys;
use super::engine::Engine;
use super::keys::Key;
use super::limits::{Limits, Share};
use super::placement::BootstrapPlacement;
use super::regions::{Region, RemovedRegion};
use super::values::{FileError, HostLine, TlsPaths, ValueSource, Values};
use crate::access::{Access, Denied, PortCaller};
use crate::admin::call::{FenceCall, HttpCall};
use crate::admin::exposition::MetricsPage;
use crate::family::{HostedNode, LocalRequest, LocalResponse, Ordinate};
use crate::gate::Gate;
use crate::latency::Latencies;
use crate::services::native::NativeCalls;
use crate::services::records::RecordOwner;
use crate::services::status::ServiceStatus;
use crate::trace::TraceKeys;
use axum::http::Method;
use kernel::{Bytes, HostSlot};
use runtime::blobs::{Archive, ArchiveError};
use runtime::{Agreement, ClientLimits, ClockConfig, FrontEndConfig, HostHandle, HostView, ServerTls};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What an acknowledgement promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// A majority has fsynced.
    MajorityFsync,
    /// A majority has it in memory.
    Memory,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MajorityFsync => "majority-fsync",
            Self::Memory => "memory",
        })
    }
}

/// Where a host listens for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The native protocol.
    pub native: String,
    /// The admin port.
    pub admin: String,
    /// Applications' HTTP, if it has a port of its own.
    pub http: Option<String>,
    /// The same with TLS, beside the other.
    pub http_secure: Option<String>,
    /// Names by which HTTP clients call the host.
    pub names: Vec<String>,
}

impl Listen {
    /// The admin port is reached from other machines: no name or address of this one's loopback.
    pub fn is_admin_exposed(&self) -> bool {
        let host = self.admin.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        !host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback())
    }
}

/// Parts of `limits.backlog_bytes_max` that the native port has.
const NATIVE_PARTS: usize = 1;

/// A checked cluster file.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// The cluster's name.
    pub cluster: String,
    /// The data folder of all hosts.
    pub data: PathBuf,
    /// The hosts, in the order of the file; as a host of several regions sees it, those of its region.
    pub hosts: Vec<HostLine>,
    /// The regions, in the order of their names; none if there is one alone.
    pub regions: Vec<Region>,
    /// Regions that the data of the host are of and the file has no more, as the host sees it.
    pub removed: Vec<RemovedRegion>,
    /// The region of the host that sees it, if there are several.
    pub region: Option<String>,
    /// As a host sees it: the hosts of other regions.
    pub elsewhere: Vec<HostLine>,
    /// Client ports.
    pub listen: Listen,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// The engine's numbers.
    pub parameters: paxos::Parameters,
    /// Bounds on clients.
    pub limits: Limits,
    /// The wall clock.
    pub clock: ClockKeys,
    /// Certificates, if TLS is on.
    pub tls: Option<TlsPaths>,
    /// The access file, if access control is on.
    pub access: Option<PathBuf>,
    /// What is followed of requests, if anything is.
    pub trace: Option<TraceKeys>,
    /// Who plays which role.
    pub placement: BootstrapPlacement,
    pub(super) services: Vec<Arc<dyn Service>>,
    pub(super) values: BTreeMap<&'static str, (String, ValueSource)>,
}

impl ClusterFile {
    /// A key's value and where it comes from; none if it has neither.
    pub fn value(&self, name: &str) -> Option<(&str, &ValueSource)> {
        self.values.get(name).map(|(value, origin)| (value.as_str(), origin))
    }

    /// Calls of users that take longer are in the host's log; zero: none is.
    pub fn slow_call(&self) -> std::time::Duration {
        let value =
            self.value("log_output.slow_call").and_then(|(value, _)| super::keys::parse_duration(value));
        value.unwrap_or_default()
    }

    /// The services that are on.
    pub fn services(&self) -> &[Arc<dyn Service>] {
        &self.services
    }

    /// The service of this line of the list, if it is on.
    pub fn on(&self, listed: &Listed) -> Option<&dyn Service> {
        self.services.iter().map(|service| &**service).find(|service| service.listed().name == listed.name)
    }

    /// The service of this type, if it is on.
    pub fn service<S: Service>(&self) -> Option<&S> {
        self.services.iter().find_map(|service| (&**service as &dyn Any).downcast_ref())
    }

    /// The host called `name`.
    pub fn host(&self, name: &str) -> Option<&HostLine> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The clock that a host starts with: it is required if a service that is on rests on it.
    pub fn clock_config(&self) -> ClockConfig {
        let required = self.services().iter().any(|service| service.needs_clock());
        ClockConfig { source: self.clock.source, error_max: self.clock.error_max, required }
    }

    /// The native port's share of `limits.backlog_bytes_max`; where there is no other port, it has all.
    pub fn native_share(&self) -> Share {
        self.share(NATIVE_PARTS)
    }

    /// The share of a service's port.
    pub fn share_of(&self, port: &Port) -> Share {
        self.share(port.parts)
    }

    fn share(&self, parts: usize) -> Share {
        let ports = self.services().iter().flat_map(|service| service.ports());
        let all = NATIVE_PARTS + ports.map(|port| port.parts).sum::<usize>();
        Share(self.limits.backlog_bytes_max / all * parts)
    }
}

impl ClusterFile {
    /// The file as a host of it sees it: of several regions, its own is the cluster, and the hosts of the others are elsewhere.
    #[must_use]
    pub fn seen_from(mut self, host: &str) -> Self {
        let own = self.regions.iter().position(|it| it.hosts.iter().any(|one| one.name == host));
        let Some(region) = own.and_then(|index| self.regions.get(index)) else { return self };
        let (hosts, placement) = (region.hosts.clone(), region.placement.clone());
        self.region = Some(region.name.clone());
        let all = std::mem::replace(&mut self.hosts, hosts);
        self.elsewhere = all.into_iter().filter(|it| !self.hosts.contains(it)).collect();
        self.placement = placement;
        self
    }

    /// The region of the host that sees the file, and the others; none without regions.
    pub fn own_and_other_regions(&self) -> Option<(&Region, impl Iterator<Item = &Region>)> {
        let own = self.region.as_ref()?;
        let found = self.regions.iter().find(|it| it.name == *own)?;
        Some((found, self.regions.iter().filter(move |it| it.name != *own)))
    }

    /// What hosts and their data are of. A cluster of regions is another one than its hosts were without. Which regions they are may change.
    pub fn identity(&self) -> String {
        match self.regions.is_empty() {
            true => self.cluster.clone(),
            false => self.identity_with_regions(),
        }
    }

    /// What they are of if there are regions.
    pub(super) fn identity_with_regions(&self) -> String {
        format!("{} of regions", self.cluster)
    }
}

/// Some slots of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// The first of them.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Slots {
    /// Whether a slot is one of these.
    pub const fn contains(self, host_slot: HostSlot) -> bool {
        host_slot.0 >= self.first && host_slot.0 - self.first < self.count
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }
}

/// A service as the program knows it, whether a cluster file switches it on or not.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: &'static str,
    /// The engines that it runs over.
    pub engines: &'static [Engine],
    /// The keys of the cluster file that are its own.
    pub keys: &'static [Key],
    /// The slots of its nodes.
    pub slots: &'static [Slots],
    /// The receivers' tags of its messages at the native port, in both directions.
    pub receivers: &'static [u8],
    /// Why a client is sent away that calls it where it is off.
    pub off: &'static str,
    /// Reads its part of a cluster file; none if it is off.
    pub read: fn(&Values<'_>) -> Result<IfOn, FileError>,
    /// Whether somebody was granted what it calls over HTTP.
    pub check_http: CheckHttp,
    /// Those of its requests whose answers are large.
    pub reads: Option<LargeReads>,
    /// The role at one of its slots.
    pub owner: fn(HostSlot) -> Option<RecordOwner>,
}

/// Whether somebody was granted what it calls over HTTP.
pub type CheckHttp = fn(&HttpCall<'_>, &mut PortCaller) -> Result<(), Denied>;

/// A service, if a cluster file switches it on.
pub type IfOn = Option<Arc<dyn Service>>;

/// Requests of the admin port whose answers are so large that few may be unsent at a time.
#[derive(Debug)]
pub struct LargeReads {
    /// So many.
    pub max: usize,
    /// Whether a request with this method and path is one.
    pub includes: fn(&Method, &str) -> bool,
}

/// A service that a cluster file switches on, with what the file says of it.
pub trait Service: Any + Send + Sync + fmt::Debug {
    /// Its line of the list.
    fn listed(&self) -> &'static Listed;

    /// What orders it.
    fn engine(&self) -> Engine;

    /// Whether it rests on the wall clock: then a host without a usable one does not start.
    fn needs_clock(&self) -> bool {
        false
    }

    /// Adds what the hosts of a cluster must have alike.
    fn agree(&self, agreement: &mut Agreement);

    /// Whether a host may join a running cluster that has it.
    fn admits_joining(&self) -> Result<(), CannotJoin> {
        Ok(())
    }

    /// Its nodes on a host; `joins`: one that comes to a running cluster.
    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)>;

    /// Those of them that are notified when the members of the cluster change.
    fn followers(&self, _file: &ClusterFile, _host: &str) -> Vec<Follower> {
        Vec::new()
    }

    /// Where its users connect, beside the native and the admin port.
    fn ports(&self) -> Vec<Port> {
        Vec::new()
    }

    /// Connections at its ports, where it has a bound of its own, with the key that sets it.
    fn own_connections_max(&self) -> Option<(&'static str, usize)> {
        None
    }

    /// What serves its ports, and what goes on beside a host that serves it.
    fn start(&self, _at: &mut Starting<'_>) -> Result<Started, StartError> {
        Ok(Started::default())
    }

    /// Whether it can be on in a cluster of several regions, and if not, why: it orders nothing over them.
    fn goes_with_regions(&self) -> Result<(), &'static str> {
        Err("its order would span them")
    }

    /// Whether its state is in what `ordinate backup` takes of a host, or must have been executed before.
    fn is_in_cuts(&self) -> bool {
        true
    }

    /// Where the blobs of its roles are archived.
    fn archive(&self) -> Result<Option<Arc<dyn Archive>>, ArchiveError> {
        Ok(None)
    }

    /// Its part of the native port of a host.
    fn native(&self, _file: &ClusterFile, _host: &str) -> Option<Box<dyn NativeCalls>> {
        None
    }

    /// A linearizable read, by which it learns whether its users would be served.
    fn probe(&self, file: &ClusterFile, host: &str) -> ReadyProbe;

    /// Its fence (the RSS paper, section 4.1) after a caller that has this token of it; none where what one has seen, all see. An error says
    /// what is wrong with the token.
    fn fence(
        &self,
        _file: &ClusterFile,
        _host: &str,
        _token: Option<&[u8]>,
    ) -> Result<Option<FenceCall>, String> {
        Ok(None)
    }

    /// Why a call with these parameters cannot be one of several services' that stay RSS together.
    fn cannot_compose(&self, _query: &str) -> Option<&'static str> {
        None
    }

    /// What a host knows of it.
    fn status(&self, file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus>;

    /// Adds metrics that are too many for a status, and which only scrapes ask for: on the reactor's thread, so they are bounded.
    fn series(&self, _view: &HostView<'_, HostedNode>, _page: &mut MetricsPage) {}

    /// What is printed when a host starts: names and texts.
    fn banner(&self, _file: &ClusterFile) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A node that is notified when the members of the cluster change.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    /// Where it is.
    pub host_slot: HostSlot,
    /// What it is asked, in its service's encoding.
    pub call: fn(&paxos::Members) -> Bytes,
}

/// Why no host joins a running cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CannotJoin {
    /// What cannot be.
    pub what: &'static str,
    /// Why.
    pub fact: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
}

/// A port for users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The key that says where.
    pub key: &'static str,
    /// Where.
    pub address: String,
    /// How many parts of `limits.backlog_bytes_max` it has; the native port has one.
    pub parts: usize,
}

/// A read that shows whether a service is served.
pub struct ReadyProbe {
    /// The node that is asked.
    pub host_slot: HostSlot,
    /// What it is asked.
    pub request: fn() -> LocalRequest,
    /// It has the service log something: it is asked only when something has changed; see `ServiceStatus::leaders_heard`.
    pub is_logged: bool,
    /// Whether that is the answer of one that serves.
    pub accepts: fn(&LocalResponse) -> bool,
}

/// A failure to start a host or a service on it.
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

/// What a service starts with on a host.
pub struct Starting<'a> {
    /// The cluster file.
    pub file: &'a ClusterFile,
    /// The host.
    pub host: &'a str,
    /// Whether users are served.
    pub gate: &'a Gate,
    /// How long their calls take.
    pub latencies: &'a Latencies,
    /// The sockets of all services' ports, by their keys.
    pub sockets: &'a mut BTreeMap<&'static str, TcpListener>,
    /// Certificates, if TLS is on.
    pub tls: Option<&'a ServerTls>,
    /// Who may do what.
    pub access: &'a Access,
}

/// Something to be done with a host that has started.
pub type AfterStart = Box<dyn FnOnce(HostHandle<HostedNode>)>;

/// What a service has started.
#[derive(Default)]
pub struct Started {
    /// What serves its ports.
    pub front_ends: Vec<FrontEndConfig<Ordinate>>,
    /// What goes on beside the host.
    pub beside: Vec<AfterStart>,
}

impl Starting<'_> {
    /// Certificates for users' connections, if TLS is on.
    pub fn tls(&self) -> Option<ServerTls> {
        self.tls.cloned()
    }

    /// The bounds of a port whose users' requests are at most so long, and that has this share of what may wait for clients.
    pub fn limits(&self, input_bytes_max: usize, share: Share) -> ClientLimits {
        client_limits(&self.file.limits, input_bytes_max, share)
    }

    /// Where one of the sockets is bound.
    pub fn address_of(&self, key: &str) -> Option<SocketAddr> {
        self.sockets.get(key).and_then(|listener| listener.local_addr().ok())
    }
}

/// How long a user may take to say who it is.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// The bounds of a port, by what the cluster file says of all.
pub fn client_limits(limits: &Limits, input_bytes_max: usize, share: Share) -> ClientLimits {
    ClientLimits {
        connections_max: limits.connections_max,
        connections_per_address_max: limits.connections_per_address_max,
        input_bytes_max,
        output_bytes_max: limits.client_backlog_bytes_max,
        output_bytes_max_total: share.bytes_max(),
        unread_for_max: limits.unread_for_max,
        handshake_within: HANDSHAKE_WITHIN,
    }
}
