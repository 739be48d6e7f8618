//! Hostile clients at ZooKeeper's port: each meets an error or a bound, and nobody beside them notices.

use crate::support::cluster::Cluster;
use crate::support::raw::{Pass, Raw, hello, word};
use crate::support::zookeeper::{create_body, session, set_version_body};
use crate::support::{number, side_by_side};
use coordination::wire::{JuteOutput, op};
use kernel::Rng;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a client beside a troublemaker may wait on a machine that is slow itself.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(10);
const COORDINATION: &str = "[coordination]\nengine = \"mason\"\nshards = 4";

/// A cluster of three with four shards, and where its hosts serve ZooKeeper's protocol.
pub async fn cluster(limits: &str) -> (Cluster, Vec<SocketAddr>) {
    Cluster::serving("ZOOKEEPER", 3, &format!("{COORDINATION}\n{limits}")).await
}

/// One who does nothing wrong: its session outlasts everything, and its writes are answered.
struct Bystander {
    raw: Raw,
    written: i32,
    longest: Duration,
}

impl Bystander {
    fn new(address: SocketAddr, path: &str) -> Self {
        let mut raw = session(address);
        let created = raw.call(op::CREATE, &create_body(path, b"0", 1)).expect("it is served");
        assert_eq!(created.error, 0);
        Self { raw, written: 0, longest: Duration::ZERO }
    }

    fn goes_on(&mut self, path: &str) {
        let began = Instant::now();
        let body = set_version_body(path, b"x", self.written);
        let reply = self.raw.call(op::SET_DATA, &body).expect("its connection is open");
        assert_eq!(reply.error, 0, "its node is there, in the version that it wrote");
        self.written += 1;
        self.longest = self.longest.max(began.elapsed());
        assert!(self.longest < OTHERS_WAIT_MAX, "it waited for {:?}", self.longest);
    }
}

/// Bytes that are a request, nearly.
fn malformed(rng: &mut Rng) -> Vec<u8> {
    let mut body = Vec::new();
    body.put_i32(rng.below(1000) as i32);
    let opcodes =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 100, 101, 102, 103];
    let more = [104, 105, 106, 107, 1000, 1001, 1002, -1, -10, i32::MIN, i32::MAX, 77];
    body.put_i32(*rng.pick(&[&opcodes[..], &more].concat()).unwrap_or(&0));
    match rng.below(7) {
        // Noise.
        0 => (0..rng.below(200)).for_each(|_| body.push(rng.bits() as u8)),
        // A text or vector that claims to be longer than all memory.
        1 => body.put_i32(*rng.pick(&[i32::MAX, i32::MIN, -2, 1 << 30]).unwrap_or(&-2)),
        // A path that is no text.
        2 => body.put_buffer(Some(&[0xff, 0xfe, b'/', 0x80])),
        // A multi within a multi, and so on.
        3 => (0..rng.below(400)).for_each(|_| {
            body.put_i32(op::MULTI);
            body.push(0);
            body.put_i32(-1);
        }),
        // A list of rights without end.
        4 => {
            body.put_text("/x");
            body.put_buffer(None);
            body.put_i32(i32::MAX);
        }
        // A very long path.
        5 => body.put_text(&"/a".repeat(rng.index(100_000))),
        // A request that ends somewhere.
        _ => {
            let whole = create_body("/hostile", b"data", rng.below(8) as i32);
            body.extend_from_slice(&whole[..rng.index(whole.len())]);
        }
    }
    let mut frame = Vec::new();
    let length = match rng.below(12) {
        0 => i32::MAX,
        1 => -1,
        2 => 0,
        3 => body.len() as i32 + 5,
        _ => body.len() as i32,
    };
    frame.put_i32(length);
    frame.extend_from_slice(&body);
    frame
}

/// Sends bytes and reads what comes, for a moment.
fn throw(address: SocketAddr, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(address) else { return };
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
    let mut answer = [0; 4096];
    while stream.read(&mut answer).is_ok_and(|count| count > 0) {}
}

// A packet that brings the server down, takes memory without bound, or disturbs the sessions of others.
#[test]
fn malformed_packets_concern_only_their_senders() {
    side_by_side(async {
        let (mut cluster, addresses) = cluster("").await;
        let mut bystander = Bystander::new(addresses[0], "/bystander");
        let before = cluster.resident_bytes(0);
        let mut rng = Rng::seeded(18);
        let packets = number("ORDINATE_PACKETS", 10_000);
        let mut thrown = 0;
        while thrown < packets {
            if rng.chance(0.1) {
                // Without a handshake.
                throw(addresses[0], &malformed(&mut rng));
                thrown += 1;
            } else {
                let mut bytes = hello(&Pass::default(), 4_000, 0);
                let count = rng.between(1, 60);
                (0..count).for_each(|_| bytes.extend(malformed(&mut rng)));
                thrown += count as usize;
                throw(addresses[0], &bytes);
            }
            bystander.goes_on("/bystander");
        }
        assert!(cluster.is_alive(0), "{}", cluster.logs());
        assert!(!cluster.log(0).contains("panicked"), "{}", cluster.logs());
        let grown = cluster.peak_resident_bytes(0).saturating_sub(before) >> 20;
        println!(
            "{thrown} malformed packets: a bystander waited at most {:?}, memory grew by {grown} MiB",
            bystander.longest
        );
        assert!(grown < 400, "memory grew by {grown} MiB");
        assert!(bystander.written > 100 && word(addresses[0], "ruok").is_ok_and(|said| said == "imok"));
    });
}

// Subscribers that never read fill the memory with what they do not take.
#[test]
fn subscribers_that_never_read_are_disconnected() {
    side_by_side(async {
        let limits = "[limits]\nclient_backlog_bytes_max = \"512KiB\"\nbacklog_bytes_max = \"64MiB\"";
        let (mut cluster, addresses) = cluster(limits).await;
        let mut bystander = Bystander::new(addresses[0], "/bystander");
        let reply = bystander.raw.call(op::CREATE, &create_body("/large", &[b'x'; 100_000], 0));
        assert_eq!(reply.expect("it is served").error, 0);
        let count = number("ORDINATE_SUBSCRIBERS", 1_000);
        let mut read = Vec::new();
        read.put_text("/large");
        read.push(1);
        let mut watch = Vec::new();
        watch.put_text("/");
        watch.put_i32(1);
        let mut silent: Vec<Raw> = Vec::new();
        for _ in 0..count {
            let mut raw = session(addresses[0]);
            raw.push(op::ADD_WATCH, &watch);
            (0..30).for_each(|_| {
                raw.push(op::GET_DATA, &read);
            });
            // One that is disconnected already cannot send.
            let _ = raw.flush();
            silent.push(raw);
            bystander.goes_on("/bystander");
        }
        for _ in 0..200 {
            bystander.goes_on("/bystander");
        }
        assert!(cluster.is_alive(0) && silent.len() == count, "{}", cluster.logs());
        let peak = cluster.peak_resident_bytes(0) >> 20;
        println!(
            "{count} subscribers never read: a bystander waited at most {:?}, memory peaked at {peak} MiB",
            bystander.longest
        );
        assert!(peak < 1_200, "memory peaked at {peak} MiB");
    });
}

// Connections that say nothing keep out those that have something to say.
#[test]
fn a_flood_of_connections_leaves_sessions_alone() {
    side_by_side(async {
        let (mut cluster, addresses) = cluster("[limits]\nconnections_max = 2000").await;
        let mut bystander = Bystander::new(addresses[0], "/bystander");
        let mut held = Vec::new();
        for attempt in 0..number("ORDINATE_CONNECTIONS", 6_000) {
            if let Ok(stream) = TcpStream::connect_timeout(&addresses[0], Duration::from_secs(1)) {
                held.push(stream);
            }
            if attempt % 20 == 0 {
                bystander.goes_on("/bystander");
            }
        }
        assert!(held.len() > 2_500, "the flood is none: {}", held.len());
        drop(held);
        let mut late = session(addresses[0]);
        assert!(late.call(op::PING, &[]).is_ok_and(|reply| reply.error == 0) && cluster.is_alive(0));
        println!("a flood of connections: a bystander waited at most {:?}", bystander.longest);
    });
}
