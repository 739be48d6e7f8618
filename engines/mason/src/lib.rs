//! Mason: a scalable, contiguous multi-sequence.
#![forbid(unsafe_code)]

pub mod client;
pub mod order;
pub mod proxy;
pub mod service;
pub mod shard;

pub use order::{Group, GroupTime, Number, Operation, Order, Placed, Space, Stamp};
pub use service::{Shard, ShardOut, Stub, StubOut, Verdict};

use kernel::{Bytes, Decode, DecodeError, Encode, Family, Reader};

/// The family of Mason's roles, the replicated logs of its proxies included.
#[derive(Debug)]
pub struct Mason;

impl Family for Mason {
    type Message = Message;
    type Request = Bytes;
    type Response = Bytes;
}

/// Everything that travels between Mason's nodes, by who receives it.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// To a proxy.
    Proxy(proxy::ProxyIn),
    /// To a shard's server.
    Shard(shard::ShardIn),
    /// To a gateway.
    Client(client::ClientIn),
    /// To a user's connection; never leaves its host.
    Connection(client::ConnectionIn),
    /// To a role of a proxy's replicated log.
    Log(paxos::Message),
}

impl Encode for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Proxy(message) => encode_as(2, message, out),
            Self::Shard(message) => encode_as(3, message, out),
            Self::Client(message) => encode_as(4, message, out),
            Self::Connection(message) => encode_as(5, message, out),
            Self::Log(message) => encode_as(6, message, out),
        }
    }
}

fn encode_as(tag: u8, message: &impl Encode, out: &mut Vec<u8>) {
    out.push(tag);
    message.encode(out);
}

impl Decode for Message {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            2 => Decode::decode(input).map(Self::Proxy),
            3 => Decode::decode(input).map(Self::Shard),
            4 => Decode::decode(input).map(Self::Client),
            5 => Decode::decode(input).map(Self::Connection),
            6 => Decode::decode(input).map(Self::Log),
            tag => Err(DecodeError::UnknownTag("mason message", tag)),
        }
    }
}

impl From<paxos::Message> for Message {
    fn from(message: paxos::Message) -> Self {
        Self::Log(message)
    }
}
