//! The bare sequence while hosts die: numbers are unique, agree between spaces, respect real time, and leave no gap that is
//! not accounted for.

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::http;
use crate::support::side_by_side;
use ordinate_client::{CallError, Sequence};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SPACES: [&str; 3] = ["orders", "payments", "parcels"];
const CALLERS: usize = 6;

/// A position that a caller was given.
#[derive(Clone, Debug)]
struct Given {
    asked: Instant,
    answered: Instant,
    gsn: u64,
    /// By space.
    numbers: BTreeMap<usize, u64>,
}

#[derive(Default)]
struct Record {
    stop: AtomicBool,
    given: Mutex<Vec<Given>>,
    /// Calls of which it is not known whether they were given a position.
    lost: AtomicU64,
}

impl Record {
    fn count(&self) -> usize {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Asks for positions until stopped, now in one space, now in several.
async fn call_on(caller: usize, endpoints: Vec<String>, record: Arc<Record>) {
    let sequence = Sequence::connect(endpoints).with_timeout(Duration::from_secs(20));
    let mut turn = caller;
    while !record.stop.load(Ordering::Relaxed) {
        turn += 1;
        let wanted: Vec<usize> = (0..SPACES.len()).filter(|space| (turn % 7 + 1) >> space & 1 == 1).collect();
        let names: Vec<&str> = wanted.iter().map(|&space| SPACES[space]).collect();
        let asked = Instant::now();
        match sequence.next(&names, format!("caller {caller}").as_bytes()).await {
            Ok(position) => {
                let numbers = wanted.iter().copied().zip(position.numbers).collect();
                let given = Given { asked, answered: Instant::now(), gsn: position.gsn, numbers };
                record.given.lock().unwrap_or_else(PoisonError::into_inner).push(given);
            }
            Err(CallError::MaybeExecuted | CallError::TimedOut(_) | CallError::NotSent(_)) => {
                record.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("caller {caller}: {error}"),
        }
    }
}

async fn until_given(record: &Record, more: usize) {
    let wanted = record.count() + more;
    let deadline = Instant::now() + PATIENCE;
    while record.count() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} positions given in a minute", record.count());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The numbers given in a space, sorted; no number twice.
fn numbers_of(given: &[Given], space: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = given.iter().filter_map(|given| given.numbers.get(&space).copied()).collect();
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number of {} was given twice", SPACES[space]);
    numbers
}

/// Every pair of positions agrees in all spaces they share, and with their global sequence numbers; global sequence numbers respect real
/// time.
fn check_order(given: &mut [Given]) {
    given.sort_by_key(|given| given.gsn);
    for (space, name) in SPACES.iter().enumerate() {
        let numbers: Vec<u64> = given.iter().filter_map(|given| given.numbers.get(&space).copied()).collect();
        assert!(numbers.is_sorted(), "numbers of {name} and global sequence numbers disagree");
    }
    let mut latest_asked = None::<&Given>;
    for position in given.iter() {
        if let Some(before) = latest_asked {
            assert!(
                position.answered >= before.asked,
                "{position:?} was answered before {before:?} was asked"
            );
        }
        if latest_asked.is_none_or(|before| position.asked > before.asked) {
            latest_asked = Some(position);
        }
    }
}

fn post(cluster: &Cluster, host: usize, body: &str) -> Option<http::Answer> {
    http::ask(cluster.hosts[host].admin, "POST", "/v1/sequence/next", body.as_bytes())
}

async fn start() -> Cluster {
    let settings = "[sequence]\nspaces = [\"orders\", \"payments\", \"parcels\"]";
    Cluster::start(3, settings, "").await
}

/// Now that all is quiet, numbers follow one another without a gap, whichever host is asked.
async fn numbers_follow_one_another(cluster: &Cluster, highest: &[u64]) {
    for (turn, host) in [0, 1, 2, 0, 1, 2].into_iter().enumerate() {
        let body = "{\"spaces\": [\"parcels\", \"orders\"], \"label\": \"quiet\"}";
        let answer = post(cluster, host, body).expect("it answers");
        assert_eq!(answer.code, 200, "{}", String::from_utf8_lossy(&answer.body));
        let position: Value = answer.json();
        let numbers = &position["positions"][0]["numbers"];
        let orders = numbers["orders"].as_u64().expect("a number");
        let parcels = numbers["parcels"].as_u64().expect("a number");
        if turn == 0 {
            assert!(orders > highest[0] && parcels > highest[2], "{position} after {highest:?}");
        }
        let done = cluster.ordinate(&["sequence", "next", "--spaces", "parcels,orders", "-o", "json"]).await;
        let next: Value = serde_json::from_slice(&done.stdout).expect("a line is JSON");
        assert_eq!(next["numbers"]["orders"].as_u64(), Some(orders + 1), "{next} after {position}");
        assert_eq!(next["numbers"]["parcels"].as_u64(), Some(parcels + 1), "{next} after {position}");
    }
}

// A number given twice, or a hole that nobody fills, breaks a log that is built on it; a sequence that stops with a host stops all
// of them.
#[test]
fn numbers_are_unique_and_contiguous_while_hosts_die() {
    side_by_side(async {
        let mut cluster = start().await;
        let record = Arc::new(Record::default());
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| tokio::spawn(call_on(caller, cluster.endpoints_from(caller), record.clone())))
            .collect();
        until_given(&record, 300).await;
        {
            // Nobody died yet: every number up to the highest was given, or is on its way to a caller.
            let given = record.given.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for (space, name) in SPACES.iter().enumerate() {
                let numbers = numbers_of(&given, space);
                let missing = numbers.last().unwrap_or(&0) - numbers.len() as u64;
                assert!(missing <= CALLERS as u64, "{missing} numbers of {name} are nobody's");
            }
        }
        for host in 0..3 {
            cluster.kill(host);
            until_given(&record, 100).await;
            cluster.launch(host);
            cluster.until("the host is back", PATIENCE, |cluster| cluster.is_ready(host)).await;
            until_given(&record, 100).await;
        }
        cluster.kill_all();
        cluster.launch_all();
        cluster.until_ready().await;
        until_given(&record, 100).await;
        record.stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.expect("a caller does not panic");
        }
        let mut given = record.given.lock().unwrap_or_else(PoisonError::into_inner).clone();
        check_order(&mut given);
        let lost = record.lost.load(Ordering::Relaxed);
        println!("sequence: {} positions given, {lost} calls without an answer", given.len());
        let highest: Vec<u64> =
            (0..SPACES.len()).map(|space| numbers_of(&given, space).last().copied().unwrap_or(0)).collect();
        // What the shards have executed: positions that were given, heard of or not, and no-ops up to the highest number. The status
        // of every host shows how many of the former.
        for (space, name) in SPACES.iter().enumerate() {
            let numbers = numbers_of(&given, space).len() as u64;
            let executed = |cluster: &Cluster| {
                cluster.status(0).and_then(|status| status["sequence"][name].as_u64()).unwrap_or(0)
            };
            cluster.until("host 0 has executed all", PATIENCE, |cluster| executed(cluster) >= numbers).await;
            let executed = executed(&cluster);
            assert!(
                executed <= numbers + lost,
                "{name}: {numbers} positions were answered, {lost} calls were not, {executed} were given"
            );
        }
        numbers_follow_one_another(&cluster, &highest).await;
        let many = cluster.ordinate(&["sequence", "next", "--spaces", "payments", "--count", "2500"]).await;
        let lines = String::from_utf8_lossy(&many.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
        let mut numbers: Vec<u64> = lines
            .iter()
            .map(|line| {
                line.strip_prefix("payments ").and_then(|number| number.parse().ok()).expect("a number")
            })
            .collect();
        numbers.sort_unstable();
        let first = numbers[0];
        assert_eq!(numbers, (first..first + 2500).collect::<Vec<_>>(), "one asks alone, and gets no gap");
    });
}

// A call that cannot be served must say so, and concern nobody else.
#[test]
fn wrong_calls_of_the_sequence_are_refused() {
    side_by_side(async {
        let cluster = start().await;
        let refused = cluster.ordinate(&["sequence", "next", "--spaces", "orders,nosuch"]).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error[O1002]") && said.contains("nosuch"), "{said}");
        for (body, why) in [
            ("{\"spaces\": [\"nosuch\"]}", "no space nosuch; there are: orders, payments, parcels"),
            ("{\"spaces\": []}", "wanted: spaces"),
            ("{\"spaces\": [\"orders\"], \"count\": 1001}", "a count of 1 to 1000"),
            ("{\"space\": \"orders\"}", "the body is no request for numbers"),
        ] {
            let answer = post(&cluster, 1, body).expect("it answers");
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(answer.code == 400 && said.contains(why), "{body}: {} {said}", answer.code);
        }
        let answer = post(&cluster, 1, "{\"spaces\": [\"orders\", \"orders\"]}");
        let position: Value = answer.expect("it answers").json();
        assert_eq!(
            position["positions"][0]["numbers"]["orders"], 1,
            "a space named twice is one space: {position}"
        );
    });
}
