//! The numbers that tune the engine.

use std::time::Duration;

/// Timeouts and bounds. Equal on all hosts.
#[derive(Clone, Debug)]
pub struct SpannerParameters {
    /// How often roles look after what is late.
    pub tick: Duration,
    /// How long an unanswered message waits before it is sent again.
    pub resend_after: Duration,
    /// How far ahead of its reads a leader logs its horizon. What a leader change costs in commit wait, at most.
    pub horizon_ahead: Duration,
    /// What is closed moves on while it is wanted, this often.
    pub close_every: Duration,
    /// A gateway that is silent for so long is dead: its transactions that are not prepared abort.
    pub owner_silence: Duration,
    /// How often a gateway reports that it is alive.
    pub owner_alive_every: Duration,
    /// How long versions and outcomes are retained. A call is not committed later than half of it after it was sent, so a user who sends it
    /// again within the other half has it executed once.
    pub keep: Duration,
    /// The most by which a client's end may follow its commit timestamp (L): what a fence waits for.
    pub fence_bound: Duration,
    /// How far clocks may differ: a read further in the future is refused.
    pub clock_error_max: Duration,
    /// A participant whose coordinator is silent for so long asks it to abort what it does not know.
    pub doubt_after: Duration,
    /// How long a coordinator waits for the other participants before it aborts.
    pub collect_for: Duration,
    /// How long an interactive transaction may be idle.
    pub idle_max: Duration,
    /// How long a one-shot transaction is tried.
    pub try_for: Duration,
    /// How many hosts hold a shard; all, if there are fewer.
    pub replicas: usize,
    /// A host that is to lead a shard asks for it when it could have led for so long.
    pub lead_after: Duration,
    /// Steps of a leader that are on their way to its log.
    pub steps_max: usize,
    /// The most that a step holds, in bytes.
    pub step_bytes_max: usize,
    /// Changes that wait for a step, in bytes; more are refused as busy.
    pub queue_bytes_max: usize,
    /// Transactions that a leader has in progress.
    pub transactions_max: usize,
    /// Locks that a leader gives.
    pub locks_max: usize,
    /// Reads that wait at a shard.
    pub waiting_reads_max: usize,
    /// Calls that a gateway has in progress.
    pub calls_max: usize,
}

impl SpannerParameters {
    /// What suits a local network.
    pub const DEFAULT: Self = Self {
        tick: Duration::from_millis(10),
        resend_after: Duration::from_millis(100),
        horizon_ahead: Duration::from_millis(200),
        close_every: Duration::from_millis(20),
        owner_silence: Duration::from_millis(500),
        owner_alive_every: Duration::from_millis(200),
        keep: Duration::from_secs(600),
        fence_bound: Duration::from_millis(500),
        clock_error_max: Duration::from_millis(250),
        doubt_after: Duration::from_millis(500),
        collect_for: Duration::from_secs(10),
        idle_max: Duration::from_secs(10),
        try_for: Duration::from_secs(10),
        replicas: 3,
        lead_after: Duration::from_secs(10),
        steps_max: 8,
        step_bytes_max: 256 << 10,
        queue_bytes_max: 16 << 20,
        transactions_max: 65_536,
        locks_max: 1_000_000,
        waiting_reads_max: 65_536,
        calls_max: 65_536,
    };
}

impl SpannerParameters {
    /// How long a commit waits for locks before its coordinator aborts it: its user is still there, and learns that nothing was executed.
    pub(crate) fn lock_wait_max(&self) -> Duration {
        self.try_for / 2
    }
}

impl Default for SpannerParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}
