//! A replica hears nobody until no other one of its log retains what it lacks: it has to take a snapshot. Who hands that over starts
//! again in the middle, and hears the first question once more.

use kernel::{Node, NodeId, Rng, StateMachine};
use parts::{Slot, WantedPage};
use paxos::multipaxos::replica::Replica;
use sim::{Cluster, Control, Hindrance, Loss};
use std::time::Duration;

/// A node of a simulated cluster that may be a replica of a log. Replicas of one log have one slot on all hosts.
pub(crate) trait Replicates: Node + Sized {
    /// How far its log is here; none if it is no replica.
    fn replica(&self) -> Option<Progress>;
}

/// How far a replica is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    executed: Slot,
    /// The first value that it can hand over.
    retained_from: Option<Slot>,
    /// What it waits for of a peer's snapshot.
    wanted: Option<WantedPage>,
}

impl Progress {
    pub(crate) fn of<S: StateMachine>(replica: &Replica<S>) -> Self {
        Self {
            executed: replica.executed(),
            retained_from: replica.retained().next().map(|(slot, _)| slot),
            wanted: replica.wanted_chunk(),
        }
    }
}

/// A replica that hears nobody for long, one at a time.
#[derive(Debug, Default)]
pub(crate) struct DeafReplica {
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    replica: NodeId,
    /// It hears the others again, and takes a snapshot.
    hears: bool,
    until: u64,
    look_at: u64,
    rng: Rng,
}

const WAITS: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(2);

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn replicas<'a, N: Replicates + 'a>(
    cluster: &Cluster<'a, N>,
) -> impl Iterator<Item = (NodeId, Progress)> + use<'a, N> {
    cluster.nodes().filter_map(|(id, node)| Some((id, node.replica()?)))
}

impl DeafReplica {
    /// True if one is waited for.
    pub(crate) fn any(&self) -> bool {
        self.waiting.is_some()
    }

    /// From now on a replica hears nobody; false if there is none.
    pub(crate) fn lay<N: Replicates>(&mut self, rng: &mut Rng, control: &mut Control<'_, N>) -> bool {
        let found: Vec<(Slot, NodeId)> =
            replicas(&control.cluster).map(|(id, progress)| (progress.executed, id)).collect();
        // The longest log is the busiest.
        let busiest = found.iter().max().copied().filter(|_| rng.chance(0.5));
        let Some((_, replica)) = busiest.or_else(|| rng.pick(&found).copied()) else { return false };
        control.hinder(replica, Hindrance::Lost, WAITS);
        let now = control.cluster.now();
        let (until, rng) = (now + nanos(WAITS), rng.fork());
        self.waiting = Some(Waiting { replica, hears: false, until, look_at: now, rng });
        true
    }

    /// Goes on where the moment has come.
    pub(crate) fn look<N: Replicates>(&mut self, control: &mut Control<'_, N>) {
        let now = control.cluster.now();
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| now >= waiting.look_at) else { return };
        if now > waiting.until || waiting.look(now, control) {
            self.waiting = None;
        }
    }
}

impl Waiting {
    /// True if nothing is left to wait for.
    fn look<N: Replicates>(&mut self, now: u64, control: &mut Control<'_, N>) -> bool {
        let mut of_host = control.cluster.nodes_of(self.replica.host());
        let here = of_host.find(|(id, _)| *id == self.replica).and_then(|(_, node)| node.replica());
        let Some(here) = here else { return true };
        let ms = Duration::from_millis;
        if self.hears {
            let Some(wanted) = here.wanted.filter(|wanted| wanted.index == 1) else { return false };
            control.mark("scenario.restarted_who_hands_a_snapshot_over");
            let down = self.rng.duration(ms(1), ms(4));
            control.crash(wanted.peer.host(), Loss::None, down, &mut self.rng);
            return true;
        }
        self.look_at = now + nanos(LOOK_EVERY);
        let slot = self.replica.host_slot();
        let peers = replicas(&control.cluster);
        let peers: Vec<_> = peers.filter(|(id, _)| *id != self.replica && id.host_slot() == slot).collect();
        // One of those that it will ask is enough.
        let forgotten = peers.iter().filter_map(|(_, peer)| peer.retained_from).max();
        if forgotten.is_some_and(|from| from > here.executed) {
            control.mark("scenario.heard_nobody_until_its_log_had_forgotten");
            self.hears = true;
            control.unhinder(self.replica);
            let repeated = self.rng.duration(ms(100), ms(1_500));
            peers.iter().for_each(|(id, _)| control.hinder(*id, Hindrance::Repeated, repeated));
        }
        false
    }
}
