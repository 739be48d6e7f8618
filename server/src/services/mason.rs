//! What the services over Mason have in common: who the hosts are, and what a host does for one of them.

use crate::admin::exposition::MetricsPage;
use crate::cluster::{ClusterFile, HostLine};
use crate::services::Follower;
use kernel::{Encode as _, HostId, NodeId};
use mason::proxy::arranging::{FIRST, Progress, ProxyCall};
use mason::shard::{ShardProgress, ShardServer};
use mason::{Deployment, GatewayRole, Layout, Shard, Stub};
use paxos::HostEntry;
use serde::Serialize;
use std::collections::BTreeMap;

/// The roles of a service over Mason.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MasonStatus {
    /// The epoch of the sequencer here, if it is the active one.
    pub sequencer: Option<u64>,
    /// The groups whose proxies lead here, each with the epoch of the sequencer that it asks.
    pub leads: BTreeMap<u16, u64>,
    /// How many proxies there are, and how far the last change of that has come, as this host knows.
    pub proxies: Option<Proxies>,
    /// Over how many shards the service's state is spread, and how far the last change of that has come, as this host knows.
    pub shard_map: Option<ShardMapStatus>,
    /// How far each shard's server is that is in use.
    pub shards: BTreeMap<u16, ShardStatus>,
    /// How far the replicas of the groups' logs are here.
    pub replicas: BTreeMap<u16, ReplicaStatus>,
    /// Allocations that the sequencer here remembers.
    pub remembered: Option<usize>,
}

/// What a shard's server is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardState {
    /// It has executed what is assigned, as far as it knows.
    Idle,
    /// Its next number is assigned, and has not come.
    LacksNumber,
    /// Its next operation waits for inputs of other shards.
    LacksInputs,
}

/// How far a shard's server is.
#[derive(Clone, Debug, Serialize)]
pub struct ShardStatus {
    /// What it is about.
    pub state: ShardState,
    /// The next number that it will execute.
    pub next: u64,
    /// The highest number that it knows to be assigned.
    pub assigned: u64,
    /// Its durable snapshot holds everything below.
    pub durable_below: u64,
    /// Operations that wait for one before them.
    pub behind: usize,
    /// Inputs of other shards that its next operation waits for.
    pub inputs_missing: usize,
    /// It takes a peer's snapshot.
    pub installs_snapshot: bool,
    /// Blobs that its snapshot names and that are fetched from other hosts.
    pub blobs_missing: usize,
}

impl ShardStatus {
    /// Of this server.
    pub(crate) fn of<S: Shard>(server: &ShardServer<S>) -> Self {
        let ShardProgress { next, reach, behind, inputs_missing, installs } = server.status();
        Self {
            state: match inputs_missing {
                Some(_) => ShardState::LacksInputs,
                None if reach < next => ShardState::Idle,
                None => ShardState::LacksNumber,
            },
            next: next.0,
            assigned: reach.0,
            durable_below: server.durable_below().0,
            behind,
            inputs_missing: inputs_missing.unwrap_or(0),
            installs_snapshot: installs,
            blobs_missing: server.blobs_missing(),
        }
    }
}

/// How far a host's replica of a group's log is.
#[derive(Clone, Default, Debug, Serialize)]
pub struct ReplicaStatus {
    /// The slot after the last one executed.
    pub executed: u64,
    /// A durable snapshot holds everything below this slot.
    pub snapshot: u64,
    /// The epoch of the sequencer in force.
    pub epoch: u64,
    /// Bytes of operations that are retained for shards.
    pub retained_bytes: usize,
}

/// How many proxies there are.
#[derive(Clone, Debug, Serialize)]
pub struct Proxies {
    /// They serve users.
    pub serving: u16,
    /// They are in use; more than those that serve while some are drained.
    pub spanning: u16,
    /// Hosts have room for so many.
    pub room: u16,
    /// Counts the changes.
    pub version: u64,
    /// Nothing of the last change is left to be done.
    pub settled: bool,
}

/// Over how many shards a service's state is spread.
#[derive(Clone, Debug, Serialize)]
pub struct ShardMapStatus {
    /// So many hold it.
    pub shards: u16,
    /// So many did before the last change.
    pub before: u16,
    /// Hosts have room for so many.
    pub room: u16,
    /// Counts the changes, those of proxies among them.
    pub version: u64,
    /// The resharding has its slot in the order, and nothing else of the last change is left to be done.
    pub settled: bool,
}

impl From<Progress> for ShardMapStatus {
    fn from(progress: Progress) -> Self {
        let Progress { layout, shards_room, settled, .. } = progress;
        let mason::ShardMap { shards, before, .. } = layout.shard_map;
        Self { shards, before, room: shards_room.unwrap_or(shards), version: layout.version, settled }
    }
}

impl From<Progress> for Proxies {
    fn from(progress: Progress) -> Self {
        let Progress { layout: Layout { version, serving, spanning, .. }, room, settled, .. } = progress;
        Self { serving, spanning, room, version, settled }
    }
}

impl MasonStatus {
    /// Takes a role into account.
    pub fn add<T, S, G>(&mut self, member: &mason::MasonMember<T, S, G>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        match member {
            mason::MasonMember::Sequencer(sequencer) => {
                self.sequencer = sequencer.active_epoch();
                self.remembered = self.sequencer.map(|_| sequencer.remembered());
            }
            mason::MasonMember::Proxy(proxy) => {
                if proxy.group() == FIRST {
                    self.proxies = Some(proxy.progress().into());
                    self.shard_map = Some(proxy.progress().into());
                }
                if proxy.is_leading() && proxy.is_in_use() {
                    self.leads.insert(proxy.group().0, proxy.sequencer_epoch().unwrap_or(0));
                }
            }
            mason::MasonMember::Shard(server) if !server.is_in_use() => {}
            mason::MasonMember::Shard(server) => {
                self.shards.insert(server.space().0, ShardStatus::of(server));
            }
            mason::MasonMember::Log(embedded) => {
                if let paxos::Member::Replica(replica) = embedded.node() {
                    let machine = replica.machine();
                    let status = ReplicaStatus {
                        executed: replica.executed().0,
                        snapshot: replica.snapshot_through().0,
                        epoch: machine.sequencer(),
                        retained_bytes: machine.retained_bytes(),
                    };
                    self.replicas.insert(machine.group().0, status);
                }
            }
            mason::MasonMember::Gateway(_) => {}
        }
    }

    /// Adds the metrics of a service.
    pub fn metrics(&self, service: &str, page: &mut MetricsPage) {
        let of = [("service", service)];
        if let Some(epoch) = self.sequencer {
            page.gauge_of(
                "mason_sequencer_epoch",
                "Epoch of the active sequencer, where it is",
                &of,
                epoch as f64,
            );
        }
        if let Some(remembered) = self.remembered {
            let help = "Allocations that the sequencer remembers";
            page.gauge_of("mason_sequencer_remembered", help, &of, remembered as f64);
        }
        for (group, replica) in &self.replicas {
            let group_name = group.to_string();
            let of = [("service", service), ("group", group_name.as_str())];
            let leads = f64::from(u8::from(self.leads.contains_key(group)));
            page.gauge_of("mason_group_leads", "1 where the group's proxy leads", &of, leads);
            for (name, help, value) in [
                ("mason_group_epoch", "Epoch of the sequencer in force in the group's log", replica.epoch),
                (
                    "mason_replica_snapshot_slot",
                    "A durable snapshot of the group's log holds everything below",
                    replica.snapshot,
                ),
                (
                    "mason_retained_bytes",
                    "Bytes of operations that are retained for shards",
                    replica.retained_bytes as u64,
                ),
            ] {
                page.gauge_of(name, help, &of, value as f64);
            }
            let help = "Slots of the group's log executed here";
            page.counter_of("mason_replica_slots", help, &of, replica.executed);
        }
        for (shard, status) in &self.shards {
            let shard = shard.to_string();
            let of = [("service", service), ("shard", shard.as_str())];
            let lag = (status.assigned + 1).saturating_sub(status.next);
            for (name, help, value) in [
                ("mason_shard_lag", "Numbers assigned and not executed, as the shard's server knows", lag),
                ("mason_shard_queue", "Operations that wait for one before them", status.behind as u64),
                (
                    "mason_shard_inputs_missing",
                    "Inputs of other shards that the next operation waits for",
                    status.inputs_missing as u64,
                ),
                (
                    "mason_shard_durable_below",
                    "A durable snapshot holds everything below this number",
                    status.durable_below,
                ),
            ] {
                page.gauge_of(name, help, &of, value as f64);
            }
            page.counter_of(
                "mason_shard_numbers",
                "Numbers executed by the shard's server",
                &of,
                status.next,
            );
        }
    }
}

/// The hosts of the cluster file.
pub fn hosts(file: &ClusterFile) -> Vec<HostEntry> {
    let entry = |host: &HostLine| HostEntry { name: host.name.clone(), address: host.address.clone() };
    file.hosts.iter().map(entry).collect()
}

/// The proxies of a host: they follow the members.
pub fn proxies(deployment: &Deployment, host: &str) -> Vec<Follower> {
    let follower = |proxy: NodeId| Follower {
        host_slot: proxy.host_slot(),
        call: |members| ProxyCall::Follow(members.clone()).encoded().into(),
    };
    deployment.proxies_of(HostId::named(host)).into_iter().map(follower).collect()
}
