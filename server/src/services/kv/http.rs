//! The key-value service over HTTP: `curl`-able, one session of this host for all requests.
//!
//! Keys are the rest of the path; values are the body as it is. Answers are JSON; values that are no UTF-8 text stand in
//! `value_base64`. A write that timed out may have been executed (504); 4xx, 503 and 507 were never executed.

use super::GATEWAY;
use crate::admin::state::Admin;
use crate::family;
use axum::body::Bytes;
use axum::extract::{Path, Query as Parameters, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kv::{Answer, Command, Expect, Query, Versioned};
use paxos::{Call, Level, Outcome, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The routes.
pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/v1/kv", get(scan).post(batch))
        .route("/v1/kv/{*key}", get(read).put(put).delete(delete).post(increment))
}

/// Parameters of reads.
#[derive(Deserialize)]
pub struct Read {
    consistency: Option<String>,
    raw: Option<String>,
}

/// Parameters of writes.
#[derive(Deserialize)]
pub struct Write {
    if_version: Option<u64>,
    if_absent: Option<String>,
}

/// Parameters of increments.
#[derive(Deserialize)]
pub struct Increment {
    increment: Option<i64>,
}

/// Parameters of scans.
#[derive(Deserialize)]
pub struct Scan {
    start: Option<String>,
    end: Option<String>,
    limit: Option<u32>,
    consistency: Option<String>,
}

/// `GET /v1/kv/KEY?consistency=LEVEL&raw`
pub async fn read(
    State(admin): State<Arc<Admin>>,
    Path(key): Path<String>,
    Parameters(how): Parameters<Read>,
) -> Response {
    let level = match level(how.consistency.as_deref()) {
        Ok(level) => level,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why),
    };
    match ask(&admin, &Query::Get { key: key.as_bytes() }, level).await {
        Ok(Answer::Found(None)) => error(StatusCode::NOT_FOUND, "no such key"),
        Ok(Answer::Found(Some(found))) if how.raw.is_some() => {
            let version = found.version.to_string();
            ([(header::ETAG, version)], found.value).into_response()
        }
        Ok(Answer::Found(Some(found))) => Json(item(key.as_bytes(), &found)).into_response(),
        other => unexpected(other),
    }
}

/// `PUT /v1/kv/KEY?if_version=N` or `?if_absent`
pub async fn put(
    State(admin): State<Arc<Admin>>,
    Path(key): Path<String>,
    Parameters(write): Parameters<Write>,
    body: Bytes,
) -> Response {
    change(&admin, key.as_bytes(), Some(&body), &write).await
}

/// `DELETE /v1/kv/KEY?if_version=N`
pub async fn delete(
    State(admin): State<Arc<Admin>>,
    Path(key): Path<String>,
    Parameters(write): Parameters<Write>,
) -> Response {
    change(&admin, key.as_bytes(), None, &write).await
}

const NOT_AS_EXPECTED: &str = "the key is not as expected";

async fn change(admin: &Admin, key: &[u8], value: Option<&[u8]>, write: &Write) -> Response {
    let expect = match (write.if_version, &write.if_absent) {
        (Some(version), _) => Some(Expect::Version(version)),
        (None, Some(_)) => Some(Expect::Absent),
        (None, None) => None,
    };
    let command = match (expect, value) {
        (Some(expect), value) => Command::CompareAndSet { key, expect, value },
        (None, Some(value)) => Command::Put { key, value },
        (None, None) => Command::Delete { key },
    };
    match execute(admin, &command).await {
        Ok(Answer::Written { version, previous } | Answer::Deleted { version, previous }) => {
            Json(json!({ "version": version, "previous_version": previous })).into_response()
        }
        Ok(Answer::Mismatch { found }) => {
            let found = found.map(|found| item(key, &found));
            (StatusCode::CONFLICT, Json(json!({ "error": NOT_AS_EXPECTED, "found": found }))).into_response()
        }
        Ok(Answer::MismatchAt { version }) => {
            let found = json!({ "key": String::from_utf8_lossy(key), "version": version });
            (StatusCode::CONFLICT, Json(json!({ "error": NOT_AS_EXPECTED, "found": found }))).into_response()
        }
        other => unexpected(other),
    }
}

/// `POST /v1/kv/KEY?increment=N`
pub async fn increment(
    State(admin): State<Arc<Admin>>,
    Path(key): Path<String>,
    Parameters(parameters): Parameters<Increment>,
) -> Response {
    let Some(by) = parameters.increment else {
        return error(StatusCode::BAD_REQUEST, "POST on a key wants ?increment=N");
    };
    match execute(&admin, &Command::Increment { key: key.as_bytes(), by }).await {
        Ok(Answer::Counted { number, version, previous }) => {
            Json(json!({ "number": number, "version": version, "previous_version": previous }))
                .into_response()
        }
        other => unexpected(other),
    }
}

/// `GET /v1/kv?start=KEY&end=KEY&limit=N`
pub async fn scan(State(admin): State<Arc<Admin>>, Parameters(scan): Parameters<Scan>) -> Response {
    let level = match level(scan.consistency.as_deref()) {
        Ok(level) => level,
        Err(why) => return error(StatusCode::BAD_REQUEST, &why),
    };
    let start = scan.start.unwrap_or_default();
    let end = scan.end.as_deref().map(str::as_bytes);
    let query = Query::Scan { start: start.as_bytes(), end, limit: scan.limit.unwrap_or(100) };
    match ask(&admin, &query, level).await {
        Ok(Answer::Page { items, next }) => {
            let items: Vec<Value> = items.iter().map(|line| item(&line.key, &line.versioned)).collect();
            let next = next.map(|key| String::from_utf8_lossy(&key).into_owned());
            Json(json!({ "items": items, "next": next })).into_response()
        }
        other => unexpected(other),
    }
}

/// One command of a batch.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum BatchItem {
    Put { key: String, value: String },
    Delete { key: String },
    Increment { key: String, by: i64 },
    Check { key: String, version: u64, value: String },
}

/// `POST /v1/kv` with `[{"op": "put", "key": "a", "value": "1"}, ...]`: all or nothing.
pub async fn batch(State(admin): State<Arc<Admin>>, body: Bytes) -> Response {
    let items: Vec<BatchItem> = match serde_json::from_slice(&body) {
        Ok(items) => items,
        Err(why) => return error(StatusCode::BAD_REQUEST, &format!("the body is no batch: {why}")),
    };
    let commands = items.iter().map(|item| match item {
        BatchItem::Put { key, value } => Command::Put { key: key.as_bytes(), value: value.as_bytes() },
        BatchItem::Delete { key } => Command::Delete { key: key.as_bytes() },
        BatchItem::Increment { key, by } => Command::Increment { key: key.as_bytes(), by: *by },
        BatchItem::Check { key, version, value } => Command::CompareAndSet {
            key: key.as_bytes(),
            expect: Expect::Version(*version),
            value: Some(value.as_bytes()),
        },
    });
    match execute(&admin, &Command::Batch { commands: commands.collect() }).await {
        Ok(Answer::Batch(answers)) => Json(json!({ "executed": answers.len() })).into_response(),
        Ok(Answer::BatchFailed { index, answer }) => {
            let body = json!({ "error": "the batch was not executed", "index": index, "because": format!("{answer:?}") });
            (StatusCode::CONFLICT, Json(body)).into_response()
        }
        other => unexpected(other),
    }
}

/// The keys of a batch, each with whether it is answered what was there; none of what is no batch.
pub(super) fn keys_of_batch(body: &[u8]) -> Vec<(String, bool)> {
    let items: Vec<BatchItem> = serde_json::from_slice(body).unwrap_or_default();
    let key = |item: BatchItem| match item {
        BatchItem::Put { key, .. } | BatchItem::Delete { key } => (key, false),
        BatchItem::Increment { key, .. } | BatchItem::Check { key, .. } => (key, true),
    };
    items.into_iter().map(key).collect()
}

/// Where a scan begins and ends; none if that cannot be read.
pub(super) fn range_of(uri: &Uri) -> Option<(String, Option<String>)> {
    let Parameters(scan) = Parameters::<Scan>::try_from_uri(uri).ok()?;
    Some((scan.start.unwrap_or_default(), scan.end))
}

fn level(name: Option<&str>) -> Result<Level, String> {
    match name {
        None | Some("linearizable") => Ok(Level::Linearizable),
        Some("sequential") => Ok(Level::Sequential),
        Some("eventual") => Ok(Level::Eventual),
        Some(other) => Err(format!("unknown consistency {other}; known: linearizable, sequential, eventual")),
    }
}

fn item(key: &[u8], found: &Versioned) -> Value {
    let key = String::from_utf8_lossy(key);
    match std::str::from_utf8(&found.value) {
        Ok(value) => json!({ "key": key, "value": value, "version": found.version }),
        Err(_) => {
            json!({ "key": key, "value_base64": BASE64.encode(&found.value), "version": found.version })
        }
    }
}

async fn execute(admin: &Admin, command: &Command<'_>) -> Result<Answer, Response> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    call(admin, Call::Write(bytes.into())).await
}

async fn ask(admin: &Admin, query: &Query<'_>, level: Level) -> Result<Answer, Response> {
    let mut bytes = Vec::new();
    query.encode(&mut bytes);
    call(admin, Call::Read { query: bytes.into(), level }).await
}

async fn call(admin: &Admin, call: Call) -> Result<Answer, Response> {
    if !admin.file.regions.is_empty() {
        let why = "there is no key-value service in a cluster of several regions: nothing was executed";
        return Err(error(StatusCode::NOT_FOUND, why));
    }
    let unknown = match &call {
        Call::Read { .. } => "no answer in time; nothing was executed",
        Call::Write(_) | Call::Reconfigure(_) => {
            "no answer in time; a write may have been executed: read before you send it again"
        }
    };
    let asked = admin.handle.request(GATEWAY, family::LocalRequest::Kv(call));
    let outcome = match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Err(_) => return Err(error(StatusCode::GATEWAY_TIMEOUT, unknown)),
        Ok(Err(_)) => return Err(error(StatusCode::SERVICE_UNAVAILABLE, "the host is stopping")),
        Ok(Ok(response)) => response.of_kv(),
    };
    match outcome {
        Some(Outcome::Done(bytes)) => {
            Answer::decode(&bytes).map_err(|why| error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string()))
        }
        Some(Outcome::Refused(refusal)) => Err(match refusal {
            Refusal::MaybeExecuted => error(StatusCode::GATEWAY_TIMEOUT, unknown),
            Refusal::Busy => {
                let busy = "busy, not executed: too much is waiting; send it again later";
                ([(header::RETRY_AFTER, "1")], error(StatusCode::SERVICE_UNAVAILABLE, busy)).into_response()
            }
            // The port refuses before anything is called.
            Refusal::NotGranted => error(StatusCode::FORBIDDEN, "not granted: nothing was executed"),
            Refusal::DiskFull => error(
                StatusCode::INSUFFICIENT_STORAGE,
                "the disk is full, not executed: send it again when there is room",
            ),
            Refusal::Malformed | Refusal::Conflict => error(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the request is larger than paxos.batch_bytes_max allows",
            ),
        }),
        None => Err(error(StatusCode::INTERNAL_SERVER_ERROR, "the answer of another service")),
    }
}

fn unexpected(answer: Result<Answer, Response>) -> Response {
    match answer {
        Err(refused) => refused,
        Ok(Answer::Invalid(why)) => error(StatusCode::BAD_REQUEST, &why),
        Ok(other) => error(StatusCode::INTERNAL_SERVER_ERROR, &format!("unexpected answer {other:?}")),
    }
}

fn error(status: StatusCode, what: &str) -> Response {
    (status, Json(json!({ "error": what }))).into_response()
}
