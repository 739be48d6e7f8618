//! The partially ordered log over HTTP and JSON.
//!
//! Every answer has a time, `seen`. A caller sends the latest that it has with its next call, on any host: what it does then is ordered behind
//! what it has seen.

use super::body::{
    AppendBody, ClientBody, NamedBody, SnapshotBody, TrimBody, check_name, colour_of, colours_of,
    seen_in_words, seen_of,
};
use super::numbers::Numbered;
use super::status::chains_in_words;
use super::{FuzzyService, nodes};
use crate::admin::state::Admin;
use crate::family::{LocalRequest, LocalResponse};
use crate::services::json_bytes::put_bytes;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fuzzylog::{
    AppendCall, AppendTime, Colour, ColourNode, Content, ContentFlaw, FuzzyRefusal, FuzzyRequest,
    FuzzyResponse, NodePosition, PlayCall, PlayedPage, SnapshotCall, SyncCall, TrimCall,
};
use kernel::{Decode as _, Encode as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A call that came to nothing, and whether it may have been executed.
pub(super) struct Refused {
    status: StatusCode,
    body: Value,
}

impl Refused {
    fn new(status: StatusCode, why: &str, executed: Option<bool>, retry: bool) -> Self {
        Self { status, body: json!({ "error": why, "executed": executed, "retry": retry }) }
    }

    fn bad(why: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why.as_ref(), Some(false), false)
    }

    fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many calls at once", Some(false), true)
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Value::Object(fields) = &mut self.body {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let again = self.status == StatusCode::SERVICE_UNAVAILABLE;
        let response = (self.status, Json(self.body)).into_response();
        if again { ([(header::RETRY_AFTER, "1")], response).into_response() } else { response }
    }
}

fn service(admin: &Admin) -> Result<&FuzzyService, Refused> {
    let off = "there is no partially ordered log: fuzzylog.partitions is 0";
    let absent = || Refused::new(StatusCode::NOT_FOUND, off, Some(false), false);
    admin.file.service::<FuzzyService>().ok_or_else(absent)
}

fn read_body<B: DeserializeOwned>(body: &[u8]) -> Result<B, Refused> {
    serde_json::from_slice(body).map_err(|why| Refused::bad(format!("the body cannot be read: {why}")))
}

fn seen(text: Option<&str>) -> Result<AppendTime, Refused> {
    text.map_or(Ok(AppendTime::ZERO), |text| seen_of(text).map_err(Refused::bad))
}

/// Asks this host's client; `writes`: it may have been executed although nobody answers.
async fn ask(admin: &Admin, request: FuzzyRequest, writes: bool) -> Result<FuzzyResponse, Refused> {
    let client = nodes::client(&admin.file, service(admin)?, &admin.host);
    let asked = admin.handle.request(client, LocalRequest::Fuzzy(request));
    let answered = tokio::time::timeout(ANSWER_WITHIN, asked).await;
    match answered.ok().and_then(Result::ok).and_then(LocalResponse::of_fuzzylog) {
        Some(FuzzyResponse::Refused(refusal)) => Err(refused(refusal)),
        Some(FuzzyResponse::AlreadyTrimmed { first }) => {
            let why = "it was trimmed: go on at \"first\", with the state before it from elsewhere";
            Err(Refused::new(StatusCode::GONE, why, Some(false), false).with("first", first.0))
        }
        Some(response) => Ok(response),
        None => {
            let (why, executed) = if writes {
                ("no answer in time: it may have been executed, or still be", None)
            } else {
                ("no answer in time", Some(false))
            };
            Err(Refused::new(StatusCode::GATEWAY_TIMEOUT, why, executed, true))
        }
    }
}

fn refused(refusal: FuzzyRefusal) -> Refused {
    match refusal {
        FuzzyRefusal::Busy => Refused::busy(),
        FuzzyRefusal::Full => {
            let why = "the colours' partition has as much as fuzzylog.partition_bytes allows";
            Refused::new(StatusCode::INSUFFICIENT_STORAGE, why, None, false)
        }
        FuzzyRefusal::Content(flaw) => Refused::bad(match flaw {
            ContentFlaw::NoColours => "it names no colour",
            ContentFlaw::TooManyColours => "it names more than 64 colours",
            ContentFlaw::ColoursNotDistinct => "it names a colour twice",
            ContentFlaw::BodiesDoNotMatch => "it has not one body for each colour",
            ContentFlaw::TooLarge => "its bodies have more than 1 MiB together",
        }),
        FuzzyRefusal::NumberOutOfRange => {
            Refused::bad("client.number is below client.below, or 1,024 or more above it")
        }
        FuzzyRefusal::Forgotten => {
            Refused::new(StatusCode::CONFLICT, "the client has the answer to this number", None, false)
        }
        FuzzyRefusal::NumberUsed => Refused::new(
            StatusCode::CONFLICT,
            "the client has used this number for something else",
            Some(false),
            false,
        ),
        FuzzyRefusal::BeyondTail { tail } => {
            Refused::new(StatusCode::RANGE_NOT_SATISFIABLE, "beyond the colour's end", Some(false), false)
                .with("tail", tail.0)
        }
    }
}

fn unexpected() -> Refused {
    Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "an answer to something else", None, false)
}

/// The user's number, or one of the host's.
struct Named<'a> {
    client: u64,
    number: u64,
    below: u64,
    _in_use: Option<Numbered<'a>>,
}

fn named<'a>(service: &'a FuzzyService, client: Option<&ClientBody>) -> Result<Named<'a>, Refused> {
    if let Some(body) = client {
        let client = body.client().map_err(Refused::bad)?;
        return Ok(Named { client, number: body.number, below: body.below, _in_use: None });
    }
    let numbered = service.numbers.next().ok_or_else(Refused::busy)?;
    let (client, number, below) = (numbered.client, numbered.number, numbered.below);
    Ok(Named { client, number, below, _in_use: Some(numbered) })
}

/// What nodes hold: the colours' names beside each body.
fn content_of(body: &AppendBody, colours: &BTreeMap<Colour, String>) -> Result<Content, Refused> {
    let names: Vec<kernel::Bytes> =
        colours.values().map(|name| kernel::Bytes::copy_from_slice(name.as_bytes())).collect();
    let named =
        |body: kernel::Bytes| kernel::Bytes::from(NamedBody { colours: names.clone(), body }.encoded());
    let bodies = match (&body.body, &body.bodies) {
        (Some(one), None) => vec![named(one.bytes().map_err(Refused::bad)?)],
        (None, Some(each)) => {
            if let Some(unknown) = each.keys().find(|name| !body.colours.contains(name)) {
                return Err(Refused::bad(format!(
                    "bodies has one for {unknown}, which is none of the colours"
                )));
            }
            let of = |name: &String| {
                let text =
                    each.get(name).ok_or_else(|| Refused::bad(format!("bodies has none for {name}")))?;
                Ok(named(text.bytes().map_err(Refused::bad)?))
            };
            colours.values().map(of).collect::<Result<_, Refused>>()?
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(Refused::bad("wanted is either body, for all colours, or bodies, one for each"));
        }
    };
    Ok(Content { colours: colours.keys().copied().collect(), bodies })
}

/// `POST /v1/fuzzylog/append`
pub(super) async fn append(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let service = service(&admin)?;
    let body: AppendBody = read_body(&body)?;
    let colours = colours_of(&body.colours).map_err(Refused::bad)?;
    let (content, seen) = (content_of(&body, &colours)?, seen(body.seen.as_deref())?);
    let named = named(service, body.client.as_ref())?;
    let (client, number, below) = (named.client, named.number, named.below);
    let call = AppendCall { client, number, below, seen, content };
    match ask(&admin, FuzzyRequest::Append(call), true).await? {
        FuzzyResponse::Appended { at, placed } => {
            let positions = positions(placed.iter().map(|it| (it.colour, it.position)), &colours);
            Ok(Json(json!({ "seen": seen_in_words(at.max(seen)), "at": seen_in_words(at), "positions": positions }))
                .into_response())
        }
        _ => Err(unexpected()),
    }
}

/// Positions by colours' names.
fn positions(
    placed: impl Iterator<Item = (Colour, NodePosition)>,
    colours: &BTreeMap<Colour, String>,
) -> Map<String, Value> {
    placed.filter_map(|(colour, position)| Some((colours.get(&colour)?.clone(), json!(position.0)))).collect()
}

/// `POST /v1/fuzzylog/snapshot`
pub(super) async fn snapshot(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Response, Refused> {
    let service = service(&admin)?;
    let body: SnapshotBody = read_body(&body)?;
    let colours = colours_of(&body.colours).map_err(Refused::bad)?;
    let seen = seen(body.seen.as_deref())?;
    let named = named(service, body.client.as_ref())?;
    let (client, number, below) = (named.client, named.number, named.below);
    let wanted = colours.keys().copied().collect();
    let call = SnapshotCall { client, number, below, seen, colours: wanted };
    match ask(&admin, FuzzyRequest::Snapshot(call), false).await? {
        FuzzyResponse::Snapshotted { at, tails } => {
            let tails = positions(tails.iter().map(|it| (it.colour, it.position)), &colours);
            Ok(Json(json!({ "seen": seen_in_words(at.max(seen)), "at": seen_in_words(at), "tails": tails }))
                .into_response())
        }
        _ => Err(unexpected()),
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
}

/// `GET /v1/fuzzylog/colours/COLOUR`
pub(super) async fn sync(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(query): Query<SyncQuery>,
) -> Result<Response, Refused> {
    check_name(&name).map_err(Refused::bad)?;
    let (colour, from) = (colour_of(&name), NodePosition(query.from));
    let seen = seen(query.seen.as_deref())?;
    let request = match query.to {
        Some(to) => FuzzyRequest::Play(PlayCall { colour, from, to: NodePosition(to) }),
        None => FuzzyRequest::Sync(SyncCall { colour, from, seen }),
    };
    match ask(&admin, request, false).await? {
        FuzzyResponse::Played(page) => Ok(Json(page_in_words(&page, &name, seen)).into_response()),
        _ => Err(unexpected()),
    }
}

fn page_in_words(page: &PlayedPage, name: &str, seen: AppendTime) -> Value {
    let nodes: Vec<Value> = (page.from.0..)
        .zip(&page.nodes)
        .map(|(position, node)| node_in_words(position, node, name))
        .collect();
    let next = page.from.0 + page.nodes.len() as u64;
    json!({
        "from": page.from.0, "next": next, "tail": page.tail.0,
        "seen": seen_in_words(page.seen.max(seen)), "nodes": nodes,
    })
}

fn node_in_words(position: u64, node: &ColourNode, name: &str) -> Value {
    let mut fields = Map::new();
    fields.insert("position".to_owned(), json!(position));
    fields.insert("at".to_owned(), json!(seen_in_words(node.at)));
    let named = NamedBody::decoded(&node.body).ok();
    // Somebody else's colour has the same digest.
    let Some(named) = named.filter(|it| it.colours.iter().any(|colour| colour == name.as_bytes())) else {
        fields.insert("other_colour".to_owned(), json!(true));
        return Value::Object(fields);
    };
    let colours: Vec<_> = named.colours.iter().map(|it| String::from_utf8_lossy(it)).collect();
    fields.insert("colours".to_owned(), json!(colours));
    put_bytes(&mut fields, "body", &named.body);
    Value::Object(fields)
}

/// `POST /v1/fuzzylog/colours/COLOUR/trim`
pub(super) async fn trim(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    check_name(&name).map_err(Refused::bad)?;
    let TrimBody { before } = read_body(&body)?;
    let call = TrimCall { colour: colour_of(&name), before: NodePosition(before) };
    match ask(&admin, FuzzyRequest::Trim(call), true).await? {
        FuzzyResponse::Trimmed { first } => Ok(Json(json!({ "first": first.0 })).into_response()),
        _ => Err(unexpected()),
    }
}

/// `GET /v1/fuzzylog/partitions`
pub(super) async fn partitions(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    service(&admin)?;
    let file = admin.file.clone();
    let seen = admin.handle.inspect(move |view| chains_in_words(&file, view.nodes().map(|(_, node)| node)));
    match seen.await {
        Ok(chains) => Ok(Json(json!({ "partitions": chains })).into_response()),
        Err(_) => {
            Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, "the host does not answer", Some(false), true))
        }
    }
}
