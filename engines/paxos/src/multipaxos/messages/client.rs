//! What a client can be sent, as clients know it.

use crate::multipaxos::Message;
pub use wire::commands::results::*;

impl From<Results> for Message {
    fn from(message: Results) -> Self {
        Self::Client(message.into())
    }
}

impl From<Notice> for Message {
    fn from(message: Notice) -> Self {
        Self::Client(message.into())
    }
}
