//! Who sent a request over HTTP, and whether it was granted what it asks: by a certificate, by `Authorization: Bearer TOKEN`, or by
//! `Authorization: Basic`, with the identity's name and a token or its password, as browsers send it.

use super::call::HttpCall;
use super::port::Peer;
use super::state::Admin;
use crate::access::{Area, Denied, Need, PortCaller, Right};
use crate::cluster::description::Listed;
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Who sent the request; taken along with it.
#[derive(Clone)]
struct Sender(Arc<Mutex<PortCaller>>);

impl Sender {
    /// What it is answered if it may not.
    fn refused(&self, check: impl FnOnce(&mut PortCaller) -> Result<(), Denied>) -> Option<Response> {
        let mut caller = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        check(&mut caller).err().map(|denied| refusal(denied, &caller.name()))
    }
}

/// These say nothing but whether the host serves, and are asked by machines that have no token.
const FOR_ANYONE: [&str; 3] = ["/livez", "/healthz", "/readyz"];

/// Learns who sent a request. A proof that proves nobody is refused at once, so that its sender notices.
pub(super) async fn identified(
    State((admin, port)): State<(Arc<Admin>, &'static str)>,
    mut request: Request,
    next: Next,
) -> Response {
    if !admin.access.is_on() || FOR_ANYONE.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let peer = request.extensions().get::<Peer>().cloned();
    let address = peer.as_ref().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address);
    let mut caller = PortCaller::at(&admin.access, port, address);
    caller.show(peer.as_ref().and_then(|peer| peer.certificate.as_deref()));
    if !log_in(&mut caller, request.headers()) {
        return unauthorized("the token, or the name and password, are not known here: nothing was done");
    }
    request.extensions_mut().insert(Sender(Arc::new(Mutex::new(caller))));
    next.run(request).await
}

/// False if what was sent proves nobody.
fn log_in(caller: &mut PortCaller, headers: &HeaderMap) -> bool {
    let Some(sent) = headers.get(header::AUTHORIZATION) else { return true };
    let Some((scheme, proof)) = sent.to_str().ok().and_then(|sent| sent.split_once(' ')) else {
        return false;
    };
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => caller.log_in_by_token(proof.trim()).is_ok(),
        "basic" => {
            let pair = BASE64.decode(proof.trim()).ok().and_then(|pair| String::from_utf8(pair).ok());
            let pair = pair.as_deref().and_then(|pair| pair.split_once(':'));
            pair.is_some_and(|(name, secret)| caller.log_in(name, secret).is_ok())
        }
        _ => false,
    }
}

/// Lets on what its sender was granted of a service.
pub(super) async fn granted(
    State(service): State<&'static Listed>,
    request: Request,
    next: Next,
) -> Response {
    let Some(sender) = request.extensions().get::<Sender>().cloned() else { return next.run(request).await };
    let (mut head, body) = request.into_parts();
    // The body was bounded and read before.
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let parameters = Path::<BTreeMap<String, String>>::from_request_parts(&mut head, &()).await;
    let Ok(Path(parameters)) = parameters else { return StatusCode::BAD_REQUEST.into_response() };
    let call = HttpCall { method: &head.method, uri: &head.uri, body: &body, parameters };
    match sender.refused(|caller| (service.check_http)(&call, caller)) {
        None => next.run(Request::from_parts(head, Body::from(body))).await,
        Some(refused) => refused,
    }
}

/// Lets on what operators do: to look is one right; to change something, or to take a backup, is another.
pub(super) async fn granted_to_operators(request: Request, next: Next) -> Response {
    let Some(sender) = request.extensions().get::<Sender>().cloned() else { return next.run(request).await };
    // A backup is all data: to look at how a cluster does is another right.
    let is_backup = request.uri().path() == super::CUT_PATH;
    let is_look = [Method::GET, Method::HEAD].contains(request.method()) && !is_backup;
    let right = if is_look { Right::Read } else { Right::Manage };
    match sender.refused(|caller| caller.check(Need::whole(right, Area::Cluster))) {
        None => next.run(request).await,
        Some(refused) => refused,
    }
}

fn refusal(denied: Denied, name: &str) -> Response {
    match denied {
        Denied::Unknown => unauthorized("nobody knows who asks: nothing was done"),
        Denied::NotGranted => {
            let what = format!("{name} was not granted this: nothing was done");
            (StatusCode::FORBIDDEN, Json(json!({ "error": what }))).into_response()
        }
    }
}

fn unauthorized(what: &str) -> Response {
    // The first that a browser knows is the second.
    let schemes = [(header::WWW_AUTHENTICATE, "Bearer, Basic realm=\"ordinate\"")];
    (StatusCode::UNAUTHORIZED, schemes, Json(json!({ "error": what }))).into_response()
}
