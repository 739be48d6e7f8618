//! Where calls and replies stand in the native protocol.

use super::{FuzzyCall, FuzzyReply};
use kernel::{Bytes, Decode, DecodeError, Encode, Reader};

/// The receiver's tag of messages to the host's partially ordered log.
pub const TO_HOST: u8 = 26;
/// The receiver's tag of messages to its clients.
pub const TO_CLIENT: u8 = 27;

/// A call as the native protocol has it.
pub fn native_call(call: &FuzzyCall) -> Vec<u8> {
    let mut message = vec![TO_HOST];
    call.encode(&mut message);
    message
}

/// A reply as the native protocol has it.
pub fn native_reply(reply: &FuzzyReply) -> Vec<u8> {
    let mut message = vec![TO_CLIENT];
    reply.encode(&mut message);
    message
}

/// Reads a call of the native protocol.
pub fn read_native_call(message: &Bytes) -> Result<FuzzyCall, DecodeError> {
    let mut input = Reader::new(message.clone());
    match u8::decode(&mut input)? {
        TO_HOST => FuzzyCall::decode(&mut input),
        tag => Err(DecodeError::UnknownTag("call of the partially ordered log", tag)),
    }
}

/// Reads a reply of the native protocol.
pub fn read_native_reply(message: &Bytes) -> Result<FuzzyReply, DecodeError> {
    let mut input = Reader::new(message.clone());
    match u8::decode(&mut input)? {
        TO_CLIENT => FuzzyReply::decode(&mut input),
        tag => Err(DecodeError::UnknownTag("reply of the partially ordered log", tag)),
    }
}
