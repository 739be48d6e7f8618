//! Causality between services that are called over HTTP (the RSS paper, section 4): what a caller's past is goes in and out as one entry
//! of W3C baggage. Where it shows that another service was used last, that one's fence runs before the call, here and not at the caller.

use super::call::{CarriedToken, FenceCall};
use super::state::Admin;
use crate::cluster::description::Listed;
use crate::services::SERVICES;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use wire::rss::{CausalContext, Composition, ServiceName, Token, extract, inject};

const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
/// A fence waits for a span of the cluster file; nobody waits longer than this.
const FENCED_WITHIN: Duration = Duration::from_secs(15);

/// A call that is not made.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let retry = self.0 == StatusCode::SERVICE_UNAVAILABLE;
        (self.0, Json(json!({ "error": self.1, "executed": false, "retry": retry }))).into_response()
    }
}

fn refused(why: impl Into<String>) -> Refused {
    Refused(StatusCode::BAD_REQUEST, why.into())
}

/// All baggage of a request, as one header.
fn header_of(headers: &HeaderMap) -> Result<String, Refused> {
    let values: Result<Vec<&str>, _> = headers.get_all(BAGGAGE).iter().map(HeaderValue::to_str).collect();
    values.map(|values| values.join(",")).map_err(|_| refused("the header baggage is no text"))
}

fn listed(name: &ServiceName) -> Result<&'static Listed, Refused> {
    let known = SERVICES.iter().find(|listed| listed.name == name.as_str());
    known.copied().ok_or_else(|| {
        refused(format!("the baggage names the service {name}, which is none of this cluster's"))
    })
}

/// Runs a service's fence, if it needs one.
async fn fence(admin: &Admin, name: &ServiceName, context: &CausalContext) -> Result<(), Refused> {
    let Some(service) = admin.file.on(listed(name)?) else {
        return Err(refused(format!("the baggage names the service {name}, which is off")));
    };
    let token = match context.tokens.get(name) {
        Some(Token::Inline(token)) => Some(&token[..]),
        // Its fence has run where it was sent from.
        Some(Token::Fenced(_)) => return Ok(()),
        None => None,
    };
    let call = service.fence(&admin.file, &admin.host, token).map_err(refused)?;
    let Some(FenceCall { host_slot, request, has_passed }) = call else { return Ok(()) };
    let answered = tokio::time::timeout(FENCED_WITHIN, admin.handle.request(host_slot, request)).await;
    if matches!(&answered, Ok(Ok(answer)) if has_passed(answer)) {
        return Ok(());
    }
    Err(Refused(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("the fence of {name} has not passed: nothing was done"),
    ))
}

/// Takes the caller's past into account, and gives it back with what this call adds.
pub(super) async fn carried(
    State((admin, of)): State<(Arc<Admin>, &'static Listed)>,
    request: Request,
    next: Next,
) -> Response {
    match compose(&admin, of, request, next).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn compose(
    admin: &Admin,
    of: &'static Listed,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let header = header_of(request.headers())?;
    let found = extract(&header).map_err(|error| refused(error.to_string()))?;
    let (name, is_carried) = (own_name(of)?, found.is_some());
    let mut context = found.unwrap_or_default();
    if is_carried {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if let Some(why) = admin.file.on(of).and_then(|service| service.cannot_compose(&query)) {
            return Err(refused(why));
        }
        let mut composition = Composition::new();
        composition.on_context(&context);
        for last in composition.fences_before(&name) {
            fence(admin, &last, &context).await?;
            composition.on_fenced(&last);
        }
        composition.on_start(&name);
        context.last = composition.last().clone();
        if let Some(Token::Inline(token)) = context.tokens.get(&name) {
            request.extensions_mut().insert(CarriedToken(token.clone()));
        }
    }
    let mut response = next.run(request).await;
    let token = response.extensions_mut().remove::<CarriedToken>();
    if !is_carried && token.is_none() {
        return Ok(response);
    }
    context.last = [name.clone()].into();
    if let Some(CarriedToken(token)) = token {
        context.tokens.insert(name, Token::Inline(token));
    }
    // Tokens are small, so none is replaced by a fence. Where others' baggage leaves no room, theirs is what the caller gets back.
    let injected = inject(&mut context, &header, |_| Ok::<u64, Infallible>(0));
    let header = injected.map_or(header, |injected| injected.header);
    if let Ok(value) = HeaderValue::from_str(&header) {
        response.headers_mut().insert(BAGGAGE, value);
    }
    Ok(response)
}

fn own_name(of: &Listed) -> Result<ServiceName, Refused> {
    let none = || Refused(StatusCode::INTERNAL_SERVER_ERROR, format!("{} is no name", of.name));
    ServiceName::new(of.name).ok_or_else(none)
}
