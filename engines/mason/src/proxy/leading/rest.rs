//! A leader to whom nothing comes: it waits for its sequencer to fall silent.

use super::{BEACONS_MISSED, Lead};
use crate::proxy::{Frame, Proxy, ProxyTimer};
use crate::topology::MasonParameters;
use kernel::{Cx, Instant, REPEAT_WITHIN, Recount, Statement};
use std::time::Duration;

/// A leader at rest asks the sequencer at least so often before it suspects it.
const PINGS_PER_SUSPICION: u32 = 3;
/// A leader at rest looks so often for what no message brings: rounds of the ring, and what is no longer retained for a server that lags.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Lead {
    /// Nothing is on its way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.begun
            && self.queue.is_empty()
            && self.pending.is_empty()
            && !self.sequencing.probing
            && !self.sequencing.is_sealing()
    }

    /// Waits for the next tick: at rest, if nothing is on its way to others either, until the sequencer falls silent.
    pub(in crate::proxy) fn await_tick(&mut self, settled: bool, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        let now = cx.now();
        let bears = BEACONS_MISSED * REPEAT_WITHIN;
        let needs_none = frame.idle || frame.topology.sequencers.is_empty();
        let is_seen = self.sequencing.seen_at(cx).is_some_and(|at| now.since(at) < bears);
        self.listens =
            settled && self.is_at_rest() && self.may_rest(frame.parameters) && (needs_none || is_seen);
        if !self.listens {
            return cx.set_timer(ProxyTimer::Tick, self.tick_after(frame.parameters, now));
        }
        let clock = frame.awaits_time.then(|| (self.clock_at + frame.parameters.clock_every).since(now));
        let after = clock.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
        let sequencer = self.sequencing.node().filter(|_| !needs_none);
        cx.await_silence(ProxyTimer::Tick, sequencer, bears, after + kernel::until_moment(now + after));
    }

    /// What it says of what waits: it is all that a leader has to do.
    pub(in crate::proxy) fn statement(&self) -> Statement {
        let counted = self.queue.iter().map(|item| item.operation.body.len()).sum();
        Statement {
            recounts: vec![Recount::of("bytes of queued operations", self.queue_bytes, counted)],
            unfinished: vec![("operations queued", self.queue.len()), ("batches", self.pending.len())],
            ..Statement::default()
        }
    }

    /// Something has come to a leader that waits for a silence.
    pub(in crate::proxy) fn look_soon(&mut self, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
        if std::mem::take(&mut self.listens) {
            cx.set_timer(ProxyTimer::Tick, self.tick_after(frame.parameters, cx.now()));
        }
    }

    /// A sequencer is asked often enough to be suspected by what is lost of that.
    fn may_rest(&self, parameters: &MasonParameters) -> bool {
        parameters.suspect_after >= PINGS_PER_SUSPICION * REPEAT_WITHIN
    }

    /// When it looks again: at rest, when its host wakes anyhow.
    fn tick_after(&self, parameters: &MasonParameters, now: Instant) -> Duration {
        if self.is_at_rest() && self.may_rest(parameters) {
            return parameters.tick.max(kernel::until_moment(now));
        }
        parameters.tick
    }
}
