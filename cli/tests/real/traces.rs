//! Traces of requests over three hosts, as a collector of OpenTelemetry receives them.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Sent;
use opentelemetry_proto::tonic::trace::v1::Span as SentSpan;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Stands for a collector.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    refuses: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
struct Span {
    host: String,
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    began: u64,
    ended: u64,
}

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let router = axum::Router::new()
            .route("/v1/traces", axum::routing::post(Self::take))
            .with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (collector, endpoint)
    }

    async fn take(
        State(collector): State<Self>,
        headers: HeaderMap,
        body: Bytes,
    ) -> (StatusCode, &'static str) {
        if collector.refuses.load(Ordering::Relaxed) {
            return (StatusCode::SERVICE_UNAVAILABLE, "");
        }
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
        let mut spans = collector.spans.lock().expect("nobody panics with it");
        for of_host in request.resource_spans {
            let attributes = of_host.resource.expect("whose they are").attributes;
            let host = attribute(&attributes, "service.instance.id").expect("which host");
            assert_eq!(attribute(&attributes, "service.name").as_deref(), Some("ordinate"));
            let sent = of_host.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(sent.map(|span| Span::read(&host, span)));
        }
        (StatusCode::OK, "")
    }

    /// The requests whose first span has this name, each with its spans.
    fn requests(&self, first: &str) -> Vec<Vec<Span>> {
        let mut traces: BTreeMap<Vec<u8>, Vec<Span>> = BTreeMap::new();
        for span in self.spans.lock().expect("nobody panics with it").iter() {
            traces.entry(span.trace.clone()).or_default().push(span.clone());
        }
        let begins =
            |spans: &Vec<Span>| spans.iter().any(|span| span.name == first && span.parent.is_empty());
        traces.into_values().filter(begins).collect()
    }
}

impl Span {
    fn read(host: &str, span: SentSpan) -> Self {
        assert!(span.trace_id.len() == 16 && span.span_id.len() == 8, "{span:?}");
        Self {
            host: host.to_owned(),
            trace: span.trace_id,
            id: span.span_id,
            parent: span.parent_span_id,
            name: span.name,
            began: span.start_time_unix_nano,
            ended: span.end_time_unix_nano,
        }
    }
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    match attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()? {
        Sent::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

/// Says what a request's spans lack: roles by their names on so many hosts, and a way from each span to the first one.
fn lack(spans: &[Span], roles: &[(&str, usize)]) -> Option<String> {
    for (role, hosts) in roles {
        let on = spans.iter().filter(|span| span.name == *role).map(|span| &span.host);
        let on: BTreeSet<_> = on.collect();
        if on.len() < *hosts {
            return Some(format!("{role} on {on:?}, not on {hosts}"));
        }
    }
    let known: BTreeSet<&[u8]> = spans.iter().map(|span| &*span.id).collect();
    if known.len() < spans.len() {
        return Some("two spans of one number".to_owned());
    }
    let is_lost = |span: &&Span| !span.parent.is_empty() && !known.contains(&*span.parent);
    spans.iter().find(is_lost).map(|span| format!("the parent of {}", span.name))
}

/// Waits for a request that begins so and has these roles.
async fn until_followed(cluster: &Cluster, collector: &Collector, first: &str, roles: &[(&str, usize)]) {
    let holds = |_: &Cluster| collector.requests(first).iter().any(|spans| lack(spans, roles).is_none());
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds(cluster) {
        let lacks: Vec<_> = collector.requests(first).iter().map(|spans| lack(spans, roles)).collect();
        assert!(
            std::time::Instant::now() < deadline,
            "of {first}: {lacks:?}\n{:#?}",
            collector.requests(first)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for spans in collector.requests(first).iter().filter(|spans| lack(spans, roles).is_none()) {
        let root = spans.iter().find(|span| span.parent.is_empty()).expect("it begins");
        assert!(root.ended >= root.began && root.ended - root.began < 60_000_000_000, "{root:?}");
        // One machine, one clock: what the request caused began behind it.
        assert!(spans.iter().all(|span| span.began >= root.began), "{spans:#?}");
    }
}

fn counted(cluster: &Cluster, host: usize, sample: &str) -> f64 {
    let page = http::get(cluster.hosts[host].admin, "/metrics").map(|page| page.text()).unwrap_or_default();
    page.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok()).unwrap_or(f64::NAN)
}

// A trace that ends at the border of a host, or whose parts do not find each other, shows nothing of what took the time.
#[test]
fn one_write_is_followed_over_three_hosts() {
    side_by_side(async {
        let (collector, endpoint) = Collector::start().await;
        let settings = format!(
            "[trace]\nendpoint = \"{endpoint}\"\none_in = 1\n[coordination]\nengine = \"mason\"\n[log]\nspaces = 1\n\
             [txn]\nshards = 1\n[clock]\nsource = \"fixed\"\nepsilon = \"1ms\"\n"
        );
        let (cluster, zookeepers) = Cluster::serving("ZOOKEEPER", 3, &settings).await;
        for (host, zookeeper) in zookeepers.iter().enumerate() {
            let native = cluster.hosts[host].native.to_string();
            let zookeeper = zookeeper.to_string();
            let (key, znode) = (format!("k{host}"), format!("/z{host}"));
            for call in [
                &["kv", "put", &key, "v", "--endpoints", &native][..],
                &["kv", "get", &key, "--endpoints", &native],
                &["zk", "--servers", &zookeeper, "create", &znode, "x"],
                &["txn", "put", &key, "v", "--endpoints", &native],
            ] {
                let done = cluster.ordinate(call).await;
                assert!(done.status.success(), "{call:?}: {}", String::from_utf8_lossy(&done.stderr));
            }
        }
        let of_log = |service: &str, roles: &[(&str, usize)]| -> Vec<(String, usize)> {
            let log = [("leader", 1), ("proxy_leader", 1), ("acceptor", 3), ("replica", 3)];
            log.iter().chain(roles).map(|(role, hosts)| (format!("{service} {role}"), *hosts)).collect()
        };
        for (service, first, roles) in [
            ("kv", "kv request", [("request", 1), ("gateway", 1)]),
            ("coordination", "coordination gateway", [("proxy", 1), ("shard", 1)]),
        ] {
            let roles = of_log(service, &roles);
            let roles: Vec<(&str, usize)> = roles.iter().map(|(role, hosts)| (&**role, *hosts)).collect();
            until_followed(&cluster, &collector, first, &roles).await;
        }
        let read = [("kv gateway", 1), ("kv replica", 1)];
        until_followed(&cluster, &collector, "kv request", &read).await;
        // A shard's role that does not lead hands the transaction on to the one that does.
        until_followed(&cluster, &collector, "txn gateway", &[("txn shard", 2)]).await;
        // A gateway whose group another host leads: its proxy hands the operation on.
        until_followed(&cluster, &collector, "coordination gateway", &[("coordination proxy", 2)]).await;
        assert!(counted(&cluster, 0, "ordinate_trace_spans_total") > 0.0);
        collector_that_is_away(&cluster, &collector).await;
    });
}

/// Users must not notice that traces cannot be sent; operators must.
async fn collector_that_is_away(cluster: &Cluster, collector: &Collector) {
    collector.refuses.store(true, Ordering::Relaxed);
    let before = std::time::Instant::now();
    let done = cluster.ordinate(&["kv", "put", "k", "w"]).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    let dropped = |cluster: &Cluster| {
        let sample = "ordinate_trace_dropped_total{reason=\"collector\"}";
        (0..3).any(|host| counted(cluster, host, sample) > 0.0)
    };
    cluster.until("dropped spans are counted", PATIENCE, dropped).await;
    let said = |cluster: &Cluster| {
        (0..3).any(|host| cluster.log(host).contains("spans of followed requests dropped"))
    };
    cluster.until("it is said", PATIENCE, said).await;
}
