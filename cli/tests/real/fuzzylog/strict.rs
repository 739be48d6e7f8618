//! The strict order between real processes: times follow real time over colours, whichever hosts are asked.

use super::{WRITERS, post};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One machine has one clock, which is off by nothing.
const SETTINGS: &str =
    "[clock]\nsource = \"fixed\"\nepsilon = \"2ms\"\n[fuzzylog]\npartitions = 3\norder = \"strict\"\n";
const COLOURS: [&str; 6] = ["red", "blue", "green", "black", "white", "grey"];
const APPENDS: u64 = 60;

/// When something was asked and answered, in microseconds since the Unix epoch, and its time.
#[derive(Clone, Copy, Debug)]
struct Dated {
    began: u64,
    ended: u64,
    time: u64,
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    now.as_micros() as u64
}

/// Asks hosts in turn, from one on, until one has answered.
fn asked(hosts: &[SocketAddr], mut host: usize, path: &str, call: &Value) -> (Dated, Value) {
    let (began, deadline) = (now(), Instant::now() + PATIENCE);
    loop {
        match post(hosts[host % hosts.len()], path, call) {
            Some((200, answer)) => {
                let time = answer["time_us"].as_u64().expect("a time");
                return (Dated { began, ended: now(), time }, answer);
            }
            Some((503 | 504, _)) | None => host += 1,
            Some((code, answer)) => panic!("{code} {answer}"),
        }
        assert!(Instant::now() < deadline, "{path} is not answered for a minute");
    }
}

/// Appends to one or two colours, each time by another host, and says nothing of what it has seen.
fn write(writer: u64, hosts: &[SocketAddr], record: &Mutex<Vec<Dated>>) {
    for number in 1..=APPENDS {
        let first = ((number + 2 * writer) % 6) as usize;
        let second = (first + 1 + (number % 5) as usize) % 6;
        let count = 1 + (number % 3 == 0) as usize;
        let colours: Vec<&str> = [first, second].iter().map(|at| COLOURS[*at]).take(count).collect();
        let client = json!({ "id": format!("{:x}", writer + 1), "number": number, "below": number });
        let call = json!({ "colours": colours, "body": format!("{writer}-{number}"), "client": client });
        let (dated, _) = asked(hosts, (number + writer) as usize, "/v1/fuzzylog/append", &call);
        record.lock().unwrap_or_else(PoisonError::into_inner).push(dated);
    }
}

/// Each time is between the call and its answer, so what was answered before something else was asked has the smaller one.
fn judge(mut dated: Vec<Dated>) {
    for it in &dated {
        assert!(it.began <= it.time && it.time < it.ended, "{it:?}");
    }
    dated.sort_by_key(|it| it.time);
    for (at, later) in dated.iter().enumerate() {
        let contradicted = dated[..at].iter().find(|it| it.began > later.ended);
        assert!(contradicted.is_none(), "{later:?} is after {contradicted:?}");
    }
}

/// A time with what breaks the ties between partitions: two of them may have nodes of one microsecond.
fn time_of(dated: &Value) -> Vec<u64> {
    let parts = dated["at"].as_str().expect("a time").split('-');
    parts.map(|part| u64::from_str_radix(part, 16).expect("a number")).collect()
}

/// Snapshots of all colours are of their times: of what has an earlier one all is inside, and nothing else.
fn judge_snapshot(hosts: &[SocketAddr], snapshot: &Value) {
    for colour in COLOURS {
        let tail = snapshot["tails"][colour].as_u64().expect("a position");
        for node in super::nodes_of(hosts[0], colour, 0) {
            let is_inside = node["position"].as_u64() < Some(tail);
            assert_eq!(time_of(&node) < time_of(snapshot), is_inside, "{node} at {snapshot}");
        }
    }
}

// What was answered before another append was asked for, by another process in another colour, is ordered behind it; or a host dies and
// the next head goes back in time.
#[test]
fn times_follow_real_time_over_colours() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Arc<Vec<SocketAddr>> = Arc::new(cluster.hosts.iter().map(|host| host.admin).collect());
        let record = Arc::new(Mutex::new(Vec::new()));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (hosts, record) = (Arc::clone(&hosts), Arc::clone(&record));
                std::thread::spawn(move || write(writer, &hosts, &record))
            })
            .collect();
        let appended = || record.lock().unwrap_or_else(PoisonError::into_inner).len();
        let half = (WRITERS * APPENDS / 2) as usize;
        cluster.until("half is appended", PATIENCE, |_| appended() >= half).await;
        cluster.kill(1);
        cluster.launch(1);
        let mut snapshots = Vec::new();
        for nth in 0..20 {
            let (dated, answer) = asked(&hosts, nth, "/v1/fuzzylog/snapshot", &json!({ "colours": COLOURS }));
            snapshots.push(answer);
            record.lock().unwrap_or_else(PoisonError::into_inner).push(dated);
        }
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        cluster.until_ready().await;
        judge(std::mem::take(&mut *record.lock().unwrap_or_else(PoisonError::into_inner)));
        snapshots.iter().for_each(|snapshot| judge_snapshot(&hosts, snapshot));
        says_what_it_promises(&cluster, hosts[0]);
        // Its data are of this order.
        cluster.kill(1);
        cluster.set_environment(1, "ORDINATE_FUZZYLOG__ORDER", "serializable");
        let refused = cluster.refusal(1);
        assert!(
            refused.said.contains("O2112") && refused.said.contains("fuzzylog with order strict"),
            "{}",
            refused.said
        );
    });
}

fn says_what_it_promises(cluster: &Cluster, address: SocketAddr) {
    assert_eq!(cluster.status(0).expect("a status")["fuzzylog"]["order"], "strict");
    let body = json!({ "kind": "atomic", "shards": 4 }).to_string();
    let made = http::ask(address, "PUT", "/v1/map/cities", body.as_bytes()).expect("an answer").json();
    assert_eq!(made["consistency"], "strictly serializable", "{made}");
    let metrics = http::ask(address, "GET", "/metrics", b"").expect("an answer").text();
    let waits = metrics.lines().find_map(|line| line.strip_prefix("ordinate_fuzzylog_time_waits_total "));
    assert!(waits.is_some_and(|count| count != "0"), "{waits:?}");
}

// By a clock that nobody keeps, times would be guesses; and regions have one order each.
#[test]
fn the_strict_order_is_refused_where_it_cannot_hold() {
    side_by_side(async {
        let regions = "[regions]\nohio = \"a\"\ntokyo = \"b,c\"\n";
        let refused = Cluster::planned(3, &format!("{SETTINGS}{regions}"), "").refusal(0);
        assert!(refused.said.contains("fuzzylog does not go with [regions]"), "{}", refused.said);
        assert!(refused.said.contains("fuzzylog.order is \"strict\""), "{}", refused.said);
        let cluster = Cluster::planned(3, "[fuzzylog]\npartitions = 1\norder = \"strict\"", "");
        cluster.write_file();
        if cluster.ordinate(&["clock"]).await.status.success() {
            println!("SKIPPED: this machine has a synchronised clock");
            return;
        }
        let refused = cluster.refusal(0);
        assert_eq!(refused.status.and_then(|status| status.code()), Some(1), "{}", refused.said);
        assert!(refused.said.contains("error[O2115]") && refused.said.contains("-> "), "{}", refused.said);
    });
}
