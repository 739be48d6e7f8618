//! Clocks that roles rest on: honest ones hold the true time wherever they are, and one that lies is fenced by the others.

use kernel::{Cx, Family, HostId, HostSlot, NodeId, Position, Rng, Role, Wall};
use sim::{
    Blow, Class, Classes, Cluster, Control, Core, Fault, HostMask, HostSpec, Incarnation, NetworkPartition,
    OperationId, Options, Outcome, Plan, Scenario, Tuning, WALL_EPOCH, run_seed,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

kernel::timers! {
    pub enum Tick { Look }
}

kernel::messages! {
    pub enum WatcherIn in Message::Watcher {
        1 => Nothing { number: u64 },
    }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Watching {
        1 => Watcher(WatcherIn, Watcher, "watcher"),
    }
}

pub struct Watching;

impl Family for Watching {
    type Message = Message;
    type Request = ();
    type Response = ();
}

/// Looks at the clock every 10 ms.
#[derive(Default)]
pub struct Watcher {
    wall: Option<Wall>,
}

impl Role for Watcher {
    type Family = Watching;
    type In = WatcherIn;
    type Timer = Tick;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Look, Duration::from_millis(10));
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        self.wall = Some(cx.wall());
        cx.set_timer(Tick::Look, Duration::from_millis(10));
    }

    fn on_message(&mut self, _from: NodeId, _message: WatcherIn, _cx: &mut Cx<'_, Self>) {}
}

const MS: u64 = 1_000_000;
const HOSTS: [HostId; 3] = [HostId(1), HostId(2), HostId(3)];

/// When, on which host, what its clock said.
type Seen = Vec<(u64, usize, Wall)>;

struct Watch {
    seen: Rc<RefCell<Seen>>,
}

impl Scenario for Watch {
    type Node = Member;

    const FAMILY: &'static str = "watch";

    fn hosts(&self) -> Vec<HostSpec> {
        HOSTS.map(HostSpec::server).to_vec()
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn classes(&self) -> Classes {
        [Class::ClockSkew, Class::ClockJump, Class::ClockLoss, Class::ClockStep, Class::Crash, Class::Pause]
            .into_iter()
            .collect()
    }

    fn tuning(&self) -> Tuning {
        let both = |ms| (Duration::from_millis(ms), Duration::from_millis(ms));
        Tuning {
            safety: both(4_000),
            clock_error: both(1),
            clock_error_max: Some(Duration::from_millis(20)),
            lasts: (Duration::from_millis(10), Duration::from_millis(500)),
            ..Tuning::default()
        }
    }

    fn build(&mut self, _: Incarnation) -> Vec<(HostSlot, Member)> {
        vec![(HostSlot(0), Member::Watcher(Watcher::default()))]
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: kernel::RequestId, (): (), _: &mut Control<'_, Member>) {}

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Member>) {
        let Some(Member::Watcher(watcher)) = cluster.node(NodeId::new(host, HostSlot(0))) else { return };
        let index = HOSTS.iter().position(|it| *it == host).expect("it is one of three");
        if let Some(wall) = watcher.wall {
            self.seen.borrow_mut().push((cluster.now(), index, wall));
        }
    }

    fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Excused("the probe is over".to_owned())
    }

    fn converged(&self, _: &[HostId], _: &Cluster<'_, Member>) -> Result<(), String> {
        Ok(())
    }
}

fn seen_in(seed: u64, faults: Option<Vec<Fault>>) -> (Seen, Outcome) {
    let seen = Rc::new(RefCell::new(Seen::new()));
    let factory = |_: &mut Rng| Watch { seen: seen.clone() };
    let plan = faults.map(|faults| Plan {
        family: "watch".to_owned(),
        seed,
        salt: 0,
        heal_at: None,
        faults,
        omitted: Vec::new(),
        retained: None,
    });
    let outcome = run_seed(&factory, seed, &Options { plan, ..Options::default() });
    assert_eq!(outcome.violation, None);
    (seen.take(), outcome)
}

/// One fault of host 1, from 1,000 ms to 2,500 ms.
fn seen_with(seed: u64, blow: Blow) -> Seen {
    seen_in(seed, Some(vec![Fault::Timed { at: 1_000 * MS, lasts: 1_500 * MS, blow }])).0
}

/// Whether a host's clock was usable: always, never, or both, within these milliseconds.
fn usable(seen: &Seen, host: usize, from: u64, to: u64) -> Option<bool> {
    let mut of = seen.iter().filter(|(at, it, _)| *it == host && (from * MS..to * MS).contains(at));
    let first = of.next().expect("it looks every 10 ms").2.usable;
    of.all(|(_, _, wall)| wall.usable == first).then_some(first)
}

fn holds_the_true_time(at: u64, wall: &Wall) -> bool {
    // Looked at when the burst began: a burst takes less than 1 ms.
    wall.earliest <= WALL_EPOCH + at && WALL_EPOCH + at - MS <= wall.latest
}

// An honest clock that misses the true time, or is fenced, accuses every protocol that trusts it.
#[test]
fn honest_clocks_hold_the_true_time_and_are_never_contradicted() {
    let (mut lost, mut stepped, mut edges) = (0, 0, 0);
    for seed in 0..200 {
        let (seen, outcome) = seen_in(seed, None);
        assert!(!seen.is_empty());
        let wrong = seen.iter().find(|(at, _, wall)| !holds_the_true_time(*at, wall));
        assert_eq!(wrong, None, "seed {seed}");
        let (loss, step) = (outcome.injections.of(Class::ClockLoss), outcome.injections.of(Class::ClockStep));
        (lost, stepped) = (lost + u64::from(loss > 0), stepped + u64::from(step > 0));
        edges += u64::from(outcome.swarm.clocks_at_edges);
        if loss == 0 && step == 0 {
            assert!(seen.iter().all(|(_, _, wall)| wall.usable), "seed {seed}: fenced, and honest");
        }
    }
    assert!(lost > 40 && stepped > 40 && edges > 40, "{lost} lost, {stepped} stepped, {edges} at edges");
}

// A liar that goes on for longer than a second, or that takes honest hosts with it.
#[test]
fn a_clock_that_lies_is_fenced_within_a_second_and_is_back_afterwards() {
    for (seed, lie) in [(1, 100 * MS as i64), (2, -100 * MS as i64), (3, 100_000 * MS as i64)] {
        let seen = seen_with(seed, Blow::ClockLie { host: 1, nanoseconds: lie });
        assert_eq!(usable(&seen, 1, 0, 1_000), Some(true));
        assert_eq!(usable(&seen, 1, 2_000, 2_500), Some(false), "{lie}");
        assert_eq!(usable(&seen, 1, 3_500, 4_000), Some(true), "{lie}");
        for honest in [0, 2] {
            assert_eq!(usable(&seen, honest, 0, 4_000), Some(true), "{lie}");
        }
    }
}

/// Host 1 lies from 500 ms for so long, and is reached by nobody from 2,000 to 3,900 ms.
fn seen_alone(lies_for: u64, lie: i64) -> Seen {
    let partition = Blow::Partition { links: NetworkPartition::Both { side: HostMask::of(1) } };
    let lie = Blow::ClockLie { host: 1, nanoseconds: lie };
    let faults = vec![
        Fault::Timed { at: 500 * MS, lasts: lies_for * MS, blow: lie },
        Fault::Timed { at: 2_000 * MS, lasts: 1_900 * MS, blow: partition },
    ];
    seen_in(1, Some(faults)).0
}

// A host that nobody reaches cannot be notified; one that is notified must not forget it because the others are away.
#[test]
fn who_was_fenced_stays_so_while_nobody_reaches_it() {
    let seen = seen_alone(3_400, 100 * MS as i64);
    assert_eq!(usable(&seen, 1, 1_500, 3_900), Some(false));
}

// Those who contradicted it may never come back: a host that waits for them although its clock is right again is lost.
#[test]
fn who_is_right_again_knows_it_while_nobody_reaches_it() {
    for lie in [-100 * MS as i64, 100 * MS as i64] {
        let seen = seen_alone(2_500, lie);
        assert_eq!(usable(&seen, 1, 1_500, 3_000), Some(false), "{lie}");
        assert_eq!(usable(&seen, 1, 3_050, 3_900), Some(true), "{lie}");
    }
}

// A lost source that goes unnoticed, a step that leaves out the true time, and either for ever.
#[test]
fn a_loss_and_a_step_are_declared_and_end() {
    let lost = seen_with(1, Blow::ClockLoss { host: 1 });
    assert_eq!(usable(&lost, 1, 0, 1_000), Some(true));
    assert_eq!(usable(&lost, 1, 1_001, 2_500), Some(false));
    assert_eq!(usable(&lost, 1, 2_501, 4_000), Some(true));
    for (step, stays_usable) in [(5 * MS as i64, true), (-5 * MS as i64, true), (50 * MS as i64, false)] {
        let seen = seen_with(1, Blow::ClockStep { host: 1, nanoseconds: step });
        assert!(seen.iter().all(|(at, _, wall)| holds_the_true_time(*at, wall)), "{step}");
        assert_eq!(usable(&seen, 1, 1_001, 2_500), Some(stays_usable), "{step}");
        assert_eq!(usable(&seen, 1, 2_501, 4_000), Some(true), "{step}");
        let width = |from: u64, to: u64| {
            let of = seen.iter().filter(|(at, host, _)| *host == 1 && (from * MS..to * MS).contains(at));
            of.map(|(_, _, wall)| wall.latest - wall.earliest).max().expect("it looks every 10 ms")
        };
        assert_eq!(width(1_001, 2_500) - width(0, 1_000), 2 * step.unsigned_abs());
        assert_eq!(width(2_501, 4_000), width(0, 1_000));
    }
}
