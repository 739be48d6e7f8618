//! Each fault alone, on a beacon and a listener: it does what its name says, when it should, and then it is over.

use kernel::{Cx, Family, HostId, HostSlot, NodeId, Position, Rng, Role};
use sim::{
    Aim, Blow, Classes, Cluster, Control, Core, Fate, Fault, Frozen, HostMask, HostSpec, Incarnation,
    Latency, Loss, NetworkPartition, OperationId, Options, Outcome, Plan, Scenario, Sweep, Tuning,
    WALL_EPOCH, run_seed,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

kernel::messages! {
    pub enum ListenerIn in Message::Listener {
        1 => Beat { incarnation: u64, number: u64, durable: bool, earliest: u64, latest: u64, clock: u64 },
    }
}

kernel::timers! {
    pub enum Tick { Beat }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Beating {
        1 => Listener(ListenerIn, Listener, "listener"),
        2 => Beacon(Infallible, Beacon, "beacon"),
    }
}

pub struct Beating;

impl Family for Beating {
    type Message = Message;
    type Request = ();
    type Response = ();
}

const BEACON: NodeId = NodeId::new(HostId(1), HostSlot(0));
const LISTENER: NodeId = NodeId::new(HostId(2), HostSlot(0));
const MS: u64 = 1_000_000;
const LATENCY: u64 = 5 * MS;
const SYNC: u64 = 2 * MS;

/// Every 10 ms says two beats of one number: one at once, one when the number is durable.
pub struct Beacon {
    incarnation: u64,
    number: u64,
}

impl Role for Beacon {
    type Family = Beating;
    type In = Infallible;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, _position: Position, number: u64) {
        self.number = number;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        cx.set_timer(Tick::Beat, Duration::from_millis(10));
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        self.number += 1;
        cx.append(&self.number);
        let (wall, clock) = (cx.wall(), cx.now().0);
        let beat = |durable| {
            let (incarnation, number, earliest, latest) =
                (self.incarnation, self.number, wall.earliest, wall.latest);
            Beat { incarnation, number, durable, earliest, latest, clock }
        };
        cx.send(LISTENER, beat(false));
        cx.send_durable(LISTENER, beat(true));
        cx.set_timer(Tick::Beat, Duration::from_millis(10));
    }

    fn on_message(&mut self, _from: NodeId, message: Infallible, _cx: &mut Cx<'_, Self>) {
        match message {}
    }
}

#[derive(Default)]
pub struct Listener {
    heard: Vec<Beat>,
}

impl Role for Listener {
    type Family = Beating;
    type In = ListenerIn;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, _position: Position, _record: u64) {}

    fn on_message(&mut self, _from: NodeId, message: ListenerIn, _cx: &mut Cx<'_, Self>) {
        let ListenerIn::Beat(beat) = message;
        self.heard.push(beat);
    }
}

/// A beat and when it was heard, by the time of the run.
type Heard = Vec<(u64, Beat)>;

struct BeatScenario {
    seen: usize,
    heard: Rc<RefCell<Heard>>,
    /// Who is healed after two seconds, to go on for half a second.
    core: Vec<NodeId>,
}

impl Scenario for BeatScenario {
    type Node = Member;

    const FAMILY: &'static str = "beat";

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(BEACON.host()), HostSpec::server(LISTENER.host())]
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
            sync: both(SYNC),
            burst: both(MS / 100),
            clock_error: both(MS),
            ..Tuning::default()
        }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        if incarnation.host == BEACON.host() {
            return vec![(
                HostSlot(0),
                Member::Beacon(Beacon { incarnation: u64::from(incarnation.number), number: 0 }),
            )];
        }
        self.seen = 0;
        vec![(HostSlot(0), Member::Listener(Listener::default()))]
    }

    fn operate(&mut self, _: OperationId, _: NodeId, _: &mut Rng, _: &mut Control<'_, Member>) {}

    fn on_response(&mut self, _: NodeId, _: kernel::RequestId, (): (), _: &mut Control<'_, Member>) {}

    fn after_burst(&mut self, _host: HostId, cluster: &Cluster<'_, Member>) {
        if let Some(Member::Listener(listener)) = cluster.node(LISTENER) {
            let new = &listener.heard[self.seen..];
            self.heard.borrow_mut().extend(new.iter().map(|beat| (cluster.now(), beat.clone())));
            self.seen = listener.heard.len();
        }
    }

    fn may_lose_disk(&self, _: HostId, _: &Cluster<'_, Member>) -> bool {
        true
    }

    fn core(&mut self, cluster: &Cluster<'_, Member>, _: &mut Rng) -> Core {
        if self.core.is_empty() {
            return Core::Excused("the probe is over".to_owned());
        }
        if self.core.iter().any(|node| cluster.is_damaged(node.host())) {
            return Core::Excused("a disk is damaged".to_owned());
        }
        Core::Hosts(self.core.iter().map(|node| node.host()).collect())
    }

    fn converged(&self, _: &[HostId], cluster: &Cluster<'_, Member>) -> Result<(), String> {
        if cluster.now() < 2_500 * MS { Err("half a second is not over".to_owned()) } else { Ok(()) }
    }
}

/// What the listener heard under exactly these faults.
fn heard(faults: Vec<Fault>) -> Heard {
    heard_of_core(faults, &[])
}

/// The same, with half a second in which a core is healed.
fn heard_of_core(faults: Vec<Fault>, core: &[NodeId]) -> Heard {
    run_of_core(faults, core).0
}

fn run_of_core(faults: Vec<Fault>, core: &[NodeId]) -> (Heard, Outcome) {
    let heard = Rc::new(RefCell::new(Heard::new()));
    let factory = |_: &mut Rng| BeatScenario { seen: 0, heard: heard.clone(), core: core.to_vec() };
    let seed = (0..).find(|&seed| {
        let swarm = run_seed(&factory, seed, &Options { classes: Classes::NONE, ..Options::default() }).swarm;
        swarm.latency == Latency::Constant(LATENCY) && !swarm.sync_blocks
    });
    heard.borrow_mut().clear();
    let plan = Plan {
        family: "beat".to_owned(),
        seed: seed.expect("a seed in eight"),
        salt: 0,
        heal_at: None,
        faults,
        omitted: Vec::new(),
        retained: None,
    };
    let outcome = run_seed(&factory, 0, &Options { plan: Some(plan), ..Options::default() });
    assert_eq!(outcome.violation, None);
    (heard.take(), outcome)
}

/// The listener's beats under one fault from 500 ms to 1,000 ms.
fn heard_with(blow: Blow) -> Heard {
    heard(vec![Fault::Timed { at: 500 * MS, lasts: 500 * MS, blow }])
}

fn between(heard: &Heard, from: u64, to: u64, durable: bool) -> Vec<u64> {
    let within = |(at, beat): &&(u64, Beat)| (from * MS..to * MS).contains(at) && beat.durable == durable;
    heard.iter().filter(within).map(|(_, beat)| beat.number).collect()
}

const BEACON_HOST: u8 = 0;
const LISTENER_HOST: u8 = 1;

// The probe itself: a beacon that stutters without faults would show faults that are not there.
#[test]
fn without_faults_every_beat_is_heard_in_order() {
    let heard = heard(Vec::new());
    for durable in [false, true] {
        let numbers = between(&heard, 0, 2_000, durable);
        assert!(numbers.len() >= 190 && numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    }
    let honest = |(at, beat): &(u64, Beat)| {
        let said = WALL_EPOCH + at - LATENCY;
        beat.durable || (beat.earliest..=beat.latest).contains(&said)
    };
    assert!(heard.iter().all(honest));
}

// A partition that lets messages through, severs the wrong way, or never ends.
#[test]
fn partitions_sever_what_they_say_for_as_long_as_they_last() {
    let beacon = HostMask::of(BEACON_HOST);
    let listener = HostMask::of(LISTENER_HOST);
    for links in [
        NetworkPartition::Both { side: beacon },
        NetworkPartition::Both { side: listener },
        NetworkPartition::OneWay { side: beacon },
    ] {
        let heard = heard_with(Blow::Partition { links });
        assert_eq!(between(&heard, 506, 1_005, false), Vec::<u64>::new(), "{links:?}");
        assert!(between(&heard, 1_005, 2_000, false).len() > 90, "{links:?}");
    }
    let other_way = heard_with(Blow::Partition { links: NetworkPartition::OneWay { side: listener } });
    assert!(between(&other_way, 506, 1_005, false).len() >= 49);
}

// A clog that loses messages is a partition; one that keeps them apart does not flood.
#[test]
fn a_clogged_link_stops_and_floods() {
    let heard = heard_with(Blow::Clog { from: BEACON_HOST, to: LISTENER_HOST });
    assert_eq!(between(&heard, 506, 1_000, false), Vec::<u64>::new());
    let flood = between(&heard, 1_000, 1_001, false);
    assert!(flood.len() >= 48, "{flood:?}");
    let all = between(&heard, 0, 2_000, false);
    assert!(all.iter().copied().eq(1..=all.len() as u64), "{all:?}");
}

// A paused process that goes on working, or forgets what arrived meanwhile.
#[test]
fn a_paused_host_stops_and_goes_on() {
    let listener = heard_with(Blow::Pause { host: LISTENER_HOST });
    assert_eq!(between(&listener, 501, 1_000, false), Vec::<u64>::new());
    assert!(between(&listener, 1_000, 1_001, false).len() >= 48);
    let beacon = heard_with(Blow::Pause { host: BEACON_HOST });
    assert_eq!(between(&beacon, 506, 1_005, false), Vec::<u64>::new());
    let numbers = between(&beacon, 0, 2_000, true);
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64) && numbers.len() < 160, "{numbers:?}");
}

// Slowness that slows nothing down.
#[test]
fn slow_hosts_and_slow_disks_are_slow() {
    let slow_disk = heard_with(Blow::SlowDisk { host: BEACON_HOST, factor: 50 });
    let (plain, durable) = (between(&slow_disk, 510, 1_000, false), between(&slow_disk, 510, 1_000, true));
    assert!(plain.len() >= 48, "{plain:?}");
    let late = slow_disk.iter().filter(|(at, beat)| {
        let said = WALL_EPOCH + at - LATENCY;
        beat.durable && said - beat.earliest > 40 * MS
    });
    assert!(late.count() >= 20 && !durable.is_empty());
    let slow_node = heard_with(Blow::SlowNode { host: BEACON_HOST, factor: 5_000 });
    let count = between(&slow_node, 510, 1_000, false).len();
    assert!((5..=20).contains(&count), "{count} beats at 20 a second");
}

// A full disk that loses what it could not take, or lets promises go before it has space.
#[test]
fn a_full_disk_holds_promises_back_and_then_keeps_them() {
    let heard = heard_with(Blow::DiskFull { host: BEACON_HOST });
    assert_eq!(between(&heard, 510, 1_000, true), Vec::<u64>::new());
    assert!(between(&heard, 510, 1_000, false).len() >= 48);
    let numbers = between(&heard, 0, 2_000, true);
    assert!(numbers.len() >= 190 && numbers.iter().copied().eq(1..=numbers.len() as u64));
}

// A fate that strikes another message, or none.
#[test]
fn each_fate_strikes_its_message() {
    // Beats alternate on the link: at once, durable. The hundredth is the durable one of number 50.
    let struck =
        |fate| heard(vec![Fault::Message { from: BEACON_HOST, to: LISTENER_HOST, nth: 99, at: None, fate }]);
    let positions = |heard: &Heard| -> Vec<usize> {
        let is_struck = |(_, (_, beat)): &(usize, &(u64, Beat))| beat.number == 50 && beat.durable;
        heard.iter().enumerate().filter(is_struck).map(|(at, _)| at).collect()
    };
    assert!(positions(&struck(Fate::Lost)).is_empty());
    let twice = struck(Fate::Twice { later: 100 * MS });
    let at = positions(&twice);
    assert_eq!((at.len(), twice[at[1]].0 - twice[at[0]].0), (2, 100 * MS));
    for fate in [Fate::Overtaken { by: 25 * MS }, Fate::Late { by: 25 * MS }] {
        let late = struck(fate);
        let at = positions(&late);
        assert_eq!(at.len(), 1, "{fate:?}");
        assert!(late[at[0] - 1].1.number > 51, "{fate:?}: nothing overtook it");
    }
}

fn crash(aim: Aim, loss: Loss, output_lost: bool) -> Heard {
    let hosts = HostMask::of(BEACON_HOST);
    heard_with(Blow::Crash { hosts, aim, loss, output_lost, draw: 7 })
}

// A crash that misses its moment cannot show what a protocol does in that moment.
#[test]
fn crashes_strike_at_their_moment_and_lose_what_they_say() {
    let last_of = |heard: &Heard, durable: bool| {
        heard
            .iter()
            .filter(|(_, beat)| beat.incarnation == 0 && beat.durable == durable)
            .map(|(_, beat)| beat.number)
            .max()
    };
    let first_of_next =
        |heard: &Heard| heard.iter().find(|(_, beat)| beat.incarnation == 1).map(|(_, beat)| beat.number);
    // Before the sync: the number was said and is forgotten, and said again.
    let lost = crash(Aim::Unsynced, Loss::All, false);
    let said = last_of(&lost, false).expect("it beat for half a second");
    assert_eq!((last_of(&lost, true), first_of_next(&lost)), (Some(said - 1), Some(said)));
    // The same, but the machine survives: the number is retained.
    let retained = crash(Aim::Unsynced, Loss::None, false);
    assert_eq!(first_of_next(&retained), Some(said + 1));
    // Right after the sync: durable, and nobody notified.
    let synced = crash(Aim::Synced, Loss::All, false);
    let said = last_of(&synced, false).expect("it beat for half a second");
    assert_eq!((last_of(&synced, true), first_of_next(&synced)), (Some(said - 1), Some(said + 1)));
    // What was in flight is lost with the host.
    let torn = crash(Aim::Unsynced, Loss::All, true);
    assert_eq!(last_of(&torn, false), last_of(&lost, false).map(|said| said - 1));
    // It stays down as long as it should.
    assert_eq!(between(&lost, 520, 1_000, false), Vec::<u64>::new());
}

// A failed fsync that is followed by an acknowledgement from the same file.
#[test]
fn after_a_write_error_nothing_is_acknowledged() {
    for draw in 0..3 {
        let heard = heard_with(Blow::WriteError { host: BEACON_HOST, draw });
        let of_first_incarnation = |durable| {
            let of = |(_, beat): &&(u64, Beat)| beat.incarnation == 0 && beat.durable == durable;
            heard.iter().filter(of).map(|(_, beat)| beat.number).max()
        };
        assert_eq!(of_first_incarnation(true).map(|number| number + 1), of_first_incarnation(false));
        assert!(heard.iter().any(|(_, beat)| beat.incarnation == 1 && beat.durable));
    }
}

// A damaged journal that is handed back as if it were whole.
#[test]
fn damaged_disks_do_not_come_back() {
    let host = BEACON_HOST;
    for draw in 0..20 {
        let anywhere = draw * (u64::MAX / 20);
        for blow in [
            Blow::BitRot { host, draw: anywhere },
            Blow::MisdirectedWrite { host, draw: anywhere + draw % 2 },
            Blow::DiskLost { host },
        ] {
            let heard = heard_with(blow);
            assert_eq!(between(&heard, 520, 2_000, false), Vec::<u64>::new(), "{blow:?}");
            assert!(heard.iter().all(|(_, beat)| beat.incarnation == 0));
        }
    }
}

// A journal that is about to be damaged must be known as such, or the core is drawn with a host that cannot come back.
#[test]
fn a_misdirection_planned_while_the_host_is_down_is_known_at_the_heal() {
    let (host, hosts) = (BEACON_HOST, HostMask::of(BEACON_HOST));
    let crash = Blow::Crash { hosts, aim: Aim::Now, loss: Loss::All, output_lost: false, draw: 1 };
    let faults = vec![
        Fault::Timed { at: 500 * MS, lasts: 100 * MS, blow: crash },
        Fault::Timed { at: 550 * MS, lasts: 100_000 * MS, blow: Blow::MisdirectedWrite { host, draw: 0 } },
    ];
    let (heard, outcome) = run_of_core(faults, &[BEACON, LISTENER]);
    assert!(heard.iter().any(|(_, beat)| beat.incarnation == 1), "it came back, and wrote");
    assert_eq!(outcome.excused.as_deref(), Some("a disk is damaged"));
}

// A core that is not healed of everything cannot be blamed for not converging.
#[test]
fn the_core_is_healed_of_everything() {
    let host = BEACON_HOST;
    for blow in [
        Blow::Pause { host },
        Blow::Partition { links: NetworkPartition::Both { side: HostMask::of(host) } },
        Blow::Clog { from: BEACON_HOST, to: LISTENER_HOST },
        Blow::SlowNode { host, factor: 50_000 },
        Blow::SlowDisk { host, factor: 100 },
        Blow::DiskFull { host },
        Blow::Crash {
            hosts: HostMask::of(host),
            aim: Aim::Now,
            loss: Loss::All,
            output_lost: false,
            draw: 1,
        },
        Blow::ClockLie { host, nanoseconds: 1_000_000 * MS as i64 },
    ] {
        let faults = vec![Fault::Timed { at: 1_500 * MS, lasts: 100_000 * MS, blow }];
        let heard = heard_of_core(faults, &[BEACON, LISTENER]);
        let healed = between(&heard, 2_250, 2_500, true);
        assert!(healed.len() >= 20, "{blow:?}: {healed:?}");
        let (at, beat) = heard.last().expect("it beats");
        assert!(beat.latest + 50 * MS > WALL_EPOCH + at && beat.earliest < WALL_EPOCH + at, "{blow:?}");
    }
}

// Hosts outside the core that recover all the same would hide that the core leans on them.
#[test]
fn hosts_outside_the_core_stay_broken_as_they_should() {
    let frozen = |core, host, way| {
        let heard = heard_of_core(vec![Fault::Freeze { host, way }], &[core]);
        !between(&heard, 2_006, 2_500, false).is_empty()
    };
    for way in Frozen::ALL {
        let beacon_is_heard = frozen(LISTENER, BEACON_HOST, way);
        assert_eq!(beacon_is_heard, way == Frozen::Deaf, "{way:?}");
        let listener_hears = frozen(BEACON, LISTENER_HOST, way);
        assert_eq!(listener_hears, way == Frozen::Mute, "{way:?}");
    }
}

// A class that never strikes, or a scenario that is always excused, must not pass for covered.
#[test]
fn empty_cells_and_too_many_excuses_fail_a_sweep() {
    let factory = |_: &mut Rng| BeatScenario { seen: 0, heard: Rc::default(), core: Vec::new() };
    let report = sim::sweep(&factory, &Sweep::of(0..100));
    assert_eq!((report.violations, report.passed()), (0, false));
    for part in ["class membership struck 0 times", "100 of 100 seeds are excused"] {
        assert!(
            report.shortfalls.iter().any(|shortfall| shortfall.contains(part)),
            "{:?}",
            report.shortfalls
        );
    }
}

// An honest clock that lies, or a lying clock that does not.
#[test]
fn clocks_are_off_as_they_say() {
    let off = |heard: &Heard, from: u64, to: u64| -> (i64, i64) {
        let of = heard.iter().filter(|(at, beat)| !beat.durable && (from * MS..to * MS).contains(at));
        let offsets = of.map(|(at, beat)| {
            let said = WALL_EPOCH + at - LATENCY;
            ((beat.earliest + beat.latest) / 2) as i64 - said as i64
        });
        offsets.fold((i64::MAX, i64::MIN), |(low, high), offset| (low.min(offset), high.max(offset)))
    };
    let host = BEACON_HOST;
    let within =
        |(low, high): (i64, i64), expected: i64| (low - expected).abs() < 20_000 && high - low < 20_000;
    let skewed = heard_with(Blow::ClockSkew { host, millionths: -500_000 });
    assert!(
        within(off(&skewed, 510, 2_000), -500_000),
        "half of an error of 1 ms: {:?}",
        off(&skewed, 510, 2_000)
    );
    let jumped = heard_with(Blow::ClockJump { host, millionths: 1_000_000 });
    assert!(within(off(&jumped, 0, 500), 0) && within(off(&jumped, 510, 2_000), 1_000_000));
    let lying = heard_with(Blow::ClockLie { host, nanoseconds: 30_000 * MS as i64 });
    assert!(within(off(&lying, 510, 1_000), 30_000 * MS as i64) && within(off(&lying, 1_020, 2_000), 0));
    let drifting = heard_with(Blow::ClockDrift { host, per_billion: 100_000_000 });
    let (slow, fast) =
        (between(&drifting, 0, 500, false).len(), between(&drifting, 1_000, 1_500, false).len());
    assert!(fast * 100 > slow * 107, "{slow} beats in half a second, then {fast}");
}
