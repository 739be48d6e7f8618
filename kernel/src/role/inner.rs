//! A role within another role.

use super::{Cx, Effect, Effects, Family, Position, Role, Situation};
use crate::id::RequestId;
use std::convert::Infallible;

/// A role that journals nothing, within a role that does its work by it: an engine's client within a service's gateway. It sends and hears
/// under the outer role's name, all of its timers are one of the outer role's, and the outer role is who asks it.
#[derive(Debug)]
pub struct InnerRole<R: Role> {
    role: R,
    /// What a call leaves; empty between two.
    effects: Effects<R::Family>,
}

/// What an inner role has answered: which request, and what.
pub type InnerAnswers<R> = Vec<(RequestId, <<R as Role>::Family as Family>::Response)>;

impl<R: Role<Record = Infallible>> InnerRole<R> {
    /// The role, which nobody has called yet.
    pub fn new(role: R) -> Self {
        Self { role, effects: Effects::new(Position(0), false) }
    }

    /// The role.
    pub fn get(&self) -> &R {
        &self.role
    }

    /// Calls the role, and does what it wants done but for its answers, which are returned. `timer` stands for all of its timers.
    pub fn call<O: Role>(
        &mut self,
        timer: O::Timer,
        cx: &mut Cx<'_, O>,
        call: impl FnOnce(&mut R, &mut Cx<'_, R>),
    ) -> InnerAnswers<R>
    where
        <O::Family as Family>::Message: From<<R::Family as Family>::Message>,
    {
        let (node, now, wall, disk_full) = (cx.node(), cx.now(), cx.wall(), cx.is_disk_full());
        let beacons = cx.beacons();
        let situation = Situation { node, now, wall, rng: cx.rng(), disk_full, beacons };
        call(&mut self.role, &mut Cx::new(situation, &mut self.effects));
        let mut answers = Vec::new();
        for effect in self.effects.drain() {
            match effect {
                Effect::Send { to, message }
                | Effect::SendDurable { to, message, .. }
                | Effect::Repeat { to, message, .. } => cx.send(to, message),
                Effect::SetBeacon { to, message } => cx.set_beacon([to], message),
                Effect::StopBeacon { to } => cx.stop_beacon([to]),
                Effect::SetTimer { after, silence: None, .. } => cx.set_timer(timer, after),
                Effect::SetTimer { after, silence: Some(silence), .. } => {
                    cx.await_silence(timer, silence.of, silence.lasts, after);
                }
                Effect::StopTimer { .. } => cx.stop_timer(timer),
                Effect::Respond { id, response } => answers.push((id, response)),
                Effect::Reject { reason } => cx.reject(reason),
                Effect::Mark { name } => cx.mark(name),
                // It journals and stores nothing.
                Effect::Trim { .. } | Effect::Blob(_) | Effect::Note { .. } => {}
            }
        }
        answers
    }
}
