//! The sessions of the coordination service, page by page.

use super::{Coordination, member_of, over_fuzzylog};
use crate::admin::state::Admin;
use crate::family::{CoordinationMember, HostedNode};
use crate::status::ANSWER_WITHIN;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coordination::wire::ZkSessionId;
use coordination::{HomeShard, Znodes};
use kernel::HostId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// Sessions of one page at most: the reactor does nothing else while it collects them.
const LIMIT_MAX: usize = 1000;

/// Which page.
#[derive(Deserialize)]
pub struct Page {
    /// The last session of the page before, as `0x...`.
    after: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Line {
    session: String,
    timeout_ms: u32,
    expires_in_ms: u64,
    host: String,
    address: String,
    ephemerals: usize,
    closing: bool,
}

/// Answers `{"sessions": [...], "more": bool}`, in the order of their numbers, as this host has executed them.
pub async fn list(State(admin): State<Arc<Admin>>, Query(page): Query<Page>) -> Response {
    let refuse = |code: StatusCode, error: &str| (code, Json(json!({ "error": error }))).into_response();
    let Some(after) = page.after.as_deref().map_or(Some(0), number) else {
        return refuse(StatusCode::BAD_REQUEST, "after is no session: wanted 0x and hexadecimal digits");
    };
    let limit = page.limit.unwrap_or(LIMIT_MAX).clamp(1, LIMIT_MAX);
    if admin.file.service::<Coordination>().is_none() {
        return refuse(StatusCode::NOT_FOUND, "the coordination service is off: coordination.engine");
    }
    let names: Vec<String> = admin.file.hosts.iter().map(|host| host.name.clone()).collect();
    let found = admin.handle.inspect(move |view| {
        let nodes: Vec<&HostedNode> = view.nodes().map(|(_, node): (_, &HostedNode)| node).collect();
        collect(&nodes, ZkSessionId(after), limit, &names)
    });
    match tokio::time::timeout(ANSWER_WITHIN, found).await {
        Ok(Ok(found)) => Json(found).into_response(),
        Ok(Err(_)) | Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer"),
    }
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn collect(nodes: &[&HostedNode], after: ZkSessionId, limit: usize, names: &[String]) -> Value {
    let members: Vec<&CoordinationMember> = nodes.iter().filter_map(|node| member_of(node)).collect();
    let homes = nodes.iter().filter_map(|node| over_fuzzylog::home_of(node));
    let homes: Vec<&HomeShard> = homes.map(|home| home.service()).collect();
    let replicas = members.iter().filter_map(|member| match member {
        mason::MasonMember::Log(embedded) => match embedded.node() {
            paxos::Member::Replica(replica) => Some(replica.machine()),
            _ => None,
        },
        _ => None,
    });
    let mut groups: Vec<_> = replicas.collect();
    groups.sort_by_key(|machine| machine.group());
    let shards: Vec<&Znodes> = members
        .iter()
        .filter_map(|member| match member {
            mason::MasonMember::Shard(server) => Some(server.service()),
            _ => None,
        })
        .collect();
    let pages = groups.iter().map(|machine| machine.stub().after(after, machine.now()).take(limit + 1));
    let of_homes = homes.iter().map(|home| home.sessions().after(after, home.now()).take(limit + 1));
    let mut sessions: Vec<_> = pages.flatten().chain(of_homes.flatten()).collect();
    sessions.sort_by_key(|view| view.session);
    let mut lines: Vec<Line> = Vec::new();
    let mut more = false;
    for view in sessions {
        if lines.len() == limit {
            more = true;
            break;
        }
        let host = names.iter().find(|name| HostId::named(name) == view.gateway.host());
        lines.push(Line {
            session: format!("{:#x}", view.session.0),
            timeout_ms: view.timeout,
            expires_in_ms: view.expires_in,
            host: host.cloned().unwrap_or_else(|| format!("{:?}", view.gateway.host())),
            address: view.address.to_owned(),
            ephemerals: shards.iter().map(|shard| shard.ephemerals_of(view.session)).sum(),
            closing: view.closing,
        });
    }
    json!({ "sessions": lines, "more": more })
}
