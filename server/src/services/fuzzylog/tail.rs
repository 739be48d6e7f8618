//! A colour's nodes as server-sent events: `GET /v1/fuzzylog/colours/COLOUR/tail?from=7`.
//!
//! Every node is an event whose id is its position and whose data is the node as `GET /v1/fuzzylog/colours/COLOUR` has it. A client that
//! comes back with `Last-Event-ID` goes on behind it; without that and `from` it begins at the end. `trimmed` says where to resume, and has
//! an id such that a client that comes back resumes there.
//!
//! A page is read when the last one has been taken, so that a slow reader holds one page and no more.

use super::http::page;
use super::replies::{Refused, node_in_words};
use crate::admin::state::Admin;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use kernel::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::fuzzylog::{FuzzyFailure, SeenTime, SyncColour};

/// Readers of one host at a time; more are refused.
const READERS_MAX: usize = 256;
const WAIT_MS: u32 = 10_000;
/// A comment is sent so often, so that proxies on the way keep the connection.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// After an answer that did not come: a chain may be changing.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Where to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    from: Option<u64>,
}

/// Room for those who follow colours.
#[derive(Clone)]
pub(super) struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS_MAX)))
    }
}

struct Reader {
    admin: Arc<Admin>,
    colour: Bytes,
    next: u64,
    seen: SeenTime,
    events: VecDeque<Event>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// `GET /v1/fuzzylog/colours/COLOUR/tail`: streams nodes until the reader goes.
pub(super) async fn tail(
    State(admin): State<Arc<Admin>>,
    Extension(readers): Extension<Readers>,
    Path(name): Path<String>,
    Query(begin): Query<Begin>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let full = |_| Refused::busy(&format!("{READERS_MAX} readers follow colours at this host"));
    let permit = readers.0.try_acquire_owned().map_err(full)?;
    let seen = headers.get("last-event-id").map(|id| id.to_str().ok().and_then(|id| id.parse::<u64>().ok()));
    let resumed = match seen {
        None => None,
        Some(Some(seen)) => Some(seen.saturating_add(1)),
        Some(None) => return Err(Refused::bad("Last-Event-ID is no position")),
    };
    let colour = Bytes::from(name.into_bytes());
    let next = match resumed.or(begin.from) {
        Some(next) => next,
        None => end_of(&admin, &colour).await?,
    };
    let (seen, events) = (SeenTime::default(), VecDeque::new());
    let reader = Reader { admin, colour, next, seen, events, ended: false, _permit: permit };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.event().await?;
        Some((Ok::<Event, Infallible>(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY)).into_response())
}

/// The position after a colour's last node: nobody plays from beyond, and the refusal says where the end is.
async fn end_of(admin: &Admin, colour: &Bytes) -> Result<u64, Refused> {
    let (seen, colour) = (SeenTime::default(), colour.clone());
    match page(admin, SyncColour { id: 0, seen, colour, from: u64::MAX, wait_ms: 0 }).await {
        Ok(page) => Ok(page.tail),
        Err(Refused { why: Some((FuzzyFailure::BeyondTail, tail)), .. }) => Ok(tail),
        Err(refused) => Err(refused),
    }
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
        let (colour, from, seen) = (self.colour.clone(), self.next, self.seen);
        match page(&self.admin, SyncColour { id: 0, seen, colour, from, wait_ms: WAIT_MS }).await {
            Ok(page) => {
                let nodes = (page.from..).zip(&page.nodes);
                self.events.extend(
                    nodes.map(|(position, node)| event(Some(position), None, &node_in_words(position, node))),
                );
                self.next = page.from + page.nodes.len() as u64;
                self.seen = page.seen;
            }
            Err(Refused { why: Some((FuzzyFailure::Trimmed, first)), .. }) => {
                self.end(first.checked_sub(1), "trimmed", &json!({ "resume_from": first }));
            }
            Err(Refused { why: Some((FuzzyFailure::Busy | FuzzyFailure::Unknown, _)), .. }) => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(refused) => self.end(None, "failed", &refused.body),
        }
    }

    fn end(&mut self, id: Option<u64>, kind: &str, data: &Value) {
        self.events.push_back(event(id, Some(kind), data));
        self.ended = true;
    }
}
