//! The proxy's messages from gateways.

use crate::Message;
use crate::order::Operation;

kernel::messages! {
    /// Everything a proxy can be sent.
    pub enum ProxyIn in Message::Proxy {
        /// From a gateway: have these ordered. Their tags follow one another. Sent again, from the first without an answer on,
        /// when answers take long.
        1 => Submit {
            /// The operations.
            operations: Vec<Operation>,
        },
        /// From a gateway of this host: tell me when this host's shards have been handed all that any log holds now.
        2 => Barrier {
            /// Names the question.
            id: u64,
        },
    }
}
