//! What a host runs: the roles of all services, side by side on one reactor.
//!
//! Services over one engine share its messages: places tell them apart, since no node plays a part in two of them.

use coordination::{Gateway, Sessions, Znodes};
use kernel::{
    BlobNotice, Bytes, Decode, DecodeError, Effects, Embedded, Encode, Family, NodeId, Position, Reader,
    RequestId, Situation, TimerIndex,
};
use kv::Store;

/// The family of all services.
#[derive(Debug)]
pub struct Ordinate;

impl Family for Ordinate {
    type Message = Message;
    type Request = Request;
    type Response = Response;
}

/// Everything that travels between hosts, and between the roles of one.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// Of the key-value store.
    Kv(paxos::Message),
    /// Of a service over Mason.
    Mason(mason::Message),
    /// Of the log over CORFU'.
    Corfu(corfu::Message),
}

/// What a local application asks.
#[derive(Clone, Debug)]
pub enum Request {
    /// Of the key-value store.
    Kv(paxos::Call),
    /// Of the sequence: an encoded [`sequence::Ask`].
    Sequence(Bytes),
    /// Of a proxy of any service over Mason: encoded [`mason::Members`], for it to follow.
    Follow(Bytes),
    /// Of the coordination service's gateway: what it is to say of itself, as an operation.
    Advertise(Bytes),
    /// Of the logs: an encoded [`shared_log::Request`].
    Log(Bytes),
}

/// What it is answered.
#[derive(Clone, Debug)]
pub enum Response {
    /// By the key-value store.
    Kv(paxos::Outcome),
    /// By the sequence: see [`sequence::Gateway`].
    Mason(mason::Response),
}

impl Encode for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Kv(message) => {
                out.push(1);
                message.encode(out);
            }
            Self::Mason(message) => {
                out.push(2);
                message.encode(out);
            }
            Self::Corfu(message) => {
                out.push(3);
                message.encode(out);
            }
        }
    }
}

impl Decode for Message {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Decode::decode(input).map(Self::Kv),
            2 => Decode::decode(input).map(Self::Mason),
            3 => Decode::decode(input).map(Self::Corfu),
            tag => Err(DecodeError::UnknownTag("message", tag)),
        }
    }
}

impl From<paxos::Message> for Message {
    fn from(message: paxos::Message) -> Self {
        Self::Kv(message)
    }
}

impl From<mason::Message> for Message {
    fn from(message: mason::Message) -> Self {
        Self::Mason(message)
    }
}

impl From<corfu::Message> for Message {
    fn from(message: corfu::Message) -> Self {
        Self::Corfu(message)
    }
}

impl From<shared_log::corfu::Message> for Message {
    fn from(message: shared_log::corfu::Message) -> Self {
        match message {
            shared_log::corfu::Message::Corfu(message) => Self::Corfu(message),
            shared_log::corfu::Message::User(message) => Self::Mason(message),
        }
    }
}

impl From<corfu::Response> for Response {
    /// For completeness of the types: the engine's roles are asked nothing by local applications, their gateway is.
    fn from(_: corfu::Response) -> Self {
        Self::Mason(mason::Response(Bytes::new()))
    }
}

impl From<paxos::Outcome> for Response {
    fn from(outcome: paxos::Outcome) -> Self {
        Self::Kv(outcome)
    }
}

impl From<mason::Response> for Response {
    fn from(response: mason::Response) -> Self {
        Self::Mason(response)
    }
}

/// A role of the key-value store.
pub type KvMember = paxos::Member<Store>;
/// A role of the coordination service.
pub type CoordinationMember = mason::Member<Sessions, Znodes, Gateway>;
/// A role of the sequence.
pub type SequenceMember = mason::Member<sequence::Spaces, sequence::Labels, sequence::Gateway>;

/// A role of the shared log.
pub type LogMember = mason::Member<shared_log::Names, shared_log::Logs, shared_log::Gateway>;

/// Any role.
pub enum Node {
    /// Of the key-value store.
    Kv(Box<Embedded<KvMember>>),
    /// Of the coordination service.
    Coordination(Box<Embedded<CoordinationMember>>),
    /// Of the sequence.
    Sequence(Box<Embedded<SequenceMember>>),
    /// Of the shared log.
    Log(Box<Embedded<LogMember>>),
    /// Of CORFU', under the shared log.
    Corfu(Box<Embedded<corfu::Member>>),
    /// The shared log's gateway over CORFU'.
    CorfuGateway(Box<Embedded<shared_log::corfu::GatewayNode>>),
}

impl Node {
    /// The role of the key-value store that it is, if it is one.
    pub fn as_kv(&self) -> Option<&KvMember> {
        match self {
            Self::Kv(embedded) => Some(embedded.node()),
            Self::Coordination(_)
            | Self::Sequence(_)
            | Self::Log(_)
            | Self::Corfu(_)
            | Self::CorfuGateway(_) => None,
        }
    }

    /// The role of the coordination service that it is, if it is one.
    pub fn as_coordination(&self) -> Option<&CoordinationMember> {
        match self {
            Self::Coordination(embedded) => Some(embedded.node()),
            Self::Kv(_) | Self::Sequence(_) | Self::Log(_) | Self::Corfu(_) | Self::CorfuGateway(_) => None,
        }
    }

    /// The role of the sequence that it is, if it is one.
    pub fn as_sequence(&self) -> Option<&SequenceMember> {
        match self {
            Self::Sequence(embedded) => Some(embedded.node()),
            Self::Kv(_) | Self::Coordination(_) | Self::Log(_) | Self::Corfu(_) | Self::CorfuGateway(_) => {
                None
            }
        }
    }

    /// If it is a proxy: the version of the members that its group needs none beside.
    pub fn settled_on(&self) -> Option<u64> {
        match self {
            // CORFU' keeps the hosts that it began with.
            Self::Kv(_) | Self::Corfu(_) | Self::CorfuGateway(_) => None,
            Self::Coordination(embedded) => embedded.node().settled_on(),
            Self::Sequence(embedded) => embedded.node().settled_on(),
            Self::Log(embedded) => embedded.node().settled_on(),
        }
    }
}

impl From<KvMember> for Node {
    fn from(member: KvMember) -> Self {
        Self::Kv(Box::new(Embedded::new(member)))
    }
}

impl From<SequenceMember> for Node {
    fn from(member: SequenceMember) -> Self {
        Self::Sequence(Box::new(Embedded::new(member)))
    }
}

impl From<LogMember> for Node {
    fn from(member: LogMember) -> Self {
        Self::Log(Box::new(Embedded::new(member)))
    }
}

impl From<corfu::Member> for Node {
    fn from(member: corfu::Member) -> Self {
        Self::Corfu(Box::new(Embedded::new(member)))
    }
}

impl From<shared_log::corfu::GatewayNode> for Node {
    fn from(node: shared_log::corfu::GatewayNode) -> Self {
        Self::CorfuGateway(Box::new(Embedded::new(node)))
    }
}

impl From<CoordinationMember> for Node {
    fn from(member: CoordinationMember) -> Self {
        Self::Coordination(Box::new(Embedded::new(member)))
    }
}

macro_rules! either {
    ($self:ident, $effects:ident, |$node:ident, $inner:ident| $call:expr) => {
        match $self {
            Self::Kv(embedded) => embedded.call($effects, |$node, $inner| $call),
            Self::Coordination(embedded) => embedded.call($effects, |$node, $inner| $call),
            Self::Sequence(embedded) => embedded.call($effects, |$node, $inner| $call),
            Self::Log(embedded) => embedded.call($effects, |$node, $inner| $call),
            Self::Corfu(embedded) => embedded.call($effects, |$node, $inner| $call),
            Self::CorfuGateway(embedded) => embedded.call($effects, |$node, $inner| $call),
        }
    };
}

impl kernel::Node for Node {
    type Family = Ordinate;

    fn restore(&mut self, position: Position, record: Bytes) -> Result<(), DecodeError> {
        match self {
            Self::Kv(embedded) => embedded.node_mut().restore(position, record),
            Self::Coordination(embedded) => embedded.node_mut().restore(position, record),
            Self::Sequence(embedded) => embedded.node_mut().restore(position, record),
            Self::Log(embedded) => embedded.node_mut().restore(position, record),
            Self::Corfu(embedded) => embedded.node_mut().restore(position, record),
            Self::CorfuGateway(embedded) => embedded.node_mut().restore(position, record),
        }
    }

    fn on_start(&mut self, situation: Situation<'_>, effects: &mut Effects<Ordinate>) {
        either!(self, effects, |node, inner| node.on_start(situation, inner));
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: Message,
        situation: Situation<'_>,
        effects: &mut Effects<Ordinate>,
    ) {
        match (self, message) {
            (Self::Kv(embedded), Message::Kv(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            (Self::Coordination(embedded), Message::Mason(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            (Self::Sequence(embedded), Message::Mason(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            (Self::Log(embedded), Message::Mason(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            (Self::Corfu(embedded), Message::Corfu(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            (Self::CorfuGateway(embedded), Message::Corfu(message)) => {
                embedded.call(effects, |node, inner| node.on_message(from, message.into(), situation, inner));
            }
            (Self::CorfuGateway(embedded), Message::Mason(message)) => {
                let message = shared_log::corfu::Message::User(message);
                embedded.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            (Self::Kv(_), Message::Mason(_) | Message::Corfu(_))
            | (
                Self::Coordination(_) | Self::Sequence(_) | Self::Log(_),
                Message::Kv(_) | Message::Corfu(_),
            )
            | (Self::Corfu(_), Message::Kv(_) | Message::Mason(_))
            | (Self::CorfuGateway(_), Message::Kv(_)) => effects.reject("message of another service"),
        }
    }

    fn on_timer(&mut self, timer: TimerIndex, situation: Situation<'_>, effects: &mut Effects<Ordinate>) {
        either!(self, effects, |node, inner| node.on_timer(timer, situation, inner));
    }

    fn on_request(
        &mut self,
        id: RequestId,
        request: Request,
        situation: Situation<'_>,
        effects: &mut Effects<Ordinate>,
    ) {
        match (self, request) {
            (Self::Kv(embedded), Request::Kv(call)) => {
                embedded.call(effects, |node, inner| node.on_request(id, call, situation, inner));
            }
            (Self::Sequence(embedded), Request::Sequence(ask)) => {
                embedded.call(effects, |node, inner| node.on_request(id, ask, situation, inner));
            }
            (Self::Coordination(embedded), Request::Follow(request) | Request::Advertise(request)) => {
                embedded.call(effects, |node, inner| node.on_request(id, request, situation, inner));
            }
            (Self::Sequence(embedded), Request::Follow(members)) => {
                embedded.call(effects, |node, inner| node.on_request(id, members, situation, inner));
            }
            (Self::Log(embedded), Request::Follow(members)) => {
                embedded.call(effects, |node, inner| node.on_request(id, members, situation, inner));
            }
            (Self::Log(embedded), Request::Log(request)) => {
                embedded.call(effects, |node, inner| node.on_request(id, request, situation, inner));
            }
            (Self::CorfuGateway(embedded), Request::Log(request)) => {
                embedded.call(effects, |node, inner| node.on_request(id, request, situation, inner));
            }
            (
                Self::Kv(_)
                | Self::Coordination(_)
                | Self::Sequence(_)
                | Self::Log(_)
                | Self::Corfu(_)
                | Self::CorfuGateway(_),
                _,
            ) => effects.reject("request of another service"),
        }
    }

    fn on_blob(&mut self, notice: BlobNotice, situation: Situation<'_>, effects: &mut Effects<Ordinate>) {
        either!(self, effects, |node, inner| node.on_blob(notice, situation, inner));
    }

    fn on_burst_end(&mut self, situation: Situation<'_>, effects: &mut Effects<Ordinate>) {
        either!(self, effects, |node, inner| node.on_burst_end(situation, inner));
    }

    fn role_name(&self) -> &'static str {
        match self {
            Self::Kv(embedded) => embedded.node().role_name(),
            Self::Coordination(embedded) => embedded.node().role_name(),
            Self::Sequence(embedded) => embedded.node().role_name(),
            Self::Log(embedded) => embedded.node().role_name(),
            Self::Corfu(embedded) => embedded.node().role_name(),
            Self::CorfuGateway(embedded) => embedded.node().role_name(),
        }
    }
}
