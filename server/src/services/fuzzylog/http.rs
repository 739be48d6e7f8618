//! The partially ordered log over HTTP and JSON.
//!
//! Every answer has a time, `seen`. A caller sends the latest that it has with its next call, on any host: what it does then is ordered behind
//! what it has seen.

use super::body::{AppendBody, ClientBody, SnapshotBody, TrimBody};
use super::numbers::Numbered;
use super::replies::{Refused, page_in_words, positions};
use super::status::chains_in_words;
use super::{FuzzyService, nodes};
use crate::admin::state::Admin;
use crate::family::{LocalRequest, LocalResponse};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use kernel::{Decode as _, Encode as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use wire::fuzzylog::{
    AppendNodes, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, NewNode, NumberedBy, PlayColour,
    PlayedNodes, SeenTime, SnapshotColours, SyncColour, TrimColour, WAIT_MS_MAX,
};

/// How long an answer is waited for: longer than the gateway tries.
const ANSWER_WITHIN: Duration = Duration::from_secs(11);

fn service(admin: &Admin) -> Result<&FuzzyService, Refused> {
    admin.file.service::<FuzzyService>().ok_or_else(Refused::absent)
}

fn read_body<B: DeserializeOwned>(body: &[u8]) -> Result<B, Refused> {
    serde_json::from_slice(body).map_err(|why| Refused::bad(format!("the body cannot be read: {why}")))
}

fn seen(text: Option<&str>) -> Result<SeenTime, Refused> {
    let read =
        |text: &str| text.parse().map_err(|why: wire::fuzzylog::NoSeenTime| Refused::bad(why.to_string()));
    text.map_or(Ok(SeenTime::default()), read)
}

/// Asks this host's gateway.
async fn ask(admin: &Admin, call: impl Into<FuzzyCall>) -> Result<FuzzyReply, Refused> {
    let (gateway, call) = (nodes::gateway(&admin.file, service(admin)?, &admin.host), call.into());
    if let Some(fault) = call.fault() {
        return Err(Refused::fault(&fault));
    }
    let (writes, wait) = match &call {
        FuzzyCall::AppendNodes(_) | FuzzyCall::TrimColour(_) => (true, 0),
        FuzzyCall::SyncColour(call) => (false, call.wait_ms.min(WAIT_MS_MAX)),
        FuzzyCall::PlayColour(_) | FuzzyCall::SnapshotColours(_) => (false, 0),
    };
    let asked = admin.handle.request(gateway.host_slot(), LocalRequest::Service(call.encoded().into()));
    let within = ANSWER_WITHIN + Duration::from_millis(wait.into());
    let answered = tokio::time::timeout(within, asked).await;
    let reply = answered.ok().and_then(Result::ok).and_then(LocalResponse::of_service);
    match reply.and_then(|body| FuzzyReply::decoded(&body).ok()) {
        Some(FuzzyReply::FuzzyFailed(failed)) => Err(Refused::failed(&failed, writes)),
        Some(reply) => Ok(reply),
        None => {
            let nobody = FuzzyFailed { id: 0, why: FuzzyFailure::Unknown, position: 0 };
            Err(Refused::failed(&nobody, writes))
        }
    }
}

/// A page of a colour from this host's gateway.
pub(super) async fn page(admin: &Admin, call: impl Into<FuzzyCall>) -> Result<PlayedNodes, Refused> {
    match ask(admin, call).await? {
        FuzzyReply::PlayedNodes(page) => Ok(page),
        _ => Err(Refused::unexpected()),
    }
}

/// The user's number, or one of the host's, which is in use for so long.
fn numbered<'a>(
    service: &'a FuzzyService,
    client: Option<&ClientBody>,
) -> Result<(NumberedBy, Option<Numbered<'a>>), Refused> {
    if let Some(body) = client {
        let client = body.client().map_err(Refused::bad)?;
        return Ok((NumberedBy { client, number: body.number, below: body.below }, None));
    }
    let numbered = service.numbers.next().ok_or_else(|| Refused::busy("too many calls at once"))?;
    let by = NumberedBy { client: numbered.client, number: numbered.number, below: numbered.below };
    Ok((by, Some(numbered)))
}

fn names(colours: &[String]) -> Vec<kernel::Bytes> {
    colours.iter().map(|name| kernel::Bytes::copy_from_slice(name.as_bytes())).collect()
}

/// The node that is to be appended.
fn node_of(body: &AppendBody) -> Result<NewNode, Refused> {
    let bodies = match (&body.body, &body.bodies) {
        (Some(one), None) => vec![one.bytes().map_err(Refused::bad)?],
        (None, Some(each)) => {
            if let Some(unknown) = each.keys().find(|name| !body.colours.contains(name)) {
                return Err(Refused::bad(format!(
                    "bodies has one for {unknown}, which is none of the colours"
                )));
            }
            let of = |name: &String| {
                let text =
                    each.get(name).ok_or_else(|| Refused::bad(format!("bodies has none for {name}")))?;
                text.bytes().map_err(Refused::bad)
            };
            body.colours.iter().map(of).collect::<Result<_, Refused>>()?
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(Refused::bad("wanted is either body, for all colours, or bodies, one for each"));
        }
    };
    Ok(NewNode { colours: names(&body.colours), bodies })
}

/// `POST /v1/fuzzylog/append`
pub(super) async fn append(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let service = service(&admin)?;
    let body: AppendBody = read_body(&body)?;
    let (node, seen) = (node_of(&body)?, seen(body.seen.as_deref())?);
    let colours = node.colours.clone();
    let (by, _in_use) = numbered(service, body.client.as_ref())?;
    match ask(&admin, AppendNodes { id: 0, seen, by, nodes: vec![node] }).await? {
        FuzzyReply::AppendedNodes(reply) => {
            let node = reply.nodes.first().ok_or_else(Refused::unexpected)?;
            let positions = positions(&colours, &node.positions);
            let (seen, at) = (reply.seen.to_string(), node.at.to_string());
            Ok(Json(json!({ "seen": seen, "at": at, "positions": positions })).into_response())
        }
        _ => Err(Refused::unexpected()),
    }
}

/// `POST /v1/fuzzylog/snapshot`
pub(super) async fn snapshot(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let service = service(&admin)?;
    let body: SnapshotBody = read_body(&body)?;
    let (colours, seen) = (names(&body.colours), seen(body.seen.as_deref())?);
    let (by, _in_use) = numbered(service, body.client.as_ref())?;
    match ask(&admin, SnapshotColours { id: 0, seen, by, colours: colours.clone() }).await? {
        FuzzyReply::SnapshotTaken(reply) => {
            let tails = positions(&colours, &reply.tails);
            let (seen, at) = (reply.seen.to_string(), reply.at.to_string());
            Ok(Json(json!({ "seen": seen, "at": at, "tails": tails })).into_response())
        }
        _ => Err(Refused::unexpected()),
    }
}

/// What of a colour is wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SyncQuery {
    #[serde(default)]
    from: u64,
    /// Play up to here, of what a sync or a snapshot has answered, instead of finding out how far the colour goes.
    to: Option<u64>,
    seen: Option<String>,
    /// How long to wait for a node where there is none yet.
    #[serde(default)]
    wait_ms: u32,
}

/// `GET /v1/fuzzylog/colours/COLOUR`
pub(super) async fn sync(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(query): Query<SyncQuery>,
) -> Result<Response, Refused> {
    let (colour, from, wait_ms) = (kernel::Bytes::from(name.into_bytes()), query.from, query.wait_ms);
    let seen = seen(query.seen.as_deref())?;
    let call: FuzzyCall = match query.to {
        Some(to) => PlayColour { id: 0, colour, from, to }.into(),
        None => SyncColour { id: 0, seen, colour, from, wait_ms }.into(),
    };
    let mut page = page(&admin, call).await?;
    page.seen = page.seen.max(seen);
    Ok(Json(page_in_words(&page)).into_response())
}

/// `POST /v1/fuzzylog/colours/COLOUR/trim`
pub(super) async fn trim(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let TrimBody { before } = read_body(&body)?;
    match ask(&admin, TrimColour { id: 0, colour: name.into_bytes().into(), before }).await? {
        FuzzyReply::TrimmedColour(reply) => Ok(Json(json!({ "first": reply.first })).into_response()),
        _ => Err(Refused::unexpected()),
    }
}

/// `GET /v1/fuzzylog/partitions`
pub(super) async fn partitions(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    service(&admin)?;
    let file = admin.file.clone();
    let seen = admin.handle.inspect(move |view| {
        let nodes: Vec<_> = view.nodes().map(|(_, node)| node).collect();
        chains_in_words(&file, nodes.into_iter())
    });
    match seen.await {
        Ok(chains) => Ok(Json(json!({ "partitions": chains })).into_response()),
        Err(_) => Err(Refused::busy("the host does not answer")),
    }
}
