//! MultiPaxos under the key-value store: three hosts that play every role, and a client.

use super::script::{Flow, host};
use ::paxos::multipaxos::acceptor::Acceptor;
use ::paxos::multipaxos::batcher::Batcher;
use ::paxos::multipaxos::client::CommandClient;
use ::paxos::multipaxos::leader::Leader;
use ::paxos::multipaxos::proxy_leader::ProxyLeader;
use ::paxos::multipaxos::replica::Replica;
use ::paxos::multipaxos::unbatcher::Unbatcher;
use ::paxos::{Call, Configuration, Configurations, HostEntry, Level, Member, Parameters, RoleSlots};
use kernel::{Bytes, HostId, HostSlot, NodeId, Rng};
use kv::{Command, Query, Store};
use sim::{Control, HostSpec, Incarnation, Loss};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Node = Member<Store>;

const BATCHER: HostSlot = HostSlot(1);
const LEADER: HostSlot = HostSlot(2);
const PROXY_LEADER: HostSlot = HostSlot(3);
const ACCEPTOR: HostSlot = HostSlot(4);
const REPLICA: HostSlot = HostSlot(5);
const UNBATCHER: HostSlot = HostSlot(6);
const CLIENT: HostSlot = HostSlot(7);

const FOUNDERS: [&str; 3] = ["a", "b", "c"];

fn parameters() -> Parameters {
    let ms = Duration::from_millis;
    Parameters {
        heartbeat_every: ms(20),
        election_timeout: ms(100),
        resend_after: ms(50),
        window: 4,
        ..Parameters::default()
    }
}

fn configuration(version: u64, names: &[&str]) -> Configuration {
    let entry = |name: &&str| HostEntry { name: (*name).to_owned(), address: String::new() };
    let ids: Vec<_> = names.iter().map(|name| host(name)).collect();
    let hosts = names.iter().map(entry).collect();
    RoleSlots::STANDALONE.configuration(version, &ids, hosts).expect("hosts are different")
}

fn build(incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
    let on = incarnation.host;
    if on == host("client") {
        let batchers = configuration(0, &FOUNDERS).batchers;
        return vec![(CLIENT, Member::Client(CommandClient::new(batchers, Duration::from_millis(100))))];
    }
    let joins = on == host("d");
    let known = if joins {
        Configurations::unconfirmed(configuration(1, &["a", "b", "d"]))
    } else {
        Configurations::starting_with(configuration(0, &FOUNDERS))
    };
    let acceptor = if joins { Acceptor::joining } else { Acceptor::new };
    let replica = if joins { Replica::joining } else { Replica::new };
    let of = |host_slot| NodeId::new(on, host_slot);
    vec![
        (BATCHER, Member::Batcher(Batcher::new(parameters(), known.clone(), of(UNBATCHER)))),
        (UNBATCHER, Member::Unbatcher(Unbatcher)),
        (LEADER, Member::Leader(Leader::new(parameters(), known.clone()))),
        (PROXY_LEADER, Member::ProxyLeader(ProxyLeader::new(parameters(), known.clone()))),
        (ACCEPTOR, Member::Acceptor(acceptor(parameters(), known.clone(), Some(of(REPLICA))))),
        (REPLICA, Member::Replica(replica(parameters(), known, Store::new(1)))),
    ]
}

/// What is said all the time, and what follows from what a transcript shows.
const LEFT_OUT: &[&str] = &[
    "heartbeat",
    "resting",
    "hears",
    "leader rests",
    "checkpoint",
    "proxy alive",
    "durable (",
    "executed (",
];

fn flow(about: &'static str) -> Flow<Node> {
    let servers = FOUNDERS.map(|name| (HostSpec::server(host(name)), name));
    let others = [(HostSpec::spare(host("d")), "d"), (HostSpec::client(host("client")), "client")];
    let hosts = servers.into_iter().chain(others).collect();
    Flow::new(about, hosts, Rc::new(build), LEFT_OUT, |_, role| role.to_owned()).unseen(
        "The cluster starts, and has a leader.",
        1_000,
        |_| {},
    )
}

fn put(key: &str, value: &str) -> Call {
    let mut command = Vec::new();
    Command::Put { key: key.as_bytes(), value: value.as_bytes() }.encode(&mut command);
    Call::Write(Bytes::from(command))
}

fn get(key: &str, level: Level) -> Call {
    let mut query = Vec::new();
    Query::Get { key: key.as_bytes() }.encode(&mut query);
    Call::Read { query: Bytes::from(query), level }
}

fn ask(call: Call) -> impl Fn(&mut Control<'_, Node>) {
    move |control| {
        control.request(NodeId::new(host("client"), CLIENT), call.clone());
    }
}

/// The host whose leader leads.
fn leads(control: &Control<'_, Node>) -> HostId {
    let leads = |(_, node): &(NodeId, &Node)| matches!(node, Member::Leader(leader) if leader.is_leading());
    control.cluster.nodes().find(leads).map(|(node, _)| node.host()).expect("somebody leads")
}

pub(crate) fn a_write() -> Flow<Node> {
    flow("A write. It is durable where two of three acceptors have said phase 2b, and the client is answered by the unbatcher.")
        .unseen("A first write opens the client's session.", 100, ask(put("x", "1")))
        .then("The client writes.", 12, ask(put("x", "2")))
}

pub(crate) fn a_read() -> Flow<Node> {
    flow("Reads. A linearizable one asks a quorum of acceptors how far votes go, and then one replica; an eventual one asks a replica alone.")
        .unseen("A first write opens the client's session.", 100, ask(put("x", "1")))
        .then("The client reads linearizably.", 12, ask(get("x", Level::Linearizable)))
        .then("It reads eventually.", 12, ask(get("x", Level::Eventual)))
}

pub(crate) fn an_election() -> Flow<Node> {
    flow("An election. The leader's host dies; another leader asks whether it may stand, runs phase 1, and recovers what it finds.")
        .unseen("A first write opens the client's session.", 100, ask(put("x", "1")))
        .then("The leader's host dies.", 400, |control| {
            let leader = leads(control);
            control.crash(leader, Loss::All, Duration::from_secs(60), &mut Rng::seeded(1));
        })
        .then("The client writes.", 200, ask(put("x", "2")))
}

pub(crate) fn a_host_comes_back() -> Flow<Node> {
    flow("A host comes back. Its acceptor has its votes, and its replica executes them when it knows that they are chosen.")
        .unseen("A first write opens the client's session.", 100, ask(put("x", "1")))
        .unseen("A host that does not lead dies for 200 ms.", 100, |control| {
            let leader = leads(control);
            let other = FOUNDERS.map(host).into_iter().find(|&host| host != leader).expect("two others");
            control.crash(other, Loss::All, Duration::from_millis(200), &mut Rng::seeded(1));
        })
        .unseen("The client writes.", 99, ask(put("x", "2")))
        .then("The host comes back.", 150, |_| {})
}

pub(crate) fn a_host_is_replaced() -> Flow<Node> {
    flow("A host is replaced: d comes for c. The change is a command of the log; d starts from a snapshot and is heard before it counts.")
        .unseen("A first write opens the client's session.", 100, ask(put("x", "1")))
        .then("d is started, and the client asks for the change.", 400, |control| {
            control.boot(host("d"));
            ask(Call::Reconfigure(Arc::new(configuration(1, &["a", "b", "d"]))))(control);
        })
        .then("The client writes under the new configuration.", 100, ask(put("x", "2")))
}
