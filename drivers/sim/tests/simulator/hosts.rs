//! What a host promises its nodes: local messages once and in order, durable records for ever, timers never early,
//! clocks that do not go back; under every fault at once.

use kernel::{Cx, Family, HostId, HostSlot, Instant, NodeId, Position, RequestId, Rng, Role};
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, OperationId, Options, Replacement,
    Scenario, StrikeKind, Sweep, SweepReport,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

kernel::messages! {
    pub enum KeeperIn in Message::Keeper {
        /// The `number`th since the writer started.
        1 => Put { number: u64 },
        /// How many do you have?
        2 => Ask { request: u64 },
    }
}

kernel::messages! {
    pub enum WatcherIn in Message::Watcher {
        1 => Retained { request: Option<u64>, total: u64 },
    }
}

kernel::messages! {
    pub enum WriterIn in Message::Writer {
        1 => Noted { number: u64 },
    }
}

kernel::timers! {
    pub enum Tick { Write, Resend }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    members Member [] [] of Keeping {
        1 => Keeper(KeeperIn, Keeper, "keeper"),
        2 => Watcher(WatcherIn, Watcher, "watcher"),
        3 => Writer(WriterIn, Writer, "writer"),
    }
}

pub struct Keeping;

impl Family for Keeping {
    type Message = Message;
    type Request = ();
    type Response = u64;
}

const KEEPER_HOST: HostId = HostId(1);
const WATCHER: NodeId = NodeId::new(HostId(2), HostSlot(1));
const SPARE: HostId = HostId(3);
const WRITER: HostSlot = HostSlot(1);

/// Asks its keeper to keep numbers, from 1 in each incarnation.
pub struct Writer {
    keeper: NodeId,
    put: u64,
    noted: u64,
    set_at: Instant,
    incarnations: u64,
}

const WRITE_EVERY: Duration = Duration::from_millis(30);

impl Role for Writer {
    type Family = Keeping;
    type In = WriterIn;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, _position: Position, incarnations: u64) {
        self.incarnations = incarnations;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.incarnations += 1;
        let at = cx.append(&self.incarnations);
        cx.trim(at);
        self.set_at = cx.now();
        cx.set_timer(Tick::Write, WRITE_EVERY);
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        let waited = cx.now().since(self.set_at);
        kernel::invariant!(
            TIME,
            waited >= WRITE_EVERY,
            "a timer of {WRITE_EVERY:?} ran out after {waited:?}"
        );
        for _ in 0..3 {
            self.put += 1;
            cx.send(self.keeper, Put { number: self.put });
        }
        self.set_at = cx.now();
        cx.set_timer(Tick::Write, WRITE_EVERY);
        // Stopped and set again: only the last one counts.
        cx.set_timer(Tick::Resend, WRITE_EVERY / 2);
        cx.stop_timer(Tick::Resend);
    }

    fn on_message(&mut self, _from: NodeId, message: WriterIn, _cx: &mut Cx<'_, Self>) {
        let WriterIn::Noted(Noted { number }) = message;
        kernel::invariant!(LOCAL, number == self.noted + 1, "noted {number} after {}", self.noted);
        self.noted = number;
    }
}

/// Counts what it is asked to keep.
pub struct Keeper {
    careless: bool,
    writer: NodeId,
    total: u64,
    last: u64,
    restored: Option<Position>,
    now: Instant,
}

impl Role for Keeper {
    type Family = Keeping;
    type In = KeeperIn;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, position: Position, total: u64) {
        let follows = self.restored.is_none_or(|last| position.0 == last.0 + 1);
        kernel::invariant!(PREFIX, follows, "{position:?} after {:?}", self.restored);
        kernel::invariant!(
            PREFIX,
            total == self.total + 1 || self.total == 0,
            "{total} after {}",
            self.total
        );
        self.restored = Some(position);
        self.total = total;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        let next = self.restored.map_or(cx.cursor(), |last| Position(last.0 + 1));
        kernel::invariant!(
            PREFIX,
            cx.cursor() == next,
            "the journal goes on at {:?}, not {next:?}",
            cx.cursor()
        );
    }

    fn on_message(&mut self, from: NodeId, message: KeeperIn, cx: &mut Cx<'_, Self>) {
        kernel::invariant!(TIME, cx.now() >= self.now, "{:?} after {:?}", cx.now(), self.now);
        self.now = cx.now();
        match message {
            KeeperIn::Put(Put { number }) => {
                kernel::invariant!(LOCAL, number == self.last + 1, "put {number} after {}", self.last);
                self.last = number;
                self.total += 1;
                let at = cx.append(&self.total);
                if self.total.is_multiple_of(10) {
                    cx.trim(at);
                }
                let retained = Retained { request: None, total: self.total };
                if self.careless {
                    cx.send(WATCHER, retained);
                } else {
                    cx.send_durable(WATCHER, retained);
                }
                cx.send_durable(self.writer, Noted { number });
            }
            KeeperIn::Ask(Ask { request }) => {
                cx.send_durable(from, Retained { request: Some(request), total: self.total });
            }
        }
    }
}

/// Remembers the most it was sent, over all incarnations; it has no journal and the scenario keeps its memory.
pub struct Watcher {
    keeper: NodeId,
    waits: BTreeSet<u64>,
    seen: u64,
}

impl Role for Watcher {
    type Family = Keeping;
    type In = WatcherIn;
    type Timer = Tick;
    type Record = u64;

    fn restore(&mut self, _position: Position, _record: u64) {}

    fn on_request(&mut self, id: RequestId, _request: (), cx: &mut Cx<'_, Self>) {
        self.waits.insert(id.0);
        cx.send(self.keeper, Ask { request: id.0 });
        cx.set_timer(Tick::Resend, Duration::from_millis(300));
    }

    fn on_timer(&mut self, _timer: Tick, cx: &mut Cx<'_, Self>) {
        for &request in &self.waits {
            cx.send(self.keeper, Ask { request });
        }
        cx.set_timer(Tick::Resend, Duration::from_millis(300));
    }

    fn on_message(&mut self, from: NodeId, message: WatcherIn, cx: &mut Cx<'_, Self>) {
        let WatcherIn::Retained(Retained { request, total }) = message;
        if from == self.keeper {
            self.seen = self.seen.max(total);
        }
        if let Some(id) = request
            && self.waits.remove(&id)
        {
            cx.respond(RequestId(id), total);
        }
    }
}

/// One host that keeps, one that watches, and a spare that is booted late.
struct KeepingScenario {
    careless: bool,
    /// Changes when the keeper loses its disk: a host that forgot is another one.
    generation: u32,
    seen: BTreeMap<NodeId, u64>,
    version: u32,
}

impl KeepingScenario {
    fn new(careless: bool) -> Self {
        Self { careless, generation: 0, seen: BTreeMap::new(), version: 0 }
    }

    fn keeper(&self) -> NodeId {
        NodeId::new(KEEPER_HOST, HostSlot(10 + self.generation))
    }

    fn watcher(&self) -> Member {
        Member::Watcher(Watcher { keeper: self.keeper(), waits: BTreeSet::new(), seen: 0 })
    }
}

impl Scenario for KeepingScenario {
    type Node = Member;

    const FAMILY: &'static str = "keeping";
    const STRIKES: &'static [StrikeKind] = &[
        StrikeKind { name: "restart in another version", class: Class::Upgrade },
        StrikeKind { name: "boot the spare", class: Class::Membership },
        StrikeKind { name: "pause the keeper", class: Class::Strike },
    ];
    const MARKS: &'static [&'static str] = &["spare.booted", "keeper.upgraded", "keeper.wiped"];

    fn hosts(&self) -> Vec<HostSpec> {
        vec![HostSpec::server(KEEPER_HOST), HostSpec::client(WATCHER.host()), HostSpec::spare(SPARE)]
    }

    fn clients(&self) -> Vec<NodeId> {
        vec![WATCHER]
    }

    fn classes(&self) -> Classes {
        Classes::ALL.without(Class::BridgePartition)
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        if incarnation.host != KEEPER_HOST {
            return vec![(WATCHER.host_slot(), self.watcher())];
        }
        let keeper = self.keeper();
        let writer = NodeId::new(KEEPER_HOST, WRITER);
        vec![
            (
                WRITER,
                Member::Writer(Writer { keeper, put: 0, noted: 0, set_at: Instant(0), incarnations: 0 }),
            ),
            (
                keeper.host_slot(),
                Member::Keeper(Keeper {
                    careless: self.careless,
                    writer,
                    total: 0,
                    last: 0,
                    restored: None,
                    now: Instant(0),
                }),
            ),
        ]
    }

    fn operate(
        &mut self,
        _operation: OperationId,
        node: NodeId,
        _rng: &mut Rng,
        control: &mut Control<'_, Member>,
    ) {
        control.request(node, ());
    }

    fn on_response(
        &mut self,
        _node: NodeId,
        _id: RequestId,
        _total: u64,
        _control: &mut Control<'_, Member>,
    ) {
    }

    fn after_burst(&mut self, host: HostId, cluster: &Cluster<'_, Member>) {
        let keeper = self.keeper();
        for (id, node) in cluster.nodes_of(host) {
            match node {
                Member::Watcher(watcher) => {
                    let seen = self.seen.entry(watcher.keeper).or_default();
                    *seen = watcher.seen.max(*seen);
                }
                Member::Keeper(it) => {
                    let seen = self.seen.get(&id).copied().unwrap_or(0);
                    kernel::invariant!(DUR, it.total >= seen, "{keeper} has {} of {seen}", it.total);
                }
                Member::Writer(_) => {}
            }
        }
    }

    fn strike(&mut self, which: usize, rng: &mut Rng, control: &mut Control<'_, Member>) -> bool {
        match which {
            0 => {
                self.version += 1;
                control.stop(KEEPER_HOST);
                control.boot(KEEPER_HOST);
                control.mark("keeper.upgraded");
                true
            }
            1 => {
                let fresh = !control.cluster.is_up(SPARE);
                control.boot(SPARE);
                control.mark("spare.booted");
                fresh
            }
            _ => {
                control.pause(KEEPER_HOST, rng.duration(Duration::from_millis(1), Duration::from_secs(1)));
                true
            }
        }
    }

    fn may_lose_disk(&self, host: HostId, _cluster: &Cluster<'_, Member>) -> bool {
        host == KEEPER_HOST
    }

    fn on_disk_lost(&mut self, _host: HostId, _cluster: &Cluster<'_, Member>) -> Replacement {
        self.generation += 1;
        Replacement::Wiped
    }

    fn core(&mut self, _cluster: &Cluster<'_, Member>, _rng: &mut Rng) -> Core {
        Core::Hosts(vec![KEEPER_HOST, WATCHER.host()])
    }

    fn on_heal(&mut self, _core: &[HostId], control: &mut Control<'_, Member>) {
        // The watcher may know a keeper that is no more.
        control.stop(WATCHER.host());
        control.boot(WATCHER.host());
        if self.generation > 0 {
            control.mark("keeper.wiped");
        }
    }
}

fn sweep(careless: bool, seeds: u64) -> SweepReport {
    sim::sweep(&|_: &mut Rng| KeepingScenario::new(careless), &Sweep { threads: 2, ..Sweep::of(0..seeds) })
}

// Everything that protocols stand on, in one slot: a host that breaks any of it makes every other result void.
#[test]
fn hosts_keep_their_promises_under_every_fault() {
    let report = sweep(false, 800);
    assert!(report.passed(), "{}", report.to_json());
    for class in [Class::Upgrade, Class::Membership, Class::DiskLost, Class::BitRot, Class::TornWrite] {
        assert!(report.matrix["keeping"][class.name()] >= 100, "{class}");
    }
}

// If reporting before storing went unnoticed here, the check above would check nothing.
#[test]
fn reporting_before_storing_is_noticed() {
    let report = sweep(true, 100);
    assert_eq!(report.by_invariant.keys().collect::<Vec<_>>(), ["DUR"]);
    assert!(report.violations >= 5, "{}", report.to_json());
}

// What happens on hosts of several nodes must depend on the seed alone, too.
#[test]
fn hosts_of_several_nodes_are_deterministic() {
    let factory = |_: &mut Rng| KeepingScenario::new(false);
    assert_eq!(sim::determinism(&factory, 0..20, &Options::default()), []);
}
