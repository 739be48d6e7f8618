//! A small real cluster beside its simulation: processor time for a command, on both sides.

use super::driver::cluster;
use super::processor;
use crate::multipaxos::{Batching, Clients, MachineLayout, Running, StoreDeployment, Workload};
use crate::profile::Profile;
use kernel::{HostId, HostSlot, NodeId};
use kv::Store;
use paxos::multipaxos::{acceptor, batcher, client, leader, proxy_leader, replica, unbatcher};
use paxos::{Call, Configuration, Configurations, Member, Outcome, Parameters, RoleSlots};
use runtime::{Answer, Host};
use sim::cost::{Pace, Window};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

const BATCHER: HostSlot = HostSlot(1);
const LEADER: HostSlot = HostSlot(2);
const PROXY_LEADER: HostSlot = HostSlot(3);
const ACCEPTOR: HostSlot = HostSlot(4);
const REPLICA: HostSlot = HostSlot(5);
const UNBATCHER: HostSlot = HostSlot(6);
const CLIENT: HostSlot = HostSlot(7);
const SERVERS: [&str; 3] = ["a", "b", "c"];
const LIMIT: Duration = Duration::from_secs(120);

/// Both sides.
#[derive(Clone, Copy, Debug)]
pub struct RealAndSimulated {
    /// Processor time of the three real hosts for a command.
    pub real: Duration,
    /// Time of the three simulated hosts' cores for a command.
    pub simulated: Duration,
    /// Commands that were measured.
    pub commands: u64,
}

fn configuration() -> Configuration {
    RoleSlots::STANDALONE
        .configuration(0, &SERVERS.map(HostId::named), Vec::new())
        .expect("three different names")
}

fn roles(name: &str, known: &Configurations) -> Vec<(HostSlot, Member<Store>)> {
    let here = |slot| NodeId::new(HostId::named(name), slot);
    let (parameters, known) = (Parameters::default, || known.clone());
    vec![
        (BATCHER, Member::Batcher(batcher::Batcher::new(parameters(), known(), here(UNBATCHER)))),
        (LEADER, Member::Leader(leader::Leader::new(parameters(), known()))),
        (PROXY_LEADER, Member::ProxyLeader(proxy_leader::ProxyLeader::new(parameters(), known()))),
        (ACCEPTOR, Member::Acceptor(acceptor::Acceptor::new(parameters(), known(), Some(here(REPLICA))))),
        (REPLICA, Member::Replica(replica::Replica::new(parameters(), known(), Store::new(1)))),
        (UNBATCHER, Member::Unbatcher(unbatcher::Unbatcher)),
    ]
}

/// Keeps `window` puts in flight for about `span`; returns how many were answered.
fn put(clients: &Host<Member<Store>>, workload: &Workload, window: usize, span: Duration) -> io::Result<u64> {
    let mut in_flight: VecDeque<Answer<Outcome>> = VecDeque::with_capacity(window);
    let (began, mut answered, mut key) = (Instant::now(), 0, 0);
    loop {
        while in_flight.len() < window && began.elapsed() < span {
            key = (key + 1) % workload.keys;
            in_flight.push_back(clients.handle().request(CLIENT, Call::Write(workload.put(key))));
        }
        let Some(answer) = in_flight.pop_front() else { return Ok(answered) };
        match answer.wait(LIMIT) {
            Ok(Outcome::Done(_)) => answered += 1,
            Ok(Outcome::Refused(why)) => return Err(io::Error::other(format!("refused: {why:?}"))),
            Err(_) => return Err(io::Error::other("a command without an answer")),
        }
    }
}

/// Three co-located hosts in memory, on loopback and in the simulator, under `window` puts of one client.
///
/// # Errors
/// If the hosts do not start, or do not answer.
pub fn beside(profile: &Profile, window: usize, span: Duration) -> io::Result<RealAndSimulated> {
    let workload = Workload::writes(100);
    let known = Configurations::starting_with(configuration());
    let mut configs = cluster(&["a", "b", "c", "clients"])?.into_iter();
    let (servers, threads) = processor::started_by(|| {
        let mut servers = Vec::new();
        for (name, config) in SERVERS.iter().zip(configs.by_ref()) {
            let known = known.clone();
            let nodes = move || roles(name, &known);
            servers.push(Host::start(config, nodes, vec![]).map_err(io::Error::other)?);
        }
        Ok(servers)
    })?;
    let config = configs.next().ok_or_else(|| io::Error::other("four hosts were configured"))?;
    let batchers = configuration().batchers;
    let nodes = move || {
        let client = client::CommandClient::new(batchers.clone(), Duration::from_millis(500));
        vec![(CLIENT, Member::Client(client))]
    };
    let clients = Host::start(config, nodes, vec![]).map_err(io::Error::other)?;
    put(&clients, &workload, window, span / 4)?;
    let before = processor::used_by(&threads)?;
    let commands = put(&clients, &workload, window, span)?;
    let used = processor::used_by(&threads)?.saturating_sub(before);
    drop((clients, servers));
    Ok(RealAndSimulated {
        real: used / commands.max(1) as u32,
        simulated: simulated(profile, &workload, window)?,
        commands,
    })
}

fn simulated(profile: &Profile, workload: &Workload, window: usize) -> io::Result<Duration> {
    let mut here = profile.clone();
    // Loopback, in memory, as the real one.
    (here.network.latency_us, here.network.gigabits_per_second, here.driver.fsync_us) = (5.0, 0.0, 0.0);
    let shape = MachineLayout::Colocated { hosts: 3, clients_everywhere: true };
    let connect = Clients::Connect { batchers: 3 };
    let deployment = StoreDeployment { shape, clients: connect, batching: Batching::NONE };
    let started = Running::start(&deployment, &here, workload, 1, 1);
    let mut running: Running = started.map_err(|error| io::Error::other(error.to_string()))?;
    let clients = running.clients.clone();
    let times = Window { warm_up: Duration::from_millis(50), measured: Duration::from_millis(200) };
    let pace = Pace::Closed { outstanding: window as u32 };
    let measured = running.testbed.run(&clients, pace, &mut workload.clone(), times);
    let stations = running.stations.iter().zip(&measured.busy);
    let busy: f64 = stations.filter(|(name, _)| **name != "clients").map(|(_, busy)| busy).sum();
    Ok(Duration::from_secs_f64(busy / measured.throughput().max(1.0)))
}
