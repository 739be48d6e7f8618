//! What families share. Over Mason: where the roles of a deployment are, changes of its hosts and groups, and strikes that wait for
//! their moment. Over Spanner: strikes at those who take part in transactions. Over any log: a replica that has to take a snapshot.

pub(crate) mod ambush;
pub(crate) mod arranging;
pub(crate) mod membership;
pub(crate) mod operator;
pub(crate) mod shards;
pub(crate) mod snapshots;

use kernel::{HostId, Node, NodeId};
use mason::proxy::machine::ProxyMachine;
use mason::shard::ShardServer;
use mason::{GatewayRole, Group, MasonMember, Shard, Stub};
use paxos::multipaxos::replica::Replica;
use sim::Cluster;
use snapshots::{Progress, Replicates};

/// A node of a simulated cluster that may be a role of a deployment.
pub(crate) trait Seated: Node + Sized {
    /// The service's share in each proxy.
    type Stub: Stub;
    /// Its shards.
    type Shard: Shard;
    /// Its gateway.
    type Gateway: GatewayRole;

    /// The role; none if it is something else, such as the end of a user's connection.
    fn member(&self) -> Option<&MasonMember<Self::Stub, Self::Shard, Self::Gateway>>;
}

impl<T, S, G> Seated for MasonMember<T, S, G>
where
    T: Stub,
    S: Shard,
    G: GatewayRole,
{
    type Stub = T;
    type Shard = S;
    type Gateway = G;

    fn member(&self) -> Option<&Self> {
        Some(self)
    }
}

impl<T, S, G> Replicates for MasonMember<T, S, G>
where
    T: Stub,
    S: Shard,
    G: GatewayRole,
{
    fn replica(&self) -> Option<Progress> {
        let Self::Log(embedded) = self else { return None };
        let paxos::Member::Replica(replica) = embedded.node() else { return None };
        Some(Progress::of(replica))
    }
}

#[expect(clippy::type_complexity, reason = "a role of any service")]
fn members<'a, N: Seated + 'a>(
    nodes: impl Iterator<Item = (NodeId, &'a N)>,
) -> impl Iterator<Item = (NodeId, &'a MasonMember<N::Stub, N::Shard, N::Gateway>)> {
    nodes.filter_map(|(id, node)| Some((id, node.member()?)))
}

/// Where the active sequencer is, by the highest epoch.
pub(crate) fn sequencer<N: Seated>(cluster: &Cluster<'_, N>) -> Option<HostId> {
    let active = members(cluster.nodes()).filter_map(|(id, member)| match member {
        MasonMember::Sequencer(sequencer) => Some((sequencer.active_epoch()?, id.host())),
        _ => None,
    });
    active.max().map(|(_, host)| host)
}

/// A standby that has the groups sealed, and for which epoch.
pub(crate) fn recovering<N: Seated>(cluster: &Cluster<'_, N>) -> Option<(NodeId, u64)> {
    let mut all = members(cluster.nodes());
    all.find_map(|(id, member)| match member {
        MasonMember::Sequencer(sequencer) => sequencer.recovering_epoch().map(|epoch| (id, epoch)),
        _ => None,
    })
}

/// Who leads a group, and where.
pub(crate) fn leaders<N: Seated>(cluster: &Cluster<'_, N>) -> Vec<(Group, HostId)> {
    let leading = members(cluster.nodes()).filter_map(|(id, member)| match member {
        MasonMember::Proxy(proxy) if proxy.is_leading() => Some((proxy.group(), id.host())),
        _ => None,
    });
    leading.collect()
}

/// The shards' servers.
pub(crate) fn servers<'a, N: Seated>(
    cluster: &Cluster<'a, N>,
) -> impl Iterator<Item = (NodeId, &'a ShardServer<N::Shard>)> {
    members(cluster.nodes()).filter_map(|(id, member)| match member {
        MasonMember::Shard(server) => Some((id, &**server)),
        _ => None,
    })
}

/// The replicas of the groups' logs.
pub(crate) fn replicas<'a, N: Seated>(
    cluster: &Cluster<'a, N>,
) -> impl Iterator<Item = (NodeId, &'a Replica<ProxyMachine<N::Stub>>)> {
    members(cluster.nodes()).filter_map(|(id, member)| match member {
        MasonMember::Log(embedded) => match embedded.node() {
            paxos::Member::Replica(replica) => Some((id, replica)),
            _ => None,
        },
        _ => None,
    })
}
