//! A call of one map at this host: the map is found, is in use, and is behind what the caller has seen.

use super::super::http::{seen, service};
use super::super::replies::Refused;
use super::open::{Maps, OpenMap};
use super::served::Changes;
use super::words;
use crate::admin::state::Admin;
use axum::Json;
use axum::response::{IntoResponse, Response};
use ordinate_client::maps::{check_map_name, entry_bytes};
use ordinate_client::{FuzzyError, FuzzyFailure};
use serde_json::{Map, Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The longest key, in bytes.
pub(super) const KEY_BYTES_MAX: usize = 1_024;
/// How long a call waits for others that play the map, and for the log: longer than the log tries.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// This host's maps.
pub(super) fn maps(admin: &Admin) -> Result<Arc<Maps>, Refused> {
    let service = service(admin)?;
    if !admin.file.regions.is_empty() {
        return Err(Refused::bad("maps are not served in a cluster of several regions: nothing was done"));
    }
    Ok(service.maps.of(admin, service))
}

/// A call of one map at this host.
pub(super) struct MapCall {
    pub(super) maps: Arc<Maps>,
    pub(super) map: Arc<OpenMap>,
    /// The caller has seen something, here or elsewhere.
    has_seen: bool,
}

impl MapCall {
    pub(super) async fn begin(admin: &Admin, name: &str, given: Option<&str>) -> Result<Self, Refused> {
        let maps = maps(admin)?;
        check_map_name(name).map_err(|fault| Refused::fault(&fault))?;
        let given_time = seen(given)?;
        let mut has_looked = false;
        let map = loop {
            let (kind, made) = match maps.in_use(name) {
                Some(map) => (map.kind, map.made.clone()),
                None => {
                    let made = in_time(maps.catalogue.find(name)).await;
                    let made = made.map_err(|error| words::refused(error, false))?;
                    let made = made.ok_or_else(|| words::no_such_map(name))?;
                    (made.kind.parse().map_err(|_| words::of_a_later_version(name))?, made)
                }
            };
            let map = maps.use_map(name, kind, &made);
            match in_time(maps.begun(&map)).await {
                Ok(()) => break map,
                // Another map may have the name by now.
                Err(error) if !has_looked && maps.is_gone(&map, &error).await => has_looked = true,
                Err(error) => return Err(refused(&maps, error, false)),
            }
        };
        let after = in_time(map.log.come_after(given_time, &map.colour())).await;
        after.map_err(|error| refused(&maps, error, false))?;
        Ok(Self { maps, map, has_seen: given.is_some() })
    }

    /// What a call of the map comes to, in time; `writes`: it may have been done although nobody answers.
    pub(super) async fn done_in_time<T>(
        &self,
        call: impl Future<Output = Result<T, FuzzyError>>,
        writes: bool,
    ) -> Result<T, Refused> {
        match in_time(call).await {
            Ok(done) => Ok(done),
            Err(error) if self.maps.is_gone(&self.map, &error).await => {
                let has_another =
                    matches!(in_time(self.maps.catalogue.find(&self.map.name)).await, Ok(Some(_)));
                Err(if has_another {
                    words::replaced()
                } else {
                    words::refused(FuzzyError::MapRemoved, writes)
                })
            }
            Err(error) => Err(refused(&self.maps, error, writes)),
        }
    }

    /// What goes by what was played here, and asks nobody, is behind what its caller has seen elsewhere.
    pub(super) async fn come_after(&self) -> Result<(), Refused> {
        if self.has_seen && self.map.map.asks_nobody() {
            self.done_in_time(self.map.map.sync(), false).await?;
        }
        Ok(())
    }

    pub(super) async fn admit(&self, changes: &Changes) -> Result<(), Refused> {
        let put = |(key, value): &(String, Option<kernel::Bytes>)| {
            value.as_ref().map_or(0, |value| entry_bytes(key.as_bytes(), value))
        };
        let bytes: usize = changes.iter().map(put).sum();
        if bytes == 0 {
            return Ok(());
        }
        self.done_in_time(self.maps.admit(&self.map, bytes), false).await
    }

    pub(super) fn seen(&self) -> String {
        self.map.log.seen().to_string()
    }

    pub(super) fn answer(&self, mut fields: Map<String, Value>) -> Response {
        fields.insert("seen".to_owned(), json!(self.seen()));
        Json(fields).into_response()
    }

    /// It is done.
    pub(super) fn done(&self) -> Response {
        self.answer(Map::new())
    }
}

/// In time, or nobody knows.
pub(super) async fn in_time<T>(call: impl Future<Output = Result<T, FuzzyError>>) -> Result<T, FuzzyError> {
    let done = tokio::time::timeout(ANSWER_WITHIN, call).await;
    done.unwrap_or(Err(FuzzyError::Failed(FuzzyFailure::Unknown)))
}

/// The log's word, or that there is no memory, which is counted.
fn refused(maps: &Maps, error: FuzzyError, writes: bool) -> Refused {
    if matches!(error, FuzzyError::NoMemory { .. }) {
        maps.count_refused();
    }
    words::refused(error, writes)
}
