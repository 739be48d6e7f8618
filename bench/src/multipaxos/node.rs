//! What runs in a deployment: any role of MultiPaxos, or a store that nobody replicates.

use kernel::{
    Bytes, Cx, Decode, DecodeError, Effects, Node, NodeId, Position, RequestId, Role, Situation,
    StateMachine, TimerIndex,
};
use kv::Store;
use parts::{Ballot, Slot};
use paxos::multipaxos::client::{Row, Status};
use paxos::multipaxos::leader::LeaderIn;
use paxos::multipaxos::{Pulse, batcher, unbatcher};
use paxos::{Batch, Call, Configurations, GroupKind, Member, Message, Paxos, Value};
use std::convert::Infallible;
use std::time::Duration;

kernel::timers! {
    /// The store's timers.
    pub enum UnreplicatedTimer {
        /// Tell the batchers that this is where batches go.
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

    fn tell_batchers(&self, cx: &mut Cx<'_, Self>) {
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
            replies.push(unbatcher::Reply { client, session, results, opened });
        }
        let results = unbatcher::Results { batch: Some(batch.id), executed: self.executed, replies };
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
        self.tell_batchers(cx);
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
            | LeaderIn::Reconfigure(_)
            | LeaderIn::Sealed(_)
            | LeaderIn::Enlist(_)
            | LeaderIn::Known(_)
            | LeaderIn::ProxyAlive(_)
            | LeaderIn::Stuck(_) => cx.reject("message of a log, and there is none"),
        }
    }

    fn on_timer(&mut self, timer: UnreplicatedTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            UnreplicatedTimer::Heartbeat => self.tell_batchers(cx),
        }
    }
}

/// Any node of a deployment.
pub enum Seat {
    /// A role of MultiPaxos.
    Member(Box<Member<Store>>),
    /// The store that is not replicated.
    Unreplicated(Box<Unreplicated>),
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

impl Node for Seat {
    type Family = Paxos;

    fn restore(&mut self, position: Position, record: Bytes) -> Result<(), DecodeError> {
        match self {
            Self::Member(member) => member.restore(position, record),
            Self::Unreplicated(_) => Ok(()),
        }
    }

    fn on_start(&mut self, situation: Situation<'_>, effects: &mut Effects<Paxos>) {
        match self {
            Self::Member(member) => member.on_start(situation, effects),
            Self::Unreplicated(role) => role.on_start(&mut Cx::new(situation, effects)),
        }
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        situation: Situation<'_>,
        effects: &mut Effects<Paxos>,
    ) {
        match (self, message) {
            (Self::Member(member), message) => member.on_message(from, message, situation, effects),
            (Self::Unreplicated(role), Message::Leader(message)) => {
                role.on_message(from, message, &mut Cx::new(situation, effects));
            }
            (Self::Unreplicated(_), _) => effects.reject("message for another role"),
        }
    }

    fn on_timer(&mut self, timer: TimerIndex, situation: Situation<'_>, effects: &mut Effects<Paxos>) {
        match self {
            Self::Member(member) => member.on_timer(timer, situation, effects),
            Self::Unreplicated(role) => {
                role.on_timer(UnreplicatedTimer::Heartbeat, &mut Cx::new(situation, effects));
            }
        }
    }

    fn on_request(
        &mut self,
        id: RequestId,
        request: Call,
        situation: Situation<'_>,
        effects: &mut Effects<Paxos>,
    ) {
        match self {
            Self::Member(member) => member.on_request(id, request, situation, effects),
            Self::Unreplicated(_) => effects.reject("request to a role that serves none"),
        }
    }

    fn on_burst_end(&mut self, situation: Situation<'_>, effects: &mut Effects<Paxos>) {
        if let Self::Member(member) = self {
            member.on_burst_end(situation, effects);
        }
    }

    fn role_name(&self) -> &'static str {
        match self {
            Self::Member(member) => member.role_name(),
            Self::Unreplicated(_) => "unreplicated",
        }
    }
}
