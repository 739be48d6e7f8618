//! The coordination service's part of a cluster file.

use super::ENGINES;
use crate::cluster::Limits;
use crate::cluster::values::{FileError, Values};
use crate::services::{Engine, Service};
use std::sync::Arc;
use std::time::Duration;

/// The coordination service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coordination {
    /// What orders it.
    pub engine: Engine,
    /// Where ZooKeeper's clients connect.
    pub listen: String,
    /// The same over TLS, beside the other port.
    pub listen_secure: Option<String>,
    /// Where they reach this host, if not where it listens.
    pub advertised: Option<String>,
    /// How many shards.
    pub shards: u16,
    /// How many levels of the tree are spread over them; 0 for all.
    pub spread_levels: u16,
    /// How many proxies.
    pub proxies: u16,
    /// True if reads promise no more than ZooKeeper's.
    pub sequential_reads: bool,
    /// The range of session timeouts.
    pub session_timeouts: (Duration, Duration),
    /// The largest request.
    pub request_bytes_max: usize,
    /// The largest data of a node.
    pub node_bytes_max: usize,
    /// Connections at this port; none: as `limits` has it.
    pub connections_max: Option<usize>,
    /// Those from one address.
    pub connections_per_address_max: Option<usize>,
    /// Sessions of the cluster.
    pub sessions_max: usize,
    /// Whether nodes with a time to live may be made.
    pub ttl_nodes: bool,
    /// Whether quotas' hard limits refuse.
    pub enforce_quota: bool,
    /// Requests of one connection in flight.
    pub outstanding_max: usize,
    /// Paths watched by one connection.
    pub watches_max: usize,
    /// How often nodes that have served their time are looked for.
    pub reap_every: Duration,
    /// What passwords are made from.
    pub secret: String,
    /// Who may do everything.
    pub super_digest: Option<String>,
    /// The four-letter words that are answered, with commas; `*` for all; none for those that only read.
    pub words: Option<String>,
}

/// Reads it; none if the service is off.
pub(super) fn read(values: &Values<'_>) -> Result<Option<Arc<dyn Service>>, FileError> {
    values.check_request("coordination.request_bytes_max")?;
    if values.tls()?.is_none() && values.text("listen.zookeeper_secure").is_some() {
        let help = "add [tls] with ca, cert and key; `ordinate tls init` makes them";
        return Err(FileError::new(None, "listen.zookeeper_secure is set without [tls]", help));
    }
    let Some(engine) = values.engine("coordination.engine", ENGINES) else { return Ok(None) };
    let count = |name, counts| if counts { values.number(name).unwrap_or(1) as u16 } else { 1 };
    Ok(Some(Arc::new(Coordination {
        engine,
        listen: values.text("listen.zookeeper").unwrap_or_default(),
        listen_secure: values.text("listen.zookeeper_secure"),
        advertised: values.text("listen.zookeeper_advertised"),
        shards: count("coordination.shards", engine != Engine::Paxos),
        spread_levels: values.number("coordination.spread_levels").unwrap_or(0) as u16,
        proxies: count("coordination.proxies", engine == Engine::Mason),
        sequential_reads: values.text("coordination.reads").as_deref() == Some("sequential"),
        session_timeouts: (
            values.duration("coordination.session_timeout_min"),
            values.duration("coordination.session_timeout_max"),
        ),
        request_bytes_max: values.size("coordination.request_bytes_max"),
        node_bytes_max: values.size("coordination.node_bytes_max"),
        connections_max: values.number("coordination.connections_max").map(|max| max as usize),
        connections_per_address_max: values
            .number("coordination.connections_per_address_max")
            .map(|max| max as usize),
        sessions_max: values.number("coordination.sessions_max").unwrap_or(0) as usize,
        ttl_nodes: values.is_on("coordination.ttl_nodes"),
        enforce_quota: values.is_on("coordination.enforce_quota"),
        outstanding_max: values.number("coordination.outstanding_max").unwrap_or(0) as usize,
        watches_max: values.number("coordination.watches_max").unwrap_or(0) as usize,
        reap_every: values.duration("coordination.reap_every"),
        secret: values.text("coordination.secret").or_else(|| values.text("cluster")).unwrap_or_default(),
        super_digest: values.text("coordination.super_digest"),
        words: values.text("coordination.four_letter_words"),
    })))
}

impl Coordination {
    /// True for shards under Mason, of whose sequencers one leads.
    pub fn is_over_mason(&self) -> bool {
        self.engine == Engine::Mason
    }

    /// False for one replicated state machine.
    pub fn is_sharded(&self) -> bool {
        self.engine != Engine::Paxos
    }

    /// Connections at its port, as far as there are descriptors for them.
    pub fn connections_max(&self, limits: &Limits) -> usize {
        self.connections_max.unwrap_or(limits.connections_max).min(limits.descriptors)
    }

    /// Those of them from one address.
    pub fn connections_per_address_max(&self, limits: &Limits) -> usize {
        self.connections_per_address_max.unwrap_or(limits.connections_per_address_max)
    }
}
