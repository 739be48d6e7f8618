//! Placements: which host plays which roles.

use super::judged::Judged;
use crate::audit::log::Journal;
use kernel::{HostId, HostSlot, NodeId, Rng};
use parts::{AcceptorGroup, Acceptors, Shape, Slot};
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::batcher::Batcher;
use paxos::multipaxos::leader::Leader;
use paxos::multipaxos::proxy_leader::ProxyLeader;
use paxos::multipaxos::replica::Replica;
use paxos::multipaxos::unbatcher::Unbatcher;
use paxos::{Configuration, Configurations, HostEntry, Member, Parameters, RoleSlots};
use sim::HostSpec;

pub(super) const BATCHER: HostSlot = HostSlot(1);
pub(super) const LEADER: HostSlot = HostSlot(2);
pub(super) const PROXY_LEADER: HostSlot = HostSlot(3);
pub(super) const ACCEPTOR: HostSlot = HostSlot(4);
pub(super) const REPLICA: HostSlot = HostSlot(5);
pub(super) const UNBATCHER: HostSlot = HostSlot(6);
const CLIENT: HostSlot = HostSlot(7);

/// Hosts, spares and clients of one run.
pub(super) struct Layout {
    first: Configuration,
    spares: Vec<HostId>,
    clients: Vec<NodeId>,
    colocated: bool,
}

fn on(hosts: &[HostId], host_slot: HostSlot) -> Vec<NodeId> {
    hosts.iter().map(|&host| NodeId::new(host, host_slot)).collect()
}

fn entries(hosts: &[HostId]) -> Vec<HostEntry> {
    hosts.iter().map(|host| HostEntry { name: format!("{host:?}"), address: String::new() }).collect()
}

/// Which role writes the records of a node.
pub(super) fn journal_of(node: NodeId) -> Journal {
    match node.host_slot() {
        ACCEPTOR => Journal::Acceptor,
        REPLICA => Journal::Replica,
        LEADER => Journal::Leader,
        _ => Journal::Other,
    }
}

/// Every host plays every role.
pub(super) fn colocated(version: u64, hosts: &[HostId]) -> Configuration {
    RoleSlots::STANDALONE.configuration(version, hosts, entries(hosts)).expect("hosts are different")
}

/// Every role instance on a host of its own.
fn compartmentalized(rng: &mut Rng) -> Configuration {
    let mut next = 0;
    let mut hosts = |count: u64| -> Vec<HostId> {
        let first = next;
        next += count as u32;
        (first..next).map(|host| HostId(host + 1)).collect()
    };
    let (leaders, proxies, replicas) = (hosts(2), hosts(rng.between(2, 4)), hosts(rng.between(2, 4)));
    let batchers = hosts(2);
    let groups = match rng.below(6) {
        0 => vec![AcceptorGroup::grid(on(&hosts(4), ACCEPTOR), 2)],
        1 => vec![AcceptorGroup::grid(on(&hosts(6), ACCEPTOR), 3)],
        2 => vec![AcceptorGroup::majority(on(&hosts(3), ACCEPTOR))],
        3 => vec![
            AcceptorGroup::grid(on(&hosts(4), ACCEPTOR), 2),
            AcceptorGroup::grid(on(&hosts(4), ACCEPTOR), 2),
        ],
        several => (3..=several).map(|_| AcceptorGroup::majority(on(&hosts(3), ACCEPTOR))).collect(),
    };
    let all: Vec<HostId> = (1..=next).map(HostId).collect();
    let groups = groups.into_iter().collect::<Option<Vec<_>>>().expect("hosts are different");
    Configuration {
        version: 0,
        first_slot: Slot(0),
        acceptors: Acceptors::new(groups).expect("at least one group"),
        leaders: on(&leaders, LEADER),
        proxy_leaders: on(&proxies, PROXY_LEADER),
        replicas: on(&replicas, REPLICA),
        batchers: on(&batchers, BATCHER),
        unbatchers: on(&batchers, UNBATCHER),
        hosts: entries(&all),
        joined: Vec::new(),
    }
}

/// The hosts of a configuration, each once.
pub(super) fn hosts_of(configuration: &Configuration) -> Vec<HostId> {
    let mut hosts: Vec<HostId> = configuration.nodes().iter().map(|node| node.host()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// The next configuration, with `comer` in all slots of `leaver`.
pub(super) fn substitute(latest: &Configuration, leaver: HostId, comer: HostId) -> Configuration {
    let swap = |node: NodeId| {
        if node.host() == leaver { NodeId::new(comer, node.host_slot()) } else { node }
    };
    let all = |nodes: &[NodeId]| nodes.iter().map(|&node| swap(node)).collect::<Vec<_>>();
    let groups = latest.acceptors.groups().iter().map(|group| {
        let members = all(group.members());
        match group.shape() {
            Shape::Majority => AcceptorGroup::majority(members),
            Shape::Grid { columns } => AcceptorGroup::grid(members, columns),
        }
    });
    let groups = groups.collect::<Option<Vec<_>>>().expect("the comer was not a member");
    Configuration {
        version: latest.version + 1,
        first_slot: Slot(0),
        acceptors: Acceptors::new(groups).expect("at least one group"),
        leaders: all(&latest.leaders),
        proxy_leaders: all(&latest.proxy_leaders),
        replicas: all(&latest.replicas),
        batchers: all(&latest.batchers),
        unbatchers: all(&latest.unbatchers),
        hosts: latest.hosts.clone(),
        joined: Vec::new(),
    }
}

/// A random least set of the `sound` hosts that can go on alone; none if there is none.
pub(super) fn core(configuration: &Configuration, sound: &[HostId], rng: &mut Rng) -> Option<Vec<HostId>> {
    let mut core: Vec<HostId> = Vec::new();
    let is_sound = |node: &NodeId| sound.contains(&node.host());
    for group in configuration.acceptors.groups() {
        let mut members: Vec<NodeId> = group.members().iter().copied().filter(is_sound).collect();
        rng.shuffle(&mut members);
        // Drop whom both kinds of quorum can do without.
        let mut retained = members.clone();
        for member in members {
            let without: Vec<NodeId> = retained.iter().copied().filter(|&other| other != member).collect();
            if suffices(group, &without) {
                retained = without;
            }
        }
        if !suffices(group, &retained) {
            return None;
        }
        core.extend(retained.iter().map(|node| node.host()));
    }
    // A slot that only faults + 1 replicas have in a snapshot must be in one of the core.
    let replicas = configuration.replicas.len();
    let needed = replicas.saturating_sub(configuration.acceptors.faults()).max(1);
    let roles = [
        (&configuration.leaders, 1),
        (&configuration.proxy_leaders, 1),
        (&configuration.batchers, 1),
        (&configuration.replicas, needed),
    ];
    for (nodes, count) in roles {
        let mut nodes: Vec<HostId> =
            nodes.iter().filter(|node| is_sound(node)).map(|node| node.host()).collect();
        rng.shuffle(&mut nodes);
        // Those already in first: the core stays small.
        nodes.sort_by_key(|host| !core.contains(host));
        if nodes.len() < count {
            return None;
        }
        core.extend(&nodes[..count]);
    }
    core.sort_unstable();
    core.dedup();
    Some(core)
}

fn suffices(group: &AcceptorGroup, members: &[NodeId]) -> bool {
    let mut tally = parts::Tally::default();
    members.iter().filter_map(|&member| group.index_of(member)).for_each(|index| tally.insert(index));
    group.is_read_quorum(tally) && group.is_write_quorum(tally)
}

impl Layout {
    /// With `plain`, three hosts that play every role.
    pub(super) fn draw(plain: bool, clients_min: u64, rng: &mut Rng) -> Self {
        let colocated_placement = rng.chance(0.6) || plain;
        let first = if colocated_placement {
            let count = if rng.chance(0.2) && !plain { 5 } else { 3 };
            colocated(0, &(1..=count).map(HostId).collect::<Vec<_>>())
        } else {
            compartmentalized(rng)
        };
        let clients = (1..=rng.between(clients_min, 4) as u32)
            .map(|client| NodeId::new(HostId(200 + client), CLIENT))
            .collect();
        Self { first, spares: (101..=104).map(HostId).collect(), clients, colocated: colocated_placement }
    }

    pub(super) fn first(&self) -> &Configuration {
        &self.first
    }

    pub(super) fn is_colocated(&self) -> bool {
        self.colocated
    }

    /// True if the host belongs to the cluster from its bootstrap.
    pub(super) fn is_first(&self, host: HostId) -> bool {
        hosts_of(&self.first).contains(&host)
    }

    pub(super) fn spares(&self) -> Vec<HostId> {
        self.spares.clone()
    }

    /// Servers and spares.
    pub(super) fn all_hosts(&self) -> Vec<HostId> {
        hosts_of(&self.first).into_iter().chain(self.spares.iter().copied()).collect()
    }

    pub(super) fn client_nodes(&self) -> Vec<NodeId> {
        self.clients.clone()
    }

    pub(super) fn client_on(&self, host: HostId) -> Option<NodeId> {
        self.clients.iter().copied().find(|node| node.host() == host)
    }

    /// Batchers of the first configuration, and those that spares may bring.
    pub(super) fn batchers(&self) -> Vec<NodeId> {
        let spares = on(&self.spares, BATCHER);
        self.first.batchers.iter().copied().chain(spares).collect()
    }

    pub(super) fn host_specs(&self) -> Vec<HostSpec> {
        let servers = hosts_of(&self.first).into_iter().map(HostSpec::server);
        let spares = self.spares.iter().copied().map(HostSpec::spare);
        let clients = self.clients.iter().map(|node| HostSpec::client(node.host()));
        servers.chain(spares).chain(clients).collect()
    }

    /// The nodes of a host: those of the first configuration, or all roles on a spare.
    pub(super) fn build(
        &self,
        host: HostId,
        parameters: &Parameters,
        joined_by: &Configuration,
    ) -> Vec<(HostSlot, Member<Judged>)> {
        // A machine that joins is given an up-to-date cluster file.
        let file = if self.spares.contains(&host) { joined_by } else { &self.first };
        let spare = self.spares.contains(&host);
        let known = if spare { Configurations::unconfirmed } else { Configurations::starting_with };
        let known = known(file.clone());
        let plays = |nodes: &[NodeId]| spare || nodes.iter().any(|node| node.host() == host);
        let acceptors: Vec<NodeId> = self.first.acceptors.nodes().collect();
        let mut nodes = Vec::new();
        let parameters = || parameters.clone();
        if plays(&self.first.batchers) {
            let unbatcher = NodeId::new(host, UNBATCHER);
            nodes.push((BATCHER, Member::Batcher(Batcher::new(parameters(), known.clone(), unbatcher))));
            nodes.push((UNBATCHER, Member::Unbatcher(Unbatcher)));
        }
        if plays(&self.first.leaders) {
            nodes.push((LEADER, Member::Leader(Leader::new(parameters(), known.clone()))));
        }
        if plays(&self.first.proxy_leaders) {
            nodes.push((PROXY_LEADER, Member::ProxyLeader(ProxyLeader::new(parameters(), known.clone()))));
        }
        if plays(&acceptors) {
            let replica = plays(&self.first.replicas).then(|| NodeId::new(host, REPLICA));
            let acceptor = if self.spares.contains(&host) { Acceptor::joining } else { Acceptor::new };
            nodes.push((ACCEPTOR, Member::Acceptor(acceptor(parameters(), known.clone(), replica))));
        }
        if plays(&self.first.replicas) {
            let joins = self.spares.contains(&host);
            let replica = if joins { Replica::joining } else { Replica::new };
            nodes.push((REPLICA, Member::Replica(replica(parameters(), known, Judged::new()))));
        }
        nodes
    }
}
