//! What is in the partitions of a host, for people: their colours, and appends that are not finished.

use super::http::service;
use super::replies::Refused;
use super::status::{MapStatus, servers};
use crate::admin::state::Admin;
use crate::family::HostedNode;
use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use colours::names::name_of;
use fuzzylog::{AppendId, ChainServer, Colour, NodePosition, SeveralStage};
use kernel::{Bytes, Instant};
use runtime::HostView;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Colours of an answer, unless the caller wants fewer.
const LISTED_MAX: usize = 1_000;
/// Unfinished appends of an answer, of each partition.
const UNFINISHED_MAX: usize = 256;

/// Which colours.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColoursQuery {
    partition: u16,
    /// The digest of the first one, as an answer's `next` has it.
    from: Option<String>,
    limit: Option<usize>,
}

/// A colour, and the oldest of its nodes that is left.
struct ListedColour {
    colour: Colour,
    first: NodePosition,
    tail: NodePosition,
    body: Option<Bytes>,
}

impl ListedColour {
    fn in_words(&self) -> Value {
        let name = self.body.as_ref().and_then(|body| name_of(self.colour, body));
        json!({
            "colour": name.map(|name| String::from_utf8_lossy(&name).into_owned()),
            "digest": digest(self.colour),
            "first": self.first.0,
            "tail": self.tail.0,
        })
    }
}

fn digest(colour: Colour) -> String {
    format!("{:016x}", colour.0)
}

/// `GET /v1/fuzzylog/colours`: a partition's, in the order of their digests, as far as this host has applied its commands.
pub(super) async fn colours(
    State(admin): State<Arc<Admin>>,
    Query(query): Query<ColoursQuery>,
) -> Result<Response, Refused> {
    let ColoursQuery { partition, from, limit } = query;
    let partitions = service(&admin)?.partitions;
    let read = |from: &str| {
        let digest = u64::from_str_radix(from, 16).ok().filter(|_| from.len() == 16);
        let no_digest = || Refused::bad("from is no digest of a colour: wanted are 16 hexadecimal digits");
        digest.map(Colour).ok_or_else(no_digest)
    };
    let first = from.as_deref().map_or(Ok(Colour(0)), read)?;
    let limit = limit.unwrap_or(LISTED_MAX).clamp(1, LISTED_MAX);
    let seen = admin.handle.inspect(move |view| {
        if partition >= partitions
            && !MapStatus::of(nodes(view).collect::<Vec<_>>().into_iter()).added.contains(&partition)
        {
            return Err(());
        }
        let serving = |server: &&ChainServer| server.partition().0 == partition && server.serves().is_some();
        let Some(server) = servers(nodes(view)).find(serving) else { return Ok(None) };
        let state = server.state();
        let from_first = state.colours_from(first).take(limit + 1).map(|(colour, first, tail)| {
            let body = state.nodes(colour, first).next().map(|node| node.body.clone());
            ListedColour { colour, first, tail, body }
        });
        Ok(Some((state.applied().0, from_first.collect::<Vec<_>>())))
    });
    let seen = seen.await.map_err(|_| Refused::busy("the host does not answer"))?;
    let unknown = |()| {
        Refused::bad(format!(
            "partition {partition}: the cluster has {partitions}, from 0 on, and added ones"
        ))
    };
    let seen = seen.map_err(unknown)?;
    let (applied, mut listed) = seen.ok_or_else(|| {
        Refused::busy(&format!("this host does not serve partition {partition}: ask a host of its chain"))
    })?;
    let next = if listed.len() > limit { listed.pop().map(|it| digest(it.colour)) } else { None };
    let colours: Vec<Value> = listed.iter().map(ListedColour::in_words).collect();
    let answer = json!({ "partition": partition, "applied": applied, "colours": colours, "next": next });
    Ok(Json(answer).into_response())
}

/// An append to several partitions that is not cleaned up in one of them.
struct UnfinishedAppend {
    id: AppendId,
    stage: SeveralStage,
    taken_over: u32,
    colours: Vec<Colour>,
    bodies: Vec<Bytes>,
    since: Option<Instant>,
}

impl UnfinishedAppend {
    fn in_words(&self, now: Instant) -> Value {
        let name = |colour: &Colour| {
            let name = self.bodies.iter().find_map(|body| name_of(*colour, body));
            name.map_or_else(|| digest(*colour), |name| String::from_utf8_lossy(&name).into_owned())
        };
        let stage = match self.stage {
            SeveralStage::Proposed => "proposed",
            SeveralStage::Fixed => "fixed",
            SeveralStage::Delivered => "delivered",
        };
        json!({
            "client": format!("{:016x}", self.id.client),
            "number": self.id.number,
            "colours": self.colours.iter().map(name).collect::<Vec<_>>(),
            "stage": stage,
            "taken_over": self.taken_over,
            "unchanged_ms": self.since.map(|since| now.since(since).as_millis() as u64),
        })
    }
}

/// Those of a partition that this host serves, as far as it has applied its commands.
struct UnfinishedHere {
    partition: u16,
    is_head: bool,
    count: usize,
    appends: Vec<UnfinishedAppend>,
}

impl UnfinishedHere {
    fn of(server: &ChainServer) -> Self {
        let appends = server.state().unfinished().take(UNFINISHED_MAX).map(|it| UnfinishedAppend {
            id: it.id,
            stage: it.stage,
            taken_over: it.owner.generation,
            colours: it.content.colours.clone(),
            bodies: it.content.bodies.clone(),
            since: server.unchanged_since(it.id),
        });
        Self {
            partition: server.partition().0,
            is_head: server.is_serving_head(),
            count: server.state().unfinished_count(),
            appends: appends.collect(),
        }
    }
}

/// `GET /v1/fuzzylog/stuck`: appends to several partitions that are not cleaned up. Only a head knows since when they are as they are.
pub(super) async fn stuck(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    service(&admin)?;
    let seen = admin.handle.inspect(|view| {
        let serving = servers(nodes(view)).filter(|server| server.serves().is_some());
        (view.now(), serving.map(UnfinishedHere::of).collect::<Vec<_>>())
    });
    let (now, here) = seen.await.map_err(|_| Refused::busy("the host does not answer"))?;
    let in_words = |it: &UnfinishedHere| {
        let appends: Vec<Value> = it.appends.iter().map(|append| append.in_words(now)).collect();
        let fields = json!({ "head": it.is_head, "unfinished": it.count, "appends": appends });
        (it.partition.to_string(), fields)
    };
    let partitions: Map<String, Value> = here.iter().map(in_words).collect();
    Ok(Json(json!({ "partitions": partitions })).into_response())
}

fn nodes<'a>(view: &'a HostView<'_, HostedNode>) -> impl Iterator<Item = &'a HostedNode> {
    view.nodes().map(|(_, node)| node)
}
