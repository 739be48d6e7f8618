//! What is done to the service: see [`super::marks::STRIKES`].

use super::cutting::Cutting;
use super::words::Ask;
use super::{ASK_FOR_GROUPS, CoordinationScenario, Seat};
use crate::moments::ambush::Kind;
use crate::moments::arranging::ASK_EVERY;
use crate::moments::sequencer;
use kernel::{HostId, Rng};
use sim::{Cluster, Control, Loss};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn is_bad(lost: &BTreeSet<HostId>, host: HostId, cluster: &Cluster<'_, Seat>) -> bool {
    lost.contains(&host) || cluster.is_lost(host) || cluster.is_damaged(host)
}

impl CoordinationScenario {
    /// All hosts that are or were.
    pub(super) fn hosts_ever(&self) -> Vec<HostId> {
        self.changes.ever()
    }

    pub(super) fn carry_out_strike(
        &mut self,
        which: usize,
        rng: &mut Rng,
        control: &mut Control<'_, Seat>,
    ) -> bool {
        let number = rng.index(self.users.len());
        let now = control.cluster.now();
        let host = self.users[number].link.as_ref().map(|link| link.host);
        let down = rng.duration(Duration::from_millis(50), Duration::from_secs(2));
        if which == 0 && self.close_and_come_back(rng, control) {
            return true;
        }
        match (which, host, sequencer(&control.cluster)) {
            (0, Some(_), _) => {
                // What it says last may be done when it is back.
                let closes = rng.chance(0.2);
                if closes {
                    self.say(number, Ask::Close, false, control);
                }
                if closes && rng.chance(0.7) {
                    return self.come_back_before_it_is_heard(number, control);
                }
                self.disconnect(number, now, Some(control));
            }
            (1, Some(host), _) => {
                self.kill_again(host, down, rng, control);
                control.crash(host, Loss::All, down, rng);
            }
            (2, _, Some(host)) => control.crash(host, Loss::All, down, rng),
            (3, Some(_), _) => {
                self.disconnect(number, now, Some(control));
                let user = &mut self.users[number];
                let timeout = user.session.as_ref().map_or(0, |session| session.timeout);
                user.retry_at = now + timeout / 2 * 3;
            }
            (4, _, _) => {
                if !self.wishes.draw(rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
            }
            (5, _, _) => {
                if !self.wishes.draw_shards(rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
                self.look_for_a_resharding(control);
            }
            (6, _, _) => control.crash_all(self.changes.ever(), Loss::All, rng),
            (7 | 8, _, _) => {
                let lost = self.lost.clone();
                let is_bad = |host, cluster: &Cluster<'_, Seat>| is_bad(&lost, host, cluster);
                return self.is_bootstrapped()
                    && self.changes.replace_or_resize(which == 8, is_bad, rng, control);
            }
            _ => return self.lay_in_wait(which, number, rng, control),
        }
        true
    }

    /// Strikes that wait for their moment.
    fn lay_in_wait(
        &mut self,
        which: usize,
        number: usize,
        rng: &mut Rng,
        control: &mut Control<'_, Seat>,
    ) -> bool {
        let host = self.users[number].link.as_ref().map(|link| link.host);
        match which {
            9 => {
                self.be_busy_for_long(true, control);
                self.ambushes.lay(Kind::Forgotten, None, rng, control);
                self.ambushes.lay(Kind::Installed, None, rng, control)
            }
            10 => {
                if !self.is_bootstrapped() || !self.wishes.draw_fewer_groups(rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
                self.ambushes.lay(Kind::Retired, None, rng, control)
            }
            11 => {
                let idle = rng.duration(Duration::from_secs(1), Duration::from_secs(10));
                if !self.is_bootstrapped() || !self.wishes.draw_journey(idle, rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
                true
            }
            12 => {
                self.be_busy_for_long(true, control);
                self.ambushes.lay(Kind::Forgotten, None, rng, control)
            }
            13 => {
                self.watch_everything(control);
                self.be_busy_for_long(false, control);
                self.ambushes.lay(Kind::Behind, host, rng, control)
            }
            14 => {
                self.be_busy_for_long(true, control);
                self.ambushes.lay(Kind::Unanswered, host, rng, control)
            }
            16 => {
                if host.is_none() || !self.wishes.draw_shards(rng) {
                    return false;
                }
                control.alarm(ASK_EVERY, ASK_FOR_GROUPS);
                self.holds_back = host;
                self.look_for_a_resharding(control);
                true
            }
            15 => {
                self.cutting = Some(Cutting::draw(number, rng));
                true
            }
            _ => false,
        }
    }
}
