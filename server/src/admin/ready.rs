//! Whether users of each service would be served here now: one linearizable read of each, answered within two seconds.

use super::Admin;
use crate::cluster::ClusterFile;
use crate::family::LocalResponse as Answered;
use crate::services::{ReadyProbe, Service};
use crate::status::HostStatus;
use axum::extract::{Query as Parameters, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use runtime::{Answer, NoAnswer};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a read may take.
const WITHIN: Duration = Duration::from_secs(2);

/// Which service is asked for; all without it.
#[derive(Deserialize)]
pub struct Wanted {
    service: Option<String>,
}

/// One service's read. At most one is on its way, however many ask: one that is not answered is waited for again.
struct Asking {
    service: &'static str,
    probe: ReadyProbe,
    unanswered: Mutex<Option<Answer<Answered>>>,
}

/// The services that are on.
pub struct Probes(Vec<Asking>);

impl Probes {
    /// Of a host.
    pub fn of(file: &ClusterFile, host: &str) -> Self {
        let asking = |service: &Arc<dyn Service>| Asking {
            service: service.listed().name,
            probe: service.probe(file, host),
            unanswered: Mutex::new(None),
        };
        Self(file.services().iter().map(asking).collect())
    }
}

impl Asking {
    /// Why its users would not be served; none if they would.
    async fn look(&self, admin: &Admin) -> Option<String> {
        let Self { service, probe: ReadyProbe { host_slot, request, accepts }, unanswered } = self;
        let mut unanswered = unanswered.lock().await;
        // What was answered meanwhile says nothing of now.
        let waiting = match unanswered.take() {
            Some(mut answer) => match tokio::time::timeout(Duration::ZERO, &mut answer).await {
                Ok(_) => None,
                Err(_) => Some(answer),
            },
            None => None,
        };
        let mut answer = waiting.unwrap_or_else(|| admin.handle.request(*host_slot, request()));
        match tokio::time::timeout(WITHIN, &mut answer).await {
            Ok(Ok(answer)) if accepts(&answer) => None,
            Ok(Ok(_)) => Some(format!("{service}: a read was refused")),
            Ok(Err(NoAnswer::Stopped | NoAnswer::TimedOut(_))) => {
                Some(format!("{service}: the host is stopping"))
            }
            Err(_) => {
                *unanswered = Some(answer);
                Some(format!("{service}: no answer to a read within {} s", WITHIN.as_secs()))
            }
        }
    }
}

/// `GET /readyz`, or `/readyz?service=coordination` for one alone: 200, or 503 with the reasons, a line each.
pub async fn readyz(State(admin): State<Arc<Admin>>, Parameters(wanted): Parameters<Wanted>) -> Response {
    let unready = |reasons: String| (StatusCode::SERVICE_UNAVAILABLE, reasons).into_response();
    let Some((status, _)) = HostStatus::of(&admin.handle, &admin.file, &admin.host).await else {
        return unready("the reactor does not answer\n".to_owned());
    };
    if let Some(reason) = status.not_ready() {
        return unready(format!("{}\n", reason.words(&status.host)));
    }
    let asked = |probe: &&Asking| wanted.service.as_deref().is_none_or(|service| service == probe.service);
    let probes: Vec<&Asking> = admin.probes.0.iter().filter(asked).collect();
    if probes.is_empty() {
        let known: Vec<&str> = admin.probes.0.iter().map(|probe| probe.service).collect();
        let what = format!("no such service here; there are: {}\n", known.join(", "));
        return (StatusCode::NOT_FOUND, what).into_response();
    }
    let reasons = futures_util::future::join_all(probes.into_iter().map(|probe| probe.look(&admin))).await;
    let reasons: Vec<String> = reasons.into_iter().flatten().map(|reason| format!("{reason}\n")).collect();
    if reasons.is_empty() { "ready\n".into_response() } else { unready(reasons.concat()) }
}
