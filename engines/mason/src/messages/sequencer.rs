//! What a sequencer can be sent.

use crate::MasonMessage;
use crate::order::{ConsistentCut, Group, Gsn, Range, Space};
use crate::topology::{Layout, ShardMap};
use crate::view::View;
use paxos::Members;

kernel::messages! {
    /// Everything a sequencer can be sent.
    pub enum SequencerIn in MasonMessage::Sequencer {
        /// From a leading proxy: allocate (the paper's RequestSeqNum). The numbers of a batch are rows, one a space: an
        /// allocation costs the same whatever its size.
        1 => Allocate {
            /// The proxy's group.
            group: Group,
            /// Counts the group's leaders.
            proxy_epoch: u64,
            /// Which sequencer is meant.
            epoch: u64,
            /// Counts the group's requests to this sequencer, from 1.
            request: u64,
            /// The answers to requests up to this one are in the group's log: they need not be remembered.
            committed: u64,
            /// How many numbers of which space.
            counts: Vec<(Space, u64)>,
            /// How many operations: global sequence numbers.
            operations: u64,
            /// The version of the shard map by which the spaces were chosen.
            shard_map: Option<u64>,
        },
        /// From a proxy's new leader: what did you allocate after request `after`? Fences the leaders before it.
        2 => Probe {
            /// The proxy's group.
            group: Group,
            /// Counts the group's leaders.
            proxy_epoch: u64,
            /// Which sequencer is meant.
            epoch: u64,
            /// The last request whose answer is in the group's log.
            after: u64,
        },
        /// From a leading proxy: are you there?
        3 => Ping {
            /// Which sequencer is meant.
            epoch: u64,
        },
        /// From a leading proxy: your predecessor is silent; take over as `epoch`.
        4 => Recover {
            /// The epoch, larger than the silent one's.
            epoch: u64,
        },
        /// From a leading proxy: sealed against earlier sequencers, in the group's log; and what the group has assigned.
        5 => GroupSealed {
            /// The group.
            group: Group,
            /// The epoch sealed for.
            epoch: u64,
            /// The numbers assigned.
            view: View,
            /// The highest global sequence number assigned.
            gsn: Gsn,
            /// Which attempt the log has: the first one for the epoch.
            attempt: Option<u64>,
            /// How many groups the group's log had in use then.
            layout: Option<Layout>,
            /// In the first group's log: the shard map by whose resharding all is numbered since.
            handed: Option<ShardMap>,
        },
        /// From a leading proxy: these holes are filled with no-ops, in the group's log.
        6 => Filled {
            /// The group.
            group: Group,
            /// The epoch that asked.
            epoch: u64,
        },
        /// From a group's replica on this host: the deployment's hosts are others.
        7 => Moved {
            /// Who they are.
            members: Members,
        },
        /// From a group's replica on this host: other groups are in use.
        8 => Arranged {
            /// How many.
            layout: Layout,
        },
        /// From the first group's leader: the resharding stands in the log.
        9 => HandedOver {
            /// The epoch that asked.
            epoch: u64,
        },
        /// From a leading proxy: what you ask for is of an epoch that the group's log has left, or has given to another.
        10 => Overtaken {
            /// The epoch that the log has.
            epoch: u64,
            /// Of the seal that was refused, if it was one.
            attempt: Option<u64>,
        },
    }
}

kernel::record! {
    /// What one request was given.
    pub struct Allocation {
        /// The request.
        request: u64,
        /// A row of numbers in each space asked for.
        rows: Vec<Range>,
        /// The first global sequence number; one an operation follows.
        gsn: Gsn,
        /// What was known afterwards.
        cut: ConsistentCut,
    }
}
