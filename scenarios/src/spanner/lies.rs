//! Clocks that lie: for a while a host's clock is off by more than it declares. Within a second the others' clocks have shown it so, and it
//! does nothing any more that rests on time.

use super::{Node, SpannerScenario};
use kernel::{ClockTrouble, HostId, Rng, invariant};
use sim::{Blow, Class, Classes, Cluster, Control};
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
}

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
        let nanoseconds = nanos(size) as i64 * if rng.chance(0.5) { 1 } else { -1 };
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
        lies.begin(host, rng, control)
    }
}
