//! The alert rules and the board of `deploy/` over the pages of real hosts: what breaks makes its alerts fire, and nothing else does.

use crate::disk_full::{fill, start_on_small_disks};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::kafka::Client;
use crate::support::prometheus::{Expected, Scrapes, deployed, firing, judge, run};
use crate::support::{http, side_by_side};
use serde_json::Value;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

/// A machine's own clock may be unsynchronised, which is another test's matter.
const FIXED_CLOCK: &str = "[clock]\nsource = \"fixed\"\n";

fn page(cluster: &Cluster, host: usize) -> String {
    http::get_as(cluster.hosts[host].admin, "/metrics", "text/plain").expect("a page").text()
}

/// Of these hosts, as they are.
fn steady(cluster: &Cluster, hosts: &[usize]) -> Vec<Scrapes> {
    hosts.iter().map(|&host| Scrapes::steady(&cluster.hosts[host].name, &page(cluster, host))).collect()
}

fn has(cluster: &Cluster, host: usize, line: &str) -> bool {
    page(cluster, host).lines().any(|found| found == line)
}

fn assert_fires(cluster: &Cluster, scrapes: &[Scrapes], alerts: &[(&str, u32)], what: &str) {
    if let Some(judged) = judge(&cluster.folder, scrapes, &[firing(alerts)]) {
        judged.unwrap_or_else(|said| panic!("{what}: {said}"));
    }
}

// An alert that fires in peace is switched off; one that does not fire when the quorum is gone is found in the morning.
#[test]
fn lost_hosts_fire_their_alerts() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, FIXED_CLOCK, "").await;
        let all_see = |cluster: &Cluster| {
            (0..3).all(|host| {
                ["ordinate_quorum_redundant 1", "ordinate_members_unheard 0", "ordinate_links_up 2"]
                    .iter()
                    .all(|line| has(cluster, host, line))
            })
        };
        cluster.until("all hosts hear each other", PATIENCE, all_see).await;
        assert_fires(&cluster, &steady(&cluster, &[0, 1, 2]), &[], "three hosts");
        let leader = cluster.leader().await;
        let left: Vec<usize> = (0..3).filter(|host| *host != leader).collect();
        cluster.kill(leader);
        let led = |cluster: &Cluster| {
            let ready = left.iter().all(|&host| has(cluster, host, "ordinate_ready 1"));
            ready && left.iter().filter(|&&host| has(cluster, host, "ordinate_leads 1")).count() == 1
        };
        cluster.until("the others serve", PATIENCE, led).await;
        let one_lost = [("OrdinateMemberUnheard", 2), ("OrdinateLinkDown", 2), ("OrdinateNotRedundant", 2)];
        assert_fires(&cluster, &steady(&cluster, &left), &one_lost, "two of three hosts");
        cluster.kill(left[0]);
        let alone = |cluster: &Cluster| {
            let lines = [
                "ordinate_quorum 0",
                "ordinate_leads 0",
                "ordinate_links_up 0",
                "ordinate_ready 0",
                "ordinate_members_unheard 2",
            ];
            lines.iter().all(|line| has(cluster, left[1], line))
        };
        cluster.until("the last host hears nobody", PATIENCE, alone).await;
        let two_lost = [
            ("OrdinateQuorumLost", 1),
            ("OrdinateServiceNotServed", 1),
            ("OrdinateNobodyLeads", 1),
            ("OrdinateHostNotReady", 1),
            ("OrdinateMemberUnheard", 1),
            ("OrdinateLinkDown", 2),
        ];
        assert_fires(&cluster, &steady(&cluster, &left[1..]), &two_lost, "one of three hosts");
    });
}

// The disk that fills is the one whose alert must be right.
#[test]
fn full_disks_fire_their_alert() {
    side_by_side(async {
        let Some((cluster, mounted)) = start_on_small_disks(FIXED_CLOCK).await else { return };
        fill(&cluster.data_of(0));
        let admin = cluster.hosts[0].admin;
        let seen = RefCell::new(Vec::new());
        let is_full = |cluster: &Cluster| {
            // What is on its way waits, and nobody has to wait for it here.
            std::thread::spawn(move || http::ask(admin, "PUT", "/v1/kv/filler", &[b'x'; 60 << 10]));
            std::thread::sleep(Duration::from_millis(50));
            let pages: Vec<String> = (0..3).map(|host| page(cluster, host)).collect();
            let says = |host: usize, line: &str| pages[host].lines().any(|found| found == line);
            let full = ["disk_full 1", "ready 0", "journal_short 1", "quorum_redundant 1"];
            let leaders = (0..3).filter(|&host| says(host, "ordinate_leads 1")).count();
            let others =
                (1..3).all(|host| says(host, "ordinate_ready 1") && says(host, "ordinate_disk_full 0"));
            let settled =
                leaders == 1 && others && full.iter().all(|line| says(0, &format!("ordinate_{line}")));
            seen.replace(pages);
            settled
        };
        cluster.until("a disk is full", PATIENCE, is_full).await;
        let hosts = cluster.hosts.iter().zip(seen.into_inner());
        let scrapes: Vec<Scrapes> = hosts.map(|(host, page)| Scrapes::steady(&host.name, &page)).collect();
        let full = [("OrdinateDiskFull", 1), ("OrdinateHostNotReady", 1), ("OrdinateJournalShort", 1)];
        assert_fires(&cluster, &scrapes, &full, "one full disk");
        drop((cluster, mounted));
    });
}

// A certificate that ends unnoticed stops all hosts at once.
#[test]
fn certificates_near_their_end_fire_their_alert() {
    side_by_side(async {
        let mut cluster = Cluster::planned(1, FIXED_CLOCK, "");
        cluster.use_tls(&["--days", "7"]);
        cluster.launch_all();
        cluster.until_ready().await;
        let page = page(&cluster, 0);
        assert!(page.contains("ordinate_certificate_ends_seconds{of=\"host\"} "), "{page}");
        // The authority's is for ten years.
        let near = [("OrdinateCertificateEnds", 1)];
        assert_fires(&cluster, &steady(&cluster, &[0]), &near, "certificates of a week");
    });
}

// A rule that no test makes fire may be one that cannot.
#[test]
fn every_rule_fires_by_what_it_watches() {
    let rules = std::fs::read_to_string(deployed("alerts.yml")).expect("it is in the repository");
    let tests = std::fs::read_to_string(deployed("alerts_test.yml")).expect("it is in the repository");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(
            tests.contains(&format!("{{alertname=\"{alert}\"}}")),
            "{alert} is in no test of alerts_test.yml"
        );
    }
    if let Some(judged) = run(&["test", "rules", &deployed("alerts_test.yml").display().to_string()]) {
        judged.expect("promtool test rules");
    }
}

/// A group of readers has read nothing yet, as the host says that coordinates it.
fn commit_somewhere(kafka: &[SocketAddr]) {
    let codes: Vec<_> =
        kafka.iter().map(|&address| Client::connect(address).commit("readers", "jobs", 0)).collect();
    assert!(codes.contains(&Some(0)), "{codes:?}");
}

/// Queries of the board that have no answer on hosts in peace: nobody was turned away, nothing failed.
const QUIET: [&str; 2] = ["rate(ordinate_rejects_total", "rate(ordinate_client_closes_total"];

// A panel that asks for what is not there is empty, and nobody knows whether that is peace.
#[test]
fn every_query_of_the_board_has_an_answer() {
    side_by_side(async {
        let services =
            "[coordination]\nengine = \"mason\"\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 1\n";
        let mut cluster = Cluster::planned(2, &format!("{services}{FIXED_CLOCK}"), "");
        (0..2).for_each(|host| _ = cluster.listen(host, "ZOOKEEPER"));
        let kafka: Vec<SocketAddr> = (0..2).map(|host| cluster.listen(host, "KAFKA")).collect();
        cluster.launch_all();
        cluster.until_ready().await;
        let call = |method, path, body: &str| {
            (0..2).for_each(|host| _ = http::ask(cluster.hosts[host].admin, method, path, body.as_bytes()));
        };
        call("PUT", "/v1/log/jobs?retain_bytes=1048576&cleanup=drop-oldest", "");
        call("PUT", "/v1/kv/k", "v");
        // What fails is counted, too.
        call("GET", "/v1/kv/nothing", "");
        commit_somewhere(&kafka);
        let counted = |cluster: &Cluster| {
            let names = ["ordinate_coordination_znodes{", "ordinate_log_group_lag{"];
            (0..2).map(|host| page(cluster, host)).all(|page| names.iter().all(|name| page.contains(name)))
        };
        cluster.until("the shards are counted, and the group of readers", PATIENCE, counted).await;
        let first: Vec<String> = (0..2).map(|host| page(&cluster, host)).collect();
        for _ in 0..3 {
            call("PUT", "/v1/kv/k", "v");
            call("POST", "/v1/log/jobs/append", "entry");
        }
        let scrape = |host: usize| Scrapes {
            instance: cluster.hosts[host].name.clone(),
            pages: (first[host].clone(), page(&cluster, host)),
        };
        let scrapes: Vec<Scrapes> = (0..2).map(scrape).collect();
        let board = std::fs::read(deployed("grafana.json")).expect("it is in the repository");
        let board: Value = serde_json::from_slice(&board).expect("it is JSON");
        let name = cluster.status_of(0).await["cluster"].as_str().expect("it has a name").to_owned();
        let panels = board["panels"].as_array().expect("it has panels");
        let queries = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
        let queries: Vec<String> = queries.filter_map(|it| it["expr"].as_str().map(str::to_owned)).collect();
        assert!(queries.len() > 20, "{queries:?}");
        let asked = queries.iter().filter(|query| !QUIET.iter().any(|quiet| query.starts_with(quiet)));
        for query in asked {
            let query = query.replace("$cluster", &name).replace("$__rate_interval", "5m");
            let query = format!("clamp_max(count({query}), 1)");
            let expected = Expected { query: query.clone(), samples: vec![("{}".to_owned(), 1.0)] };
            match judge(&cluster.folder, &scrapes, &[expected]) {
                None => return,
                Some(judged) => judged.unwrap_or_else(|said| panic!("{query}: {said}")),
            }
        }
    });
}
