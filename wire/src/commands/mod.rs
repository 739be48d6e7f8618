//! Commands for a replicated state machine: what clients and batchers say to each other, and the client's role. An engine that
//! orders commands has these in its own messages; a client needs nothing else.
//!
//! A [`CommandClient`] belongs to any family whose messages hold these; a client without an engine uses [`CommandCalls`].

pub mod calls;
pub mod client;
pub mod configuration;
pub mod results;
pub mod value;

pub use calls::{Query, Reconfigure, Submit, ToBatcher};
pub use client::{Call, ClientTimer, CommandClient, Outcome, Refusal};
pub use configuration::{Configuration, HostEntry};
pub use results::{Answered, AnsweredView, ClientIn, Notice, Results, Row, Status};
pub use value::{Command, Commands, GroupKind, Level};

use kernel::Family;

kernel::sum! {
    /// What travels between a client and its batchers; the tags are those of MultiPaxos.
    pub enum CommandMessage {
        /// To a batcher.
        1 => Batcher(ToBatcher),
        /// To a client.
        7 => Client(ClientIn),
    }
}

/// The family of a client without an engine.
#[derive(Clone, Copy, Debug)]
pub struct CommandCalls;

impl Family for CommandCalls {
    type Message = CommandMessage;
    type Request = Call;
    type Response = Outcome;
}

impl From<Submit> for CommandMessage {
    fn from(message: Submit) -> Self {
        Self::Batcher(message.into())
    }
}

impl From<Query> for CommandMessage {
    fn from(message: Query) -> Self {
        Self::Batcher(message.into())
    }
}

impl From<Reconfigure> for CommandMessage {
    fn from(message: Reconfigure) -> Self {
        Self::Batcher(message.into())
    }
}
