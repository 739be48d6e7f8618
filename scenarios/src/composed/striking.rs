//! What is done to the services: those who take part in transactions are struck, and replicas of the log lose track of it.

use super::{ComposedNode, ComposedScenario, LogMember};
use crate::moments::ambush::Kind;
use crate::moments::shards::{self, TakesPart};
use crate::moments::snapshots::{Progress, Replicates};
use crate::moments::{Seated, sequencer};
use ::mason::MasonMember;
use ::spanner::SpannerMember;
use kernel::Rng;
use shared_log::{Gateway, Logs, Names};
use sim::{Class, Control, Loss, StrikeKind};
use std::time::Duration;

pub(super) const STRIKES: [StrikeKind; 8] = [
    StrikeKind { name: "kill a shard's leader", class: Class::Strike },
    StrikeKind { name: "pause a shard's leader", class: Class::Strike },
    StrikeKind { name: "kill a gateway that commits", class: Class::Strike },
    StrikeKind { name: "kill the log's sequencer", class: Class::Strike },
    StrikeKind { name: "restart who hands a snapshot over", class: Class::Strike },
    StrikeKind { name: "restart a standby that seals", class: Class::Strike },
    StrikeKind { name: "stand still until the log has forgotten", class: Class::Strike },
    StrikeKind { name: "miss the log's answers", class: Class::Strike },
];

impl TakesPart for ComposedNode {
    fn part(&self) -> Option<&SpannerMember> {
        match self {
            Self::Txn(embedded) => Some(embedded.node()),
            Self::Log(_) | Self::Znodes(_) => None,
        }
    }
}

/// The log's deployment.
impl Seated for ComposedNode {
    type Stub = Names;
    type Shard = Logs;
    type Gateway = Gateway;

    fn member(&self) -> Option<&LogMember> {
        match self {
            Self::Log(embedded) => Some(embedded.node()),
            Self::Txn(_) | Self::Znodes(_) => None,
        }
    }
}

impl Replicates for ComposedNode {
    fn replica(&self) -> Option<Progress> {
        match self {
            Self::Txn(embedded) => embedded.node().replica(),
            Self::Log(embedded) => embedded.node().replica(),
            Self::Znodes(embedded) => embedded.node().member().and_then(MasonMember::replica),
        }
    }
}

impl ComposedScenario {
    pub(super) fn carry_out_strike(
        &mut self,
        which: usize,
        rng: &mut Rng,
        control: &mut Control<'_, ComposedNode>,
    ) -> bool {
        let second = Duration::from_secs(1);
        let down = rng.duration(second / 20, 2 * second);
        let leader = rng.pick(&shards::leaders(&control.cluster)).copied();
        match (which, leader) {
            (0, Some(host)) => control.crash(host, Loss::All, down, rng),
            (1, Some(host)) => control.pause(host, down),
            (2, _) => return shards::kill_a_busy_gateway(rng, control),
            (3, _) => {
                let Some(host) = sequencer(&control.cluster) else { return false };
                control.crash(host, Loss::All, down, rng);
            }
            (4, _) => return self.deaf.lay(rng, control),
            (5, _) => return self.ambushes.lay(Kind::Recovering, None, rng, control),
            (6, _) => return self.ambushes.lay(Kind::Forgotten, None, rng, control),
            (7, _) => return self.ambushes.lay(Kind::Unanswered, None, rng, control),
            _ => return false,
        }
        true
    }
}
