//! Bad files, bad folders, bad frames, slow readers, floods: each meets a clear error or a bound.

use crate::cluster::{Cluster, PATIENCE, Refused};
use crate::failover::clients;
use crate::load::Load;
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
    crate::alone(async {
        let file = |settings: &str, places: &str| Cluster::planned(1, settings, places).refusal(0);
        let typo = file("\n[durability]\nakc = \"memory\"", "");
        assert_refused(
            &typo,
            &["unknown key durability.akc", "cluster.toml:4", "did you mean durability.ack?"],
        );
        let place = file("", "[[place]]\nrole = \"paxos.acceptr\"\non = [\"a\"]\n");
        assert_refused(&place, &["paxos.acceptr", "did you mean paxos.acceptor?", "cluster.toml:"]);
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
    crate::alone(async {
        let mut cluster = Cluster::start(1, "", "").await;
        let load = Load::start("beside", clients(&cluster, 2));
        load.until_acknowledged(50, PATIENCE).await;
        let (native, before, begun) = (cluster.hosts[0].native, cluster.resident_bytes(0), load.now());
        let count = crate::number("ORDINATE_MALFORMED", 10_000) as u64;
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
    crate::alone(async {
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

// Clients that ask for much and never read: what is written for them must be bounded, and others must go on.
#[test]
fn clients_that_never_read_cost_bounded_memory() {
    crate::alone(async {
        let limits = "\n[limits]\nclient_backlog_bytes_max = \"1MiB\"\nbacklog_bytes_max = \"32MiB\"";
        let mut cluster = Cluster::start(1, limits, "").await;
        raise_descriptors(&cluster, 4_000);
        let client = &clients(&cluster, 1)[0];
        for key in 0..8 {
            client.put(format!("big/{key}"), vec![b'x'; 32 << 10]).await.expect("the host serves");
        }
        let load = Load::start("beside", clients(&cluster, 2));
        load.until_acknowledged(50, PATIENCE).await;
        let (native, before, begun) = (cluster.hosts[0].native, cluster.resident_bytes(0), load.now());
        let count = crate::number("ORDINATE_SLOW_CLIENTS", 1_000) as u64;
        let asked = tokio::task::spawn_blocking(move || {
            let mut scan = Vec::new();
            kv::Query::Scan { start: b"big/", end: Some(b"big0"), limit: 8 }.encode(&mut scan);
            let ask = |number: u64| {
                let mut stream = greeted(native);
                // A few ask for more than the kernel's buffers hold.
                let queries = if number < 50 { 96 } else { 16 };
                for query in 0..queries {
                    let mut row = Vec::new();
                    Commands::push(&mut row, Sequence(1 << 63 | query), &scan);
                    let queries = Commands::from_row(row);
                    let (session, seen) = (SessionId(number), Slot(0));
                    let query = Query { session, level: Level::Eventual, seen, queries };
                    // The host may have cut this client off already.
                    let _ = stream.write_all(&frame(query));
                }
                stream
            };
            (0..count).map(ask).collect::<Vec<_>>()
        });
        let silent = asked.await.expect("the host takes their requests");
        let mut peak = 0;
        let served_from = load.now();
        for _ in 0..20 {
            load.until_acknowledged(5, PATIENCE).await;
            peak = peak.max(cluster.resident_bytes(0).saturating_sub(before));
        }
        assert!(cluster.is_alive(0), "the host died");
        let gap = load.longest_gap_after(begun);
        let pending = (count * 16 + 50 * 80) * (256 << 10);
        let metrics = cluster.page(0, "/metrics", 200).await.text();
        let slow = metrics.lines().find(|line| line.contains("does not read")).unwrap_or("");
        drop(silent);
        let verdict = load.finish().await;
        println!(
            "slow clients: {count} with {} MiB asked for; memory +{} MiB at most; a client beside: longest gap {gap:?} \
             ({:?} after the last had asked), errors {:?}; {slow}",
            pending >> 20,
            peak >> 20,
            Duration::from_nanos(served_from - begun),
            verdict.errors
        );
        assert!(peak < 256 << 20, "memory grew by {} MiB", peak >> 20);
        assert!(gap < OTHERS_WAIT_MAX, "others waited for {gap:?}");
        assert!(!slow.is_empty(), "nobody was cut off");
    });
}

/// Lets a host open more files than this shell's limit, if it does not do so itself.
fn raise_descriptors(cluster: &Cluster, wanted: usize) {
    let raise = |process: u32| {
        Command::new("prlimit").args(["--pid", &process.to_string(), &format!("--nofile={wanted}:")]).status()
    };
    for process in [cluster.process(0).expect("the host runs"), std::process::id()] {
        let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        let soft = line.split_whitespace().nth(3).and_then(|word| word.parse::<usize>().ok());
        if soft.is_some_and(|soft| soft < wanted) {
            assert!(
                raise(process).is_ok_and(|status| status.success()),
                "cannot raise the limit of {process}: {line}"
            );
        }
    }
}

// Thousands of connections: within the limits all are served, beyond them they are refused, and memory follows their number.
#[test]
fn a_flood_of_connections_is_served_or_refused() {
    crate::alone(async {
        let count = crate::number("ORDINATE_CONNECTIONS", 2_000);
        let allowed = count + count / 2;
        let limits =
            format!("\n[limits]\nconnections_max = {allowed}\nconnections_per_address_max = {allowed}");
        let mut cluster = Cluster::start(1, &limits, "").await;
        raise_descriptors(&cluster, 2 * count + 1_000);
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
                let mut some = [0; 8];
                stream.read_exact(&mut some).expect("the host answers each");
            }
            streams
        });
        let streams = open.await.expect("all within the limits are served");
        let grown = cluster.resident_bytes(0).saturating_sub(before);
        let refused = tokio::task::spawn_blocking(move || {
            let mut refused = 0;
            let mut more = Vec::new();
            for _ in 0..count {
                let Ok(mut stream) = TcpStream::connect(native) else {
                    refused += 1;
                    continue;
                };
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.write_all(&protocol::preface(protocol::VERSION));
                let mut preface = [0; protocol::PREFACE_BYTES];
                if stream.read_exact(&mut preface).is_err() {
                    refused += 1;
                } else {
                    more.push(stream);
                }
            }
            (refused, more.len())
        });
        let (refused, more) = refused.await.expect("no host, no end");
        assert!(cluster.is_alive(0), "the host died");
        drop(streams);
        let status = |cluster: &Cluster| cluster.status(0).and_then(|status| status["clients"].as_u64());
        cluster
            .until("connections are forgotten", PATIENCE, |it| status(it).is_some_and(|clients| clients <= 2))
            .await;
        let gap = load.longest_gap_after(begun);
        let verdict = load.finish().await;
        println!(
            "flood: {count} connections served, memory +{} KiB each; {more} more served, {refused} refused; a client \
             beside: longest gap {gap:?}, errors {:?}",
            (grown >> 10) / count as u64,
            verdict.errors
        );
        assert!(more <= allowed - count && refused > 0, "{more} beyond {allowed}");
        assert!(gap < OTHERS_WAIT_MAX, "others waited for {gap:?}");
        assert!(verdict.errors.is_empty(), "{:?}", verdict.errors);
    });
}
