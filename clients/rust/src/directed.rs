//! What goes to a host and what comes back, over one connection.

use kernel::{Decode, DecodeError, Encode, Reader};

/// A message of either direction, behind its receiver's tag.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Directed<Call, Reply, const TO_HOST: u8, const TO_CLIENT: u8> {
    Call(Call),
    Reply(Reply),
}

impl<C: Encode, R: Encode, const TO_HOST: u8, const TO_CLIENT: u8> Encode
    for Directed<C, R, TO_HOST, TO_CLIENT>
{
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Call(call) => {
                out.push(TO_HOST);
                call.encode(out);
            }
            Self::Reply(reply) => {
                out.push(TO_CLIENT);
                reply.encode(out);
            }
        }
    }
}

impl<C: Decode, R: Decode, const TO_HOST: u8, const TO_CLIENT: u8> Decode
    for Directed<C, R, TO_HOST, TO_CLIENT>
{
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            tag if tag == TO_HOST => C::decode(input).map(Self::Call),
            tag if tag == TO_CLIENT => R::decode(input).map(Self::Reply),
            tag => Err(DecodeError::UnknownTag("message of a service", tag)),
        }
    }
}
