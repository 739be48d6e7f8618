//! Transactions over Spanner: keys on shards, each a replicated log; a consistency level for each read.

mod access;
mod body;
mod http;
mod keys;
mod native;
mod nodes;
mod replies;
mod status;

pub use status::TxnStatus;

use super::records::RecordOwner;
use super::{Engine, Follower, LargeReads, Listed, NativeCalls, ReadyProbe, Service, ServiceStatus, slots};
use crate::admin::call::FenceCall;
use crate::admin::state::{Admin, HttpRoutes};
use crate::cluster::ClusterFile;
use crate::cluster::agreement::FIXED;
use crate::cluster::values::{FileError, Values};
use crate::family::{HostedNode, LocalRequest, LocalResponse};
use axum::Router;
use axum::routing::{get, post};
use kernel::{Bytes, Decode as _, Encode as _, HostSlot};
use runtime::{Agreement, HostView};
use std::sync::Arc;
use std::time::Duration;
use wire::txn::{
    Fence, KeyRange, KeyScan, ReadOnly, TO_CLIENT, TO_HOST, Timestamp, TxnCall, TxnLevel, TxnReply,
};

const ENGINES: &[Engine] = &[Engine::Spanner];
/// Calls over HTTP whose answers are not sent: each may hold 2 MiB of rows.
const CALLS_MAX: usize = 64;

/// The service's line of the list.
pub const LISTED: Listed = Listed {
    name: "txn",
    engines: ENGINES,
    keys: keys::KEYS,
    slots: &[slots::TXN],
    receivers: &[TO_HOST, TO_CLIENT],
    off: "call of the transaction service, which is off",
    read,
    check_http: access::check_http,
    reads: Some(LargeReads { max: CALLS_MAX, includes: |_, path| path.starts_with("/v1/txn") }),
    owner: |host_slot| -> Option<RecordOwner> { nodes::owner(host_slot) },
};

/// What it serves over HTTP.
pub const HTTP_ROUTES: HttpRoutes = HttpRoutes {
    service: &LISTED,
    paths: &["/v1/txn"],
    of_users: routes,
    of_operators: || Router::new().route("/v1/txn/transactions", get(http::transactions)),
};

/// A session's token as baggage carries it: 8 bytes, the least significant first.
fn token_of(carried: &[u8]) -> Result<Timestamp, String> {
    let bytes = carried.try_into().map_err(|_| "the token of txn in the baggage is malformed".to_owned())?;
    body::timestamp(u64::from_le_bytes(bytes))
}

fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/txn", post(http::transaction))
        .route("/v1/txn/begin", post(http::begin))
        .route("/v1/txn/fence", post(http::fence))
        .route("/v1/txn/status/{commit}", get(http::status))
        .route("/v1/txn/{txn}/read", post(http::read_within))
        .route("/v1/txn/{txn}/commit", post(http::commit))
        .route("/v1/txn/{txn}/abort", post(http::abort))
}

/// The transaction service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnService {
    /// How many shards.
    pub shards: u16,
    /// How many hosts hold each shard; all, if there are fewer.
    pub replicas: usize,
    /// Keys whose first parts, so many, are the same are on one shard; 0: each is placed by itself.
    pub spread_levels: u32,
    /// How long versions and outcomes are retained.
    pub keep: Duration,
    /// The most by which a client's end follows its commit timestamp.
    pub fence_bound: Duration,
    /// How long an interactive transaction may be idle.
    pub idle_max: Duration,
}

fn read(values: &Values<'_>) -> Result<Option<Arc<dyn Service>>, FileError> {
    let shards = values.number("txn.shards").unwrap_or(0) as u16;
    if shards == 0 {
        return Ok(None);
    }
    let [keep, fence_bound, idle_max] =
        ["txn.keep", "txn.fence_bound", "txn.idle_max"].map(|name| values.duration(name));
    for (name, span, least) in [
        ("txn.keep", keep, Duration::from_secs(1)),
        ("txn.fence_bound", fence_bound, Duration::from_millis(1)),
        ("txn.idle_max", idle_max, Duration::from_millis(100)),
    ] {
        if span < least {
            let what = format!("{name} is {span:?}, and must be {least:?} at least");
            return Err(FileError::new(None, what, format!("ordinate config explain {name}")));
        }
    }
    let replicas = values.number("txn.replicas").unwrap_or(3) as usize;
    if replicas > values.hosts && values.is_set("txn.replicas") {
        let hosts = values.hosts;
        let what =
            format!("txn.replicas is {replicas}, and there are {hosts} hosts: each holds a shard once");
        return Err(FileError::new(None, what, "ordinate config explain txn.replicas"));
    }
    let spread_levels = values.number("txn.spread_levels").unwrap_or(0) as u32;
    Ok(Some(Arc::new(TxnService { shards, replicas, spread_levels, keep, fence_bound, idle_max })))
}

impl Service for TxnService {
    fn listed(&self) -> &'static Listed {
        &LISTED
    }

    fn engine(&self) -> Engine {
        Engine::Spanner
    }

    /// Commit timestamps are bounded by true time.
    fn needs_clock(&self) -> bool {
        true
    }

    fn agree(&self, agreement: &mut Agreement) {
        agreement.add("txn.engine", self.engine().name(), FIXED);
        agreement.add("txn.shards", &self.shards.to_string(), FIXED);
        agreement.add("txn.spread_levels", &self.spread_levels.to_string(), FIXED);
        agreement.add("txn.replicas", &self.replicas.to_string(), !FIXED);
        for (name, span) in
            [("txn.keep", self.keep), ("txn.fence_bound", self.fence_bound), ("txn.idle_max", self.idle_max)]
        {
            agreement.add(name, &format!("{span:?}"), !FIXED);
        }
    }

    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
        nodes::nodes(file, self, host, joins)
    }

    fn followers(&self, file: &ClusterFile, host: &str) -> Vec<Follower> {
        nodes::followers(file, self, host)
    }

    fn native(&self, file: &ClusterFile, host: &str) -> Option<Box<dyn NativeCalls>> {
        Some(Box::new(native::Calls { gateway: nodes::gateway(file, self, host) }))
    }

    /// A strict read of one row of every shard.
    fn probe(&self, file: &ClusterFile, host: &str) -> ReadyProbe {
        ReadyProbe {
            host_slot: nodes::gateway(file, self, host).host_slot(),
            request: || {
                let range = KeyRange { start: Bytes::new(), end: None };
                let call = ReadOnly {
                    id: 0,
                    token: Timestamp(0),
                    level: TxnLevel::Strict,
                    keys: Vec::new(),
                    scans: vec![KeyScan { range, limit: 1 }],
                };
                LocalRequest::Service(TxnCall::ReadOnly(call).encoded().into())
            },
            is_logged: true,
            accepts: |answer| {
                let LocalResponse::Service(body) = answer else { return false };
                matches!(TxnReply::decoded(body), Ok(TxnReply::ReadRows(_)))
            },
        }
    }

    fn fence(
        &self,
        file: &ClusterFile,
        host: &str,
        token: Option<&[u8]>,
    ) -> Result<Option<FenceCall>, String> {
        let Some(token) = token else { return Ok(None) };
        let token = token_of(token)?;
        Ok(Some(FenceCall {
            host_slot: nodes::gateway(file, self, host).host_slot(),
            request: LocalRequest::Service(TxnCall::Fence(Fence { id: 0, token }).encoded().into()),
            has_passed: |answer| {
                let LocalResponse::Service(body) = answer else { return false };
                matches!(TxnReply::decoded(body), Ok(TxnReply::Fenced(_)))
            },
        }))
    }

    fn status(&self, _file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus> {
        Box::new(TxnStatus::of(view.nodes().map(|(_, node)| node), view.now()))
    }

    fn banner(&self, file: &ClusterFile) -> Vec<(&'static str, String)> {
        let replicas = self.replicas.min(file.hosts.len());
        vec![("txn", format!("spanner, {} shards on {replicas} hosts each", self.shards))]
    }
}
