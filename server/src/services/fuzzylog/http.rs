//! The partially ordered log over HTTP and JSON.
//!
//! Every answer has a time, `seen`. A caller sends the latest that it has with its next call, on any host: what it does then is ordered behind
//! what it has seen.

use super::body::{AppendBody, AwaitBody, ClientBody, MoveBody, PartitionBody, SnapshotBody, TrimBody};
use super::numbers::Numbered;
use super::regions::RegionsStatus;
use super::replies::{Page, Refused, positions, time_in_words};
use super::status::{MapStatus, chains_in_words, servers};
use super::{FuzzyService, asking, nodes};
use crate::admin::state::Admin;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::fuzzylog::{
    AddPartition, AppendNodes, AppendPlayed, AwaitSnapshot, FuzzyCall, FuzzyReply, MapChanged, MoveColour,
    NameSnapshot, NewNode, NumberedBy, PlayColour, RemovePartition, SeenTime, SnapshotColours, SnapshotId,
    SnapshotIsHere, SyncColour, TrimSeen,
};

pub(super) fn service(admin: &Admin) -> Result<&FuzzyService, Refused> {
    admin.file.service::<FuzzyService>().ok_or_else(Refused::absent)
}

pub(super) fn read_body<B: DeserializeOwned>(body: &[u8]) -> Result<B, Refused> {
    serde_json::from_slice(body).map_err(|why| Refused::bad(format!("the body cannot be read: {why}")))
}

pub(super) fn seen(text: Option<&str>) -> Result<SeenTime, Refused> {
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
    let (writes, _) = asking::kind_of(&call);
    let answer = asking::ask(&admin.handle, gateway.host_slot(), call).await;
    answer.map_err(|failed| Refused::failed(&failed, writes))
}

/// A page of a colour from this host's gateway.
pub(super) async fn page(admin: &Admin, call: impl Into<FuzzyCall>) -> Result<Page, Refused> {
    let order = service(admin)?.order;
    Page::of(ask(admin, call).await?, order).ok_or_else(Refused::unexpected)
}

/// How long a region is waited for that has not all of a snapshot, unless the caller says otherwise.
const TIMEOUT_MS: u32 = 5_000;

/// Waits until this region has all of a snapshot.
async fn come_after(
    admin: &Admin,
    snapshot: &str,
    timeout_ms: Option<u32>,
) -> Result<SnapshotIsHere, Refused> {
    let snapshot = kernel::Bytes::copy_from_slice(snapshot.as_bytes());
    let wait_ms = timeout_ms.unwrap_or(TIMEOUT_MS);
    match ask(admin, AwaitSnapshot { id: 0, snapshot, wait_ms }).await? {
        FuzzyReply::SnapshotIsHere(reply) => Ok(reply),
        _ => Err(Refused::unexpected()),
    }
}

/// What the caller has seen: as it says, and with a snapshot that it has. Of that, how far each colour was played here, too.
async fn past(
    admin: &Admin,
    given: Option<&str>,
    after: Option<&str>,
    timeout_ms: Option<u32>,
) -> Result<(SeenTime, BTreeMap<String, u64>), Refused> {
    let given = seen(given)?;
    let Some(after) = after else { return Ok((given, BTreeMap::new())) };
    let here = come_after(admin, after, timeout_ms).await?;
    Ok((given.max(here.seen), tails_of(&here)?))
}

/// Positions of this region behind a snapshot, by colours.
fn tails_of(here: &SnapshotIsHere) -> Result<BTreeMap<String, u64>, Refused> {
    let id = std::str::from_utf8(&here.snapshot).ok().and_then(|text| text.parse::<SnapshotId>().ok());
    id.map(|id| id.tails).ok_or_else(Refused::unexpected)
}

/// Names what the caller has seen of colours for other regions; none if there are none.
async fn name_snapshot(
    admin: &Admin,
    seen: SeenTime,
    colours: Vec<kernel::Bytes>,
    tails: Vec<u64>,
) -> Result<Option<String>, Refused> {
    if admin.file.regions.is_empty() {
        return Ok(None);
    }
    match ask(admin, NameSnapshot { id: 0, seen, colours, tails }).await? {
        FuzzyReply::SnapshotNamed(named) => Ok(Some(String::from_utf8_lossy(&named.snapshot).into_owned())),
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
    Ok((numbered.by(), Some(numbered)))
}

/// The answer to what was numbered so.
fn ended(answer: Result<FuzzyReply, Refused>, in_use: Option<Numbered<'_>>) -> Result<FuzzyReply, Refused> {
    if answer.as_ref().err().is_none_or(|refused| !refused.is_unknown()) {
        in_use.into_iter().for_each(Numbered::answered);
    }
    answer
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
    let node = node_of(&body)?;
    let (seen, tails) = past(&admin, body.seen.as_deref(), body.after.as_deref(), body.timeout_ms).await?;
    let colours = node.colours.clone();
    let (by, in_use) = numbered(service, body.client.as_ref())?;
    let played = body.colours.iter().map(|colour| tails.get(colour).copied().unwrap_or(0)).collect();
    let call: FuzzyCall = match body.after {
        Some(_) => AppendPlayed { id: 0, seen, by, nodes: vec![node], played: vec![played] }.into(),
        None => AppendNodes { id: 0, seen, by, nodes: vec![node] }.into(),
    };
    match ended(ask(&admin, call).await, in_use)? {
        FuzzyReply::AppendedNodes(reply) => {
            let node = reply.nodes.first().ok_or_else(Refused::unexpected)?;
            let positions = positions(&colours, &node.positions);
            let mut answer = time_in_words(node.at, service.order);
            answer.insert("seen".to_owned(), json!(reply.seen.to_string()));
            answer.insert("positions".to_owned(), json!(positions));
            Ok(Json(answer).into_response())
        }
        _ => Err(Refused::unexpected()),
    }
}

/// `POST /v1/fuzzylog/snapshot`
pub(super) async fn snapshot(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let service = service(&admin)?;
    let body: SnapshotBody = read_body(&body)?;
    let colours = names(&body.colours);
    let (seen, _) = past(&admin, body.seen.as_deref(), body.after.as_deref(), body.timeout_ms).await?;
    let (by, in_use) = numbered(service, body.client.as_ref())?;
    let taken = ask(&admin, SnapshotColours { id: 0, seen, by, colours: colours.clone() }).await;
    match ended(taken, in_use)? {
        FuzzyReply::SnapshotTaken(reply) => {
            let tails = positions(&colours, &reply.tails);
            let mut answer = time_in_words(reply.at, service.order);
            answer.insert("seen".to_owned(), json!(reply.seen.to_string()));
            answer.insert("tails".to_owned(), json!(tails));
            if let Some(snapshot) = name_snapshot(&admin, reply.seen, colours, reply.tails).await? {
                answer.insert("snapshot".to_owned(), json!(snapshot));
            }
            Ok(Json(answer).into_response())
        }
        _ => Err(Refused::unexpected()),
    }
}

/// `POST /v1/fuzzylog/await`
pub(super) async fn await_snapshot(
    State(admin): State<Arc<Admin>>,
    body: Bytes,
) -> Result<Response, Refused> {
    let AwaitBody { snapshot, timeout_ms } = read_body(&body)?;
    let here = come_after(&admin, &snapshot, timeout_ms).await?;
    let (seen, snapshot) = (here.seen.to_string(), String::from_utf8_lossy(&here.snapshot));
    Ok(Json(json!({ "seen": seen, "tails": tails_of(&here)?, "snapshot": snapshot })).into_response())
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
    /// A snapshot's id, of whichever region: all that it has is there first.
    after: Option<String>,
    /// How long the region is waited for that has not all of it.
    timeout_ms: Option<u32>,
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
    let (seen, _) = past(&admin, query.seen.as_deref(), query.after.as_deref(), query.timeout_ms).await?;
    let named = colour.clone();
    let call: FuzzyCall = match query.to {
        Some(to) => PlayColour { id: 0, colour, from, to }.into(),
        None => SyncColour { id: 0, seen, colour, from, wait_ms }.into(),
    };
    let mut page = page(&admin, call).await?;
    page.nodes.seen = page.nodes.seen.max(seen);
    let mut answer = page.in_words();
    if let Some(snapshot) = name_snapshot(&admin, page.nodes.seen, vec![named], vec![page.next()]).await? {
        answer.insert("snapshot".to_owned(), json!(snapshot));
    }
    Ok(Json(answer).into_response())
}

/// `POST /v1/fuzzylog/colours/COLOUR/trim`
pub(super) async fn trim(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let TrimBody { before, seen: given } = read_body(&body)?;
    let (seen, colour) = (seen(given.as_deref())?, name.into_bytes().into());
    match ask(&admin, TrimSeen { id: 0, seen, colour, before }).await? {
        FuzzyReply::TrimmedColour(reply) => Ok(Json(json!({ "first": reply.first })).into_response()),
        _ => Err(Refused::unexpected()),
    }
}

/// Asks for a change of where colours are.
async fn change(admin: &Admin, call: impl Into<FuzzyCall>) -> Result<Response, Refused> {
    match ask(admin, call).await? {
        FuzzyReply::MapChanged(MapChanged { version, partition, .. }) => {
            Ok(Json(json!({ "partition": partition, "version": version })).into_response())
        }
        _ => Err(Refused::unexpected()),
    }
}

/// `POST /v1/fuzzylog/move`
pub(super) async fn move_colour(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let MoveBody { colour, partition } = read_body(&body)?;
    change(&admin, MoveColour { id: 0, colour: colour.into_bytes().into(), partition }).await
}

/// `POST /v1/fuzzylog/partitions`
pub(super) async fn add_partition(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let PartitionBody { partition } = read_body(&body)?;
    change(&admin, AddPartition { id: 0, partition }).await
}

/// `DELETE /v1/fuzzylog/partitions/PARTITION`
pub(super) async fn remove_partition(
    State(admin): State<Arc<Admin>>,
    Path(partition): Path<u16>,
) -> Result<Response, Refused> {
    change(&admin, RemovePartition { id: 0, partition }).await
}

/// `GET /v1/fuzzylog/partitions`
pub(super) async fn partitions(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    service(&admin)?;
    let file = admin.file.clone();
    let seen = admin.handle.inspect(move |view| {
        let nodes: Vec<_> = view.nodes().map(|(_, node)| node).collect();
        (chains_in_words(&file, nodes.iter().copied()), MapStatus::of(nodes.into_iter()))
    });
    match seen.await {
        Ok((chains, map)) => Ok(Json(json!({ "partitions": chains, "map": map })).into_response()),
        Err(_) => Err(Refused::busy("the host does not answer")),
    }
}

/// `GET /v1/fuzzylog/regions`
pub(super) async fn regions(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    service(&admin)?;
    let file = admin.file.clone();
    let seen = admin.handle.inspect(move |view| {
        let nodes: Vec<&crate::family::HostedNode> = view.nodes().map(|(_, node)| node).collect();
        RegionsStatus::of(&file, servers(nodes.into_iter()), view.now())
    });
    match seen.await {
        Ok(status) => Ok(Json(json!(status.unwrap_or_default())).into_response()),
        Err(_) => Err(Refused::busy("the host does not answer")),
    }
}
