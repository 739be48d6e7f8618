//! The family of Mason's roles, the replicated logs of its proxies included.

use crate::client::ClientIn;
use crate::client::ConnectionIn;
use crate::proxy::machine::ProxyMachine;
use crate::proxy::{Proxy, ProxyIn};
use crate::sequencer::{Sequencer, SequencerIn};
use crate::service::{Shard, Stub};
use crate::shard::{ShardIn, ShardServer};
use kernel::{
    Bytes, Cx, Decode, DecodeError, Effects, Embedded, Encode, Family, Node, NodeId, Position, Reader,
    RequestId, Role, Situation, TimerIndex, TimerKey,
};
use paxos::multipaxos::client::ClientIn as LogAnswer;

/// The family.
#[derive(Debug)]
pub struct Mason;

impl Family for Mason {
    type Message = Message;
    type Request = Bytes;
    type Response = Response;
}

/// A gateway's answer to a local call, in the service's encoding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response(pub Bytes);

impl From<paxos::Outcome> for Response {
    /// For completeness of the types: roles of a proxy's log are asked nothing by local applications.
    fn from(outcome: paxos::Outcome) -> Self {
        match outcome {
            paxos::Outcome::Done(bytes) => Self(bytes),
            paxos::Outcome::Refused(_) => Self(Bytes::new()),
        }
    }
}

/// Everything that travels between Mason's nodes, by who receives it.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// To a sequencer.
    Sequencer(SequencerIn),
    /// To a proxy.
    Proxy(ProxyIn),
    /// To a shard's server.
    Shard(ShardIn),
    /// To a gateway.
    Client(ClientIn),
    /// To a user's connection; never leaves its host.
    Connection(ConnectionIn),
    /// To a role of a proxy's replicated log, or from one.
    Log(paxos::Message),
}

impl Encode for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sequencer(message) => encode_as(1, message, out),
            Self::Proxy(message) => encode_as(2, message, out),
            Self::Shard(message) => encode_as(3, message, out),
            Self::Client(message) => encode_as(4, message, out),
            Self::Connection(message) => encode_as(5, message, out),
            Self::Log(message) => encode_as(6, message, out),
        }
    }
}

fn encode_as(tag: u8, message: &impl Encode, out: &mut Vec<u8>) {
    out.push(tag);
    message.encode(out);
}

impl Decode for Message {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Decode::decode(input).map(Self::Sequencer),
            2 => Decode::decode(input).map(Self::Proxy),
            3 => Decode::decode(input).map(Self::Shard),
            4 => Decode::decode(input).map(Self::Client),
            5 => Decode::decode(input).map(Self::Connection),
            6 => Decode::decode(input).map(Self::Log),
            tag => Err(DecodeError::UnknownTag("mason message", tag)),
        }
    }
}

impl From<paxos::Message> for Message {
    fn from(message: paxos::Message) -> Self {
        Self::Log(message)
    }
}

/// Any role of a service over Mason: `T` is the service's stub, `S` its shard, `G` its gateway.
pub enum Member<T: Stub, S: Shard, G> {
    /// Allocates numbers.
    Sequencer(Box<Sequencer>),
    /// Assigns them.
    Proxy(Box<Proxy>),
    /// Executes a space.
    Shard(Box<ShardServer<S>>),
    /// Serves users.
    Gateway(Box<G>),
    /// Plays a part in a proxy's log.
    Log(Box<Embedded<paxos::Member<ProxyMachine<T>>>>),
}

impl<T: Stub, S: Shard, G> Member<T, S, G> {
    /// If it is a proxy: the version of the members that its group needs none beside ([`Proxy::settled_on`]).
    pub fn settled_on(&self) -> Option<u64> {
        match self {
            Self::Proxy(proxy) => Some(proxy.settled_on()),
            Self::Sequencer(_) | Self::Shard(_) | Self::Gateway(_) | Self::Log(_) => None,
        }
    }
}

/// What a role of a proxy's log tells a node of Mason.
fn notice(message: &paxos::Message) -> Option<&Bytes> {
    match message {
        paxos::Message::Client(LogAnswer::Notice(notice)) => Some(&notice.bytes),
        _ => None,
    }
}

macro_rules! each_role {
    ($self:ident, $situation:ident, $effects:ident, |$role:ident, $cx:ident| $call:expr, |$node:ident, $inner:ident| $log:expr) => {
        match $self {
            Self::Sequencer($role) => {
                let ($role, $cx) = (&mut **$role, &mut Cx::<Sequencer>::new($situation, $effects));
                $call
            }
            Self::Proxy($role) => {
                let ($role, $cx) = (&mut **$role, &mut Cx::<Proxy>::new($situation, $effects));
                $call
            }
            Self::Shard($role) => {
                let ($role, $cx) = (&mut **$role, &mut Cx::<ShardServer<S>>::new($situation, $effects));
                $call
            }
            Self::Gateway($role) => {
                let ($role, $cx) = (&mut **$role, &mut Cx::<G>::new($situation, $effects));
                $call
            }
            Self::Log(embedded) => embedded.call($effects, |$node, $inner| $log),
        }
    };
}

fn timer_of<R: Role>(_role: &R, timer: TimerIndex) -> R::Timer {
    R::Timer::from_index(timer).expect("a driver returns only timers that this role has set")
}

impl<T, S, G> Node for Member<T, S, G>
where
    T: Stub,
    S: Shard,
    G: Role<Family = Mason, In = ClientIn>,
{
    type Family = Mason;

    fn restore(&mut self, position: Position, record: Bytes) -> Result<(), DecodeError> {
        match self {
            Self::Sequencer(role) => role.restore(position, Decode::decoded(&record)?),
            Self::Proxy(role) => role.restore(position, Decode::decoded(&record)?),
            Self::Shard(role) => role.restore(position, Decode::decoded(&record)?),
            Self::Gateway(role) => role.restore(position, Decode::decoded(&record)?),
            Self::Log(embedded) => return embedded.node_mut().restore(position, record),
        }
        Ok(())
    }

    fn on_start(&mut self, situation: Situation<'_>, effects: &mut Effects<Mason>) {
        each_role!(self, situation, effects, |role, cx| role.on_start(cx), |node, inner| node
            .on_start(situation, inner));
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        situation: Situation<'_>,
        effects: &mut Effects<Mason>,
    ) {
        match (self, message) {
            (Self::Sequencer(role), Message::Sequencer(message)) => {
                role.on_message(from, message, &mut Cx::new(situation, effects));
            }
            (Self::Sequencer(role), Message::Log(message)) => {
                let mut cx = Cx::<Sequencer>::new(situation, effects);
                match notice(&message).map(SequencerIn::decoded) {
                    Some(Ok(message)) => role.on_message(from, message, &mut cx),
                    Some(Err(_)) | None => cx.reject("message of the log that a sequencer does not know"),
                }
            }
            (Self::Proxy(role), Message::Proxy(message)) => {
                role.on_message(from, message, &mut Cx::new(situation, effects));
            }
            (Self::Proxy(role), Message::Log(message)) => {
                role.on_log(from, message, &mut Cx::new(situation, effects))
            }
            (Self::Shard(role), Message::Shard(message)) => {
                role.on_message(from, message, &mut Cx::new(situation, effects));
            }
            (Self::Shard(role), Message::Log(message)) => {
                let mut cx = Cx::<ShardServer<S>>::new(situation, effects);
                match notice(&message).map(ShardIn::decoded) {
                    Some(Ok(message)) => role.on_message(from, message, &mut cx),
                    Some(Err(_)) | None => cx.reject("message of the log that a shard does not know"),
                }
            }
            (Self::Gateway(role), Message::Client(message)) => {
                role.on_message(from, message, &mut Cx::new(situation, effects));
            }
            (Self::Gateway(role), Message::Log(message)) => {
                let mut cx = Cx::<G>::new(situation, effects);
                match notice(&message).map(ClientIn::decoded) {
                    Some(Ok(message)) => role.on_message(from, message, &mut cx),
                    Some(Err(_)) | None => cx.reject("message of the log that a gateway does not know"),
                }
            }
            (Self::Log(embedded), Message::Log(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            // Pairs of a role and another role's message.
            (Self::Sequencer(_) | Self::Proxy(_) | Self::Shard(_) | Self::Gateway(_) | Self::Log(_), _) => {
                Cx::<Proxy>::new(situation, effects).reject("message for another role");
            }
        }
    }

    fn on_timer(&mut self, timer: TimerIndex, situation: Situation<'_>, effects: &mut Effects<Mason>) {
        each_role!(
            self,
            situation,
            effects,
            |role, cx| {
                let timer = timer_of(role, timer);
                role.on_timer(timer, cx);
            },
            |node, inner| node.on_timer(timer, situation, inner)
        );
    }

    fn on_request(
        &mut self,
        id: RequestId,
        request: Bytes,
        situation: Situation<'_>,
        effects: &mut Effects<Mason>,
    ) {
        match self {
            Self::Gateway(role) => role.on_request(id, request, &mut Cx::new(situation, effects)),
            Self::Proxy(role) => role.on_request(id, request, &mut Cx::new(situation, effects)),
            Self::Sequencer(_) | Self::Shard(_) | Self::Log(_) => {
                Cx::<Proxy>::new(situation, effects).reject("request to a role that serves none");
            }
        }
    }

    fn on_burst_end(&mut self, situation: Situation<'_>, effects: &mut Effects<Mason>) {
        each_role!(self, situation, effects, |role, cx| role.on_burst_end(cx), |node, inner| node
            .on_burst_end(situation, inner));
    }

    fn role_name(&self) -> &'static str {
        match self {
            Self::Sequencer(_) => "sequencer",
            Self::Proxy(_) => "proxy",
            Self::Shard(_) => "shard",
            Self::Gateway(_) => "gateway",
            Self::Log(embedded) => embedded.node().role_name(),
        }
    }
}
