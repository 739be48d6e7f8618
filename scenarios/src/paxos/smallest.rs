//! The smallest MultiPaxos cluster, for the explorer: three acceptors, and hosts that may lead, each with a value of its
//! own. Agreement is checked in every state.
//!
//! Left out, as if lost: heartbeats to other hosts and their answers, refusals, what one replica reports to another, and the
//! pre-votes of the last acceptor. None of them is needed to choose a value, and a lost message is nothing that the
//! protocol need not bear. The acceptors are past their bootstrap.

use super::cluster::{ACCEPTOR, BATCHER, LEADER, PROXY_LEADER, REPLICA, UNBATCHER};
use kernel::{
    Cx, DecodeError, Encode, HostId, HostSlot, NodeId, Position, RequestId, Role, SnapshotStep, StateMachine,
    TimerIndex, TimerKey,
};
use parts::{AcceptorGroup, Acceptors, Slot};
use paxos::multipaxos::acceptor::{Acceptor, AcceptorIn, AcceptorRecord};
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::leader::{self, Leader, LeaderIn, LeaderTimer};
use paxos::multipaxos::proxy_leader::{ProxyLeader, ProxyLeaderIn};
use paxos::multipaxos::replica::Replica;
use paxos::multipaxos::{Message, Paxos};
use paxos::{Batch, BatchId, Call, Configuration, Configurations, Member, Outcome, Parameters, Value};
use sim::{Exploration, ExploreBounds, ExploredCluster, Scope};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// How many leaders there are, and how far they may go.
#[derive(Clone, Copy, Debug)]
pub struct Smallest {
    /// Hosts that may lead.
    pub leaders: u32,
    /// The bounds of each path and of the whole. `timers` counts candidacies.
    pub bounds: ExploreBounds,
}

/// Two candidacies without any fault: some 247,000 states.
pub const CANDIDACIES: ExploreBounds = ExploreBounds {
    timers: 2,
    losses: 0,
    duplications: 0,
    crashes: 0,
    depth: 1_000,
    states: 20_000_000,
    time: Duration::from_secs(170),
};

/// One candidacy with a crash, a lost message and a repeated one: some 128,000 states.
pub const FAULTS: ExploreBounds =
    ExploreBounds { timers: 1, losses: 1, duplications: 1, crashes: 1, ..CANDIDACIES };

/// Two candidacies and a crash anywhere: some 5,058,000 states.
pub const CRASHES: ExploreBounds = ExploreBounds { crashes: 1, ..CANDIDACIES };

/// What was chosen, by slot; part of the state, because nobody may choose otherwise later.
#[derive(Clone, Hash, Debug, Default)]
pub struct ChosenBySlot(BTreeMap<u64, Vec<u8>>);

/// Executes nothing.
#[derive(Clone, Debug)]
pub struct Nothing;

impl StateMachine for Nothing {
    fn apply(&mut self, _command: &[u8], _response: &mut Vec<u8>) {}

    fn query(&self, _query: &[u8], _response: &mut Vec<u8>) {}

    fn begin_snapshot(&mut self) {}

    fn snapshot_step(&mut self, _budget: usize, _chunk: &mut Vec<u8>) -> SnapshotStep {
        SnapshotStep::Done
    }

    fn reset(&mut self) {}

    fn install(&mut self, _chunk: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn digest(&self) -> u64 {
        0
    }
}

/// Stands in for the batcher of a leader's host: it proposes one value each time it hears that this host leads.
#[derive(Clone, Debug)]
pub struct Proposer;

kernel::nodes! {
    /// What the hosts run.
    #[derive(Clone, Debug)]
    pub enum SmallestNode of Paxos {
        /// A role of the protocol.
        node Role(Box<Member<Nothing>>),
        /// Who proposes.
        role Proposer(Proposer) "proposer",
    }
}

impl Role for Proposer {
    type Family = Paxos;
    type In = BatcherIn;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        // A leader waits for a replica's word before it stands.
        let nothing = leader::Executed {
            executed: Slot(0),
            version: 0,
            snapshot: Slot(0),
            configurations: None,
            hears: None,
        };
        cx.send(NodeId::new(cx.node().host(), LEADER), nothing);
    }

    fn on_message(&mut self, _from: NodeId, message: BatcherIn, cx: &mut Cx<'_, Self>) {
        if let BatcherIn::Heartbeat(message) = message {
            let host = cx.node().host();
            let id = BatchId { batcher: cx.node(), number: message.pulse.ballot.round };
            let batch =
                Batch { id, unbatcher: NodeId::new(host, UNBATCHER), groups: Vec::new(), rules: None };
            let value = Value::batch(batch.encoded()).expect("it is small");
            cx.send(NodeId::new(host, LEADER), leader::Propose { value });
        }
    }
}

const ACCEPTORS: u32 = 3;
const LEADERS_FROM: u32 = 11;

impl Smallest {
    fn leader_hosts(&self) -> impl Iterator<Item = HostId> {
        (LEADERS_FROM..LEADERS_FROM + self.leaders).map(HostId)
    }

    fn configurations(&self) -> Configurations {
        let on = |host_slot| self.leader_hosts().map(|host| NodeId::new(host, host_slot)).collect::<Vec<_>>();
        let voters = (1..=ACCEPTORS).map(|host| NodeId::new(HostId(host), ACCEPTOR)).collect();
        let group = AcceptorGroup::majority(voters).expect("hosts are different");
        Configurations::starting_with(Configuration {
            version: 0,
            first_slot: Slot(0),
            acceptors: Acceptors::new(vec![group]).expect("one group"),
            leaders: on(LEADER),
            proxy_leaders: on(PROXY_LEADER),
            replicas: on(REPLICA),
            batchers: on(BATCHER),
            unbatchers: on(UNBATCHER),
            hosts: Vec::new(),
            joined: Vec::new(),
        })
    }
}

impl Smallest {
    /// Visits its states, as far as its bounds allow.
    pub fn explore(&self) -> Exploration {
        sim::explore(self)
    }
}

impl Scope for Smallest {
    type Node = SmallestNode;
    type Monitor = ChosenBySlot;

    const FAMILY: &'static str = "paxos";

    fn hosts(&self) -> Vec<HostId> {
        (1..=ACCEPTORS).map(HostId).chain(self.leader_hosts()).collect()
    }

    fn build(&self, host: HostId, _incarnation: u32) -> Vec<(HostSlot, SmallestNode)> {
        let known = self.configurations();
        // Time stands still here: silence has to be there from the beginning.
        let election_timeout = Duration::ZERO;
        let parameters = Parameters { thrifty: true, window: 2, election_timeout, ..Parameters::default() };
        let role = |member| SmallestNode::Role(Box::new(member));
        if host.0 <= ACCEPTORS {
            let members = (1..=ACCEPTORS).map(|host| (NodeId::new(HostId(host), ACCEPTOR), 1)).collect();
            let mut acceptor = Acceptor::new(parameters, known, None);
            acceptor.restore(Position(0), AcceptorRecord::Blank { incarnation: 1 });
            acceptor.restore(Position(0), AcceptorRecord::Active { members });
            return vec![(ACCEPTOR, role(Member::Acceptor(acceptor)))];
        }
        vec![
            (BATCHER, SmallestNode::Proposer(Proposer)),
            (LEADER, role(Member::Leader(Leader::new(parameters.clone(), known.clone())))),
            (PROXY_LEADER, role(Member::ProxyLeader(ProxyLeader::new(parameters.clone(), known.clone())))),
            (REPLICA, role(Member::Replica(Replica::new(parameters, known, Nothing)))),
        ]
    }

    fn requests(&self) -> Vec<(NodeId, Vec<Call>)> {
        Vec::new()
    }

    fn carries(&self, _from: NodeId, to: NodeId, message: &Message) -> bool {
        match message {
            Message::Acceptor(AcceptorIn::PreVote(_)) => to.host().0 < ACCEPTORS,
            Message::Acceptor(AcceptorIn::Phase1a(_) | AcceptorIn::Phase2a(_))
            | Message::Leader(LeaderIn::PreVoteAck(_) | LeaderIn::Phase1b(_))
            | Message::ProxyLeader(ProxyLeaderIn::Phase2b(_)) => true,
            Message::Acceptor(_)
            | Message::Leader(_)
            | Message::ProxyLeader(_)
            | Message::Replica(_)
            | Message::Batcher(_)
            | Message::Unbatcher(_)
            | Message::Client(_) => false,
        }
    }

    fn loses_the_late(&self, to: NodeId) -> bool {
        to.host().0 >= LEADERS_FROM
    }

    fn awaits(&self, node: NodeId, timer: TimerIndex) -> bool {
        node.host_slot() == LEADER && timer == LeaderTimer::Election.index()
    }

    fn monitor(&self) -> ChosenBySlot {
        ChosenBySlot::default()
    }

    fn on_request(&self, _monitor: &mut ChosenBySlot, _node: NodeId, _id: RequestId, _request: &Call) {}

    fn on_response(&self, _monitor: &mut ChosenBySlot, _node: NodeId, _id: RequestId, _response: Outcome) {}

    fn observe(&self, monitor: &mut ChosenBySlot, cluster: &ExploredCluster<'_, SmallestNode>) {
        for (id, node) in cluster.nodes() {
            let SmallestNode::Role(role) = node else { continue };
            let Member::Replica(replica) = &**role else { continue };
            for (slot, value) in replica.retained() {
                let value = value.encoded();
                let known = monitor.0.entry(slot.0).or_insert_with(|| value.clone());
                kernel::invariant!(AGREE, *known == value, "{id} executed another value in slot {slot}");
            }
        }
    }

    fn check(&self, _monitor: &ChosenBySlot, _cluster: &ExploredCluster<'_, SmallestNode>) {}

    fn bounds(&self) -> ExploreBounds {
        self.bounds
    }
}
