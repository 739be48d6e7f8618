//! What is done to the service: see [`super::marks::STRIKES`].

use super::user::Task;
use super::words::Ask;
use super::{ASK_FOR_GROUPS, CoordinationScenario, Seat, checks, is_bad, nanos};
use crate::moments::ambush::Kind;
use crate::moments::arranging::ASK_EVERY;
use crate::moments::sequencer;
use kernel::Rng;
use sim::{Cluster, Control, Loss};
use std::collections::VecDeque;
use std::time::Duration;

/// A user whose connection breaks after so many answers to what it has pipelined, again and again.
pub(super) struct Cutting {
    user: usize,
    /// How many answers it still hears on this connection.
    heard: usize,
    /// How many on the next ones.
    left: VecDeque<usize>,
    /// How long what the host has been asked is on its way to others.
    late: Option<Duration>,
}

/// How much a user pipelines that is to be disconnected.
const PIPELINED: usize = 6;
const SOON: Duration = Duration::from_millis(20);

impl CoordinationScenario {
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
                let left = VecDeque::from([2, 0]);
                let late = rng.duration(Duration::from_millis(300), Duration::from_millis(1_500));
                let late = rng.chance(0.6).then_some(late);
                self.cutting = Some(Cutting { user: number, heard: 1, left, late });
                true
            }
            _ => false,
        }
    }

    /// What a user does next whose answers are to be lost; none if that is another.
    pub(super) fn pipelined_by(&mut self, number: usize) -> Option<Task> {
        self.cutting.as_ref().filter(|it| it.user == number)?;
        let value = self.value();
        let asks = (0..PIPELINED).map(|step| {
            let path = checks::LASTING[step % checks::LASTING.len()].to_owned();
            match step % 4 {
                1 => Ask::Get { path, watch: true },
                _ => Ask::Set { path, value: format!("{value}.{step}"), version: -1 },
            }
        });
        Some(Task { asks: asks.collect(), pipelined: true })
    }

    /// Breaks the connection of a user whose answers are to be lost, when it has heard so many and others have come.
    pub(super) fn is_disconnected(&mut self, number: usize, control: &mut Control<'_, Seat>) -> bool {
        let Some(cutting) = self.cutting.as_mut().filter(|it| it.user == number) else { return false };
        let awaited = self.users[number].link.iter().flat_map(|link| &link.awaited);
        let waits = awaited.filter(|awaited| awaited.of_task).count();
        if waits < 2 || waits + cutting.heard > PIPELINED {
            return false;
        }
        let (now, late) = (control.cluster.now(), cutting.late);
        match cutting.left.pop_front() {
            _ if self.healed_at.is_some() => {
                self.cutting = None;
                return false;
            }
            Some(heard) => cutting.heard = heard,
            None => {
                control.mark("scenario.lost_answers_one_by_one_and_as_a_whole");
                self.cutting = None;
            }
        }
        if let (Some(late), Some(link)) = (late, &self.users[number].link) {
            // What it has asked there comes behind what it asks elsewhere.
            let others = self.changes.ever().into_iter().filter(|host| *host != link.host);
            others.for_each(|other| control.clog(link.host, other, late));
        }
        self.disconnect(number, now, Some(control));
        self.users[number].retry_at = now + nanos(SOON);
        true
    }
}
