//! What the gateway answers, as HTTP and JSON. Every error says whether the call was executed and whether it may be sent again.

use crate::admin::call::CarriedToken;
use crate::cluster::ClusterFile;
use crate::services::json_bytes::put_bytes;
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::{Bytes, HostId};
use serde_json::{Map, Value, json};
use spanner::shard::TxnInProgress;
use spanner::{ShardId, TxnId};
use wire::txn::{CallKey, KeyRange, KeyRow, ScannedRows, Timestamp, TxnFailure, TxnReply};

fn row(row: &KeyRow) -> Value {
    let mut fields = Map::new();
    put_bytes(&mut fields, "key", &row.key);
    match &row.value {
        Some(value) => put_bytes(&mut fields, "value", value),
        None => {
            fields.insert("value".to_owned(), Value::Null);
        }
    }
    // What a condition says of a key that is not there.
    let version = if row.value.is_some() { row.version.0 } else { 0 };
    fields.insert("version".to_owned(), json!(version));
    Value::Object(fields)
}

fn rows(rows: &[KeyRow]) -> Vec<Value> {
    rows.iter().map(row).collect()
}

fn scans(scans: &[ScannedRows]) -> Vec<Value> {
    let one = |scan: &ScannedRows| {
        let mut fields = Map::new();
        fields.insert("rows".to_owned(), json!(rows(&scan.rows)));
        match &scan.next {
            Some(next) => put_bytes(&mut fields, "next", next),
            None => {
                fields.insert("next".to_owned(), Value::Null);
            }
        }
        Value::Object(fields)
    };
    scans.iter().map(one).collect()
}

/// The session's token of an answer.
fn token(reply: &TxnReply) -> Option<Timestamp> {
    match reply {
        TxnReply::ReadRows(reply) => Some(reply.token),
        TxnReply::Committed(reply) => Some(reply.token),
        TxnReply::NotMet(reply) => Some(reply.token),
        TxnReply::RowsWithin(reply) => Some(reply.token),
        TxnReply::Fenced(reply) => Some(reply.token),
        TxnReply::Begun(_) | TxnReply::CommitFate(_) | TxnReply::Failed(_) => None,
    }
}

/// The answer to a call, and its token for the caller's baggage.
pub(super) fn answer(reply: &TxnReply, commit: Option<CallKey>) -> Response {
    let mut response = body_of(reply, commit);
    if let Some(token) = token(reply) {
        response.extensions_mut().insert(CarriedToken(token.0.to_le_bytes().to_vec()));
    }
    response
}

/// `commit`: the name of what the call commits, which later questions for its fate use.
fn body_of(reply: &TxnReply, commit: Option<CallKey>) -> Response {
    let id = commit.map(|key| key.to_string());
    match reply {
        TxnReply::ReadRows(reply) => Json(json!({
            "at": reply.at.0, "token": reply.token.0,
            "rows": rows(&reply.rows), "scans": scans(&reply.scans),
        }))
        .into_response(),
        TxnReply::Committed(reply) => Json(json!({
            "committed": reply.at.0, "token": reply.token.0, "rows": rows(&reply.rows), "id": id,
        }))
        .into_response(),
        TxnReply::NotMet(reply) => {
            let body = json!({
                "error": "a condition does not hold: nothing was written",
                "executed": false, "retry": false,
                "condition": reply.condition, "token": reply.token.0, "rows": rows(&reply.rows),
            });
            (StatusCode::CONFLICT, Json(body)).into_response()
        }
        TxnReply::Begun(reply) => {
            Json(json!({ "txn": format!("{:016x}", reply.id), "priority": reply.priority.0 })).into_response()
        }
        TxnReply::RowsWithin(reply) => Json(json!({
            "token": reply.token.0, "rows": rows(&reply.rows), "scans": scans(&reply.scans),
        }))
        .into_response(),
        TxnReply::Fenced(reply) => Json(json!({ "token": reply.token.0 })).into_response(),
        TxnReply::CommitFate(reply) => {
            Json(json!({ "id": id, "committed": reply.committed.map(|at| at.0) })).into_response()
        }
        TxnReply::Failed(reply) => failure(reply.why, commit),
    }
}

/// A call that has no result.
pub(super) fn failure(why: TxnFailure, commit: Option<CallKey>) -> Response {
    let status = match why {
        TxnFailure::Aborted => StatusCode::CONFLICT,
        TxnFailure::Malformed | TxnFailure::FromTheFuture => StatusCode::BAD_REQUEST,
        TxnFailure::Collected => StatusCode::GONE,
        TxnFailure::NoTransaction => StatusCode::NOT_FOUND,
        TxnFailure::Busy | TxnFailure::NoClock | TxnFailure::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        TxnFailure::Unknown => StatusCode::GATEWAY_TIMEOUT,
        TxnFailure::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        TxnFailure::NotGranted => StatusCode::FORBIDDEN,
    };
    let executed = if why.is_surely_void() { json!(false) } else { Value::Null };
    let mut body = json!({ "error": why.to_string(), "executed": executed, "retry": why.may_be_retried() });
    if let (Some(key), false, Value::Object(fields)) = (commit, why.is_surely_void(), &mut body) {
        fields.insert("id".to_owned(), json!(key.to_string()));
    }
    let response = (status, Json(body)).into_response();
    match why {
        TxnFailure::Busy | TxnFailure::Unavailable => {
            ([(header::RETRY_AFTER, "1")], response).into_response()
        }
        TxnFailure::Aborted
        | TxnFailure::Malformed
        | TxnFailure::FromTheFuture
        | TxnFailure::Collected
        | TxnFailure::NoTransaction
        | TxnFailure::NoClock
        | TxnFailure::Unknown
        | TxnFailure::DiskFull
        | TxnFailure::NotGranted => response,
    }
}

/// A request that no gateway was asked for.
pub(super) struct Refused {
    status: StatusCode,
    why: String,
}

impl Refused {
    /// It makes no sense, or is beyond a limit.
    pub(super) fn bad(why: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why: why.into() }
    }

    /// No service of this host answers it.
    pub(super) fn absent(why: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, why: why.into() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.why, "executed": false, "retry": false });
        (self.status, Json(body)).into_response()
    }
}

/// What a host's shards have in progress.
pub(super) fn in_progress(
    shards: &[(ShardId, (usize, usize), Vec<TxnInProgress>)],
    file: &ClusterFile,
) -> Value {
    let name = |txn: &TxnId| {
        let host =
            file.hosts.iter().map(|host| &host.name).find(|name| HostId::named(name) == txn.gateway.host());
        let host = host.map_or_else(|| format!("{:?}", txn.gateway.host()), Clone::clone);
        format!("{host}-{:x}-{}", txn.incarnation, txn.number)
    };
    let text = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    let keys = |keys: &[Bytes]| keys.iter().map(text).collect::<Vec<_>>();
    let range =
        |range: &KeyRange| json!({ "start": text(&range.start), "end": range.end.as_ref().map(text) });
    let one = |it: &TxnInProgress| {
        json!({
            "txn": name(&it.txn),
            "stage": it.stage,
            "prepared_at": it.t_p.map(|at| at.0),
            "coordinator": it.coordinator.map(|shard| shard.0),
            "behind": it.behind.as_ref().map(name),
            "waiters": it.waiters,
            "locks": it.locks,
            "reads": keys(&it.reads),
            "ranges": it.ranges.iter().map(range).collect::<Vec<_>>(),
            "writes": keys(&it.writes),
        })
    };
    let shards = shards.iter().map(|(shard, (locks, most), transactions)| {
        json!({
            "shard": shard.0,
            "locks": locks,
            "locks_max": most,
            "transactions": transactions.iter().map(one).collect::<Vec<_>>(),
        })
    });
    json!({ "shards": shards.collect::<Vec<_>>() })
}
