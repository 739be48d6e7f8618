//! What a proxy leader can be sent.

use crate::multipaxos::{Message, Pulse};
use crate::value::Value;
use parts::{Ballot, Slot};

kernel::messages! {
    /// Everything a proxy leader can be sent.
    pub enum ProxyLeaderIn in Message::ProxyLeader {
        /// From the leader: get this chosen.
        1 => Assign {
            /// The leader's ballot.
            ballot: Ballot,
            /// The slot it assigned.
            slot: Slot,
            /// The configuration that governs the slot.
            version: u64,
            /// The proposal.
            value: Value,
        },
        /// From an acceptor: voted, durably.
        /// Promise: it has this vote for good.
        2 => Phase2b {
            /// In which ballot.
            ballot: Ballot,
            /// For which slot.
            slot: Slot,
        },
        /// From an acceptor: I promised a higher ballot.
        3 => Nack {
            /// The slot asked for.
            slot: Slot,
            /// The higher ballot.
            promised: Ballot,
        },
        /// From the leader.
        4 => Heartbeat {
            /// What it sends everybody.
            pulse: Pulse,
        },
    }
}
