//! Numbers that roles keep beside what they count: a recount comes to the same.

use kernel::{NodeId, Recount, StateMachine, invariant};
use mason::{GatewayRole, MasonMember, Shard, Stub};
use paxos::Member;

pub(crate) fn check(node: NodeId, recounts: impl IntoIterator<Item = Recount>) {
    for Recount { what, known, counted } in recounts {
        invariant!(
            BOUND,
            known == counted,
            "{node} has {known} as its {what}, and a recount comes to {counted}"
        );
    }
}

/// A role of a replicated log.
pub(crate) fn of_log<S: StateMachine>(node: NodeId, member: &Member<S>) {
    match member {
        Member::Replica(replica) => check(node, replica.recounts()),
        Member::Batcher(batcher) => check(node, batcher.recounts()),
        Member::Leader(leader) => check(node, leader.recounts()),
        Member::Acceptor(_) | Member::ProxyLeader(_) | Member::Unbatcher(_) | Member::Client(_) => {}
    }
}

/// A role of a sharded service.
pub(crate) fn of_mason<T: Stub, S: Shard, G: GatewayRole>(node: NodeId, member: &MasonMember<T, S, G>) {
    match member {
        MasonMember::Log(embedded) => of_log(node, embedded.node()),
        MasonMember::Shard(server) => check(node, server.service().recounts()),
        MasonMember::Proxy(_) | MasonMember::Sequencer(_) | MasonMember::Gateway(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};

    // An audit that compares a number with itself never fails.
    #[test]
    #[should_panic(expected = "BOUND")]
    fn a_number_that_drifts_is_noticed() {
        let node = NodeId::new(HostId(1), HostSlot(1));
        check(node, [Recount::of("bytes", 7, 7), Recount::of("bytes", 7, 5)]);
    }
}
