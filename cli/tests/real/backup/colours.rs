//! The partially ordered log in a backup: one time of all partitions, and the same nodes at the same positions elsewhere.

use super::{damage, done, manifest, run};
use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::side_by_side;
use ordinate_client::{Bytes, FuzzyError, FuzzyLog, FuzzyNode, NewNode};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SETTINGS: &str = "[fuzzylog]\npartitions = 3\n";
const COLOURS: [&str; 5] = ["app/red", "app/blue", "app/green", "app/black", "other"];
const WRITERS: u64 = 3;
/// Appends of each writer that are answered before the backup begins.
const BEFORE: u64 = 80;
/// Nodes of a colour that nobody changes: more than a chunk of them.
const STILL: u64 = 2_000;
const STILL_BYTES: usize = 2_000;
const STILL_OF_ONE: u64 = 100;

/// The colours of a writer's append.
fn colours_of(writer: u64, number: u64) -> Vec<&'static str> {
    let bits = 1 + (number * 7 + writer) % 15;
    (0..4).filter(|at| bits >> at & 1 == 1).map(|at| COLOURS[at]).collect()
}

/// What a node holds for one of its colours: some have one body for all, some one for each.
fn body_of(writer: u64, number: u64, colour: &str) -> String {
    match number % 3 {
        0 => format!("{writer}-{number}-{colour}"),
        _ => format!("{writer}-{number}"),
    }
}

async fn append(log: &FuzzyLog, writer: u64, number: u64) {
    let colours = colours_of(writer, number);
    let of_each = colours.iter().map(|colour| (*colour, body_of(writer, number, colour)));
    let appended = match number % 3 {
        0 => log.append_each(of_each).await,
        _ => log.append(&colours, body_of(writer, number, "")).await,
    };
    appended.expect("an append");
}

/// Appends, and trims now and then what is well below the end.
async fn write(log: FuzzyLog, writer: u64, stop: Arc<AtomicBool>, answered: Arc<AtomicU64>) {
    for number in 0.. {
        append(&log, writer, number).await;
        answered.store(number + 1, Ordering::SeqCst);
        if writer == 0 && number % 20 == 19 {
            let mut snapshot = log.snapshot(&["app/green"]).await.expect("a snapshot");
            let tail = snapshot.tails.get_mut("app/green").expect("it is named");
            *tail = tail.saturating_sub(40);
            log.trim(&snapshot).await.expect("a trim");
        }
        if stop.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// What is left of a colour: its first position, and its nodes.
async fn nodes_of(log: &FuzzyLog, colour: &str) -> (u64, Vec<FuzzyNode>) {
    let from = |first: u64| {
        let text = format!("0-0-0/{colour}={first}").parse().expect("a snapshot");
        log.new_instance(colour, Some(&text)).expect("a colour")
    };
    let (mut first, mut nodes) = (0, Vec::new());
    loop {
        nodes.clear();
        match from(first).sync(|node| nodes.push(node.clone())).await {
            Ok(_) => return (first, nodes),
            Err(FuzzyError::AlreadyTrimmed { resume_from }) => first = resume_from,
            Err(error) => panic!("{colour}: {error}"),
        }
    }
}

type Views = BTreeMap<&'static str, (u64, Vec<FuzzyNode>)>;

async fn views(cluster: &Cluster) -> Views {
    let log = FuzzyLog::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
    let mut views = Views::new();
    for colour in COLOURS.iter().chain(&["emptied", "still"]) {
        views.insert(colour, nodes_of(&log, colour).await);
    }
    views
}

/// Each node is what a writer appended, in all of its colours that have not been trimmed so far, and writers' nodes are there without a
/// gap.
fn judge(restored: &Views, cluster: &Views, before: &[u64]) {
    let mut seen: BTreeMap<(u64, u64), BTreeMap<&str, &FuzzyNode>> = BTreeMap::new();
    for (colour, (first, nodes)) in restored {
        let (left, all) = &cluster[colour];
        for (node, position) in nodes.iter().zip(*first..) {
            assert_eq!(node.position, position, "{colour} has a hole");
            // The cluster has trimmed more by now, perhaps.
            if let Some(index) = position.checked_sub(*left) {
                assert_eq!(Some(node), all.get(index as usize), "{colour}");
            }
            let numbers = std::str::from_utf8(&node.body).expect("text").split('-').take(2);
            let numbers: Vec<u64> = numbers.filter_map(|it| it.parse().ok()).collect();
            if let [writer, number] = numbers[..]
                && colour.starts_with("app/")
            {
                assert_eq!(node.body, body_of(writer, number, colour).into_bytes());
                assert_eq!(
                    seen.entry((writer, number)).or_default().insert(colour, node).map(|it| it.at),
                    None
                );
            }
        }
    }
    for (&(writer, number), nodes) in &seen {
        let times: Vec<_> = nodes.values().map(|node| node.at).collect();
        assert!(times.windows(2).all(|pair| pair[0] == pair[1]), "{writer}-{number} has two times");
        for colour in colours_of(writer, number) {
            let is_trimmed = colour == "app/green" && restored[colour].0 > 0;
            assert!(nodes.contains_key(colour) || is_trimmed, "{writer}-{number} is not in {colour}");
        }
    }
    for (writer, before) in (0..).zip(before) {
        let is_in = |number: &u64| colours_of(writer, *number).iter().any(|it| *it != "app/green");
        for number in (0..*before).filter(is_in) {
            assert!(seen.contains_key(&(writer, number)), "{writer}-{number} was answered");
        }
    }
}

fn first_chunk(manifest: &Value) -> Value {
    let partitions = manifest["fuzzylog"]["partitions"].as_array().expect("partitions");
    let mut chunks = partitions.iter().flat_map(|it| it.as_array().expect("chunks"));
    chunks.next().expect("a chunk").clone()
}

fn written_bytes(said: &str) -> u64 {
    let (_, rest) = said.split_once("of which ").expect("it says what was written");
    rest.split(' ').next().and_then(|it| it.parse().ok()).expect("a number")
}

async fn start(partitions: u16) -> Cluster {
    Cluster::start(1, &format!("[fuzzylog]\npartitions = {partitions}\n"), "").await
}

/// What of a backup is restored where there is something, and what is refused.
async fn goes_where_nothing_is(to: &str, expected: &Views) {
    let some = start(5).await;
    let log = FuzzyLog::connect(some.endpoints_from(0)).with_timeout(PATIENCE);
    log.append(&["other"], "mine").await.expect("an append");
    let restore = ["restore", "--from", to];
    let (well, refused) = run(&some, &restore).await;
    assert!(!well && refused.contains("O1043"), "{refused}");
    let (well, refused) = run(&some, &[&restore[..], &["--merge"]].concat()).await;
    assert!(!well && refused.contains("O1043") && refused.contains("colour other has 1 nodes"), "{refused}");
    for colour in ["app/red", "still"] {
        assert_eq!(
            nodes_of(&log, colour).await.1.len(),
            0,
            "nothing comes into view of a restore that failed"
        );
        // Nor is it in anybody's way.
        log.append(&["emptied"], colour).await.expect("an append");
    }
    let only = ["--merge", "--only", "fuzzylog", "--prefix", "app/"];
    println!("{}", done(&some, &[&restore[..], &only].concat()).await);
    for (colour, (first, nodes)) in expected.iter().filter(|(colour, _)| colour.starts_with("app/")) {
        // A colour that was trimmed whole before it was read has no name, so no prefix names it.
        let expected = if nodes.is_empty() { (0, Vec::new()) } else { (*first, nodes.clone()) };
        assert_eq!(nodes_of(&log, colour).await, expected, "{colour}");
    }
    assert_eq!(nodes_of(&log, "other").await.1[0].body, "mine");
    assert_eq!(nodes_of(&log, "still").await.1.len(), 0);
    let next = log.append(&["app/red"], "next").await.expect("an append").positions;
    assert_eq!(next["app/red"], expected["app/red"].0 + expected["app/red"].1.len() as u64);
}

// A backup with half of a node, without one that was answered, or with other positions restores what never was.
#[test]
fn colours_come_back_as_of_one_time_with_their_positions() {
    side_by_side(async {
        let cluster = Cluster::start(3, SETTINGS, "").await;
        let log = FuzzyLog::connect(cluster.endpoints_from(0)).with_timeout(PATIENCE);
        for part in 0..STILL / STILL_OF_ONE {
            let node = |number: u64| {
                let body = format!("{part}:{number}:").into_bytes();
                let body: Vec<u8> = body.iter().copied().cycle().take(STILL_BYTES).collect();
                NewNode { colours: vec![Bytes::from_static(b"still")], bodies: vec![body.into()] }
            };
            log.append_all((0..STILL_OF_ONE).map(node).collect()).await.expect("an append");
        }
        for number in 0..5 {
            log.append(&["emptied", "other"], format!("{number}")).await.expect("an append");
        }
        log.trim(&log.snapshot(&["emptied"]).await.expect("a snapshot")).await.expect("a trim");
        let stop = Arc::new(AtomicBool::new(false));
        let answered: Vec<_> = (0..WRITERS).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let writer = |(writer, answered): (u64, &Arc<AtomicU64>)| {
            let log = FuzzyLog::connect(cluster.endpoints_from(writer as usize)).with_timeout(PATIENCE);
            tokio::spawn(write(log, writer, Arc::clone(&stop), Arc::clone(answered)))
        };
        let writers: Vec<_> = (0..WRITERS).zip(&answered).map(writer).collect();
        let counts = || -> Vec<u64> { answered.iter().map(|it| it.load(Ordering::SeqCst)).collect() };
        cluster.until("the writers are at it", PATIENCE, |_| counts().iter().all(|it| *it >= BEFORE)).await;
        let (before, folder) = (counts(), cluster.folder.join("backups"));
        let to = folder.display().to_string();
        let first = done(&cluster, &["backup", "--to", &to]).await;
        println!("{first}");
        assert!(first.contains(" nodes of 7 colours") && !first.contains("left out"), "{first}");
        assert!(counts() > before, "nothing was written meanwhile");
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.expect("it ends well");
        }
        let saved = manifest(&folder);
        let listed = done(&cluster, &["backup", "list", "--to", &to]).await;
        assert!(listed.contains(" nodes of 7 colours"), "{listed}");

        let small = start(2).await;
        println!("{}", done(&small, &["restore", "--from", &to]).await);
        let restored = views(&small).await;
        judge(&restored, &views(&cluster).await, &before);
        assert_eq!((restored["emptied"].0, restored["emptied"].1.len()), (5, 0), "positions go on");
        assert_eq!(restored["still"].1.len() as u64, STILL);
        goes_where_nothing_is(&to, &restored).await;

        // What came since, and nothing the next time.
        let second = done(&cluster, &["backup", "--to", &to]).await;
        assert!(written_bytes(&second) < written_bytes(&first) / 4, "{first} {second}");
        let third = done(&cluster, &["backup", "--to", &to]).await;
        assert_eq!(written_bytes(&third), 0, "{third}");
        let digest = damage(&folder, &first_chunk(&manifest(&folder)));
        let empty = start(1).await;
        for arguments in [&["restore", "--from", &to][..], &["backup", "verify", "--to", &to]] {
            let (well, said) = run(&empty, arguments).await;
            assert!(!well && said.contains("O1041") && said.contains(&digest), "{said}");
        }
        assert!(views(&empty).await.values().all(|(first, nodes)| *first == 0 && nodes.is_empty()));
        assert!(saved["fuzzylog"]["at"].is_string());
    });
}
