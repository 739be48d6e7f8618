//! How a run is to be made, and what came of it.

use crate::class::{Classes, Injections};
use crate::plan::{BegunOperation, Plan};
use crate::spec::StrikeKind;
use crate::swarm::Swarm;
use crate::trace::TraceLine;
use kernel::{HostId, PlantedBug};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a run is to be made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Repeat this plan instead of drawing faults.
    pub plan: Option<Plan>,
    /// Keep the trace as text (slower).
    pub trace: bool,
    /// Of the trace only lines that contain one of these texts; all if there is none.
    pub trace_only: Vec<String>,
    /// Only these classes may be drawn.
    pub classes: Classes,
    /// Run with this planted bug; needs the feature `planted`.
    pub planted: Option<&'static PlantedBug>,
    /// More events than this are a violation: something never comes to rest.
    pub events_max: u64,
    /// Stop after this many nanoseconds of the run, whatever comes then.
    pub until: Option<u64>,
    /// A healed core must converge within this time, and not within that of the scenario.
    pub liveness: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plan: None,
            trace: false,
            trace_only: Vec::new(),
            classes: Classes::ALL,
            planted: None,
            events_max: 20_000_000,
            until: None,
            liveness: None,
        }
    }
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The word before the first colon of the panic's text, or PANIC.
    pub invariant: String,
    /// What was found, and where in the code.
    pub what: String,
    /// How many events had been handled.
    pub step: u64,
    /// When, in nanoseconds of the run.
    pub at: u64,
    /// On whose account; `None` for what concerns the whole cluster.
    pub host: Option<HostId>,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scenario's family.
    pub family: &'static str,
    /// The seed.
    pub seed: u64,
    /// A hash of everything that happened.
    pub hash: u64,
    /// How many events were handled.
    pub events: u64,
    /// How long the run was, in simulated nanoseconds.
    pub simulated: u64,
    /// The operations that clients began.
    pub operations: Vec<BegunOperation>,
    /// How often each class of faults struck.
    pub injections: Injections,
    /// How often each mark was reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// What nodes turned away, by reason.
    pub rejects: BTreeMap<&'static str, u64>,
    /// The first broken invariant, if one broke.
    pub violation: Option<Violation>,
    /// Why no core could be asked to converge, if none could.
    pub excused: Option<String>,
    /// The check of the history gave up.
    pub undecided: bool,
    /// Every fault of the run.
    pub plan: Plan,
    /// What the seed drew.
    pub swarm: Swarm,
    /// The classes that apply to the scenario.
    pub applicable: Classes,
    /// The scenario's structural events, by the numbers that the plan uses.
    pub strikes: &'static [StrikeKind],
    /// The scenario's history, if a violation asks for it.
    pub history: Option<String>,
    /// The last lines before the violation of the host that broke it, or all if none broke; if the trace was retained.
    pub last: Vec<TraceLine>,
    /// The roles of the nodes that lived, by the nodes' names.
    pub names: BTreeMap<String, &'static str>,
    /// All lines that the trace retained.
    pub trace: Vec<TraceLine>,
}
