//! What a client of Mason is sent: a gateway that serves many users of the service on one host.
//!
//! A gateway is a role of the service. It sends [`crate::proxy::Submit`] and [`crate::proxy::Barrier`] to the proxy nodes of its
//! own host (which pass them on to their group's leader), and [`crate::shard::Read`] to one server of each shard.

use crate::MasonMessage;
use crate::order::{Group, Gsn, Space};
use crate::topology::{Layout, ShardMap};
use kernel::client::{Connected, Disconnected, Event, Input, Proven, Taken};
use kernel::{Bytes, NodeId};
use parts::Tagged;

kernel::record! {
    /// One answer.
    pub struct OperationAnswer {
        /// The origin's incarnation that asked: an earlier one's answers are nobody's.
        incarnation: u64,
        /// Which operation, by its tag in the group it was submitted to.
        tag: u64,
        /// Where it was ordered; 0 for an operation of the group alone and for one that was made void.
        gsn: Gsn,
        /// The service's answer.
        body: Bytes,
    }
}

impl OperationAnswer {
    /// The operation that it answers, of a group.
    pub fn tagged(&self, group: Group) -> Tagged {
        Tagged { group: group.0.into(), incarnation: self.incarnation, tag: self.tag }
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
    pub enum GatewayIn in MasonMessage::Client {
        /// Operations of a group were executed, by one shard's server or, where no shard is concerned, by the group.
        1 => Answers {
            /// The group they were submitted to.
            group: Group,
            /// The answers.
            answers: Vec<OperationAnswer>,
        },
        /// From a shard's server: what is watched has changed.
        2 => GatewayNotice {
            /// The shard.
            space: Space,
            /// By which operation.
            gsn: Gsn,
            /// The service's words.
            body: Bytes,
        },
        /// From a shard's server: it has executed every operation of its space with a global sequence number up to `through`, and what
        /// there was to notify of them came before.
        3 => Progress {
            /// The shard.
            space: Space,
            /// The last global sequence number covered.
            through: Gsn,
        },
        /// From a shard's server: reads are answered.
        4 => ReadAnswers {
            /// The shard.
            space: Space,
            /// The global sequence number of the last operation executed there.
            executed: Gsn,
            /// The answers.
            answers: Vec<ReadAnswer>,
            /// The reads were not looked at, and the answers are empty: the shard map is this one by now.
            refused: Option<ShardMap>,
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
        /// From a group: the stub has something to report.
        6 => GroupNotice {
            /// The group.
            group: Group,
            /// The service's words.
            body: Bytes,
        },
        /// From a shard's server: it took over another server's state, and what it has not executed itself it will not answer. An
        /// origin whose operations may be among those starts a new incarnation (see [`parts::Outbox::restart`]).
        10 => Skipped {
            /// The shard.
            space: Space,
        },
        /// From a group: the origin is not served there. The operation was not executed and never will be; it may be submitted again,
        /// to another group.
        11 => Elsewhere {
            /// The group.
            group: Group,
            /// The origin's incarnation that asked.
            incarnation: u64,
            /// Which operation.
            tag: u64,
            /// How many groups are in use, as the group's log has it.
            layout: Layout,
        },
        /// From a shard's server: what it reports and answers from here on is of this shard map.
        12 => UsesShardMap {
            /// The shard.
            space: Space,
            /// The shard map.
            shard_map: ShardMap,
        },
        /// From a shard's server of this host: so much waits for the archive that nothing more should be added; 0: no more.
        13 => Overfull {
            /// The shard.
            space: Space,
            /// What waits, in bytes.
            bytes: u64,
        },
        /// From a shard's server of this host: what its gateways are to know of the shard's state (see
        /// [`crate::Shard::remark`]).
        15 => Remark {
            /// The shard.
            space: Space,
            /// The service's words; they replace those before.
            body: Bytes,
        },
    }
    and {
        /// From a user's connection.
        7 => Connected,
        /// From a user's connection.
        8 => Input,
        /// From a user's connection.
        9 => Disconnected,
        /// From a user's connection.
        14 => Taken,
        /// From a user's connection.
        16 => Proven,
    }
}

impl Elsewhere {
    /// The operation that was turned away.
    pub fn tagged(&self) -> Tagged {
        Tagged { group: self.group.0.into(), incarnation: self.incarnation, tag: self.tag }
    }
}

impl From<Event> for MasonMessage {
    fn from(event: Event) -> Self {
        match event {
            Event::Connected(message) => message.into(),
            Event::Input(message) => message.into(),
            Event::Disconnected(message) => message.into(),
            Event::Taken(message) => message.into(),
            Event::Proven(message) => message.into(),
        }
    }
}

/// A node that only names a user's connection: messages to it are written to the socket by the driver.
pub type ConnectionId = NodeId;
