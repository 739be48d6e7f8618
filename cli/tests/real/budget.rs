//! The disk budget of the logs: what is refused, what is dropped, and who says so.

use crate::support::cluster::Cluster;
use crate::support::kafka::Client;
use crate::support::{http, side_by_side};
use ordinate_client::{Cleanup, Log, LogError, LogOptions, Rows};
use std::time::Duration;

const BUDGET: u64 = 8 << 20;
const ENTRY_BYTES: usize = 100_000;
/// Kafka's code for what a policy forbids.
const POLICY_VIOLATION: i16 = 44;

fn one(number: u64) -> Rows {
    let mut entry = format!("{number} ").into_bytes();
    entry.resize(ENTRY_BYTES, b'.');
    let mut rows = Rows::default();
    rows.push(&entry);
    rows
}

/// Appends until the log refuses; how many entries it took, and what it says that the host holds.
async fn fill(log: &Log, name: &str) -> (u64, u64) {
    for number in 0.. {
        match log.append(name, one(number)).await {
            Ok(position) => assert_eq!(position, number),
            Err(LogError::OverBudget { held_bytes, .. }) => return (number, held_bytes),
            Err(error) => panic!("append {number}: {error}"),
        }
        assert!(number * ENTRY_BYTES as u64 <= 2 * BUDGET, "the budget is never reached");
    }
    unreachable!("numbers do not end")
}

async fn numbers(log: &Log, name: &str, from: u64) -> Vec<u64> {
    let (mut at, mut found) = (from, Vec::new());
    loop {
        let page = log.read(name, at, 100, Duration::ZERO).await.expect("a read");
        let number = |entry: &[u8]| String::from_utf8_lossy(entry).split_once(' ')?.0.parse::<u64>().ok();
        found.extend(page.entries.iter().map(|entry| number(entry).expect("an entry of ours")));
        at = page.next();
        if at == page.tail {
            return found;
        }
    }
}

async fn trim_makes_room(cluster: &Cluster, log: &Log, count: u64) {
    log.trim("jobs", count / 2).await.expect("a trim");
    let appended = async || log.append("jobs", one(count)).await;
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while let Err(error) = appended().await {
        assert!(matches!(error, LogError::OverBudget { .. }), "{error}");
        assert!(std::time::Instant::now() < deadline, "still refused\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(numbers(log, "jobs", count / 2).await, (count / 2..=count).collect::<Vec<_>>());
}

// An entry that goes without a word, a log that is refused for ever, or one that drops what its maker wanted to keep.
#[test]
fn a_full_budget_refuses_appends_and_drops_nothing_but_where_it_may() {
    side_by_side(async {
        let settings = "[log]\nspaces = 2\ndisk_bytes = \"8MiB\"";
        let (cluster, addresses) = Cluster::serving("KAFKA", 3, settings).await;
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(30));
        log.create_with("jobs", LogOptions::default()).await.expect("a log is made");
        let ring = LogOptions { cleanup: Cleanup::DropOldest, ..LogOptions::default() };
        log.create_with("ring", ring).await.expect("a log is made");
        for number in 0..30 {
            log.append("ring", one(number)).await.expect("there is room");
        }
        let (count, held) = fill(&log, "jobs").await;
        assert!(held >= BUDGET && count * ENTRY_BYTES as u64 + 3_000_000 < 10 << 20, "{count}, {held}");
        // Every host refuses, by every protocol, with its own words.
        for (host, kafka) in addresses.iter().enumerate() {
            let disk =
                |cluster: &Cluster| cluster.status(host).map(|it| it["log"]["disk"]["refuses"] == true);
            cluster.until("it refuses", Duration::from_secs(10), |it| disk(it) == Some(true)).await;
            let append = "/v1/log/jobs/append";
            let refused = http::ask(cluster.hosts[host].admin, "POST", append, b"x").expect("it answers");
            assert_eq!(refused.code, 507, "{}", refused.text());
            assert!(refused.json()["held_bytes"].as_u64() >= Some(BUDGET), "{}", refused.text());
            let mut kafka = Client::connect(*kafka);
            kafka.metadata("topic").expect("the topic is made");
            assert_eq!(kafka.produce("topic", &[vec![1]]), Some((POLICY_VIOLATION, -1)));
        }
        let refused = cluster.ordinate(&["log", "multi-append", "jobs=x", "ring=y"]).await.stderr;
        let said = String::from_utf8_lossy(&refused).into_owned();
        assert!(said.contains("error[O1026]"), "{said}");
        assert_eq!(numbers(&log, "jobs", 0).await, (0..count).collect::<Vec<_>>(), "nothing is dropped");
        // The log that may drop its oldest entries goes on, and counts what goes.
        for number in 30..90 {
            log.append("ring", one(number)).await.expect("it makes room for itself");
        }
        let described = log.describe("ring").await.expect("it is there");
        assert_eq!(described.stat.first, described.dropped);
        assert!(described.dropped > 30 && described.stat.next == 90, "{described:?}");
        assert_eq!(
            numbers(&log, "ring", described.dropped).await,
            (described.dropped..90).collect::<Vec<_>>()
        );
        assert_eq!(log.describe("jobs").await.expect("it is there").dropped, 0);
        for host in 0..3 {
            let sample =
                format!("ordinate_log_dropped_entries_total{{log=\"ring\"}} {}\n", described.dropped);
            let counts = |cluster: &Cluster| {
                http::get(cluster.hosts[host].admin, "/metrics").expect("it answers").text()
            };
            cluster
                .until("all count alike", Duration::from_secs(10), |it| counts(it).contains(&sample))
                .await;
            cluster
                .until("it warns", Duration::from_secs(10), |it| it.log(host).contains("the log ring drops"))
                .await;
            assert_eq!(cluster.log(host).matches("the log ring drops").count(), 1, "once");
        }
        let shown = cluster.ordinate(&["log", "stat", "ring"]).await.stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(
            shown.contains(&format!("cleanup drop-oldest   dropped {} entries", described.dropped)),
            "{shown}"
        );
        trim_makes_room(&cluster, &log, count).await;
    });
}
