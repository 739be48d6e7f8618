//! ZooKeeper's AdminServer: `/commands/NAME` answers in JSON.

use super::CoordinationStatus;
use crate::admin::state::Admin;
use crate::status::HostStatus;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Number, Value, json};
use std::sync::Arc;

const NAMES: &[&str] =
    &["is_read_only", "leader", "monitor", "ruok", "srvr", "stat", "stats", "watch_summary"];

/// Lists the commands.
pub async fn list() -> Json<Value> {
    Json(json!(NAMES))
}

/// Answers one command; `error` is null where it was executed, as ZooKeeper has it.
pub async fn command(State(admin): State<Arc<Admin>>, Path(name): Path<String>) -> Response {
    let name = if name == "mntr" { "monitor".to_owned() } else { name };
    let status = HostStatus::of(&admin.handle, &admin.file, &admin.host).await;
    let known = status.and_then(|(status, _)| {
        let found = status.services.get::<CoordinationStatus>()?.clone();
        Some((status, found))
    });
    let Some((status, coordination)) = known else {
        let error = "the coordination service is off, or its host does not answer";
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "command": name, "error": error })))
            .into_response();
    };
    let mut answer = Map::new();
    match name.as_str() {
        "monitor" => answer = monitor(&coordination),
        "ruok" => {}
        "is_read_only" => drop(answer.insert("read_only".into(), json!(false))),
        "leader" => {
            answer.insert("is_leader".into(), json!(coordination.groups.sequencer.is_some()));
            answer.insert("leads_groups".into(), json!(coordination.groups.leads));
        }
        "srvr" | "stat" | "stats" => {
            answer.insert("version".into(), json!(status.version));
            answer.insert("server_stats".into(), Value::Object(monitor(&coordination)));
            answer.insert("shards".into(), json!(coordination.groups.shards));
        }
        "watch_summary" => {
            let watches = coordination.monitor.get("watch_count");
            answer.insert("num_total_watches".into(), json!(watches.and_then(Number::as_u64).unwrap_or(0)));
        }
        unknown => {
            let error = format!("unknown command {unknown}; there are: {}", NAMES.join(", "));
            return (StatusCode::NOT_FOUND, Json(json!({ "command": unknown, "error": error })))
                .into_response();
        }
    }
    answer.insert("command".into(), json!(name));
    answer.insert("error".into(), Value::Null);
    Json(Value::Object(answer)).into_response()
}

fn monitor(coordination: &CoordinationStatus) -> Map<String, Value> {
    coordination.monitor.iter().map(|(name, value)| (name.clone(), Value::Number(value.clone()))).collect()
}
