//! Exhaustive exploration of the smallest clusters: every order of deliveries, syncs, timers, crashes and restarts,
//! within bounds, over the same nodes that the fault simulator runs.
//!
//! Time stands still between timers: any pending one may run out at any moment, as often as the bounds allow, and a scope
//! may say how far clocks have moved by then. A burst has one input, and its records become durable by a step of their own.
//! What an input does at a host depends on that host alone, so it is computed once for each of the host's states and
//! remembered. A crash keeps any prefix of what was not durable. What a link never delivers within the exploration is as
//! good as lost, so the bound on losses may be small.

mod burst;
mod fingerprint;
mod host;
mod search;
mod state;
mod world;

pub use search::explore;
pub use state::ExploredCluster;

use crate::spec::{RequestOf, ResponseOf};
use kernel::{Family, HostId, HostSlot, Instant, Node, NodeId, RequestId, TimerIndex, Wall};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::hash::Hasher;
use std::time::Duration;

type FamilyOf<S> = <<S as Scope>::Node as Node>::Family;

/// A small closed world.
pub trait Scope {
    /// What its hosts run.
    type Node: Node + Clone + Debug;
    /// What is remembered of requests and responses; part of the state.
    type Monitor: Clone + std::hash::Hash;

    /// The family's name in reports.
    const FAMILY: &'static str;

    /// The hosts, all up at first.
    fn hosts(&self) -> Vec<HostId>;

    /// The nodes of a host's new incarnation, before their records are restored.
    fn build(&self, host: HostId, incarnation: u32) -> Vec<(HostSlot, Self::Node)>;

    /// The clients and what each asks, one after the other.
    fn requests(&self) -> Vec<(NodeId, Vec<RequestOf<Self::Node>>)>;

    /// Whether `host` may crash; leaving out hosts that forget nothing saves many states.
    fn may_crash(&self, _host: HostId) -> bool {
        true
    }

    /// Whether the scope looks at a message between two hosts; one that it does not look at is lost.
    fn carries(&self, _from: NodeId, _to: NodeId, _message: &<FamilyOf<Self> as Family>::Message) -> bool {
        true
    }

    /// Whether a message that would change nothing at `to` now can never change anything there later, so that it may be
    /// lost at once: that saves most states. True of answers that come too late; not of questions to a node that may
    /// forget in a crash why it turned them away.
    fn loses_the_late(&self, _to: NodeId) -> bool {
        false
    }

    /// Whether the scope looks at a timer; one that it does not look at never runs out.
    fn awaits(&self, _node: NodeId, _timer: TimerIndex) -> bool {
        true
    }

    /// What nodes' clocks show when so many timers have run out.
    fn now(&self, _timers: u8) -> Instant {
        Instant(0)
    }

    /// What a host's wall clock shows when so many timers have run out.
    fn wall(&self, _host: HostId, _timers: u8) -> Wall {
        Wall::between(crate::WALL_EPOCH, crate::WALL_EPOCH)
    }

    /// Whether the exploration begins when everything that follows from the start has happened, in the order in which it came about.
    fn begins_at_rest(&self) -> bool {
        false
    }

    /// An empty memory.
    fn monitor(&self) -> Self::Monitor;

    /// A client asks.
    fn on_request(
        &self,
        monitor: &mut Self::Monitor,
        node: NodeId,
        id: RequestId,
        request: &RequestOf<Self::Node>,
    );

    /// A client is answered.
    fn on_response(
        &self,
        monitor: &mut Self::Monitor,
        node: NodeId,
        id: RequestId,
        response: ResponseOf<Self::Node>,
    );

    /// A client crashed before it was answered.
    fn on_lost(&self, _monitor: &mut Self::Monitor, _node: NodeId, _id: RequestId) {}

    /// Looks at the cluster after every burst, to remember what may be gone later.
    fn observe(&self, _monitor: &mut Self::Monitor, _cluster: &ExploredCluster<'_, Self::Node>) {}

    /// Checks invariants in every state; panics as [`kernel::invariant!`] does.
    fn check(&self, monitor: &Self::Monitor, cluster: &ExploredCluster<'_, Self::Node>);

    /// Checks what must hold when every request is asked, nothing is in flight, and every host is up and synced.
    fn check_quiet(
        &self,
        _monitor: &Self::Monitor,
        _cluster: &ExploredCluster<'_, Self::Node>,
        _spent: Spent,
    ) {
    }

    /// Feeds all of a node's state to `hasher`; two nodes that feed alike must behave alike. Every field is in a debug text that is derived.
    fn fingerprint(&self, node: &Self::Node, hasher: &mut impl Hasher) {
        let written = write!(Text(hasher), "{node:?}");
        debug_assert!(written.is_ok(), "a hasher takes everything");
    }

    /// The bounds.
    fn bounds(&self) -> ExploreBounds {
        ExploreBounds::default()
    }
}

/// A text that is hashed as it is written.
struct Text<'a, H>(&'a mut H);

impl<H: Hasher> std::fmt::Write for Text<'_, H> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// What a path has used of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Spent {
    /// How many timers ran out.
    pub timers: u8,
    /// How many messages were lost.
    pub losses: u8,
    /// How many messages were delivered twice.
    pub duplications: u8,
    /// How many times a host crashed.
    pub crashes: u8,
}

/// The bounds of an exploration. The first group bounds each path, the second the whole.
#[derive(Clone, Copy, Debug)]
pub struct ExploreBounds {
    /// How many timers may run out.
    pub timers: u8,
    /// How many messages may be lost.
    pub losses: u8,
    /// How many messages may be delivered twice.
    pub duplications: u8,
    /// How many times a host may crash.
    pub crashes: u8,
    /// How many steps a path may have.
    pub depth: usize,
    /// How many distinct states are visited at most.
    pub states: u64,
    /// How long the exploration may take.
    pub time: Duration,
}

impl Default for ExploreBounds {
    fn default() -> Self {
        Self {
            timers: 1,
            losses: 0,
            duplications: 0,
            crashes: 1,
            depth: 1_000,
            states: 2_000_000,
            time: Duration::from_secs(120),
        }
    }
}

/// The kinds of steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub enum StepKind {
    /// A client asks.
    Request,
    /// A message arrives.
    Deliver,
    /// A message arrives and will arrive again.
    Duplicate,
    /// A message is lost.
    Lose,
    /// A timer runs out.
    Timer,
    /// An fsync returns.
    Sync,
    /// A host crashes.
    Crash,
    /// A host comes back.
    Restart,
}

impl StepKind {
    const ALL: [StepKind; 8] = [
        Self::Request,
        Self::Deliver,
        Self::Duplicate,
        Self::Lose,
        Self::Timer,
        Self::Sync,
        Self::Crash,
        Self::Restart,
    ];
}

/// A broken invariant and the way to it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Counterexample {
    /// The word before the first colon of the panic's text, or PANIC.
    pub invariant: String,
    /// What was found, and where in the code.
    pub what: String,
    /// The steps, in order; none of them can be left out alone.
    pub path: Vec<String>,
}

/// What an exploration found.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Exploration {
    /// The scope's family.
    pub family: &'static str,
    /// How many distinct states were visited.
    pub states: u64,
    /// How many steps were taken between them.
    pub steps: u64,
    /// The longest path.
    pub depth: usize,
    /// Whether every state within the bounds of a path was visited.
    pub complete: bool,
    /// How many states were quiet.
    pub quiet: u64,
    /// How often each kind of step was taken.
    pub taken: BTreeMap<StepKind, u64>,
    /// How often each mark was reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// Kinds of steps that the bounds allow and that were never taken: the exploration fails.
    pub never_taken: Vec<StepKind>,
    /// The first violation.
    pub violation: Option<Counterexample>,
    /// Real seconds.
    pub wall_seconds: f64,
}

impl Exploration {
    /// True if nothing broke and every kind of step was taken.
    pub fn passed(&self) -> bool {
        self.violation.is_none() && self.never_taken.is_empty()
    }

    /// The report as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("the report holds numbers and strings only")
    }
}
