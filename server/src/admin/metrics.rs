//! `/metrics`, in OpenMetrics or in the text format that came before.

use super::exposition::{Format, MetricsPage};
use super::state::Admin;
use crate::status::HostStatus;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use runtime::Metrics;
use std::sync::Arc;
use std::time::Duration;

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
    clients(&mut page, &metrics);
    fsyncs(&mut page, &metrics);
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
    admin.latencies.turn(std::time::Instant::now());
    admin.latencies.metrics(&mut page);
    admin.access.metrics(&mut page);
    if let Some(tls) = &admin.tls {
        tls.metrics(&mut page);
    }
    admin.traces.metrics(&mut page);
    let process = std::process::id();
    if let Some(cpu) = crate::process::cpu_time(process) {
        page.process_cpu(cpu.as_secs_f64());
    }
    if let Some(bytes) = crate::process::resident_bytes(process) {
        page.process_memory(bytes);
    }
    page.append(series(&admin).await);
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::wanted(accept);
    ([(header::CONTENT_TYPE, format.content_type())], page.written(format)).into_response()
}

/// What only scrapes ask for, of all services.
async fn series(admin: &Admin) -> MetricsPage {
    let file = admin.file.clone();
    let page = admin.handle.inspect(move |view| {
        let mut page = MetricsPage::default();
        file.services().iter().for_each(|service| service.series(view, &mut page));
        page
    });
    let page = tokio::time::timeout(crate::status::ANSWER_WITHIN, page).await;
    page.ok().and_then(Result::ok).unwrap_or_default()
}

/// Connections by the protocol that clients speak.
fn clients(page: &mut MetricsPage, metrics: &Metrics) {
    for (protocol, clients) in &metrics.clients_by_protocol {
        let of = [("protocol", *protocol)];
        page.gauge_of("clients", "Client connections", &of, clients.open as f64);
    }
    for (protocol, clients) in &metrics.clients_by_protocol {
        let help = "Client connections that may be open at once";
        page.gauge_of("clients_max", help, &[("protocol", *protocol)], clients.max as f64);
    }
}

/// Upper bounds of what an fsync takes, in microseconds.
const FSYNC_BOUNDS_US: [u64; 13] =
    [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

/// How long the journal's syncs take.
fn fsyncs(page: &mut MetricsPage, metrics: &Metrics) {
    let latency = &metrics.fsync_latency;
    let at_most =
        FSYNC_BOUNDS_US.iter().map(|bound| (*bound, latency.at_most(Duration::from_micros(*bound))));
    let buckets = at_most.scan(0, |below, (bound, at_most)| {
        let count = at_most - *below;
        *below = at_most;
        Some((bound as f64 / 1e6, count))
    });
    let of_all = (latency.count(), latency.sum().as_secs_f64());
    page.histogram_of("fsync_seconds", "Write and sync of a batch of the journal", &[], buckets, of_all);
    let recent = &metrics.fsync_latency_recent;
    let help = "Half of the syncs of the last minute took at most this; 0 without any";
    page.gauge("fsync_p50_seconds", help, recent.quantile(0.5).as_secs_f64());
    let help = "99 of 100 syncs of the last minute took at most this; 0 without any";
    page.gauge("fsync_p99_seconds", help, recent.quantile(0.99).as_secs_f64());
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
        (
            "snapshots_installed",
            "Snapshots of other hosts that replaced the state of a role here",
            crate::members::snapshots_installed(metrics),
        ),
        ("segments_lost", "Reads of segments that were gone or damaged", metrics.blobs.lost),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, value);
    }
}

/// The gauges without labels.
fn gauges(page: &mut MetricsPage, admin: &Admin, status: &HostStatus, metrics: &Metrics) {
    let gauges = [
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
        ("executed_slot", "The slot after the last one executed", status.executed.unwrap_or(0) as f64),
        ("snapshot_slot", "A durable snapshot holds everything below", status.snapshot.unwrap_or(0) as f64),
        ("membership_version", "Version of the configuration", status.membership.version as f64),
        ("leads", "1 if this host leads", f64::from(u8::from(status.leader.as_ref() == Some(&status.host)))),
        ("quorum", "1 while this host hears a quorum", f64::from(u8::from(status.quorum))),
        (
            "quorum_redundant",
            "1 while the loss of any one host would leave a quorum, as this host hears it",
            f64::from(u8::from(status.quorum_redundant)),
        ),
        ("members", "Members of the cluster, as this host knows them", status.membership.hosts.len() as f64),
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
