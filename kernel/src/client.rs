//! Users' connections: what a gateway hears of them and says to them, whatever engine is behind it. These messages never leave
//! their host.

use crate::Bytes;

/// A gateway's answer to a local call, in the service's encoding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response(pub Bytes);

crate::messages! {
    /// What a connection (a node that stands for a user's socket) sends to a gateway.
    pub enum Event {
        /// It is open.
        7 => Connected {
            /// Where it comes from, an IPv4 or IPv6 address as text, without the port.
            address: String,
            /// The subject of the user's certificate, if it has shown one.
            certificate: Option<String>,
            /// The port it comes from.
            port: Option<u16>,
        },
        /// Whole requests have arrived, one behind the other as the service's protocol frames them.
        8 => Input {
            /// The bytes.
            bytes: Bytes,
        },
        /// It is gone.
        9 => Disconnected {},
        /// So much of what it was sent has gone to the user.
        14 => Taken {
            /// Bytes since it was opened.
            bytes: u64,
        },
        /// The port has found who the user is, or is on the way to it; the request that asked is answered by the gateway.
        15 => Proven {
            /// The number of the request, as the user gave it.
            number: u32,
            /// What the user is answered.
            answer: Bytes,
            /// Who it is, if that is proven now.
            who: Option<String>,
            /// It is not who it says.
            is_refused: bool,
        },
    }
}

crate::messages! {
    /// What a gateway sends to a connection.
    pub enum ConnectionIn {
        /// Bytes for the user.
        1 => Output {
            /// The bytes.
            bytes: Bytes,
        },
        /// Close after what was written is sent.
        2 => Close {
            /// Why, as a phrase for the log.
            reason: String,
        },
        /// Stop (`true`) or resume reading from the user: too much is in flight.
        3 => Pause {
            /// Stop.
            paused: bool,
        },
    }
}
