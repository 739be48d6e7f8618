//! Dry restarts of a log's roles: what their records make of them is what they are.

use super::LogAudit;
use kernel::{NodeId, StateMachine, invariant};
use paxos::Member;
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::leader::Leader;
use paxos::multipaxos::replica::Replica;

impl LogAudit {
    /// A member of the log, and what a restart would make of it.
    pub(crate) fn on_dry_restart<S: StateMachine>(
        &mut self,
        id: NodeId,
        running: &Member<S>,
        restarted: &Member<S>,
    ) {
        match (running, restarted) {
            (Member::Acceptor(running), Member::Acceptor(restarted)) => {
                self.compare_acceptors(id, running, restarted);
            }
            (Member::Leader(running), Member::Leader(restarted)) => compare_leaders(id, running, restarted),
            (Member::Replica(running), Member::Replica(restarted)) => {
                self.compare_replicas(id, running, restarted);
            }
            // The others journal nothing.
            (
                Member::Acceptor(_)
                | Member::Leader(_)
                | Member::Replica(_)
                | Member::ProxyLeader(_)
                | Member::Batcher(_)
                | Member::Unbatcher(_)
                | Member::Client(_),
                _,
            ) => {}
        }
    }

    /// Promises and votes are as they were; what is chosen may be known of fewer slots.
    fn compare_acceptors(&self, id: NodeId, running: &Acceptor, restarted: &Acceptor) {
        let (known, found) = (running.summary(), restarted.summary());
        invariant!(AGREE, known == found, "{id} is {known:?}, and would be {found:?} after a restart");
        let differs = running.votes().zip(restarted.votes()).find(|(known, found)| known != found);
        let count = running.votes().count();
        invariant!(
            AGREE,
            differs.is_none() && count == restarted.votes().count(),
            "{id} has {count} votes, and would have {} after a restart, one of them another: {differs:?}",
            restarted.votes().count()
        );
        for slot in restarted.executed().start.max(restarted.truncated_below()).0..restarted.executed().end.0
        {
            let (chosen, found) =
                (self.chosen.get(&parts::Slot(slot)), restarted.executed_value(parts::Slot(slot)));
            invariant!(
                AGREE,
                chosen.is_none() || found.is_none() || found == chosen,
                "{id} would call {found:?} in slot {slot} chosen after a restart, which is {chosen:?}"
            );
        }
    }

    /// Its last snapshot is the state that all replicas had there, and reaches as far as it believes.
    fn compare_replicas<S: StateMachine>(
        &mut self,
        id: NodeId,
        running: &Replica<S>,
        restarted: &Replica<S>,
    ) {
        let (known, found) = (running.snapshot_through(), restarted.snapshot_through());
        invariant!(
            DUR,
            known <= found,
            "{id} takes a snapshot through {known} for durable, and would find one through {found} after a restart"
        );
        if restarted.is_joining() || restarted.executed().0 == 0 {
            return;
        }
        let executed = restarted.executed();
        let digest = (restarted.machine().digest(), restarted.digest(), restarted.sessions_digest());
        let known = self.digests.get(&executed).copied();
        invariant!(
            PREFIX,
            known.is_none_or(|known| known == digest),
            "{id} would differ from other replicas below slot {executed} after a restart"
        );
        for found in restarted.configurations().all() {
            let known = self.configurations.get(&found.version);
            invariant!(
                PREFIX,
                known.is_none_or(|known| known == found),
                "{id} would have {found:?} after a restart, other replicas have {known:?}"
            );
        }
    }
}

fn compare_leaders(id: NodeId, running: &Leader, restarted: &Leader) {
    let (known, found) = (running.round(), restarted.round());
    invariant!(
        AGREE,
        known == found,
        "{id} has stood in round {known}, and would know of {found} after a restart"
    );
}
