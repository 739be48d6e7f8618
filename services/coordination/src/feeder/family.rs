//! What a host runs of the feeder, and what that hears and says.

use super::TreeFeeder;
use ::fuzzylog::FuzzyMessage;
use kernel::client::Response;
use kernel::{Bytes, Family};
use mason::MasonMessage;

/// The family of the feeder.
#[derive(Debug)]
pub struct FedTree;

impl Family for FedTree {
    type Message = FedTreeMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// What the feeder hears and says.
    pub enum FedTreeMessage {
        /// As a proxy of Mason.
        1 => Mason(MasonMessage),
        /// As a client of the engine.
        2 => Fuzzy(FuzzyMessage),
    }
}

impl From<MasonMessage> for FedTreeMessage {
    fn from(message: MasonMessage) -> Self {
        Self::Mason(message)
    }
}

impl From<FuzzyMessage> for FedTreeMessage {
    fn from(message: FuzzyMessage) -> Self {
        Self::Fuzzy(message)
    }
}

kernel::nodes! {
    /// The feeder as a node.
    #[derive(Debug)]
    pub enum TreeFeederNode of FedTree {
        /// The feeder.
        role Feeder(Box<TreeFeeder>) "tree_feeder",
    }
}

kernel::nodes! {
    /// The home as a node.
    #[derive(Debug)]
    pub enum HomeNode of mason::Mason {
        /// The server that executes nodes for the sessions.
        role Home(Box<mason::shard::ShardServer<crate::home::HomeShard>>) "home",
    }
}
