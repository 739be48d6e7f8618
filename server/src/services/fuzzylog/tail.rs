//! A colour's nodes as server-sent events: `GET /v1/fuzzylog/colours/COLOUR/tail?from=7`.
//!
//! An event's data is the node as `GET /v1/fuzzylog/colours/COLOUR` has it; without `from` and `Last-Event-ID` it begins at the end.
//! `trimmed` says where to resume.

use super::http::page;
use super::replies::Refused;
use crate::admin::state::Admin;
use crate::services::events::{self, EventSource, Events, FirstPosition, READERS_MAX, Readers, WAIT_MS};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use kernel::Bytes;
use std::sync::Arc;
use wire::fuzzylog::{FuzzyFailure, SeenTime, SyncColour};

struct ColourReader {
    admin: Arc<Admin>,
    colour: Bytes,
    next: u64,
    seen: SeenTime,
}

/// `GET /v1/fuzzylog/colours/COLOUR/tail`: streams nodes until the reader goes.
pub(super) async fn tail(
    State(admin): State<Arc<Admin>>,
    Extension(readers): Extension<Readers>,
    Path(name): Path<String>,
    Query(begin): Query<FirstPosition>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let full = || Refused::busy(&format!("{READERS_MAX} readers follow colours at this host"));
    let permit = readers.admit().ok_or_else(full)?;
    let resumed = events::resumed(&headers).map_err(Refused::bad)?;
    let colour = Bytes::from(name.into_bytes());
    let next = match resumed.or(begin.from) {
        Some(next) => next,
        None => end_of(&admin, &colour).await?,
    };
    Ok(events::send(ColourReader { admin, colour, next, seen: SeenTime::default() }, permit))
}

/// The position after a colour's last node: nobody plays from beyond, and the refusal says where the end is.
async fn end_of(admin: &Admin, colour: &Bytes) -> Result<u64, Refused> {
    let (seen, colour) = (SeenTime::default(), colour.clone());
    match page(admin, SyncColour { id: 0, seen, colour, from: u64::MAX, wait_ms: 0 }).await {
        Ok(page) => Ok(page.nodes.tail),
        Err(Refused { why: Some((FuzzyFailure::BeyondTail, tail)), .. }) => Ok(tail),
        Err(refused) => Err(refused),
    }
}

impl EventSource for ColourReader {
    async fn read(&mut self, events: &mut Events) {
        let (colour, from, seen) = (self.colour.clone(), self.next, self.seen);
        match page(&self.admin, SyncColour { id: 0, seen, colour, from, wait_ms: WAIT_MS }).await {
            Ok(page) => {
                for (position, node) in page.nodes_in_words() {
                    events.entry(position, &node);
                }
                self.next = page.next();
                self.seen = page.nodes.seen;
            }
            Err(Refused { why: Some((FuzzyFailure::Trimmed, first)), .. }) => events.end_trimmed(first),
            Err(Refused { why: Some((FuzzyFailure::Busy | FuzzyFailure::Unknown, _)), .. }) => {
                events::before_again().await;
            }
            Err(refused) => events.end(None, "failed", &refused.body),
        }
    }
}
