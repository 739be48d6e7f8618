//! Timeouts and bounds.

use crate::terms::AppendTime;
use kernel::Wall;
use std::time::Duration;

/// Which order all appends, syncs and snapshots have. All hosts of a deployment have the same, from its first start on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FuzzyOrder {
    /// Serializable, in an order that each user's own agrees with.
    #[default]
    Serializable,
    /// Strictly serializable: times are microseconds since the Unix epoch, between an append's beginning and its end, and nothing goes
    /// ahead of what is pending. Hosts' wall clocks must hold what they say.
    Strict,
}

impl FuzzyOrder {
    /// True if times follow real time.
    pub fn is_strict(self) -> bool {
        self == Self::Strict
    }
}

/// Timeouts and bounds of the engine.
#[derive(Clone, Debug)]
pub struct FuzzyParameters {
    /// Which order there is.
    pub order: FuzzyOrder,
    /// In the strict order: what a user has seen may be so far ahead of a host's clock at most, or that user's host's clock lies.
    pub clock_error_max: Duration,
    /// How often everybody looks after what is late.
    pub tick: Duration,
    /// How long an unanswered message waits before it is sent again.
    pub resend_after: Duration,
    /// An append to several partitions that is pending for so long is taken over (the paper's lease).
    pub stuck_after: Duration,
    /// Who takes over waits for so long at most before it does, at random.
    pub back_off_max: Duration,
    /// A server that was not heard for so long is taken for failed.
    pub suspect_after: Duration,
    /// How long a director waits for servers to be sealed before it goes on without those that are silent.
    pub seal_for: Duration,
    /// How long directors take nobody for failed when their log has a leader for the first time, or after a long while.
    pub start_for: Duration,
    /// A move of colours that has not ended for so long is taken back.
    pub move_for: Duration,
    /// A client asks for so long for a change of where colours are. What it asked for before must not come about after what it asks for
    /// next.
    pub change_for: Duration,
    /// Servers without which a chain does not serve; all, if it is to have fewer.
    pub replicas_min: usize,
    /// Commands that a joining server may lack when the chain is changed.
    pub behind_max: u64,
    /// Calls that a client has in flight; beyond it they are refused.
    pub calls_max: usize,
    /// Bytes of what is appended by the calls that a client has in flight. What it finishes for others may take as much again.
    pub calls_bytes_max: usize,
    /// Take-overs that a client has in flight.
    pub recoveries_max: usize,
    /// Colours of one append.
    pub colours_max: usize,
    /// Bytes of all bodies of one append.
    pub append_bytes_max: usize,
    /// Bytes of a page of nodes or commands, unless the first one is larger.
    pub page_bytes: usize,
    /// Bytes of commands that a head has ordered and the chain has not confirmed.
    pub window_bytes: usize,
    /// Bytes of all that is retained of a partition: beyond it appends are refused.
    pub live_bytes_max: usize,
    /// A server writes a snapshot when commands of so many bytes have come since the last one, and as many as that one has.
    pub snapshot_every_bytes: usize,
    /// Bytes of a chunk of a snapshot, to which one item is added.
    pub snapshot_chunk_bytes: usize,
    /// About so many bytes of nodes make a segment, which a snapshot names instead of having them.
    pub segment_bytes: usize,
    /// Bytes of commands that are applied and stay in memory, for servers that join.
    pub row_memory_bytes: usize,
    /// Appends to several partitions that a partition remembers until they are cleaned up.
    pub pending_max: usize,
    /// Users' clients that a partition remembers.
    pub clients_max: usize,
    /// A client that was silent for so long may be forgotten when there is little room: what it sends again later is executed anew.
    pub forget_after: Duration,
    /// Syncs that wait at a tail.
    pub syncs_max: usize,
    /// Another region's server that has not answered for so long is taken for cut from here, and the next one is asked. One that has nothing
    /// new waits for half as long with its answer.
    pub pull_again_after: Duration,
}

impl FuzzyParameters {
    /// In the strict order, by a clock that can be relied on: true of a time that no honest clock has come to.
    pub(crate) fn is_to_come(&self, at: AppendTime, wall: Wall) -> bool {
        let ahead = self.clock_error_max.as_micros() as u64;
        self.order.is_strict() && wall.usable && at.clock > wall.latest_micros().saturating_add(ahead)
    }
}

impl Default for FuzzyParameters {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self {
            order: FuzzyOrder::Serializable,
            clock_error_max: ms(250),
            tick: ms(20),
            resend_after: ms(60),
            stuck_after: ms(100),
            back_off_max: ms(100),
            suspect_after: ms(200),
            seal_for: ms(60),
            start_for: ms(200),
            move_for: Duration::from_secs(10),
            change_for: Duration::from_secs(30),
            replicas_min: 1,
            behind_max: 256,
            calls_max: 65_536,
            calls_bytes_max: 64 << 20,
            recoveries_max: 256,
            colours_max: 64,
            append_bytes_max: 1 << 20,
            page_bytes: 128 << 10,
            window_bytes: 8 << 20,
            live_bytes_max: 1 << 30,
            snapshot_every_bytes: 16 << 20,
            snapshot_chunk_bytes: 256 << 10,
            segment_bytes: 1 << 20,
            row_memory_bytes: 8 << 20,
            pending_max: 16_384,
            clients_max: 65_536,
            forget_after: Duration::from_secs(600),
            syncs_max: 65_536,
            pull_again_after: Duration::from_secs(1),
        }
    }
}
