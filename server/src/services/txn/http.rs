//! Transactions over HTTP and JSON. A session is the token that every answer has: a caller sends it with its next call.
//!
//! `POST /v1/txn` is a read-only transaction or a one-shot; `begin`, `ID/read`, `ID/commit` and `ID/abort` are an interactive
//! transaction, at the host where it was begun; `status/COMMIT` answers what became of a commit; `fence` is for those who go on to another
//! service; `transactions` shows what is in progress where this host leads.

use super::body::{BeginBody, CommitBody, FenceBody, ReadBody, TransactionBody, commit_id, timestamp};
use super::replies::{Refused, answer, failure, in_progress};
use super::{TxnService, nodes, token_of};
use crate::admin::call::CarriedToken;
use crate::admin::state::Admin;
use crate::family::{HostedNode, LocalRequest, LocalResponse};
use crate::unique::unique_number;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use kernel::{Decode as _, Encode as _, HostSlot};
use serde::de::DeserializeOwned;
use serde_json::json;
use spanner::SpannerMember;
use std::sync::Arc;
use std::time::Duration;
use wire::txn::{
    Begin, CallKey, Commit, CommitStatus, Fence, GiveUp, ReadOnly, ReadWithin, Timestamp, TxnCall,
    TxnFailure, TxnLevel, TxnReply,
};

/// How long an answer is waited for: longer than a gateway tries.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Transactions in progress that one answer shows, of each shard.
const SHOWN_MAX: usize = 1_000;

fn read_body<B: DeserializeOwned + Default>(body: &[u8]) -> Result<B, Refused> {
    if body.is_empty() {
        return Ok(B::default());
    }
    // Fields would be taken by their positions from a list.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refused::bad("the body cannot be read: wanted is a JSON object, {...}"));
    }
    serde_json::from_slice(body).map_err(|why| Refused::bad(format!("the body cannot be read: {why}")))
}

fn gateway(admin: &Admin) -> Result<HostSlot, Refused> {
    let txn = admin.file.service::<TxnService>();
    let off = || Refused::absent("there is no transaction service: txn.shards is 0");
    txn.map(|txn| nodes::gateway(&admin.file, txn, &admin.host).host_slot()).ok_or_else(off)
}

/// What the caller has seen: its token, or what its baggage carries if that is later.
type Carried = Option<Extension<CarriedToken>>;

fn session(token: u64, carried: Carried) -> Result<Timestamp, Refused> {
    let token = timestamp(token).map_err(Refused::bad)?;
    match carried {
        Some(Extension(CarriedToken(carried))) => {
            token_of(&carried).map(|carried| carried.max(token)).map_err(Refused::bad)
        }
        None => Ok(token),
    }
}

/// What a call over HTTP reads and writes; none if it names no keys, or cannot be read.
pub(super) fn calls_of(path: &str, body: &[u8]) -> Option<TxnCall> {
    let nobody = CallKey { session: 0, number: 0 };
    let (id, txn, token, acknowledged) = (0, 0, Timestamp(0), 0);
    match path.strip_prefix("/v1/txn")?.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
        [""] => read_body::<TransactionBody>(body).ok()?.call(nobody).ok().map(|(call, _)| call),
        [_, "read"] => {
            let (keys, scans) = read_body::<ReadBody>(body).ok()?.reads().ok()?;
            Some(ReadOnly { id, token, level: TxnLevel::Strict, keys, scans }.into())
        }
        [_, "commit"] => {
            let (writes, _) = read_body::<CommitBody>(body).ok()?.commit().ok()?;
            Some(Commit { id, txn, key: None, acknowledged, writes }.into())
        }
        _ => None,
    }
}

/// The gateway's answer; `commit`: the name of what the call commits.
async fn ask(admin: &Admin, call: impl Into<TxnCall>, commit: Option<CallKey>) -> Result<Response, Refused> {
    let (gateway, call) = (gateway(admin)?, call.into());
    if let Some(fault) = call.fault() {
        return Err(Refused::bad(format!("malformed, or beyond a limit: {fault}")));
    }
    let writes = matches!(call, TxnCall::OneShot(_) | TxnCall::Commit(_));
    let nobody = || failure(if writes { TxnFailure::Unknown } else { TxnFailure::Unavailable }, commit);
    let asked = admin.handle.request(gateway, LocalRequest::Service(call.encoded().into()));
    let answered = tokio::time::timeout(ANSWER_WITHIN, asked).await;
    let reply = answered.ok().and_then(Result::ok).and_then(LocalResponse::of_service);
    let reply = reply.and_then(|body| TxnReply::decoded(&body).ok());
    Ok(reply.map_or_else(nobody, |reply| answer(&reply, commit)))
}

/// `POST /v1/txn`
pub(super) async fn transaction(
    State(admin): State<Arc<Admin>>,
    carried: Carried,
    body: Bytes,
) -> Result<Response, Refused> {
    let mut body: TransactionBody = read_body(&body)?;
    body.token = session(body.token, carried)?.0;
    let (call, commit) = body.call(CallKey { session: unique_number(), number: 1 }).map_err(Refused::bad)?;
    ask(&admin, call, commit).await
}

/// `POST /v1/txn/begin`
pub(super) async fn begin(
    State(admin): State<Arc<Admin>>,
    carried: Carried,
    body: Bytes,
) -> Result<Response, Refused> {
    let BeginBody { token, priority } = read_body(&body)?;
    let token = session(token, carried)?;
    let priority = priority.map(timestamp).transpose().map_err(Refused::bad)?;
    ask(&admin, Begin { id: unique_number(), token, priority }, None).await
}

/// `POST /v1/txn/fence`
pub(super) async fn fence(
    State(admin): State<Arc<Admin>>,
    carried: Carried,
    body: Bytes,
) -> Result<Response, Refused> {
    let FenceBody { token } = read_body(&body)?;
    let token = session(token, carried)?;
    ask(&admin, Fence { id: 0, token }, None).await
}

/// `GET /v1/txn/status/COMMIT`
pub(super) async fn status(
    State(admin): State<Arc<Admin>>,
    Path(commit): Path<String>,
) -> Result<Response, Refused> {
    let key = commit_id(&commit).map_err(Refused::bad)?;
    ask(&admin, CommitStatus { id: 0, key }, Some(key)).await
}

/// The name that [`begin`] gave a transaction.
fn named(txn: &str) -> Result<u64, Refused> {
    let sound = txn.len() == 16 && txn.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(txn, 16).ok().filter(|_| sound);
    let none = || Refused::bad(format!("{txn:?} names no transaction; /v1/txn/begin answers such a name"));
    number.ok_or_else(none)
}

/// `POST /v1/txn/ID/read`
pub(super) async fn read_within(
    State(admin): State<Arc<Admin>>,
    Path(txn): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let (txn, body): (u64, ReadBody) = (named(&txn)?, read_body(&body)?);
    let (keys, scans) = body.reads().map_err(Refused::bad)?;
    ask(&admin, ReadWithin { id: 0, txn, keys, scans }, None).await
}

/// `POST /v1/txn/ID/commit`
pub(super) async fn commit(
    State(admin): State<Arc<Admin>>,
    Path(txn): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let (txn, body): (u64, CommitBody) = (named(&txn)?, read_body(&body)?);
    let (writes, key) = body.commit().map_err(Refused::bad)?;
    let key = key.unwrap_or_else(|| CallKey { session: unique_number(), number: 1 });
    ask(&admin, Commit { id: 0, txn, key: Some(key), acknowledged: 0, writes }, Some(key)).await
}

/// `POST /v1/txn/ID/abort`
pub(super) async fn abort(
    State(admin): State<Arc<Admin>>,
    Path(txn): Path<String>,
) -> Result<Response, Refused> {
    let (txn, gateway) = (named(&txn)?, gateway(&admin)?);
    let call = TxnCall::GiveUp(GiveUp { txn });
    let given_up = admin.handle.request(gateway, LocalRequest::Service(call.encoded().into()));
    let answered = tokio::time::timeout(ANSWER_WITHIN, given_up).await;
    let Some(body) = answered.ok().and_then(Result::ok).and_then(LocalResponse::of_service) else {
        return Ok(failure(TxnFailure::Unavailable, None));
    };
    Ok(match TxnReply::decoded(&body) {
        Ok(TxnReply::Failed(refused)) => failure(refused.why, None),
        Ok(_) | Err(_) => Json(json!({ "aborted": true })).into_response(),
    })
}

/// `GET /v1/txn/transactions`
pub(super) async fn transactions(State(admin): State<Arc<Admin>>) -> Result<Response, Refused> {
    gateway(&admin)?;
    let seen = admin.handle.inspect(|view| {
        let shards = view.nodes().filter_map(|(_, node)| {
            let HostedNode::Txn(embedded) = node else { return None };
            match embedded.node() {
                SpannerMember::Shard(role) if role.is_leading() => {
                    Some((role.shard(), role.locks(), role.transactions(SHOWN_MAX)))
                }
                SpannerMember::Shard(_) | SpannerMember::Gateway(_) | SpannerMember::Log(_) => None,
            }
        });
        shards.collect::<Vec<_>>()
    });
    match seen.await {
        Ok(shards) => Ok(Json(in_progress(&shards, &admin.file)).into_response()),
        Err(_) => Ok(failure(TxnFailure::Unavailable, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A list whose elements are taken for fields writes what nobody asked for.
    #[test]
    fn a_body_is_an_object() {
        assert!(read_body::<TransactionBody>(b" \n{\"read\": [\"a\"]}").is_ok());
        assert!(read_body::<TransactionBody>(b"").is_ok());
        for list in [&b"[]"[..], b" [0]", b"null", b"7"] {
            assert!(read_body::<BeginBody>(list).is_err() && read_body::<TransactionBody>(list).is_err());
        }
    }
}
