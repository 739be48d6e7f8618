//! Maps that are removed: `DELETE /v1/map/MAP`, and how a host learns that a map which is in use there is gone.

use super::super::http::seen;
use super::super::replies::Refused;
use super::call::maps;
use super::open::{Maps, OpenMap};
use super::words;
use crate::admin::state::Admin;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use ordinate_client::maps::{NotRemoved, check_map_name};
use ordinate_client::{FuzzyError, FuzzyFailure};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The catalogue is looked at so often while maps are in use, for removals that others have begun and not ended.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a removal may take until its caller is answered: each colour is trimmed.
const REMOVED_WITHIN: Duration = Duration::from_secs(30);

/// Which map of the name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveQuery {
    id: Option<String>,
    seen: Option<String>,
}

/// `DELETE /v1/map/MAP`
pub(super) async fn remove(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    Query(query): Query<RemoveQuery>,
) -> Result<Response, Refused> {
    let maps = maps(&admin)?;
    check_map_name(&name).map_err(|fault| Refused::fault(&fault))?;
    seen(query.seen.as_deref())?;
    let id = query.id.as_deref().map(words::read_id).transpose()?;
    // It goes on if its caller hangs up.
    let (removing, of) = (Arc::clone(&maps), name.clone());
    let removal = tokio::spawn(async move { removing.catalogue.remove(&of, id).await });
    let unknown = || Err(NotRemoved::Log(FuzzyError::Failed(FuzzyFailure::Unknown)));
    let removed = tokio::time::timeout(REMOVED_WITHIN, removal).await;
    let removed = removed.ok().and_then(Result::ok).unwrap_or_else(unknown);
    let (made, is_new) = removed.map_err(|why| words::not_removed(&name, why))?;
    let is_learned = maps.in_use(&name).is_some_and(|map| map.made.id == made.id && maps.learn_gone(&map));
    if is_new && !is_learned {
        maps.count_removed();
    }
    let answer = json!({ "map": name, "id": words::id_of(&made), "removed": is_new });
    Ok(Json(answer).into_response())
}

impl Maps {
    /// A map that was in use is removed: who tends it trims what this host has appended and stored behind the removal. True for the first
    /// who says so.
    fn learn_gone(&self, map: &Arc<OpenMap>) -> bool {
        self.close(map);
        let is_first = map.is_learned_gone();
        if is_first {
            self.count_removed();
        }
        is_first
    }

    /// Whether a map that was in use is removed, as an error says that its colours may be.
    pub(super) async fn is_gone(&self, map: &Arc<OpenMap>, error: &FuzzyError) -> bool {
        // Unknown: of a change whose outcome is not found any more.
        let is_unknown = matches!(error, FuzzyError::Failed(FuzzyFailure::Unknown));
        let may_be =
            is_unknown || matches!(error, FuzzyError::MapRemoved | FuzzyError::AlreadyTrimmed { .. });
        let found = if may_be { self.catalogue.find_now(&map.name).await.ok() } else { None };
        if found.is_none_or(|found| found.is_some_and(|it| it.id == map.made.id)) {
            return false;
        }
        self.learn_gone(map);
        true
    }

    /// Ends removals that others have begun, and stores which maps there are.
    pub(super) async fn look_around(&self) {
        if !self.is_time_to_look(LOOK_EVERY) {
            return;
        }
        // What fails is tried again the next time.
        let has_some = self.catalogue.end_removals().await != Ok(0);
        let _ = self.catalogue.store_views().await;
        if !has_some {
            self.set_unfinished(0);
        } else if let Ok(unfinished) = self.catalogue.unfinished().await {
            self.set_unfinished(unfinished);
        }
    }
}
