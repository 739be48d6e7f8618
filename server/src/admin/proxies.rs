//! How many proxies order the coordination service's operations: `GET /v1/zookeeper/proxies`, and `PUT` with `{"proxies": 5}`.

use super::Admin;
use crate::ensemble;
use crate::family;
use crate::standing::Proxies;
use crate::status::ANSWER_WITHIN;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kernel::{Decode as _, Encode as _, HostId};
use mason::proxy::arranging::{Call, FIRST, Progress};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    proxies: u16,
}

/// Answers [`Proxies`] as this host knows them.
pub async fn show(State(admin): State<Arc<Admin>>) -> Response {
    match ask(&admin, None).await {
        Ok(proxies) => Json(proxies).into_response(),
        Err(refused) => refused,
    }
}

/// Begins a change, and answers as [`show`] does; done it is when those that serve are as many as wanted and all is settled. Asked
/// again, it goes on with the same change; a 409 says that another one is under way.
pub async fn change(State(admin): State<Arc<Admin>>, body: Bytes) -> Response {
    let Ok(Change { proxies: wanted }) = serde_json::from_slice(&body) else {
        return error(StatusCode::BAD_REQUEST, "wanted: {\"proxies\": N}");
    };
    let now = match ask(&admin, None).await {
        Ok(now) => now,
        Err(refused) => return refused,
    };
    if !(1..=now.room).contains(&wanted) {
        return error(StatusCode::BAD_REQUEST, &format!("wanted: 1 to {} proxies, not {wanted}", now.room));
    }
    if !now.settled && now.serving != wanted {
        let what = format!("a change to {} proxies is under way", now.serving);
        return error(StatusCode::CONFLICT, &what);
    }
    match ask(&admin, Some(wanted)).await {
        Ok(proxies) => Json(proxies).into_response(),
        Err(refused) => refused,
    }
}

async fn ask(admin: &Admin, wanted: Option<u16>) -> Result<Proxies, Response> {
    let Some(coordination) = &admin.file.coordination else {
        return Err(error(StatusCode::NOT_FOUND, "the coordination service is off: coordination.engine"));
    };
    if !coordination.sharded {
        let what = "with coordination.engine = \"paxos\" there is one proxy, for ever";
        return Err(error(StatusCode::CONFLICT, what));
    }
    let proxies = ensemble::deployment(&admin.file, coordination).proxies_of(HostId::named(&admin.host));
    let call = Call::Arrange(wanted).encoded();
    let answered =
        admin.handle.request(proxies[usize::from(FIRST.0)].place(), family::Request::Follow(call.into()));
    match tokio::time::timeout(ANSWER_WITHIN, answered).await {
        Ok(Ok(family::Response::Mason(mason::Response(bytes)))) => Progress::decoded(&bytes)
            .map(Proxies::from)
            .map_err(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "an answer that is none")),
        Ok(_) | Err(_) => Err(error(StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer")),
    }
}

fn error(status: StatusCode, what: &str) -> Response {
    (status, Json(json!({ "error": what }))).into_response()
}
