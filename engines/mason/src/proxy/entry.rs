//! What stands in a proxy's log.

use crate::order::{ConsistentCut, Group, GroupTime, Gsn, Operation, Order, Placed, Range, Space};
use crate::topology::{Layout, ShardMap};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader};
use parts::Ballot;
use paxos::Members;
use smallvec::SmallVec;

/// One entry.
#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    /// A leader begins: batches of the ones before are void from here on.
    Begin {
        /// Its ballot in the log; entries of leaders with smaller ones may still come.
        ballot: Ballot,
        /// The proxy that leads.
        leader: NodeId,
    },
    /// Operations with their numbers: what assigns them.
    Batch(AssignmentBatch),
    /// Answers of sequencers before `epoch` are void from here on (the paper's sealing). The first claim to an epoch that a log
    /// has is the only one it knows.
    Seal {
        /// The sequencer that takes over.
        epoch: u64,
        /// Where it is; none in what versions before this one wrote.
        claim: Option<Claim>,
    },
    /// No-ops for holes that a new sequencer has found.
    Fill {
        /// That sequencer.
        epoch: u64,
        /// The holes.
        holes: Vec<Range>,
    },
    /// The group's clock has advanced.
    Clock {
        /// Whose clock it is.
        epoch: u64,
        /// What it shows.
        now: GroupTime,
    },
    /// Everything below these numbers is assigned, by whatever proxy.
    Collected {
        /// One number a space.
        low_watermarks: Vec<Placed>,
    },
    /// Everything below these numbers is executed and in durable snapshots of enough servers.
    Durable {
        /// One number a space.
        low_watermarks: Vec<Placed>,
        /// Of the servers of which members; void once there are others.
        version: Option<u64>,
    },
    /// The deployment's hosts are others.
    Members(Members),
    /// The group needs no host but the members of this version.
    Settled {
        /// The version.
        version: u64,
    },
    /// As many groups are in use from here on.
    Layout {
        /// The layout; void unless it follows the one that the log has.
        layout: Layout,
        /// In the first group's log: the groups that are taken out have assigned numbers below these only, and everything below is
        /// executed and in durable snapshots.
        below: Vec<Placed>,
        /// The highest global sequence number that they have assigned.
        gsn: Gsn,
    },
    /// What another group's stub has handed over arrives.
    Page(StubPage),
    /// Another group has all that this one's stub has handed over to it.
    Arrived {
        /// That group.
        at: Group,
        /// The layout by which it was handed over.
        version: u64,
    },
    /// In the first group's log: at these numbers the service's state is handed over among its shards. All below were numbered by
    /// the shard map before, all above by this one.
    Reshard {
        /// The sequencer, which gives nothing else away before this stands in the log.
        epoch: u64,
        /// The shard map from here on.
        shard_map: ShardMap,
        /// A number in each space that takes part.
        order: Order,
    },
    /// The group assigns nothing any more, until a later layout has it serve again.
    Retire {
        /// The layout by which it does not serve.
        version: u64,
    },
}

kernel::record! {
    /// A part of what one group's stub hands over to another's when a layout comes into force.
    pub struct StubPage {
        /// Whose it was.
        from: Group,
        /// Whose it is.
        to: Group,
        /// The layout.
        version: u64,
        /// Counts the pages from the one to the other.
        index: u32,
        /// No page follows.
        last: bool,
        /// In the service's encoding.
        bytes: Bytes,
    }
}

kernel::record! {
    /// Whose an epoch is. A sequencer begins only when every group's log has the same claim, its own: so an epoch belongs to one
    /// incarnation of one node, whichever node was asked to take over by which.
    pub struct Claim {
        /// The node.
        sequencer: NodeId,
        /// Drawn by it when it was asked to take over.
        attempt: u64,
    }
}

kernel::record! {
    /// A batch. Applied only if it follows the batches before it without a gap, under the leader and the sequencer it names: so
    /// what one origin sent first is assigned first, and nothing that a sealed sequencer allocated ever is.
    pub struct AssignmentBatch {
        /// The leader that proposes it.
        epoch: u64,
        /// Counts the leader's batches.
        index: u64,
        /// The sequencer under which it was made, also where nothing in it is sequenced.
        sequencer: u64,
        /// The request that brought its numbers; 0 if none was needed.
        request: u64,
        /// Where its rows of numbers start.
        rows: Vec<Range>,
        /// Its first global sequence number.
        gsn: Gsn,
        /// What the sequencer knew afterwards.
        cut: Option<ConsistentCut>,
        /// The wall clock of the leader, in milliseconds since 1970.
        time: u64,
        /// The operations; none if the numbers were lost with an earlier leader: they get no-ops.
        items: Vec<Item>,
    }
}

kernel::record! {
    /// An operation in a batch.
    pub struct Item {
        /// Where it is ordered; nowhere if it concerns the group alone.
        spaces: SmallVec<[Space; 4]>,
        /// Set for an operation of the group's own: its number among those.
        follow_up: Option<u64>,
        /// What it is. A follow-up has no origin.
        operation: Operation,
    }
}

impl Encode for Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { ballot, leader } => {
                out.push(1);
                ballot.encode(out);
                leader.encode(out);
            }
            Self::Batch(batch) => {
                out.push(2);
                batch.encode(out);
            }
            Self::Seal { epoch, claim } => {
                out.push(3);
                epoch.encode(out);
                claim.encode(out);
            }
            Self::Fill { epoch, holes } => {
                out.push(4);
                epoch.encode(out);
                holes.encode(out);
            }
            Self::Clock { epoch, now } => {
                out.push(5);
                epoch.encode(out);
                now.encode(out);
            }
            Self::Collected { low_watermarks } => {
                out.push(6);
                low_watermarks.encode(out);
            }
            Self::Durable { low_watermarks, version } => {
                out.push(7);
                low_watermarks.encode(out);
                version.encode(out);
            }
            Self::Members(members) => {
                out.push(8);
                members.encode(out);
            }
            Self::Layout { layout, below, gsn } => {
                out.push(9);
                layout.encode(out);
                below.encode(out);
                gsn.encode(out);
            }
            Self::Page(page) => {
                out.push(10);
                page.encode(out);
            }
            Self::Arrived { at, version } => {
                out.push(11);
                at.encode(out);
                version.encode(out);
            }
            Self::Retire { version } => {
                out.push(12);
                version.encode(out);
            }
            Self::Settled { version } => {
                out.push(13);
                version.encode(out);
            }
            Self::Reshard { epoch, shard_map, order } => {
                out.push(14);
                epoch.encode(out);
                shard_map.encode(out);
                order.encode(out);
            }
        }
    }
}

impl Decode for Entry {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match u8::decode(input)? {
            1 => Self::Begin { ballot: input.field()?, leader: input.field()? },
            2 => Self::Batch(AssignmentBatch::decode(input)?),
            3 => Self::Seal { epoch: input.field()?, claim: input.field()? },
            4 => Self::Fill { epoch: input.field()?, holes: input.field()? },
            5 => Self::Clock { epoch: input.field()?, now: input.field()? },
            6 => Self::Collected { low_watermarks: input.field()? },
            7 => Self::Durable { low_watermarks: input.field()?, version: input.field()? },
            8 => Self::Members(Members::decode(input)?),
            9 => Self::Layout { layout: input.field()?, below: input.field()?, gsn: input.field()? },
            10 => Self::Page(StubPage::decode(input)?),
            11 => Self::Arrived { at: input.field()?, version: input.field()? },
            12 => Self::Retire { version: input.field()? },
            13 => Self::Settled { version: input.field()? },
            14 => Self::Reshard { epoch: input.field()?, shard_map: input.field()?, order: input.field()? },
            tag => return Err(DecodeError::UnknownTag("proxy log entry", tag)),
        })
    }
}

/// What a proxy's replica is asked, through the log's reads.
#[derive(Clone, PartialEq, Debug)]
pub enum Question {
    /// How far has the group assigned numbers? Answered by [`super::Reached`].
    Reach,
    /// Which numbers has the group assigned? Answered by [`super::Viewed`].
    View,
    /// What is retained of `space` from `from` on? Answered by a [`crate::shard::ShardIn`].
    Lacking {
        /// The space, and the first number wanted.
        from: Placed,
    },
}

impl Encode for Question {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Reach => out.push(1),
            Self::Lacking { from } => {
                out.push(2);
                from.encode(out);
            }
            Self::View => out.push(3),
        }
    }
}

impl Question {
    /// Reads a question back.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::new(Bytes::copy_from_slice(bytes));
        Ok(match u8::decode(&mut input)? {
            1 => Self::Reach,
            2 => Self::Lacking { from: input.field()? },
            3 => Self::View,
            tag => return Err(DecodeError::UnknownTag("question to a proxy", tag)),
        })
    }
}
