//! What a proxy can be sent.

use crate::MasonMessage;
use crate::messages::sequencer::Allocation;
use crate::order::{Group, GroupTime, Gsn, Operation, Order, Placed, Range};
use crate::proxy::entry::{Claim, StubPage};
use crate::topology::{Layout, ShardMap};
use crate::view::View;
use kernel::{Bytes, NodeId};
use parts::Ballot;
use paxos::Members;

kernel::inbox! {
    /// Everything a proxy can be sent, by who sends it.
    pub enum ProxyIn {
        /// From a gateway.
        Gateway(FromGateway),
        /// From a sequencer.
        Sequencer(FromSequencer),
        /// From a shard's server.
        Shard(FromShard),
        /// From another proxy.
        Proxy(FromProxy),
        /// From this host's replica of the group.
        Replica(FromReplica),
        /// From this host's replica of any group.
        AnyReplica(FromAnyReplica),
    }
}

kernel::messages! {
    /// What a gateway sends a proxy.
    pub enum FromGateway of ProxyIn::Gateway in MasonMessage::Proxy {
        /// Have these ordered. Their tags follow one another. Sent again, from the first without an answer on,
        /// when answers take long.
        1 => SubmitOperations {
            /// The operations.
            operations: Vec<Operation>,
        },
        /// From a gateway of this host: notify me when this host's shards know of all that any log holds now.
        2 => Barrier {
            /// Names the question.
            id: u64,
        },
    }
}

kernel::messages! {
    /// What the sequencer in force, a standby that takes over, and a node that is neither send a proxy.
    pub enum FromSequencer of ProxyIn::Sequencer in MasonMessage::Proxy {
        /// From the sequencer: the numbers of a request.
        3 => Allocated {
            /// The sequencer.
            epoch: u64,
            /// The numbers.
            allocation: Allocation,
        },
        /// From the sequencer, to a new leader: what its predecessors asked for and have not put into the log.
        4 => Probed {
            /// The sequencer.
            epoch: u64,
            /// The last request served.
            highest: u64,
            /// The allocations.
            lost: Vec<Allocation>,
        },
        /// From the sequencer: I am here.
        5 => Pong {
            /// The sequencer.
            epoch: u64,
        },
        /// From a node that is not the sequencer it was taken for.
        6 => NotActive {
            /// Which epoch it was asked as.
            asked: u64,
            /// The highest epoch it knows of for itself.
            epoch: u64,
            /// It is about to be.
            recovering: bool,
        },
        /// From the sequencer: your spaces were chosen by another shard map than the one in force.
        17 => OtherShardMap {
            /// The sequencer.
            epoch: u64,
            /// The one in force.
            shard_map: ShardMap,
        },
        /// From a standby that takes over: refuse all sequencers before this one (the paper's GetMaxAndSeal).
        7 => GetMaxAndSeal {
            /// Its epoch.
            epoch: u64,
            /// Drawn when it was asked to take over.
            attempt: Option<u64>,
        },
        /// From the new sequencer: fill these holes with no-ops.
        8 => Fill {
            /// Its epoch.
            epoch: u64,
            /// The holes.
            holes: Vec<Range>,
        },
        /// From the new sequencer, to the first group: put this into the log, before I give anything away.
        18 => Reshard {
            /// Its epoch.
            epoch: u64,
            /// The shard map.
            shard_map: ShardMap,
            /// A number in each space that takes part.
            order: Order,
        },
        /// From the new sequencer: ask me.
        9 => Active {
            /// Its epoch.
            epoch: u64,
        },
    }
}

kernel::messages! {
    /// What a shard's server sends a proxy.
    pub enum FromShard of ProxyIn::Shard in MasonMessage::Proxy {
        /// Hand me what you keep of this space.
        10 => Lacking {
            /// The space, and the first number it lacks.
            from: Placed,
        },
        /// Everything below is in my durable snapshot.
        /// Promise: its disk has what is below.
        11 => ShardDurable {
            /// The space and the number.
            below: Placed,
        },
    }
}

kernel::messages! {
    /// What proxies send each other: the leaders in their ring, and those of the first group to all.
    pub enum FromProxy of ProxyIn::Proxy in MasonMessage::Proxy {
        /// From the proxy before in the ring: how many numbers of each interval are assigned by those who were asked so far.
        12 => Collect {
            /// Names the round.
            round: u64,
            /// How many proxies have counted.
            hops: u32,
            /// The first number of each interval.
            firsts: Vec<Placed>,
            /// How many of each interval are assigned.
            counts: Vec<u64>,
        },
        /// From the proxy before in the ring: everything below is assigned.
        13 => Complete {
            /// How many proxies know.
            hops: u32,
            /// One number a space.
            low_watermarks: Vec<Placed>,
        },
        /// From a proxy of the first group: have origins served by so many groups.
        15 => Arrange {
            /// How many.
            groups: u16,
        },
        /// From a proxy of the first group: have the service's state spread over so many shards.
        16 => SetShards {
            /// How many.
            shards: u16,
        },
    }
}

kernel::messages! {
    /// What the replica of the group's log on this host says.
    pub enum FromReplica of ProxyIn::Replica in MasonMessage::Proxy {
        /// What was asked for.
        14 => Viewed {
            /// The numbers assigned.
            view: View,
        },
        /// A leader has begun.
        20 => Began {
            /// Counts leaders.
            epoch: u64,
            /// Its ballot in the log.
            ballot: Ballot,
            /// The proxy that leads.
            leader: NodeId,
            /// The sequencer in force.
            sequencer: u64,
            /// The last request whose answer is in the log.
            request: u64,
            /// The number after the last one assigned here, in each space.
            next: Vec<Placed>,
            /// The highest global sequence number assigned here.
            gsn: Gsn,
            /// The group's clock.
            now: GroupTime,
            /// Whose operations are admitted next.
            tags: Vec<NextTag>,
            /// The group's own operations that are still to be ordered.
            follow_ups: Vec<FollowUp>,
            /// Whose the sequencer's epoch is.
            claim: Option<Claim>,
            /// The low watermarks that the log has: see [`entry::Entry::Durable`].
            durable: Option<Vec<Placed>>,
        },
        /// A batch was applied.
        21 => Applied {
            /// Its leader.
            epoch: u64,
            /// Its number.
            index: u64,
            /// Its sequencer.
            sequencer: u64,
        },
        /// Sealed.
        22 => DidSeal {
            /// The leader in force.
            epoch: u64,
            /// Its last batch applied.
            index: u64,
            /// The sequencer in force from here on.
            sequencer: u64,
            /// The numbers assigned.
            view: View,
            /// The highest global sequence number assigned.
            gsn: Gsn,
            /// Whose that sequencer's epoch is.
            claim: Option<Claim>,
            /// How many groups the log has in use.
            layout: Option<Layout>,
            /// The shard map whose resharding the log has.
            handed: Option<ShardMap>,
        },
        /// Holes were filled.
        23 => DidFill {
            /// For this sequencer.
            sequencer: u64,
        },
        /// From this host's replica of the first group: the resharding stands in the log.
        29 => DidReshard {
            /// For this sequencer.
            sequencer: u64,
        },
        /// The stub wants this ordered.
        24 => FollowUp {
            /// Its number among the group's own operations.
            id: u64,
            /// What it is.
            body: Bytes,
        },
        /// The deployment's hosts are others.
        25 => DidMove {
            /// Who they are.
            members: Members,
            /// The low watermarks that the log has: those on their way to it are void.
            durable: Vec<Placed>,
        },
        /// It needs no host but the members of this version.
        28 => DidSettle {
            /// The version.
            version: u64,
        },
        /// Whether the stub needs the group's clock.
        30 => AwaitsTime {
            /// It does.
            awaits: bool,
        },
    }
}

kernel::messages! {
    /// What this host's replicas of any group's log say, of their group.
    pub enum FromAnyReplica of ProxyIn::AnyReplica in MasonMessage::Proxy {
        /// From this host's replica of any group: where that group's log stands, since the layout is not the bootstrap's.
        26 => GroupStatus {
            /// The group.
            group: Group,
            /// How many groups are in use.
            layout: Layout,
            /// The version of the layout that the log had when it was sealed last.
            sealed: u64,
            /// Who has not taken all that this group's stub has handed over.
            leaving: Vec<Group>,
            /// Who has not handed over everything.
            awaited: Vec<Awaited>,
            /// It assigns nothing any more.
            retired: bool,
            /// It can be taken out.
            spent: Option<Spent>,
            /// The version of the shard map whose resharding the log has.
            handed: Option<u64>,
        },
        /// From this host's replica of another group: its stub hands this over.
        27 => Leaving {
            /// The page.
            page: StubPage,
        },
    }
}

kernel::record! {
    /// The next tag that is admitted from an origin.
    pub struct NextTag {
        /// The origin.
        origin: NodeId,
        /// Its incarnation.
        incarnation: u64,
        /// The tag.
        next: u64,
    }
}

kernel::record! {
    /// What a group's log says to a barrier.
    pub struct Reached {
        /// The highest number assigned, in each space.
        numbers: Vec<Placed>,
        /// How many groups are in use.
        layout: Option<Layout>,
    }
}

kernel::record! {
    /// Another group that has not handed over everything.
    pub struct Awaited {
        /// Which.
        from: Group,
        /// The page that comes next.
        next: u32,
    }
}

kernel::record! {
    /// What a group that has retired leaves: all of it is executed and in durable snapshots.
    pub struct Spent {
        /// The number after the last one it assigned, in each space.
        below: Vec<Placed>,
        /// The highest global sequence number it assigned.
        gsn: Gsn,
    }
}
