//! The key-value service: a store under the cluster's own log, which also decides who the members are.

mod access;
mod http;
mod native;
mod status;

pub use status::KvStatus;

use super::records::{self, RecordOwner};
use super::{Engine, LargeReads, Listed, NativeCalls, ReadyProbe, Service, ServiceStatus, slots};
use crate::admin::state::HttpRoutes;
use crate::cluster::keys::{Key, KeyKind, OrNone, key};
use crate::cluster::values::{FileError, Values};
use crate::cluster::{ClusterFile, RoleName};
use crate::family::{HostedNode, KvMember, LocalRequest, LocalResponse};
use ::kv::{Query, Store};
use axum::Router;
use axum::http::Method;
use kernel::{HostId, HostSlot, NodeId};
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::batcher::Batcher;
use paxos::multipaxos::client::CommandClient;
use paxos::multipaxos::leader::Leader;
use paxos::multipaxos::proxy_leader::ProxyLeader;
use paxos::multipaxos::replica::Replica;
use paxos::multipaxos::unbatcher::Unbatcher;
use paxos::{Call, Configurations, Level, Member, Outcome};
use runtime::{Agreement, HostView};
use std::sync::Arc;
use std::time::Duration;

/// The client role that serves a host's HTTP API; the roles of the log come before.
pub const GATEWAY: HostSlot = HostSlot(7);

const ENGINES: &[Engine] = &[Engine::Paxos];
/// Reads of values whose answers are not sent.
const READS_MAX: usize = 64;

/// The service's line of the list.
pub const LISTED: Listed = Listed {
    name: "kv",
    engines: ENGINES,
    keys: KEYS,
    slots: &[slots::KV],
    receivers: native::RECEIVERS,
    off: "call of the key-value service, which is off",
    read,
    check_http: access::check_http,
    reads: Some(LargeReads {
        max: READS_MAX,
        includes: |method, path| *method == Method::GET && path.starts_with("/v1/kv"),
    }),
    owner,
};

/// What it serves over HTTP.
pub const HTTP_ROUTES: HttpRoutes =
    HttpRoutes { service: &LISTED, paths: &["/v1/kv"], of_users: http::routes, of_operators: Router::new };

const KEYS: &[Key] = &[key(
    "kv.engine",
    KeyKind::Engine(ENGINES, OrNone::Always),
    "paxos",
    "what orders the key-value service's commands",
    "all hosts must agree",
)];

/// The key-value service; it is always on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyValue;

fn read(_values: &Values<'_>) -> Result<Option<Arc<dyn Service>>, FileError> {
    Ok(Some(Arc::new(KeyValue)))
}

fn owner(host_slot: HostSlot) -> Option<RecordOwner> {
    if host_slot == GATEWAY {
        return Some(RecordOwner::new("kv gateway", records::none));
    }
    records::paxos_owner(LISTED.name, host_slot)
}

impl Service for KeyValue {
    fn listed(&self) -> &'static Listed {
        &LISTED
    }

    fn engine(&self) -> Engine {
        Engine::Paxos
    }

    fn agree(&self, _agreement: &mut Agreement) {}

    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
        members(file, host, joins).into_iter().map(|(host_slot, member)| (host_slot, member.into())).collect()
    }

    /// Each region has a log of its own, which decides on its members.
    fn goes_with_regions(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Nobody is to take a store of one region for one of all.
    fn native(&self, file: &ClusterFile, host: &str) -> Option<Box<dyn NativeCalls>> {
        let calls = || Box::new(native::Calls { batcher: RoleName::Batcher.on(host) });
        file.regions.is_empty().then(|| -> Box<dyn NativeCalls> { calls() })
    }

    fn probe(&self, _file: &ClusterFile, _host: &str) -> ReadyProbe {
        ReadyProbe {
            host_slot: GATEWAY,
            request: || {
                let mut query = Vec::new();
                Query::Get { key: b"" }.encode(&mut query);
                LocalRequest::Kv(Call::Read { query: query.into(), level: Level::Linearizable })
            },
            is_logged: false,
            accepts: |answer| matches!(answer, LocalResponse::Kv(Outcome::Done(_))),
        }
    }

    /// Reads that are weaker than linearizable do not keep what callers have seen elsewhere.
    fn cannot_compose(&self, query: &str) -> Option<&'static str> {
        let is_weak = query
            .split('&')
            .any(|pair| pair.strip_prefix("consistency=").is_some_and(|level| level != "linearizable"));
        is_weak
            .then_some("a read that is weaker than linearizable does not go with baggage: nothing was done")
    }

    fn status(&self, _file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus> {
        Box::new(KvStatus::of(view.nodes().filter_map(|(_, node)| node.as_kv())))
    }
}

/// The roles of the key-value store placed on a host; all of them on one that joins.
fn members(file: &ClusterFile, name: &str, joins: bool) -> Vec<(HostSlot, KvMember)> {
    let host = HostId::named(name);
    let first = file.placement.configuration();
    let known = if joins {
        Configurations::unconfirmed(first.clone())
    } else {
        Configurations::starting_with(first.clone())
    };
    let parameters = || file.parameters.clone();
    let at = |role: RoleName| HostSlot(role as u32);
    let mut nodes: Vec<(HostSlot, KvMember)> = Vec::new();
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
    nodes.push((GATEWAY, Member::Client(CommandClient::new(near, Duration::from_millis(500)))));
    nodes
}
