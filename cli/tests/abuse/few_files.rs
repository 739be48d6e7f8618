//! A host that may have few files open: it serves as many clients as it can, refuses the others, and loses nothing.

use crate::polite::Polite;
use crate::support::cluster::Cluster;
use crate::support::raw::{Pass, Raw};
use crate::support::zookeeper::{create_body, set_body};
use crate::support::{alone, http};
use coordination::wire::op;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A cluster of one whose process may have so many files open.
fn planned(files: u32) -> (Cluster, SocketAddr) {
    let settings = "[coordination]\nengine = \"mason\"\nshards = 2\nproxies = 1";
    let mut cluster = Cluster::planned(1, settings, "");
    let zookeeper = cluster.listen(0, "ZOOKEEPER");
    let line = format!("ulimit -n {files} && exec \"$@\"");
    cluster.set_wrapper(0, &["sh", "-c", &line, "sh"]);
    (cluster, zookeeper)
}

// Clients at all ports together took the descriptors that the journal needed: the host ended, and said that it was damaged.
#[test]
fn clients_of_all_ports_leave_the_journal_its_descriptors() {
    alone(async {
        let (mut cluster, zookeeper) = planned(400);
        cluster.launch_all();
        cluster.until_ready().await;
        let polite = Polite::start(zookeeper, "/polite");
        let (native, admin) = (cluster.hosts[0].native, cluster.hosts[0].admin);
        let mut open = Vec::new();
        for port in [zookeeper, native, admin].into_iter().cycle().take(1_500) {
            open.extend(TcpStream::connect_timeout(&port, Duration::from_secs(1)));
        }
        // The journal needs new segments, which are files, while everything is taken.
        let began = Instant::now();
        let mut large = session_if_any(zookeeper);
        while began.elapsed() < Duration::from_secs(4) {
            if let Some(raw) = &mut large {
                let body = set_body("/polite-large", &vec![b'x'; 900_000]);
                let _ = raw.call(op::SET_DATA, &body);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(cluster.is_alive(0), "the host ended:\n{}", cluster.logs());
        let (p99, longest, count) = polite.waits_since(began);
        println!(
            "few files: {} connections tried, {count} requests of a polite client, 99 of 100 within {p99:?}, {longest:?} at most",
            open.len()
        );
        assert!(count > 20 && longest < Duration::from_secs(3), "{count} requests, {longest:?} at most");
        drop(open);
        let metrics = loop {
            match http::get(admin, "/metrics") {
                Some(answer) if answer.code == 200 => break answer.text(),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        let refused = metrics.lines().any(|line| {
            line.starts_with("ordinate_client_closes_total{reason=\"no descriptors left for clients\"}")
        });
        assert!(refused, "{metrics}");
        polite.finish(zookeeper).expect("what was acknowledged is there");
        assert!(!cluster.logs().contains("O2108"), "{}", cluster.logs());
        // With too few for anything it says so at its start, and names what is wanted.
        cluster.kill_all();
        let (starved, _) = planned(120);
        let refused = starved.refusal(0);
        assert!(refused.said.contains("O2113") && refused.said.contains("are needed"), "{}", refused.said);
    });
}

fn session_if_any(address: SocketAddr) -> Option<Raw> {
    let mut raw = Raw::connect(address, &Pass::default(), 20_000, 0).ok()?;
    raw.set_patience(Duration::from_millis(500));
    let body = create_body("/polite-large", b"", 0);
    raw.call(op::CREATE, &body).ok()?;
    Some(raw)
}
