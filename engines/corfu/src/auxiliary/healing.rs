//! Servers that come back, and servers instead of those that do not: who copies a chain, and who is let in.

use super::Auxiliary;
use crate::messages::storage::Project;
use crate::projection::{JournalId, Projection};
use kernel::{Cx, Instant, NodeId};
use std::time::Duration;

/// A server that copies a chain with room for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learner {
    /// The server.
    pub server: NodeId,
    /// Records that its source's journal had beyond the copy; none while older ones are compared.
    pub behind: Option<u64>,
}

/// How long a server has to wait that was left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comeback {
    /// What the next wait will be doubled from.
    wait: Duration,
    not_before: Instant,
}

impl Auxiliary {
    /// Who copies the chain, as far as is known here.
    pub fn learners(&self, chain: usize) -> impl Iterator<Item = Learner> + '_ {
        let installed = &self.state.installed;
        let candidates = self.candidates.get(chain).into_iter().flatten().copied();
        let outside = candidates.filter(move |it| !installed.servers().any(|server| server == *it));
        outside.filter_map(move |server| {
            let copied = self.statuses.get(&server)?.copied.as_ref()?;
            (copied.epoch == installed.epoch).then_some(Learner { server, behind: copied.behind })
        })
    }

    /// How long a server still has to wait before it may be let in.
    pub fn waits(&self, server: NodeId, now: Instant) -> Duration {
        self.comebacks.get(&server).map_or(Duration::ZERO, |comeback| comeback.not_before.since(now))
    }

    fn has_room(&self, chain: usize) -> bool {
        let width = self.widths.get(chain).copied().unwrap_or(0);
        self.state.installed.chains.get(chain).is_some_and(|servers| servers.len() < width)
    }

    /// Reports to a storage server who serves, and what to copy if it does not.
    pub(super) fn notify(&self, server: NodeId, cx: &mut Cx<'_, Self>) {
        if self.state.installed.is_bootstrapped() {
            let chain = self.candidates.iter().position(|chain| chain.contains(&server));
            let chain = chain.filter(|&chain| self.has_room(chain)).map(|chain| chain as u32);
            cx.send_durable(server, Project { projection: self.state.installed.clone(), chain });
        }
    }

    /// Servers that may be let into a chain behind `source`, and their incarnations.
    pub(super) fn ready(&self, chain: usize, source: NodeId, now: Instant) -> Vec<(NodeId, JournalId)> {
        let installed = &self.state.installed;
        let present = installed.chains.get(chain).map_or(0, Vec::len);
        let room = self.widths.get(chain).copied().unwrap_or(0).saturating_sub(present);
        let may = |learner: &Learner| {
            let status = self.statuses.get(&learner.server);
            let follows = status.and_then(|it| it.copied.as_ref()).is_some_and(|it| it.source == source);
            let waits = self.waits(learner.server, now) > Duration::ZERO;
            // One answer held all that had come since the one before.
            follows && !waits && learner.behind == Some(0)
        };
        let close = self.learners(chain).filter(may);
        close.filter_map(|it| Some((it.server, self.journal_of(it.server, now)?))).take(room).collect()
    }

    /// True if a chain can be made whole, or an auxiliary that lost its votes can have them again.
    pub(super) fn can_heal(&self, now: Instant) -> bool {
        let installed = &self.state.installed;
        let has_learner = |(chain, servers): (usize, &Vec<NodeId>)| {
            servers.last().is_some_and(|&tail| !self.ready(chain, tail, now).is_empty())
        };
        let lost_votes = |&peer: &NodeId| self.is_silent(peer, now) && self.journal_of(peer, now).is_some();
        installed.chains.iter().enumerate().any(has_learner) || self.peers.iter().any(lost_votes)
    }

    /// A server that leaves has to wait before it comes back, longer each time that it did not stay for long.
    pub(super) fn note_who_left(&mut self, next: &Projection, cx: &mut Cx<'_, Self>) {
        let left = self.state.installed.servers().filter(|it| !next.servers().any(|server| server == *it));
        let left: Vec<NodeId> = left.collect();
        if next.sequencer != self.state.installed.sequencer {
            self.suspected_sequencer = Some(self.state.installed.sequencer);
        }
        for server in left {
            let run = self.statuses.get(&server).map(|status| status.run);
            self.suspected.extend(run.map(|run| (server, run)));
            self.make_wait(server, cx);
        }
    }

    /// Somebody who was taken for failed is heard, and was there all the time.
    pub(super) fn was_wrong(&mut self, cx: &mut Cx<'_, Self>) {
        cx.mark("auxiliary.suspected_somebody_who_was_there");
        self.patience.grow(cx.now());
    }

    /// Nor does one come in at once that was to be let in and was not ready.
    pub(super) fn make_wait(&mut self, server: NodeId, cx: &mut Cx<'_, Self>) {
        let (now, least, most) = (cx.now(), self.parameters.back_off, self.parameters.back_off_max);
        let before = self.comebacks.get(&server);
        // It behaved for longer than it had been made to wait.
        let calm = before.is_none_or(|it| now.since(it.not_before) > it.wait * CALM);
        let wait = before.filter(|_| !calm).map_or(least, |it| (it.wait * 2).min(most));
        if wait > least {
            cx.mark("auxiliary.made_a_flapping_server_wait_longer");
        }
        self.comebacks.insert(server, Comeback { wait, not_before: cx.now() + wait });
    }
}

/// A server that stayed for so many times as long as it had to wait begins with the shortest wait again.
const CALM: u32 = 8;

/// How many times as long as is configured an auxiliary waits before it takes somebody for failed: longer after each time that it was
/// wrong, so that links slower than anybody thought of do not make it change the projection for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    factor: u32,
    since: Instant,
}

/// The most that an auxiliary's patience grows to, unless [`crate::Parameters::suspect_max`] is less.
const PATIENCE_MAX: u32 = 32;
/// Patience shrinks when nobody was wrongly taken for failed for so many times as long as it takes.
const PEACE: u32 = 50;

impl Patience {
    pub(super) fn new() -> Self {
        Self { factor: 1, since: Instant(0) }
    }

    pub(super) fn factor(self) -> u32 {
        self.factor
    }

    fn grow(&mut self, now: Instant) {
        *self = Self { factor: (self.factor * 2).min(PATIENCE_MAX), since: now };
    }

    /// Halves it after a long peace.
    pub(super) fn calm_down(&mut self, now: Instant, suspect_after: Duration) {
        if self.factor > 1 && now.since(self.since) > suspect_after * self.factor * PEACE {
            *self = Self { factor: self.factor / 2, since: now };
        }
    }
}
