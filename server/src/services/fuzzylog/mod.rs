//! The partially ordered log: colours on chains of servers, appends to several of them at once, over FuzzyLog.

mod access;
mod asking;
mod body;
mod http;
mod keys;
mod listing;
mod maps;
mod native;
mod nodes;
mod numbers;
mod regions;
mod replies;
mod status;
mod tail;

pub use maps::{MapLimits, MapsStatus};
pub(crate) use nodes::{chain_parameters, slot_owner};
pub use regions::OtherRegionStatus;
pub use status::{ChainServerStatus, ChainStatus, FuzzyStatus};

use super::records::RecordOwner;
use super::status::ServiceStatus;
use super::{Engine, Follower, LargeReads, Listed, NativeCalls, ReadyProbe, Service, slots};
use crate::admin::state::{Admin, HttpRoutes};
use crate::cluster::ClusterFile;
use crate::cluster::agreement::FIXED;
use crate::cluster::values::{FileError, Values};
use crate::family::{HostedNode, LocalRequest, LocalResponse};
use axum::http::Method;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use fuzzylog::FuzzyOrder;
use kernel::bounds::RECORD_BYTES_MAX;
use kernel::{Bytes, Decode as _, Encode as _, HostSlot};
use numbers::Numbers;
use runtime::{Agreement, HostView};
use std::sync::Arc;
use wire::fuzzylog::{FuzzyCall, FuzzyFailure, FuzzyReply, SeenTime, SyncColour, TO_CLIENT, TO_HOST};

const ENGINES: &[Engine] = &[Engine::FuzzyLog];
/// Plays over HTTP whose answers are not sent: each may hold a page and the largest node.
const PLAYS_MAX: usize = 64;
/// Snapshots are not written for less.
const SNAPSHOT_BYTES_MIN: usize = 64 << 10;
/// Smaller ones are too many files; four of them are in memory once more on their way to the disk, and what a snapshot has of nodes in none is
/// in one record of the journal.
const SEGMENT_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;
const _: () = assert!(
    fuzzylog::partition::segments::loose_bytes_max(*SEGMENT_BYTES.end()) <= RECORD_BYTES_MAX / 2,
    "a chunk of a snapshot fits in a record with them"
);
/// Views of maps and a page of the log, and not less.
const MAP_BYTES_MIN: usize = 1 << 20;
/// A view is not stored for less.
const MAP_LOG_BYTES_MIN: usize = 4 << 10;
/// The colour that is looked at to know whether a partition serves.
const PROBED: &[u8] = b"ordinate.probed";

/// The service's line of the list.
pub const LISTED: Listed = Listed {
    name: "fuzzylog",
    engines: ENGINES,
    keys: keys::KEYS,
    slots: &[slots::FUZZYLOG],
    receivers: &[TO_HOST, TO_CLIENT],
    off: "call of the partially ordered log, which is off",
    read,
    check_http: access::check_http,
    reads: Some(LargeReads {
        max: PLAYS_MAX,
        includes: |method, path| {
            let colour = path.strip_prefix("/v1/fuzzylog/colours/");
            let is_page = *method == Method::GET && colour.is_some_and(|rest| !rest.contains('/'));
            let is_read = *method == Method::POST && path.ends_with("/get");
            let is_scan = *method == Method::GET && path.ends_with("/keys");
            is_page || (path.starts_with("/v1/map/") && (is_read || is_scan))
        },
    }),
    owner: |host_slot| -> Option<RecordOwner> { nodes::owner(host_slot) },
};

/// What it serves over HTTP.
pub const HTTP_ROUTES: HttpRoutes = HttpRoutes {
    service: &LISTED,
    paths: &["/v1/fuzzylog", "/v1/map"],
    of_users: routes,
    of_operators: || {
        Router::new()
            .route("/v1/fuzzylog/partitions", get(http::partitions).post(http::add_partition))
            .route("/v1/fuzzylog/partitions/{partition}", delete(http::remove_partition))
            .route("/v1/fuzzylog/move", post(http::move_colour))
            .route("/v1/fuzzylog/regions", get(http::regions))
            .route("/v1/fuzzylog/stuck", get(listing::stuck))
    },
};

fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/fuzzylog/append", post(http::append))
        .route("/v1/fuzzylog/snapshot", post(http::snapshot))
        .route("/v1/fuzzylog/await", post(http::await_snapshot))
        .route("/v1/fuzzylog/colours", get(listing::colours))
        .route("/v1/fuzzylog/colours/{colour}", get(http::sync))
        .route("/v1/fuzzylog/colours/{colour}/trim", post(http::trim))
        .route("/v1/fuzzylog/colours/{colour}/tail", get(tail::tail))
        .merge(maps::routes())
        .layer(Extension(crate::services::events::Readers::default()))
}

/// The partially ordered log.
#[derive(Clone, Debug)]
pub struct FuzzyService {
    /// How many partitions colours are distributed among.
    pub partitions: u16,
    /// Which order there is.
    pub order: FuzzyOrder,
    /// How many hosts hold each partition; all, while there are fewer.
    pub replicas: usize,
    /// A partition whose chain has fewer servers does not serve.
    pub replicas_min: usize,
    /// How much may live of a partition.
    pub partition_bytes: usize,
    /// A host writes a snapshot when commands of so many bytes have come.
    pub snapshot_bytes: usize,
    /// So many bytes of nodes make a segment.
    pub segment_bytes: usize,
    /// What maps may take at a host.
    pub map_limits: MapLimits,
    /// Names the appends of users who do not name theirs.
    numbers: Arc<Numbers>,
    maps: Arc<maps::MapsOfHosts>,
}

fn read(values: &Values<'_>) -> Result<Option<Arc<dyn Service>>, FileError> {
    let partitions = values.number("fuzzylog.partitions").unwrap_or(0) as u16;
    if partitions == 0 {
        return Ok(None);
    }
    let number = |name: &str, default: usize| values.number(name).map_or(default, |it| it as usize);
    let replicas = number("fuzzylog.replicas", 3);
    let hosts = values.hosts;
    if replicas > hosts && values.is_set("fuzzylog.replicas") {
        let what = format!(
            "fuzzylog.replicas is {replicas}, and there are {hosts} hosts: each holds a partition once"
        );
        return Err(FileError::new(None, what, "ordinate config explain fuzzylog.replicas"));
    }
    let replicas_min = number("fuzzylog.replicas_min", 2);
    let servers = replicas.min(hosts);
    if replicas_min > servers && values.is_set("fuzzylog.replicas_min") {
        let what = format!(
            "fuzzylog.replicas_min is {replicas_min}, and a chain has {servers} servers: none would ever serve"
        );
        return Err(FileError::new(None, what, "ordinate config explain fuzzylog.replicas_min"));
    }
    let replicas_min = replicas_min.min(replicas);
    let numbers = Arc::new(Numbers::drawn());
    let partition_bytes = values.size("fuzzylog.partition_bytes");
    let snapshot_bytes = values.size("fuzzylog.snapshot_bytes");
    if snapshot_bytes < SNAPSHOT_BYTES_MIN {
        let what = format!(
            "fuzzylog.snapshot_bytes is {snapshot_bytes}, and {SNAPSHOT_BYTES_MIN} is the least that there is to write"
        );
        return Err(FileError::new(None, what, "ordinate config explain fuzzylog.snapshot_bytes"));
    }
    let segment_bytes = values.size("fuzzylog.segment_bytes");
    if !SEGMENT_BYTES.contains(&segment_bytes) {
        let (least, most) = (SEGMENT_BYTES.start(), SEGMENT_BYTES.end());
        let what = format!("fuzzylog.segment_bytes is {segment_bytes}, and may be {least} to {most}");
        return Err(FileError::new(None, what, "ordinate config explain fuzzylog.segment_bytes"));
    }
    Ok(Some(Arc::new(FuzzyService {
        partitions,
        order: match values.text("fuzzylog.order").as_deref() {
            Some("strict") => FuzzyOrder::Strict,
            _ => FuzzyOrder::Serializable,
        },
        replicas,
        replicas_min,
        partition_bytes,
        snapshot_bytes,
        segment_bytes,
        map_limits: map_limits(values)?,
        numbers,
        maps: Arc::default(),
    })))
}

fn map_limits(values: &Values<'_>) -> Result<MapLimits, FileError> {
    let bytes = values.size("fuzzylog.map_bytes");
    let log_bytes = values.size("fuzzylog.map_log_bytes");
    for (key, size, least) in
        [("map_bytes", bytes, MAP_BYTES_MIN), ("map_log_bytes", log_bytes, MAP_LOG_BYTES_MIN)]
    {
        if size < least {
            let what = format!("fuzzylog.{key} is {size}, and {least} is the least");
            return Err(FileError::new(None, what, format!("ordinate config explain fuzzylog.{key}")));
        }
    }
    Ok(MapLimits { bytes, log_bytes: log_bytes as u64 })
}

impl Service for FuzzyService {
    fn listed(&self) -> &'static Listed {
        &LISTED
    }

    fn engine(&self) -> Engine {
        Engine::FuzzyLog
    }

    /// In the strict order times are bounded by true time.
    fn needs_clock(&self) -> bool {
        self.order.is_strict()
    }

    fn agree(&self, agreement: &mut Agreement) {
        // The order is said with the engine: earlier versions know no order, and what only one side says is not compared.
        let engine = match self.order {
            FuzzyOrder::Serializable => self.engine().name().to_owned(),
            FuzzyOrder::Strict => format!("{} with order strict", self.engine().name()),
        };
        agreement.add("fuzzylog.engine", &engine, FIXED);
        agreement.add("fuzzylog.partitions", &self.partitions.to_string(), FIXED);
        // An earlier version has compared how many hosts there were to begin with, by a shorter name.
        agreement.add("fuzzylog.replicas wanted", &self.replicas.to_string(), !FIXED);
        agreement.add("fuzzylog.replicas_min", &self.replicas_min.to_string(), !FIXED);
    }

    fn is_in_cuts(&self) -> bool {
        false
    }

    fn goes_with_regions(&self) -> Result<(), &'static str> {
        match self.order {
            FuzzyOrder::Serializable => Ok(()),
            FuzzyOrder::Strict => Err("fuzzylog.order is \"strict\", and each region orders by itself"),
        }
    }

    fn nodes(&self, file: &ClusterFile, host: &str, joins: bool) -> Vec<(HostSlot, HostedNode)> {
        nodes::nodes(file, self, host, joins)
    }

    fn followers(&self, file: &ClusterFile, host: &str) -> Vec<Follower> {
        vec![nodes::follower(file, self, host)]
    }

    fn native(&self, file: &ClusterFile, host: &str) -> Option<Box<dyn NativeCalls>> {
        Some(Box::new(native::Calls { gateway: nodes::gateway(file, self, host) }))
    }

    /// A sync of a colour, which asks all servers of one partition's chain.
    fn probe(&self, file: &ClusterFile, host: &str) -> ReadyProbe {
        ReadyProbe {
            host_slot: nodes::gateway(file, self, host).host_slot(),
            request: || {
                let (colour, seen) = (Bytes::from_static(PROBED), SeenTime::default());
                let call = FuzzyCall::from(SyncColour { id: 0, seen, colour, from: 0, wait_ms: 0 });
                LocalRequest::Service(call.encoded().into())
            },
            is_logged: false,
            accepts: |answer| {
                let LocalResponse::Service(body) = answer else { return false };
                match FuzzyReply::decoded(body) {
                    Ok(FuzzyReply::PlayedNodes(_) | FuzzyReply::PlayedAcross(_)) => true,
                    // Somebody uses the colour.
                    Ok(FuzzyReply::FuzzyFailed(failed)) => failed.why == FuzzyFailure::Trimmed,
                    Ok(_) | Err(_) => false,
                }
            },
        }
    }

    fn status(&self, file: &ClusterFile, view: &HostView<'_, HostedNode>) -> Box<dyn ServiceStatus> {
        let host = view.nodes().next().map(|(node, _)| node.host());
        let maps = self.maps.status(host, self.map_limits);
        let order = if self.order.is_strict() { "strict" } else { "serializable" };
        Box::new(FuzzyStatus { maps, order, ..FuzzyStatus::of(file, view.nodes(), view.now()) })
    }

    fn banner(&self, file: &ClusterFile) -> Vec<(&'static str, String)> {
        let (partitions, replicas) = (self.partitions, self.replicas.min(file.hosts.len()));
        let order = if self.order.is_strict() { ", in the strict order" } else { "" };
        vec![("fuzzylog", format!("fuzzylog, {partitions} partitions on {replicas} hosts each{order}"))]
    }
}
