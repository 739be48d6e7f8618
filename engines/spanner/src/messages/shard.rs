//! What a shard's role can be sent. What only its leader can answer, another host's role hands on to the leader, once.

use crate::SpannerMessage;
use crate::txn::{CallRef, Fate, PreparedTxn, Priority, ReadSet, ShardId, TxnId};
use kernel::{Bytes, NodeId};
use parts::Ballot;
use paxos::Members;
use wire::txn::{CallKey, KeyWrite, Timestamp};

kernel::messages! {
    /// Everything a shard's role can be sent.
    pub enum ShardIn in SpannerMessage::Shard {
        /// From a gateway: read under locks.
        1 => ReadLocked {
            /// The transaction.
            txn: TxnId,
            /// Who goes first.
            priority: Priority,
            /// What it holds here for its reads before this one.
            held: Option<LockedUnder>,
            /// What to read.
            what: ReadSet,
            /// Keys of the shard that it writes afterwards, as far as is known: locked with the read, so that two which read and then
            /// write the same keys wait for each other in the first place.
            writes: Option<Vec<Bytes>>,
        },
        /// From a gateway: prepare, or commit if the shard is the only participant.
        2 => PrepareTxn {
            /// The transaction.
            txn: TxnId,
            /// Who goes first.
            priority: Priority,
            /// What the user calls it.
            call: Option<CallRef>,
            /// Reads that it has made here, and under which leader; none if it has made none.
            locked: Option<LockedUnder>,
            /// The gateway's latest time when the commit began: it commits later.
            start: Timestamp,
            /// Its client ends no earlier than this.
            t_ee: Timestamp,
            /// The shard that decides.
            coordinator: ShardId,
            /// All participants, the coordinator included. For the coordinator alone.
            participants: Vec<ShardId>,
            /// Its writes here.
            writes: Vec<KeyWrite>,
        },
        /// From a gateway: forget a transaction that is not prepared.
        3 => Release {
            /// The transaction.
            txn: TxnId,
        },
        /// From a gateway: read at a timestamp (the paper's ROCommit).
        4 => ReadAt {
            /// The gateway.
            gateway: NodeId,
            /// Its number for the read.
            id: u64,
            /// t_read.
            t_read: Timestamp,
            /// t_min.
            t_min: Timestamp,
            /// Whether what must not be seen yet may be skipped: true for RSS.
            skips: bool,
            /// What to read.
            what: ReadSet,
        },
        /// From a gateway: it is alive.
        5 => OwnerAlive {
            /// The gateway.
            gateway: NodeId,
            /// Its incarnation.
            incarnation: u64,
            /// It has the answers to all attempts below this number.
            below: u64,
            /// It has begun no attempt from this number on.
            next: u64,
            /// Those that it goes on with at this shard.
            open: Vec<u64>,
        },
        /// From a gateway: read at a timestamp at any replica.
        6 => ReadReplica {
            /// The gateway.
            gateway: NodeId,
            /// Its number for the read.
            id: u64,
            /// The timestamp.
            at: Timestamp,
            /// What to read.
            what: ReadSet,
        },
        /// From a gateway: what became of a user's commit?
        7 => AskFate {
            /// The gateway.
            gateway: NodeId,
            /// Its number for the question.
            id: u64,
            /// The commit.
            key: CallKey,
        },
        /// From a replica's role: somebody waits for this to be closed.
        8 => WantClosed {
            /// The timestamp.
            at: Timestamp,
        },
        /// From the shard's role on a host that stays: the log is to follow these members. The leader's own host may have left, and is
        /// sent none.
        9 => FollowMembers {
            /// The members.
            members: Members,
        },
        /// From a participant: prepared.
        /// Promise: its log has it, with everything that it holds.
        10 => DidPrepare {
            /// The transaction.
            txn: TxnId,
            /// The coordinator.
            coordinator: ShardId,
            /// The participant.
            by: ShardId,
            /// Its prepare timestamp.
            t_p: Timestamp,
            /// The client ends no earlier than this, as the participant sees it.
            t_ee: Timestamp,
            /// It has waited for long: a coordinator that knows nothing of the transaction is to abort it.
            asks: bool,
        },
        /// From a participant: it cannot prepare.
        11 => CannotPrepare {
            /// The transaction.
            txn: TxnId,
            /// The coordinator.
            coordinator: ShardId,
        },
        /// From a coordinator: this is how it ended.
        /// Promise: its log has the decision.
        12 => Decided {
            /// The transaction.
            txn: TxnId,
            /// The coordinator.
            coordinator: ShardId,
            /// How.
            fate: Fate,
        },
        /// From a participant: the decision is known here.
        /// Promise: its log has it.
        13 => DidConclude {
            /// The participant.
            by: ShardId,
            /// The coordinator.
            coordinator: ShardId,
            /// The transactions.
            txns: Vec<TxnId>,
        },
        /// From a participant to the coordinator: an older transaction waits for this one, which is prepared. From the coordinator to
        /// participants that have not voted: where it waits for locks, it is to give up.
        14 => MakeWay {
            /// The transaction.
            txn: TxnId,
            /// The coordinator.
            coordinator: ShardId,
        },
        /// From the role on the host that is to lead the shard: it could, and asks for it.
        15 => AskToLead {
            /// That role.
            role: NodeId,
        },
        /// From this host's replica: a leader has begun.
        20 => Began {
            /// Its ballot in the log.
            ballot: Ballot,
            /// Its node.
            leader: NodeId,
            /// Which of its beginnings.
            attempt: u64,
            /// Counts beginnings.
            epoch: u64,
            /// The last step applied.
            index: u64,
            /// All its timestamps are above this.
            assigns_above: Timestamp,
            /// The highest commit timestamp.
            last_commit: Timestamp,
            /// Something goes once this is collected; nothing is to go if it is the greatest there is.
            due: Timestamp,
            /// What is prepared.
            prepared: Vec<PreparedTxn>,
            /// Decisions that participants have not logged yet.
            decisions: Vec<OpenDecision>,
            /// What gateways' attempts have come to.
            owners: Vec<OwnerState>,
            /// The cluster's members that the log follows.
            members: Members,
        },
        /// From this host's replica: a step was applied.
        21 => Stepped {
            /// Its leader.
            epoch: u64,
            /// Its number.
            index: u64,
            /// Transactions whose call had ended before.
            refused: Vec<(TxnId, Fate)>,
            /// How far the replica may be read.
            safe: Timestamp,
            /// Nobody reads below this.
            collected: Timestamp,
            /// Something goes once this is collected; nothing is to go if it is the greatest there is.
            due: Timestamp,
        },
        /// From this host's replica: it has taken a snapshot, and may have skipped steps.
        22 => Installed {
            /// How far the replica may be read.
            safe: Timestamp,
            /// Nobody reads below this.
            collected: Timestamp,
        },
    }
}

kernel::record! {
    /// Locks that a leader holds for a transaction's reads. Those that it gave up and took again are others.
    #[derive(Copy, Eq)]
    pub struct LockedUnder {
        /// The leader.
        epoch: u64,
        /// Counts transactions that this leader has begun to hold locks for.
        since: u64,
        /// How many reads.
        reads: u32,
    }
}

kernel::record! {
    /// A decision that participants have not logged yet.
    pub struct OpenDecision {
        /// The transaction.
        txn: TxnId,
        /// How it ended.
        fate: Fate,
        /// Those participants.
        waits_for: Vec<ShardId>,
    }
}

kernel::record! {
    /// What a gateway's attempts have come to.
    pub struct OwnerState {
        /// The gateway.
        gateway: NodeId,
        /// The incarnation.
        incarnation: u64,
        /// It has the answers to everything below.
        below: u64,
        /// Those that ended, by number.
        ended: Vec<(u64, Fate)>,
    }
}

/// What a message is about, for the role that has to hand it on.
impl ShardIn {
    /// True if only the shard's leader can answer it.
    pub(crate) fn is_for_leader(&self) -> bool {
        !matches!(
            self,
            Self::ReadReplica(_)
                | Self::FollowMembers(_)
                | Self::Began(_)
                | Self::Stepped(_)
                | Self::Installed(_)
        )
    }
}
