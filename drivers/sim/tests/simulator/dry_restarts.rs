//! Dry restarts: what a role does not write down is noticed without a crash, and looking changes nothing.

use kernel::{Cx, Family, HostId, HostSlot, NodeId, Position, RequestId, Rng, Role, invariant};
use sim::{
    Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Options, Outcome, Scenario, Tuning,
    run_seed,
};
use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

kernel::messages! {
    pub enum CounterIn in Message::Counter {
        1 => Nothing {},
    }
}

kernel::timers! {
    pub enum Tick { Count }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Counting {
        1 => Counter(CounterIn, Counter, "counter"),
    }
}

pub struct Counting;

impl Family for Counting {
    type Message = Message;
    type Request = Infallible;
    type Response = Infallible;
}

/// Counts every millisecond.
pub struct Counter {
    count: u64,
    /// It does not write down so many counts of a hundred.
    forgets: u64,
}

impl Role for Counter {
    type Family = Counting;
    type In = CounterIn;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, _position: Position, count: u64) {
        self.count = count;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Count, Duration::from_millis(1));
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        self.count += 1;
        if self.count % 100 >= self.forgets {
            let position = cx.append(&self.count);
            cx.trim(position);
        }
        cx.set_timer(Tick::Count, Duration::from_millis(1));
    }

    fn on_message(&mut self, _from: NodeId, _message: CounterIn, _cx: &mut Cx<'_, Self>) {}
}

struct CountScenario<'a> {
    forgets: u64,
    looks: Option<&'a Cell<u64>>,
}

impl Scenario for CountScenario<'_> {
    type Node = Member;

    const FAMILY: &'static str = "count";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(HostId(1))]
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn tuning(&self) -> Tuning {
        let ten = Duration::from_secs(10);
        Tuning { safety: (ten, ten), ..Tuning::default() }
    }

    fn build(&mut self, _incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        vec![(HostSlot(0), Member::Counter(Counter { count: 0, forgets: self.forgets }))]
    }

    fn blank_nodes(&self, _host: HostId) -> Vec<(HostSlot, Member)> {
        let counter = || (HostSlot(0), Member::Counter(Counter { count: 0, forgets: self.forgets }));
        self.looks.map(|_| counter()).into_iter().collect()
    }

    fn on_dry_restart(&mut self, _node: NodeId, running: &Member, restarted: &Member) {
        let (Member::Counter(running), Member::Counter(restarted)) = (running, restarted);
        invariant!(DUR, running.count == restarted.count, "{} and {}", running.count, restarted.count);
        self.looks.iter().for_each(|looks| looks.set(looks.get() + 1));
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: RequestId, response: Infallible, _: &mut Control<'_, Member>) {
        match response {}
    }

    fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Excused("it only counts".to_owned())
    }
}

fn run(seed: u64, forgets: u64, classes: Classes, looks: Option<&Cell<u64>>) -> Outcome {
    let options = Options { classes, ..Options::default() };
    run_seed(&|_: &mut Rng| CountScenario { forgets, looks }, seed, &options)
}

// Dry restarts that are never made, or that are part of the run, would make every audit of them worth nothing.
#[test]
fn they_are_made_at_times_and_change_nothing() {
    let looks = Cell::new(0);
    for seed in 0..10 {
        let classes = if seed < 5 { Classes::NONE } else { Classes::PHYSICAL };
        let (looked, alone) = (run(seed, 0, classes, Some(&looks)), run(seed, 0, classes, None));
        assert_eq!(looked.violation, None);
        assert_eq!((looked.hash, looked.events), (alone.hash, alone.events), "seed {seed}");
    }
    assert!(looks.get() >= 15, "{} in a hundred seconds", looks.get());
}

// What is not written down, for half of the time, is noticed without a crash.
#[test]
fn what_is_not_written_is_noticed() {
    let looks = Cell::new(0);
    let broken = |seed: &u64| run(*seed, 50, Classes::NONE, Some(&looks)).violation.is_some();
    let noticed = (0..20).filter(broken).count();
    assert!(noticed >= 10, "{noticed} of 20 seeds");
    let violation = (0..20).find_map(|seed| run(seed, 50, Classes::NONE, Some(&looks)).violation);
    assert_eq!(violation.map(|it| it.invariant).as_deref(), Some("DUR"));
}
