//! A user that only pings stays with a host that is partitioned from all others: its gateway must not say for long that the session is
//! open.

use super::{CoordinationScenario, Seat, nanos};
use sim::Control;
use std::time::Duration;

/// A user that says nothing but pings.
pub(super) struct Quiet {
    user: usize,
    until: u64,
}

/// How long a group may take to find that a session is over, beyond its timeout: an election, and the slack of sessions.
const FOUND_WITHIN: Duration = Duration::from_secs(3);

impl Quiet {
    pub(super) fn is_of(&self, number: usize) -> bool {
        self.user == number
    }
}

impl CoordinationScenario {
    /// When a core is healed: lets a user stay with a host outside of it, if nothing else is to be answered there. False if it must leave.
    pub(super) fn may_stay(&mut self, number: usize, control: &mut Control<'_, Seat>) -> bool {
        let user = &self.users[number];
        let (Some(link), Some(session)) = (&user.link, &user.session) else { return false };
        if self.quiet.is_some() || !link.greeted || !link.awaited.is_empty() {
            return false;
        }
        // The session is over after one timeout, and its user must know after another.
        let lasts = Duration::from_nanos(session.timeout) * 5 / 2 + FOUND_WITHIN;
        self.quiet = Some(Quiet { user: number, until: control.cluster.now() + nanos(lasts) });
        control.mark("scenario.left_a_quiet_user_with_a_partitioned_host");
        true
    }

    /// True if the user must not ask for anything now.
    pub(super) fn is_quiet(&self, number: usize) -> bool {
        self.quiet.as_ref().is_some_and(|quiet| quiet.is_of(number))
    }

    /// A user that has been quiet for long enough looks for another host.
    pub(super) fn end_quiet(&mut self, number: usize, control: &mut Control<'_, Seat>) {
        let now = control.cluster.now();
        if self.quiet.take_if(|quiet| quiet.is_of(number) && now > quiet.until).is_some() {
            self.disconnect(number, now, Some(control));
        }
    }
}
