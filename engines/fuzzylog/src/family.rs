//! The family of the engine's roles, the directors' replicated log included.

use crate::chain_server::ChainServer;
use crate::client::{FuzzyClient, FuzzyRequest, FuzzyResponse};
use crate::director::{Director, DirectorMachine};
use crate::messages::chain_server::ChainServerIn;
use crate::messages::client::FuzzyClientIn;
use crate::messages::director::DirectorIn;
use kernel::{Embedded, Embeds, Family};

/// The family.
#[derive(Debug)]
pub struct FuzzyLog;

impl Family for FuzzyLog {
    type Message = FuzzyMessage;
    type Request = FuzzyRequest;
    type Response = FuzzyResponse;
}

kernel::sum! {
    /// Everything that travels between the engine's nodes, by who receives it.
    pub enum FuzzyMessage {
        /// To a chain server.
        1 => ChainServer(ChainServerIn),
        /// To a client.
        2 => Client(FuzzyClientIn),
        /// To a director.
        3 => Director(DirectorIn),
        /// To a role of the directors' replicated log, or from one.
        4 => Log(paxos::Message),
    }
}

impl From<paxos::Message> for FuzzyMessage {
    fn from(message: paxos::Message) -> Self {
        Self::Log(message)
    }
}

impl TryFrom<FuzzyMessage> for ChainServerIn {
    type Error = FuzzyMessage;

    fn try_from(message: FuzzyMessage) -> Result<Self, FuzzyMessage> {
        match message {
            FuzzyMessage::ChainServer(message) => Ok(message),
            other => Err(other),
        }
    }
}

impl TryFrom<FuzzyMessage> for FuzzyClientIn {
    type Error = FuzzyMessage;

    fn try_from(message: FuzzyMessage) -> Result<Self, FuzzyMessage> {
        match message {
            FuzzyMessage::Client(message) => Ok(message),
            other => Err(other),
        }
    }
}

kernel::nodes! {
    /// Any role of the engine.
    pub enum FuzzyMember of FuzzyLog {
        /// Has a partition's row.
        role ChainServer(Box<ChainServer>) "chain server",
        /// Appends and plays.
        role Client(Box<FuzzyClient>) "client",
        /// Changes projections.
        role Director(Box<Director>) "director",
        /// Plays a part in the directors' log.
        node Log(Box<Embedded<paxos::Member<DirectorMachine>, FuzzyLog>>),
    }
}

impl Embeds<paxos::Paxos> for FuzzyLog {
    fn inner_message(message: FuzzyMessage) -> Option<paxos::Message> {
        match message {
            FuzzyMessage::Log(message) => Some(message),
            FuzzyMessage::ChainServer(_) | FuzzyMessage::Client(_) | FuzzyMessage::Director(_) => None,
        }
    }

    /// The roles of the log are asked nothing by local applications.
    fn inner_request(_request: FuzzyRequest) -> Option<paxos::Call> {
        None
    }

    fn outer_message(message: paxos::Message) -> FuzzyMessage {
        FuzzyMessage::Log(message)
    }

    /// They are asked nothing, so this is for completeness of the types.
    fn outer_response(_outcome: paxos::Outcome) -> FuzzyResponse {
        FuzzyResponse::Refused(crate::client::FuzzyRefusal::Busy)
    }
}
