//! What a gateway is built with.

use crate::placement::Placement;
use kernel::NodeId;
use mason::Layout;
use parts::ReplyBounds;
use std::collections::BTreeSet;
use std::time::Duration;

/// Whom the gateway talks to; all on its own host.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The proxies, by group.
    pub proxies: Vec<NodeId>,
    /// The shards' servers, by space.
    pub shards: Vec<NodeId>,
}

/// What reads promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consistency {
    /// A read sees every write that was answered before it was sent, by any client.
    Linearizable,
    /// A read sees what its session has seen, and may miss what others have written: ZooKeeper's promise.
    Sequential,
}

/// What a gateway is built with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whom it talks to.
    pub routes: Routes,
    /// Which shard a path is in.
    pub placement: Placement,
    /// How many groups were in use at the bootstrap.
    pub layout: Layout,
    /// What reads promise.
    pub consistency: Consistency,
    /// What the server calls itself: `standalone`, `leader`, `follower`.
    pub mode: String,
    /// The version that is reported.
    pub version: String,
    /// The shortest and the longest session timeout that is granted, in milliseconds.
    pub session_timeouts: (i32, i32),
    /// The longest request, in bytes (`jute.maxbuffer`).
    pub frame_bytes_max: usize,
    /// The largest data of a node, in bytes.
    pub node_bytes_max: usize,
    /// Whether writes beyond the hard limits of quotas are refused.
    pub enforce_quota: bool,
    /// How many requests of one connection may be in flight before it is paused.
    pub outstanding_max: usize,
    /// How many operations may be in flight at one group before all connections are paused.
    pub window_max: usize,
    /// How many connections are served at a time.
    pub connections_max: usize,
    /// How many of them may come from one address; 0 for any number.
    pub connections_per_address_max: usize,
    /// How many paths one connection may watch.
    pub watches_max: usize,
    /// How many nodes a recursive delete or rename may concern.
    pub subtree_max: usize,
    /// `user:base64(sha1(user:password))` of who may do everything.
    pub super_digest: Option<String>,
    /// Whether nodes with a time to live may be made.
    pub ttl_allowed: bool,
    /// How often containers and nodes with a time to live that have served their time are looked for.
    pub reap_every: Duration,
    /// The four-letter words that are answered.
    pub words: BTreeSet<String>,
    /// A connection that has not shaken hands by then is closed.
    pub handshake_within: Duration,
    /// What users may be owed. Without a bound nobody has to report to the gateway what they have taken.
    pub replies: ReplyBounds,
}

impl Settings {
    /// With ZooKeeper's defaults, and every four-letter word that only reads.
    pub fn new(routes: Routes, placement: Placement) -> Self {
        Self {
            layout: Layout::at_bootstrap(routes.proxies.len() as u16, placement.shards()),
            routes,
            placement,
            consistency: Consistency::Linearizable,
            mode: "standalone".to_owned(),
            version: concat!("3.9.3-ordinate-", env!("CARGO_PKG_VERSION")).to_owned(),
            // Of 2 to 20 ticks of two seconds.
            session_timeouts: (4000, 40_000),
            frame_bytes_max: 1_048_575,
            node_bytes_max: 1_048_575,
            enforce_quota: false,
            outstanding_max: 1000,
            window_max: 20_000,
            connections_max: 100_000,
            connections_per_address_max: 0,
            watches_max: 100_000,
            subtree_max: 1000,
            super_digest: None,
            ttl_allowed: true,
            reap_every: Duration::from_secs(60),
            words: Self::words_that_read(),
            handshake_within: Duration::from_secs(10),
            replies: ReplyBounds::default(),
        }
    }
    /// The four-letter words that change nothing.
    pub fn words_that_read() -> BTreeSet<String> {
        let words = "ruok srvr stat mntr envi cons conf dump wchs wchc wchp isro dirs gtmk";
        words.split(' ').map(str::to_owned).collect()
    }

    /// The words of a list with commas; `*` stands for all of them.
    pub fn words_of(list: &str) -> BTreeSet<String> {
        let listed = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut words = BTreeSet::new();
        for word in listed {
            match word {
                "*" => words.extend(
                    Self::words_that_read().into_iter().chain(["crst", "srst", "stmk"].map(str::to_owned)),
                ),
                word => drop(words.insert(word.to_owned())),
            }
        }
        words
    }
}
