//! Strikes at those who take part in transactions.

use super::snapshots::{Progress, Replicates};
use kernel::{HostId, Node, NodeId, Rng};
use sim::{Cluster, Control, Loss};
use spanner::SpannerMember;
use std::collections::BTreeSet;
use std::time::Duration;

/// A node of a simulated cluster that may be a role of a deployment of transactions.
pub(crate) trait TakesPart: Node + Sized {
    /// The role; none if it is of another service.
    fn part(&self) -> Option<&SpannerMember>;
}

impl TakesPart for SpannerMember {
    fn part(&self) -> Option<&SpannerMember> {
        Some(self)
    }
}

impl Replicates for SpannerMember {
    fn replica(&self) -> Option<Progress> {
        let Self::Log(embedded) = self else { return None };
        let paxos::Member::Replica(replica) = embedded.node() else { return None };
        Some(Progress::of(replica))
    }
}

/// The roles of all deployments.
pub(crate) fn parts<'a, N: TakesPart + 'a>(
    cluster: &Cluster<'a, N>,
) -> impl Iterator<Item = (NodeId, &'a SpannerMember)> {
    cluster.nodes().filter_map(|(id, node)| Some((id, node.part()?)))
}

/// Hosts that lead shards.
pub(crate) fn leaders<N: TakesPart>(cluster: &Cluster<'_, N>) -> Vec<HostId> {
    let leads =
        parts(cluster).filter(|(_, part)| matches!(part, SpannerMember::Shard(it) if it.is_leading()));
    let hosts: BTreeSet<HostId> = leads.map(|(id, _)| id.host()).collect();
    hosts.into_iter().collect()
}

/// Kills a host whose gateway has calls in progress; false if there is none.
pub(crate) fn kill_a_busy_gateway<N: TakesPart>(rng: &mut Rng, control: &mut Control<'_, N>) -> bool {
    let second = Duration::from_secs(1);
    let busy = parts(&control.cluster)
        .filter(|(_, part)| matches!(part, SpannerMember::Gateway(gateway) if gateway.in_progress() > 0));
    let busy: Vec<HostId> = busy.map(|(id, _)| id.host()).collect();
    let Some(&host) = rng.pick(&busy) else { return false };
    control.crash(host, Loss::All, rng.duration(2 * second, 5 * second), rng);
    true
}
