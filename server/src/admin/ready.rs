//! `/livez`: whether the process should be started again. `/readyz`: whether users are served here.

use super::state::Admin;
use crate::status::HostStatus;
use axum::extract::{Query as Parameters, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;

/// Which service is asked for; all without it.
#[derive(Deserialize)]
pub struct Wanted {
    service: Option<String>,
}

fn unready(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

/// `GET /livez`, and `/healthz` as it was named first: 200 while the reactor answers, whether anybody is served or not.
pub async fn livez(State(admin): State<Arc<Admin>>) -> Response {
    match HostStatus::of(&admin.handle, &admin.file, &admin.host).await {
        Some(_) => "ok\n".into_response(),
        None => unready("the reactor does not answer"),
    }
}

/// `GET /readyz`, or `/readyz?service=coordination` for one alone: 200, or 503 with the reason.
pub async fn readyz(State(admin): State<Arc<Admin>>, Parameters(wanted): Parameters<Wanted>) -> Response {
    if let Some(service) = &wanted.service {
        let known: Vec<&str> = admin.file.services().iter().map(|service| service.listed().name).collect();
        if !known.contains(&service.as_str()) {
            let what = format!("no such service here; there are: {}\n", known.join(", "));
            return (StatusCode::NOT_FOUND, what).into_response();
        }
    }
    let health = admin.health.now().await;
    if wanted.service.as_deref().is_some_and(|service| health.serves(service)) {
        return "ready\n".into_response();
    }
    match health.words(&admin.host) {
        None => "ready\n".into_response(),
        Some(why) => unready(&why),
    }
}
