//! What a host's server reports to its gateway, for the four-letter words: what only the process knows.

use kernel::Bytes;

kernel::record! {
    /// Names and values under the names that ZooKeeper uses.
    pub struct HostFacts {
        /// `leader` on the host whose sequencer allocates, `follower` on others, `standalone` alone.
        mode: String,
        /// More of `mntr`, without the prefix `zk_`.
        monitor: Vec<(String, String)>,
        /// More of `conf`.
        settings: Vec<(String, String)>,
        /// More of `envi`.
        environment: Vec<(String, String)>,
    }
}

kernel::record! {
    /// A call of the host's server to its gateway.
    pub struct HostCall {
        /// Where the gateway is to be reached: a `Body::Advertise`.
        advertises: Option<Bytes>,
        /// Replaces what was reported before.
        facts: Option<HostFacts>,
        /// Asks whether users would be served now: see `Gateway::READY`.
        probes: bool,
    }
}

impl HostFacts {
    /// Of a host that has no report yet.
    pub fn of_mode(mode: &str) -> Self {
        Self { mode: mode.to_owned(), monitor: Vec::new(), settings: Vec::new(), environment: Vec::new() }
    }
}
