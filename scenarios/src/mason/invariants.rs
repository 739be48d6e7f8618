//! What must hold after every burst, and when a healed core has come to rest.

use ::mason::view::View;
use ::mason::{GatewayRole, Gsn, MasonMember, Number, Placed, Shard, Space, Stub};
use kernel::{HostId, NodeId, invariant};
use sim::Cluster;
use std::collections::BTreeMap;

/// What all servers have agreed on so far.
#[derive(Default)]
pub(crate) struct Invariants {
    digests: BTreeMap<(Space, Number), u64>,
    checked: BTreeMap<NodeId, Number>,
    /// The last epoch in which each host was the sequencer.
    epochs: BTreeMap<HostId, u64>,
}

impl Invariants {
    pub(crate) fn forget(&mut self, host: HostId) {
        self.checked.retain(|node, _| node.host() != host);
    }

    pub(crate) fn check_host<T, S, G>(&mut self, host: HostId, cluster: &Cluster<'_, MasonMember<T, S, G>>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        for (id, node) in cluster.called_nodes_of(host) {
            let MasonMember::Shard(server) = node else { continue };
            let next = server.next();
            if self.checked.get(&id) == Some(&next) {
                continue;
            }
            let went_back = self.checked.insert(id, next).is_some_and(|before| before > next);
            invariant!(CONTIG, !went_back, "{id} went back to {next}");
            let digest = server.service().digest();
            let known = *self.digests.entry((server.space(), next)).or_insert(digest);
            invariant!(PREFIX, known == digest, "{id} differs from another server below number {next}");
        }
        self.check_order(host, cluster);
        let active = cluster.called_nodes_of(host).find_map(|(_, node)| match node {
            MasonMember::Sequencer(sequencer) => Some(sequencer.active_epoch()),
            _ => None,
        });
        if let Some(epoch) = active.flatten()
            && self.epochs.insert(host, epoch) != Some(epoch)
        {
            let other = self.epochs.iter().find(|(other, known)| **other != host && **known == epoch);
            invariant!(UNIQ, other.is_none(), "{host:?} and {other:?} are sequencers of epoch {epoch}");
        }
    }

    /// What a server would be after a restart is what servers were below its next number.
    pub(crate) fn check_restarted<T, S, G>(&self, id: NodeId, restarted: &MasonMember<T, S, G>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        let MasonMember::Shard(server) = restarted else { return };
        let at = (server.space(), server.next());
        let known = self.digests.get(&at).copied();
        invariant!(
            PREFIX,
            known.is_none_or(|known| known == server.service().digest()),
            "{id} would differ from other servers of its shard at {at:?} after a restart"
        );
    }

    /// What is to be executed next stands in the order of its global sequence numbers.
    fn check_order<T, S, G>(&mut self, host: HostId, cluster: &Cluster<'_, MasonMember<T, S, G>>)
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        for (id, node) in cluster.called_nodes_of(host) {
            let MasonMember::Shard(server) = node else { continue };
            let mut before = Gsn(0);
            for (number, delivered) in server.waiting().filter(|(_, entry)| entry.work.operation().is_some())
            {
                let gsn = delivered.order.gsn;
                invariant!(MSO, gsn > before, "{id} has gsn {before} below {number}, and {gsn} there");
                before = gsn;
            }
        }
    }

    /// A hole that is there long after everything was healed is one for ever.
    pub(crate) fn check_contiguity<T, S, G>(
        &self,
        core: &[HostId],
        cluster: &Cluster<'_, MasonMember<T, S, G>>,
    ) where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        let mut view = View::default();
        for (_, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let MasonMember::Log(embedded) = node else { continue };
            let paxos::Member::Replica(replica) = embedded.node() else { continue };
            view.merge(replica.machine().view());
        }
        let holes = view.holes();
        invariant!(CONTIG, holes.is_empty(), "nobody has filled {holes:?}");
    }

    /// Every server of the core has executed the same numbers, and none is missing that any proxy has assigned.
    pub(crate) fn converged<T, S, G>(
        &self,
        core: &[HostId],
        cluster: &Cluster<'_, MasonMember<T, S, G>>,
    ) -> Result<(), String>
    where
        T: Stub,
        S: Shard,
        G: GatewayRole,
    {
        let mut reached: BTreeMap<Space, (Number, u64)> = BTreeMap::new();
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let MasonMember::Shard(server) = node else { continue };
            let at = (server.next(), server.service().digest());
            let known = *reached.entry(server.space()).or_insert(at);
            if known != at {
                return Err(format!("{id} is at {at:?}, another server of its shard at {known:?}"));
            }
        }
        for (id, node) in cluster.nodes().filter(|(id, _)| core.contains(&id.host())) {
            let MasonMember::Log(embedded) = node else { continue };
            let paxos::Member::Replica(replica) = embedded.node() else { continue };
            for (&space, &(next, _)) in &reached {
                let end = replica.machine().view().end(space);
                if end > next {
                    let missing = Placed { space, number: next };
                    return Err(format!("{missing:?} is missing, and {id} has assigned numbers below {end}"));
                }
            }
        }
        Ok(())
    }
}

/// Who leads, who is the sequencer, and how far everybody is.
pub(crate) fn describe<T, S, G>(
    cluster: &Cluster<'_, MasonMember<T, S, G>>,
    outstanding: fn(&G) -> usize,
) -> String
where
    T: Stub,
    S: Shard,
    G: GatewayRole,
{
    let mut words = Vec::new();
    for (id, node) in cluster.nodes() {
        match node {
            MasonMember::Sequencer(sequencer) => {
                if let Some(epoch) = sequencer.active_epoch() {
                    words.push(format!("{id} is sequencer {epoch}"));
                }
            }
            MasonMember::Proxy(proxy) if proxy.is_leading() => {
                words.push(format!("{id} leads {proxy:?}"));
            }
            MasonMember::Shard(server) => {
                words.push(format!("{id} {}", server.describe()));
            }
            MasonMember::Gateway(gateway) if outstanding(gateway) > 0 => {
                words.push(format!("{id} waits for {}", outstanding(gateway)));
            }
            MasonMember::Proxy(_) | MasonMember::Gateway(_) => {}
            MasonMember::Log(embedded) => match embedded.node() {
                paxos::Member::Leader(leader) => words.push(format!("{id} {}", leader.describe())),
                paxos::Member::Replica(replica) => {
                    words.push(format!("{id} executed {}", replica.executed()))
                }
                _ => {}
            },
        }
    }
    words.join(" | ")
}
