//! Colours that move, and a partition that comes and goes, while nodes are appended and a host dies.

use super::{COLOURS, Record, SETTINGS, WRITERS, judge, post, until_appended, write};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Asks the hosts in turn until one has done it; what was taken back is asked for again.
fn until_done(hosts: &[SocketAddr], ask: impl Fn(SocketAddr) -> Option<(u16, Value)>) -> Value {
    let deadline = Instant::now() + PATIENCE;
    let mut last = None;
    for host in hosts.iter().cycle() {
        match ask(*host) {
            Some((200, answer)) => return answer,
            Some((409 | 503 | 504, answer)) => last = Some(answer),
            None => {}
            Some((code, answer)) => panic!("{code} {answer}"),
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    panic!("not done in a minute: {last:?}");
}

fn move_to(hosts: &[SocketAddr], colour: &str, partition: u16) {
    let body = json!({ "colour": colour, "partition": partition });
    let answer = until_done(hosts, |host| post(host, "/v1/fuzzylog/move", &body));
    assert_eq!(answer["partition"], partition, "{colour}");
}

/// What a host knows of where colours are.
fn map_at(host: SocketAddr) -> Value {
    let page = http::get(host, "/v1/fuzzylog/partitions").expect("an answer").json();
    page["map"].clone()
}

// A colour that moves under appends loses one, has one twice, or is nobody's when a host dies meanwhile.
#[test]
fn colours_move_under_appends_while_hosts_die() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let hosts: Vec<SocketAddr> = cluster.hosts.iter().map(|host| host.admin).collect();
        let record = Arc::new(Record { hosts: Mutex::new(hosts.clone()), ..Record::default() });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let record = Arc::clone(&record);
                std::thread::spawn(move || write(writer, &record))
            })
            .collect();
        until_appended(&record, 50).await;
        let added =
            until_done(&hosts, |host| post(host, "/v1/fuzzylog/partitions", &json!({ "partition": 3 })));
        assert_eq!(added["partition"], 3);
        for (turn, colour) in COLOURS.iter().enumerate() {
            move_to(&hosts, colour, 3);
            until_appended(&record, 20).await;
            // The host dies in the middle of the next moves, or before them.
            let host = turn % 3;
            let mover = {
                let hosts = hosts.clone();
                std::thread::spawn(move || move_to(&hosts, colour, (turn as u16 + 1) % 3))
            };
            cluster.kill(host);
            mover.join().expect("the colour has moved");
            until_appended(&record, 20).await;
            cluster.launch(host);
            cluster.until_ready().await;
        }
        move_to(&hosts, "red", 3);
        until_appended(&record, 20).await;
        let removed = until_done(&hosts, |host| {
            let answer = http::ask(host, "DELETE", "/v1/fuzzylog/partitions/3", b"")?;
            Some((answer.code, answer.json()))
        });
        assert_eq!(removed["partition"], 3);
        until_appended(&record, 30).await;
        record.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        let appended = std::mem::take(&mut *record.appended.lock().unwrap_or_else(PoisonError::into_inner));
        for address in &hosts {
            judge(*address, &appended);
        }
        let map = map_at(hosts[0]);
        assert_eq!(
            (&map["added"], &map["moving"], &map["removed"]),
            (&json!([]), &Value::Null, &Value::Null)
        );
        let calls = std::mem::take(&mut *record.calls.lock().unwrap_or_else(PoisonError::into_inner));
        let longest = calls.into_iter().max().unwrap_or_default();
        println!(
            "fuzzylog: {} appends under moves, each there once; the longest took {longest:?}, map {map}",
            appended.len()
        );
    });
}

// Who may not say which host does what moves others' colours; and what cannot be is refused in so many words.
#[test]
fn moves_that_cannot_be_are_refused() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let address = cluster.hosts[0].admin;
        let to = |partition: u16| {
            let body = json!({ "colour": "red", "partition": partition });
            post(address, "/v1/fuzzylog/move", &body).expect("an answer")
        };
        let (code, answer) = to(9);
        assert_eq!((code, &answer["executed"]), (400, &json!(false)), "{answer}");
        let remove = |partition: u16| {
            let path = format!("/v1/fuzzylog/partitions/{partition}");
            let answer = http::ask(address, "DELETE", &path, b"").expect("an answer");
            (answer.code, answer.json())
        };
        let (code, answer) = remove(0);
        assert_eq!(code, 409, "{answer}");
        assert!(answer["error"].as_str().is_some_and(|it| it.contains("from the beginning")), "{answer}");
        assert_eq!(map_at(address)["version"], 0, "nothing was decided");
        assert_eq!(to(1).0, 200);
        assert_eq!(to(1).0, 200, "asked again, it comes to the same");
    });
}
