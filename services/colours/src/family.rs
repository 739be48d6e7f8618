//! The gateway's family: what it hears of the engine and of users, and what it says to them.

use fuzzylog::FuzzyMessage;
use kernel::client::{Close, ConnectionIn, Event, Output, Response};
use kernel::{Bytes, Family};

/// The family.
#[derive(Debug)]
pub struct Colours;

impl Family for Colours {
    type Message = ColoursMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// Everything the gateway hears and says.
    pub enum ColoursMessage {
        /// Of the engine.
        1 => Fuzzy(FuzzyMessage),
        /// Of a user's connection; never leaves its host.
        2 => User(Event),
        /// To a user's connection; never leaves its host.
        3 => Connection(ConnectionIn),
    }
}

impl From<FuzzyMessage> for ColoursMessage {
    fn from(message: FuzzyMessage) -> Self {
        Self::Fuzzy(message)
    }
}

impl From<Output> for ColoursMessage {
    fn from(message: Output) -> Self {
        Self::Connection(message.into())
    }
}

impl From<Close> for ColoursMessage {
    fn from(message: Close) -> Self {
        Self::Connection(message.into())
    }
}
