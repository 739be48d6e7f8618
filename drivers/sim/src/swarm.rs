//! What a seed decides before the run starts: which faults are possible and how often, how fast everything is, and
//! when each structural fault strikes.

use crate::class::{Class, Classes};
use crate::draw::{Purpose, exponential, log_uniform_of, root};
use crate::latency::Latency;
use crate::plan::{Aim, Blow, Fault, HostIndex, HostMask, Loss, NetworkPartition};
use crate::spec::{HostKind, HostSpec, StrikeKind};
use kernel::{Bounds, Rng};
use serde::Serialize;
use std::time::Duration;

/// The ranges a scenario lets its seeds draw from. Each pair is the least and the most.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// How long faults strike.
    pub safety: (Duration, Duration),
    /// Where clients are busy for less than that, faults may strike for less, but not for less than this, or clients take their time.
    /// None: neither.
    pub busy_at_least: Option<Duration>,
    /// The typical latency of a link; log-uniform.
    pub latency: (Duration, Duration),
    /// How far each host is from the middle of the network, beside that: a packet between two takes as long as both, one way. Hosts
    /// without an entry are there.
    pub distances: Vec<Duration>,
    /// Where each host is: those of one site are at no distance from each other. Empty: each is somewhere else.
    pub sites: Vec<u16>,
    /// How long an fsync takes; log-uniform.
    pub sync: (Duration, Duration),
    /// How long a burst keeps a host busy, beside what each message costs; log-uniform.
    pub burst: (Duration, Duration),
    /// How long a fault lasts, if it lasts; log-uniform.
    pub lasts: (Duration, Duration),
    /// How long a client waits between its operations, on average; log-uniform.
    pub think: (Duration, Duration),
    /// How many operations each client may begin in the safety phase; log-uniform.
    pub operations: (u32, u32),
    /// How many operations each client of the core must complete after the heal.
    pub fresh_operations: u32,
    /// Within what time after the heal the core must have converged.
    pub liveness: Duration,
    /// The declared error of the wall clocks; log-uniform.
    pub clock_error: (Duration, Duration),
    /// Roles rest on the wall clock, which is usable up to this error: clocks begin at the edges of their errors in some seeds, lose
    /// their source, are set, and hosts compare their intervals as the runtime does. None: they do not rest on it.
    pub clock_error_max: Option<Duration>,
    /// The late edge of what such a clock says is a multiple of this, so that several hosts draw one timestamp; zero: it is not.
    pub clock_grain: Duration,
    /// How often each structural class strikes a run on average, if it is on; log-uniform.
    pub blows: (f64, f64),
    /// The probability that a message is struck by a class that is on; log-uniform.
    pub message_rate: (f64, f64),
    /// What a journal takes in one record, and a link in one frame: the runtime's bounds, unless a scenario whose pages are smaller
    /// sets closer ones.
    pub bounds: Bounds,
    /// Nothing fails in this run, and everything is quick: an operation takes no longer than this, beside the way. Who waits longer waits
    /// for a timer that makes up for what was not done. None: all may fail.
    pub calm: Option<Duration>,
}

impl Default for Tuning {
    fn default() -> Self {
        let (us, ms, s) = (Duration::from_micros, Duration::from_millis, Duration::from_secs);
        Self {
            safety: (s(20), s(60)),
            busy_at_least: None,
            latency: (us(50), ms(20)),
            distances: Vec::new(),
            sites: Vec::new(),
            sync: (us(50), ms(20)),
            burst: (us(1), us(100)),
            lasts: (ms(10), s(8)),
            think: (ms(1), s(1)),
            operations: (20, 200),
            fresh_operations: 20,
            liveness: s(60),
            clock_error: (us(10), ms(50)),
            clock_error_max: None,
            clock_grain: Duration::ZERO,
            blows: (0.3, 30.0),
            message_rate: (0.0003, 0.1),
            bounds: Bounds::REAL,
            calm: None,
        }
    }
}

/// The options drawn by one seed. Durations are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Swarm {
    /// The classes that are on.
    pub classes: Classes,
    rates: Vec<f64>,
    /// How long faults strike.
    pub safety: u64,
    /// How long packets take.
    pub latency: Latency,
    /// How far each host is from the middle of the network.
    pub distances: Vec<u64>,
    /// Where each host is.
    pub sites: Vec<u16>,
    /// How long an fsync takes.
    pub sync: u64,
    /// Whether a host waits for its fsync before it goes on.
    pub sync_blocks: bool,
    /// How long a burst keeps a host busy.
    pub burst: u64,
    /// How much longer for each message.
    pub per_message: u64,
    /// How long clients wait between operations, on average.
    pub think: u64,
    /// How many operations each client may begin in the safety phase.
    pub operations: u32,
    /// The declared error of the wall clocks.
    pub clock_error: u64,
    /// Wall clocks begin at the edges of their errors, if roles rest on them.
    pub clocks_at_edges: bool,
    /// Whether a restart hands back records that were trimmed and are still on the disk, as a journal of whole segments
    /// does.
    pub trimmed_restored: bool,
    /// Whether a host that has much to do calls the timers that are due behind all else that has arrived, as the runtime does, and not in
    /// the order in which everything came.
    pub timers_last: bool,
}

/// How long packets take where nothing fails, and fsyncs at most, in nanoseconds.
const CALM_LATENCY: u64 = 200_000;
/// How long a burst keeps a host busy there at most.
const CALM_BURST: u64 = 5_000;
/// How long clients wait there between operations, on average and at least: some have to begin when all hosts have found together.
const CALM_THINK: u64 = 50_000_000;

impl Swarm {
    /// Draws the options of `seed`.
    pub(crate) fn draw(seed: u64, applicable: Classes, tuning: &Tuning) -> Self {
        let mut rng = Rng::seeded(root(seed, Purpose::Swarm));
        let mut classes = Classes::NONE;
        let mut rates = Vec::with_capacity(Class::COUNT);
        for &class in Class::ALL.iter().filter(|class| !class.needs_clock()) {
            let on = rng.chance(0.5);
            let (low, high) = if class.strikes_messages() { tuning.message_rate } else { tuning.blows };
            rates.push(log_uniform_of(&mut rng, low, high));
            if on && applicable.has(class) {
                classes = classes.with(class);
            }
        }
        // A stream of their own, so that families without such roles draw as they did before there were these classes.
        let mut of_clocks = Rng::seeded(root(seed, Purpose::Clocks));
        let clocks_at_edges = of_clocks.chance(0.5);
        for &class in Class::ALL.iter().filter(|class| class.needs_clock()) {
            let on = of_clocks.chance(0.5);
            rates.push(log_uniform_of(&mut of_clocks, tuning.blows.0, tuning.blows.1));
            if on && applicable.has(class) {
                classes = classes.with(class);
            }
        }
        let timers_last = Rng::seeded(root(seed, Purpose::Turns)).chance(0.5);
        let nanoseconds = |rng: &mut Rng, (low, high): (Duration, Duration)| {
            log_uniform_of(rng, low.as_nanos().max(1) as f64, high.as_nanos().max(1) as f64) as u64
        };
        let typical = nanoseconds(&mut rng, tuning.latency);
        let latency = match rng.below(4) {
            0 => Latency::Constant(typical),
            1 => Latency::Uniform(typical / 2, typical * 2),
            2 => Latency::Exponential(typical / 2, typical),
            _ => Latency::HeavyTail(typical / 2),
        };
        let burst = nanoseconds(&mut rng, tuning.burst);
        let operations = (f64::from(tuning.operations.0.max(1)), f64::from(tuning.operations.1.max(1)));
        let sync = nanoseconds(&mut rng, tuning.sync);
        let think = nanoseconds(&mut rng, tuning.think);
        let operations = log_uniform_of(&mut rng, operations.0, operations.1) as u32;
        let safety = rng.between(tuning.safety.0.as_nanos() as u64, tuning.safety.1.as_nanos() as u64);
        let (safety, think) = fitted(safety, think, operations, tuning, &mut rng);
        let drawn = Self {
            classes,
            rates,
            safety,
            latency,
            distances: tuning.distances.iter().map(|distance| distance.as_nanos() as u64).collect(),
            sites: tuning.sites.clone(),
            sync,
            sync_blocks: rng.chance(0.5),
            burst,
            per_message: burst / 10,
            think,
            operations,
            clock_error: nanoseconds(&mut rng, tuning.clock_error),
            clocks_at_edges,
            trimmed_restored: rng.chance(0.5),
            timers_last,
        };
        if tuning.calm.is_some() { drawn.calmed() } else { drawn }
    }

    /// The same, where nothing fails.
    fn calmed(self) -> Self {
        let burst = self.burst.min(CALM_BURST);
        Self {
            classes: Classes::NONE,
            latency: Latency::Constant(CALM_LATENCY),
            sync: self.sync.min(CALM_LATENCY),
            burst,
            per_message: burst / 10,
            think: self.think.max(CALM_THINK),
            ..self
        }
    }

    /// How often `class` strikes: the probability per message, or the average number in the run; 0 if it is off.
    pub fn rate(&self, class: Class) -> f64 {
        if self.classes.has(class) { self.rates[class as usize] } else { 0.0 }
    }
}

/// Faults that strike when clients have long ended show little: in most seeds either the phase is shorter, or clients take their
/// time. In one of five they leave an idle cluster to the faults.
fn fitted(safety: u64, think: u64, operations: u32, tuning: &Tuning, rng: &mut Rng) -> (u64, u64) {
    let busy = think.saturating_mul(u64::from(operations));
    let way = rng.below(5);
    let Some(shortest) = tuning.busy_at_least.filter(|_| busy < safety && way > 0) else {
        return (safety, think);
    };
    let shortest = shortest.as_nanos() as u64;
    if way < 4 {
        return ((2 * busy).clamp(shortest.min(safety), safety), think);
    }
    (safety, safety / u64::from(operations.max(1)))
}

/// Draws every structural fault of a run, in order of time.
pub(crate) struct Planner<'a> {
    pub(crate) swarm: &'a Swarm,
    pub(crate) tuning: &'a Tuning,
    pub(crate) hosts: &'a [HostSpec],
    pub(crate) strikes: &'a [StrikeKind],
}

impl Planner<'_> {
    pub(crate) fn draw(&self, seed: u64) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut parent = Rng::seeded(root(seed, Purpose::Plan));
        for &class in Class::ALL {
            // Each class has a stream of its own, so that one class more or less leaves the others as they are.
            let mut rng = parent.fork();
            if class.strikes_messages() || !self.swarm.classes.has(class) {
                continue;
            }
            let mean_gap = self.swarm.safety as f64 / self.swarm.rate(class);
            let mut at = 0.0;
            loop {
                at += exponential(rng.bits()) * mean_gap;
                if at >= self.swarm.safety as f64 {
                    break;
                }
                let (low, high) = self.tuning.lasts;
                let lasts = log_uniform_of(&mut rng, low.as_nanos() as f64, high.as_nanos() as f64) as u64;
                if let Some(blow) = self.blow(class, &mut rng) {
                    faults.push(Fault::Timed { at: at as u64, lasts, blow });
                }
            }
        }
        faults.sort_by_key(|fault| match fault {
            Fault::Timed { at, .. } => *at,
            Fault::Message { .. } | Fault::Freeze { .. } => 0,
        });
        faults
    }

    /// A server mostly, a client's host at times.
    fn victim(&self, rng: &mut Rng) -> HostIndex {
        let servers: Vec<_> = self.servers().collect();
        if servers.is_empty() || rng.chance(0.1) {
            return rng.index(self.hosts.len()) as HostIndex;
        }
        servers[rng.index(servers.len())]
    }

    fn servers(&self) -> impl Iterator<Item = HostIndex> {
        let numbered = self.hosts.iter().enumerate();
        numbered.filter(|(_, host)| host.kind == HostKind::Server).map(|(index, _)| index as HostIndex)
    }

    /// A set of hosts that is neither empty nor all of them, if there are two.
    fn side(&self, rng: &mut Rng) -> HostMask {
        let mut order: Vec<_> = (0..self.hosts.len() as HostIndex).collect();
        rng.shuffle(&mut order);
        let size = if rng.chance(0.4) { 1 } else { rng.between(1, (order.len() as u64 - 1).max(1)) as usize };
        HostMask(order[..size].iter().fold(0, |mask, host| mask | 1 << host))
    }

    fn blow(&self, class: Class, rng: &mut Rng) -> Option<Blow> {
        let draw = rng.bits();
        let host = self.victim(rng);
        Some(match class {
            Class::Loss | Class::Duplication | Class::Reorder | Class::Delay => return None,
            Class::Clog => {
                let to = (usize::from(host) + 1 + rng.index(self.hosts.len().max(2) - 1)) % self.hosts.len();
                Blow::Clog { from: host, to: to as HostIndex }
            }
            Class::Partition => Blow::Partition { links: NetworkPartition::Both { side: self.side(rng) } },
            Class::OneWayPartition => {
                Blow::Partition { links: NetworkPartition::OneWay { side: self.side(rng) } }
            }
            Class::BridgePartition => Blow::Partition { links: self.bridge_or_ring(rng) },
            Class::Crash => self.crash(host, Loss::None, rng),
            Class::LostWrites => self.crash(host, Loss::All, rng),
            Class::TornWrite => self.crash(host, Loss::Torn, rng),
            Class::ReorderedWrites => self.crash(host, Loss::Reordered, rng),
            Class::BitRot => Blow::BitRot { host, draw },
            Class::MisdirectedWrite => Blow::MisdirectedWrite { host, draw },
            Class::WriteError => Blow::WriteError { host, draw },
            Class::DiskFull => Blow::DiskFull { host },
            Class::DiskLost => Blow::DiskLost { host },
            Class::ClockSkew => Blow::ClockSkew { host, millionths: millionths(rng) },
            Class::ClockJump => Blow::ClockJump { host, millionths: millionths(rng) },
            Class::ClockDrift => {
                let size = log_uniform_of(rng, 1e3, 1e7) as i64;
                Blow::ClockDrift { host, per_billion: if rng.chance(0.5) { size } else { -size } }
            }
            Class::ClockLie => {
                let size = log_uniform_of(rng, 1e6, 287e9) as i64;
                Blow::ClockLie { host, nanoseconds: if rng.chance(0.5) { size } else { -size } }
            }
            Class::ClockLoss => Blow::ClockLoss { host },
            Class::ClockStep => {
                let size = log_uniform_of(rng, 2e4, 1e9) as i64;
                Blow::ClockStep { host, nanoseconds: if rng.chance(0.5) { size } else { -size } }
            }
            Class::Pause => Blow::Pause { host },
            Class::SlowNode => Blow::SlowNode { host, factor: log_uniform_of(rng, 3.0, 1000.0) as u32 },
            Class::SlowDisk => Blow::SlowDisk { host, factor: log_uniform_of(rng, 3.0, 1000.0) as u32 },
            Class::Membership | Class::Upgrade | Class::Strike => {
                let of_class = |(_, kind): &(usize, &StrikeKind)| kind.class == class;
                let kinds: Vec<_> = self.strikes.iter().enumerate().filter(of_class).collect();
                Blow::Strike { which: rng.pick(&kinds)?.0 as u8, draw }
            }
        })
    }

    fn crash(&self, host: HostIndex, loss: Loss, rng: &mut Rng) -> Blow {
        let hosts = match rng.below(10) {
            0 => self.servers().fold(HostMask(0), |mask, host| HostMask(mask.0 | 1 << host)),
            1 => self.side(rng),
            _ => HostMask::of(host),
        };
        let plain = loss == Loss::None;
        // A loss of unsynced writes needs some at that moment.
        let aim = match rng.below(6) {
            0 => Aim::Now,
            1 => Aim::Synced,
            2 if plain => Aim::Synced,
            3 | 4 if plain => Aim::Now,
            _ => Aim::Unsynced,
        };
        Blow::Crash { hosts, aim, loss, output_lost: rng.chance(0.3), draw: rng.bits() }
    }

    fn bridge_or_ring(&self, rng: &mut Rng) -> NetworkPartition {
        let bridge = self.victim(rng);
        if rng.chance(0.5) {
            let hosts = self.servers().fold(HostMask(0), |mask, host| HostMask(mask.0 | 1 << host));
            if hosts.iter().count() > 3 {
                return NetworkPartition::Ring { hosts };
            }
        }
        NetworkPartition::Bridge { side: self.side(rng), bridge }
    }
}

fn millionths(rng: &mut Rng) -> i32 {
    rng.between(0, 2_000_000) as i32 - 1_000_000
}
