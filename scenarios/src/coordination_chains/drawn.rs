//! What a seed draws of a cluster, and the roles of its hosts.

use super::looks::{Living, Served, Servers};
use super::node::{ChainedSeat as Seat, HomeOrSocket, TreeMember};
use super::{CHAIN_FROM, CoordinationChainsScenario, HOME, REAP_EVERY};
use crate::coordination::judged::{JudgedSessions, JudgedTree, SharedTree};
use crate::coordination::user::User;
use crate::coordination::{checks::Checks, ephemerals, user};
use crate::fuzzylog::draw_segment_bytes;
use crate::limits::{self, OPERATION_BYTES_MAX, Sizes};
use crate::moments::operator;
use ::fuzzylog::{FuzzyDeployment, FuzzyMember, FuzzyParameters};
use ::mason::shard::ShardServer;
use ::mason::{Deployment, Layout, MasonMember, MasonParameters, ProxyGroup, Space, Topology};
use coordination::feeder::{TreeFeeder, TreeFeederNode, TreeFeederPlan};
use coordination::home::GROUP;
use coordination::{Consistency, Gateway, HomeShard, Placement, Routes, SessionSettings, Settings};
use kernel::{Embedded, HostId, HostSlot, NodeId, Rng};
use parts::ReplyBounds;
use std::sync::Arc;
use std::time::Duration;

fn draw_chain(rng: &mut Rng) -> FuzzyParameters {
    let ms = Duration::from_millis;
    FuzzyParameters {
        tick: ms(rng.between(5, 30)),
        resend_after: ms(rng.between(30, 150)),
        stuck_after: ms(rng.between(50, 400)),
        back_off_max: ms(rng.between(20, 200)),
        suspect_after: ms(rng.between(80, 400)),
        seal_for: ms(rng.between(20, 200)),
        start_for: ms(rng.between(50, 300)),
        behind_max: rng.between(0, 20),
        append_bytes_max: OPERATION_BYTES_MAX + (2 << 10),
        page_bytes: 256 << rng.below(5),
        window_bytes: 12_000 << rng.below(4),
        snapshot_every_bytes: 1_000 << rng.below(6),
        snapshot_chunk_bytes: 512 << rng.below(3),
        segment_bytes: draw_segment_bytes(rng),
        row_memory_bytes: 200 << rng.below(6),
        replicas_min: 2,
        ..FuzzyParameters::default()
    }
}

/// Of shards, and of the directors' log.
fn draw_parameters(rng: &mut Rng) -> (MasonParameters, paxos::Parameters) {
    let ms = Duration::from_millis;
    let log = paxos::Parameters {
        election_timeout: ms(rng.between(150, 400)),
        heartbeat_every: ms(rng.between(15, 40)),
        resend_after: ms(rng.between(50, 150)),
        snapshot_every_bytes: 2_000 << rng.below(6),
        retained_bytes_max: 4_000 << rng.below(6),
        ..paxos::Parameters::default()
    };
    let parameters = MasonParameters {
        clock_every: ms(rng.between(100, 300)),
        ask_after: ms(rng.between(20, 80)),
        snapshot_every_bytes: 2_000 << rng.below(6),
        snapshot_chunk_bytes: 256 << rng.below(4),
        page_bytes: 128 << rng.below(7),
        // Where nobody waits for the last server, it has to take a snapshot.
        wait_for_last: if rng.chance(0.5) { Duration::ZERO } else { ms(500) },
        ..MasonParameters::default()
    };
    let (parameters, log) = limits::narrowed(parameters, log, rng);
    limits::fit(parameters, log)
}

impl CoordinationChainsScenario {
    /// A cluster of `rng`'s choice.
    pub fn draw(rng: &mut Rng) -> Self {
        let entries: Vec<paxos::HostEntry> = (0..3).map(operator::entry).collect();
        let hosts: Vec<HostId> = entries.iter().map(|entry| HostId::named(&entry.name)).collect();
        let shards = rng.between(1, 4) as u16;
        let room = rng.between(u64::from(shards), 5) as u16;
        let (parameters, log) = draw_parameters(rng);
        let over = Deployment::new(entries.clone(), 1, shards, 0, parameters.clone(), log.clone())
            .with_room_for(1, room);
        let chain = FuzzyDeployment::new(CHAIN_FROM, &entries, 1, (3, 3), draw_chain(rng), log);
        let mut servers = over.topology().shards.clone();
        servers.push(hosts.iter().map(|&host| NodeId::new(host, HOME)).collect());
        let topology = Topology {
            version: 0,
            groups: vec![ProxyGroup { proxies: hosts.iter().map(|&host| chain.client_of(host)).collect() }],
            layout: Layout::at_bootstrap(1, shards),
            sequencers: Vec::new(),
            shards: servers,
        };
        let placement = Placement::new(shards).resharding(rng.below(3) as u16);
        let users =
            (0..rng.between(3, 6)).map(|_| User::new(rng.between(1_500, 6_000) as i32, rng.chance(0.5)));
        Self {
            users: users.collect(),
            desk: HostId::named("users"),
            hosts,
            over,
            chain,
            topology: Arc::new(topology),
            parameters,
            retained_bytes_max: 2_000 << rng.below(8),
            node_bytes: 64 << rng.below(8),
            placement,
            sessions: SessionSettings::new(placement, [7; 32]),
            consistency: if rng.chance(0.75) { Consistency::Linearizable } else { Consistency::Sequential },
            replies: ReplyBounds { bytes_max: 4_000 << rng.below(6), free_bytes: 64 << rng.below(5) },
            rng: Rng::seeded(rng.bits()),
            sizes: Sizes::draw(rng),
            values: 0,
            checks: Checks::default(),
            undecided: false,
            servers: Servers::default(),
            living: Living::default(),
            ephemerals: ephemerals::Ephemerals::default(),
            core: Vec::new(),
            healed_at: None,
            served: Served::default(),
            cutting: None,
            quiet: None,
            tree: SharedTree::new(),
            asks_seldom: rng.chance(0.25),
            reshardings: Vec::new(),
        }
    }

    /// The roles of the service on a host, in its incarnation of this number.
    pub(super) fn members_on(&self, host: HostId, number: u64) -> Vec<(HostSlot, Seat)> {
        let (servers, gateway) = (self.over.servers_of(host), self.over.gateway_of(host));
        let (topology, parameters) = (&self.topology, &self.parameters);
        let (room, feeder) = (servers.len() as u16, self.chain.client_of(host));
        let member = |member: TreeMember| Seat::Tree(Box::new(Embedded::new(member)));
        let mut nodes = Vec::new();
        for (space, server) in (0..).map(Space).zip(&servers) {
            let state = JudgedTree::new(space, self.placement, number, self.tree.clone());
            let role = ShardServer::new(space, topology.clone(), parameters.clone(), state);
            nodes.push((server.host_slot(), member(MasonMember::Shard(Box::new(role)))));
        }
        let sessions = JudgedSessions::new(GROUP, self.sessions.clone());
        let home = HomeShard::of(sessions, room, feeder, self.topology.layout.shard_map.shards);
        let home = ShardServer::new(Space(room), topology.clone(), parameters.clone(), home);
        nodes.push((HOME, Seat::Beside(Box::new(Embedded::new(HomeOrSocket::Home(Box::new(home)))))));
        let routes = Routes { proxies: vec![feeder], shards: servers };
        let settings = Settings {
            session_timeouts: user::TIMEOUTS,
            consistency: self.consistency,
            replies: self.replies,
            layout: self.topology.layout.clone(),
            reap_every: REAP_EVERY,
            ..Settings::new(routes, self.placement)
        };
        let role = MasonMember::Gateway(Box::new(Gateway::new(settings)));
        nodes.push((gateway.host_slot(), member(role)));
        for (slot, role) in self.chain.build(host) {
            let node = match role {
                FuzzyMember::Client(client) => {
                    let feeder = TreeFeeder::new(TreeFeederPlan {
                        client: *client,
                        topology: topology.clone(),
                        gateway,
                        sessions: self.sessions.clone(),
                        clock_every: parameters.clock_every,
                        wait_for_last: parameters.wait_for_last,
                        retained_bytes_max: self.retained_bytes_max,
                        node_bytes: self.node_bytes,
                    });
                    Seat::Feeder(Box::new(Embedded::new(TreeFeederNode::Feeder(Box::new(feeder)))))
                }
                role @ (FuzzyMember::ChainServer(_) | FuzzyMember::Director(_) | FuzzyMember::Log(_)) => {
                    Seat::Chain(Box::new(Embedded::new(role)))
                }
            };
            nodes.push((slot, node));
        }
        nodes
    }
}
