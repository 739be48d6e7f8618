//! Trouble while shards hand over: users are busy, the sequencer that has them do so dies, and the log that it waits for is late.

use super::words::Ask;
use super::{ASK_FOR_GROUPS, AT_REST, CoordinationScenario, Seat, WISH_AFTER, checks, nanos};
use crate::moments::ambush::Kind;
use mason::MasonMember;
use mason::proxy::Proxy;
use mason::proxy::arranging::FIRST;
use mason::sequencer::Sequencer;
use sim::{Control, Loss};
use std::time::Duration;

/// Alarms.
pub(super) const LOOK_FOR_A_RESHARDING: u64 = AT_REST + 3;
const KILL_IN_A_RESHARDING: u64 = AT_REST + 4;
const BE_BUSY: u64 = AT_REST + 5;
const LOOK_WHEN_CALM: u64 = AT_REST + 6;

const LOOK_EVERY: Duration = Duration::from_millis(2);
const LOOK_FOR: Duration = Duration::from_secs(5);
const BUSY_ROUNDS: u32 = 16;
/// What makes logs forget sooner.
const PADDING_BYTES: usize = 800;
const BUSY_UNANSWERED_MAX: usize = 2;
const BUSY_EVERY: Duration = Duration::from_millis(5);
const BUSY_WHEN_CALM_EVERY: Duration = Duration::from_millis(500);
/// In a resharding that nothing disturbs, users read and write until well behind it.
const BUSY_ROUNDS_WHEN_CALM: u32 = 250;
const BUSY_IN_A_CALM_RESHARDING_EVERY: Duration = Duration::from_millis(2);
const BUSY_ROUNDS_FOR_LONG: u32 = 30;
const BUSY_FOR_LONG_EVERY: Duration = Duration::from_millis(150);
const IDLE_WHEN_CALM: Duration = Duration::from_secs(15);
const LOOK_WHEN_CALM_FOR: Duration = Duration::from_secs(25);

impl CoordinationScenario {
    /// Other groups or shards when nothing else goes wrong.
    pub(super) fn wish_when_calm(&mut self, control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        if self.rng.chance(0.7) && self.wishes.draw_shards(&mut self.rng) {
            // Those who watch everything now are to hear of what is done behind the resharding.
            self.watch_everything(control);
            (0..BUSY_ROUNDS)
                .for_each(|round| control.alarm(WISH_AFTER + BUSY_WHEN_CALM_EVERY * round, BE_BUSY));
            self.looks_until = now + nanos(WISH_AFTER + LOOK_WHEN_CALM_FOR);
            control.alarm(WISH_AFTER, LOOK_WHEN_CALM);
        } else if self.rng.chance(0.3) && self.wishes.draw_journey(IDLE_WHEN_CALM, &mut self.rng) {
            // Sessions that live by pings alone are moved there and back.
        } else if self.wishes.draw(&mut self.rng) {
            // What they attach to now was not on its way out before the heal.
            (0..self.users.len()).for_each(|number| self.disconnect(number, now, Some(control)));
        } else {
            return;
        }
        control.alarm(WISH_AFTER, ASK_FOR_GROUPS);
    }

    pub(super) fn watch_everything(&mut self, control: &mut Control<'_, Seat>) {
        for number in 0..self.users.len() {
            if self.rng.chance(0.7) {
                self.say(number, Ask::WatchBelow { path: "/".to_owned() }, false, control);
            }
        }
    }

    /// Waits for the next resharding.
    pub(super) fn look_for_a_resharding(&mut self, control: &mut Control<'_, Seat>) {
        self.watch_everything(control);
        self.looks_until = control.cluster.now() + nanos(LOOK_FOR);
        control.alarm(LOOK_EVERY, LOOK_FOR_A_RESHARDING);
    }

    pub(super) fn on_resharding_alarm(&mut self, token: u64, control: &mut Control<'_, Seat>) {
        match token {
            BE_BUSY => self.be_busy(control),
            LOOK_WHEN_CALM => self.look_when_calm(control),
            LOOK_FOR_A_RESHARDING | KILL_IN_A_RESHARDING => self.in_a_resharding(token, control),
            _ => {}
        }
    }

    /// Reads that are on their way while a shard hands over are asked anew.
    fn look_when_calm(&mut self, control: &mut Control<'_, Seat>) {
        let is_handing = |node| sequencer_of(node).is_some_and(Sequencer::is_handing_over);
        if control.cluster.nodes().any(|(_, node)| is_handing(node)) {
            (0..BUSY_ROUNDS_WHEN_CALM)
                .for_each(|round| control.alarm(BUSY_IN_A_CALM_RESHARDING_EVERY * round, BE_BUSY));
        } else if control.cluster.now() < self.looks_until {
            control.alarm(LOOK_EVERY, LOOK_WHEN_CALM);
        }
    }

    /// Users read with watches, and write, for seconds.
    pub(super) fn be_busy_for_long(&mut self, writes_much: bool, control: &mut Control<'_, Seat>) {
        self.writes_much = writes_much;
        (0..BUSY_ROUNDS_FOR_LONG).for_each(|round| control.alarm(BUSY_FOR_LONG_EVERY * round, BE_BUSY));
    }

    fn be_busy(&mut self, control: &mut Control<'_, Seat>) {
        for number in 0..self.users.len() {
            // What is never answered may have happened at any time, and many such writes are hard to judge.
            let link = self.users[number].link.as_ref();
            let many = link.is_some_and(|link| link.awaited.len() >= BUSY_UNANSWERED_MAX);
            if many && self.healed_at.is_none() {
                continue;
            }
            let path = (*self.rng.pick(&checks::LASTING).unwrap_or(&"/")).to_owned();
            let (writes, padding) = if self.writes_much { (0.8, PADDING_BYTES) } else { (0.3, 0) };
            let ask = if self.rng.chance(writes) {
                let value = format!("{}{:.<padding$}", self.value(), "");
                Ask::Set { path, value, version: -1 }
            } else {
                Ask::Get { path, watch: self.rng.chance(0.3) }
            };
            self.say(number, ask, false, control);
        }
    }

    fn in_a_resharding(&mut self, token: u64, control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        let is_handing = |node| sequencer_of(node).is_some_and(Sequencer::is_handing_over);
        let handing = control.cluster.nodes().find(|(_, node)| is_handing(node)).map(|(id, _)| id.host());
        match handing {
            _ if self.healed_at.is_some() || now > self.looks_until => {}
            None => control.alarm(LOOK_EVERY, LOOK_FOR_A_RESHARDING),
            Some(_) if self.holds_back.is_some() => {
                // Shards of the host that have all wait for one that lacks a number, and reads wait with them.
                let host = self.holds_back.take();
                self.be_busy_for_long(false, control);
                (0..BUSY_ROUNDS).for_each(|round| control.alarm(BUSY_EVERY * round, BE_BUSY));
                let mut rng = self.rng.fork();
                self.ambushes.lay(Kind::Behind, host, &mut rng, control);
            }
            Some(_) if token == LOOK_FOR_A_RESHARDING => {
                (0..BUSY_ROUNDS).for_each(|round| control.alarm(BUSY_EVERY * round, BE_BUSY));
                let ms = Duration::from_millis;
                let mut after = self.rng.duration(ms(0), ms(40));
                let leads =
                    |node| proxy_of(node).is_some_and(|proxy| proxy.group() == FIRST && proxy.is_leading());
                let leader = control.cluster.nodes().find(|(_, node)| leads(node)).map(|(id, _)| id.host());
                if let Some(leader) = leader.filter(|&leader| Some(leader) != handing && self.rng.chance(0.5))
                {
                    // Its log has the resharding late.
                    after = self.rng.duration(ms(20), ms(300));
                    let down = self.rng.duration(ms(50), ms(1_000));
                    control.crash(leader, Loss::All, down, &mut self.rng);
                }
                control.alarm(after, KILL_IN_A_RESHARDING);
            }
            Some(host) => {
                let down = self.rng.duration(Duration::from_millis(50), Duration::from_secs(2));
                control.mark("scenario.killed_a_sequencer_in_a_resharding");
                control.crash(host, Loss::All, down, &mut self.rng);
            }
        }
    }
}

fn proxy_of(node: &Seat) -> Option<&Proxy> {
    let Seat::Member(member) = node else { return None };
    let MasonMember::Proxy(proxy) = &**member else { return None };
    Some(proxy)
}

pub(super) fn sequencer_of(node: &Seat) -> Option<&Sequencer> {
    let Seat::Member(member) = node else { return None };
    let MasonMember::Sequencer(sequencer) = &**member else { return None };
    Some(sequencer)
}
