//! Whether users of each service would be served here now: one linearizable read of each, answered within two seconds.

use super::Admin;
use crate::family::{Request, Response as Answered};
use crate::host::GATEWAY;
use crate::status::Status;
use axum::extract::{Query as Parameters, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coordination::gateway::HostCall;
use kernel::{Bytes, Encode as _, HostId, Place};
use kv::Query;
use mason::Deployment;
use paxos::{Call, Level, Outcome};
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
struct Probe {
    service: &'static str,
    place: Place,
    request: fn() -> Request,
    accepts: fn(&Answered) -> bool,
    unanswered: Mutex<Option<Answer<Answered>>>,
}

/// The services that are on.
pub struct Probes(Vec<Probe>);

impl Probes {
    /// Of a host.
    pub fn of(file: &crate::cluster::ClusterFile, host: &str) -> Self {
        let probe = |service, place, request, accepts| Probe {
            service,
            place,
            request,
            accepts,
            unanswered: Mutex::new(None),
        };
        let mut probes =
            vec![probe("kv", GATEWAY, read_of_kv as fn() -> Request, is_kv as fn(&Answered) -> bool)];
        if file.coordination.is_some() {
            let gateway = Deployment::gateway(HostId::named(host)).place();
            probes.push(probe("coordination", gateway, read_of_coordination, is_coordination));
        }
        if let Some(sequence) = &file.sequence {
            let gateway = crate::services::sequence::nodes::gateway(file, sequence, host).place();
            probes.push(probe("sequence", gateway, || Request::Service(Bytes::new()), is_sequence));
        }
        if let Some(logs) = &file.logs {
            let gateway = crate::services::log::nodes::gateway(file, logs, host).place();
            probes.push(probe("log", gateway, read_of_log, is_log));
        }
        Self(probes)
    }
}

fn read_of_kv() -> Request {
    let mut query = Vec::new();
    Query::Get { key: b"" }.encode(&mut query);
    Request::Kv(Call::Read { query: query.into(), level: Level::Linearizable })
}

fn is_kv(answer: &Answered) -> bool {
    matches!(answer, Answered::Kv(Outcome::Done(_)))
}

fn read_of_coordination() -> Request {
    let call = HostCall { operation: None, facts: None, probes: true };
    Request::Service(call.encoded().into())
}

fn is_coordination(answer: &Answered) -> bool {
    matches!(answer, Answered::Service(body) if *body == coordination::Gateway::READY)
}

fn is_sequence(answer: &Answered) -> bool {
    matches!(answer, Answered::Service(body) if *body == sequence::READY)
}

fn read_of_log() -> Request {
    let list = shared_log::List { after: String::new(), limit: 1 };
    Request::Service(shared_log::Request::List(list).encoded().into())
}

fn is_log(answer: &Answered) -> bool {
    use kernel::Decode as _;
    let Answered::Service(body) = answer else { return false };
    matches!(shared_log::Answer::decoded(body), Ok(shared_log::Answer::Logs(_)))
}

impl Probe {
    /// Why its users would not be served; none if they would.
    async fn look(&self, admin: &Admin) -> Option<String> {
        let Probe { service, place, request, accepts, unanswered } = self;
        let mut unanswered = unanswered.lock().await;
        // What was answered meanwhile says nothing of now.
        let waiting = match unanswered.take() {
            Some(mut answer) => match tokio::time::timeout(Duration::ZERO, &mut answer).await {
                Ok(_) => None,
                Err(_) => Some(answer),
            },
            None => None,
        };
        let mut answer = waiting.unwrap_or_else(|| admin.handle.request(*place, request()));
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
    let Some((status, _)) = Status::of(&admin.handle, &admin.file, &admin.host).await else {
        return unready("the reactor does not answer\n".to_owned());
    };
    if let Some(reason) = status.not_ready() {
        return unready(format!("{reason}\n"));
    }
    let asked = |probe: &&Probe| wanted.service.as_deref().is_none_or(|service| service == probe.service);
    let probes: Vec<&Probe> = admin.probes.0.iter().filter(asked).collect();
    if probes.is_empty() {
        let known: Vec<&str> = admin.probes.0.iter().map(|probe| probe.service).collect();
        let what = format!("no such service here; there are: {}\n", known.join(", "));
        return (StatusCode::NOT_FOUND, what).into_response();
    }
    let reasons = futures_util::future::join_all(probes.into_iter().map(|probe| probe.look(&admin))).await;
    let reasons: Vec<String> = reasons.into_iter().flatten().map(|reason| format!("{reason}\n")).collect();
    if reasons.is_empty() { "ready\n".into_response() } else { unready(reasons.concat()) }
}
