//! A vote that comes late: who asked for it has been restarted since, and asks for votes in another ballot.

use super::{CorfuScenario, Node};
use ::corfu::{Auxiliary, Epoch};
use kernel::{HostId, NodeId, Rng};
use parts::Ballot;
use sim::{Cluster, Control, Loss};
use std::time::Duration;

/// How often a vote is still to come late, and how far the next one has come.
#[derive(Debug)]
pub(super) struct LateVotes {
    left: u32,
    plot: Option<Plot>,
}

#[derive(Clone, Copy, Debug)]
struct Plot {
    asks: NodeId,
    /// What it asked for at first.
    of: (Epoch, Ballot),
    /// Stands still before it votes for that.
    voter: HostId,
    /// The third auxiliary.
    other: HostId,
    stage: Stage,
    until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No message of who asked arrives.
    Begun,
    /// Its messages reach the third one again.
    Changing,
    /// It asks again; only the voter's messages reach it.
    AsksAgain,
}

const LASTS: Duration = Duration::from_secs(5);
const STARTS_AFTER: Duration = Duration::from_millis(5);
/// How long a vote may be on its way.
const VOTE_WITHIN: Duration = Duration::from_millis(300);

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn auxiliary<'a>(id: NodeId, cluster: &Cluster<'a, Node>) -> Option<&'a Auxiliary> {
    match cluster.node(id) {
        Some(Node::Auxiliary(auxiliary)) => Some(auxiliary),
        _ => None,
    }
}

impl LateVotes {
    /// In some clusters; none in the others.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self { left: if rng.chance(0.3) { 5 } else { 0 }, plot: None }
    }

    pub(super) fn any(&self) -> bool {
        self.left > 0 || self.plot.is_some()
    }
}

impl CorfuScenario {
    pub(super) fn look_at_votes(&mut self, control: &mut Control<'_, Node>) {
        self.late_votes.plot = match self.late_votes.plot {
            Some(plot) => plot.go_on(control),
            None if self.late_votes.left > 0 => self.make_a_vote_late(control),
            None => None,
        };
    }

    /// Where an auxiliary asks for votes: it starts again, and one of the others stands still before it votes.
    fn make_a_vote_late(&mut self, control: &mut Control<'_, Node>) -> Option<Plot> {
        let asking = self.auxiliaries.iter().find_map(|&id| {
            let of = auxiliary(id, &control.cluster)?.asks_for_votes()?;
            Some((id, of))
        });
        // At the bootstrap everybody is needed.
        let (asks, of) = asking.filter(|(_, (epoch, _))| *epoch > Epoch(2))?;
        let mut others = self.auxiliaries.iter().map(|id| id.host()).filter(|host| *host != asks.host());
        let (voter, other) = (others.next()?, others.next()?);
        self.late_votes.left -= 1;
        control.pause(voter, LASTS);
        control.sever(asks.host(), voter);
        control.sever(asks.host(), other);
        let now = control.cluster.now();
        control.crash(asks.host(), Loss::None, STARTS_AFTER, &mut Rng::seeded(now));
        Some(Plot { asks, of, voter, other, stage: Stage::Begun, until: now + nanos(LASTS) })
    }
}

impl Plot {
    fn go_on(mut self, control: &mut Control<'_, Node>) -> Option<Self> {
        let now = control.cluster.now();
        let asker = auxiliary(self.asks, &control.cluster);
        let asks = self.asks.host();
        if now >= self.until {
            control.mend(asks, self.voter);
            match self.stage {
                Stage::Begun => control.mend(asks, self.other),
                Stage::Changing => {}
                Stage::AsksAgain => control.mend(self.other, asks),
            }
            control.resume(self.voter);
            return None;
        }
        match self.stage {
            Stage::Begun if asker.is_some_and(Auxiliary::has_begun_a_change) => {
                control.mend(asks, self.other);
                self.stage = Stage::Changing;
            }
            Stage::Changing => {
                let again = asker.and_then(Auxiliary::asks_for_votes);
                if again.is_some_and(|(epoch, ballot)| epoch == self.of.0 && ballot > self.of.1) {
                    control.mark("scenario.had_a_vote_for_an_earlier_ballot_come_late");
                    control.sever(self.other, asks);
                    control.resume(self.voter);
                    (self.stage, self.until) = (Stage::AsksAgain, now + nanos(VOTE_WITHIN));
                }
            }
            Stage::Begun | Stage::AsksAgain => {}
        }
        Some(self)
    }
}
