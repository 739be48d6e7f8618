//! What the reactor says of itself: events for the operator, and metrics.

use super::Reactor;
use crate::event::{EventSink, HostEvent};
use crate::link::Link;
use crate::metrics::Metrics;
use crate::shortage::Shortage;
use kernel::Node;
use std::time::Duration;

const REPORT_SHORT_EVERY: Duration = Duration::from_secs(60);
/// A disk on which a blob found no room counts as full for this long after the last try.
const BLOBS_FULL_FOR: Duration = Duration::from_secs(1);

impl<N: Node + 'static> Reactor<N> {
    /// A slow disk is reported each time: who writes the log counts what repeats.
    pub(super) fn notify_of_slow_disk(&mut self) {
        if let Some(took) = self.journal.as_mut().and_then(|journal| journal.take_slow_sync()) {
            self.events_out.push(HostEvent::DiskSlow { took });
        }
    }

    /// What is short again and again is reported once a minute.
    pub(super) fn notify_of_shortage(&mut self) {
        let now = self.nodes.now;
        if self.blobs.shortage() == Some(Shortage::Space) {
            self.blobs_full_at = Some(now);
        }
        let reported_lately = self.short_reported_at.is_some_and(|at| now.since(at) < REPORT_SHORT_EVERY);
        match self.shortage {
            Some(of) if !reported_lately => {
                (self.short_reported_at, self.over_unreported) = (Some(now), Some(of));
                let space = of == Shortage::Space;
                self.events_out.push(if space { HostEvent::DiskFull } else { HostEvent::Short { of } });
            }
            Some(_) => {}
            None => match self.over_unreported.take() {
                Some(Shortage::Space) => self.events_out.push(HostEvent::DiskBack),
                Some(_) => self.events_out.push(HostEvent::NoLongerShort),
                None => {}
            },
        }
    }

    /// A clock that comes and goes is reported once a minute.
    pub(super) fn notify_of_clock(&mut self) {
        let (now, trouble) = (self.nodes.now, self.clock.trouble());
        let (said, at) = self.clock_said;
        let said_lately = at.is_some_and(|at| now.since(at) < REPORT_SHORT_EVERY);
        match trouble {
            Some(trouble) if self.clock_required && said.is_none() && !said_lately => {
                let complaint = self.clock.state().complaint;
                self.clock_said = (Some(trouble), Some(now));
                self.events_out.push(HostEvent::ClockUnusable { trouble, complaint });
            }
            None if said.is_some() => {
                self.clock_said = (None, at);
                self.events_out.push(HostEvent::ClockBack);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn report(&mut self, sink: &mut Option<EventSink>) {
        self.events_out.append(&mut self.clients.events);
        self.events_out.append(&mut self.inbounds.events);
        for event in self.events_out.drain(..) {
            if let Some(sink) = sink {
                sink(&event);
            }
        }
    }

    pub(super) fn metrics(&mut self) -> Metrics {
        let mut metrics = self.router.metrics.clone();
        metrics.clients = self.clients.count() as u64;
        metrics.descriptors = self.clients.descriptors();
        metrics.clients_max = self.clients.connections_max() as u64;
        metrics.clients_by_protocol = self.clients.by_protocol();
        metrics.links_up = self.router.links.iter().filter(|link| link.is_up()).count() as u64;
        let queued: usize = self.router.links.iter_mut().map(Link::queued_bytes).sum();
        metrics.buffered_bytes = (queued + self.clients.held_bytes()) as u64;
        if let Some(journal) = &self.journal {
            let (latency, syncs) = journal.sync_latency();
            metrics.fsync_latency = latency.clone();
            metrics.fsync_latency_recent = journal.sync_latency_recent();
            metrics.fsyncs = syncs;
            metrics.fsync_inline = journal.is_inline();
            metrics.staged_bytes = journal.staged_bytes() as u64;
            metrics.journal_bytes = journal.disk_bytes();
        }
        metrics.clock = self.clock.state();
        metrics.blobs = self.blobs.counts();
        metrics.archive = self.blobs.archive_counts();
        metrics.shortage = self.shortage.or(self.blobs.shortage());
        // Between two tries nothing waits.
        let blobs_wait = self.blobs_full_at.is_some_and(|at| self.nodes.now.since(at) < BLOBS_FULL_FOR);
        metrics.disk_full = metrics.shortage == Some(Shortage::Space) || blobs_wait;
        metrics
    }
}
