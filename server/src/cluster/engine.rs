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
    /// Colours on chains of servers, ordered as far as they must be.
    FuzzyLog,
}

impl Engine {
    /// As the cluster file writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paxos => "paxos",
            Self::Mason => "mason",
            Self::Corfu => "corfu",
            Self::Spanner => "spanner",
            Self::FuzzyLog => "fuzzylog",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
