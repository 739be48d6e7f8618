//! What a host runs: two deployments of transactions, one log and one coordination service, side by side.

use super::zookeeper::ZkSeat;
use ::mason::{Mason, MasonMember, MasonMessage};
use ::spanner::{Spanner, SpannerMember, SpannerMessage};
use kernel::client::Response;
use kernel::{Bytes, Embedded, Embeds, Family};
use shared_log::{Gateway, Logs, Names};

/// The family of all services of this world.
#[derive(Debug)]
pub struct Composed;

impl Family for Composed {
    type Message = ComposedMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// Everything that travels between its nodes.
    pub enum ComposedMessage {
        /// Of transactions; slots distinguish the deployments.
        1 => Txn(SpannerMessage),
        /// Of the log and of coordination; slots distinguish them.
        2 => Mason(MasonMessage),
    }
}

/// A role of the log.
pub(super) type LogMember = MasonMember<Names, Logs, Gateway>;

kernel::nodes! {
    /// Any role.
    pub enum ComposedNode of Composed {
        /// Of a transaction service.
        node Txn(Box<Embedded<SpannerMember, Composed>>),
        /// Of the log.
        node Log(Box<Embedded<LogMember, Composed>>),
        /// Of the coordination service, and its clients.
        node Znodes(Box<Embedded<ZkSeat, Composed>>),
    }
}

impl Embeds<Spanner> for Composed {
    fn inner_message(message: ComposedMessage) -> Option<SpannerMessage> {
        match message {
            ComposedMessage::Txn(message) => Some(message),
            ComposedMessage::Mason(_) => None,
        }
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: SpannerMessage) -> ComposedMessage {
        ComposedMessage::Txn(message)
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}

impl Embeds<Mason> for Composed {
    fn inner_message(message: ComposedMessage) -> Option<MasonMessage> {
        match message {
            ComposedMessage::Mason(message) => Some(message),
            ComposedMessage::Txn(_) => None,
        }
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: MasonMessage) -> ComposedMessage {
        ComposedMessage::Mason(message)
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}
