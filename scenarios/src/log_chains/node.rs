//! What a host runs: the log's gateway and shards, its feeder, and the chains below, side by side.

use ::fuzzylog::{FuzzyLog, FuzzyMember, FuzzyMessage, FuzzyRequest, FuzzyResponse};
use ::mason::{Mason, MasonMember, MasonMessage};
use kernel::client::Response;
use kernel::{Bytes, Embedded, Embeds, Family};
use shared_log::feeder::{FedLog, FedMessage, FeederNode};
use shared_log::{Gateway, Logs, Names};

/// The family of all of them.
#[derive(Debug)]
pub struct ChainedLog;

impl Family for ChainedLog {
    type Message = ChainedMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// Everything that travels between its nodes.
    pub enum ChainedMessage {
        /// Of gateways, shards and feeders.
        1 => Mason(MasonMessage),
        /// Of feeders and the engine.
        2 => Fuzzy(FuzzyMessage),
    }
}

/// A role of the log.
pub(super) type LogMember = MasonMember<Names, Logs, Gateway>;

kernel::nodes! {
    /// Any role.
    pub enum ChainedNode of ChainedLog {
        /// A gateway, or a shard's server.
        node Log(Box<Embedded<LogMember, ChainedLog>>),
        /// A feeder.
        node Feeder(Box<Embedded<FeederNode, ChainedLog>>),
        /// Of the chains.
        node Chains(Box<Embedded<FuzzyMember, ChainedLog>>),
    }
}

impl Embeds<Mason> for ChainedLog {
    fn inner_message(message: ChainedMessage) -> Option<MasonMessage> {
        match message {
            ChainedMessage::Mason(message) => Some(message),
            ChainedMessage::Fuzzy(_) => None,
        }
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: MasonMessage) -> ChainedMessage {
        ChainedMessage::Mason(message)
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}

impl Embeds<FedLog> for ChainedLog {
    fn inner_message(message: ChainedMessage) -> Option<FedMessage> {
        Some(match message {
            ChainedMessage::Mason(message) => FedMessage::Mason(message),
            ChainedMessage::Fuzzy(message) => FedMessage::Fuzzy(message),
        })
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: FedMessage) -> ChainedMessage {
        match message {
            FedMessage::Mason(message) => ChainedMessage::Mason(message),
            FedMessage::Fuzzy(message) => ChainedMessage::Fuzzy(message),
        }
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}

impl Embeds<FuzzyLog> for ChainedLog {
    fn inner_message(message: ChainedMessage) -> Option<FuzzyMessage> {
        match message {
            ChainedMessage::Fuzzy(message) => Some(message),
            ChainedMessage::Mason(_) => None,
        }
    }

    /// The engine's roles are asked nothing by local applications here.
    fn inner_request(_request: Bytes) -> Option<FuzzyRequest> {
        None
    }

    fn outer_message(message: FuzzyMessage) -> ChainedMessage {
        ChainedMessage::Fuzzy(message)
    }

    fn outer_response(_response: FuzzyResponse) -> Response {
        Response(Bytes::new())
    }
}
