//! What a client of Mason is told: a gateway that serves many users of the service on one host.
//!
//! A gateway is a role of the service. It sends [`crate::proxy::Submit`] and [`crate::proxy::Barrier`] to the proxy nodes of its
//! own host (which pass them on to whoever leads their group), and [`crate::shard::Read`] to one server of each shard.

use crate::Message;
use crate::order::{Group, Space, Stamp};
use crate::topology::{Layout, Spread};
use kernel::{Bytes, NodeId};

kernel::record! {
    /// One answer.
    pub struct Answer {
        /// The origin's life that asked: an earlier one's answers are nobody's.
        incarnation: u64,
        /// Which operation, by its tag in the group it was submitted to.
        tag: u64,
        /// Where it was ordered; 0 for an operation of the group alone and for one that was made void.
        stamp: Stamp,
        /// The service's answer.
        body: Bytes,
    }
}

kernel::record! {
    /// The answer to a read.
    pub struct ReadAnswer {
        /// Which read, by the reader's number.
        tag: u64,
        /// The service's answer.
        body: Bytes,
    }
}

kernel::messages! {
    /// Everything a gateway can be sent.
    pub enum ClientIn in Message::Client {
        /// Operations of a group were executed, by one shard's server or, where no shard is concerned, by the group.
        1 => Answers {
            /// The group they were submitted to.
            group: Group,
            /// The answers.
            answers: Vec<Answer>,
        },
        /// From a shard's server: what is watched has changed.
        2 => Notice {
            /// The shard.
            space: Space,
            /// By which operation.
            stamp: Stamp,
            /// The service's words.
            body: Bytes,
        },
        /// From a shard's server: it has executed every operation of its space with a stamp up to `through`, and what there was
        /// to notify of them came before.
        3 => Progress {
            /// The shard.
            space: Space,
            /// The last stamp covered.
            through: Stamp,
        },
        /// From a shard's server: reads are answered.
        4 => ReadAnswers {
            /// The shard.
            space: Space,
            /// The stamp of the last operation executed there.
            executed: Stamp,
            /// The answers.
            answers: Vec<ReadAnswer>,
            /// The reads were not looked at, and the answers are empty: the shard is spread by this one by now.
            refused: Option<Spread>,
            /// Reads whose answers are larger than the reader has room for, by their tags, with the sizes of the answers in bytes. They
            /// have left nothing that the reader has to know of, and may be asked again.
            withheld: Option<Vec<(u64, u64)>>,
        },
        /// From a proxy of this host: all that any proxy's log held when `Barrier` was sent has been handed to this host's
        /// shards. A read sent to them now sees every operation answered before.
        5 => BarrierPassed {
            /// The group asked.
            group: Group,
            /// The question.
            id: u64,
            /// How many groups the group's log has in use. The first group's is what counts: a barrier that did not ask all of those
            /// has not passed.
            layout: Option<Layout>,
        },
        /// From a group: the stub has something to tell.
        6 => Told {
            /// The group.
            group: Group,
            /// The service's words.
            body: Bytes,
        },
        /// From a shard's server: it took over another server's state, and what it has not executed itself it will not answer. An
        /// origin whose operations may be among those starts a new life (see [`crate::Outbox::restart`]).
        10 => Skipped {
            /// The shard.
            space: Space,
        },
        /// From a group: the origin is not served there. The operation was not executed and never will be; it may be submitted again,
        /// to another group.
        11 => Elsewhere {
            /// The group.
            group: Group,
            /// The origin's life that asked.
            incarnation: u64,
            /// Which operation.
            tag: u64,
            /// How many groups are in use, as the group's log has it.
            layout: Layout,
        },
        /// From a shard's server: what it tells and answers from here on is of this spread.
        12 => Spreads {
            /// The shard.
            space: Space,
            /// The spread.
            spread: Spread,
        },
        /// From a shard's server of this host: so much waits for the archive that nothing more should be added; 0: no more.
        13 => Overfull {
            /// The shard.
            space: Space,
            /// What waits, in bytes.
            bytes: u64,
        },
        /// From a connection (a node that stands for a user's socket): it is open.
        7 => Connected {
            /// Where it comes from, an IPv4 or IPv6 address as text, without the port.
            address: String,
            /// The subject of the user's certificate, if it has shown one.
            certificate: Option<String>,
            /// The port it comes from.
            port: Option<u16>,
        },
        /// From a connection: whole requests have arrived, one behind the other as the service's protocol frames them.
        8 => Input {
            /// The bytes.
            bytes: Bytes,
        },
        /// From a connection: it is gone.
        9 => Disconnected {},
        /// From a connection: so much of what it was sent has gone to the user.
        14 => Taken {
            /// Bytes since it was opened.
            bytes: u64,
        },
    }
}

kernel::messages! {
    /// Everything a connection can be sent.
    pub enum ConnectionIn in Message::Connection {
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
        /// Stop (`true`) or resume reading from the user: too much is under way.
        3 => Pause {
            /// Stop.
            paused: bool,
        },
    }
}

/// A node that only names a user's connection: messages to it are written to the socket by the driver.
pub type ConnectionId = NodeId;
