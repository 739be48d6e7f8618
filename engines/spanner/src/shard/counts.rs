//! What a shard's role counts, for operators.

/// What a shard's role has counted since it started, as a leader.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ShardCounts {
    /// Read-only transactions that waited here for a prepared one.
    pub blocked_reads: u64,
    /// Prepared transactions that read-only ones did not wait for.
    pub skipped: u64,
    /// Transactions that gave up their locks for an older one.
    pub wounds: u64,
}

/// Something of which there is a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundedUse {
    /// What.
    pub what: &'static str,
    /// How much of it there is now.
    pub used: usize,
    /// How much there is at most.
    pub max: usize,
}
