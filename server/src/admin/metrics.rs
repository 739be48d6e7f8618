//! `/metrics`, in OpenMetrics or in the text format that came before.

use super::Admin;
use super::exposition::{Format, MetricKind, MetricsPage};
use crate::status::HostStatus;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runtime::Metrics;
use std::sync::Arc;

/// Answers a scrape.
pub async fn metrics(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let Some((status, metrics)) = HostStatus::of(&admin.handle, &admin.file, &admin.host).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer\n").into_response();
    };
    let status = status.with(&*admin.health.latest().await);
    let mut page = MetricsPage::default();
    let names = ["version", "cluster", "host", "durability"];
    let texts = [status.version, &status.cluster, &status.host, &status.durability];
    let labels: Vec<(&str, &str)> = names.into_iter().zip(texts).collect();
    page.info("", "The program and its host", &labels);
    page.info("clock", "Who bounds the error of the wall clock", &[("source", metrics.clock.source)]);
    for service in admin.file.services() {
        let labels = [("service", service.listed().name), ("engine", service.engine().name())];
        page.info("service", "The services that are on, and what orders them", &labels);
    }
    counters(&mut page, &metrics);
    counters_by(&mut page, "rejects", "reason", "Messages turned away", metrics.rejects.iter());
    counters_by(&mut page, "drops", "reason", "Messages dropped", metrics.drops.iter());
    let closes = admin.counts.by_reason();
    counters_by(&mut page, "admin_closes", "reason", "Refusals at this port", closes.iter());
    counters_by(&mut page, "client_closes", "reason", "Client connections closed", metrics.closes.iter());
    gauges(&mut page, &admin, &status, &metrics);
    for (host, link) in &status.links {
        let (name, help) = ("link_up", "1 while messages can leave for the other host");
        page.gauge_of(name, help, &[("peer", host)], f64::from(u8::from(link.up)));
    }
    for (host, link) in &status.links {
        let (name, help) = ("peer_heard", "1 while the other host is heard");
        page.gauge_of(name, help, &[("peer", host)], f64::from(u8::from(link.heard)));
    }
    for (service, serves) in &status.serves {
        let (name, help) = ("service_ready", "1 while users of the service are served here");
        page.gauge_of(name, help, &[("service", service)], f64::from(u8::from(*serves)));
    }
    status.services.iter().for_each(|service| service.metrics(&mut page));
    admin.latencies.metrics(&mut page);
    admin.access.metrics(&mut page);
    if let Some(tls) = &admin.tls {
        tls.metrics(&mut page);
    }
    let process = std::process::id();
    if let Some(cpu) = crate::process::cpu_time(process) {
        let help = "Processor time that the process has used";
        page.named_by_others("process_cpu_seconds", MetricKind::Counter, help, cpu.as_secs_f64());
    }
    if let Some(bytes) = crate::process::resident_bytes(process) {
        let help = "Memory that the process has in use";
        page.named_by_others("process_resident_memory_bytes", MetricKind::Gauge, help, bytes as f64);
    }
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::wanted(accept);
    ([(header::CONTENT_TYPE, format.content_type())], page.written(format)).into_response()
}

/// The counters without labels.
fn counters(page: &mut MetricsPage, metrics: &Metrics) {
    let counters = [
        ("messages_in", "Messages from other hosts and clients", metrics.messages_in),
        ("messages_out", "Messages to other hosts and clients", metrics.messages_out),
        ("messages_local", "Messages between roles of this host", metrics.messages_local),
        (
            "messages_repeated_in",
            "Messages from other hosts that were the same as before",
            metrics.repeats_in,
        ),
        (
            "messages_repeated_out",
            "Messages to other hosts that were the same as before",
            metrics.repeats_out,
        ),
        ("bytes_in", "Bytes from other hosts", metrics.bytes_in),
        ("bytes_out", "Bytes to other hosts", metrics.bytes_out),
        ("bursts", "Rounds of the reactor", metrics.bursts),
        ("fsyncs", "Times the journal was synced", metrics.fsyncs),
        ("rounds_limited", "Rounds of the reactor that left work to the next", metrics.rounds_limited),
        ("reads_stopped", "Times a client was read no further before it reads", metrics.reads_stopped),
        ("segments_written", "Segments of logs written to the disk", metrics.blobs.stores),
        ("segment_loads", "Reads of parts of segments", metrics.blobs.loads),
        ("segment_loaded_bytes", "Bytes read from segments", metrics.blobs.loaded_bytes),
        ("clock_steps", "Times somebody set the system's clock", metrics.clock.steps),
        ("segments_lost", "Reads of segments that were gone or damaged", metrics.blobs.lost),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, value);
    }
}

/// The gauges without labels.
fn gauges(page: &mut MetricsPage, admin: &Admin, status: &HostStatus, metrics: &Metrics) {
    let gauges = [
        ("clients", "Client connections", metrics.clients as f64),
        ("clients_max", "Client connections that may be open at once", metrics.clients_max as f64),
        ("client_descriptors", "Descriptors that clients have", metrics.descriptors.0 as f64),
        ("client_descriptors_max", "Descriptors that clients may have", metrics.descriptors.1 as f64),
        ("admin_connections", "Connections to this port", admin.counts.open() as f64),
        (
            "journal_short",
            "1 while the journal waits for files, memory or space",
            f64::from(u8::from(metrics.shortage.is_some())),
        ),
        ("links_up", "Links to other hosts that are up", metrics.links_up as f64),
        (
            "buffered_bytes",
            "Memory held for what waits to be written to sockets",
            metrics.buffered_bytes as f64,
        ),
        (
            "batcher_bytes",
            "Bytes of commands and reads at the batcher, from their arrival to their answers",
            status.batcher_bytes as f64,
        ),
        ("staged_bytes", "Bytes that wait for the disk", metrics.staged_bytes as f64),
        ("journal_bytes", "Size of the journal", metrics.journal_bytes as f64),
        ("segments", "Segments of logs on the disk", metrics.blobs.files as f64),
        ("segment_bytes", "Bytes of segments on the disk", metrics.blobs.bytes as f64),
        ("clock_bound_seconds", "How far the wall clock may be off", metrics.clock.error.as_secs_f64()),
        (
            "clock_usable",
            "1 while the wall clock may be relied on",
            f64::from(u8::from(metrics.clock.trouble.is_none())),
        ),
        ("disk_full", "1 while the disk is full", f64::from(u8::from(metrics.disk_full))),
        ("fsync_p50_seconds", "Median fsync latency", metrics.fsync_latency.quantile(0.5).as_secs_f64()),
        (
            "fsync_p99_seconds",
            "99th percentile of fsync latency",
            metrics.fsync_latency.quantile(0.99).as_secs_f64(),
        ),
        ("executed_slot", "The slot after the last one executed", status.executed.unwrap_or(0) as f64),
        ("snapshot_slot", "A durable snapshot holds everything below", status.snapshot.unwrap_or(0) as f64),
        ("membership_version", "Version of the configuration", status.membership.version as f64),
        ("leads", "1 if this host leads", f64::from(u8::from(status.leader.as_ref() == Some(&status.host)))),
        ("quorum", "1 while this host hears a quorum", f64::from(u8::from(status.quorum))),
        ("members_unheard", "Members that this host does not hear", status.unheard.len() as f64),
        ("election_round", "The highest round of elections that this host knows of", status.round as f64),
        (
            "ready",
            "1 while users of all services are served here",
            f64::from(u8::from(status.waits_for.is_none())),
        ),
        ("uptime_seconds", "Since the host started", admin.started.elapsed().as_secs_f64()),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value);
    }
}

fn counters_by<'a>(
    page: &mut MetricsPage,
    name: &str,
    label: &str,
    help: &str,
    values: impl Iterator<Item = (&'a &'static str, &'a u64)>,
) {
    values.for_each(|(key, value)| page.counter_of(name, help, &[(label, key)], *value));
}
