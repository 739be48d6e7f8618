//! Clocks that lie: for a while a host's clock is off by more than it declares. Within a second the others' clocks have shown it so, and it
//! does nothing any more that rests on time.

use super::workload;
use super::{Node, SpannerScenario};
use kernel::{ClockTrouble, HostId, NodeId, Rng, invariant};
use sim::{Blow, Class, Classes, Cluster, Control, Hindrance};
use std::time::Duration;

/// Within what time a host must know that its clock lies.
const FENCED_WITHIN: Duration = Duration::from_secs(1);

/// One host's clock, from now on.
#[derive(Clone, Copy, Debug)]
struct Lie {
    host: HostId,
    from: u64,
    until: u64,
    /// After this, nothing rests on the lie any more that anybody may have believed in: timestamps of its future have passed.
    over_at: u64,
}

/// All lies of a run, one at a time.
#[derive(Default)]
pub(super) struct Lies {
    lies: Vec<Lie>,
    /// Who believes in a later time, and asks for a lock that another one holds.
    waits: Option<HostId>,
    waited: u16,
}

/// The alarm by which it does.
pub(super) const WAITS_FOR_A_LOCK: u64 = 3;
/// Behind that of who holds it.
const WAITS_AFTER: Duration = Duration::from_millis(30);
/// The sessions of those two.
const CLIENTS_FROM: u16 = 25_000;

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// What may strike beside a lie: only a host that hears a majority can be shown by it.
pub(super) fn classes() -> Classes {
    let hidden = [
        Class::Partition,
        Class::OneWayPartition,
        Class::BridgePartition,
        Class::Crash,
        Class::LostWrites,
        Class::TornWrite,
        Class::ReorderedWrites,
        Class::WriteError,
        Class::Pause,
        Class::ClockLoss,
        Class::ClockStep,
        // Beyond what clocks are taken to drift by, nobody can say what was right a while ago.
        Class::ClockDrift,
    ];
    hidden.into_iter().fold(Classes::PHYSICAL, Classes::without).with(Class::Strike)
}

impl Lies {
    /// A host's clock lies for a few seconds, by more than two honest clocks can differ.
    pub(super) fn begin(&mut self, host: HostId, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let now = control.cluster.now();
        if self.lies.last().is_some_and(|lie| now < lie.until.max(lie.over_at)) {
            return false;
        }
        let size = 5 * control.cluster.clock_error()
            + rng.duration(Duration::from_millis(20), Duration::from_millis(500));
        let lasts = size + rng.duration(Duration::from_secs(3), Duration::from_secs(6));
        let over_at = now + nanos(FENCED_WITHIN + size + control.cluster.clock_error());
        self.lies.push(Lie { host, from: now, until: now + nanos(lasts), over_at });
        let is_ahead = rng.chance(0.6);
        self.waits = is_ahead.then_some(host);
        let nanoseconds = nanos(size) as i64 * if is_ahead { 1 } else { -1 };
        let hosts: Vec<HostId> = control.cluster.hosts().collect();
        let index = hosts.iter().position(|it| *it == host).unwrap_or(0) as u8;
        control.inflict(Blow::ClockLie { host: index, nanoseconds }, lasts);
        control.mark("scenario.clock_lied");
        true
    }

    /// The core is healed: clocks are honest again.
    pub(super) fn end(&mut self, now: u64) {
        self.lies.iter_mut().for_each(|lie| lie.until = lie.until.min(now));
    }

    /// Whether something that took so long may have believed a lie.
    pub(super) fn may_have_misled(&self, (from, until): (u64, u64)) -> bool {
        self.lies.iter().any(|lie| from <= lie.over_at && lie.from <= until)
    }

    /// A host whose clock lies knows it soon.
    pub(super) fn check(&self, cluster: &Cluster<'_, Node>) {
        let now = cluster.now();
        for lie in self.lies.iter().filter(|lie| now < lie.until && now > lie.from + nanos(FENCED_WITHIN)) {
            let trouble = cluster.clock_trouble(lie.host);
            invariant!(
                FENCED,
                trouble == Some(ClockTrouble::Contradicted),
                "the clock of {:?} has lied since {}, and its trouble is {trouble:?} at {now}",
                lie.host,
                lie.from
            );
        }
    }
}

impl SpannerScenario {
    /// A clock lies, in the seeds where some may.
    pub(super) fn lie(&mut self, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let Some(lies) = &mut self.lies else { return false };
        let Some(&host) = rng.pick(&self.hosts) else { return false };
        let begun = lies.begin(host, rng, control);
        let others: Vec<HostId> = self.hosts.iter().copied().filter(|other| *other != host).collect();
        if let (true, Some(&other)) = (begun && lies.waits == Some(host), rng.pick(&others)) {
            let held = rng.duration(Duration::from_millis(100), Duration::from_millis(500));
            self.hold_a_lock(other, held, control);
        }
        begun
    }

    /// A gateway reads under locks, and does not hear for a while that it has them.
    fn hold_a_lock(&mut self, host: HostId, lasts: Duration, control: &mut Control<'_, Node>) {
        let Some(lies) = &mut self.lies else { return };
        let client = CLIENTS_FROM + 2 * lies.waited;
        let planned = workload::reads_and_writes(u64::from(client) << 32, &format!("{client}.holds"));
        let node = self.deployment.gateway_of(host);
        control.hinder(node, Hindrance::Held, lasts);
        control.alarm(WAITS_AFTER, WAITS_FOR_A_LOCK);
        self.ask_for(client, node, planned, control);
    }

    /// What is asked at a time that is ahead waits for that lock: its earliest end is put off further than its commit timestamp.
    pub(super) fn wait_for_a_lock(&mut self, control: &mut Control<'_, Node>) {
        let Some(lies) = &mut self.lies else { return };
        let Some(host) = lies.waits.take() else { return };
        control.mark("scenario.waited_for_a_lock_with_a_clock_ahead");
        let client = CLIENTS_FROM + 2 * lies.waited + 1;
        lies.waited += 1;
        let planned = workload::writes_alone(u64::from(client) << 32, &format!("{client}.waits"));
        let node = self.deployment.gateway_of(host);
        self.ask_for(client, node, planned, control);
    }

    fn ask_for(
        &mut self,
        client: u16,
        node: NodeId,
        planned: workload::Planned,
        control: &mut Control<'_, Node>,
    ) {
        let id = self.ask(node, &planned.call, control);
        self.history.asked(id, (client, 0), node, &planned, control.cluster.now());
        if let Some(mut interactive) = planned.interactive {
            interactive.first(id);
            self.interactive.insert(id, interactive);
        }
    }
}
