//! The family of Mason's roles, the replicated logs of its proxies included.

use crate::messages::client::GatewayIn;
use crate::messages::proxy::{Barrier, ProxyIn, SubmitOperations};
use crate::messages::sequencer::SequencerIn;
use crate::messages::shard::ShardIn;
use crate::order::Operation;
use crate::proxy::machine::ProxyMachine;
use crate::proxy::{Heard, Proxy};
use crate::sequencer::Sequencer;
use crate::service::{Shard, Stub};
use crate::shard::ShardServer;
use crate::topology::Layout;
use kernel::client::{Close, ConnectionIn, Output, Pause, Response};
use kernel::{Bytes, Decode as _, Embedded, Embeds, Family, NodeId, Role};
use parts::{Ordering, Tagged};
use paxos::multipaxos::client::ClientIn as LogAnswer;

/// The family.
#[derive(Debug)]
pub struct Mason;

impl Family for Mason {
    type Message = MasonMessage;
    type Request = Bytes;
    type Response = Response;
}

impl Ordering for Mason {
    type Operation = Operation;
    type Layout = Layout;

    fn operation(origin: NodeId, Tagged { incarnation, tag, .. }: Tagged, body: Bytes) -> Operation {
        Operation { origin, incarnation, tag, body }
    }

    fn submit(operations: Vec<Operation>) -> MasonMessage {
        SubmitOperations { operations }.into()
    }

    fn barrier(id: u64) -> MasonMessage {
        Barrier { id }.into()
    }
}

kernel::sum! {
    /// Everything that travels between Mason's nodes, by who receives it.
    pub enum MasonMessage {
        /// To a sequencer.
        1 => Sequencer(SequencerIn),
        /// To a proxy.
        2 => Proxy(ProxyIn),
        /// To a shard's server.
        3 => Shard(ShardIn),
        /// To a gateway.
        4 => Client(GatewayIn),
        /// To a user's connection; never leaves its host.
        5 => Connection(ConnectionIn),
        /// To a role of a proxy's replicated log, or from one.
        6 => Log(paxos::Message),
    }
}

impl From<paxos::Message> for MasonMessage {
    fn from(message: paxos::Message) -> Self {
        Self::Log(message)
    }
}

/// What a gateway sends a user's connection.
macro_rules! to_connection {
    ($($Sent:ident),+) => { $(
        impl From<$Sent> for MasonMessage {
            fn from(message: $Sent) -> Self {
                Self::Connection(message.into())
            }
        }
    )+ };
}

to_connection!(Output, Close, Pause);

/// What serves a service's users: a role that hears of Mason what [`ClientIn`] says.
pub trait GatewayRole: Role<Family = Mason, In = GatewayIn> {}

impl<R: Role<Family = Mason, In = GatewayIn>> GatewayRole for R {}

kernel::nodes! {
    /// Any role of a service over Mason: `T` is the service's stub, `S` its shard, `G` its gateway.
    pub enum MasonMember [T: Stub, S: Shard, G: GatewayRole] [T, S, G] of Mason {
        /// Allocates numbers.
        role Sequencer(Box<Sequencer>) "sequencer",
        /// Assigns them.
        role Proxy(Box<Proxy>) "proxy",
        /// Executes a space.
        role Shard(Box<ShardServer<S>>) "shard",
        /// Serves users.
        role Gateway(Box<G>) "gateway",
        /// Plays a part in a proxy's log.
        node Log(Box<Embedded<paxos::Member<ProxyMachine<T>>, Mason>>),
    }
}

impl Embeds<paxos::Paxos> for Mason {
    fn inner_message(message: MasonMessage) -> Option<paxos::Message> {
        match message {
            MasonMessage::Log(message) => Some(message),
            MasonMessage::Sequencer(_)
            | MasonMessage::Proxy(_)
            | MasonMessage::Shard(_)
            | MasonMessage::Client(_)
            | MasonMessage::Connection(_) => None,
        }
    }

    /// The roles of a proxy's log are asked nothing by local applications.
    fn inner_request(_request: Bytes) -> Option<paxos::Call> {
        None
    }

    fn outer_message(message: paxos::Message) -> MasonMessage {
        MasonMessage::Log(message)
    }

    /// They are asked nothing, so this is for completeness of the types.
    fn outer_response(outcome: paxos::Outcome) -> Response {
        match outcome {
            paxos::Outcome::Done(bytes) => Response(bytes),
            paxos::Outcome::Refused(_) => Response(Bytes::new()),
        }
    }
}

/// What each role is sent, out of what travels: its own messages, and those that a log's machine speaks in notices.
macro_rules! heard_by_notice {
    ($($In:ident is $Variant:ident),+) => { $(
        impl TryFrom<MasonMessage> for $In {
            type Error = MasonMessage;

            fn try_from(message: MasonMessage) -> Result<Self, MasonMessage> {
                match message {
                    MasonMessage::$Variant(message) => Ok(message),
                    MasonMessage::Log(paxos::Message::Client(LogAnswer::Notice(notice))) => {
                        $In::decoded(&notice.bytes).map_err(|_| MasonMessage::Log(paxos::Message::Client(LogAnswer::Notice(notice))))
                    }
                    other => Err(other),
                }
            }
        }
    )+ };
}

heard_by_notice!(SequencerIn is Sequencer, ShardIn is Shard, GatewayIn is Client);

impl TryFrom<MasonMessage> for Heard {
    type Error = MasonMessage;

    fn try_from(message: MasonMessage) -> Result<Self, MasonMessage> {
        match message {
            MasonMessage::Proxy(message) => Ok(Self::Own(message)),
            MasonMessage::Log(message) => Ok(Self::Log(message)),
            other => Err(other),
        }
    }
}

impl TryFrom<MasonMessage> for ConnectionIn {
    type Error = MasonMessage;

    fn try_from(message: MasonMessage) -> Result<Self, MasonMessage> {
        match message {
            MasonMessage::Connection(message) => Ok(message),
            other => Err(other),
        }
    }
}

impl<T: Stub, S: Shard, G: GatewayRole> MasonMember<T, S, G> {
    /// If it is a proxy: the version of the members that its group needs none beside ([`Proxy::settled_on`]).
    pub fn settled_on(&self) -> Option<u64> {
        match self {
            Self::Proxy(proxy) => Some(proxy.settled_on()),
            Self::Sequencer(_) | Self::Shard(_) | Self::Gateway(_) | Self::Log(_) => None,
        }
    }
}
