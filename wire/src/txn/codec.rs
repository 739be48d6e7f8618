//! The levels on the wire, and where calls and replies stand in the native protocol.

use super::{Timestamp, TxnCall, TxnLevel, TxnReply};
use kernel::{Bytes, Decode, DecodeError, Encode, Reader};

impl Encode for TxnLevel {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Strict => out.push(1),
            Self::Rss => out.push(2),
            Self::ProcessOrdered => out.push(3),
            Self::At(at) => {
                out.push(4);
                at.encode(out);
            }
            Self::Stale(by) => {
                out.push(5);
                by.encode(out);
            }
        }
    }
}

impl Decode for TxnLevel {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Ok(Self::Strict),
            2 => Ok(Self::Rss),
            3 => Ok(Self::ProcessOrdered),
            4 => Timestamp::decode(input).map(Self::At),
            5 => u64::decode(input).map(Self::Stale),
            tag => Err(DecodeError::UnknownTag("level of a transaction", tag)),
        }
    }
}

/// The receiver's tag of messages to the host's transaction service.
pub const TO_HOST: u8 = 24;
/// The receiver's tag of messages to its clients.
pub const TO_CLIENT: u8 = 25;

/// A call as the native protocol has it.
pub fn native_call(call: &TxnCall) -> Vec<u8> {
    let mut message = vec![TO_HOST];
    call.encode(&mut message);
    message
}

/// A reply as the native protocol has it.
pub fn native_reply(reply: &TxnReply) -> Vec<u8> {
    let mut message = vec![TO_CLIENT];
    reply.encode(&mut message);
    message
}

/// Reads a call of the native protocol.
pub fn read_native_call(message: &Bytes) -> Result<TxnCall, DecodeError> {
    let mut input = Reader::new(message.clone());
    match u8::decode(&mut input)? {
        TO_HOST => TxnCall::decode(&mut input),
        tag => Err(DecodeError::UnknownTag("call of a transaction", tag)),
    }
}

/// Reads a reply of the native protocol.
pub fn read_native_reply(message: &Bytes) -> Result<TxnReply, DecodeError> {
    let mut input = Reader::new(message.clone());
    match u8::decode(&mut input)? {
        TO_CLIENT => TxnReply::decode(&mut input),
        tag => Err(DecodeError::UnknownTag("reply of a transaction", tag)),
    }
}
