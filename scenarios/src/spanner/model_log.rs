//! A log that does what a replicated one promises and nothing else: one order of what its leader in force proposes, executed by every
//! replica, and a change of the leader. For the explorer, which has visited every state of the real one apart.

use ::spanner::{ShardMachine, Spanner, SpannerMessage};
use kernel::{Bytes, Cx, NodeId, Position, Role, StateMachine as _};
use parts::{Ballot, Slot};
use paxos::multipaxos::client::{Notice, Row, Status};
use paxos::multipaxos::leader::{LeaderIn, Propose};
use paxos::multipaxos::messages::replica::{Chosen, ChosenValues, ReadBatch, ReplicaIn};
use paxos::multipaxos::messages::unbatcher::{BatchResults, GroupResults};
use paxos::multipaxos::{Message, Pulse, batcher};
use paxos::{Configurations, Value};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// What the nodes of the log hear.
#[derive(Debug)]
pub struct OfLog(Message);

impl TryFrom<SpannerMessage> for OfLog {
    type Error = SpannerMessage;

    fn try_from(message: SpannerMessage) -> Result<Self, SpannerMessage> {
        match message {
            SpannerMessage::Log(message) => Ok(Self(message)),
            other => Err(other),
        }
    }
}

/// Who decides the order.
#[derive(Clone, Copy, Debug)]
pub enum OrderedBy {
    /// This node alone: what it proposes is chosen.
    Itself,
    /// A node of its own.
    Node(NodeId),
}

/// The log on one host: hands on what the shard's role proposes, and executes what was chosen.
#[derive(Clone, Debug)]
pub struct ModelReplica {
    role: NodeId,
    ordered_by: OrderedBy,
    executed: u64,
    waiting: BTreeMap<u64, Bytes>,
    machine: ShardMachine,
    configurations: Configurations,
}

fn pulse(leader: NodeId, round: u64, configurations: Configurations) -> Message {
    let ballot = Ballot { round, leader };
    let (executed, truncate_below, alive) = (Slot(0), Slot(0), Vec::new());
    Message::from(batcher::Heartbeat {
        pulse: Pulse { ballot, configurations, executed, truncate_below, alive },
    })
}

impl ModelReplica {
    /// The log beside a shard's role.
    pub fn new(
        role: NodeId,
        ordered_by: OrderedBy,
        machine: ShardMachine,
        configurations: Configurations,
    ) -> Self {
        let (executed, waiting) = (0, BTreeMap::new());
        Self { role, ordered_by, executed, waiting, machine, configurations }
    }

    /// What it has executed.
    pub fn machine(&self) -> &ShardMachine {
        &self.machine
    }

    fn on_chosen(&mut self, from: u64, values: impl IntoIterator<Item = Value>, cx: &mut Cx<'_, Self>) {
        for (slot, value) in (from..).zip(values) {
            if let Value::Entry(entry) = value
                && slot >= self.executed
            {
                self.waiting.insert(slot, entry.bytes().clone());
            }
        }
        while let Some(entry) = self.waiting.remove(&self.executed) {
            self.executed += 1;
            self.machine.apply_entry(&entry);
        }
        let mut notices = Vec::new();
        self.machine.take_notices(&mut notices);
        for (to, bytes) in notices {
            cx.send(to, Message::from(Notice { bytes }));
        }
    }

    fn on_propose(&mut self, value: Value, cx: &mut Cx<'_, Self>) {
        match (self.ordered_by, value) {
            (OrderedBy::Node(order), value) => cx.send(order, Message::from(Propose { value })),
            (OrderedBy::Itself, value) => self.on_chosen(self.executed, [value], cx),
        }
    }

    fn on_read(&self, batch: &ReadBatch, cx: &mut Cx<'_, Self>) {
        let reply = |read: &paxos::multipaxos::messages::replica::ReadGroup| {
            let mut results = Row::default();
            for query in read.queries.iter() {
                let mut answer = Vec::new();
                self.machine.query(query.bytes, &mut answer);
                results.push(query.sequence, Status::Done, &answer);
            }
            GroupResults { client: read.client, session: read.session, results, opened: None }
        };
        let replies = batch.reads.iter().map(reply).collect();
        let results = BatchResults { batch: None, executed: Slot(self.executed), replies };
        cx.send(batch.unbatcher, Message::from(results));
    }
}

impl Role for ModelReplica {
    type Family = Spanner;
    type In = OfLog;
    type Timer = Infallible;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        if matches!(self.ordered_by, OrderedBy::Itself) {
            cx.send(self.role, pulse(cx.node(), 1, self.configurations.clone()));
        }
    }

    fn on_message(&mut self, _from: NodeId, message: OfLog, cx: &mut Cx<'_, Self>) {
        match message.0 {
            Message::Leader(LeaderIn::Propose(message)) => self.on_propose(message.value, cx),
            Message::Replica(ReplicaIn::ReadBatch(batch)) => self.on_read(&batch, cx),
            Message::Replica(ReplicaIn::Chosen(message)) => self.on_chosen(message.slot.0, message.value, cx),
            Message::Replica(ReplicaIn::ChosenValues(message)) => {
                self.on_chosen(message.from.0, message.values, cx);
            }
            _ => cx.reject("message for another role of the log"),
        }
    }
}

kernel::timers! {
    /// The timers of who decides the order.
    pub enum OrderTimer {
        /// The next leader is elected.
        Elect,
    }
}

/// Decides the order of a log with two replicas: first the one leads, then the other. Only the replica beside the leader is sent what was
/// chosen; the next leader's is sent all of it when that is elected, and a deposed leader's nothing more, as if it were lost.
#[derive(Clone, Debug)]
pub struct ModelOrder {
    replicas: [NodeId; 2],
    roles: [NodeId; 2],
    leads: usize,
    chosen: Vec<Value>,
    configurations: Configurations,
}

impl ModelOrder {
    /// The order of a log on these replicas, beside these roles of the shard.
    pub fn new(replicas: [NodeId; 2], roles: [NodeId; 2], configurations: Configurations) -> Self {
        Self { replicas, roles, leads: 0, chosen: Vec::new(), configurations }
    }

    fn announce(&self, cx: &mut Cx<'_, Self>) {
        for role in self.roles {
            cx.send(
                role,
                pulse(self.replicas[self.leads], self.leads as u64 + 1, self.configurations.clone()),
            );
        }
    }
}

impl Role for ModelOrder {
    type Family = Spanner;
    type In = OfLog;
    type Timer = OrderTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.announce(cx);
        cx.set_timer(OrderTimer::Elect, std::time::Duration::from_secs(1));
    }

    fn on_timer(&mut self, timer: OrderTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            OrderTimer::Elect => {
                self.leads = 1;
                cx.mark("order.elected_the_next_leader");
                let (values, executed) = (self.chosen.clone(), Slot(0));
                let all = ChosenValues { from: Slot(0), values, executed };
                cx.send(self.replicas[self.leads], Message::from(all));
                self.announce(cx);
            }
        }
    }

    fn on_message(&mut self, from: NodeId, message: OfLog, cx: &mut Cx<'_, Self>) {
        let Message::Leader(LeaderIn::Propose(Propose { value })) = message.0 else {
            return cx.reject("message for another role of the log");
        };
        let leader = self.replicas[self.leads];
        if from != leader {
            return cx.mark("order.turned_away_a_deposed_leader");
        }
        let slot = Slot(self.chosen.len() as u64);
        self.chosen.push(value.clone());
        let ballot = Ballot { round: self.leads as u64 + 1, leader };
        cx.send(leader, Message::from(Chosen { ballot, slot, value: Some(value) }));
    }
}
