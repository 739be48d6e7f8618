//! A leader of a group is followed by another while what it has asked of the sequencer is still on its way, and nobody else asks.

use super::{DEPOSE, MasonScenario, NOBODY, Node};
use crate::moments;
use ::mason::Deployment;
use kernel::{HostId, Rng};
use sim::{Control, Loss, OperationId};
use std::time::Duration;

/// A leader's host, and how far that has come.
pub(super) struct Deposing {
    leader: HostId,
    sequencer: HostId,
    lasts: Duration,
    /// Its requests are on their way.
    has_asked: bool,
}

/// How long clients are quiet before, so that nobody waits for an answer of the group.
const QUIET_BEFORE: Duration = Duration::from_millis(400);
/// How long the leader runs after what its own host's gateway asks.
const RUNS_FOR: Duration = Duration::from_millis(30);
const OPERATIONS: u32 = 8;

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl MasonScenario {
    /// False if the sequencer's host leads all groups, or a leader is deposed already.
    pub(super) fn depose(&mut self, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let Some(sequencer) = moments::sequencer(&control.cluster) else { return false };
        let leaders = moments::leaders(&control.cluster);
        let elsewhere: Vec<HostId> =
            leaders.iter().map(|(_, host)| *host).filter(|host| *host != sequencer).collect();
        let Some(&leader) = rng.pick(&elsewhere).filter(|_| self.deposing.is_none()) else { return false };
        // Long enough for another leader.
        let lasts = rng.duration(Duration::from_millis(900), Duration::from_millis(2_500));
        self.deposing = Some(Deposing { leader, sequencer, lasts, has_asked: false });
        self.hushed_until = control.cluster.now() + nanos(QUIET_BEFORE + lasts) + nanos(RUNS_FOR) * 2;
        control.alarm(QUIET_BEFORE, DEPOSE);
        true
    }

    pub(super) fn go_on_deposing(&mut self, control: &mut Control<'_, Node>) {
        let Some(deposing) = self.deposing.take() else { return };
        let Deposing { leader, sequencer, lasts, has_asked } = deposing;
        if !self.core.is_empty() || !control.cluster.is_up(leader) {
            return;
        }
        let mut rng = Rng::seeded(control.cluster.now());
        if has_asked {
            control.mark("scenario.deposed_a_leader_whose_requests_were_late");
            return control.crash(leader, Loss::None, lasts * 2, &mut rng);
        }
        control.clog(leader, sequencer, lasts);
        for _ in 0..OPERATIONS {
            let operation = OperationId { client: NOBODY, nth: self.busy.0 };
            self.busy.0 += 1;
            self.ask(operation, Deployment::gateway(leader), &mut rng, control);
        }
        self.deposing = Some(Deposing { has_asked: true, ..deposing });
        control.alarm(RUNS_FOR, DEPOSE);
    }
}
