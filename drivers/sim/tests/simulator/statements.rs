//! What nodes say of themselves is held against what is so.

use kernel::{
    AwaitedTimers, Cx, Family, HostId, HostSlot, NodeId, Position, Recount, RequestId, Rng, Role, Statement,
};
use sim::{
    Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Options, Scenario, Tuning, run_seed,
};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

kernel::messages! {
    pub enum SpeakerIn in Message::Speaker {
        1 => Alive {},
    }
}

kernel::timers! {
    pub enum Tick { Count, Never }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Speaking {
        1 => Speaker(SpeakerIn, Speaker, "speaker"),
    }
}

pub struct Speaking;

impl Family for Speaking {
    type Message = Message;
    type Request = Infallible;
    type Response = Infallible;
}

/// What a speaker says that is not so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Untruth {
    None,
    /// It waits for a timer that it has not set.
    Timer,
    /// A number that it keeps is one too high.
    Number,
    /// It holds more than it may.
    Bound,
    /// It shows no beacon.
    Beacon,
    /// Something is left to do for ever.
    Left,
    /// The same at a node that is not in use.
    LeftUnused,
}

const HOST: HostId = HostId(1);
const OTHER: NodeId = NodeId::new(HostId(2), HostSlot(0));

/// Ticks every millisecond, and shows one beacon.
pub struct Speaker(Untruth);

impl Role for Speaker {
    type Family = Speaking;
    type In = SpeakerIn;
    type Timer = Tick;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Count, Duration::from_millis(1));
        cx.set_beacon([OTHER], Alive {});
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Count, Duration::from_millis(1));
    }

    fn on_message(&mut self, _from: NodeId, _message: SpeakerIn, _cx: &mut Cx<'_, Self>) {}

    fn awaited_timers(&self, me: NodeId) -> AwaitedTimers {
        let untrue = self.0 == Untruth::Timer && me.host() == HOST;
        AwaitedTimers::NONE.and(Tick::Count, true).and(Tick::Never, untrue)
    }

    fn statement(&self) -> Statement {
        let known = 7 + usize::from(self.0 == Untruth::Number);
        let left = usize::from(matches!(self.0, Untruth::Left | Untruth::LeftUnused));
        let shown = if self.0 == Untruth::Beacon { BTreeSet::new() } else { BTreeSet::from([OTHER]) };
        Statement {
            recounts: vec![Recount::of("items", known, 7)],
            unfinished: vec![("items", left)],
            bounds: vec![("items", 7, if self.0 == Untruth::Bound { 6 } else { 7 })],
            beacons: Some(shown),
        }
    }
}

struct SpeakScenario(Untruth);

impl Scenario for SpeakScenario {
    type Node = Member;

    const FAMILY: &'static str = "speak";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(HOST)]
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn tuning(&self) -> Tuning {
        let seconds = Duration::from_secs;
        Tuning { safety: (seconds(10), seconds(10)), liveness: seconds(1), ..Tuning::default() }
    }

    fn build(&mut self, _incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        vec![(HostSlot(0), Member::Speaker(Speaker(self.0)))]
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: RequestId, response: Infallible, _: &mut Control<'_, Member>) {
        match response {}
    }

    fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Hosts(vec![HOST])
    }

    fn is_in_use(&self, _: NodeId, _: &Cluster<'_, Member>) -> bool {
        self.0 != Untruth::LeftUnused
    }
}

// A look that is never made, or that compares a word with itself, finds nothing in whatever role.
#[test]
fn each_untruth_is_noticed_and_no_truth_is() {
    let broken = |untruth| -> BTreeSet<String> {
        let options = Options { classes: Classes::NONE, ..Options::default() };
        let run = |seed| run_seed(&|_: &mut Rng| SpeakScenario(untruth), seed, &options);
        (0..20).filter_map(|seed| run(seed).violation).map(|violation| violation.invariant).collect()
    };
    let named = |name: &str| BTreeSet::from([name.to_owned()]);
    assert_eq!(broken(Untruth::None), BTreeSet::new());
    assert_eq!(broken(Untruth::LeftUnused), BTreeSet::new());
    assert_eq!(broken(Untruth::Timer), named("WAKE"));
    assert_eq!(broken(Untruth::Number), named("BOUND"));
    assert_eq!(broken(Untruth::Bound), named("BOUND"));
    assert_eq!(broken(Untruth::Beacon), named("BEACON"));
    assert_eq!(broken(Untruth::Left), named("CONV"));
}
