//! The log's part of the native protocol: one message each way, distinguished from others by its first two bytes.

use super::{Answer, Request};
use kernel::{Decode, DecodeError, Encode, Reader};

kernel::record! {
    /// A call.
    pub struct Call {
        /// The client's number for it; comes back in the reply.
        id: u64,
        /// What is asked.
        request: Request,
    }
}

kernel::record! {
    /// The answer to a call.
    pub struct Reply {
        /// The client's number for the call.
        id: u64,
        /// What came of it.
        answer: Answer,
    }
}

/// A message of either direction.
#[derive(Clone, PartialEq, Debug)]
pub enum Native {
    /// To the host.
    Call(Call),
    /// To the client.
    Reply(Reply),
}

/// The receiver's tag of messages to the host's logs.
pub const TO_HOST: u8 = 22;
/// The receiver's tag of messages to the logs' clients.
pub const TO_CLIENT: u8 = 23;

impl Encode for Native {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Call(call) => {
                out.extend([TO_HOST, 1]);
                call.encode(out);
            }
            Self::Reply(reply) => {
                out.extend([TO_CLIENT, 1]);
                reply.encode(out);
            }
        }
    }
}

impl Decode for Native {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match (u8::decode(input)?, u8::decode(input)?) {
            (TO_HOST, 1) => Decode::decode(input).map(Self::Call),
            (TO_CLIENT, 1) => Decode::decode(input).map(Self::Reply),
            (TO_HOST | TO_CLIENT, tag) | (tag, _) => Err(DecodeError::UnknownTag("log message", tag)),
        }
    }
}
