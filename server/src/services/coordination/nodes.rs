//! The coordination service's roles on one host.

use super::Coordination;
use crate::cluster::ClusterFile;
use crate::family::{CoordinationMember, HostedNode};
use crate::services::mason as over_mason;
use coordination::{
    Consistency, Gateway, HomeSessions, Placement, Routes, SessionSettings, Settings, Znodes,
};
use kernel::{HostId, HostSlot};
use mason::proxy::SpacesOf;
use mason::{Deployment, HostParts, Layout, MasonParameters, Stub as _};
use std::sync::Arc;

/// Every host has roles for so many proxies, or for as many as the cluster began with: those that are not in use keep an idle log.
const ROOM_FOR_PROXIES: u16 = 8;
/// The same of shards: those that are not in use have nothing.
const ROOM_FOR_SHARDS: u16 = 16;

/// A shard's server writes a snapshot when it has executed this many bytes of operations, or half of what its last one held. Until
/// then every host keeps them in memory, and executes them again after a restart.
const SNAPSHOT_EVERY_BYTES: u64 = 4 << 20;
const SNAPSHOTS_PER_SIZE: u64 = 2;

/// Which role of which host is where.
pub fn deployment(file: &ClusterFile, coordination: &Coordination) -> Deployment {
    let hosts = over_mason::hosts(file);
    let is_over_mason = coordination.is_over_mason();
    let sequencers = if is_over_mason { hosts.len() } else { 0 };
    let (proxies, shards) = (coordination.proxies, coordination.shards);
    let proxies_room = if is_over_mason { proxies.max(ROOM_FOR_PROXIES) } else { proxies };
    let shards_room = if coordination.is_sharded() { shards.max(ROOM_FOR_SHARDS) } else { shards };
    Deployment::new(hosts, proxies, shards, sequencers, parameters(), file.parameters.clone())
        .with_room_for(proxies_room, shards_room)
}

/// What shards wait for, and when they write snapshots.
pub(super) fn parameters() -> MasonParameters {
    MasonParameters {
        snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
        snapshots_per_size: SNAPSHOTS_PER_SIZE,
        ..MasonParameters::default()
    }
}

/// Which shard a path is in.
pub(super) fn placement(coordination: &Coordination) -> Placement {
    Placement::new(coordination.shards).resharding(coordination.spread_levels)
}

/// What the sessions agree on.
pub(super) fn sessions(coordination: &Coordination) -> SessionSettings {
    SessionSettings {
        sessions_max: coordination.sessions_max.div_ceil(usize::from(coordination.proxies)),
        ..SessionSettings::new(placement(coordination), key_of(&coordination.secret))
    }
}

/// The roles of the host `name`; `joins`: of a host that comes to a running cluster.
pub fn nodes(
    file: &ClusterFile,
    coordination: &Coordination,
    name: &str,
    joins: bool,
) -> Vec<(HostSlot, HostedNode)> {
    let host = HostId::named(name);
    let deployment = deployment(file, coordination);
    let (placement, sessions) = (placement(coordination), sessions(coordination));
    let routes = Routes { proxies: deployment.proxies_of(host), shards: deployment.servers_of(host) };
    let layout = deployment.topology().layout.clone();
    let settings = settings(file, coordination, routes, layout);
    let stub = sessions.clone();
    let counting = HomeSessions::new(mason::Group(0), sessions);
    let spaces_of: SpacesOf = Arc::new(move |body, shard_map| counting.spaces(body, shard_map));
    let parts = HostParts {
        stub: &|group| HomeSessions::new(group, stub.clone()),
        shard: &|space| Znodes::new(space, placement, u64::from(std::process::id())),
        gateway: Gateway::new(settings),
    };
    let deployment = if joins { deployment.joining(deployment.hosts().to_vec()) } else { deployment };
    let nodes: Vec<(HostSlot, CoordinationMember)> = deployment.build(host, &spaces_of, parts);
    nodes.into_iter().map(|(slot, member)| (slot, member.into())).collect()
}

/// What the gateway is built with.
pub(super) fn settings(
    file: &ClusterFile,
    coordination: &Coordination,
    routes: Routes,
    layout: Layout,
) -> Settings {
    let timeouts = coordination.session_timeouts;
    let milliseconds = |time: std::time::Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    Settings {
        layout,
        consistency: if coordination.sequential_reads {
            Consistency::Sequential
        } else {
            Consistency::Linearizable
        },
        session_timeouts: (milliseconds(timeouts.0), milliseconds(timeouts.1)),
        frame_bytes_max: coordination.request_bytes_max,
        node_bytes_max: coordination.node_bytes_max,
        ttl_allowed: coordination.ttl_nodes,
        enforce_quota: coordination.enforce_quota,
        outstanding_max: coordination.outstanding_max,
        watches_max: coordination.watches_max,
        reap_every: coordination.reap_every,
        super_digest: coordination.super_digest.clone(),
        words: coordination.words.as_deref().map_or_else(Settings::words_that_read, Settings::words_of),
        mode: if file.hosts.len() == 1 { "standalone".to_owned() } else { "follower".to_owned() },
        connections_max: file.limits.connections_max.max(coordination.connections_max(&file.limits)),
        connections_per_address_max: coordination.connections_per_address_max(&file.limits),
        replies: parts::ReplyBounds {
            bytes_max: file.share_of(&coordination.port()).promised_bytes_max(),
            ..parts::ReplyBounds::default()
        },
        ..Settings::new(routes, placement(coordination))
    }
}

/// A key of 32 bytes from any text.
fn key_of(secret: &str) -> [u8; 32] {
    let mut key = [0; 32];
    for (index, part) in key.chunks_mut(8).enumerate() {
        let salted = [secret.as_bytes(), &[index as u8]].concat();
        part.copy_from_slice(&parts::digest(&salted).to_le_bytes());
    }
    key
}
