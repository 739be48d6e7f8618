//! A replicated log inside another engine: its roles on every host, at slots that are the same everywhere, and what of it changes when
//! hosts do. The engine around it hosts the roles as nodes of its own family ([`kernel::Embedded`]) and proposes by a node of its own.

use crate::multipaxos::{Member, Paxos, Pulse, acceptor, batcher, leader, proxy_leader, replica, unbatcher};
use crate::{Configuration, Configurations, HostEntry, Parameters};
use kernel::{Embedded, Embeds, HostId, HostSlot, NodeId, StateMachine};
use parts::{AcceptorGroup, Acceptors, Slot};

kernel::record! {
    /// The hosts of a deployment. Each plays every role, at the slots at which all others play it.
    pub struct Members {
        /// 0 for the bootstrap's, larger for each change.
        version: u64,
        /// The hosts.
        hosts: Vec<HostEntry>,
    }
}

impl Members {
    /// Their identities.
    pub fn ids(&self) -> impl Iterator<Item = HostId> + use<'_> {
        self.hosts.iter().map(|host| HostId::named(&host.name))
    }
}

/// A role of an embedded log, by how far its slot is from the log's first. 0 is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogRole {
    /// Orders.
    Leader = 1,
    /// Broadcasts.
    ProxyLeader,
    /// Votes.
    Acceptor,
    /// Executes.
    Replica,
    /// Takes commands.
    Batcher,
    /// Answers.
    Unbatcher,
}

impl LogRole {
    /// All of them, in the order of their slots.
    pub const ALL: [Self; 6] =
        [Self::Leader, Self::ProxyLeader, Self::Acceptor, Self::Replica, Self::Batcher, Self::Unbatcher];

    /// The role at a slot, by how far that is from the log's first.
    pub fn at(offset: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|role| *role as u32 == offset)
    }
}

/// At which slot each role is, on every host of a log whose hosts play all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleSlots {
    /// Orders.
    pub leader: HostSlot,
    /// Broadcasts.
    pub proxy_leader: HostSlot,
    /// Votes.
    pub acceptor: HostSlot,
    /// Executes.
    pub replica: HostSlot,
    /// Takes commands.
    pub batcher: HostSlot,
    /// Answers.
    pub unbatcher: HostSlot,
}

impl RoleSlots {
    /// Of a log that is no part of another engine.
    pub const STANDALONE: Self = Self {
        leader: HostSlot(2),
        proxy_leader: HostSlot(3),
        acceptor: HostSlot(4),
        replica: HostSlot(5),
        batcher: HostSlot(1),
        unbatcher: HostSlot(6),
    };

    /// The configuration in which each of `ids` plays every role; none if they do not make a group of acceptors.
    pub fn configuration(
        &self,
        version: u64,
        ids: &[HostId],
        hosts: Vec<HostEntry>,
    ) -> Option<Configuration> {
        let on_all = |slot| ids.iter().map(|&host| NodeId::new(host, slot)).collect::<Vec<_>>();
        Some(Configuration {
            version,
            first_slot: Slot(0),
            acceptors: Acceptors::new(vec![AcceptorGroup::majority(on_all(self.acceptor))?])?,
            leaders: on_all(self.leader),
            proxy_leaders: on_all(self.proxy_leader),
            replicas: on_all(self.replica),
            batchers: on_all(self.batcher),
            unbatchers: on_all(self.unbatcher),
            hosts,
            joined: Vec::new(),
        })
    }
}

/// One log of a deployment whose hosts all play every role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EmbeddedLog {
    /// Its roles' slots follow this one.
    pub first: HostSlot,
    /// Its number among the deployment's logs. Their hosts stand in another order in each, so that the first elections spread the leaders.
    pub number: u16,
    /// Where the engine around it proposes on each host. It hears the leader as batchers do.
    pub proposer: HostSlot,
}

/// Where a log is, as its leader says.
#[derive(Clone, PartialEq, Debug)]
pub struct LogPlacement {
    /// The configuration's version.
    pub version: u64,
    /// Every slot of the configurations before is in durable snapshots of this one's replicas.
    pub is_settled: bool,
    hosts: Vec<HostId>,
    /// Those that hear its leader, as proposers do.
    listeners: Vec<HostId>,
    /// All hosts that the configuration names.
    pub entries: Vec<HostEntry>,
}

impl LogPlacement {
    /// As a leader's pulse has it.
    pub fn of(pulse: &Pulse) -> Self {
        let latest = pulse.configurations.latest();
        let mut hosts: Vec<HostId> = latest.acceptors.nodes().map(|acceptor| acceptor.host()).collect();
        hosts.sort_unstable();
        let mut listeners: Vec<HostId> = latest.batchers.iter().map(|node| node.host()).collect();
        listeners.sort_unstable();
        listeners.dedup();
        let is_settled = latest.version == 0 || pulse.truncate_below > latest.first_slot;
        Self { version: latest.version, is_settled, hosts, listeners, entries: latest.hosts.clone() }
    }

    /// The hosts that have a replica, sorted.
    pub fn hosts(&self) -> &[HostId] {
        &self.hosts
    }

    /// True if it is on these hosts and no others, and all members hear its leader and nobody else.
    pub fn is_placed(&self, replicas: &[HostId], members: &Members) -> bool {
        let (mut replicas, mut listeners) = (replicas.to_vec(), members.ids().collect::<Vec<_>>());
        replicas.sort_unstable();
        listeners.sort_unstable();
        replicas == self.hosts && listeners == self.listeners
    }

    /// True if it is on these hosts and no others.
    pub fn is_on(&self, members: &Members) -> bool {
        let mut hosts: Vec<HostId> = members.ids().collect();
        hosts.sort_unstable();
        hosts == self.hosts
    }
}

/// How a host begins with a log.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The log's first configuration.
    pub configuration: Configuration,
    /// The host joins a log that runs: the configuration is unconfirmed, good for finding others.
    pub joins: bool,
    /// A host that joins waits until a leader wants it, and may be wanted never.
    pub waits: bool,
}

impl EmbeddedLog {
    /// Where a role is on every host.
    pub fn slot(&self, role: LogRole) -> HostSlot {
        HostSlot(self.first.0 + role as u32)
    }

    /// A host's node.
    pub fn node(&self, host: HostId, role: LogRole) -> NodeId {
        NodeId::new(host, self.slot(role))
    }

    /// The log's configuration on these hosts; none if they do not make a group of acceptors.
    pub fn configuration(&self, version: u64, members: &Members) -> Option<Configuration> {
        self.configuration_on(version, members.ids().collect(), members.hosts.clone())
    }

    /// The same, of hosts by their identities.
    pub fn configuration_on(
        &self,
        version: u64,
        mut ids: Vec<HostId>,
        hosts: Vec<HostEntry>,
    ) -> Option<Configuration> {
        let count = ids.len().max(1);
        ids.rotate_left(usize::from(self.number) % count);
        self.on_hosts(version, &ids, &ids, hosts)
    }

    /// The log's configuration with roles on these hosts, in this order, whose leader they and all members hear; none if they do not
    /// make a group of acceptors.
    pub fn configuration_placed(
        &self,
        version: u64,
        replicas: &[HostId],
        members: &Members,
    ) -> Option<Configuration> {
        // Those on their way out still lead, and have to know that.
        let leavers = replicas.iter().copied().filter(|host| members.ids().all(|member| member != *host));
        let listeners: Vec<HostId> = members.ids().chain(leavers).collect();
        self.on_hosts(version, replicas, &listeners, members.hosts.clone())
    }

    fn on_hosts(
        &self,
        version: u64,
        ids: &[HostId],
        listeners: &[HostId],
        hosts: Vec<HostEntry>,
    ) -> Option<Configuration> {
        let slots = RoleSlots {
            leader: self.slot(LogRole::Leader),
            proxy_leader: self.slot(LogRole::ProxyLeader),
            acceptor: self.slot(LogRole::Acceptor),
            replica: self.slot(LogRole::Replica),
            batcher: self.slot(LogRole::Batcher),
            unbatcher: self.slot(LogRole::Unbatcher),
        };
        let mut configuration = slots.configuration(version, ids, hosts)?;
        configuration.batchers.extend(listeners.iter().map(|&host| NodeId::new(host, self.proposer)));
        Some(configuration)
    }

    /// The log's nodes on a host, in the order of their slots. `machine` is what it replicates.
    pub fn build<S: StateMachine, F: Embeds<Paxos>>(
        &self,
        host: HostId,
        parameters: &Parameters,
        beginning: Beginning,
        machine: S,
    ) -> [(HostSlot, Embedded<Member<S>, F>); 6] {
        let Beginning { configuration, joins, waits } = beginning;
        let known = if joins {
            Configurations::unconfirmed(configuration)
        } else {
            Configurations::starting_with(configuration)
        };
        let new_acceptor = match (joins, waits) {
            (false, _) => acceptor::Acceptor::new,
            (true, false) => acceptor::Acceptor::joining,
            (true, true) => acceptor::Acceptor::invited,
        };
        let new_replica = match (joins, waits) {
            (false, _) => replica::Replica::new,
            (true, false) => replica::Replica::joining,
            (true, true) => replica::Replica::invited,
        };
        let log = || parameters.clone();
        let (replica, answers) = (self.node(host, LogRole::Replica), self.node(host, LogRole::Unbatcher));
        let members = [
            (LogRole::Leader, Member::Leader(leader::Leader::new(log(), known.clone()))),
            (LogRole::ProxyLeader, Member::ProxyLeader(proxy_leader::ProxyLeader::new(log(), known.clone()))),
            (LogRole::Acceptor, Member::Acceptor(new_acceptor(log(), known.clone(), Some(replica)))),
            (LogRole::Replica, Member::Replica(new_replica(log(), known.clone(), machine))),
            (LogRole::Batcher, Member::Batcher(batcher::Batcher::new(log(), known, answers))),
            (LogRole::Unbatcher, Member::Unbatcher(unbatcher::Unbatcher)),
        ];
        members.map(|(role, member)| (self.slot(role), Embedded::new(member)))
    }
}

/// The hosts to go on with from those that have a log now: one replica comes, one goes, or one does both. None if it is where it is
/// wanted. `attempt` counts: who does not come is not waited for if another one can. Hosts that are no members go first, and `last`
/// goes last.
pub fn next_step(
    present: &[HostId],
    wanted: &[HostId],
    members: &Members,
    last: HostId,
    attempt: usize,
) -> Option<Vec<HostId>> {
    let comers: Vec<HostId> = wanted.iter().copied().filter(|host| !present.contains(host)).collect();
    let is_member = |host: &HostId| members.ids().any(|member| member == *host);
    let leaver = present
        .iter()
        .copied()
        .filter(|host| !wanted.contains(host))
        .min_by_key(|host| (*host == last, is_member(host), *host));
    let comer = (!comers.is_empty()).then(|| comers[attempt % comers.len()]);
    if comer.is_none() && leaver.is_none() {
        return None;
    }
    // With fewer replicas than are wanted, and with one alone, one comes before one goes: it takes everything over from who stays.
    let leaver = leaver.filter(|_| comer.is_none() || present.len() >= wanted.len().max(2));
    let stay = present.iter().copied().filter(|host| Some(*host) != leaver);
    let next: Vec<HostId> = stay.chain(comer).collect();
    let order = |host: &HostId| wanted.iter().position(|it| it == host).unwrap_or(wanted.len());
    let mut next = next;
    next.sort_by_key(|host| (order(host), *host));
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: usize) -> Members {
        let entry = |at| HostEntry { name: format!("h{at}"), address: format!("h{at}:1") };
        Members { version: 1, hosts: (0..count).map(entry).collect() }
    }

    // A log that moves two replicas at once may lose what one of them had not taken over yet.
    #[test]
    fn one_replica_moves_at_a_time() {
        let all = members(6);
        let host: Vec<HostId> = all.ids().collect();
        let mut present = vec![host[0], host[1], host[2]];
        let wanted = [host[3], host[4], host[2]];
        let mut steps = 0;
        while let Some(next) = next_step(&present, &wanted, &all, host[0], 0) {
            assert_eq!(next.len(), 3);
            assert_eq!(next.iter().filter(|host| !present.contains(host)).count(), 1);
            assert!(steps > 0 || next.contains(&host[0]), "the leader's goes last");
            (present, steps) = (next, steps + 1);
        }
        assert_eq!((steps, present.as_slice()), (2, &wanted[..]));
        // From all hosts to some of them.
        let mut present = host.clone();
        for left in (3..6).rev() {
            present = next_step(&present, &wanted, &all, host[0], 0).expect("there are too many");
            assert_eq!(present.len(), left);
        }
        // One alone is not replaced by who has nothing yet.
        let next = next_step(&host[..1], &host[1..2], &all, host[0], 0).expect("it moves");
        assert_eq!(next.len(), 2);
        assert_eq!(next_step(&next, &host[1..2], &all, host[0], 0).as_deref(), Some(&host[1..2]));
        // A host that is gone leaves first; one that does not come is not waited for.
        let next = next_step(&[host[0], host[1], HostId(9)], &wanted, &all, host[0], 1);
        // Those that are not wanted come behind, by their identities.
        let mut stay = [host[0], host[1]];
        stay.sort_unstable();
        assert_eq!(next, Some(vec![host[4], stay[0], stay[1]]));
    }
}
