//! A shard's messages from gateways.

use crate::Message;
use crate::order::Stamp;
use kernel::Bytes;

kernel::record! {
    /// One read.
    pub struct Query {
        /// The reader's number for it.
        tag: u64,
        /// What is read, in the service's encoding.
        body: Bytes,
    }
}

kernel::messages! {
    /// Everything a shard's server can be sent.
    pub enum ShardIn in Message::Shard {
        /// From a gateway: answer these, in order, when every operation of this space with a stamp up to `at_least` is executed, as
        /// is everything that this host's proxies had handed over when this arrived.
        1 => Read {
            /// The least stamp.
            at_least: Stamp,
            /// The reads.
            reads: Vec<Query>,
        },
        /// From a gateway: it starts; tell it the progress from now on, and forget what it watched in an earlier life.
        2 => Attach {},
    }
}
