//! The sequence over HTTP: `POST /v1/sequence/next` with `{"spaces": ["a", "b"], "count": 2, "label": "..."}`.

use super::{SequenceService, nodes};
use crate::access::{Area, Denied, Need, PortCaller, Right};
use crate::admin::call::HttpCall;
use crate::admin::state::Admin;
use crate::family;
use ::sequence::{Ask, DISK_FULL, LABEL_BYTES_MAX, UNKNOWN};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use kernel::{Decode as _, Encode as _};
use mason::{Order, Space};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits for all of its numbers.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Positions of one request at most.
const COUNT_MAX: u32 = 1000;

/// The routes.
pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/v1/sequence/next", post(next))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Next {
    spaces: Vec<String>,
    #[serde(default = "one")]
    count: u32,
    #[serde(default)]
    label: String,
}

fn one() -> u32 {
    1
}

/// Answers `{"positions": [{"gsn": 7, "numbers": {"a": 1, "b": 4}}, ...]}`. After a 504 some positions may have been given.
pub async fn next(State(admin): State<Arc<Admin>>, body: Bytes) -> Response {
    let Some(sequence) = admin.file.service::<SequenceService>() else {
        return error(StatusCode::NOT_FOUND, "there is no sequence service: sequence.spaces names none");
    };
    let next: Next = match serde_json::from_slice(&body) {
        Ok(next) => next,
        Err(why) => {
            return error(StatusCode::BAD_REQUEST, &format!("the body is no request for numbers: {why}"));
        }
    };
    let mut numbered = Vec::new();
    for name in &next.spaces {
        let Some(at) = sequence.spaces.iter().position(|known| known == name) else {
            let what = format!("no space {name}; there are: {}", sequence.spaces.join(", "));
            return error(StatusCode::BAD_REQUEST, &what);
        };
        numbered.push(Space(at as u16));
    }
    if numbered.is_empty() || !(1..=COUNT_MAX).contains(&next.count) || next.label.len() > LABEL_BYTES_MAX {
        let what = format!(
            "wanted: spaces, a count of 1 to {COUNT_MAX}, a label of at most {LABEL_BYTES_MAX} bytes"
        );
        return error(StatusCode::BAD_REQUEST, &what);
    }
    let ask = Ask { spaces: numbered.clone(), label: next.label.into_bytes().into() }.encoded();
    let gateway = nodes::gateway(&admin.file, sequence, &admin.host).host_slot();
    // All are in flight at once, so that they share batches.
    let calls: Vec<_> = (0..next.count)
        .map(|_| admin.handle.request(gateway, family::LocalRequest::Service(ask.clone().into())))
        .collect();
    let all = async {
        let mut positions = Vec::with_capacity(calls.len());
        for call in calls {
            let answer = call.await.ok();
            if matches!(&answer, Some(family::LocalResponse::Service(body)) if *body == DISK_FULL) {
                return Err(true);
            }
            positions.push(position_of(answer, &numbered, &next.spaces).ok_or(false)?);
        }
        Ok(positions)
    };
    match tokio::time::timeout(ANSWER_WITHIN, all).await {
        Ok(Ok(positions)) => Json(json!({ "positions": positions })).into_response(),
        Ok(Err(true)) if next.count == 1 => {
            error(StatusCode::INSUFFICIENT_STORAGE, "the disk is full: nothing was done")
        }
        Ok(Err(_)) | Err(_) => error(
            StatusCode::GATEWAY_TIMEOUT,
            "not all were answered in time; some numbers may have been assigned",
        ),
    }
}

/// Whether the caller may take numbers of all the spaces that it names. What cannot be read is refused by who serves it.
pub(super) fn check(call: &HttpCall<'_>, caller: &mut PortCaller) -> Result<(), Denied> {
    let next = serde_json::from_slice::<Next>(call.body);
    let spaces = next.map_or_else(|_| Vec::new(), |next| next.spaces);
    spaces.iter().try_for_each(|space| caller.check(Need::of(Right::Write, Area::Sequence, space.as_bytes())))
}

fn position_of(answer: Option<family::LocalResponse>, spaces: &[Space], names: &[String]) -> Option<Value> {
    let Some(family::LocalResponse::Service(body)) = answer else { return None };
    let order = Some(body).filter(|body| *body != UNKNOWN).and_then(|body| Order::decoded(&body).ok())?;
    let numbers =
        spaces.iter().zip(names).map(|(&space, name)| Some((name.clone(), json!(order.number_in(space)?.0))));
    let numbers: Map<String, Value> = numbers.collect::<Option<_>>()?;
    Some(json!({ "gsn": order.gsn.0, "numbers": numbers }))
}

fn error(status: StatusCode, what: &str) -> Response {
    (status, Json(json!({ "error": what }))).into_response()
}
