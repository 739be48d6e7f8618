//! The family of the engine's roles, the replicated logs of its shards included.

use crate::gateway::TxnGateway;
use crate::machine::ShardMachine;
use crate::messages::gateway::GatewayIn;
use crate::messages::shard::ShardIn;
use crate::shard::SpannerShard;
use kernel::client::{Close, ConnectionIn, Event, Output, Pause, Response};
use kernel::{Bytes, Embedded, Embeds, Family};

/// The family.
#[derive(Debug)]
pub struct Spanner;

impl Family for Spanner {
    type Message = SpannerMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// Everything that travels between the engine's nodes, by who receives it.
    pub enum SpannerMessage {
        /// To a shard's role.
        1 => Shard(ShardIn),
        /// To a gateway, from shards.
        2 => Gateway(GatewayIn),
        /// To a gateway, from a user's connection; never leaves its host.
        3 => User(Event),
        /// To a user's connection; never leaves its host.
        4 => Connection(ConnectionIn),
        /// To a role of a shard's replicated log, or from one.
        5 => Log(paxos::Message),
    }
}

impl From<paxos::Message> for SpannerMessage {
    fn from(message: paxos::Message) -> Self {
        Self::Log(message)
    }
}

/// What a gateway sends a user's connection.
macro_rules! to_connection {
    ($($Sent:ident),+) => { $(
        impl From<$Sent> for SpannerMessage {
            fn from(message: $Sent) -> Self {
                Self::Connection(message.into())
            }
        }
    )+ };
}

to_connection!(Output, Close, Pause);

kernel::nodes! {
    /// Any role of the engine.
    pub enum SpannerMember of Spanner {
        /// Leads a shard, or hands on to its leader.
        role Shard(Box<SpannerShard>) "shard",
        /// Plays the client for users.
        role Gateway(Box<TxnGateway>) "gateway",
        /// Plays a part in a shard's log.
        node Log(Box<Embedded<paxos::Member<ShardMachine>, Spanner>>),
    }
}

impl Embeds<paxos::Paxos> for Spanner {
    fn inner_message(message: SpannerMessage) -> Option<paxos::Message> {
        match message {
            SpannerMessage::Log(message) => Some(message),
            SpannerMessage::Shard(_)
            | SpannerMessage::Gateway(_)
            | SpannerMessage::User(_)
            | SpannerMessage::Connection(_) => None,
        }
    }

    /// The roles of a shard's log are asked nothing by local applications.
    fn inner_request(_request: Bytes) -> Option<paxos::Call> {
        None
    }

    fn outer_message(message: paxos::Message) -> SpannerMessage {
        SpannerMessage::Log(message)
    }

    /// They are asked nothing, so this is for completeness of the types.
    fn outer_response(outcome: paxos::Outcome) -> Response {
        match outcome {
            paxos::Outcome::Done(bytes) => Response(bytes),
            paxos::Outcome::Refused(_) => Response(Bytes::new()),
        }
    }
}
