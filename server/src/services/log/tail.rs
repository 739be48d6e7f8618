//! A log's entries as server-sent events: `GET /v1/log/NAME/tail?from=7`.
//!
//! Every entry is an event whose id is its position and whose data is the entry as `GET /v1/log/NAME` has it. A client that comes back
//! with `Last-Event-ID` goes on behind it; without that and `from` it begins at the tail. `sealed` is the last event of a log that is
//! sealed; `trimmed` says where to resume, and has an id such that a client that comes back resumes there.
//!
//! A page is read when the last one has been taken, so that a slow reader holds one page and no more.

use super::http::{Failed, ask, entry_of, other_answer};
use crate::admin::state::Admin;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use shared_log::{Answer, Entries, Named, Read, Refused, Request, Rows, Why};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Readers of one host at a time; more are refused.
const READERS_MAX: usize = 256;
/// What is read at a time, unless a single entry is larger.
const PAGE_BYTES: u32 = 64 << 10;
const PAGE_ENTRIES: u32 = 1_000;
const WAIT_MS: u32 = 10_000;
/// A comment is sent so often, so that proxies on the way keep the connection.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// After an answer that did not come: the host may be electing a leader.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Where to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    #[serde(default)]
    from: Option<u64>,
}

/// Room for those who follow logs.
#[derive(Clone)]
pub(super) struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS_MAX)))
    }
}

struct Reader {
    admin: Arc<Admin>,
    name: String,
    next: u64,
    events: VecDeque<Event>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// Streams entries until the log is sealed or the reader goes.
pub async fn tail(
    State(admin): State<Arc<Admin>>,
    Extension(readers): Extension<Readers>,
    Path(name): Path<String>,
    Query(begin): Query<Begin>,
    headers: HeaderMap,
) -> Response {
    let Ok(permit) = readers.0.try_acquire_owned() else {
        let what = format!("{READERS_MAX} readers follow logs at this host");
        return Failed::new(StatusCode::SERVICE_UNAVAILABLE, &what).into_response();
    };
    let seen = headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse::<u64>().ok()));
    let resumed = match seen {
        None => None,
        Some(Some(seen)) => Some(seen.saturating_add(1)),
        Some(None) => {
            return Failed::new(StatusCode::BAD_REQUEST, "Last-Event-ID is no position").into_response();
        }
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
    let reader = Reader { admin, name, next, events: VecDeque::new(), ended: false, _permit: permit };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.event().await?;
        Some((Ok::<Event, Infallible>(event), reader))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY)).into_response()
}

fn event(id: Option<u64>, kind: Option<&str>, data: &Value) -> Event {
    let event = Event::default().data(data.to_string());
    let event = id.into_iter().fold(event, |event, id| event.id(id.to_string()));
    kind.into_iter().fold(event, Event::event)
}

impl Reader {
    /// The next event; none after the last.
    async fn event(&mut self) -> Option<Event> {
        while self.events.is_empty() && !self.ended {
            self.read().await;
        }
        self.events.pop_front()
    }

    async fn read(&mut self) {
        let (name, from) = (self.name.clone(), self.next);
        let read = Read { name, from, entries_max: PAGE_ENTRIES, bytes_max: PAGE_BYTES, wait_ms: WAIT_MS };
        match ask(&self.admin, &Request::Read(read), WAIT_MS).await {
            Ok(Answer::Entries(Entries { first, next, tail, sealed, rows })) => {
                let entries = (first..).zip(Rows::iter(&rows));
                self.events.extend(
                    entries.map(|(position, entry)| event(Some(position), None, &entry_of(position, entry))),
                );
                self.next = next;
                if sealed && next == tail {
                    self.end(None, "sealed", &json!({ "tail": tail }));
                }
            }
            Ok(_) => self.end(None, "failed", &json!({ "error": "an answer of another kind" })),
            Err(refusal) => match &refusal.why {
                Some(Refused { why: Why::Trimmed, at, .. }) => {
                    self.end(at.checked_sub(1), "trimmed", &json!({ "resume_from": at }));
                }
                None | Some(Refused { why: Why::Busy | Why::Unknown, .. }) => {
                    tokio::time::sleep(AGAIN_AFTER).await
                }
                Some(_) => self.end(None, "failed", &refusal.body),
            },
        }
    }

    fn end(&mut self, id: Option<u64>, kind: &str, data: &Value) {
        self.events.push_back(event(id, Some(kind), data));
        self.ended = true;
    }
}
