//! What the services over Mason have in common: who the hosts are, and what a host does for one of them.

use crate::cluster::{ClusterFile, HostLine};
use kernel::{HostId, Place};
use mason::proxy::arranging::{FIRST, Progress};
use mason::{Deployment, GatewayRole, Layout, Shard, Stub};
use paxos::HostEntry;
use serde::Serialize;
use std::collections::BTreeMap;

/// The roles of a service over Mason.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Groups {
    /// The epoch of the sequencer here, if it is the active one.
    pub sequencer: Option<u64>,
    /// The groups whose proxies lead here, each with the epoch of the sequencer that it asks.
    pub leads: BTreeMap<u16, u64>,
    /// How many proxies there are, and how far the last change of that has come, as this host knows.
    pub proxies: Option<Proxies>,
    /// Over how many shards the service's state is spread, and how far the last change of that has come, as this host knows.
    pub spread: Option<Spread>,
    /// How far each shard's server is that is in use, in words.
    pub shards: BTreeMap<u16, String>,
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
pub struct Spread {
    /// So many hold it.
    pub shards: u16,
    /// So many did before the last change.
    pub before: u16,
    /// Hosts have room for so many.
    pub room: u16,
    /// Counts the changes, those of proxies among them.
    pub version: u64,
    /// The hand-over has its place in the order, and nothing else of the last change is left to be done.
    pub settled: bool,
}

impl From<Progress> for Spread {
    fn from(progress: Progress) -> Self {
        let Progress { layout, shards_room, settled, .. } = progress;
        let mason::Spread { shards, before, .. } = layout.spread;
        Self { shards, before, room: shards_room.unwrap_or(shards), version: layout.version, settled }
    }
}

impl From<Progress> for Proxies {
    fn from(progress: Progress) -> Self {
        let Progress { layout: Layout { version, serving, spanning, .. }, room, settled, .. } = progress;
        Self { serving, spanning, room, version, settled }
    }
}

impl Groups {
    /// Takes a role into account.
    pub fn add<T, S, G>(&mut self, member: &mason::Member<T, S, G>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        match member {
            mason::Member::Sequencer(sequencer) => self.sequencer = sequencer.active_epoch(),
            mason::Member::Proxy(proxy) => {
                if proxy.group() == FIRST {
                    self.proxies = Some(proxy.progress().into());
                    self.spread = Some(proxy.progress().into());
                }
                if proxy.is_leading() && proxy.is_in_use() {
                    self.leads.insert(proxy.group().0, proxy.sequencer_epoch().unwrap_or(0));
                }
            }
            mason::Member::Shard(server) if !server.is_in_use() => {}
            mason::Member::Shard(server) => {
                self.shards.insert(server.space().0, server.standing());
            }
            mason::Member::Gateway(_) | mason::Member::Log(_) => {}
        }
    }
}

/// The hosts of the cluster file.
pub fn hosts(file: &ClusterFile) -> Vec<HostEntry> {
    let entry = |host: &HostLine| HostEntry { name: host.name.clone(), address: host.address.clone() };
    file.hosts.iter().map(entry).collect()
}

/// The proxies of a host: they follow the members.
pub fn proxies(deployment: &Deployment, host: &str) -> Vec<Place> {
    deployment.proxies_of(HostId::named(host)).into_iter().map(|proxy| proxy.place()).collect()
}
