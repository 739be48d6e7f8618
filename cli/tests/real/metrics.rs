//! `/metrics` of a host that serves every service, as Prometheus reads it.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::kafka::Client;
use crate::support::{http, side_by_side};
use kafka::Record;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Over Mason, whatever the tests of the coordination service run over.
const ALL: &str =
    "[coordination]\nshards = 2\nengine = \"mason\"\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1";
const OVER_CHAINS: &str = "[coordination]\nengine = \"fuzzylog\"\nshards = 2\n[sequence]\nspaces = [\"s\"]
[log]\nengine = \"fuzzylog\"\nspaces = 1";

/// What a page has at least.
const OF_ALL: [(&str, f64); 9] = [
    ("ordinate_latency_seconds_count{service=\"kv\",operation=\"write\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"kv\",operation=\"read\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"sequence\",operation=\"next\"}", 3.0),
    ("ordinate_latency_seconds_count{service=\"log\",operation=\"create\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"kafka\",operation=\"produce\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"kafka\",operation=\"metadata\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"kv\",operation=\"http_put\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"coordination\",operation=\"create\"}", 1.0),
    ("ordinate_latency_seconds_count{service=\"coordination\",operation=\"get_data\"}", 1.0),
];
const OF_MASON: [(&str, f64); 6] = [
    ("ordinate_mason_sequencer_epoch{service=\"coordination\"}", 1.0),
    ("ordinate_mason_group_leads{service=\"log\",group=\"0\"}", 1.0),
    ("ordinate_mason_shard_numbers_total{service=\"sequence\",shard=\"0\"}", 3.0),
    ("ordinate_mason_replica_slots_total{service=\"coordination\",group=\"0\"}", 1.0),
    ("ordinate_sequence_given_total{space=\"s\"}", 3.0),
    ("ordinate_service_info{service=\"log\",engine=\"mason\"}", 1.0),
];
const OF_CHAINS: [(&str, f64); 6] = [
    ("ordinate_coordination_chain_nodes", 1.0),
    ("ordinate_coordination_chain_directs", 1.0),
    ("ordinate_mason_shard_numbers_total{service=\"coordination\",shard=\"1\"}", 1.0),
    ("ordinate_log_chain_applied_total{partition=\"0\"}", 1.0),
    ("ordinate_service_info{service=\"coordination\",engine=\"fuzzylog\"}", 1.0),
    ("ordinate_service_info{service=\"log\",engine=\"fuzzylog\"}", 1.0),
];

/// What promtool says of a page; none where there is no promtool.
fn judged(page: &str) -> Option<String> {
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.spawn().ok()?;
    check.stdin.take().expect("it is piped").write_all(page.as_bytes()).expect("promtool reads");
    let said = check.wait_with_output().expect("promtool ends");
    let text = [said.stdout, said.stderr].concat();
    Some(format!("{}{}", String::from_utf8_lossy(&text), if said.status.success() { "" } else { "failed" }))
}

fn kafka_record() -> Record {
    Record { timestamp: 5, key: None, value: Some("x".into()), headers: Vec::new() }
}

/// The sample of this name and labels.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Everything on the page is in the operators' table.
fn assert_explained(page: &str) {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let explained = names_in(&std::fs::read_to_string(pages).expect("it is in the repository"));
    let typed = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut ours = 0;
    for (name, _) in typed.filter(|(name, _)| name.starts_with("ordinate_")) {
        ours += 1;
        assert!(explained.contains(name), "docs/operations.md does not say what {name} is");
    }
    assert!(ours > 100 && !page.contains("\nzk_"), "{ours} metrics\n{page}");
}

fn assert_failures_are_counted(page: &str) {
    for (service, operation, reason) in [
        ("kv", "http_get", "not_found"),
        ("coordination", "get_data", "no_node"),
        ("log", "describe", "no_such_log"),
    ] {
        let labels =
            format!("service=\"{service}\",operation=\"{operation}\",class=\"caller\",reason=\"{reason}\"");
        let failures = sample(page, &format!("ordinate_call_failures_total{{{labels}}}"));
        assert_eq!(failures, Some(1.0), "{labels}\n{page}");
    }
}

/// What is answered by each, and what fails.
async fn use_every_service(cluster: &Cluster, zookeeper: SocketAddr, kafka: SocketAddr) {
    let native = cluster.hosts[0].native.to_string();
    let zookeeper = zookeeper.to_string();
    for call in [
        &["kv", "put", "k", "v", "--endpoints", &native][..],
        &["kv", "get", "k", "--endpoints", &native],
        &["sequence", "next", "--spaces", "s", "--count", "3", "--endpoints", &native],
        &["log", "create", "l", "--endpoints", &native],
        &["zk", "--servers", &zookeeper, "create", "/a", "x"],
        &["zk", "--servers", &zookeeper, "get", "/a"],
    ] {
        let done = cluster.ordinate(call).await;
        assert!(done.status.success(), "{call:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    // What fails is counted by its reason.
    for call in [
        &["zk", "--servers", &zookeeper, "get", "/nothing"][..],
        &["log", "stat", "nothing", "--endpoints", &native],
    ] {
        assert!(!cluster.ordinate(call).await.status.success(), "{call:?}");
    }
    let nothing = http::ask(cluster.hosts[0].admin, "GET", "/v1/kv/nothing", b"").expect("an answer");
    assert_eq!(nothing.code, 404);
    let mut client = Client::connect(kafka);
    client.metadata("topic").expect("a topic is made");
    let mut entry = Vec::new();
    kafka_record().write(&mut entry);
    assert_eq!(client.produce("topic", &[entry]), Some((0, 0)));
    let put = http::ask(cluster.hosts[0].admin, "PUT", "/v1/kv/k", b"v").expect("an answer");
    assert_eq!(put.code, 200, "{}", put.text());
}

async fn look_at_the_page(settings: &str, at_rest: &str, wanted: &[(&str, f64)]) {
    let mut cluster = Cluster::planned(1, settings, "");
    let [zookeeper, kafka] = ["ZOOKEEPER", "KAFKA"].map(|port| cluster.listen(0, port));
    cluster.launch_all();
    cluster.until_ready().await;
    use_every_service(&cluster, zookeeper, kafka).await;
    let text = || http::get_as(cluster.hosts[0].admin, "/metrics", "text/plain").map(|page| page.text());
    let is_at_rest = |_: &Cluster| text().is_some_and(|page| sample(&page, at_rest) == Some(0.0));
    cluster.until("all is executed", PATIENCE, is_at_rest).await;
    let page = text().expect("an answer");
    for &(name, at_least) in OF_ALL.iter().chain(wanted) {
        let value = sample(&page, name);
        assert!(value >= Some(at_least), "{name}: {value:?}\n{page}");
    }
    assert_explained(&page);
    assert_failures_are_counted(&page);
    match judged(&page) {
        None => println!("SKIPPED: promtool is not there (scripts/test-tools.sh)"),
        Some(said) => assert_eq!(said, "", "promtool check metrics\n{page}"),
    }
}

// A page that Prometheus cannot read, or that its linter objects to, is found when an alert was due.
#[test]
fn metrics_are_as_prometheus_wants_them() {
    side_by_side(async {
        let lag = "ordinate_mason_shard_lag{service=\"coordination\",shard=\"0\"}";
        look_at_the_page(ALL, lag, &OF_MASON).await;
        look_at_the_page(OVER_CHAINS, "ordinate_coordination_chain_unfinished", &OF_CHAINS).await;
    });
}

/// What is there with an archive or a log only, or when somebody was turned away or reads in a group.
const SOMETIMES: &[&str] = &[
    "ordinate_archive",
    "ordinate_client_closes",
    "ordinate_log_appended",
    "ordinate_log_bytes",
    "ordinate_log_dropped",
    "ordinate_log_group_lag",
    "ordinate_rejects",
];

/// Names of our metrics in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let letters = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    text.split(letters).filter(|word| word.starts_with("ordinate_")).map(str::to_owned).collect()
}

// An alert or a panel that asks for what no host has never fires, and looks like peace.
#[test]
fn alerts_and_panels_ask_for_what_hosts_have() {
    side_by_side(async {
        let mut cluster = Cluster::planned(2, ALL, "");
        cluster.use_tls(&[]);
        let file = cluster.folder.join("access.toml");
        let anyone = "[identity.anyone]\ngrants = [\"read cluster\"]\n";
        std::fs::write(&file, anyone).expect("the folder is writable");
        for host in 0..2 {
            cluster.set_environment(host, "ORDINATE_ACCESS__FILE", &file.display().to_string());
            cluster.listen(host, "ZOOKEEPER");
        }
        cluster.launch_all();
        cluster.until_ready().await;
        // Refusals are there when somebody was refused.
        let admin = cluster.hosts[0].admin;
        assert_eq!(http::ask(admin, "PUT", "/v1/kv/k", b"v").map(|answer| answer.code), Some(401));
        let wrong = http::ask_with(admin, "GET", "/v1/status", "Authorization: Bearer x\r\n", b"");
        assert_eq!(wrong.map(|answer| answer.code), Some(401));
        let page = http::get_as(admin, "/metrics", "text/plain").expect("it answers").text();
        let known = names_in(&page);
        let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        for file in ["alerts.yml", "grafana.json"] {
            let text = std::fs::read_to_string(deploy.join(file)).expect("it is in the repository");
            let asked = names_in(&text);
            assert!(asked.len() > 10, "{file} asks for {asked:?}");
            let is_always_there = |name: &&String| !SOMETIMES.iter().any(|it| name.starts_with(it));
            let unknown: Vec<&String> = asked.difference(&known).filter(is_always_there).collect();
            assert!(unknown.is_empty(), "{file} asks for {unknown:?}, which no host has\n{page}");
        }
        let rules = deploy.join("alerts.yml").display().to_string();
        match Command::new("promtool").args(["check", "rules", &rules]).output() {
            Err(_) => println!("SKIPPED: promtool is not there (scripts/test-tools.sh)"),
            Ok(said) => assert!(said.status.success(), "{said:?}"),
        }
        match judged(&page) {
            None => println!("SKIPPED: promtool is not there (scripts/test-tools.sh)"),
            Some(said) => assert_eq!(said, "", "promtool check metrics\n{page}"),
        }
    });
}
