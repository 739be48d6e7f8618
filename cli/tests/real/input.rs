//! Bad files, bad folders, bad frames, slow readers, floods: each meets a clear error or a bound.

use crate::failover::clients;
use crate::load::Load;
use crate::support::cluster::{Cluster, PATIENCE, Refused, free_address};
use crate::support::number;
use crate::support::{alone, side_by_side};
use kernel::{FrameWriter, Rng};
use ordinate_client::protocol;
use parts::{Ballot, Sequence, SessionId, Slot};
use paxos::multipaxos::batcher::{Query, Submit};
use paxos::multipaxos::leader::{Executed, Nack};
use paxos::{Commands, GroupKind, Level, Message};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long clients beside a troublemaker may wait on a machine that is slow itself; docs/reliability.md has what it is on
/// others.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(10);

fn assert_refused(refused: &Refused, expected: &[&str]) {
    let Refused { status, said } = refused;
    assert!(status.is_some_and(|status| !status.success()), "it went on serving: {said}");
    assert!(!said.contains("panicked"), "{said}");
    for text in expected {
        assert!(said.contains(text), "{text:?} is missing in: {said}");
    }
}

fn replace_in(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).expect("the file is there");
    assert!(text.contains(from), "{from} is not in {}", path.display());
    std::fs::write(path, text.replace(from, to)).expect("the folder is writable");
}

/// The journal's files: those that are too large to be anything else.
fn segments(data: &Path) -> Vec<PathBuf> {
    let folders = [data.to_owned(), data.join("journal")];
    let files = folders.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let files = files.filter(|file| file.metadata().is_ok_and(|about| about.len() >= 1 << 20));
    let found: Vec<PathBuf> = files.map(|file| file.path()).collect();
    assert!(!found.is_empty(), "no journal in {}", data.display());
    found
}

fn set_journal_format(segment: &Path, format: u32) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(segment).expect("our own file");
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).expect("a segment");
    // A segment that is prepared for later has no header yet.
    if magic != [0; 8] {
        file.write_all_at(&format.to_le_bytes(), 8).expect("our own file");
    }
}

// A typo that runs the cluster with a default nobody asked for, data of one cluster that ends up in another, or an error that
// does not say what to do.
#[test]
fn bad_files_ports_and_folders_are_refused_in_so_many_words() {
    side_by_side(async {
        let file = |settings: &str, placement: &str| Cluster::planned(1, settings, placement).refusal(0);
        let typo = file("\n[durability]\nakc = \"memory\"", "");
        assert_refused(
            &typo,
            &["unknown key durability.akc", "cluster.toml:4", "did you mean durability.ack?"],
        );
        let misplaced = file("", "[[place]]\nrole = \"paxos.acceptr\"\non = [\"a\"]\n");
        assert_refused(&misplaced, &["paxos.acceptr", "did you mean paxos.acceptor?", "cluster.toml:"]);
        assert_refused(&file("\n[paxos]\nwindow = \"many\"", ""), &["paxos.window", "from 16 to 65536"]);
        assert_refused(&file("data = ", ""), &["cluster.toml:2"]);

        let cluster = Cluster::planned(1, "", "");
        let held = TcpListener::bind(cluster.hosts[0].native).expect("it was free");
        assert_refused(&cluster.refusal(0), &["cannot listen at", "listen.native", "ss -ltnp"]);
        drop(held);

        let mut first = Cluster::start(1, "", "").await;
        assert_refused(&first.refusal(0), &["cannot listen at"]);
        first.kill(0);
        let second = Cluster::planned(1, "", "");
        let copied =
            Command::new("cp").arg("-r").arg(first.folder.join("ordinate-data")).arg(&second.folder).status();
        assert!(copied.is_ok_and(|status| status.success()), "cp -r");
        assert_refused(&second.refusal(0), &["belongs to host", "O2107"]);

        let meta = first.data_of(0).join("ordinate.meta");
        replace_in(&meta, "format 1\n", "format 99\n");
        assert_refused(&first.refusal(0), &["has format 99; this version reads up to 1"]);
        replace_in(&meta, "format 99\n", "format 1\n");
        replace_in(&meta, "incarnation ", "incarnation 0");
        assert_refused(&first.refusal(0), &["damaged", "checksum"]);
        replace_in(&meta, "incarnation 0", "incarnation ");
        for segment in segments(&first.data_of(0)) {
            set_journal_format(&segment, 99);
        }
        assert_refused(&first.refusal(0), &["has format 99; this version reads up to 1"]);
        for segment in segments(&first.data_of(0)) {
            set_journal_format(&segment, 1);
        }
        first.launch(0);
        first.until_ready().await;
    });
}

/// A connection past its preface.
// A host that spreads the tree otherwise than the rest looks for nodes where nobody put them. It must neither take part nor be started
// so on its own data.
#[test]
fn hosts_that_are_set_up_otherwise_take_no_part() {
    side_by_side(async {
        let key = "ORDINATE_COORDINATION__SPREAD_LEVELS";
        let mut cluster = Cluster::planned(3, "\n[coordination]\nengine = \"mason\"\n", "");
        for host in 0..3 {
            cluster.set_environment(host, "ORDINATE_LISTEN__ZOOKEEPER", &free_address().to_string());
        }
        cluster.set_environment(2, key, "3");
        cluster.launch_all();
        let reported =
            "all hosts must agree: coordination.spread_levels is \"2\" at host a and \"3\" at host c";
        let refused = |it: &Cluster| it.log(2).contains(reported) && it.log(0).contains(reported);
        cluster.until("both sides say why", PATIENCE, refused).await;
        assert!(!(0..3).any(|host| cluster.is_ready(host)), "a bootstrap needs every host");
        // It was never let in: nothing is lost with its folder.
        cluster.kill(2);
        cluster.set_environment(2, key, "2");
        let expected = ["O2112", "coordination.spread_levels is \"2\" now and \"3\" in the data"];
        assert_refused(&cluster.refusal(2), &expected);
        cluster.wipe(2);
        cluster.launch(2);
        cluster.until_ready().await;
        cluster.kill(1);
        cluster.set_environment(1, "ORDINATE_COORDINATION__SHARDS", "5");
        let expected = ["O2112", "coordination.shards is \"5\" now and \"4\" in the data"];
        assert_refused(&cluster.refusal(1), &expected);
        cluster.set_environment(1, "ORDINATE_COORDINATION__SHARDS", "4");
        cluster.launch(1);
        cluster.until_ready().await;
    });
}

fn greeted(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the host listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    stream.write_all(&protocol::preface(protocol::VERSION)).expect("the host is there");
    let mut preface = [0; protocol::PREFACE_BYTES];
    stream.read_exact(&mut preface).expect("the host greets");
    stream
}

fn frame(message: impl Into<Message>) -> Vec<u8> {
    let mut writer = FrameWriter::default();
    writer.message(&message.into());
    writer.bytes().clone()
}

fn opening(session: u64) -> Vec<u8> {
    let (session, acknowledged) = (SessionId(session), Sequence(0));
    frame(Submit { session, acknowledged, kind: GroupKind::Open, commands: Commands::default() })
}

/// One thing that no client should send; false if the host need not close the connection by itself.
fn malformed(kind: u64, rng: &mut Rng) -> (Vec<u8>, bool) {
    let random = |rng: &mut Rng, bytes: usize| (0..bytes).map(|_| rng.bits() as u8).collect::<Vec<u8>>();
    let sound = opening(rng.bits());
    match kind {
        // Noise. A length that happens to be allowed is waited for.
        0 => (random(rng, 64), false),
        1 => {
            let mut wrong = sound;
            let last = wrong.len() - 1;
            wrong[last] ^= 1 << rng.below(8);
            (wrong, true)
        }
        2 => ([&(u32::MAX - rng.below(1 << 20) as u32).to_le_bytes()[..], &[0; 60]].concat(), true),
        3 => (sound[..1 + rng.below(sound.len() as u64 - 1) as usize].to_vec(), false),
        4 => (frame(Nack { promised: Ballot::ZERO }), true),
        5 => {
            let (executed, snapshot) = (Slot(rng.bits()), Slot(rng.bits()));
            (frame(Executed { executed, version: 0, snapshot, configurations: None, hears: None }), true)
        }
        // A sound frame around noise.
        6 => {
            let mut writer = FrameWriter::default();
            writer.body().extend(random(rng, 48));
            (writer.bytes().clone(), true)
        }
        // Commands whose row is noise.
        _ => {
            let commands = Commands::from_row(random(rng, 40));
            let (session, acknowledged) = (SessionId(rng.bits()), Sequence(rng.bits()));
            (frame(Submit { session, acknowledged, kind: GroupKind::Execute, commands }), false)
        }
    }
}

// A byte of a client's that panics the host, is believed as another host's, makes it allocate what a length field says, or
// disturbs those who do nothing wrong.
#[test]
fn malformed_frames_close_their_connection_and_nothing_else() {
    side_by_side(async {
        let mut cluster = Cluster::start(1, "", "").await;
        let load = Load::start("beside", clients(&cluster, 2));
        load.until_acknowledged(50, PATIENCE).await;
        let (native, before, begun) = (cluster.hosts[0].native, cluster.resident_bytes(0), load.now());
        let count = number("ORDINATE_MALFORMED", 10_000_u64);
        let spoiled = tokio::task::spawn_blocking(move || {
            let mut rng = Rng::seeded(0x0bad_0bad);
            let mut closed = 0u64;
            for number in 0..count {
                let (bytes, closes) = malformed(number % 8, &mut rng);
                let mut stream = greeted(native);
                // The host may close before the last byte is out.
                let _ = stream.write_all(&bytes);
                if closes {
                    let mut answer = Vec::new();
                    match stream.read_to_end(&mut answer) {
                        Ok(_) => assert!(answer.is_empty(), "kind {}: answered", number % 8),
                        Err(error) => assert_eq!(
                            error.kind(),
                            std::io::ErrorKind::ConnectionReset,
                            "kind {}",
                            number % 8
                        ),
                    }
                    closed += 1;
                }
            }
            closed
        });
        let closed = spoiled.await.expect("every malformed frame was met by a close");
        assert!(cluster.is_alive(0), "the host died");
        let gap = load.longest_gap_after(begun);
        let grown = cluster.resident_bytes(0).saturating_sub(before);
        load.until_acknowledged(20, PATIENCE).await;
        let verdict = load.finish().await;
        println!(
            "malformed: {count} frames, {closed} connections closed by the host; memory +{} KiB; a client beside: \
             {} operations, longest gap {gap:?}, errors {:?}",
            grown >> 10,
            verdict.answered,
            verdict.errors
        );
        assert!(grown < 64 << 20, "memory grew by {grown} bytes");
        assert!(gap < OTHERS_WAIT_MAX, "others waited for {gap:?}");
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
    });
}

// Requests larger than the limits: refused with a reason, not waited for, not executed.
#[test]
fn oversized_requests_are_refused() {
    side_by_side(async {
        let cluster = Cluster::start(1, "", "").await;
        let client = &clients(&cluster, 1)[0];
        let large = client.put("large", vec![b'x'; 300 << 10]).await;
        assert_eq!(large, Err(ordinate_client::CallError::Refused));
        let huge = client.clone().with_timeout(Duration::from_secs(3)).put("huge", vec![b'x'; 3 << 20]).await;
        assert!(huge.is_err(), "{huge:?}");
        let fresh = &clients(&cluster, 1)[0];
        assert_eq!(fresh.get("large", Level::Linearizable).await, Ok(None));
        assert_eq!(fresh.get("huge", Level::Linearizable).await, Ok(None));
    });
}

/// The value of a line of the metrics page.
fn gauge(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

// Clients that ask for much and never read: what is written for them must be bounded, and others must go on.
#[test]
fn clients_that_never_read_cost_bounded_memory() {
    side_by_side(async {
        let limits = "\n[limits]\nclient_backlog_bytes_max = \"1MiB\"\nbacklog_bytes_max = \"32MiB\"";
        let mut cluster = Cluster::start(1, limits, "").await;
        raise_descriptors();
        let client = &clients(&cluster, 1)[0];
        for key in 0..8 {
            client.put(format!("big/{key}"), vec![b'x'; 32 << 10]).await.expect("the host serves");
        }
        let load = Load::start("beside", clients(&cluster, 2));
        load.until_acknowledged(50, PATIENCE).await;
        let (native, before, begun) = (cluster.hosts[0].native, cluster.resident_bytes(0), load.now());
        let count = number("ORDINATE_SLOW_CLIENTS", 1_000_u64);
        let asked = tokio::task::spawn_blocking(move || {
            let mut scan = Vec::new();
            kv::Query::Scan { start: b"big/", end: Some(b"big0"), limit: 8 }.encode(&mut scan);
            let ask = |number: u64| {
                let mut stream = greeted(native);
                // The host stops reading from who does not read.
                let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
                // A few ask for more than the kernel's buffers hold.
                let queries = if number < 50 { 96 } else { 16 };
                // One asks for a gigabyte in a single message.
                let in_one = if number == 50 { 4_096 } else { 1 };
                for query in 0..queries {
                    let mut row = Vec::new();
                    for more in 0..in_one {
                        Commands::push(&mut row, Sequence(1 << 63 | query << 16 | more), &scan);
                    }
                    let queries = Commands::from_row(row);
                    let (session, seen) = (SessionId(number), Slot(0));
                    let query = Query { session, level: Level::Eventual, seen, queries };
                    // The host may have disconnected this client already.
                    let _ = stream.write_all(&frame(query));
                }
                stream
            };
            (0..count).map(ask).collect::<Vec<_>>()
        });
        let silent = asked.await.expect("the host takes their requests");
        let mut held = 0;
        let served_from = load.now();
        for _ in 0..20 {
            load.until_acknowledged(5, PATIENCE).await;
            let page = cluster.page(0, "/metrics", 200).await.text();
            held = held.max(gauge(&page, "ordinate_buffered_bytes"));
        }
        assert!(cluster.is_alive(0), "the host died");
        let peak = cluster.peak_resident_bytes(0).saturating_sub(before);
        let gap = load.longest_gap_after(begun);
        let pending = (count * 16 + 50 * 80 + 16 * 4_095) * (256 << 10);
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        let slow = gauge(&metrics, "ordinate_reads_stopped_total");
        drop(silent);
        let verdict = load.finish().await;
        println!(
            "slow clients: {count} with {} MiB asked for; memory +{} MiB at most, {} MiB of it counted; a client beside: longest gap {gap:?} \
             ({:?} after the last had asked), errors {:?}; {slow} times one was read no further",
            pending >> 20,
            peak >> 20,
            held >> 20,
            Duration::from_nanos(served_from - begun),
            verdict.errors
        );
        // The cap of 32 MiB, the answers of a burst at most twice, and what the allocator keeps for a second.
        assert!(held <= 33 << 20, "{} MiB are counted", held >> 20);
        assert!(peak < 128 << 20, "memory grew by {} MiB", peak >> 20);
        assert!(gap < OTHERS_WAIT_MAX, "others waited for {gap:?}");
        assert!(slow > 100, "they were read on");
    });
}

/// Lets this process open as many files as the system allows it, and returns how many.
fn raise_descriptors() -> usize {
    let process = std::process::id();
    let limits = || {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        let words: Vec<usize> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (words[0], words[1])
    };
    let (_, hard) = limits();
    // What cannot be raised is found in the soft limit below.
    let _ =
        Command::new("prlimit").args(["--pid", &process.to_string(), &format!("--nofile={hard}:")]).status();
    limits().0
}

/// What a host says to a client that it turns away at its preface; none if it takes it.
fn refusal_of(stream: &mut TcpStream) -> Option<String> {
    // The host may have closed already.
    let _ = stream.write_all(&protocol::preface(protocol::VERSION));
    let mut preface = [0; protocol::PREFACE_BYTES];
    stream.read_exact(&mut preface).expect("the host answers whom it turns away, too");
    if protocol::version_of(&preface) != Some(0) {
        return None;
    }
    let mut why = vec![0; protocol::refusal_bytes(&preface)];
    stream.read_exact(&mut why).expect("the host says why");
    Some(String::from_utf8_lossy(&why).into_owned())
}

// Ten thousand connections: within the limits all are served, beyond them they are refused, memory follows their number, and
// nothing is left of them.
#[test]
fn ten_thousand_connections_are_served_and_more_are_turned_away() {
    alone(async {
        let files = raise_descriptors();
        let wanted = number("ORDINATE_CONNECTIONS", 10_000);
        // The host is another process with the same limit.
        let count = wanted.min(files.saturating_sub(600));
        if count < wanted {
            println!(
                "{count} connections instead of {wanted}: this machine allows a process {files} open files"
            );
        }
        let (spare, more) = (100, 300);
        let allowed = count + spare;
        let limits =
            format!("\n[limits]\nconnections_max = {allowed}\nconnections_per_address_max = {allowed}");
        let mut cluster = Cluster::start(1, &limits, "").await;
        let load = Load::start("beside", clients(&cluster, 2));
        load.until_acknowledged(50, PATIENCE).await;
        let (native, before, begun) = (cluster.hosts[0].native, cluster.resident_bytes(0), load.now());
        let open = tokio::task::spawn_blocking(move || {
            let mut streams: Vec<TcpStream> = (0..count).map(|_| greeted(native)).collect();
            // Each is a client like any other.
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.write_all(&opening(number as u64 + 1)).expect("the host keeps them");
            }
            for stream in &mut streams {
                stream.read_exact(&mut [0; 8]).expect("the host answers each");
            }
            streams
        });
        let streams = open.await.expect("all within the limits are served");
        let grown = cluster.peak_resident_bytes(0).saturating_sub(before);
        let page = cluster.page(0, "/metrics", 200).await.text();
        assert_eq!(gauge(&page, "ordinate_clients_max{protocol=\"native\"}"), allowed as u64);
        assert!(gauge(&page, "ordinate_clients{protocol=\"native\"}") >= count as u64);
        let beyond = tokio::task::spawn_blocking(move || {
            let mut streams: Vec<TcpStream> =
                (0..more).map(|_| TcpStream::connect(native).expect("the host listens")).collect();
            streams.iter_mut().filter_map(refusal_of).collect::<Vec<String>>()
        });
        let refusals = beyond.await.expect("the host says no in words");
        assert!(refusals.len() >= more - spare, "{} of {more} beyond {allowed} were refused", refusals.len());
        let reported = format!("the host has {allowed} connections, which is its limits.connections_max");
        assert!(refusals.iter().all(|why| *why == reported), "{:?}", refusals.first());
        let page = cluster.page(0, "/metrics", 200).await.text();
        let counted = gauge(&page, "ordinate_client_closes_total{reason=\"too many connections\"}");
        assert_eq!(counted, refusals.len() as u64);
        assert!(cluster.is_alive(0), "the host died");
        drop(streams);
        let status = |cluster: &Cluster| cluster.status(0).and_then(|status| status["clients"].as_u64());
        let forgotten = |it: &Cluster| status(it).is_some_and(|clients| clients <= 2);
        cluster.until("connections are forgotten", PATIENCE, forgotten).await;
        let gap = load.longest_gap_after(begun);
        let after = load.now();
        load.until_everybody_is_served(after, PATIENCE).await;
        let verdict = load.finish().await;
        println!(
            "flood: {count} connections served, memory +{} KiB each; of {more} more {} were turned away; a client \
             beside: longest gap {gap:?}, errors {:?}",
            (grown >> 10) / count as u64,
            refusals.len(),
            verdict.errors
        );
        assert!(grown < (count as u64) * (32 << 10), "memory grew by {} MiB", grown >> 20);
        assert!(gap < OTHERS_WAIT_MAX, "others waited for {gap:?}");
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
    });
}
