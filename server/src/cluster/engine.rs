//! What orders a service.

use std::fmt;

/// What orders a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// One replicated state machine.
    Paxos,
    /// Shards under a contiguous multi-sequence.
    Mason,
    /// One log by a bare sequencer and chains of servers.
    Corfu,
    /// Shards that are replicated logs, under clocks of known error and locks.
    Spanner,
}

impl Engine {
    /// As the cluster file writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paxos => "paxos",
            Self::Mason => "mason",
            Self::Corfu => "corfu",
            Self::Spanner => "spanner",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
