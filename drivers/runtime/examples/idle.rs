//! What hosts cost that have nothing to do, and what an idle client connection costs: `cargo run --release --example idle`.
#![allow(missing_docs)]

#[path = "../tests/hosts/support/mod.rs"]
mod support;

use bytes::BytesMut;
use kernel::NodeId;
use runtime::{
    ClientLimits, CloseReason, FrontEnd, FrontEndConfig, Host, HostConfig, Session, SessionCx, Storage,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use support::*;

struct Echo;

impl FrontEnd<Talk> for Echo {
    fn open(&mut self, _client: NodeId, _address: SocketAddr) -> Box<dyn Session<Talk>> {
        Box::new(Echo)
    }
}

impl Session<Talk> for Echo {
    fn on_input(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        cx.established();
        cx.output().extend_from_slice(&input.split());
        Ok(())
    }

    fn on_message(&mut self, _: NodeId, _: Message, _: &mut SessionCx<'_, Talk>) -> Result<(), CloseReason> {
        Ok(())
    }
}

/// Kilobytes of this process in memory, and ticks of 10 ms it has run.
fn measure() -> (u64, u64) {
    let text = |path| std::fs::read_to_string(path).expect("Linux has it");
    let pages: u64 = text("/proc/self/statm").split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let stat = text("/proc/self/stat");
    let fields = stat.rsplit(") ").next().unwrap_or("").split(' ');
    (pages * 4, fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap_or(0)).sum())
}

fn main() {
    let directory = Scratch::new("idle");
    let mut configs = cluster(&["a", "b", "c"]);
    for config in &mut configs {
        let path = directory.path().join(&config.name);
        config.storage = Storage::Directory { path, journal: runtime::JournalOptions::default() };
    }
    let hosts: Vec<_> =
        configs.into_iter().map(|c| Host::start(c, both, vec![]).expect("it starts")).collect();
    assert_eq!(hosts[0].handle().request(ASKER, question("b", 100)).wait(LIMIT), Ok(100));
    std::thread::sleep(Duration::from_millis(200));
    let bursts = || hosts.iter().map(|h| h.handle().metrics().wait(LIMIT).expect("runs").bursts).sum::<u64>();
    let (before, (_, cpu_before)) = (bursts(), measure());
    std::thread::sleep(Duration::from_secs(5));
    let (after, (_, cpu_after)) = (bursts(), measure());
    println!("three idle hosts, 5 s: {} ms of cpu, {} bursts", (cpu_after - cpu_before) * 10, after - before);
    drop(hosts);

    let listen = listener();
    let address = listen.local_addr().expect("it is bound");
    let limits = ClientLimits { connections_per_address_max: 100_000, ..ClientLimits::default() };
    let front_end = FrontEndConfig { limits, ..FrontEndConfig::new(listen, || Box::new(Echo)) };
    let host = Host::start(HostConfig::new("idle", "a"), both, vec![front_end]).expect("it starts");
    let (memory_before, _) = measure();
    let mut clients = Vec::new();
    let mut byte = [0];
    // Half the file descriptors are the clients'.
    while let Ok(mut client) = TcpStream::connect(address) {
        if client.write_all(b"x").and_then(|()| client.read_exact(&mut byte)).is_err() {
            break;
        }
        clients.push(client);
        if clients.len() == 9_900 {
            break;
        }
    }
    let (memory, _) = measure();
    println!(
        "{} clients: {} bytes each",
        clients.len(),
        (memory - memory_before) * 1024 / clients.len() as u64
    );
    drop(clients);
    drop(host);
}
