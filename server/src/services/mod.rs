//! The services: the one list of them, and what each gives the rest of the server.
//!
//! A new service is a folder here, its line in [`SERVICES`] with its slots in [`slots`], and its nodes in `family.rs`. Everything else
//! asks the list: the cluster file for keys and checks, a host for nodes and ports, the admin port for routes, status, readiness and
//! metrics, `ordinate inspect` for whose a record is.

pub mod coordination;
pub mod kv;
pub mod log;
pub mod mason;
pub mod native;
pub mod records;
pub mod sequence;
mod status;
pub mod txn;

pub use native::{Asker, NativeCalls};
pub use status::{ServiceStatus, Statuses};

use crate::access::{Access, Denied, PortCaller};
use crate::admin::Admin;
use crate::admin::access::HttpCall;
use crate::admin::baggage::FenceCall;
use crate::cluster::file::{FileError, Values};
use crate::cluster::keys::Key;
use crate::cluster::limits::Share;
use crate::cluster::{ClusterFile, Limits};
use crate::family::{HostedNode, LocalRequest, LocalResponse, Ordinate};
use crate::host::StartError;
use crate::latency::Latencies;
use crate::native::Gate;
use axum::Router;
use axum::http::Method;
use kernel::{Bytes, HostSlot};
use records::RecordOwner;
use runtime::blobs::{Archive, ArchiveError};
use runtime::{Agreement, ClientLimits, FrontEndConfig, HostHandle, HostView, ServerTls};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// What orders a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// One replicated state machine.
    Paxos,
    /// Shards under a contiguous multi-sequence.
    Mason,
    /// One log by a bare sequencer and chains of servers.
    Corfu,
    /// Shards that are replicated logs, under clocks of known error and locks.
    Spanner,
}

impl Engine {
    /// As the cluster file writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paxos => "paxos",
            Self::Mason => "mason",
            Self::Corfu => "corfu",
            Self::Spanner => "spanner",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All services. The order is that of their nodes on a host, and of what is printed.
pub const SERVICES: &[&Listed] =
    &[&kv::LISTED, &coordination::LISTED, &sequence::LISTED, &log::LISTED, &txn::LISTED];

/// The slots of the services' nodes, the same on all hosts of all clusters. A number that was given away is never given again.
pub mod slots {
    use super::Slots;
    use mason::SLOTS_PER_DEPLOYMENT as BLOCK;

    /// Of the key-value service, and of the log that decides who the members are.
    pub const KV: Slots = Slots { first: 0x1, count: 0xff };
    /// Of the coordination service, numbered from 0 as a deployment of Mason.
    pub const COORDINATION: Slots = Slots { first: 0x100, count: BLOCK - 0x100 };
    /// Of the sequence.
    pub const SEQUENCE: Slots = Slots { first: BLOCK, count: BLOCK };
    /// Of the shared log over Mason, and over one replicated state machine.
    pub const LOG: Slots = Slots { first: 2 * BLOCK, count: BLOCK };
    /// Of the shared log over CORFU', which has slots of its own so that data of one engine are not read by another.
    pub const LOG_OVER_CORFU: Slots = Slots { first: 3 * BLOCK, count: BLOCK };
    /// Of transactions.
    pub const TXN: Slots = Slots { first: 4 * BLOCK, count: BLOCK };
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

    const fn overlaps(self, other: Self) -> bool {
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
    /// What its users call over HTTP; it says so where the service is off.
    pub routes: fn() -> Router<Arc<Admin>>,
    /// Whether somebody was granted what it calls there.
    pub check_http: CheckHttp,
    /// What operators call, at the admin port alone.
    pub admin_routes: fn() -> Router<Arc<Admin>>,
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
    /// It has the service log something: it is asked only when something has changed, or somebody wants to know.
    pub is_logged: bool,
    /// Whether that is the answer of one that serves.
    pub accepts: fn(&LocalResponse) -> bool,
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

/// The role that has this slot in every cluster.
pub fn owner_of(host_slot: HostSlot) -> RecordOwner {
    SERVICES.iter().find_map(|service| (service.owner)(host_slot)).unwrap_or_else(RecordOwner::unknown)
}

// A slot or a tag that is two services' would have one take what is the other's.
const _: () = {
    let mut one = 0;
    while one < SERVICES.len() {
        let mut other = one + 1;
        while other < SERVICES.len() {
            assert!(!share_slots(SERVICES[one].slots, SERVICES[other].slots), "two services share slots");
            assert!(
                !share_tags(SERVICES[one].receivers, SERVICES[other].receivers),
                "two services share a receiver's tag"
            );
            other += 1;
        }
        one += 1;
    }
};

const fn share_slots(ours: &[Slots], theirs: &[Slots]) -> bool {
    let mut one = 0;
    while one < ours.len() {
        let mut other = 0;
        while other < theirs.len() {
            if ours[one].overlaps(theirs[other]) {
                return true;
            }
            other += 1;
        }
        one += 1;
    }
    false
}

const fn share_tags(ours: &[u8], theirs: &[u8]) -> bool {
    let mut one = 0;
    while one < ours.len() {
        let mut other = 0;
        while other < theirs.len() {
            if ours[one] == theirs[other] {
                return true;
            }
            other += 1;
        }
        one += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    fn file(settings: &str) -> ClusterFile {
        let text = format!("cluster = \"c\"\n{settings}\n[hosts]\na = \"a:1\"\nb = \"b:1\"\nc = \"c:1\"\n");
        ClusterFile::parse(&text, Path::new("."), &Overrides::default()).expect("it is sound")
    }

    const ALL: &str = "[coordination]\nengine = \"mason\"\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 2\n[txn]\nshards = 2\n";

    // Slots that are not a service's own are another's one day, and its journal is read as that one's.
    #[test]
    fn nodes_stay_in_the_slots_of_their_service_and_have_owners() {
        let mut engines_seen = Vec::new();
        let over_paxos =
            ALL.replace("mason", "paxos").replace("spaces = 2", "engine = \"paxos\"\nspaces = 2");
        let over_corfu = ALL.replace("spaces = 2", "engine = \"corfu\"\nspaces = 1");
        for settings in [ALL, &over_paxos, &over_corfu] {
            let file = file(settings);
            assert_eq!(file.services().len(), SERVICES.len());
            for listed in SERVICES {
                let on = file.on(listed).expect("all are on");
                let has_calls = on.native(&file, "a").is_some();
                assert_eq!(has_calls, !listed.receivers.is_empty(), "the native port of {}", listed.name);
            }
            for service in file.services() {
                let listed = service.listed();
                engines_seen.push((listed.name, service.engine()));
                for (host_slot, _) in service.nodes(&file, "a", false) {
                    let home = listed.slots.iter().any(|slots| slots.contains(host_slot));
                    assert!(home, "{} has a node at {:#x}", listed.name, host_slot.0);
                    let owner = owner_of(host_slot).name;
                    let named = owner.starts_with(listed.name);
                    assert!(named, "the owner of {:#x} is {owner}, not {}", host_slot.0, listed.name);
                }
            }
        }
        for listed in SERVICES {
            for engine in listed.engines {
                assert!(engines_seen.contains(&(listed.name, *engine)), "{} over {engine}", listed.name);
            }
        }
    }

    // An overlap that the check at compile time does not see is no check.
    #[test]
    fn overlaps_are_seen() {
        let slots = |first, count| Slots { first, count };
        assert!(share_slots(&[slots(0, 1), slots(5, 5)], &[slots(9, 1)]));
        assert!(!share_slots(&[slots(0, 1), slots(5, 5)], &[slots(10, 1), slots(1, 4)]));
        assert!(share_tags(&[1, 2], &[3, 2]) && !share_tags(&[1, 2], &[3, 4]));
    }

    // An engine that a service does not run over must not fall back to one that it does.
    #[test]
    fn other_engines_are_refused_with_those_that_there_are() {
        let parse = |settings: &str| {
            let text = format!("cluster = \"c\"\n{settings}\n[hosts]\na = \"a:1\"\n");
            ClusterFile::parse(&text, Path::new("."), &Overrides::default()).map_err(|error| error.what)
        };
        for (key, engine, possible) in [
            ("coordination.engine", "corfu", "mason, paxos, none"),
            ("coordination.engine", "zab", "mason, paxos, none"),
            ("log.engine", "none", "mason, paxos, corfu"),
            ("kv.engine", "mason", "one of: paxos"),
        ] {
            let refused = parse(&format!("{key} = \"{engine}\"")).expect_err("it does not run over that");
            assert!(refused.contains(possible) && refused.contains(key), "{refused}");
        }
    }
}
