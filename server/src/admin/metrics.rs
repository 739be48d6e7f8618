//! `/metrics` in the OpenMetrics text format.

use super::Admin;
use crate::cluster::ClusterFile;
use crate::status::Status;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fmt::Write as _;
use std::sync::Arc;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a scrape.
pub async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let Some((status, metrics)) = Status::of(&admin.handle, &admin.file, &admin.host).await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer\n").into_response();
    };
    let mut page = Page::default();
    page.info(&status);
    page.engines(&admin.file);
    let counters = [
        ("messages_in", "Messages from other hosts and clients", metrics.messages_in),
        ("messages_out", "Messages to other hosts and clients", metrics.messages_out),
        ("messages_local", "Messages between roles of this host", metrics.messages_local),
        ("bytes_in", "Bytes from other hosts", metrics.bytes_in),
        ("bytes_out", "Bytes to other hosts", metrics.bytes_out),
        ("bursts", "Rounds of the reactor", metrics.bursts),
        ("fsyncs", "Times the journal was synced", metrics.fsyncs),
        ("rounds_cut_short", "Rounds of the reactor that left work to the next", metrics.rounds_cut_short),
        ("reads_stopped", "Times a client was read no further before it reads", metrics.reads_stopped),
        ("segments_written", "Segments of logs written to the disk", metrics.blobs.stores),
        ("segment_loads", "Reads of parts of segments", metrics.blobs.loads),
        ("segment_loaded_bytes", "Bytes read from segments", metrics.blobs.loaded_bytes),
        ("segments_lost", "Reads of segments that were gone or damaged", metrics.blobs.lost),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, value);
    }
    page.counters_by("rejects", "reason", "Messages turned away", metrics.rejects.iter());
    page.counters_by("marks", "situation", "Rare situations reached", metrics.marks.iter());
    page.counters_by("drops", "reason", "Messages dropped", metrics.drops.iter());
    let closes = admin.counts.by_reason();
    page.counters_by("admin_closes", "reason", "Refusals at this port", closes.iter());
    page.counters_by("client_closes", "reason", "Client connections closed", metrics.closes.iter());
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
        ("staged_bytes", "Bytes that wait for the disk", metrics.staged_bytes as f64),
        ("journal_bytes", "Size of the journal", metrics.journal_bytes as f64),
        ("segments", "Segments of logs on the disk", metrics.blobs.files as f64),
        ("segment_bytes", "Bytes of segments on the disk", metrics.blobs.bytes as f64),
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
        ("ready", "1 if this host can serve", f64::from(u8::from(status.not_ready().is_none()))),
        ("uptime_seconds", "Since the host started", admin.started.elapsed().as_secs_f64()),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value);
    }
    page.links(&status);
    status.services.iter().for_each(|service| service.metrics(&mut page));
    if let Some(cpu) = crate::process::cpu_time(std::process::id()) {
        let _ = writeln!(
            page.0,
            "# TYPE process_cpu_seconds counter\nprocess_cpu_seconds_total {}",
            cpu.as_secs_f64()
        );
    }
    if let Some(bytes) = crate::process::resident_bytes(std::process::id()) {
        let _ = writeln!(
            page.0,
            "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes {bytes}"
        );
    }
    page.0.push_str("# EOF\n");
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page.0).into_response()
}

/// The page that is written.
#[derive(Default, Debug)]
pub struct Page(String);

// Writing to a string cannot fail, so the results are dropped.
impl Page {
    fn info(&mut self, status: &Status) {
        let _ = writeln!(self.0, "# TYPE ordinate info\n# HELP ordinate The program and its place");
        let _ = writeln!(
            self.0,
            "ordinate_info{{version=\"{}\",cluster=\"{}\",host=\"{}\",durability=\"{}\"}} 1",
            status.version,
            escaped(&status.cluster),
            escaped(&status.host),
            status.durability
        );
    }

    fn engines(&mut self, file: &ClusterFile) {
        let _ = writeln!(
            self.0,
            "# TYPE ordinate_service info\n# HELP ordinate_service The services that are on, and what orders them"
        );
        for service in file.services() {
            let (name, engine) = (service.listed().name, service.engine());
            let _ = writeln!(self.0, "ordinate_service_info{{service=\"{name}\",engine=\"{engine}\"}} 1");
        }
    }

    /// What only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        let _ = writeln!(self.0, "# TYPE ordinate_{name} counter\n# HELP ordinate_{name} {help}");
        let _ = writeln!(self.0, "ordinate_{name}_total {value}");
    }

    fn counters_by<'a>(
        &mut self,
        name: &str,
        label: &str,
        help: &str,
        values: impl Iterator<Item = (&'a &'static str, &'a u64)>,
    ) {
        let _ = writeln!(self.0, "# TYPE ordinate_{name} counter\n# HELP ordinate_{name} {help}");
        for (key, value) in values {
            let _ = writeln!(self.0, "ordinate_{name}_total{{{label}=\"{}\"}} {value}", escaped(key));
        }
    }

    /// Under ZooKeeper's own name, for dashboards that know it.
    pub fn plain(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.0, "# TYPE {name} gauge\n{name} {value}");
    }

    fn links(&mut self, status: &Status) {
        let (name, help) = ("link_up", "1 while messages can leave for the other host");
        let _ = writeln!(self.0, "# TYPE ordinate_{name} gauge\n# HELP ordinate_{name} {help}");
        for (host, link) in &status.links {
            let _ = writeln!(self.0, "ordinate_{name}{{peer=\"{}\"}} {}", escaped(host), u8::from(link.up));
        }
    }

    /// What is of the moment.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        let _ = writeln!(
            self.0,
            "# TYPE ordinate_{name} gauge\n# HELP ordinate_{name} {help}\nordinate_{name} {value}"
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
