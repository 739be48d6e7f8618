//! What the log cannot take: each is refused, and nothing that was acknowledged is lost by it.

use crate::disk_full::{fill, start_on_small_disks};
use crate::support::cluster::{Cluster, ORDINATE, PATIENCE};
use crate::support::{http, side_by_side};
use ordinate_client::{CallError, Log, LogError, Rows};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SETTINGS: &str = "[log]\nspaces = 2";

fn one(entry: &[u8]) -> Rows {
    let mut rows = Rows::default();
    rows.push(entry);
    rows
}

// A writer that does not learn which line was too much sends it again and again, or believes that it is there.
#[test]
fn what_the_log_cannot_take_is_reported_and_nothing_is_lost() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let log = Log::connect(cluster.endpoints_from(0));
        log.create("jobs", 8 << 20, None).await.expect("it is made");
        for number in 0..10 {
            log.append("jobs", one(format!("{number}").as_bytes())).await.expect("it is appended");
        }
        assert_eq!(log.append("jobs", one(&[b'x'; 1 << 20])).await, Err(LogError::TooLarge));
        assert_eq!(log.append("jobs", Rows::default()).await, Err(CallError::Refused.into()), "no entries");
        let nosuch = LogError::NoSuchLog("nosuch".to_owned());
        assert_eq!(log.append("nosuch", one(b"x")).await, Err(nosuch.clone()));
        assert_eq!(log.read("nosuch", 0, 1, Duration::ZERO).await, Err(nosuch));
        let beyond = LogError::BeyondTail { name: "jobs".to_owned(), tail: 10 };
        assert_eq!(log.read("jobs", 11, 1, Duration::ZERO).await, Err(beyond));
        log.trim("jobs", 4).await.expect("it is trimmed");
        let trimmed = LogError::Trimmed { name: "jobs".to_owned(), resume_from: 4 };
        assert_eq!(log.read("jobs", 3, 1, Duration::ZERO).await, Err(trimmed));
        // A line that is too long, in the middle of others.
        let mut command = Command::new(ORDINATE);
        command.args(["log", "append", "jobs", "--endpoints", &cluster.endpoints_from(0).join(",")]);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary under test runs");
        let mut input = child.stdin.take().expect("it is piped");
        let writing = std::thread::spawn(move || {
            // It may be gone before all is written.
            let _ = input.write_all(format!("before\n{}\nafter\n", "x".repeat(3 << 20)).as_bytes());
        });
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output()).await.expect("no panic");
        writing.join().expect("no panic");
        let ended = ended.expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(2) && said.contains("error[O1012]"), "{said}");
        // A frame whose checksum does not match closes its connection.
        let mut stream = TcpStream::connect(cluster.hosts[0].native).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(b"ORDINATE\x01\0\0\0\0\0\0\0").expect("it listens");
        stream.write_all(&[4, 0, 0, 0, 9, 9, 9, 9, 22, 1, 0, 0]).expect("it listens");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it is closed");
        assert_eq!(answer.len(), 16, "the preface, and nothing else");
        let body = vec![b'x'; 1 << 20];
        let large =
            http::ask(cluster.hosts[0].admin, "POST", "/v1/log/jobs/append", &body).expect("it answers");
        assert_eq!(large.code, 413, "{}", large.text());
        let page = log.read("jobs", 4, 100, Duration::ZERO).await.expect("it can be read");
        let words: Vec<String> = page
            .entries
            .iter()
            .map(|entry| String::from_utf8_lossy(entry).chars().take(9).collect())
            .collect();
        assert_eq!(words[..6], ["4", "5", "6", "7", "8", "9"], "{words:?}");
        assert!(!words.iter().any(|word| word.starts_with('x')), "{words:?}");
    });
}

// An append that is acknowledged though no disk has it, or a log that never goes on.
#[test]
fn full_disks_hold_appends_up_and_lose_none() {
    side_by_side(async {
        let Some((cluster, mounted)) = start_on_small_disks(SETTINGS).await else { return };
        let log = Log::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_secs(2));
        log.create("jobs", 64 << 20, None).await.expect("it is made");
        let fillers: Vec<_> = (0..2).map(|host| fill(&cluster.data_of(host))).collect();
        let (mut acknowledged, mut sent) = (Vec::new(), 0_u64);
        let refused = loop {
            assert!(sent < 2_000, "no disk is full after {sent} appends of 64 KiB\n{}", cluster.logs());
            let entry = format!("{sent:065000}");
            let answer = log.append("jobs", one(entry.as_bytes())).await;
            sent += 1;
            match answer {
                Ok(at) => acknowledged.push((at, entry)),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(
                refused,
                LogError::Call(
                    CallError::TimedOut(_)
                        | CallError::NotSent(_)
                        | CallError::MaybeExecuted
                        | CallError::DiskFull
                )
            ),
            "{refused:?} after {sent}"
        );
        assert!((0..3).any(|host| cluster.log(host).contains("the disk is full")), "{}", cluster.logs());
        for filler in fillers {
            std::fs::remove_file(filler).expect("it was written");
        }
        let deadline = Instant::now() + PATIENCE;
        let again = loop {
            assert!(Instant::now() < deadline, "no append in a minute\n{}", cluster.logs());
            if let Ok(at) = log.append("jobs", one(b"again")).await {
                break at;
            }
        };
        println!("log: {} appends of 64 KiB, then {refused}; again at {again}", acknowledged.len());
        for (at, entry) in &acknowledged {
            let page = log.read("jobs", *at, 1, Duration::ZERO).await.expect("it is there");
            assert_eq!(page.entries, [entry.as_bytes()], "position {at}");
        }
        drop(cluster);
        drop(mounted);
    });
}
