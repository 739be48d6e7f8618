//! How many proxies order the coordination service's operations, and over how many shards znodes are spread: `GET
//! /v1/zookeeper/proxies` and `/v1/zookeeper/shards`, and `PUT` with `{"proxies": 5}` or `{"shards": 6}`.

use super::{Coordination, nodes, over_fuzzylog};
use crate::admin::state::Admin;
use crate::family;
use crate::services::mason::{Proxies, ShardMapStatus};
use crate::status::ANSWER_WITHIN;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kernel::{Decode as _, Encode as _, HostId};
use mason::proxy::arranging::{FIRST, Progress, ProxyCall};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeProxies {
    proxies: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeShards {
    shards: u16,
}

/// Answers [`Proxies`] as this host knows them.
pub async fn proxies(State(admin): State<Arc<Admin>>) -> Response {
    answer::<Proxies>(ask(&admin, &ProxyCall::Arrange(None)).await)
}

/// Answers [`ShardMap`] as this host knows it.
pub async fn shards(State(admin): State<Arc<Admin>>) -> Response {
    answer::<ShardMapStatus>(ask(&admin, &ProxyCall::Arrange(None)).await)
}

/// Begins a change, and answers as [`proxies`] does; done it is when those that serve are as many as wanted and all is settled. Asked
/// again, it goes on with the same change; a 409 says that another one is in flight.
pub async fn change_proxies(State(admin): State<Arc<Admin>>, body: Bytes) -> Response {
    let Ok(ChangeProxies { proxies: wanted }) = serde_json::from_slice(&body) else {
        return error(StatusCode::BAD_REQUEST, "wanted: {\"proxies\": N}");
    };
    let allowed = |now: &Progress| allowed("proxies", wanted, now.room, now.layout.serving == wanted, now);
    answer::<Proxies>(change(&admin, allowed, ProxyCall::Arrange(Some(wanted))).await)
}

/// The same of shards.
pub async fn change_shards(State(admin): State<Arc<Admin>>, body: Bytes) -> Response {
    let Ok(ChangeShards { shards: wanted }) = serde_json::from_slice(&body) else {
        return error(StatusCode::BAD_REQUEST, "wanted: {\"shards\": N}");
    };
    let allowed = |now: &Progress| {
        let room = now.shards_room.unwrap_or(0);
        allowed("shards", wanted, room, now.layout.shard_map.shards == wanted, now)
    };
    answer::<ShardMapStatus>(change(&admin, allowed, ProxyCall::SetShards(wanted)).await)
}

/// Why a change cannot be made.
type Refusal = (StatusCode, String);

fn allowed(of: &str, wanted: u16, room: u16, is_it: bool, now: &Progress) -> Result<(), Refusal> {
    if !(1..=room).contains(&wanted) {
        return Err((StatusCode::BAD_REQUEST, format!("wanted: 1 to {room} {of}, not {wanted}")));
    }
    if !now.settled && !is_it {
        let (proxies, shards) = (now.layout.serving, now.layout.shard_map.shards);
        let what = format!("a change to {proxies} proxies and {shards} shards is in flight");
        return Err((StatusCode::CONFLICT, what));
    }
    Ok(())
}

async fn change(
    admin: &Admin,
    allowed: impl Fn(&Progress) -> Result<(), Refusal>,
    call: ProxyCall,
) -> Result<Progress, Response> {
    let now = ask(admin, &ProxyCall::Arrange(None)).await?;
    allowed(&now).map_err(|(status, why)| error(status, &why))?;
    ask(admin, &call).await
}

async fn ask(admin: &Admin, call: &ProxyCall) -> Result<Progress, Response> {
    let Some(coordination) = admin.file.service::<Coordination>() else {
        return Err(error(StatusCode::NOT_FOUND, "the coordination service is off: coordination.engine"));
    };
    if !coordination.is_sharded() {
        let what = "with coordination.engine = \"paxos\" there is one proxy with one shard, for ever";
        return Err(error(StatusCode::CONFLICT, what));
    }
    let host = HostId::named(&admin.host);
    let proxy = match coordination.is_over_mason() {
        true => nodes::deployment(&admin.file, coordination).proxies_of(host)[usize::from(FIRST.0)],
        false if matches!(call, ProxyCall::Arrange(Some(_))) => {
            let what = "with coordination.engine = \"fuzzylog\" one colour orders all: there are no proxies";
            return Err(error(StatusCode::CONFLICT, what));
        }
        false => over_fuzzylog::feeder(&admin.file, host),
    };
    let request = family::LocalRequest::Service(call.encoded().into());
    let answered = admin.handle.request(proxy.host_slot(), request);
    match tokio::time::timeout(ANSWER_WITHIN, answered).await {
        Ok(Ok(family::LocalResponse::Service(bytes))) => Progress::decoded(&bytes)
            .map_err(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "a malformed answer")),
        Ok(_) | Err(_) => Err(error(StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer")),
    }
}

fn answer<T: From<Progress> + Serialize>(asked: Result<Progress, Response>) -> Response {
    match asked {
        Ok(progress) => Json(T::from(progress)).into_response(),
        Err(refused) => refused,
    }
}

fn error(status: StatusCode, what: &str) -> Response {
    (status, Json(json!({ "error": what }))).into_response()
}
