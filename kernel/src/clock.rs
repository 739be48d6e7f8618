//! Whether a host's wall clock may be relied on: by what its source says, by steps, and by what other hosts' clocks say.
//!
//! Pure, so that both drivers judge alike. A driver feeds [`WallClock`] what it learns, and asks for the interval of each moment.

use crate::id::HostId;
use crate::time::{Instant, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// How far a clock may be off that nobody says anything of: the bound of Linux for one that is not synchronised.
const UNKNOWN_ERROR: Duration = Duration::from_secs(16);
/// How far a monotonic clock may drift, in parts per million: twice what clocks are slewed by at most without a step. What another host
/// said of this one's clock proves less and less as time passes.
const WANDER_PPM: u64 = 1_000;
/// A step of the clock that is smaller is not distinguished from the time that two readings are apart. Every interval is wider by it.
pub const STEP_UNSEEN: Duration = Duration::from_micros(10);
const BILLION: u128 = 1_000_000_000;

/// What a source says of the system's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockBound {
    /// The largest error, either way, at that time.
    pub error: Duration,
    /// That time, by the monotonic clock.
    pub at: Instant,
    /// By how much the error grows since, in nanoseconds a second.
    pub growth_ppb: u32,
    /// For how long since then it may be relied on.
    pub lasts: Duration,
    /// Which measurement of true time it rests on: another number, another measurement.
    pub measurement: u64,
    /// An operator vouches for the clock, its steps included.
    pub vouched: bool,
}

impl ClockBound {
    /// What holds for ever, because an operator says so.
    pub const fn vouched(error: Duration) -> Self {
        Self { error, at: Instant(0), growth_ppb: 0, lasts: Duration::MAX, measurement: 0, vouched: true }
    }

    /// The largest error at `now`, without steps.
    pub fn error_at(&self, now: Instant) -> Duration {
        let grown = now.since(self.at).as_nanos() * u128::from(self.growth_ppb) / BILLION;
        self.error.saturating_add(Duration::from_nanos(grown.min(u128::from(u64::MAX)) as u64))
    }
}

/// Why a wall clock may not be relied on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClockTrouble {
    /// No source says how far it is off.
    Unsynchronised,
    /// It may be further off than is allowed.
    TooWide,
    /// The clocks of half of the hosts, or more, contradict it.
    Contradicted,
}

impl fmt::Display for ClockTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsynchronised => "not synchronised",
            Self::TooWide => "its error exceeds clock.error_max",
            Self::Contradicted => "other hosts' clocks contradict it",
        })
    }
}

/// A step that no measurement of the source has followed yet.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// All that the clock was set by, without regard to the direction.
    by: Duration,
    at: Instant,
    /// What the source rested on when it was read first after the step: that may be older than the step. None: not read yet.
    rests_on: Option<u64>,
}

/// The wall clock of a host.
#[derive(Clone, Debug)]
pub struct WallClock {
    error_max: Duration,
    bound: Option<ClockBound>,
    is_lost: bool,
    step: Option<Step>,
    fence: ClockFence,
    /// Which monotonic clock this is: the time of the first report, so that a restarted host is distinguished.
    run: Option<u64>,
    /// The other hosts of the cluster.
    peers: BTreeSet<HostId>,
}

impl WallClock {
    /// A clock of which nothing is known yet, and that may be relied on while it is off by at most `error_max`.
    pub fn new(error_max: Duration) -> Self {
        let fence = ClockFence::default();
        Self { error_max, bound: None, is_lost: true, step: None, fence, run: None, peers: BTreeSet::new() }
    }

    /// The source was read.
    pub fn on_bound(&mut self, bound: ClockBound) {
        if let Some(step) = &mut self.step
            && bound.at > step.at
        {
            match step.rests_on {
                None => step.rests_on = Some(bound.measurement),
                Some(before) if before != bound.measurement => self.step = None,
                Some(_) => {}
            }
        }
        (self.bound, self.is_lost) = (Some(bound), false);
    }

    /// The source says that nobody keeps the clock, or says nothing.
    pub fn on_loss(&mut self) {
        self.is_lost = true;
    }

    /// The system's clock was set by so much. The interval is wider by it until the source rests on a measurement that is younger.
    pub fn on_step(&mut self, by: Duration, now: Instant) {
        let before = self.step.map_or(Duration::ZERO, |step| step.by);
        self.step = Some(Step { by: before.saturating_add(by), at: now, rests_on: None });
    }

    /// Another host has said how its clock stands. `mine` is this host's interval, read after that arrived. One that is not of the cluster,
    /// or no more, judges no clock.
    pub fn on_report(&mut self, from: HostId, report: ClockReport, mine: Wall, now: Instant) {
        if !self.peers.contains(&from) {
            return;
        }
        let mine = self.vouches(now).then_some(mine);
        self.fence.hear(from, report, (mine, now), self.run);
    }

    /// The hosts of the cluster beside this one.
    pub fn set_peers(&mut self, peers: impl IntoIterator<Item = HostId>) {
        self.peers = peers.into_iter().collect();
        self.fence.retain(|host| self.peers.contains(&host));
    }

    /// What this host says to another one.
    pub fn report(&mut self, to: HostId, mine: Wall, now: Instant) -> ClockReport {
        let run = *self.run.get_or_insert(mine.earliest);
        let interval = self.vouches(now).then_some((mine.earliest, mine.latest));
        let contradicts = self.fence.has_proof_against(to);
        let sent = Some(ClockMoment { run, at: now.0 });
        ClockReport { interval, contradicts, sent, heard: self.fence.heard_from(to) }
    }

    /// The interval at `now`, when the system's clock is at `system` nanoseconds since the Unix epoch.
    pub fn wall(&self, now: Instant, system: u64) -> Wall {
        let error = self.error(now).as_nanos().min(u128::from(u64::MAX)) as u64;
        let (earliest, latest) = (system.saturating_sub(error), system.saturating_add(error));
        let wall = Wall { earliest, latest, usable: false };
        Wall { usable: self.trouble(now, wall).is_none(), ..wall }
    }

    /// The largest error at `now`; while nobody vouches for the clock, what it was last, or 16 seconds.
    pub fn error(&self, now: Instant) -> Duration {
        let Some(bound) = self.bound else { return UNKNOWN_ERROR };
        if bound.vouched {
            return bound.error;
        }
        let steps = self.step.map_or(Duration::ZERO, |step| step.by);
        bound.error_at(now).saturating_add(steps).saturating_add(STEP_UNSEEN)
    }

    /// Why it may not be relied on at `now`, when its interval is `mine`; none if it may.
    pub fn trouble(&self, now: Instant, mine: Wall) -> Option<ClockTrouble> {
        if !self.vouches(now) {
            Some(ClockTrouble::Unsynchronised)
        } else if self.error(now) > self.error_max {
            Some(ClockTrouble::TooWide)
        } else if self.fence.is_closed(self.peers.len() + 1, mine, now) {
            Some(ClockTrouble::Contradicted)
        } else {
            None
        }
    }

    /// The hosts whose clocks contradict this one's at `now`, when its interval is `mine`.
    pub fn contradicted_by(&self, mine: Wall, now: Instant) -> impl Iterator<Item = HostId> + '_ {
        self.fence.contradictions(mine, now)
    }

    /// True while the source stands for the interval, however wide it is.
    fn vouches(&self, now: Instant) -> bool {
        let stands = |bound: &ClockBound| now.since(bound.at) <= bound.lasts;
        !self.is_lost && self.bound.as_ref().is_some_and(stands)
    }
}

crate::record! {
    /// A moment by one host's monotonic clock.
    #[derive(Copy, Eq)]
    pub struct ClockMoment {
        /// Which clock that is: another incarnation of the host has another one.
        run: u64,
        /// By that clock, in nanoseconds.
        at: u64,
    }
}

crate::record! {
    /// When a report that is contradicted was sent, and how late it can have been when it arrived.
    #[derive(Copy, Eq)]
    pub struct ClockHeard {
        /// When, by the clock of its sender.
        sent: ClockMoment,
        /// The latest true time when it arrived, in nanoseconds since the Unix epoch.
        latest: u64,
    }
}

crate::record! {
    /// What a host says of its clock to another one.
    #[derive(Copy, Eq)]
    pub struct ClockReport {
        /// The earliest and the latest true time when it was sent, in nanoseconds since the Unix epoch; none while nobody vouches for it.
        interval: Option<(u64, u64)>,
        /// The receiver's clock contradicts the sender's.
        contradicts: bool,
        /// When it was sent; none from an earlier version.
        sent: Option<ClockMoment>,
        /// Which report of the receiver shows that; none from an earlier version, or of one.
        heard: Option<ClockHeard>,
    }
}

/// Who contradicts whom. What a host said arrives later than it was sent: if its earliest time is after our latest, one of the two
/// is wrong. A clock that is behind is proven wrong by its own host only, which says so to the other one.
///
/// Either is a bound on the true time at a moment of this host's monotonic clock, so it is held against each later interval: a clock
/// that has been put right is contradicted no more, also if who contradicted it is silent; one that goes on as it was still is.
///
/// Invariant: of hosts whose intervals all hold the true time, none contradicts another.
#[derive(Clone, Debug, Default)]
pub struct ClockFence {
    /// For each host whose last report contradicts: what proves it.
    against: BTreeMap<HostId, Proof>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Proof {
    /// At that moment of our clock it was so late, or later: the other host's earliest time.
    not_before: Option<(Instant, u64)>,
    /// Which of its reports that was, and our latest time then.
    heard: Option<ClockHeard>,
    theirs: Theirs,
}

/// What the other host can prove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theirs {
    Nothing,
    /// It does not say by what.
    Something,
    /// At that moment of our clock it was so late at most.
    NotAfter(Instant, u64),
}

impl Proof {
    /// Whether it still holds against an interval.
    fn holds(&self, mine: Wall, now: Instant) -> bool {
        let passed = |at: Instant| now.since(at).as_nanos() as u64;
        let wander = |passed: u64| passed / 1_000_000 * WANDER_PPM;
        let behind = self.not_before.is_some_and(|(at, earliest)| {
            let since = passed(at);
            mine.latest < earliest.saturating_add(since).saturating_sub(wander(since))
        });
        let ahead = match self.theirs {
            Theirs::Nothing => false,
            Theirs::Something => true,
            Theirs::NotAfter(at, latest) => {
                let since = passed(at);
                mine.earliest > latest.saturating_add(since).saturating_add(wander(since))
            }
        };
        behind || ahead
    }
}

impl ClockFence {
    /// Takes a report; `mine` is this host's interval after it arrived, at `now`, or none if nobody vouches for it. `run` is which
    /// monotonic clock this host has.
    pub fn hear(
        &mut self,
        from: HostId,
        report: ClockReport,
        (mine, now): (Option<Wall>, Instant),
        run: Option<u64>,
    ) {
        let Some((earliest, _)) = report.interval else {
            // It claims nothing.
            self.against.remove(&from);
            return;
        };
        let Some(mine) = mine else { return };
        let theirs = match report.heard.filter(|_| report.contradicts) {
            None if report.contradicts => Theirs::Something,
            Some(heard) if Some(heard.sent.run) == run => {
                Theirs::NotAfter(Instant(heard.sent.at), heard.latest)
            }
            // What an earlier incarnation of this host said of its clock says nothing of this one's.
            Some(_) | None => Theirs::Nothing,
        };
        let is_ours = earliest > mine.latest;
        let not_before = is_ours.then_some((now, earliest));
        let heard = report.sent.filter(|_| is_ours).map(|sent| ClockHeard { sent, latest: mine.latest });
        if is_ours || theirs != Theirs::Nothing {
            self.against.insert(from, Proof { not_before, heard, theirs });
        } else {
            self.against.remove(&from);
        }
    }

    /// Forgets hosts that are no longer of the cluster.
    pub fn retain(&mut self, is_peer: impl Fn(HostId) -> bool) {
        self.against.retain(|host, _| is_peer(*host));
    }

    /// Whether this host had the proof, when it heard of it last, that its clock and the other's cannot both be right.
    pub fn has_proof_against(&self, host: HostId) -> bool {
        self.against.get(&host).is_some_and(|proof| proof.not_before.is_some())
    }

    /// By which of the other's reports.
    fn heard_from(&self, host: HostId) -> Option<ClockHeard> {
        self.against.get(&host).and_then(|proof| proof.heard)
    }

    /// The hosts that contradict this one at `now`, when its interval is `mine`.
    pub fn contradictions(&self, mine: Wall, now: Instant) -> impl Iterator<Item = HostId> + '_ {
        let holding = self.against.iter().filter(move |(_, proof)| proof.holds(mine, now));
        holding.map(|(&host, _)| host)
    }

    /// True if half of `hosts` or more contradict this one: it may be the one that is wrong, and a majority that is right has none
    /// against its own.
    pub fn is_closed(&self, hosts: usize, mine: Wall, now: Instant) -> bool {
        let against = self.contradictions(mine, now).count();
        against > 0 && 2 * against >= hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decode as _, Encode as _, Reader};

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);
    const SYSTEM: u64 = 1_767_225_600_000_000_000;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn trouble(clock: &WallClock, now: Instant) -> Option<ClockTrouble> {
        clock.trouble(now, clock.wall(now, SYSTEM))
    }

    fn bound(error: Duration, at: Instant, measurement: u64) -> ClockBound {
        let lasts = Duration::from_secs(5);
        ClockBound { error, at, growth_ppb: 50_000, lasts, measurement, vouched: false }
    }

    // An error that does not grow, or a source that is believed for ever, leaves the true time out.
    #[test]
    fn the_interval_grows_and_ends() {
        let mut clock = WallClock::new(10 * MS);
        assert_eq!(trouble(&clock, at(0)), Some(ClockTrouble::Unsynchronised), "nothing is known yet");
        assert_eq!(clock.wall(at(0), SYSTEM).midpoint(), SYSTEM);
        clock.on_bound(bound(MS, at(0), 1));
        let wall = clock.wall(at(2_000), SYSTEM).trusted().expect("it was read two seconds ago");
        assert_eq!(
            wall.latest - SYSTEM,
            1_000_000 + 100_000 + 10_000,
            "100 us in 2 s at 50 ppm, and unseen steps"
        );
        assert_eq!(SYSTEM - wall.earliest, wall.latest - SYSTEM);
        assert!(clock.wall(at(5_000), SYSTEM).usable && !clock.wall(at(5_001), SYSTEM).usable);
        clock.on_bound(bound(10 * MS, at(6_000), 2));
        assert_eq!(trouble(&clock, at(6_000)), Some(ClockTrouble::TooWide));
        clock.on_bound(bound(MS, at(7_000), 3));
        assert_eq!(trouble(&clock, at(7_000)), None, "usable again by itself");
        clock.on_loss();
        assert_eq!(trouble(&clock, at(7_000)), Some(ClockTrouble::Unsynchronised));
    }

    // A step whose widening ends with a measurement from before the step is a lie of the step's size.
    #[test]
    fn a_step_widens_until_a_younger_measurement() {
        let mut clock = WallClock::new(100 * MS);
        clock.on_bound(bound(MS, at(0), 1));
        clock.on_step(3 * MS, at(1_000));
        clock.on_step(2 * MS, at(1_001));
        assert_eq!(clock.error(at(1_001)), 6 * MS + 50 * US + 10 * US + Duration::from_nanos(50));
        clock.on_bound(bound(MS, at(900), 2));
        assert!(clock.error(at(1_001)) > 6 * MS, "read before the step");
        clock.on_bound(bound(MS, at(1_500), 3));
        assert!(clock.error(at(1_500)) > 6 * MS, "read after the step, perhaps measured before it");
        clock.on_bound(bound(MS, at(2_500), 3));
        assert!(clock.error(at(2_500)) > 6 * MS, "the same measurement");
        clock.on_bound(bound(MS, at(3_500), 4));
        assert_eq!(clock.error(at(3_500)), MS + 10 * US);
    }

    // Who vouches for a clock vouches for its steps; a width that changes is not the one that was asked for.
    #[test]
    fn a_vouched_clock_is_as_wide_as_said() {
        let mut clock = WallClock::new(100 * MS);
        clock.on_bound(ClockBound::vouched(2 * MS));
        clock.on_step(Duration::from_secs(9), at(5));
        let wall = clock.wall(at(1_000_000_000), SYSTEM);
        assert_eq!((wall.latest - wall.earliest, wall.usable), (4_000_000, true));
    }

    struct Host {
        clock: WallClock,
        id: HostId,
        /// How far its clock is off, in nanoseconds.
        off: i64,
    }

    /// Hosts whose clocks have an error of 1 ms at most, and really are off by so much.
    fn cluster(off: &[i64]) -> Vec<Host> {
        let ids: Vec<HostId> = (1..=off.len() as u32).map(HostId).collect();
        let host = |(&id, &off): (&HostId, &i64)| {
            let mut clock = WallClock::new(100 * MS);
            clock.on_bound(ClockBound::vouched(MS));
            clock.set_peers(ids.iter().copied().filter(|peer| *peer != id));
            Host { clock, id, off }
        };
        ids.iter().zip(off).map(host).collect()
    }

    /// Every host says to every other one how its clock stands, and is heard `delay` nanoseconds later.
    fn exchange(hosts: &mut [Host], delay: u64) {
        let now = at(1);
        for from in 0..hosts.len() {
            for to in 0..hosts.len() {
                if from == to {
                    continue;
                }
                let wall = hosts[from].clock.wall(now, SYSTEM.saturating_add_signed(hosts[from].off));
                let report = hosts[from].clock.report(hosts[to].id, wall, now);
                let sender = hosts[from].id;
                let host = &mut hosts[to];
                let mine = host.clock.wall(now, (SYSTEM + delay).saturating_add_signed(host.off));
                host.clock.on_report(sender, report, mine, now);
            }
        }
    }

    fn fenced(hosts: &[Host]) -> Vec<bool> {
        fenced_at(hosts, 1)
    }

    /// So late, in milliseconds; the exchange was at 1.
    fn fenced_at(hosts: &[Host], ms: u64) -> Vec<bool> {
        let system = |host: &Host| (SYSTEM + at(ms).0 - at(1).0).saturating_add_signed(host.off);
        hosts.iter().map(|host| !host.clock.wall(at(ms), system(host)).usable).collect()
    }

    // A liar that goes on, or an honest host that is blamed for it, both break a cluster.
    #[test]
    fn who_contradicts_half_of_the_hosts_is_fenced_whichever_way_it_is_off() {
        for lie in [-50_000_000, 50_000_000] {
            let mut hosts = cluster(&[lie, 0, 0]);
            exchange(&mut hosts, 200_000);
            exchange(&mut hosts, 200_000);
            assert_eq!(fenced(&hosts), [true, false, false], "{lie}");
            hosts[0].off = 0;
            exchange(&mut hosts, 200_000);
            exchange(&mut hosts, 200_000);
            assert_eq!(fenced(&hosts), [false; 3], "it is right again");
        }
        let mut five = cluster(&[40_000_000, 0, -40_000_000, 900_000, -900_000]);
        for _ in 0..2 {
            exchange(&mut five, 0);
        }
        assert_eq!(fenced(&five), [true, false, true, false, false], "two liars of five");
        let mut two = cluster(&[40_000_000, 0]);
        for _ in 0..2 {
            exchange(&mut two, 0);
        }
        assert_eq!(fenced(&two), [true; 2], "nobody knows which of two is right");
    }

    // Honest clocks at opposite edges, and messages that take long, prove nothing.
    #[test]
    fn honest_hosts_never_contradict_each_other() {
        let mut rng = crate::Rng::seeded(5);
        for _ in 0..2_000 {
            let off: Vec<i64> = (0..4).map(|_| rng.between(0, 2_000_000) as i64 - 1_000_000).collect();
            let mut hosts = cluster(&off);
            let delay = rng.below(100_000_000);
            exchange(&mut hosts, delay);
            exchange(&mut hosts, 0);
            assert!(
                fenced(&hosts) == [false; 4] && hosts.iter().all(|host| host.clock.fence.against.is_empty()),
                "{off:?}, {delay}"
            );
        }
    }

    // A host that is right again waits for ever for those who said that it was wrong, and are gone; or is believed, because they are.
    #[test]
    fn what_the_silent_said_is_held_against_the_clock_as_it_is_now() {
        for lie in [-200_000_000, 200_000_000] {
            let mut hosts = cluster(&[lie, 0, 0]);
            exchange(&mut hosts, 1_000_000);
            exchange(&mut hosts, 1_000_000);
            assert_eq!(fenced_at(&hosts, 60_000), [true, false, false], "{lie}: nobody took it back");
            hosts[0].off /= 2;
            assert_eq!(fenced_at(&hosts, 60_000), [true, false, false], "{lie}: half a lie is one");
            hosts[0].off = 0;
            assert_eq!(fenced_at(&hosts, 60_000), [false; 3], "{lie}: it is right again");
            hosts[0].off = lie;
            assert_eq!(fenced_at(&hosts, 300_000), [false; 3], "{lie}: it may have drifted to the truth");
        }
    }

    // A restarted host is blamed for the clock that it had before.
    #[test]
    fn what_was_said_of_an_earlier_incarnation_is_not_held_against_the_next() {
        let mut hosts = cluster(&[50_000_000, 0, 0]);
        exchange(&mut hosts, 0);
        let other = hosts[1].clock.wall(at(1), SYSTEM);
        let mut said = hosts[1].clock.report(HostId(1), other, at(1));
        assert!(said.contradicts && said.heard.is_some(), "{said:?}");
        hosts[0] = cluster(&[1]).remove(0);
        hosts[0].clock.set_peers([HostId(2), HostId(3)]);
        let mine = hosts[0].clock.wall(at(1), SYSTEM);
        hosts[0].clock.report(HostId(2), mine, at(1));
        hosts[0].clock.on_report(HostId(2), said, mine, at(1));
        assert!(!fenced(&hosts)[0]);
        // An earlier version does not say which report it means.
        said.heard = None;
        hosts[0].clock.on_report(HostId(2), said, mine, at(1));
        hosts[0].clock.on_report(HostId(3), said, mine, at(1));
        assert!(fenced(&hosts)[0]);
    }

    // A host that withdrew its claim, or left the cluster, must not keep others from their duties.
    #[test]
    fn what_is_withdrawn_or_gone_is_forgotten() {
        let mut hosts = cluster(&[50_000_000, 0]);
        exchange(&mut hosts, 0);
        exchange(&mut hosts, 0);
        assert_eq!(fenced(&hosts), [true; 2]);
        hosts[0].clock.on_loss();
        exchange(&mut hosts, 0);
        assert_eq!(fenced(&hosts), [true, false], "the first has no clock, the second an undisputed one");
        hosts[0].clock.on_bound(ClockBound::vouched(MS));
        exchange(&mut hosts, 0);
        exchange(&mut hosts, 0);
        assert_eq!(fenced(&hosts), [true; 2]);
        hosts[1].clock.set_peers([]);
        assert_eq!(fenced(&hosts), [true, false]);
        exchange(&mut hosts, 0);
        assert!(!fenced(&hosts)[1], "who is gone may say what it likes");
    }

    // A report that reads back otherwise accuses honest hosts.
    #[test]
    fn reports_have_their_bytes() {
        let interval = [1, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let moment = [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let sent = ClockMoment { run: 7, at: 9 };
        let heard = Some(ClockHeard { sent, latest: 11 });
        let silent = ClockReport { interval: None, contradicts: true, sent: None, heard: None };
        let full = ClockReport { interval: Some((3, 5)), contradicts: true, sent: Some(sent), heard };
        let of_full = [&interval[..], &[1, 1], &moment, &[1], &moment, &[11, 0, 0, 0, 0, 0, 0, 0]].concat();
        let read = |bytes: Vec<u8>| ClockReport::decode(&mut Reader::new(bytes.into())).expect("it reads");
        for (report, golden) in [(silent, vec![0, 1, 0, 0]), (full, of_full)] {
            let mut bytes = Vec::new();
            report.encode(&mut bytes);
            assert_eq!((&bytes, read(bytes.clone())), (&golden, report));
        }
        assert_eq!(read(vec![0, 1]), silent, "an earlier version's");
    }
}
