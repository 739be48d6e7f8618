//! What a host runs: gateway and shards, the home of sessions, a feeder, the chain below, and the ends of users' connections.

use crate::coordination::Socket;
use crate::coordination::judged::{JudgedSessions, JudgedTree};
pub(super) use crate::coordination::node::{CLOSED, CONNECT, DISCONNECT, HOLD, INPUT, OUTPUT, POLL, RELEASE};
use ::fuzzylog::{FuzzyLog, FuzzyMember, FuzzyMessage, FuzzyRequest, FuzzyResponse};
use ::mason::shard::ShardServer;
use ::mason::{Mason, MasonMember, MasonMessage};
use coordination::feeder::{FedTree, FedTreeMessage, TreeFeederNode};
use coordination::{Gateway, HomeShard};
use kernel::client::Response;
use kernel::{Bytes, Embedded, Embeds, Family};

/// The family of all of them.
#[derive(Debug)]
pub struct ChainedTree;

impl Family for ChainedTree {
    type Message = ChainedTreeMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// Everything that travels between its nodes.
    pub enum ChainedTreeMessage {
        /// Of users, gateways, shards, homes and feeders.
        1 => Mason(MasonMessage),
        /// Of feeders and the engine.
        2 => Fuzzy(FuzzyMessage),
    }
}

/// A role of the tree.
pub(super) type TreeMember = MasonMember<JudgedSessions, JudgedTree, Gateway>;
/// The sessions' server.
pub(super) type Home = ShardServer<HomeShard<JudgedSessions>>;

kernel::nodes! {
    /// The sessions' server, or the end of a user's connection.
    pub enum HomeOrSocket of Mason {
        /// The server.
        role Home(Box<Home>) "home",
        /// A user's connection, or where its operations wait.
        role Socket(Socket) "socket",
    }
}

kernel::nodes! {
    /// Any role.
    pub enum ChainedSeat of ChainedTree {
        /// A gateway, or a shard's server.
        node Tree(Box<Embedded<TreeMember, ChainedTree>>),
        /// The sessions' server, or the end of a user's connection.
        node Beside(Box<Embedded<HomeOrSocket, ChainedTree>>),
        /// A feeder.
        node Feeder(Box<Embedded<TreeFeederNode, ChainedTree>>),
        /// Of the chain.
        node Chain(Box<Embedded<FuzzyMember, ChainedTree>>),
    }
}

impl Embeds<Mason> for ChainedTree {
    fn inner_message(message: ChainedTreeMessage) -> Option<MasonMessage> {
        match message {
            ChainedTreeMessage::Mason(message) => Some(message),
            ChainedTreeMessage::Fuzzy(_) => None,
        }
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: MasonMessage) -> ChainedTreeMessage {
        ChainedTreeMessage::Mason(message)
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}

impl Embeds<FedTree> for ChainedTree {
    fn inner_message(message: ChainedTreeMessage) -> Option<FedTreeMessage> {
        Some(match message {
            ChainedTreeMessage::Mason(message) => FedTreeMessage::Mason(message),
            ChainedTreeMessage::Fuzzy(message) => FedTreeMessage::Fuzzy(message),
        })
    }

    fn inner_request(request: Bytes) -> Option<Bytes> {
        Some(request)
    }

    fn outer_message(message: FedTreeMessage) -> ChainedTreeMessage {
        match message {
            FedTreeMessage::Mason(message) => ChainedTreeMessage::Mason(message),
            FedTreeMessage::Fuzzy(message) => ChainedTreeMessage::Fuzzy(message),
        }
    }

    fn outer_response(response: Response) -> Response {
        response
    }
}

impl Embeds<FuzzyLog> for ChainedTree {
    fn inner_message(message: ChainedTreeMessage) -> Option<FuzzyMessage> {
        match message {
            ChainedTreeMessage::Fuzzy(message) => Some(message),
            ChainedTreeMessage::Mason(_) => None,
        }
    }

    /// The engine's roles are asked nothing by local applications here.
    fn inner_request(_request: Bytes) -> Option<FuzzyRequest> {
        None
    }

    fn outer_message(message: FuzzyMessage) -> ChainedTreeMessage {
        ChainedTreeMessage::Fuzzy(message)
    }

    fn outer_response(_response: FuzzyResponse) -> Response {
        Response(Bytes::new())
    }
}
