//! What nodes say of themselves, held against what is so: timers that they wait for, numbers that they keep, beacons that they show,
//! and, at rest, what is left to be done.

use super::Run;
use crate::host::Seat;
use crate::plan::HostIndex;
use crate::scenario::{Cluster, Scenario};
use kernel::{Node, Recount, invariant};

/// The nodes that were called are looked at after one burst in so many, and all nodes where a restart of them is.
const LOOK_EVERY: u64 = 4;

/// Whatever waits for a timer waits for one that is set.
fn check_timers<N: Node>(seat: &Seat<N>) {
    for timer in seat.node.awaited_timers(seat.id).iter() {
        let is_set = seat.timers.get(usize::from(timer.0)).is_some_and(|slot| slot.is_set());
        let (id, role) = (seat.id, seat.node.role_name());
        invariant!(WAKE, is_set, "{id} ({role}) waits for its timer {}, which is not set", timer.0);
    }
}

impl<S: Scenario> Run<S> {
    /// After a burst: the timers of nodes that were called in it.
    pub(crate) fn check_called(&self, index: HostIndex) {
        if self.out.trace.step.is_multiple_of(LOOK_EVERY) {
            self.hosts[usize::from(index)].called_seats().for_each(check_timers);
        }
    }

    /// A recount comes to the number that is known, and beacons go to whom they are said to go.
    pub(crate) fn check_statements(&self, index: HostIndex) {
        let host = &self.hosts[usize::from(index)];
        for seat in &host.seats {
            check_timers(seat);
            let (id, statement) = (seat.id, seat.node.statement());
            for Recount { what, known, counted } in statement.recounts {
                invariant!(
                    BOUND,
                    known == counted,
                    "{id} has {known} as its {what}, and a recount comes to {counted}"
                );
            }
            for (what, held, most) in statement.bounds {
                invariant!(BOUND, held <= most, "{id} holds {held} {what}, and may hold {most}");
            }
            if let Some(said) = statement.beacons {
                let shown = host.beacons.shown_by(id);
                invariant!(BEACON, said == shown, "{id} shows beacons to {shown:?}, and says {said:?}");
            }
        }
    }

    /// What a node of the core has left to do, though all clients are served and its scenario finds it at rest.
    pub(crate) fn unfinished(&self, scenario: &S) -> Option<String> {
        let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
        let nodes = self.core.iter().flat_map(|&host| self.hosts[usize::from(host)].nodes());
        nodes.filter(|(id, _)| scenario.is_in_use(*id, &cluster)).find_map(|(id, node)| {
            let left = node.statement().unfinished.into_iter().find(|(_, count)| *count > 0);
            left.map(|(what, count)| format!("{id} ({}) has {count} {what} left", node.role_name()))
        })
    }
}
