//! Syncs by an epoch that is over. Every server of a chain has to say that its epoch is in force, so a client ends none in an epoch after
//! which another one had served when it asked.
//!
//! A tail that is set apart does not learn that it was left out. Clients that do not know either sync with it at once, before they hear.

use super::{FuzzyScenario, Node, TOGETHER};
use ::fuzzylog::client::EndedSync;
use ::fuzzylog::{
    AppendTime, ChainEpoch, Colour, FuzzyRequest, FuzzyResponse, NodePosition, PartitionId, SyncCall,
};
use kernel::{HostId, NodeId, Rng, invariant};
use sim::{Cluster, Control};
use std::collections::BTreeMap;
use std::time::Duration;

/// Looks for what was appended meanwhile, in one run.
const PROBES_MAX: u16 = 60;
/// Who looks is a user of its own each time.
const PROBERS_FROM: u16 = 10_000;
/// Syncs by an epoch that is over, in one run.
const SYNCS_MAX: u16 = 24;
/// Who asks is a user of its own each time.
const SYNCERS_FROM: u16 = 20_000;

/// A client's syncs in flight, by call: the epoch, and when they were asked in it.
type Asked = BTreeMap<u64, (ChainEpoch, u64)>;

/// Which epochs have served, and what clients ask.
pub(super) struct Outdated {
    /// When a tail is set apart.
    rng: Rng,
    /// How often one is still to be.
    left: u32,
    /// When a server of a partition was first seen to serve an epoch.
    served: BTreeMap<(PartitionId, ChainEpoch), u64>,
    asked: BTreeMap<NodeId, Asked>,
    /// Partitions that have begun an epoch, and whose clients were not looked at since.
    begun: Vec<PartitionId>,
    /// How often clients have asked by an epoch that was over.
    syncs: u16,
}

impl Outdated {
    /// In one run in five tails are set apart more often. From a generator of its own, so that all others are what they were without.
    pub(super) fn draw(rng: &Rng) -> Self {
        let mut rng = Rng::seeded(rng.clone().bits() ^ 0x6f6c_6421);
        let left = if rng.chance(0.2) { 3 } else { 0 };
        let (served, asked, begun) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { rng, left, served, asked, begun, syncs: 0 }
    }

    /// None is set apart any more.
    pub(super) fn rest(&mut self) {
        self.left = 0;
    }

    /// Looks at the nodes of a host that were called.
    pub(super) fn look(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        let now = cluster.now();
        for (id, node) in cluster.called_nodes_of(host) {
            match node {
                Node::ChainServer(server) => {
                    let (partition, epoch) = (server.partition(), server.serves());
                    let of_epoch = epoch.map(|epoch| (partition, epoch));
                    if let Some(of_epoch) = of_epoch.filter(|it| !self.served.contains_key(it)) {
                        self.served.insert(of_epoch, now);
                        self.begun.push(partition);
                    }
                }
                Node::Client(client) => {
                    let before = self.asked.remove(&id).unwrap_or_default();
                    if let Some(ended) = client.ended_sync() {
                        self.check_ended(id, ended, &before);
                    }
                    let since = |call, epoch| before.get(&call).filter(|(known, _)| *known == epoch);
                    let asked = client
                        .syncs()
                        .map(|(call, epoch)| (call, since(call, epoch).copied().unwrap_or((epoch, now))));
                    self.asked.insert(id, asked.collect());
                }
                Node::Director(_) | Node::Log(_) => {}
            }
        }
    }

    /// No later epoch had served when the sync was asked.
    fn check_ended(&self, id: NodeId, ended: EndedSync, asked: &Asked) {
        let EndedSync { call, partition, epoch } = ended;
        let Some(&(_, at)) = asked.get(&call).filter(|(known, _)| *known == epoch) else { return };
        let later = (partition, epoch.next())..=(partition, ChainEpoch(u64::MAX));
        let earliest = self.served.range(later).min_by_key(|(_, since)| **since);
        invariant!(
            FENCE,
            earliest.is_none_or(|(_, since)| *since >= at),
            "{id} has ended a sync of {partition} in {epoch:?}, asked at {at} ns, and {earliest:?} had served"
        );
    }
}

impl FuzzyScenario {
    /// Other servers do not hear the host, nor it them; clients and it hear each other.
    pub(super) fn set_apart(
        &mut self,
        host: HostId,
        lasts: Duration,
        control: &mut Control<'_, Node>,
    ) -> bool {
        if self.apart.is_some() {
            return false;
        }
        self.apart = Some(host);
        for other in self.machines().filter(|&it| it != host) {
            control.sever(other, host);
            control.sever(host, other);
        }
        control.mark("scenario.set_a_tail_apart");
        control.alarm(lasts, TOGETHER);
        true
    }

    /// While a tail is set apart, clients of other hosts look at once for what was appended: they may not know yet who serves.
    pub(super) fn probe(&mut self, node: NodeId, response: &FuzzyResponse, control: &mut Control<'_, Node>) {
        let FuzzyResponse::Appended { placed, .. } = response else { return };
        if self.apart.is_none() || self.probes >= PROBES_MAX {
            return;
        }
        for host in self.clients.iter().filter(|host| **host != node.host()) {
            let colour = placed[self.probes as usize % placed.len()].colour;
            let call = SyncCall { colour, from: NodePosition(0), seen: AppendTime::ZERO };
            let (node, request) = (self.deployment.client_of(*host), FuzzyRequest::Sync(call));
            let id = control.request(node, request.clone());
            self.probes += 1;
            let who = (PROBERS_FROM + self.probes, 0);
            self.history.asked(id, who, node, request, None, control.cluster.now());
        }
    }

    /// Now and then a tail is set apart that is not alone in its chain.
    pub(super) fn set_a_tail_apart(&mut self, control: &mut Control<'_, Node>) {
        if self.outdated.left == 0 || self.apart.is_some() || !self.outdated.rng.chance(0.1) {
            return;
        }
        let chains = self.chains.partitions().map(|partition| self.chains.latest(partition));
        let long = chains.filter(|chain| chain.members.len() > 1);
        let tails: Vec<HostId> = long.filter_map(|chain| Some(chain.tail()?.host())).collect();
        let Some(&host) = self.outdated.rng.pick(&tails) else { return };
        self.outdated.left -= 1;
        let lasts = self.outdated.rng.duration(Duration::from_millis(500), Duration::from_secs(3));
        self.set_apart(host, lasts, control);
    }

    /// While a tail is set apart: clients that know no later epoch than it sync as soon as another one serves.
    pub(super) fn sync_by_an_epoch_that_is_over(&mut self, control: &mut Control<'_, Node>) {
        let begun = std::mem::take(&mut self.outdated.begun);
        let Some(apart) = self.apart else { return };
        for partition in begun {
            let served = control.cluster.nodes_of(apart).find_map(|(_, node)| match node {
                Node::ChainServer(server) if server.partition() == partition => server.serves(),
                _ => None,
            });
            let Some(served) = served.filter(|served| *served < self.chains.latest(partition).epoch) else {
                continue;
            };
            for host in self.clients.clone() {
                let node = self.deployment.client_of(host);
                let Some(Node::Client(client)) = control.cluster.node(node) else { continue };
                let knows = client.projections().any(|it| (it.partition, it.epoch) == (partition, served));
                let mut colours = (0..self.users.colours()).map(Colour);
                let colour = colours.find(|colour| client.map().partition_of(*colour) == partition);
                let Some(colour) = colour.filter(|_| knows && self.outdated.syncs < SYNCS_MAX) else {
                    continue;
                };
                self.outdated.syncs += 1;
                control.mark("scenario.synced_by_an_epoch_that_is_over");
                let call = SyncCall { colour, from: NodePosition(0), seen: AppendTime::ZERO };
                let request = FuzzyRequest::Sync(call);
                let id = control.request(node, request.clone());
                let who = (SYNCERS_FROM + self.outdated.syncs, 0);
                self.history.asked(id, who, node, request, None, control.cluster.now());
            }
        }
    }
}
