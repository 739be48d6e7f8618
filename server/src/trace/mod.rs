//! Traces of requests: one in so many is followed through the roles and hosts that it crosses, and sent to a collector of
//! OpenTelemetry.
//!
//! No message says that its request is followed. Every host computes a request's trace from what names the request, decides by that
//! whether to follow it, and so all decide alike. A span is what one node does for the request, from the message that brings it to the
//! one that takes it away; its parent is the span of the node that the first of them came from.

mod export;
mod observer;
mod request;
mod spans;
mod transactions;

use crate::admin::exposition::MetricsPage;
use crate::cluster::ClusterFile;
use crate::events::EventLog;
use crate::family::OrdinateMessage;
use export::Exporter;
use kernel::HostId;
use observer::RequestObserver;
use request::Sampling;
use runtime::ObservedBy;
use spans::OpenSpans;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Spans that wait to be sent; more are dropped, and counted.
const QUEUED_MAX: usize = 8_192;

/// What the cluster file says of traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceKeys {
    /// Where the collector is: the URL before `/v1/traces`.
    pub endpoint: String,
    /// One request in so many is followed.
    pub one_in: u64,
}

/// How many spans were sent, and how many were not.
#[derive(Default, Debug)]
pub struct TraceCounts {
    sent: AtomicU64,
    dropped: Mutex<BTreeMap<&'static str, u64>>,
}

impl TraceCounts {
    fn drop_span(&self, reason: &'static str) {
        self.drop_spans(reason, 1);
    }

    fn drop_spans(&self, reason: &'static str, spans: u64) {
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_insert(0) += spans;
    }

    #[cfg(test)]
    fn dropped(&self, reason: &str) -> u64 {
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner).get(reason).unwrap_or(&0)
    }
}

/// Why nothing can be followed.
#[derive(Error, Debug)]
pub enum TraceError {
    /// The collector's address is none.
    #[error("traces cannot be sent to {endpoint}: {what}")]
    Endpoint {
        /// The address.
        endpoint: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is no thread for them.
    #[error("traces cannot be sent: {0}")]
    Thread(#[from] std::io::Error),
}

/// What a host sends of the requests that it follows. Cheap to clone; all clones are one.
#[derive(Clone, Default, Debug)]
pub struct Traces(Option<Arc<TraceCounts>>);

impl Traces {
    /// Begins to follow requests, if the cluster file says so: what the host's messages are to be shown to.
    pub fn begin(
        file: &ClusterFile,
        host: &str,
        log: &EventLog,
    ) -> Result<(Self, ObservedBy<OrdinateMessage>), TraceError> {
        let Some(keys) = &file.trace else { return Ok((Self::default(), None)) };
        let counts = Arc::new(TraceCounts::default());
        let (queue, spans) = sync_channel(QUEUED_MAX);
        let exporter = Exporter::new(&keys.endpoint, &file.cluster, host, Arc::clone(&counts), log.clone())?;
        std::thread::Builder::new().name("traces".to_owned()).spawn(move || exporter.run(&spans))?;
        let open = OpenSpans::new(queue, Arc::clone(&counts));
        let observer = RequestObserver::new(HostId::named(host), Sampling { one_in: keys.one_in }, open);
        Ok((Self(Some(counts)), Some(Box::new(observer))))
    }

    /// Adds what became of spans.
    pub fn metrics(&self, page: &mut MetricsPage) {
        let Some(counts) = &self.0 else { return };
        let help = "Spans of followed requests that a collector took";
        page.counter("trace_spans", help, counts.sent.load(Relaxed));
        let dropped = counts.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for reason in DROP_REASONS {
            let help = "Spans that were not sent, by what had no room for them or did not take them";
            let count = dropped.get(reason).copied().unwrap_or(0);
            page.counter_of("trace_dropped", help, &[("reason", reason)], count);
        }
    }
}

/// Too many were open at once, too many waited to be sent, or the collector did not take them.
const DROP_REASONS: [&str; 3] = ["open", "queue", "collector"];
