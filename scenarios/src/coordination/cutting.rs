//! A user whose connection breaks after so many answers to what it has pipelined, again and again.

use super::user::Task;
use super::words::Ask;
use super::{CoordinationScenario, Seat, checks, nanos};
use kernel::Rng;
use sim::Control;
use std::collections::VecDeque;
use std::time::Duration;

/// What a user is to lose.
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

impl Cutting {
    pub(super) fn draw(user: usize, rng: &mut Rng) -> Self {
        let late = rng.duration(Duration::from_millis(300), Duration::from_millis(1_500));
        let late = rng.chance(0.6).then_some(late);
        Self { user, heard: 1, left: VecDeque::from([2, 0]), late }
    }
}

impl CoordinationScenario {
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
            let others = self.hosts_ever().into_iter().filter(|host| *host != link.host);
            others.for_each(|other| control.clog(link.host, other, late));
        }
        self.disconnect(number, now, Some(control));
        self.users[number].retry_at = now + nanos(SOON);
        true
    }
}
