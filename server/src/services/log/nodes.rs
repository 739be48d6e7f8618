//! The shared log's roles on one host: a deployment of Mason of its own, or of CORFU'.

use crate::cluster::{ClusterFile, LogEngine, Logs};
use crate::family::{LogMember, Node};
use corfu::{
    Auxiliary, Client, Member as CorfuMember, Parameters as CorfuParameters, Projection, Sequencer,
    StorageServer,
};
use kernel::{HostId, NodeId, Place};
use mason::proxy::SpacesOf;
use mason::{Deployment, HostParts, PLACES_PER_DEPLOYMENT, Stub as _};
use paxos::HostEntry;
use shared_log::{Archiving, Bounds, Gateway, Names, Routes};
use std::sync::Arc;
use std::time::Duration;

/// The places of the coordination service and of the sequence come before.
const FIRST_PLACE: u32 = 2 * PLACES_PER_DEPLOYMENT;

/// Which role of which host is where.
pub fn deployment(file: &ClusterFile, logs: &Logs) -> Deployment {
    let entry = |host: &crate::cluster::HostLine| HostEntry {
        name: host.name.clone(),
        address: host.address.clone(),
    };
    let hosts: Vec<HostEntry> = file.hosts.iter().map(entry).collect();
    let sequencers = if logs.engine == LogEngine::Mason { hosts.len() } else { 0 };
    let (parameters, log) = (mason::Parameters::default(), file.parameters.clone());
    Deployment::beginning_at(FIRST_PLACE, hosts, logs.proxies, logs.spaces, sequencers, parameters, log)
}

/// The gateway of the host `name`.
pub fn gateway(file: &ClusterFile, logs: &Logs, name: &str) -> NodeId {
    match logs.engine {
        LogEngine::Mason | LogEngine::Paxos => deployment(file, logs).gateway_of(HostId::named(name)),
        LogEngine::Corfu => at(name, CORFU_GATEWAY),
    }
}

/// The roles of CORFU' come behind a deployment of Mason that is not there then; they have places of their own all the same, so that
/// data of one engine are not read by another.
const CORFU_FIRST: u32 = FIRST_PLACE + PLACES_PER_DEPLOYMENT;
const CORFU_GATEWAY: Place = Place(CORFU_FIRST + 1);
const CORFU_SEQUENCER: Place = Place(CORFU_FIRST + 2);
const CORFU_AUXILIARY: Place = Place(CORFU_FIRST + 3);
/// The server of chain `c` is at the place `CORFU_STORAGE + c`.
const CORFU_STORAGE: u32 = CORFU_FIRST + 0x100;

fn at(host: &str, place: Place) -> NodeId {
    NodeId::new(HostId::named(host), place)
}

/// The roles of CORFU' on the host `name`: as many chains as hosts, each over all of them and with another head.
fn corfu_nodes(file: &ClusterFile, logs: &Logs, name: &str) -> Vec<(Place, Node)> {
    let hosts: Vec<&str> = file.hosts.iter().map(|host| host.name.as_str()).collect();
    let on_all = |place: Place| hosts.iter().map(|host| at(host, place)).collect::<Vec<_>>();
    let chain = |number: usize| {
        let mut servers = on_all(Place(CORFU_STORAGE + number as u32));
        servers.rotate_left(number);
        servers
    };
    let (auxiliaries, sequencers) = (on_all(CORFU_AUXILIARY), on_all(CORFU_SEQUENCER));
    let initial = Projection::initial(sequencers[0], (0..hosts.len()).map(chain).collect());
    let parameters = corfu_parameters();
    let client = Client::new(auxiliaries.clone(), initial.clone(), parameters.clone());
    let gateway = shared_log::corfu::Gateway::new(client, logs.space_bytes);
    let auxiliary = Auxiliary::new(auxiliaries, sequencers, initial.clone(), parameters);
    let mut nodes: Vec<(Place, Node)> = vec![
        (CORFU_GATEWAY, shared_log::corfu::GatewayNode::Gateway(gateway).into()),
        (CORFU_SEQUENCER, CorfuMember::Sequencer(Sequencer::new()).into()),
        (CORFU_AUXILIARY, CorfuMember::Auxiliary(auxiliary).into()),
    ];
    let retain_bytes = logs.space_bytes / hosts.len() as u64;
    for server in initial.servers().filter(|server| server.host() == HostId::named(name)) {
        nodes.push((server.place(), CorfuMember::Storage(StorageServer::new(retain_bytes)).into()));
    }
    nodes
}

/// Disks stall for longer than a leader's heartbeats are waited for, and each change stops all appends for a moment.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// What becomes of it where hosts are taken for failed again and again.
const SUSPECT_MAX: Duration = Duration::from_secs(8);
/// Hosts that are started one by one, by hand, find one another within this.
const START_FOR: Duration = Duration::from_secs(5);
/// A server that was left out is back in its chain after this at the earliest.
const BACK_OFF: Duration = Duration::from_secs(1);

fn corfu_parameters() -> CorfuParameters {
    CorfuParameters {
        suspect_after: SUSPECT_AFTER,
        suspect_max: SUSPECT_MAX,
        start_for: START_FOR,
        back_off: BACK_OFF,
        ..CorfuParameters::default()
    }
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub fn nodes(file: &ClusterFile, logs: &Logs, name: &str, joins: bool) -> Vec<(Place, Node)> {
    if logs.engine == LogEngine::Corfu {
        return corfu_nodes(file, logs, name);
    }
    let host = HostId::named(name);
    let deployment = deployment(file, logs);
    let stub = Names { spaces: logs.spaces };
    let spaces_of: SpacesOf = Arc::new(move |body, spread| stub.spaces(body, spread));
    let (proxies, shards) = (deployment.proxies_of(host), deployment.servers_of(host));
    let parts = HostParts {
        stub: &|_| stub,
        shard: &|space| {
            let state = shared_log::Logs::new(space, logs.spaces, Bounds::within(logs.memory_bytes));
            match logs.archive {
                Some(_) => state.with_archive(Archiving {
                    cluster: file.cluster.clone(),
                    backlog_bytes_max: logs.archive_backlog_bytes,
                }),
                None => state,
            }
        },
        gateway: Gateway::new(Routes { proxies, shards, capacity: logs.space_bytes }),
    };
    let deployment = if joins { deployment.joining(deployment.hosts().to_vec()) } else { deployment };
    let nodes: Vec<(Place, LogMember)> = deployment.build(host, &spaces_of, parts);
    nodes.into_iter().map(|(place, member)| (place, member.into())).collect()
}
