//! Maps over HTTP and JSON.
//!
//! Every answer of a map has a time, `seen`. A caller sends the latest that it has with its next call, at any host: what it does then is
//! ordered behind what it has seen.

use super::super::body::ClientBody;
use super::super::http::{read_body, service};
use super::super::replies::Refused;
use super::SHARDS_MAX;
use super::call::{ANSWER_WITHIN, KEY_BYTES_MAX, MapCall, in_time, maps};
use super::kinds::MapKind;
use super::removal;
use super::served::Changes;
use super::words;
use crate::admin::state::Admin;
use crate::services::json_bytes::JsonBytes;
use crate::unique::unique_number;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ordinate_client::maps::{NotCreated, check_map_name};
use ordinate_client::{FuzzyError, FuzzyFailure, NumberedBy};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Keys of one call.
const KEYS_MAX: usize = 256;
/// Values of one answer together, in bytes, unless a single one is longer.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How long a list waits for what the host has of maps, of all together.
const LISTED_WITHIN: Duration = Duration::from_secs(2);
/// Colours of a map whose maker does not say how many.
const SHARDS_DEFAULT: u16 = 4;

/// The routes.
pub(in crate::services::fuzzylog) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/map", get(list))
        .route("/v1/map/{map}", get(status).put(create).delete(removal::remove))
        .route("/v1/map/{map}/keys", get(super::scans::scan))
        .route("/v1/map/{map}/keys/{*key}", get(read).put(put).delete(delete))
        .route("/v1/map/{map}/get", post(read_several))
        .route("/v1/map/{map}/put", post(put_several))
        .route("/v1/map/{map}/transaction", post(transact))
}

/// What of a query does.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenQuery {
    seen: Option<String>,
}

/// What of a change's query does: its client's name and its number are all there, or none of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeQuery {
    seen: Option<String>,
    client: Option<String>,
    number: Option<u64>,
    below: Option<u64>,
}

impl ChangeQuery {
    fn numbered(&self) -> Result<Option<NumberedBy>, Refused> {
        match (&self.client, self.number, self.below) {
            (None, None, None) => Ok(None),
            (Some(id), Some(number), Some(below)) => {
                numbered(Some(&ClientBody { id: id.clone(), number, below }))
            }
            _ => Err(Refused::bad("wanted are client, number and below together, or none of them")),
        }
    }
}

/// By whom, and as which of its changes, something is done once, if the caller says so.
fn numbered(client: Option<&ClientBody>) -> Result<Option<NumberedBy>, Refused> {
    client.map(ClientBody::numbered).transpose().map_err(Refused::bad)
}

/// How a map is to be made.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody {
    kind: String,
    shards: Option<u16>,
}

/// Which keys are read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadBody {
    keys: Vec<String>,
    seen: Option<String>,
}

/// What is changed, at once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutBody {
    #[serde(default)]
    puts: BTreeMap<String, JsonBytes>,
    #[serde(default)]
    deletes: Vec<String>,
    seen: Option<String>,
    client: Option<ClientBody>,
}

/// The same, if keys still have the versions that were read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransactionBody {
    #[serde(default)]
    reads: BTreeMap<String, u64>,
    #[serde(default)]
    puts: BTreeMap<String, JsonBytes>,
    #[serde(default)]
    deletes: Vec<String>,
    seen: Option<String>,
    client: Option<ClientBody>,
}

fn check_keys<'a>(keys: impl ExactSizeIterator<Item = &'a String>) -> Result<(), Refused> {
    if keys.len() > KEYS_MAX {
        return Err(Refused::bad(format!("it names {} keys, which is more than {KEYS_MAX}", keys.len())));
    }
    for key in keys {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let what = format!("a key has {} bytes: wanted are 1 to {KEY_BYTES_MAX}", key.len());
            return Err(Refused::bad(what));
        }
    }
    Ok(())
}

fn changes_of(puts: BTreeMap<String, JsonBytes>, deletes: Vec<String>) -> Result<Changes, Refused> {
    let mut changes = Changes::new();
    for (key, value) in puts {
        changes.push((key, Some(value.bytes().map_err(Refused::bad)?)));
    }
    for key in deletes {
        if changes.iter().any(|(named, _)| *named == key) {
            return Err(Refused::bad(format!("{key:?} is named twice")));
        }
        changes.push((key, None));
    }
    check_keys(changes.iter().map(|(key, _)| key))?;
    if changes.is_empty() {
        return Err(Refused::bad("it changes nothing: wanted is puts or deletes"));
    }
    Ok(changes)
}

/// `GET /v1/map`
async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    let (maps, order) = (maps(&admin)?, service(&admin)?.order);
    let all = in_time(maps.catalogue.all()).await.map_err(|error| words::refused(error, false))?;
    let (mut listed, until) = (Vec::with_capacity(all.len()), tokio::time::Instant::now() + LISTED_WITHIN);
    for (name, made) in all {
        let mut fields = words::made(&name, &made, order);
        if let Some(map) = maps.in_use(&name) {
            // One that waits for the log is listed without.
            fields.extend(tokio::time::timeout_at(until, words::in_use(&map)).await.unwrap_or_default());
        }
        listed.push(Value::Object(fields));
    }
    Ok(Json(json!({ "maps": listed })).into_response())
}

/// `GET /v1/map/MAP`
async fn status(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(query): Query<SeenQuery>,
) -> Result<Response, Refused> {
    let call = MapCall::begin(&admin, &name, query.seen.as_deref()).await?;
    call.done_in_time(call.map.map.sync(), false).await?;
    let mut fields = words::made(&name, &call.map.made, service(&admin)?.order);
    fields.extend(words::in_use(&call.map).await);
    Ok(call.answer(fields))
}

/// `PUT /v1/map/MAP`
async fn create(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let maps = maps(&admin)?;
    check_map_name(&name).map_err(|fault| Refused::fault(&fault))?;
    let CreateBody { kind, shards } = read_body(&body)?;
    let kind: MapKind = kind.parse().map_err(|why: super::kinds::NoMapKind| Refused::bad(why.to_string()))?;
    let shards = match (kind.is_of_one_colour(), shards) {
        (true, None | Some(1)) => 1,
        (true, Some(_)) => return Err(Refused::bad(format!("a map of the kind {kind} has one shard"))),
        (false, Some(shards)) => shards,
        (false, None) => {
            // One that was removed has no say.
            let found = in_time(maps.catalogue.find_now(&name)).await;
            let found = found.map_err(|error| words::refused(error, false))?;
            found.map_or(SHARDS_DEFAULT, |found| found.shards)
        }
    };
    if !(1..=SHARDS_MAX).contains(&usize::from(shards)) {
        return Err(Refused::bad(format!("{shards} shards: wanted are 1 to {SHARDS_MAX}")));
    }
    let create = maps.catalogue.create(&name, kind.name(), shards, unique_number());
    let created = tokio::time::timeout(ANSWER_WITHIN, create).await;
    let unknown = || Err(NotCreated::Log(FuzzyError::Failed(FuzzyFailure::Unknown)));
    let created = created.unwrap_or_else(|_| unknown());
    let (made, created) = created.map_err(|why| words::not_created(&name, why))?;
    let mut fields = words::made(&name, &made, service(&admin)?.order);
    fields.insert("created".to_owned(), json!(created));
    Ok(Json(fields).into_response())
}

/// `GET /v1/map/MAP/keys/KEY`
async fn read(
    State(admin): State<Arc<Admin>>,
    Path((name, key)): Path<(String, String)>,
    Query(query): Query<SeenQuery>,
) -> Result<Response, Refused> {
    check_keys([&key].into_iter())?;
    let call = MapCall::begin(&admin, &name, query.seen.as_deref()).await?;
    call.come_after().await?;
    let found = call.done_in_time(call.map.map.get(&key), false).await?;
    if found.value.is_some() {
        return Ok(call.answer(words::found(&key, &found)));
    }
    let none = Refused::new(StatusCode::NOT_FOUND, "no such key", Some(false), false);
    Ok(none.with("seen", call.seen()).into_response())
}

/// `PUT /v1/map/MAP/keys/KEY`
async fn put(
    State(admin): State<Arc<Admin>>,
    Path((name, key)): Path<(String, String)>,
    Query(query): Query<ChangeQuery>,
    body: Bytes,
) -> Result<Response, Refused> {
    change(&admin, &name, key, query, Some(kernel::Bytes::copy_from_slice(&body))).await
}

/// `DELETE /v1/map/MAP/keys/KEY`
async fn delete(
    State(admin): State<Arc<Admin>>,
    Path((name, key)): Path<(String, String)>,
    Query(query): Query<ChangeQuery>,
) -> Result<Response, Refused> {
    change(&admin, &name, key, query, None).await
}

async fn change(
    admin: &Admin,
    name: &str,
    key: String,
    query: ChangeQuery,
    value: Option<kernel::Bytes>,
) -> Result<Response, Refused> {
    let (changes, by) = (vec![(key, value)], query.numbered()?);
    check_keys(changes.iter().map(|(key, _)| key))?;
    let call = MapCall::begin(admin, name, query.seen.as_deref()).await?;
    call.come_after().await?;
    call.admit(&changes).await?;
    for (key, value) in changes {
        call.done_in_time(call.map.map.change(by, key, value), true).await?;
    }
    Ok(call.done())
}

/// Who has calls of several keys.
const SEVERAL: &str = "atomic, tx and tx-crdt have";

/// `POST /v1/map/MAP/get`
async fn read_several(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let ReadBody { keys, seen } = read_body(&body)?;
    check_keys(keys.iter())?;
    let call = MapCall::begin(&admin, &name, seen.as_deref()).await?;
    if !call.map.kind.has_several_keys() {
        return Err(words::not_of_this_kind(&call.map, "reads of several keys", SEVERAL));
    }
    call.come_after().await?;
    // Only a read of a tx map appends something.
    let found = call.done_in_time(call.map.map.get_all(&keys), false).await?;
    let bytes: usize = found.iter().filter_map(|it| it.value.as_ref()).map(kernel::Bytes::len).sum();
    if keys.len() > 1 && bytes > ANSWER_BYTES_MAX {
        let why = format!("the values have {bytes} bytes, more than {ANSWER_BYTES_MAX}: read fewer at once");
        return Err(Refused::bad(why));
    }
    let entries: Vec<Value> =
        keys.iter().zip(&found).map(|(key, found)| Value::Object(words::found(key, found))).collect();
    Ok(call.answer([("entries".to_owned(), json!(entries))].into_iter().collect()))
}

/// `POST /v1/map/MAP/put`
async fn put_several(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let PutBody { puts, deletes, seen, client } = read_body(&body)?;
    let (changes, by) = (changes_of(puts, deletes)?, numbered(client.as_ref())?);
    let call = MapCall::begin(&admin, &name, seen.as_deref()).await?;
    if !call.map.kind.has_several_keys() {
        return Err(words::not_of_this_kind(&call.map, "changes of several keys", SEVERAL));
    }
    call.come_after().await?;
    call.admit(&changes).await?;
    call.done_in_time(call.map.map.change_all(by, changes), true).await?;
    Ok(call.done())
}

/// `POST /v1/map/MAP/transaction`
async fn transact(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let TransactionBody { reads, puts, deletes, seen, client } = read_body(&body)?;
    let (changes, by) = (changes_of(puts, deletes)?, numbered(client.as_ref())?);
    check_keys(reads.keys())?;
    let call = MapCall::begin(&admin, &name, seen.as_deref()).await?;
    if call.map.kind != MapKind::Tx {
        return Err(words::not_of_this_kind(&call.map, "transactions", "tx has"));
    }
    call.admit(&changes).await?;
    let reads: Vec<(String, u64)> = reads.into_iter().collect();
    if call.done_in_time(call.map.map.transact(by, &reads, changes), true).await? {
        return Ok(call.done());
    }
    let why = "a key was written since it was read: nothing was done, read again";
    let refused = Refused::new(StatusCode::CONFLICT, why, Some(false), false);
    Ok(refused.with("seen", call.seen()).into_response())
}
