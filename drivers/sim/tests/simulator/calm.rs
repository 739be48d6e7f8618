//! Where nothing fails, nobody waits.

use kernel::{Cx, Family, HostId, HostSlot, NodeId, Position, RequestId, Rng, Role};
use sim::{Cluster, Control, Core, HostSpec, Incarnation, OperationId, Options, Scenario, Tuning, run_seed};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

kernel::messages! {
    pub enum SlowIn in Message::Slow {
        1 => Unused {},
    }
}

kernel::timers! {
    pub enum Tick { Answer }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Answering {
        1 => Slow(SlowIn, Slow, "slow"),
    }
}

pub struct Answering;

impl Family for Answering {
    type Message = Message;
    type Request = u64;
    type Response = u64;
}

const HOST: HostId = HostId(1);
const NODE: NodeId = NodeId::new(HOST, HostSlot(0));

/// Answers after a while.
pub struct Slow(Duration, Option<RequestId>);

impl Role for Slow {
    type Family = Answering;
    type In = SlowIn;
    type Timer = Tick;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_request(&mut self, id: RequestId, _request: u64, cx: &mut Cx<'_, Self>) {
        self.1 = Some(id);
        cx.set_timer(Tick::Answer, self.0);
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        if let Some(id) = self.1.take() {
            cx.respond(id, 0);
        }
    }

    fn on_message(&mut self, _from: NodeId, _message: SlowIn, _cx: &mut Cx<'_, Self>) {}
}

struct SlowScenario(Duration);

impl Scenario for SlowScenario {
    type Node = Member;

    const FAMILY: &'static str = "slow";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(HOST)]
    }

    fn clients(&self) -> Vec<NodeId> {
        vec![NODE]
    }

    fn tuning(&self) -> Tuning {
        let calm = Some(Duration::from_millis(100));
        let seconds = Duration::from_secs;
        Tuning { safety: (seconds(10), seconds(10)), operations: (200, 200), calm, ..Tuning::default() }
    }

    fn build(&mut self, _incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        vec![(HostSlot(0), Member::Slow(Slow(self.0, None)))]
    }

    fn operate(&mut self, _: OperationId, node: NodeId, _: &mut Rng, control: &mut Control<'_, Member>) {
        control.request(node, 0);
    }

    fn on_response(&mut self, _: NodeId, _: RequestId, _: u64, _: &mut Control<'_, Member>) {}

    fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Hosts(vec![HOST])
    }
}

// A bound that nobody looks at, or a fault in a run that is to have none, would make every slow answer look like one of chance.
#[test]
fn a_slow_answer_is_noticed_and_nothing_fails() {
    let broken = |after| -> BTreeSet<String> {
        let run = |seed| {
            let outcome = run_seed(
                &|_: &mut Rng| SlowScenario(Duration::from_millis(after)),
                seed,
                &Options::default(),
            );
            assert!(outcome.plan.faults.is_empty(), "seed {seed}: {:?}", outcome.plan.faults);
            outcome.violation
        };
        (0..10).filter_map(run).map(|violation| violation.invariant).collect()
    };
    assert_eq!(broken(90), BTreeSet::new());
    assert_eq!(broken(110), BTreeSet::from(["CALM".to_owned()]));
}
