//! Strikes that wait for their moment, because chance does not meet it.

use super::{MasonScenario, Node};
use kernel::{HostId, NodeId, Rng};
use sim::{Cluster, Control, Loss};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is waited for, and until when.
pub(super) struct Ambush {
    moment: Moment,
    until: u64,
    rng: Rng,
}

enum Moment {
    /// A server takes a peer's snapshot: it dies before it has written its own, and whoever leads a group then.
    Installed(BTreeMap<NodeId, u64>),
    /// A group retires: the sequencer dies with answers on their way.
    Retired(BTreeSet<NodeId>),
}

const WAITS: Duration = Duration::from_secs(10);

fn skips(cluster: &Cluster<'_, Node>) -> BTreeMap<NodeId, u64> {
    let servers = cluster.nodes().filter_map(|(id, node)| match node {
        Node::Shard(server) => Some((id, server.skips())),
        _ => None,
    });
    servers.collect()
}

fn retired(cluster: &Cluster<'_, Node>) -> BTreeSet<NodeId> {
    let replicas = cluster.nodes().filter(|(_, node)| match node {
        Node::Log(embedded) => {
            matches!(embedded.node(), paxos::Member::Replica(replica) if replica.machine().is_retired())
        }
        _ => false,
    });
    replicas.map(|(id, _)| id).collect()
}

impl Ambush {
    pub(super) fn on_snapshots(rng: &mut Rng, cluster: &Cluster<'_, Node>) -> Self {
        Self::new(Moment::Installed(skips(cluster)), rng, cluster)
    }

    pub(super) fn on_retirements(rng: &mut Rng, cluster: &Cluster<'_, Node>) -> Self {
        Self::new(Moment::Retired(retired(cluster)), rng, cluster)
    }

    fn new(moment: Moment, rng: &mut Rng, cluster: &Cluster<'_, Node>) -> Self {
        Self { moment, until: cluster.now() + WAITS.as_nanos() as u64, rng: rng.fork() }
    }
}

impl MasonScenario {
    /// Strikes if the moment has come.
    pub(super) fn look(&mut self, control: &mut Control<'_, Node>) {
        let Some(mut ambush) = self.ambush.take_if(|_| true) else { return };
        let ms = Duration::from_millis;
        match &ambush.moment {
            Moment::Installed(before) => {
                let now = skips(&control.cluster);
                let took =
                    now.iter().find(|(id, skips)| before.get(*id).is_some_and(|before| *before < **skips));
                if let Some(host) = took.map(|(id, _)| id.host()) {
                    control.mark("scenario.killed_who_took_a_snapshot");
                    let leader = self.leader(&mut ambush.rng, &control.cluster);
                    let victims: BTreeSet<HostId> = leader.into_iter().chain([host]).collect();
                    for victim in victims {
                        let down = ambush.rng.duration(ms(50), ms(800));
                        control.crash(victim, Loss::All, down, &mut ambush.rng);
                    }
                    return;
                }
                ambush.moment = Moment::Installed(now);
            }
            Moment::Retired(before) => {
                let now = retired(&control.cluster);
                if let Some(host) = self.sequencer(&control.cluster).filter(|_| !now.is_subset(before)) {
                    control.mark("scenario.killed_the_sequencer_when_a_group_retired");
                    let down = ambush.rng.duration(ms(50), ms(2_000));
                    control.crash(host, Loss::All, down, &mut ambush.rng);
                    return;
                }
                ambush.moment = Moment::Retired(now);
            }
        }
        if control.cluster.now() < ambush.until {
            self.ambush = Some(ambush);
        }
    }
}
