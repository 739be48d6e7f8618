//! Two regions of three hosts each, with relays between them that can be cut.

use super::{nodes_of, post};
use crate::support::cluster::{Cluster, PATIENCE, free_address};
use crate::support::relay::{self, Cut};
use crate::support::{alone, http, number};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SETTINGS: &str = "[fuzzylog]\npartitions = 2\n";
const REGIONS: &str = "[regions]\nohio = \"a,b,c\"\ntokyo = \"d,e,f\"\n";
pub(super) const OHIO: [usize; 3] = [0, 1, 2];
pub(super) const TOKYO: [usize; 3] = [3, 4, 5];
const COLOURS: [&str; 3] = ["red", "blue", "green"];
const WRITERS: u64 = 2;
/// Ten times what was measured at most on a busy machine, so no test of speed: who waits for a time limit of TCP's takes longer.
const JOINED_WITHIN: Duration = Duration::from_secs(10);
/// Between two tries of a writer that is not answered.
const PAUSE: Duration = Duration::from_millis(20);

/// Six hosts; those of a region reach those of the other one through relays.
pub(super) fn planned(cut: &Cut) -> Cluster {
    let mut cluster = Cluster::planned(6, SETTINGS, REGIONS);
    for (own, others) in [(OHIO, TOKYO), (TOKYO, OHIO)] {
        let mut addresses = BTreeMap::new();
        for other in others {
            let address = free_address();
            let listener = TcpListener::bind(address).expect("nobody else has it");
            relay::start(listener, cluster.hosts[other].peer, cut);
            addresses.insert(other, address);
        }
        own.into_iter().for_each(|host| cluster.reach_elsewhere(host, &addresses));
    }
    cluster
}

fn admin(cluster: &Cluster, hosts: [usize; 3]) -> [SocketAddr; 3] {
    hosts.map(|host| cluster.hosts[host].admin)
}

/// What was acknowledged: the body, and where it is in its region.
type Acknowledged = Vec<(String, Value)>;

/// Writers of one region.
#[derive(Default)]
struct Region {
    stop: AtomicBool,
    acknowledged: Mutex<Acknowledged>,
    /// How long each append took, with everything that was sent again.
    calls: Mutex<Vec<Duration>>,
    count: AtomicU64,
}

impl Region {
    fn take_longest(&self) -> Duration {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *calls).into_iter().max().unwrap_or_default()
    }
}

fn in_query(text: &str) -> String {
    let byte = |it: u8| match it.is_ascii_alphanumeric() {
        true => char::from(it).to_string(),
        false => format!("%{it:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Plays a colour to its end, and returns the snapshot's id and the last body of the other region.
fn play(address: SocketAddr, colour: &str, from: &mut u64, other: &str) -> Option<(String, Option<String>)> {
    let mut last = None;
    loop {
        let answer = http::ask(address, "GET", &format!("/v1/fuzzylog/colours/{colour}?from={from}"), b"")?;
        if answer.code != 200 {
            return None;
        }
        let page = answer.json();
        let of_other = page["nodes"].as_array()?.iter().rfind(|node| node["region"] == other);
        last = of_other.and_then(|node| node["body"].as_str()).map(str::to_owned).or(last);
        *from = page["next"].as_u64()?;
        if Some(*from) >= page["tail"].as_u64() {
            return Some((page["snapshot"].as_str()?.to_owned(), last));
        }
    }
}

/// Plays and appends until stopped: each node says which one of the other region its writer has seen last in its first colour.
fn write(writer: u64, hosts: [SocketAddr; 3], (own, other): (&str, &str), region: &Region) {
    let (mut number, mut host) = (0, writer as usize);
    let (mut positions, mut saw) = ([0; COLOURS.len()], [const { None }; COLOURS.len()]);
    while !region.stop.load(Ordering::Relaxed) {
        number += 1;
        let first = (number + writer) as usize % COLOURS.len();
        let second = (first + 1) % COLOURS.len();
        let Some((snapshot, last)) = play(hosts[host % 3], COLOURS[first], &mut positions[first], other)
        else {
            host += 1;
            std::thread::sleep(PAUSE);
            continue;
        };
        saw[first] = last.or(saw[first].take());
        let colours =
            if number % 3 == 0 { vec![COLOURS[first], COLOURS[second]] } else { vec![COLOURS[first]] };
        let seen = saw[first].as_deref().and_then(|it: &str| it.split(' ').next()).unwrap_or("-");
        let body = format!("{own}.{writer}.{number} {} {seen}", COLOURS[first]);
        let id = format!("{:x}", writer + 1 + if own == "ohio" { 0 } else { 100 });
        let client = json!({ "id": id, "number": number, "below": number });
        let call = json!({ "colours": colours, "body": body, "client": client, "after": snapshot });
        let begun = Instant::now();
        let placed = loop {
            match post(hosts[host % 3], "/v1/fuzzylog/append", &call) {
                Some((200, answer)) => break answer["positions"].clone(),
                Some((503 | 504, _)) | None => host += 1,
                Some((code, answer)) => panic!("{code} {answer}"),
            }
            std::thread::sleep(PAUSE);
            assert!(begun.elapsed() < PATIENCE, "writer {writer} of {own} is not answered for a minute");
        };
        region.calls.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
        region.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push((body, placed));
        region.count.fetch_add(1, Ordering::Relaxed);
    }
}

async fn until_appended(region: &Region, more: u64) {
    let wanted = region.count.load(Ordering::Relaxed) + more;
    let deadline = Instant::now() + PATIENCE;
    while region.count.load(Ordering::Relaxed) < wanted {
        assert!(Instant::now() < deadline, "{more} appends are not done in a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The bodies of a colour, in the order of a region, each once.
fn bodies(address: SocketAddr, colour: &str) -> Vec<String> {
    let nodes = nodes_of(address, colour, 0);
    let bodies: Vec<String> =
        nodes.iter().map(|node| node["body"].as_str().expect("text").to_owned()).collect();
    let differ: BTreeSet<&String> = bodies.iter().collect();
    assert_eq!(differ.len(), bodies.len(), "{colour} has a node twice");
    bodies
}

/// Everything acknowledged is where its region said, and what a writer had seen comes before what it wrote.
fn judge(
    address: SocketAddr,
    acknowledged: Option<&Acknowledged>,
) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for colour in COLOURS {
        let bodies = bodies(address, colour);
        for (body, positions) in acknowledged.into_iter().flatten() {
            if let Some(position) = positions[colour].as_u64() {
                assert_eq!(bodies.get(position as usize), Some(body), "at {position} of {colour}");
            }
        }
        let mut before = BTreeSet::new();
        for body in &bodies {
            let words: Vec<&str> = body.split(' ').collect();
            let [name, first, saw] = words[..] else { panic!("{body} is no body of a writer") };
            let is_held = first != colour || saw == "-" || before.contains(saw);
            assert!(is_held, "in {colour}, {body} comes before what its writer has seen");
            before.insert(name);
        }
        all.insert(colour, bodies.into_iter().collect());
    }
    all
}

/// The id of all that a region has of red, for the other region.
fn named(address: SocketAddr) -> String {
    let (code, answer) =
        post(address, "/v1/fuzzylog/snapshot", &json!({ "colours": ["red"] })).expect("an answer");
    assert_eq!(code, 200, "{answer}");
    answer["snapshot"].as_str().expect("an id").to_owned()
}

fn wait_for(address: SocketAddr, snapshot: &str, timeout_ms: u64) -> (u16, Value) {
    let body = json!({ "snapshot": snapshot, "timeout_ms": timeout_ms });
    post(address, "/v1/fuzzylog/await", &body).expect("an answer")
}

/// What is of another region, or of nobody, is refused.
fn refuses_what_is_not_its_own(ohio: SocketAddr, tokyo: SocketAddr, snapshot: &str) {
    let (_, appended) =
        post(ohio, "/v1/fuzzylog/append", &json!({ "colours": ["black"], "body": "x" })).expect("one");
    let seen = appended["seen"].as_str().expect("a time");
    let append = json!({ "colours": ["black"], "body": "y", "seen": seen });
    assert_eq!(post(tokyo, "/v1/fuzzylog/append", &append).expect("an answer").0, 409);
    let trim = json!({ "before": 1, "seen": seen });
    let path = "/v1/fuzzylog/colours/black/trim";
    assert_eq!(post(tokyo, path, &trim).expect("an answer").0, 409, "a position of ohio's");
    assert_eq!(post(tokyo, path, &json!({ "before": 1 })).expect("an answer").0, 409, "of nobody's");
    // Which map was made first, and what is in it, would differ between regions.
    let map = http::ask(tokyo, "PUT", "/v1/map/m", b"{\"kind\":\"log\"}").expect("an answer");
    assert_eq!((map.code, &map.json()["executed"]), (400, &json!(false)), "{}", map.text());
    assert_eq!(wait_for(tokyo, &snapshot[..snapshot.len() - 1], 100).0, 400, "it is cut");
    assert_eq!(wait_for(tokyo, &snapshot.replacen("ohio", "iowa", 1), 100).0, 400, "it is changed");
    let kv = http::ask(tokyo, "PUT", "/v1/kv/a", b"b").expect("an answer");
    assert_eq!(kv.code, 404, "a store of one region is none of all");
}

/// Who calls what a cluster of regions has not learns that, and not that nobody answers.
async fn says_what_is_off(cluster: &Cluster) {
    for call in [
        &["kv", "get", "a"][..],
        &["kv", "put", "a", "b"],
        &["log", "list"],
        &["sequence", "next", "--spaces", "orders"],
        &["txn", "get", "a"],
        &["txn", "put", "a", "b"],
    ] {
        let ended = cluster.ordinate(call).await;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("O1066") && said.contains("which is off"), "{call:?}: {said}");
        assert_eq!(ended.status.code(), Some(2), "{call:?}: {said}");
    }
}

/// Both regions, and who writes in them.
struct Stage {
    cluster: Cluster,
    cut: Cut,
    ohio: [SocketAddr; 3],
    tokyo: [SocketAddr; 3],
    regions: [Arc<Region>; 2],
    writers: Vec<JoinHandle<()>>,
}

impl Stage {
    async fn begin() -> Self {
        let cut = Cut::default();
        let mut cluster = planned(&cut);
        cluster.launch_all();
        cluster.until_ready().await;
        let (ohio, tokyo) = (admin(&cluster, OHIO), admin(&cluster, TOKYO));
        let regions = [Arc::new(Region::default()), Arc::new(Region::default())];
        let mut writers = Vec::new();
        for (hosts, names, region) in
            [(ohio, ("ohio", "tokyo"), &regions[0]), (tokyo, ("tokyo", "ohio"), &regions[1])]
        {
            for writer in 0..WRITERS {
                let region = Arc::clone(region);
                writers.push(std::thread::spawn(move || write(writer, hosts, names, &region)));
            }
        }
        Self { cluster, cut, ohio, tokyo, regions, writers }
    }

    async fn until_all_append(&self, more: u64) {
        for region in &self.regions {
            until_appended(region, more).await;
        }
    }

    /// Cuts the regions, has one of them lose power meanwhile, and joins them again.
    async fn cut_for(&mut self, lasts: Duration) {
        let (ohio, tokyo) = (self.ohio, self.tokyo);
        self.cut.store(true, Ordering::Relaxed);
        let cut_at = Instant::now();
        for region in &self.regions {
            region.take_longest();
        }
        self.until_all_append(20).await;
        let snapshot = named(ohio[0]);
        assert_eq!(wait_for(tokyo[0], &snapshot, 300).0, 412, "it cannot be there");
        refuses_what_is_not_its_own(ohio[1], tokyo[1], &snapshot);
        while cut_at.elapsed() < lasts {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let longest = self.regions.each_ref().map(|region| region.take_longest());
        for (longest, name) in longest.iter().zip(["ohio", "tokyo"]) {
            println!("{name}: the longest append in a cut of {lasts:?} took {longest:?}");
            assert!(*longest < lasts / 2, "it has waited for the other region");
        }
        let all = |cluster: &Cluster| (0..6).all(|host| cluster.is_ready(host));
        self.cluster.until("all hosts are ready though the regions are cut", PATIENCE, all).await;
        TOKYO.into_iter().for_each(|host| self.cluster.kill(host));
        TOKYO.into_iter().for_each(|host| self.cluster.launch(host));
        self.cluster.until_ready().await;
        self.until_all_append(10).await;
        self.cut.store(false, Ordering::Relaxed);
        let healed_at = Instant::now();
        let (code, here) = wait_for(tokyo[0], &snapshot, 30_000);
        assert_eq!(code, 200, "{here}");
        let joined = healed_at.elapsed();
        println!("what ohio had in the cut is in tokyo {joined:?} after it");
        assert!(joined < JOINED_WITHIN, "the regions are joined {joined:?} after the cut");
        let path = format!("/v1/fuzzylog/colours/red?after={}", in_query(&snapshot));
        let page = http::ask(tokyo[1], "GET", &path, b"").expect("an answer").json();
        assert!(page["tail"].as_u64() >= here["tails"]["red"].as_u64(), "{page} has less than {here}");
    }

    /// Nobody writes any more; what was acknowledged in each region.
    fn stop(&mut self) -> [Acknowledged; 2] {
        self.regions.iter().for_each(|region| region.stop.store(true, Ordering::Relaxed));
        self.writers.drain(..).for_each(|writer| writer.join().expect("it does not panic"));
        let of =
            |region: &Arc<Region>| region.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.regions.each_ref().map(of)
    }
}

// A region that waits for another one, loses what it acknowledged while it was alone, or never agrees with the others again.
#[test]
fn regions_serve_alone_and_agree_when_they_are_joined() {
    alone(async {
        let mut stage = Stage::begin().await;
        says_what_is_off(&stage.cluster).await;
        for _ in 0..number("ORDINATE_CUT_ROUNDS", 1) {
            stage.until_all_append(20).await;
            stage.cut_for(Duration::from_secs(number("ORDINATE_CUT_SECONDS", 10))).await;
        }
        let [in_ohio, in_tokyo] = stage.stop();
        let (stopped_at, ohio, tokyo) = (Instant::now(), stage.ohio, stage.tokyo);
        let set = |address, colour| bodies(address, colour).into_iter().collect::<BTreeSet<_>>();
        let is_same =
            |_: &Cluster| COLOURS.iter().all(|colour| set(ohio[0], colour) == set(tokyo[2], colour));
        stage.cluster.until("both regions show the same", PATIENCE, is_same).await;
        let agreed = stopped_at.elapsed();
        println!("both regions show the same {agreed:?} after the last append");
        assert!(agreed < JOINED_WITHIN, "the regions show the same {agreed:?} after the last append");
        assert_eq!(judge(ohio[2], Some(&in_ohio)), judge(tokyo[1], Some(&in_tokyo)));
        println!("{} appends in ohio, {} in tokyo", in_ohio.len(), in_tokyo.len());
        let shown = stage.cluster.ordinate(&["fuzzylog", "regions", "--admin", &ohio[0].to_string()]).await;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.starts_with("ohio  here\ntokyo  "), "{shown}");
    });
}
