//! Sends spans to a collector by OTLP over HTTP, on a thread of its own: nobody waits for it.

use super::spans::Span;
use super::{TraceCounts, TraceError};
use crate::events::{EventLog, LogPart};
use crate::http_client::HttpClient;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{Bytes, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Spans in one request.
const BATCH_MAX: usize = 512;
/// A span waits so long for others.
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// How long a collector may take. What comes meanwhile waits in the queue.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Of a collector's answer, in bytes; more is an error.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// That spans were dropped is said this often.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// What sends spans.
pub(super) struct Exporter {
    otlp: opentelemetry_otlp::SpanExporter,
    sender: Arc<Sender>,
    runtime: Runtime,
    scope: InstrumentationScope,
    endpoint: String,
    counts: Arc<TraceCounts>,
    log: EventLog,
    said_at: Option<Instant>,
    unsaid: u64,
}

/// This program's HTTP client, as the exporter wants it. It remembers what went wrong last: the exporter does not say.
#[derive(Debug)]
struct Sender(HttpClient, Mutex<Option<String>>);

impl opentelemetry_http::HttpClient for Sender {
    // The thread has nothing else to do: it waits here.
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let answer = self.0.send(request, ANSWER_BYTES_MAX);
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) =
            answer.as_ref().err().map(ToString::to_string);
        Box::pin(ready(answer.map(|answer| answer.map(Bytes::from)).map_err(HttpError::from)))
    }
}

impl Exporter {
    pub(super) fn new(
        endpoint: &str,
        cluster: &str,
        host: &str,
        counts: Arc<TraceCounts>,
        log: EventLog,
    ) -> Result<Self, TraceError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let sender = Arc::new(Sender(HttpClient::within(ANSWER_WITHIN), Mutex::default()));
        let otlp = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_shared_http_client(Arc::clone(&sender) as Arc<dyn opentelemetry_http::HttpClient>)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(ANSWER_WITHIN)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build();
        let mut otlp = otlp.map_err(|error| TraceError::Endpoint {
            endpoint: endpoint.to_owned(),
            what: error.to_string(),
        })?;
        let host = KeyValue::new("service.instance.id", host.to_owned());
        let cluster = KeyValue::new("service.namespace", cluster.to_owned());
        let resource = Resource::builder().with_service_name("ordinate").with_attributes([cluster, host]);
        otlp.set_resource(&resource.build());
        let scope = InstrumentationScope::builder("ordinate").with_version(env!("CARGO_PKG_VERSION")).build();
        let endpoint = endpoint.to_owned();
        Ok(Self { otlp, sender, runtime, scope, endpoint, counts, log, said_at: None, unsaid: 0 })
    }

    /// Sends until nobody can put a span into the queue any more.
    pub(super) fn run(mut self, spans: &Receiver<Span>) {
        while let Ok(first) = spans.recv() {
            let (mut batch, until) = (vec![first], Instant::now() + BATCH_WITHIN);
            while batch.len() < BATCH_MAX {
                match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.send(batch);
        }
    }

    fn send(&mut self, batch: Vec<Span>) {
        let spans = batch.len() as u64;
        let batch: Vec<SpanData> = batch.into_iter().map(|span| self.data(span)).collect();
        match self.runtime.block_on(self.otlp.export(batch)) {
            Ok(()) => _ = self.counts.sent.fetch_add(spans, Relaxed),
            Err(error) => {
                self.counts.drop_spans("collector", spans);
                self.unsaid += spans;
                if self.said_at.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
                    let (unsaid, endpoint) = (std::mem::take(&mut self.unsaid), &self.endpoint);
                    let cause = self.sender.1.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let cause = cause.unwrap_or_else(|| error.to_string());
                    let line = format!(
                        "{unsaid} spans of followed requests dropped: the collector at {endpoint} does not take them: {cause}"
                    );
                    self.log.warn(LogPart::Traces, &line);
                    self.said_at = Some(Instant::now());
                }
            }
        }
    }

    fn data(&self, span: Span) -> SpanData {
        let id = |number: u64| SpanId::from_bytes(number.to_be_bytes());
        let trace = TraceId::from_bytes(span.trace.0.to_be_bytes());
        let flags = TraceFlags::SAMPLED;
        let mut attributes =
            vec![KeyValue::new("ordinate.service", span.service), KeyValue::new("ordinate.role", span.role)];
        attributes.extend(span.slot.map(|slot| KeyValue::new("ordinate.slot", slot.0 as i64)));
        if span.is_open {
            attributes.push(KeyValue::new("ordinate.unended", true));
        }
        SpanData {
            span_context: SpanContext::new(trace, id(span.number.0), flags, false, TraceState::default()),
            parent_span_id: span.parent.map_or(SpanId::INVALID, |parent| id(parent.0)),
            parent_span_is_remote: span.is_remote,
            span_kind: if span.parent.is_none() { SpanKind::Server } else { SpanKind::Internal },
            name: format!("{} {}", span.service, span.role).into(),
            start_time: span.began,
            end_time: span.ended,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}
