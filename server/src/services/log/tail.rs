//! A log's entries as server-sent events: `GET /v1/log/NAME/tail?from=7`.
//!
//! An event's data is the entry as `GET /v1/log/NAME` has it; without `from` and `Last-Event-ID` it begins at the tail. `sealed` is the
//! last event of a log that is sealed; `trimmed` says where to resume.

use super::http::{Failed, ask, entry_of, other_answer};
use crate::admin::state::Admin;
use crate::services::events::{self, EventSource, Events, FirstPosition, READERS_MAX, Readers, WAIT_MS};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use shared_log::{Answer, Entries, Named, Read, Refused, Request, Rows, Why};
use std::sync::Arc;

/// What is read at a time, unless a single entry is larger.
const PAGE_BYTES: u32 = 64 << 10;
const PAGE_ENTRIES: u32 = 1_000;

struct LogReader {
    admin: Arc<Admin>,
    name: String,
    next: u64,
}

/// Streams entries until the log is sealed or the reader goes.
pub async fn tail(
    State(admin): State<Arc<Admin>>,
    Extension(readers): Extension<Readers>,
    Path(name): Path<String>,
    Query(begin): Query<FirstPosition>,
    headers: HeaderMap,
) -> Response {
    let Some(permit) = readers.admit() else {
        let what = format!("{READERS_MAX} readers follow logs at this host");
        return Failed::new(StatusCode::SERVICE_UNAVAILABLE, &what).into_response();
    };
    let resumed = match events::resumed(&headers) {
        Ok(resumed) => resumed,
        Err(what) => return Failed::new(StatusCode::BAD_REQUEST, what).into_response(),
    };
    let stat = match ask(&admin, &Request::Stat(Named { name: name.clone() }), 0).await {
        Ok(Answer::Logs(logs)) if logs.len() == 1 => logs,
        Ok(_) => return other_answer().into_response(),
        Err(refused) => return refused.into_response(),
    };
    if stat[0].sealed && resumed == Some(stat[0].next) {
        // The one answer after which browsers do not come back.
        return StatusCode::NO_CONTENT.into_response();
    }
    let next = resumed.or(begin.from).unwrap_or(stat[0].next);
    events::send(LogReader { admin, name, next }, permit)
}

impl EventSource for LogReader {
    async fn read(&mut self, events: &mut Events) {
        let (name, from) = (self.name.clone(), self.next);
        let read = Read { name, from, entries_max: PAGE_ENTRIES, bytes_max: PAGE_BYTES, wait_ms: WAIT_MS };
        match ask(&self.admin, &Request::Read(read), WAIT_MS).await {
            Ok(Answer::Entries(Entries { first, next, tail, sealed, rows })) => {
                for (position, entry) in (first..).zip(Rows::iter(&rows)) {
                    events.entry(position, &entry_of(position, entry));
                }
                self.next = next;
                if sealed && next == tail {
                    events.end(None, "sealed", &json!({ "tail": tail }));
                }
            }
            Ok(_) => events.end(None, "failed", &json!({ "error": "an answer of another kind" })),
            Err(refusal) => match &refusal.why {
                Some(Refused { why: Why::Trimmed, at, .. }) => events.end_trimmed(*at),
                None | Some(Refused { why: Why::Busy | Why::Unknown, .. }) => events::before_again().await,
                Some(_) => events.end(None, "failed", &refusal.body),
            },
        }
    }
}
