//! Mason under the bare sequence: three hosts with two groups of proxies and two shards.

use super::script::{Flow, host};
use ::mason::proxy::SpacesOf;
use ::mason::proxy::arranging::ProxyCall;
use ::mason::{Deployment, Group, HostParts, MasonMember, MasonParameters, Space, Stub};
use kernel::{Bytes, Encode, HostId, HostSlot, NodeId, Rng};
use paxos::HostEntry;
use sequence::{Ask, Gateway, Labels, Spaces};
use sim::{Control, HostSpec, Incarnation, Loss};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

type Node = MasonMember<Spaces, Labels, Gateway>;

const HOSTS: [&str; 3] = ["a", "b", "c"];
const GROUPS: u16 = 1;
const SHARDS: u16 = 2;

fn deployment() -> Deployment {
    let ms = Duration::from_millis;
    let entry = |name: &str| HostEntry { name: name.to_owned(), address: String::new() };
    let parameters = MasonParameters {
        tick: ms(20),
        resend_after: ms(60),
        suspect_after: ms(120),
        clock_every: ms(10_000),
        ..MasonParameters::default()
    };
    let log = paxos::Parameters {
        heartbeat_every: ms(20),
        election_timeout: ms(100),
        resend_after: ms(50),
        ..paxos::Parameters::default()
    };
    Deployment::new(HOSTS.map(entry).to_vec(), GROUPS, SHARDS, HOSTS.len(), parameters, log)
        .with_room_for(GROUPS, SHARDS + 1)
}

fn build(incarnation: Incarnation) -> Vec<(HostSlot, Node)> {
    let deployment = deployment();
    let stub = Spaces { count: SHARDS };
    let spaces_of: SpacesOf = Arc::new(move |body, shard_map| stub.spaces(body, shard_map));
    let gateway =
        Gateway::new(deployment.proxies_of(incarnation.host), deployment.servers_of(incarnation.host))
            .with_layout(deployment.topology().layout.clone());
    let parts = HostParts { stub: &|_: Group| stub, shard: &|_: Space| Labels::default(), gateway };
    deployment.build(incarnation.host, &spaces_of, parts)
}

/// What is said all the time, and the roles of the log, which MultiPaxos' transcripts show.
const LEFT_OUT: &[&str] = &[
    "heartbeat",
    "resting",
    "hears",
    "leader rests",
    "proxy alive",
    "ping (",
    "pong (",
    "checkpoint",
    "alive",
    "durable (",
    "executed (",
    "voted (",
    "phase 2",
    "chosen",
    "assign (",
    "progress (",
    "group status",
    "beat",
];

fn flow(about: &'static str) -> Flow<Node> {
    let hosts = HOSTS.map(|name| (HostSpec::server(host(name)), name)).to_vec();
    // Shards are numbered on their hosts from 0x200.
    let label = |number: u32, role: &str| match role {
        "shard" => format!("shard{}", number - 0x200),
        _ => role.to_owned(),
    };
    Flow::new(about, hosts, Rc::new(build), LEFT_OUT, label)
        .unseen("The cluster starts: it has a leader of its log, and a sequencer.", 1_500, |_| {})
        .unseen("A first operation of each space.", 200, ask("b", &[0, 1]))
}

fn ask(at: &'static str, spaces: &'static [u16]) -> impl Fn(&mut Control<'_, Node>) {
    move |control| {
        let ask =
            Ask { spaces: spaces.iter().copied().map(Space).collect(), label: Bytes::from_static(b"label") };
        control.request(Deployment::gateway(host(at)), ask.encoded().into());
    }
}

fn kill(find: fn(&Node) -> bool) -> impl Fn(&mut Control<'_, Node>) {
    move |control| {
        let found: Option<HostId> =
            control.cluster.nodes().find(|(_, node)| find(node)).map(|(node, _)| NodeId::host(node));
        let host = found.expect("somebody does");
        control.crash(host, Loss::All, Duration::from_secs(60), &mut Rng::seeded(1));
    }
}

pub(crate) fn an_operation() -> Flow<Node> {
    flow("An operation of one shard. The sequencer assigns its number; the log of the group holds operation and number before any shard executes it.")
        .then("A user of b asks for a number of space 0.", 20, ask("b", &[0]))
}

pub(crate) fn an_operation_of_two_shards() -> Flow<Node> {
    flow("An operation of two shards. The sequencer gives it a number of each space in one step.").then(
        "A user of b asks for a number of both spaces.",
        60,
        ask("b", &[0, 1]),
    )
}

pub(crate) fn a_lost_sequencer() -> Flow<Node> {
    flow("A lost sequencer. The groups seal it in their logs, a standby learns from the seals how far numbers went, fills holes, and begins.")
        .then("The sequencer\'s host dies.", 200, |control| {
            kill(|node| matches!(node, MasonMember::Sequencer(sequencer) if sequencer.active_epoch().is_some()))(control);
        })
        .then("A user of c asks for a number of space 0.", 20, ask("c", &[0]))
}

pub(crate) fn a_lost_proxy_leader() -> Flow<Node> {
    flow("A lost leader of a group. The new one takes over what its log has, and asks for numbers again under the same names.")
        .then("The host of the group's leader dies.", 300, |control| {
            kill(|node| matches!(node, MasonMember::Proxy(proxy) if proxy.is_leading()))(control);
        })
}

pub(crate) fn a_shard_is_added() -> Flow<Node> {
    flow("A shard is added. The change takes effect with a change of sequencers; the state crosses as inputs of one operation of all shards.")
        .then("An operator asks for three shards.", 400, |control| {
            let proxy = deployment().proxies_of(host("a"))[0];
            control.request(proxy, ProxyCall::SetShards(SHARDS + 1).encoded().into());
        })
}
