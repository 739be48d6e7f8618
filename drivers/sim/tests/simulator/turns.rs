//! In which order a host that goes on after a pause turns to what has come meanwhile.

use kernel::{Cx, Family, HostId, HostSlot, NodeId, Position, RequestId, Rng, Role};
use sim::{Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Options, Scenario, run_seed};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

kernel::timers! {
    pub enum Tick { Late }
}

kernel::family! {
    /// No messages.
    messages Message;
    /// All roles.
    members Member [] [] of Counting {
        1 => Counter(Infallible, Counter, "counter"),
    }
}

pub struct Counting;

impl Family for Counting {
    type Message = Message;
    type Request = ();
    type Response = bool;
}

const HOST: HostId = HostId(1);
const COUNTER: NodeId = NodeId::new(HOST, HostSlot(0));

/// Answers whether its timer has run out.
#[derive(Default)]
pub struct Counter(bool);

impl Role for Counter {
    type Family = Counting;
    type In = Infallible;
    type Timer = Tick;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Late, Duration::from_millis(20));
    }

    fn on_timer(&mut self, _timer: Tick, _cx: &mut Cx<'_, Self>) {
        self.0 = true;
    }

    fn on_request(&mut self, id: RequestId, _request: (), cx: &mut Cx<'_, Self>) {
        cx.respond(id, self.0);
    }

    fn on_message(&mut self, _from: NodeId, message: Infallible, _cx: &mut Cx<'_, Self>) {
        match message {}
    }
}

/// Pauses the host, and asks it when its timer has long run out.
struct PauseScenario(Rc<Cell<Option<bool>>>);

impl Scenario for PauseScenario {
    type Node = Member;

    const FAMILY: &'static str = "pause";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(HOST)]
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn classes(&self) -> Classes {
        Classes::NONE
    }

    fn build(&mut self, _incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        vec![(HostSlot(0), Member::Counter(Counter::default()))]
    }

    fn on_begin(&mut self, control: &mut Control<'_, Member>) {
        control.pause(HOST, Duration::from_millis(100));
        control.alarm(Duration::from_millis(50), 1);
    }

    fn on_alarm(&mut self, _token: u64, control: &mut Control<'_, Member>) {
        control.request(COUNTER, ());
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: RequestId, late: bool, _: &mut Control<'_, Member>) {
        self.0.set(Some(late));
    }

    fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Hosts(vec![HOST])
    }
}

// The runtime reads its sockets before it looks at the time: where timers always come first, nothing is ever done by a role that has slept
// through a deadline and does not know it.
#[test]
fn a_host_that_goes_on_calls_its_timers_first_in_some_seeds_and_last_in_others() {
    let answers = |seed| {
        let answer = Rc::new(Cell::new(None));
        let outcome = run_seed(&|_: &mut Rng| PauseScenario(answer.clone()), seed, &Options::default());
        assert!(outcome.violation.is_none(), "{:?}", outcome.violation);
        (outcome.swarm.timers_last, answer.get().expect("it goes on"))
    };
    let all: Vec<(bool, bool)> = (0..20).map(answers).collect();
    assert!(all.iter().all(|(timers_last, timer_ran)| *timers_last != *timer_ran), "{all:?}");
    assert!(all.iter().any(|it| it.0) && all.iter().any(|it| it.1), "{all:?}");
}
