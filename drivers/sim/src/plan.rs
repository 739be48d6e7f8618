//! A plan: every fault of one run, written down, so that the run can be repeated without some of them.

use crate::class::Class;
use serde::{Deserialize, Serialize};

/// The number of a host in the order of [`crate::Scenario::hosts`].
pub type HostIndex = u8;

/// A set of hosts, one bit a [`HostIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostMask(pub u64);

impl HostMask {
    /// One host.
    pub fn of(host: HostIndex) -> Self {
        Self(1 << host)
    }

    /// Whether `host` is in it.
    pub fn has(self, host: HostIndex) -> bool {
        self.0 & 1 << host != 0
    }

    /// Its members.
    pub fn iter(self) -> impl Iterator<Item = HostIndex> {
        self.below(64)
    }

    /// Its members with numbers below `count`.
    pub fn below(self, count: usize) -> impl Iterator<Item = HostIndex> {
        (0..count.min(64) as HostIndex).filter(move |&host| self.has(host))
    }
}

/// What befalls one message. Durations are nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fate {
    /// It is lost.
    Lost,
    /// It arrives, and again `later`.
    Twice {
        /// How much later the second copy arrives.
        later: u64,
    },
    /// It is overtaken by what follows it within `by`.
    Overtaken {
        /// How much later it arrives.
        by: u64,
    },
    /// It arrives very late.
    Late {
        /// How much later it arrives.
        by: u64,
    },
}

/// When, during the incarnation of a host, a crash strikes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Aim {
    /// At once.
    Now,
    /// At the end of the next burst that wrote to the journal, before its fsync.
    Unsynced,
    /// When the next fsync has returned, before anything that waited for it is sent.
    Synced,
}

/// What becomes of unsynced writes in a crash.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Loss {
    /// All survive: the process died, the machine did not.
    None,
    /// All are lost.
    All,
    /// They survive up to some byte.
    Torn,
    /// Each survives or not, whatever became of those before it.
    Reordered,
}

/// Who does not hear whom.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum NetworkPartition {
    /// `side` and the others do not hear each other.
    Both {
        /// One side.
        side: HostMask,
    },
    /// The others do not hear `side`.
    OneWay {
        /// The side that is not heard.
        side: HostMask,
    },
    /// `side` and the others do not hear each other, but `bridge` and everybody do.
    Bridge {
        /// One side.
        side: HostMask,
        /// The host between.
        bridge: HostIndex,
    },
    /// In the order of their numbers, rotated, each server hears its two neighbours only.
    Ring {
        /// The hosts on the ring.
        hosts: HostMask,
    },
}

impl NetworkPartition {
    /// Whether `to` does not hear `from`.
    pub fn severs(self, from: HostIndex, to: HostIndex) -> bool {
        match self {
            Self::Both { side } => side.has(from) != side.has(to),
            Self::OneWay { side } => side.has(from) && !side.has(to),
            Self::Bridge { side, bridge } => from != bridge && to != bridge && side.has(from) != side.has(to),
            Self::Ring { hosts } => {
                let index = |of| hosts.iter().position(|host| host == of);
                let (Some(from), Some(to)) = (index(from), index(to)) else { return false };
                let count = hosts.iter().count();
                let apart = from.abs_diff(to);
                apart.min(count - apart) > 1
            }
        }
    }
}

/// A fault that strikes at a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Blow {
    /// Hosts crash and come back when the fault is over.
    Crash {
        /// Which.
        hosts: HostMask,
        /// At which moment of their incarnations; they all crash when the first of them reaches it.
        aim: Aim,
        /// What becomes of unsynced writes.
        loss: Loss,
        /// Whether what they had sent and is still in flight is lost too.
        output_lost: bool,
        /// Decides the details of the loss.
        draw: u64,
    },
    /// Some hosts do not hear some others.
    Partition {
        /// Who does not hear whom.
        links: NetworkPartition,
    },
    /// A link stops, and floods when the fault is over.
    Clog {
        /// The sender.
        from: HostIndex,
        /// The receiver.
        to: HostIndex,
    },
    /// A process stops.
    Pause {
        /// Whose.
        host: HostIndex,
    },
    /// A host computes `factor` times slower.
    SlowNode {
        /// Which.
        host: HostIndex,
        /// How many times slower.
        factor: u32,
    },
    /// A disk syncs `factor` times slower.
    SlowDisk {
        /// Whose.
        host: HostIndex,
        /// How many times slower.
        factor: u32,
    },
    /// A disk takes nothing: what is appended becomes durable when there is space again.
    DiskFull {
        /// Whose.
        host: HostIndex,
    },
    /// The next write or fsync fails: the process stops, unsynced writes are lost, and it comes back when the fault is
    /// over.
    WriteError {
        /// Whose.
        host: HostIndex,
        /// Decides what the disk retained.
        draw: u64,
    },
    /// The process stops, a durable bit flips, and it comes back when the fault is over.
    BitRot {
        /// Whose.
        host: HostIndex,
        /// Which bit.
        draw: u64,
    },
    /// A write that was synced is not where it should be; the process stops after it, and comes back when the fault is
    /// over.
    MisdirectedWrite {
        /// Whose.
        host: HostIndex,
        /// Where it went: lost, or over older records.
        draw: u64,
    },
    /// The host loses its disk, and comes back when the fault is over if the scenario has it replaced.
    DiskLost {
        /// Which.
        host: HostIndex,
    },
    /// The wall clock is off by this fraction of its declared error, in millionths.
    ClockSkew {
        /// Whose.
        host: HostIndex,
        /// -1,000,000 to 1,000,000.
        millionths: i32,
    },
    /// The wall clock jumps to this fraction of its declared error, in millionths.
    ClockJump {
        /// Whose.
        host: HostIndex,
        /// -1,000,000 to 1,000,000.
        millionths: i32,
    },
    /// The clocks gain this many nanoseconds a second.
    ClockDrift {
        /// Whose.
        host: HostIndex,
        /// Negative for a slow clock.
        per_billion: i64,
    },
    /// The wall clock is off by this many nanoseconds more, undeclared, until the fault is over.
    ClockLie {
        /// Whose.
        host: HostIndex,
        /// Negative for a clock behind.
        nanoseconds: i64,
    },
    /// Nobody keeps the wall clock until the fault is over.
    ClockLoss {
        /// Whose.
        host: HostIndex,
    },
    /// The wall clock is set by so much; that is right again when the fault is over.
    ClockStep {
        /// Whose.
        host: HostIndex,
        /// Negative: back.
        nanoseconds: i64,
    },
    /// A structural event of the scenario.
    Strike {
        /// Its number in [`crate::Scenario::STRIKES`].
        which: u8,
        /// Decides the details.
        draw: u64,
    },
}

/// How a host outside the healed core stays broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Frozen {
    /// It is down.
    Down,
    /// Nobody in the core hears it, and it hears nobody in the core.
    Isolated,
    /// It hears nobody in the core, and is heard.
    Deaf,
    /// It hears the core, and is not heard.
    Mute,
    /// Its process is stopped, and its links take what they are given.
    Paused,
}

impl Frozen {
    /// All ways.
    pub const ALL: [Frozen; 5] = [Self::Down, Self::Isolated, Self::Deaf, Self::Mute, Self::Paused];
}

/// One entry of a plan. Times are nanoseconds of the run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// The `nth` message of a link meets its fate; with `at`, the first message from that one and that time on.
    Message {
        /// The sender's host.
        from: HostIndex,
        /// The receiver's host.
        to: HostIndex,
        /// How many messages the link had carried before.
        nth: u64,
        /// When it was sent. With other operations or faults other messages are sent, and numbers mean little.
        #[serde(default)]
        at: Option<u64>,
        /// What befalls it.
        fate: Fate,
    },
    /// A fault at a time.
    Timed {
        /// When.
        at: u64,
        /// How long it lasts, if it does.
        lasts: u64,
        /// What it is.
        blow: Blow,
    },
    /// A host outside the core stays broken; without this entry it is healed with the core.
    Freeze {
        /// Which.
        host: HostIndex,
        /// How.
        way: Frozen,
    },
}

impl Fault {
    /// Its class; `None` for what the liveness phase does.
    pub fn class(&self, strikes: &[crate::StrikeKind]) -> Option<Class> {
        match self {
            Self::Message { fate, .. } => Some(match fate {
                Fate::Lost => Class::Loss,
                Fate::Twice { .. } => Class::Duplication,
                Fate::Overtaken { .. } => Class::Reorder,
                Fate::Late { .. } => Class::Delay,
            }),
            Self::Timed { blow, .. } => Some(blow.class(strikes)),
            Self::Freeze { .. } => None,
        }
    }
}

impl Blow {
    /// Its class.
    pub fn class(&self, strikes: &[crate::StrikeKind]) -> Class {
        match self {
            Self::Crash { loss, .. } => match loss {
                Loss::None => Class::Crash,
                Loss::All => Class::LostWrites,
                Loss::Torn => Class::TornWrite,
                Loss::Reordered => Class::ReorderedWrites,
            },
            Self::Partition { links } => match links {
                NetworkPartition::Both { .. } => Class::Partition,
                NetworkPartition::OneWay { .. } => Class::OneWayPartition,
                NetworkPartition::Bridge { .. } | NetworkPartition::Ring { .. } => Class::BridgePartition,
            },
            Self::Clog { .. } => Class::Clog,
            Self::Pause { .. } => Class::Pause,
            Self::SlowNode { .. } => Class::SlowNode,
            Self::SlowDisk { .. } => Class::SlowDisk,
            Self::DiskFull { .. } => Class::DiskFull,
            Self::WriteError { .. } => Class::WriteError,
            Self::BitRot { .. } => Class::BitRot,
            Self::MisdirectedWrite { .. } => Class::MisdirectedWrite,
            Self::DiskLost { .. } => Class::DiskLost,
            Self::ClockSkew { .. } => Class::ClockSkew,
            Self::ClockJump { .. } => Class::ClockJump,
            Self::ClockDrift { .. } => Class::ClockDrift,
            Self::ClockLie { .. } => Class::ClockLie,
            Self::ClockLoss { .. } => Class::ClockLoss,
            Self::ClockStep { .. } => Class::ClockStep,
            Self::Strike { which, .. } => {
                strikes.get(usize::from(*which)).map_or(Class::Strike, |strike| strike.class)
            }
        }
    }
}

/// One operation of one client: the client's number and how many it had begun before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OperationId {
    /// The client's number in [`crate::Scenario::clients`].
    pub client: u16,
    /// How many operations it had begun before.
    pub nth: u32,
}

/// An operation and when it begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct BegunOperation {
    /// Which.
    #[serde(flatten)]
    pub operation: OperationId,
    /// When, or as soon as its client can; so that one operation less leaves the times of the others as they are.
    #[serde(default)]
    pub at: u64,
}

/// Everything that decides a run, beside the code.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The scenario's family.
    pub family: String,
    /// Decides everything but the faults.
    pub seed: u64,
    /// Draws other latencies of links; 0 for those of the seed.
    pub salt: u64,
    /// When the core is healed, in nanoseconds; none: when the seed says.
    pub heal_at: Option<u64>,
    /// All faults.
    pub faults: Vec<Fault>,
    /// Operations that the clients leave out.
    pub omitted: Vec<OperationId>,
    /// The only operations that they begin; none where they begin all.
    pub retained: Option<Vec<BegunOperation>>,
}

/// Why a text is not a plan.
#[derive(Debug)]
pub struct PlanError {
    line: usize,
    what: String,
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "plan, line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for PlanError {}

#[derive(Serialize, Deserialize)]
enum Line {
    Plan {
        family: String,
        seed: u64,
        #[serde(default)]
        salt: u64,
        #[serde(default)]
        heal_at: Option<u64>,
    },
    Fault(Fault),
    Omit(OperationId),
    /// Only what is left is begun.
    KeepOnly,
    Keep(BegunOperation),
}

impl Plan {
    /// The plan as text: one JSON value a line, the family and seed first.
    pub fn to_text(&self) -> String {
        let head = Line::Plan {
            family: self.family.clone(),
            seed: self.seed,
            salt: self.salt,
            heal_at: self.heal_at,
        };
        let faults = self.faults.iter().copied().map(Line::Fault);
        let omitted = self.omitted.iter().copied().map(Line::Omit);
        let mut text = String::new();
        let only = self.retained.is_some().then_some(Line::KeepOnly);
        let retained = self.retained.iter().flatten().copied().map(Line::Keep);
        for line in std::iter::once(head).chain(faults).chain(omitted).chain(only).chain(retained) {
            text += &serde_json::to_string(&line).expect("plans hold numbers and plain strings only");
            text.push('\n');
        }
        text
    }

    /// Reads a plan back.
    pub fn from_text(text: &str) -> Result<Self, PlanError> {
        let mut plan: Option<Plan> = None;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let error = |what: &str| PlanError { line: number + 1, what: what.to_owned() };
            let line = serde_json::from_str(line).map_err(|e| error(&e.to_string()))?;
            match (line, &mut plan) {
                (Line::Plan { family, seed, salt, heal_at }, None) => {
                    let (faults, omitted) = (Vec::new(), Vec::new());
                    plan = Some(Plan { family, seed, salt, heal_at, faults, omitted, retained: None });
                }
                (Line::Plan { .. }, Some(_)) => return Err(error("a second head")),
                (Line::Fault(fault), Some(plan)) => plan.faults.push(fault),
                (Line::Omit(operation), Some(plan)) => plan.omitted.push(operation),
                (Line::KeepOnly, Some(plan)) => plan.retained = Some(Vec::new()),
                (Line::Keep(operation), Some(plan)) => plan.retained.get_or_insert_default().push(operation),
                (Line::Fault(_) | Line::Omit(_) | Line::KeepOnly | Line::Keep(_), None) => {
                    return Err(error("the head is missing"));
                }
            }
        }
        plan.ok_or(PlanError { line: 1, what: "the head is missing".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A plan that reads back otherwise would replay another run.
    #[test]
    fn plans_survive_their_text() {
        let blow = Blow::Crash {
            hosts: HostMask(5),
            aim: Aim::Unsynced,
            loss: Loss::Torn,
            output_lost: true,
            draw: u64::MAX,
        };
        let plan = Plan {
            family: "register".to_owned(),
            seed: u64::MAX - 1,
            salt: 3,
            heal_at: Some(4),
            faults: vec![
                Fault::Message { from: 1, to: 2, nth: 77, at: Some(5), fate: Fate::Twice { later: 9 } },
                Fault::Timed { at: 3, lasts: 4, blow },
                Fault::Freeze { host: 2, way: Frozen::Deaf },
            ],
            omitted: vec![OperationId { client: 1, nth: 2 }],
            retained: Some(vec![BegunOperation { operation: OperationId { client: 0, nth: 7 }, at: 11 }]),
        };
        assert_eq!(Plan::from_text(&plan.to_text()).expect("it was just written"), plan);
        let beheaded = plan.to_text().lines().skip(1).collect::<Vec<_>>().join("\n");
        assert!(Plan::from_text(&beheaded).is_err());
    }

    // A partition that severs the wrong way, or a bridge that is severed itself, would test something else than it counts.
    #[test]
    fn partitions_sever_what_they_say() {
        let side = HostMask(0b00011);
        assert!(NetworkPartition::Both { side }.severs(0, 4) && NetworkPartition::Both { side }.severs(4, 0));
        assert!(
            NetworkPartition::OneWay { side }.severs(0, 4) && !NetworkPartition::OneWay { side }.severs(4, 0)
        );
        let bridge = NetworkPartition::Bridge { side, bridge: 2 };
        assert!(bridge.severs(0, 3) && !bridge.severs(0, 2) && !bridge.severs(2, 3));
        let ring = NetworkPartition::Ring { hosts: HostMask(0b11111) };
        assert!(ring.severs(0, 2) && !ring.severs(0, 1) && !ring.severs(4, 0) && !ring.severs(0, 9));
    }
}
