//! The shared log over HTTP.
//!
//! `PUT /v1/log/NAME` makes a log; `?retain_bytes=1048576` limits it, `retain_ms=60000` how long entries are retained, and
//! `cleanup=drop-oldest` has its oldest entries go where appends would be refused for the disk budget. `POST /v1/log/NAME/append` appends each line of the body as an
//! entry, all or nothing, and answers `{"first": 7, "count": 2}`; with `?expect=7` only at that position.
//! `GET /v1/log/NAME?from=7&limit=100&wait_ms=1000` answers
//! `{"first": 7, "next": 9, "tail": 9, "sealed": false, "entries": [{"position": 7, "text": "..."}, ...]}`, where entries that are no
//! UTF-8 have `"base64"` instead of `"text"`. With `trimmed=true` it reads what is trimmed, too, as far as the host still has it.

use super::SharedLog;
use crate::admin::state::Admin;
use crate::family;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use kernel::{Decode as _, Encode as _};
use serde::Deserialize;
use serde_json::{Value, json};
use shared_log::{Answer, Append, Cleanup, Create, Part, Read, Refused, Request, Rows, Why};
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits for its answer, beside what it asks to wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// What one answer holds, unless a single entry is larger: as JSON it takes several times that.
const PAGE_BYTES: u32 = 256 << 10;
/// Entries of one answer.
const ENTRIES_MAX: u32 = 10_000;
const WAIT_MS_MAX: u32 = 30_000;

/// What a log is to hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    #[serde(default)]
    retain_bytes: Option<u64>,
    #[serde(default)]
    retain_ms: u64,
    #[serde(default)]
    cleanup: Option<String>,
}

/// Where an append is to go.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    #[serde(default)]
    expect: Option<u64>,
}

/// What is read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    #[serde(default)]
    from: u64,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    wait_ms: u32,
    #[serde(default)]
    trimmed: bool,
}

/// Makes a log.
pub async fn create(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(retention): Query<Retention>,
) -> Response {
    let Retention { retain_bytes, retain_ms, cleanup } = retention;
    let Some(cleanup) = cleanup.map_or(Some(Cleanup::Refuse), |name| Cleanup::named(&name)) else {
        return Failed::new(StatusCode::BAD_REQUEST, "cleanup is refuse or drop-oldest").into_response();
    };
    let (retain_bytes, cleanup) = (retain_bytes.unwrap_or(0), Some(cleanup));
    let create = Create { name, retain_bytes, retain_ms, capacity: 0, cleanup, first: None };
    match ask(&admin, &Request::Create(create), 0).await {
        Ok(_) => (StatusCode::CREATED, Json(json!({}))).into_response(),
        Err(failed) => failed.into_response(),
    }
}

/// Appends the lines of the body.
pub async fn append(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(at): Query<At>,
    body: Bytes,
) -> Response {
    let mut rows = Rows::default();
    let lines = body.strip_suffix(b"\n").unwrap_or(&body);
    let count = lines.split(|byte| *byte == b'\n').map(|line| rows.push(line)).count();
    let part = Part { name, expect: at.expect, entries: rows.into_bytes() };
    match ask(&admin, &Request::Append(Append { parts: vec![part], admitted: None }), 0).await {
        Ok(Answer::Appended(firsts)) => {
            Json(json!({ "first": firsts.first(), "count": count })).into_response()
        }
        Ok(_) => other_answer().into_response(),
        Err(failed) => failed.into_response(),
    }
}

/// Reads entries.
pub async fn read(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(page): Query<Page>,
) -> Response {
    let entries_max = page.limit.unwrap_or(100).min(ENTRIES_MAX);
    let wait_ms = page.wait_ms.min(WAIT_MS_MAX);
    let read = Read { name, from: page.from, entries_max, bytes_max: PAGE_BYTES, wait_ms };
    let request = if page.trimmed { Request::Recall(read) } else { Request::Read(read) };
    match ask(&admin, &request, wait_ms).await {
        Ok(Answer::Entries(read)) => {
            let rows = (read.first..).zip(Rows::iter(&read.rows));
            let entries: Vec<Value> = rows.map(|(position, entry)| entry_of(position, entry)).collect();
            let (first, next, tail, sealed) = (read.first, read.next, read.tail, read.sealed);
            let page =
                json!({ "first": first, "next": next, "tail": tail, "sealed": sealed, "entries": entries });
            Json(page).into_response()
        }
        Ok(_) => other_answer().into_response(),
        Err(failed) => failed.into_response(),
    }
}

pub(super) fn entry_of(position: u64, entry: &[u8]) -> Value {
    match std::str::from_utf8(entry) {
        Ok(text) => json!({ "position": position, "text": text }),
        Err(_) => {
            let text = base64::engine::general_purpose::STANDARD.encode(entry);
            json!({ "position": position, "base64": text })
        }
    }
}

/// A call that came to nothing.
pub(super) struct Failed {
    status: StatusCode,
    /// What the client receives.
    pub(super) body: Value,
    /// What the log says.
    pub(super) why: Option<Refused>,
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

impl Failed {
    pub(super) fn new(status: StatusCode, what: &str) -> Self {
        Self { status, body: json!({ "error": what }), why: None }
    }
}

/// Asks the log, and waits longer than it does.
pub(super) async fn ask(admin: &Admin, request: &Request, wait_ms: u32) -> Result<Answer, Failed> {
    let Some(log) = admin.file.service::<SharedLog>() else {
        return Err(Failed::new(StatusCode::NOT_FOUND, "there is no shared log: log.spaces is 0"));
    };
    let gateway = log.gateway(&admin.file, &admin.host).host_slot();
    let call = admin.handle.request(gateway, family::LocalRequest::Service(request.encoded().into()));
    let within = ANSWER_WITHIN + Duration::from_millis(wait_ms.into());
    let unknown = match request.written().is_empty() {
        true => "no answer in time; nothing was changed",
        false => "no answer in time; it may have been done",
    };
    let late = || Failed::new(StatusCode::GATEWAY_TIMEOUT, unknown);
    let answer = tokio::time::timeout(within, call).await.ok().and_then(Result::ok).ok_or_else(late)?;
    let family::LocalResponse::Service(body) = answer else { return Err(other_answer()) };
    match Answer::decoded(&body) {
        Ok(Answer::Refused(refused)) => Err(refusal(refused)),
        Ok(answer) => Ok(answer),
        Err(_) => Err(other_answer()),
    }
}

fn refusal(refused: Refused) -> Failed {
    let Refused { why, name, at } = &refused;
    let (status, what, at) = match why {
        Why::Busy => (StatusCode::SERVICE_UNAVAILABLE, "the host is busy".to_owned(), None),
        Why::Unknown => {
            (StatusCode::GATEWAY_TIMEOUT, "the host lost track of it; it may have been done".to_owned(), None)
        }
        Why::Malformed => {
            (StatusCode::BAD_REQUEST, "a malformed name, or a limit below 1 MiB".to_owned(), None)
        }
        Why::NoSuchLog => (StatusCode::NOT_FOUND, format!("there is no log {name}"), None),
        Why::Exists => (StatusCode::CONFLICT, format!("there is a log {name} already"), None),
        Why::Sealed => (StatusCode::CONFLICT, format!("the log {name} is sealed"), Some(("tail", at))),
        Why::Moved => (StatusCode::CONFLICT, format!("the tail of {name} is elsewhere"), Some(("tail", at))),
        Why::Trimmed => (StatusCode::GONE, "the entries are gone".to_owned(), Some(("resume_from", at))),
        Why::BeyondTail => {
            (StatusCode::RANGE_NOT_SATISFIABLE, format!("beyond the end of {name}"), Some(("tail", at)))
        }
        Why::Full => {
            (StatusCode::INSUFFICIENT_STORAGE, format!("no room for {name}"), Some(("free_bytes", at)))
        }
        Why::DiskFull => {
            (StatusCode::INSUFFICIENT_STORAGE, "the disk is full: nothing was done".to_owned(), None)
        }
        Why::OverBudget => (
            StatusCode::INSUFFICIENT_STORAGE,
            format!("nothing was appended to {name}: the host's logs have reached log.disk_bytes"),
            Some(("held_bytes", at)),
        ),
        Why::NotGranted => (StatusCode::FORBIDDEN, "not granted: nothing was done".to_owned(), None),
        Why::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "one append may hold 1 MiB".to_owned(), None),
        Why::Unarchived => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("nothing is appended to {name} while the archive keeps what was trimmed waiting"),
            Some(("waiting_bytes", at)),
        ),
        Why::Unsupported => {
            (StatusCode::NOT_IMPLEMENTED, "the log's engine (log.engine) does not do this".to_owned(), None)
        }
    };
    let mut failed = Failed::new(status, &what);
    if let Some((name, at)) = at {
        failed.body[name] = json!(at);
    }
    Failed { why: Some(refused), ..failed }
}

pub(super) fn other_answer() -> Failed {
    Failed::new(StatusCode::INTERNAL_SERVER_ERROR, "an answer of another kind")
}
