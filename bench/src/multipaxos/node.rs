//! What runs in a deployment: any role of MultiPaxos, or a store that nobody replicates.

use kernel::{Cx, Decode, NodeId, Position, Role, StateMachine};
use kv::Store;
use parts::{Ballot, Slot};
use paxos::multipaxos::client::{Row, Status};
use paxos::multipaxos::leader::LeaderIn;
use paxos::multipaxos::{Pulse, batcher, unbatcher};
use paxos::{Batch, Configurations, GroupKind, Member, Paxos, Value};
use std::convert::Infallible;
use std::time::Duration;

kernel::timers! {
    /// The store's timers.
    pub enum UnreplicatedTimer {
        /// Notify the batchers that this is where batches go.
        Heartbeat,
    }
}

/// A store on one machine, behind the batchers and unbatchers of a log that there is none of (the paper's section 8.1): executes
/// and answers at once, and is gone when its machine is.
pub struct Unreplicated {
    configurations: Configurations,
    store: Store,
    executed: Slot,
    scratch: Vec<u8>,
}

const HEARTBEAT_EVERY: Duration = Duration::from_millis(30);

impl Unreplicated {
    /// An empty store; `configurations` says who the batchers are.
    pub fn new(configurations: Configurations) -> Self {
        Self { configurations, store: Store::new(1), executed: Slot(0), scratch: Vec::new() }
    }

    fn notify_batchers(&self, cx: &mut Cx<'_, Self>) {
        let pulse = Pulse {
            ballot: Ballot { round: 1, leader: cx.node() },
            configurations: self.configurations.clone(),
            executed: self.executed,
            truncate_below: Slot(0),
            alive: Vec::new(),
        };
        let batchers = self.configurations.latest().batchers.clone();
        cx.multicast(batchers, batcher::Heartbeat { pulse });
        cx.set_timer(UnreplicatedTimer::Heartbeat, HEARTBEAT_EVERY);
    }

    fn on_propose(&mut self, value: &Value, cx: &mut Cx<'_, Self>) {
        let Value::Batch(payload) = value else { return cx.reject("proposal that is no batch") };
        let Ok(batch) = Batch::decoded(payload.bytes()) else {
            return cx.reject("batch that does not decode");
        };
        let slot = self.executed;
        self.executed = slot.next();
        let mut replies = Vec::with_capacity(batch.groups.len());
        for group in &batch.groups {
            let mut results = Row::default();
            for command in group.commands.iter() {
                self.scratch.clear();
                self.store.apply(command.bytes, &mut self.scratch);
                results.push(command.sequence, Status::Done, &self.scratch);
            }
            let opened = (group.kind == GroupKind::Open).then_some(slot);
            let (client, session) = (group.client, group.session);
            replies.push(unbatcher::GroupResults { client, session, results, opened });
        }
        let results = unbatcher::BatchResults { batch: Some(batch.id), executed: self.executed, replies };
        cx.send(batch.unbatcher, results);
    }
}

impl Role for Unreplicated {
    type Family = Paxos;
    type In = LeaderIn;
    type Timer = UnreplicatedTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.notify_batchers(cx);
    }

    fn on_message(&mut self, _from: NodeId, message: LeaderIn, cx: &mut Cx<'_, Self>) {
        match message {
            LeaderIn::Propose(message) => self.on_propose(&message.value, cx),
            LeaderIn::PreVoteAck(_)
            | LeaderIn::Phase1b(_)
            | LeaderIn::Nack(_)
            | LeaderIn::Heartbeat(_)
            | LeaderIn::HeartbeatAck(_)
            | LeaderIn::Executed(_)
            | LeaderIn::Wanted(_)
            | LeaderIn::ChangeConfiguration(_)
            | LeaderIn::Sealed(_)
            | LeaderIn::Enlist(_)
            | LeaderIn::Known(_)
            | LeaderIn::HandOver(_)
            | LeaderIn::Stand(_)
            | LeaderIn::Hears(_)
            | LeaderIn::ProxyAlive(_)
            | LeaderIn::Stuck(_) => cx.reject("message of a log, and there is none"),
        }
    }

    fn on_timer(&mut self, timer: UnreplicatedTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            UnreplicatedTimer::Heartbeat => self.notify_batchers(cx),
        }
    }
}

kernel::nodes! {
    /// Any node of a deployment.
    pub enum Seat of Paxos {
        /// A role of MultiPaxos.
        node Member(Box<Member<Store>>),
        /// The store that is not replicated.
        role Unreplicated(Box<Unreplicated>) "unreplicated",
    }
}

impl AsRef<Seat> for Seat {
    fn as_ref(&self) -> &Seat {
        self
    }
}

impl From<Member<Store>> for Seat {
    fn from(member: Member<Store>) -> Self {
        Self::Member(Box::new(member))
    }
}
