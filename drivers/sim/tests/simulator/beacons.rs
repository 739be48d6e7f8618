//! Beacons under faults: a lamp that is lit, and a watcher that looks at it every 10 ms.

use kernel::{Cx, Family, HostId, HostSlot, Instant, NodeId, Position, REPEAT_WITHIN, Rng, Role};
use sim::{
    Aim, Blow, Classes, Cluster, Control, Core, Fate, Fault, HostMask, HostSpec, Incarnation, Latency, Loss,
    NetworkPartition, OperationId, Options, Plan, Scenario, Tuning, run_seed,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

kernel::messages! {
    pub enum WatcherIn in Message::Watcher {
        1 => Shine { incarnation: u64, colour: u64 },
    }
}

kernel::timers! {
    pub enum LampTimer { Change, Stop, Again }
}

kernel::timers! {
    pub enum WatcherTimer { Look, Silence }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Lighting {
        1 => Watcher(WatcherIn, Watcher, "watcher"),
        2 => Lamp(Infallible, Lamp, "lamp"),
    }
}

pub struct Lighting;

impl Family for Lighting {
    type Message = Message;
    type Request = ();
    type Response = ();
}

const LAMP: NodeId = NodeId::new(HostId(1), HostSlot(0));
const WATCHER: NodeId = NodeId::new(HostId(2), HostSlot(0));
const MS: u64 = 1_000_000;
const LATENCY: u64 = 5 * MS;
/// After a look at the latest, a lit beacon was heard so long ago.
const AGE_MAX: u64 = 50 * MS + LATENCY + MS;
/// The watcher waits for a silence of so long, and no longer than the second.
const SILENCE: u64 = 120 * MS;
const SILENCE_AWAITED_FOR: Duration = Duration::from_secs(5);

/// Lit from its start on; after 1.6 s it has another colour, is out from 1.7 s on, and is lit again as it was from 1.8 s on.
pub struct Lamp {
    incarnation: u64,
    began: Instant,
}

impl Lamp {
    fn shine(&self, colour: u64, cx: &mut Cx<'_, Self>) {
        cx.set_beacon([WATCHER], Shine { incarnation: self.incarnation, colour });
    }
}

impl Role for Lamp {
    type Family = Lighting;
    type In = Infallible;
    type Timer = LampTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.began = cx.now();
        self.shine(1, cx);
        self.shine(1, cx);
        cx.set_timer(LampTimer::Change, Duration::from_millis(1_600));
        cx.set_timer(LampTimer::Stop, Duration::from_millis(1_700));
        cx.set_timer(LampTimer::Again, Duration::from_millis(1_800));
    }

    fn on_timer(&mut self, timer: LampTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            LampTimer::Change => self.shine(2, cx),
            LampTimer::Stop => cx.stop_beacon([WATCHER]),
            LampTimer::Again => self.shine(2, cx),
        }
    }

    fn on_message(&mut self, _from: NodeId, message: Infallible, _cx: &mut Cx<'_, Self>) {
        match message {}
    }
}

/// What it was sent, and how old the lamp's light was at each look, in nanoseconds.
#[derive(Default)]
pub struct Watcher {
    seen: Vec<Shine>,
    looks: Vec<Option<u64>>,
    /// Waits for a silence that ended.
    silences: usize,
}

impl Role for Watcher {
    type Family = Lighting;
    type In = WatcherIn;
    type Timer = WatcherTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(WatcherTimer::Look, Duration::from_millis(10));
    }

    fn on_timer(&mut self, timer: WatcherTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            WatcherTimer::Look => {}
            WatcherTimer::Silence => return self.silences += 1,
        }
        let age = cx.beacon_heard_at(LAMP).map(|at| cx.now().since(at).as_nanos() as u64);
        self.looks.push(age);
        cx.set_timer(WatcherTimer::Look, Duration::from_millis(10));
    }

    fn on_message(&mut self, _from: NodeId, message: WatcherIn, cx: &mut Cx<'_, Self>) {
        let WatcherIn::Shine(shine) = message;
        assert!(cx.beacon_heard_at(LAMP).is_some(), "it is lit when it is handed over");
        self.seen.push(shine);
        cx.await_silence(WatcherTimer::Silence, [LAMP], Duration::from_nanos(SILENCE), SILENCE_AWAITED_FOR);
    }
}

#[derive(Clone, Default)]
struct Log {
    seen: Vec<(u64, Shine)>,
    /// When, and how old.
    looks: Vec<(u64, Option<u64>)>,
    /// When waits for a silence ended.
    silences: Vec<u64>,
}

impl Log {
    /// How old the light was, at looks in these milliseconds.
    fn ages(&self, from: u64, to: u64) -> Vec<Option<u64>> {
        let within = |(at, _): &&(u64, Option<u64>)| (from * MS..to * MS).contains(at);
        self.looks.iter().filter(within).map(|(_, age)| *age).collect()
    }

    fn is_lit(&self, from: u64, to: u64) -> bool {
        let ages = self.ages(from, to);
        !ages.is_empty() && ages.iter().all(|age| age.is_some_and(|age| age <= AGE_MAX))
    }

    fn colours(&self) -> Vec<(u64, u64)> {
        self.seen.iter().map(|(_, shine)| (shine.incarnation, shine.colour)).collect()
    }
}

struct LampScenario(Rc<RefCell<Log>>);

impl Scenario for LampScenario {
    type Node = Member;

    const FAMILY: &'static str = "lamp";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(LAMP.host()), HostSpec::server(WATCHER.host())]
    }

    fn clients(&self) -> Vec<NodeId> {
        Vec::new()
    }

    fn classes(&self) -> Classes {
        Classes::ALL
    }

    fn tuning(&self) -> Tuning {
        let both = |nanoseconds| (Duration::from_nanos(nanoseconds), Duration::from_nanos(nanoseconds));
        Tuning {
            safety: both(2_000 * MS),
            latency: both(LATENCY),
            burst: both(MS / 100),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        let node = if incarnation.host == LAMP.host() {
            Member::Lamp(Lamp { incarnation: u64::from(incarnation.number), began: Instant(0) })
        } else {
            Member::Watcher(Watcher::default())
        };
        vec![(HostSlot(0), node)]
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: kernel::RequestId, (): (), _: &mut Control<'_, Member>) {}

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Member>) {
        if let Some(Member::Watcher(watcher)) = cluster.node(WATCHER).filter(|_| host == WATCHER.host()) {
            let mut log = self.0.borrow_mut();
            let (seen, looks) = (log.seen.len(), log.looks.len());
            log.seen.extend(watcher.seen[seen..].iter().map(|shine| (cluster.now(), shine.clone())));
            let silences = watcher.silences - log.silences.len();
            log.silences.extend(std::iter::repeat_n(cluster.now(), silences));
            log.looks.extend(watcher.looks[looks..].iter().map(|age| (cluster.now(), *age)));
        }
    }

    fn may_lose_disk(&self, _: HostId, _: &Cluster<'_, Member>) -> bool {
        true
    }

    fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        Core::Excused("the probe is over".to_owned())
    }

    fn converged(&self, _: &[HostId], _: &Cluster<'_, Member>) -> Result<(), String> {
        Ok(())
    }
}

/// What the watcher saw under exactly these faults.
fn watched(faults: Vec<Fault>) -> Log {
    let log = Rc::new(RefCell::new(Log::default()));
    let factory = |_: &mut Rng| LampScenario(log.clone());
    let seed = (0..).find(|&seed| {
        let swarm = run_seed(&factory, seed, &Options { classes: Classes::NONE, ..Options::default() }).swarm;
        log.take();
        swarm.latency == Latency::Constant(LATENCY)
    });
    let plan = Plan {
        family: "lamp".to_owned(),
        seed: seed.expect("a seed in eight"),
        salt: 0,
        heal_at: None,
        faults,
        omitted: Vec::new(),
        retained: None,
    };
    let outcome = run_seed(&factory, 0, &Options { plan: Some(plan), ..Options::default() });
    assert_eq!(outcome.violation, None);
    log.take()
}

fn watched_with(blow: Blow) -> Log {
    watched(vec![Fault::Timed { at: 500 * MS, lasts: 500 * MS, blow }])
}

const LAMP_HOST: u8 = 0;
const WATCHER_HOST: u8 = 1;

// A beacon that its receiver is called for again and again spares nothing; one that is set anew and not handed over is not answered.
#[test]
fn a_beacon_is_handed_over_once_and_heard_without_end() {
    assert_eq!(AGE_MAX, REPEAT_WITHIN.as_nanos() as u64 + LATENCY + MS);
    let log = watched(Vec::new());
    assert_eq!(log.colours(), [(0, 1), (0, 2), (0, 2)], "set twice, changed, and lit again as it was");
    assert!(log.is_lit(20, 1_700));
    assert!(log.ages(1_710, 1_800).iter().all(Option::is_none), "{:?}", log.ages(1_710, 1_800));
    assert!(log.is_lit(1_820, 2_000));
}

// A timer that runs out while its beacon is heard is what it is to spare; one that sleeps through a silence hides a failure.
#[test]
fn a_timer_runs_out_when_its_beacon_falls_silent() {
    let ms = |at: &u64| at / MS;
    let stopped = watched(Vec::new()).silences;
    assert_eq!(
        stopped.iter().map(ms).collect::<Vec<_>>(),
        [1_705],
        "when the lamp is put out, and never else"
    );
    for blow in [Blow::Clog { from: LAMP_HOST, to: WATCHER_HOST }, Blow::Pause { host: LAMP_HOST }] {
        let silences = watched_with(blow).silences;
        // The last list is up to 50 ms old when the fault begins.
        let first = silences.first().map_or(0, ms);
        assert!((450 + 120..=500 + 120 + 10).contains(&first), "{silences:?}");
        assert_eq!(silences.len(), 2, "once, and when the lamp is put out: {silences:?}");
    }
}

// A host that cannot be heard, hangs or is down must be missed at once, and found again without being asked.
#[test]
fn silence_is_as_long_as_the_fault() {
    let lamp = HostMask::of(LAMP_HOST);
    for blow in [
        Blow::Partition { links: NetworkPartition::Both { side: lamp } },
        Blow::Partition { links: NetworkPartition::OneWay { side: lamp } },
        Blow::Clog { from: LAMP_HOST, to: WATCHER_HOST },
        Blow::Pause { host: LAMP_HOST },
    ] {
        let log = watched_with(blow);
        let ages = log.ages(600, 1_000);
        assert!(ages.is_sorted() && ages.first() >= Some(&Some(45 * MS)), "{blow:?}: {ages:?}");
        assert!(ages.last() >= Some(&Some(400 * MS)), "{blow:?}: {ages:?}");
        assert!(log.is_lit(20, 500) && log.is_lit(1_070, 1_600), "{blow:?}");
        assert_eq!(log.colours()[..2], [(0, 1), (0, 2)], "{blow:?}: it is the same light");
    }
    let crash = Blow::Crash { hosts: lamp, aim: Aim::Now, loss: Loss::None, output_lost: false, draw: 7 };
    let log = watched_with(crash);
    assert!(log.ages(900, 1_000).iter().all(|age| *age >= Some(390 * MS)));
    assert_eq!(log.colours()[..2], [(0, 1), (1, 1)], "each run lights its own");
    assert!(log.is_lit(1_400, 1_600));
}

// A list that comes late must not light what was stopped meanwhile; one that is lost must not leave it dark.
#[test]
fn lists_may_be_lost_late_and_twice() {
    for fate in [
        Fate::Lost,
        Fate::Twice { later: 175 * MS },
        Fate::Overtaken { by: 175 * MS },
        Fate::Late { by: 175 * MS },
    ] {
        for nth in 0..40 {
            let strikes = Fault::Message { from: LAMP_HOST, to: WATCHER_HOST, nth, at: None, fate };
            let log = watched(vec![strikes]);
            let changes: Vec<u64> = log.seen.iter().map(|(_, shine)| shine.colour).collect();
            assert!(changes.is_sorted() && changes.contains(&2), "{fate:?} of {nth}: {changes:?}");
            let dark = log.ages(1_765, 1_800);
            let stop_lost = fate != Fate::Twice { later: 175 * MS } && dark.iter().any(Option::is_some);
            assert!(
                !stop_lost || dark.iter().all(|age| *age >= Some(55 * MS)),
                "{fate:?} of {nth}: {dark:?}"
            );
            let ages = log.ages(1_880, 2_000);
            let at_most_one_is_missed = |age: &Option<u64>| age.is_some_and(|age| age <= 50 * MS + AGE_MAX);
            assert!(ages.iter().all(at_most_one_is_missed), "{fate:?} of {nth}: {ages:?}");
        }
    }
}
