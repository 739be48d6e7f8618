//! Server-sent events: what a follower of a log or a colour is sent, an event for each entry.
//!
//! An event's id is the entry's position. A client that comes back with `Last-Event-ID` goes on behind it. A page is read when the last
//! one has been taken, so that a slow reader holds one page and no more.

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Readers of a service at one host; more are refused.
pub const READERS_MAX: usize = 256;
/// How long a question for entries waits for them.
pub const WAIT_MS: u32 = 10_000;
/// A comment is sent so often, so that proxies on the way keep the connection.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);
/// After an answer that did not come: leaders or chains may be changing.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Where to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstPosition {
    /// The first position; without it, the end.
    pub from: Option<u64>,
}

/// Room for a service's readers.
#[derive(Clone)]
pub struct Readers(Arc<Semaphore>);

impl Default for Readers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS_MAX)))
    }
}

impl Readers {
    /// Room for one more; none if there is none.
    pub fn admit(self) -> Option<OwnedSemaphorePermit> {
        self.0.try_acquire_owned().ok()
    }
}

/// Where a client that comes back goes on; none for one that has seen nothing.
///
/// # Errors
/// What is wrong with what it says it has seen.
pub fn resumed(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let seen = id.to_str().ok().and_then(|id| id.parse::<u64>().ok());
    seen.map(|seen| Some(seen.saturating_add(1))).ok_or("Last-Event-ID is no position")
}

/// Events that were not taken yet.
#[derive(Default)]
pub struct Events {
    waiting: VecDeque<Event>,
    ended: bool,
}

fn event(id: Option<u64>, kind: Option<&str>, data: &Value) -> Event {
    let event = Event::default().data(data.to_string());
    let event = id.into_iter().fold(event, |event, id| event.id(id.to_string()));
    kind.into_iter().fold(event, Event::event)
}

impl Events {
    /// Adds an entry.
    pub fn entry(&mut self, position: u64, data: &Value) {
        self.waiting.push_back(event(Some(position), None, data));
    }

    /// Adds the last event. A client that comes back resumes behind `id`.
    pub fn end(&mut self, id: Option<u64>, kind: &str, data: &Value) {
        self.waiting.push_back(event(id, Some(kind), data));
        self.ended = true;
    }

    /// What was trimmed cannot be sent; a client that comes back resumes at the first entry that is left.
    pub fn end_trimmed(&mut self, first: u64) {
        self.end(first.checked_sub(1), "trimmed", &serde_json::json!({ "resume_from": first }));
    }
}

/// Where entries come from.
pub trait EventSource: Send + 'static {
    /// Reads on, and waits for entries if there are none; nothing if no answer came.
    fn read(&mut self, events: &mut Events) -> impl Future<Output = ()> + Send;
}

/// Sends what a source has, until it ends or the reader goes.
pub fn send(source: impl EventSource, permit: OwnedSemaphorePermit) -> Response {
    let begun = (source, Events::default(), permit);
    let events = stream::unfold(begun, |(mut source, mut events, permit)| async move {
        while events.waiting.is_empty() && !events.ended {
            source.read(&mut events).await;
        }
        let event = events.waiting.pop_front()?;
        Some((Ok::<Event, Infallible>(event), (source, events, permit)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY)).into_response()
}

/// Waits before a question is asked again that nobody answered.
pub async fn before_again() {
    tokio::time::sleep(AGAIN_AFTER).await;
}
