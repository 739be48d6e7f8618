//! A user is silent until its session is about to expire. Then it writes, while no sequencer gives numbers away: when the write gets its
//! number, the session is closing.

use super::node::Seat;
use super::user::User;
use super::words::{Ask, EPHEMERAL, SEQUENTIAL};
use super::{AT_REST, CoordinationScenario, checks, handing, nanos, rest};
use coordination::wire::ZkSessionId;
use kernel::NodeId;
use sim::{Cluster, Control, Hindrance};
use std::time::Duration;

/// The alarm that lets another session expire, and how often, where little else goes wrong.
pub(super) const LET_EXPIRE: u64 = AT_REST + 9;
pub(super) const EXPIRE_EVERY: Duration = Duration::from_secs(2);
/// The alarm that looks at the session.
pub(super) const LOOK_AT_A_SESSION: u64 = AT_REST + 8;

/// A user that is silent until its session has so little time left.
pub(super) struct Expiring {
    user: usize,
    session: u64,
    /// In milliseconds.
    left: u64,
    /// How long messages to sequencers are held.
    held_for: Duration,
}

const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How soon a group finds that a session has expired.
const CLOSES_AFTER: Duration = Duration::from_millis(100);

/// Milliseconds until a session expires, as the replica has it whose clock is furthest; none if it is closing or over.
fn expires_in(session: u64, cluster: &Cluster<'_, Seat>) -> Option<u64> {
    let of = |view: coordination::SessionView<'_>| (view.closing, view.expires_in);
    let views = rest::replicas(cluster.nodes()).filter_map(|(_, machine)| {
        let mut views = machine.stub().sessions().after(ZkSessionId(session - 1), machine.now());
        views.next().filter(|view| view.session.0 == session).map(of)
    });
    let views: Vec<(bool, u64)> = views.collect();
    let closing = views.iter().any(|(closing, _)| *closing);
    views.iter().map(|(_, left)| *left).min().filter(|_| !closing)
}

pub(super) fn sequencers(cluster: &Cluster<'_, Seat>) -> Vec<NodeId> {
    let all = cluster.nodes().filter(|(_, node)| handing::sequencer_of(node).is_some());
    all.map(|(id, _)| id).collect()
}

impl CoordinationScenario {
    /// Lets the user fall silent whose session expires soonest, unless one is silent already.
    pub(super) fn let_expire(&mut self, control: &mut Control<'_, Seat>) {
        let is_there = |user: &User| user.link.as_ref().is_some_and(|link| link.greeted);
        let there = (0..self.users.len()).filter(|&user| !self.is_quiet(user) && is_there(&self.users[user]));
        let sessions = there.filter_map(|number| {
            let session = self.users[number].session.as_ref()?;
            Some((session.timeout, number, session.id))
        });
        let Some((_, number, session)) = sessions.min().filter(|_| self.expiring.is_none()) else { return };
        // One that has made no ephemeral node is over at once, and never seen to be closing.
        let (path, value) = (format!("{}/n-", checks::LOCK), self.value());
        self.say(number, Ask::Create { path, value, flags: EPHEMERAL | SEQUENTIAL }, false, control);
        let held_for = self.rng.duration(Duration::from_millis(500), Duration::from_millis(1_500));
        self.expiring = Some(Expiring { user: number, session, left: self.rng.between(50, 450), held_for });
        control.alarm(LOOK_EVERY, LOOK_AT_A_SESSION);
    }

    /// True if the user sends nothing at all.
    pub(super) fn is_silent(&self, number: usize) -> bool {
        self.expiring.as_ref().is_some_and(|it| it.user == number)
    }

    /// A user's connection is broken.
    pub(super) fn forget_what_was_planned(&mut self, number: usize) {
        self.quiet.take_if(|quiet| quiet.is_of(number));
        self.forget_expiring(number);
    }

    /// The connection of a user is gone, and with it the moment.
    pub(super) fn forget_expiring(&mut self, number: usize) {
        self.expiring.take_if(|it| it.user == number);
    }

    pub(super) fn look_at_a_session(&mut self, control: &mut Control<'_, Seat>) {
        let Some(Expiring { user, session, left, held_for }) = self.expiring else { return };
        let expires_in = expires_in(session, &control.cluster);
        if self.healed_at.is_none() && expires_in.is_some_and(|expires_in| expires_in > left) {
            return control.alarm(LOOK_EVERY, LOOK_AT_A_SESSION);
        }
        self.expiring = None;
        if self.healed_at.is_some() || expires_in.is_none() {
            return;
        }
        control.mark("scenario.wrote_in_a_session_that_was_about_to_expire");
        for sequencer in sequencers(&control.cluster) {
            control.hinder(sequencer, Hindrance::Held, held_for);
        }
        for (path, flags) in
            [(format!("{}/n-", checks::LOCK), EPHEMERAL | SEQUENTIAL), (format!("/e{user}"), EPHEMERAL)]
        {
            let value = self.value();
            self.say(user, Ask::Create { path, value, flags }, false, control);
        }
        if self.rng.chance(0.5) {
            // It comes back while the session is closing.
            let now = control.cluster.now();
            self.disconnect(user, now, Some(control));
            let closing = Duration::from_millis(left) + self.rng.duration(CLOSES_AFTER, held_for);
            self.users[user].retry_at = now + nanos(closing);
        }
    }
}
