//! The partially ordered log by its native calls: the Rust client while hosts die and hang, and followers of a colour.

use super::{COLOURS, SETTINGS};
use crate::grants::{access, credentials};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::{http, side_by_side};
use ordinate_client::{FuzzyError, FuzzyFailure, FuzzyFault, FuzzyLog, FuzzyNode, NewNode, SnapshotId};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A host that hangs is left for another one within this.
const LEFT_WITHIN: Duration = Duration::from_secs(15);

type Appended = Arc<Mutex<Vec<(String, BTreeMap<String, u64>)>>>;

/// Appends until stopped, a call of one or three nodes after the other.
async fn write(writer: usize, log: FuzzyLog, stop: Arc<AtomicBool>, appended: Appended) {
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let nodes: Vec<(String, Vec<&str>)> = (0..1 + 2 * (turn % 2))
            .map(|nth| {
                let bits = 1 + (turn + writer + nth) % 15;
                let colours = (0..4).filter(|at| bits >> at & 1 == 1).map(|at| COLOURS[at]).collect();
                (format!("{writer}-{turn}-{nth}"), colours)
            })
            .collect();
        let new = nodes.iter().map(|(body, colours)| NewNode {
            colours: colours.iter().map(|name| name.as_bytes().to_vec().into()).collect(),
            bodies: vec![body.clone().into()],
        });
        let placed = log.append_all(new.collect()).await.expect("it is tried again for long enough");
        let placed = nodes.into_iter().zip(placed).map(|((body, colours), node)| {
            (body, colours.into_iter().map(str::to_owned).zip(node.positions).collect())
        });
        appended.lock().unwrap_or_else(PoisonError::into_inner).extend(placed);
    }
}

async fn until_appended(appended: &Appended, more: usize) {
    let count = || appended.lock().unwrap_or_else(PoisonError::into_inner).len();
    let (wanted, deadline) = (count() + more, Instant::now() + PATIENCE);
    while count() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} appends in a minute", count());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn nodes_of(log: &FuzzyLog, colour: &str) -> Vec<FuzzyNode> {
    let mut nodes = Vec::new();
    let mut instance = log.new_instance(colour, None).expect("a colour");
    let snapshot = instance.sync(|node| nodes.push(node.clone())).await.expect("it is played");
    assert_eq!(snapshot.tail(colour), nodes.len() as u64);
    nodes
}

// A host that dies or hangs takes an acknowledged node with it, or has a call that is sent again executed twice.
#[test]
fn the_rust_client_appends_once_while_hosts_die_and_hang() {
    side_by_side(async {
        let mut cluster = Cluster::start(3, SETTINGS, "").await;
        let (stop, appended) = (Arc::new(AtomicBool::new(false)), Appended::default());
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let log = FuzzyLog::connect(cluster.endpoints_from(writer)).with_timeout(PATIENCE);
                // Somebody follows a colour over the same connection, and waits for long.
                let mut follower = log.new_instance("quiet", None).expect("a colour");
                tokio::spawn(async move { while follower.play(Duration::from_secs(30)).await.is_ok() {} });
                tokio::spawn(write(writer, log, Arc::clone(&stop), Arc::clone(&appended)))
            })
            .collect();
        until_appended(&appended, 30).await;
        cluster.kill(0);
        until_appended(&appended, 30).await;
        cluster.launch(0);
        cluster.until_ready().await;
        cluster.signal(1, "-STOP");
        let by = |writer: &str| {
            let appended = appended.lock().unwrap_or_else(PoisonError::into_inner);
            appended.iter().filter(|(body, _)| body.starts_with(writer)).count()
        };
        let (before, hung) = (by("1-"), Instant::now());
        while by("1-") < before + 10 {
            assert!(hung.elapsed() < LEFT_WITHIN, "its client waits for the host that hangs");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cluster.signal(1, "-CONT");
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("the writer ends");
        }
        let appended = std::mem::take(&mut *appended.lock().unwrap_or_else(PoisonError::into_inner));
        let log = FuzzyLog::connect(cluster.endpoints_from(2)).with_timeout(PATIENCE);
        let mut found: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for colour in COLOURS {
            for node in nodes_of(&log, colour).await {
                let body = String::from_utf8(node.body.to_vec()).expect("text");
                let before = found.entry(body.clone()).or_default().insert(colour.to_owned(), node.position);
                assert_eq!(before, None, "{body} is in {colour} twice");
            }
        }
        for (body, positions) in &appended {
            assert_eq!(found.get(body), Some(positions), "{body}");
        }
        assert_eq!(found.len(), appended.len(), "nothing that was given up");
        println!("fuzzylog: {} appends by the Rust client, each there once", appended.len());
    });
}

// A reader that goes on from a snapshot misses a node or sees one twice; a follower is never notified; a wrong call is sent.
#[test]
fn instances_snapshots_and_followers() {
    side_by_side(async {
        let cluster = Cluster::start(1, SETTINGS, "").await;
        let log = FuzzyLog::connect(cluster.endpoints_from(0));
        let one = log.append_each([("red", "r1"), ("blue", "b1")]).await.expect("it is appended");
        let mut red = log.new_instance("red", None).expect("a colour");
        let mut played = Vec::new();
        let first = red.sync(|node| played.push(node.clone())).await.expect("it is played");
        assert_eq!((played[0].at, &played[0].body[..], played[0].colours.len()), (one.at, &b"r1"[..], 2));
        assert_eq!(first.to_string().parse::<SnapshotId>(), Ok(first.clone()));
        let mut follower = log.session().new_instance("red", Some(&first)).expect("a colour");
        let followed = tokio::spawn(async move { follower.play(Duration::from_secs(20)).await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        red.append("r2").await.expect("it is appended");
        let followed = followed.await.expect("it ends").expect("it is played");
        assert_eq!(followed.iter().map(|node| node.position).collect::<Vec<_>>(), [1]);
        let both = log.snapshot(&["red", "blue"]).await.expect("it is taken");
        assert_eq!((both.tail("red"), both.tail("blue")), (2, 1));
        assert!(both.subsumes(&first) && !first.subsumes(&both));
        red.append("r3").await.expect("it is appended");
        let mut again = log.new_instance("red", Some(&first)).expect("a colour");
        let mut bodies = Vec::new();
        again.sync_to(&both, |node| bodies.push(node.body.clone())).await.expect("it is played");
        assert_eq!(bodies, ["r2"], "no further than the snapshot");
        log.trim(&both).await.expect("it is trimmed");
        let late = log.new_instance("red", None).expect("a colour").sync(|_| {}).await;
        assert_eq!(late, Err(FuzzyError::AlreadyTrimmed { resume_from: 2 }));
        let beyond = log.trim(&SnapshotId::of("red", 9, both.seen)).await;
        assert_eq!(beyond, Err(FuzzyError::BeyondTail { tail: 3 }));
        let twice = log.append(&["a", "a"], "x").await;
        assert_eq!(twice, Err(FuzzyError::Fault(FuzzyFault::NamedTwice("a".to_owned()))));
        let quick = again.play(Duration::from_millis(50)).await.expect("it is played");
        assert_eq!(quick.len(), 1);
        assert!(again.play(Duration::from_millis(50)).await.expect("it is answered").is_empty());
        let address = cluster.hosts[0].admin;
        let tail = tokio::task::spawn_blocking(move || {
            crate::log::events(address, "/v1/fuzzylog/colours/red/tail?from=2", None, "r4")
        });
        let call = json!({ "colours": ["red"], "body": "r4" });
        http::ask(address, "POST", "/v1/fuzzylog/append", call.to_string().as_bytes()).expect("an answer");
        let events = tail.await.expect("it ends");
        assert_eq!(events.iter().map(|event| event[0].as_str()).collect::<Vec<_>>(), ["2", "3"]);
        let gone =
            move || crate::log::events(address, "/v1/fuzzylog/colours/red/tail?from=0", None, "trimmed");
        let gone = tokio::task::spawn_blocking(gone).await.expect("it ends");
        assert_eq!(gone, [["1".to_owned(), "trimmed".to_owned(), "{\"resume_from\":2}".to_owned()]]);
    });
}

// A client appends to a colour that it was not granted beside one that it was, or plays what it may only append to.
#[test]
fn native_calls_need_rights_on_each_colour() {
    side_by_side(async {
        let mut cluster = Cluster::planned(1, SETTINGS, "");
        let file = cluster.folder.join("access.toml");
        access(&file, &["init", "root"]);
        let grants = ["--grant", "read fuzzylog red", "--grant", "write fuzzylog blue"];
        let token = access(&file, &[&["add", "some", "--with-token"], &grants[..]].concat());
        cluster.set_environment(0, "ORDINATE_ACCESS__FILE", &file.display().to_string());
        cluster.launch_all();
        cluster.until_ready().await;
        let log = FuzzyLog::connect_as(cluster.endpoints_from(0), credentials(Some(&token)));
        let not_granted = FuzzyError::Failed(FuzzyFailure::NotGranted);
        log.append(&["blue"], "b").await.expect("it was granted");
        assert_eq!(log.append(&["blue", "red"], "b").await.as_ref(), Err(&not_granted));
        assert!(nodes_of(&log, "red").await.is_empty(), "nothing was appended");
        let mut blue = log.new_instance("blue", None).expect("a colour");
        assert_eq!(blue.sync(|_| {}).await.as_ref(), Err(&not_granted));
        assert_eq!(log.snapshot(&["red", "blue"]).await.as_ref(), Err(&not_granted));
        let red = SnapshotId::of("red", 0, log.seen());
        assert_eq!(log.trim(&red).await.as_ref(), Err(&not_granted), "that is to manage it");
    });
}

// A session that gives an append up says that it has the answer, and the append is left half done; or nobody appends any more.
#[test]
fn a_session_goes_on_after_an_append_that_was_given_up() {
    side_by_side(async {
        let settings = format!("{SETTINGS}partition_bytes = \"2MiB\"\n");
        let cluster = Cluster::start(1, &settings, "").await;
        let log = FuzzyLog::connect(cluster.endpoints_from(0)).with_timeout(Duration::from_millis(300));
        log.append(&["red"], "1").await.expect("it is appended");
        cluster.signal(0, "-STOP");
        let unknown = log.append(&["red"], "2").await.expect_err("the host hangs");
        assert!(matches!(unknown, FuzzyError::Unknown(_)) && !unknown.is_surely_void());
        cluster.signal(0, "-CONT");
        let log = log.with_timeout(PATIENCE);
        let third = log.append(&["red"], "3").await.expect("it is appended");
        let bodies: Vec<_> = nodes_of(&log, "red").await.into_iter().map(|node| node.body).collect();
        assert_eq!(bodies[third.positions["red"] as usize], "3");
        assert!(bodies.iter().filter(|body| *body == "2").count() <= 1);
        let large = vec![b'x'; 1_000_000];
        let mut ends = Vec::new();
        for _ in 0..4 {
            ends.push(log.append(&["red"], large.clone()).await.err());
        }
        assert_eq!(ends[3], Some(FuzzyError::Failed(FuzzyFailure::Full)));
    });
}
