//! The admin port: health, metrics, status, and the services over HTTP and JSON.

mod access;
mod baggage;
pub mod call;
mod counts;
pub mod exposition;
mod metrics;
mod origin;
mod own_names;
mod page;
mod port;
mod ready;
pub mod state;

pub use port::CONNECTIONS_MAX;
pub use state::Admin;

use crate::cluster::description::{Listed, Listen};
use crate::latency::CallFailure;
use crate::services::HTTP_ROUTES;
use crate::status::HostStatus;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use runtime::{Descriptors, ServerTls};
use serde_json::json;
use std::net::TcpListener;
use std::sync::Arc;

/// A port for HTTP.
pub struct HttpPort {
    /// Where it listens.
    pub listener: TcpListener,
    /// With TLS, if so.
    pub tls: Option<ServerTls>,
}

/// Serves the admin port on a thread of its own until the process ends or what is returned is dropped. Connections take their descriptors
/// from `descriptors`.
pub fn serve(listener: TcpListener, admin: &Arc<Admin>, descriptors: Descriptors) -> std::io::Result<Stop> {
    let ports = vec![HttpPort { listener, tls: None }];
    serve_on("admin", ports, routes(admin), admin, descriptors)
}

/// The same for applications' HTTP, at its own ports.
pub fn serve_applications(
    ports: Vec<HttpPort>,
    admin: &Arc<Admin>,
    descriptors: Descriptors,
) -> std::io::Result<Stop> {
    let routes = guarded(of_services(Router::new(), admin).fallback(nowhere), admin, "http");
    serve_on("http", ports, routes, admin, descriptors)
}

/// Dropping it stops a port.
pub type Stop = tokio::sync::oneshot::Sender<()>;

fn serve_on(
    thread: &str,
    ports: Vec<HttpPort>,
    routes: Router,
    admin: &Arc<Admin>,
    descriptors: Descriptors,
) -> std::io::Result<Stop> {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for port in &ports {
        port.listener.set_nonblocking(true)?;
    }
    let counts = Arc::clone(&admin.counts);
    std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
        runtime.block_on(async move {
            for HttpPort { listener, tls } in ports {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                let (descriptors, counts) = (descriptors.clone(), Arc::clone(&counts));
                tokio::spawn(port::serve(listener, tls, routes.clone(), descriptors, counts));
            }
            // Either way the host is going.
            let _ = stopped.await;
        });
    })?;
    Ok(stop)
}

/// Where the state of all services is.
const CUT_PATH: &str = "/v1/cut";

/// The admin port's. Applications' are there as long as they have no port of their own.
fn routes(admin: &Arc<Admin>) -> Router {
    let own = Router::new()
        .route("/", get(page::page))
        .route("/livez", get(ready::livez))
        .route("/healthz", get(ready::livez))
        .route("/readyz", get(ready::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/status", get(status))
        .route(CUT_PATH, get(crate::cut::cut));
    let Listen { http, http_secure, .. } = &admin.file.listen;
    let all = HTTP_ROUTES.iter().fold(own, |all, it| with(all, it.service, (it.of_operators)(), admin));
    let all = all.layer(axum::middleware::from_fn(access::granted_to_operators));
    guarded(
        match http.as_ref().or(http_secure.as_ref()) {
            None => of_services(all, admin).fallback(nowhere),
            Some(_) => all.fallback(moved),
        },
        admin,
        "admin",
    )
}

/// What is not here, and may be at another port.
async fn moved(State(admin): State<Arc<Admin>>, request: Request) -> Response {
    let path = request.uri().path();
    let of_services = HTTP_ROUTES.iter().flat_map(|it| it.paths).any(|begin| path.starts_with(begin));
    if !of_services {
        return nowhere(request).await;
    }
    let Listen { http, http_secure, .. } = &admin.file.listen;
    let ports: Vec<&str> = [http, http_secure].into_iter().flatten().map(String::as_str).collect();
    let what = format!("applications' HTTP has a port of its own here: {}", ports.join(", "));
    refused(StatusCode::NOT_FOUND, &what)
}

/// What is nowhere.
async fn nowhere(request: Request) -> Response {
    refused(StatusCode::NOT_FOUND, &format!("there is no {}", request.uri().path()))
}

/// A method that a path does not have; the header `Allow` names those that it has.
async fn not_allowed(request: Request) -> Response {
    let what = format!("{} does not take {}", request.uri().path(), request.method());
    refused(StatusCode::METHOD_NOT_ALLOWED, &what)
}

fn refused(status: StatusCode, what: &str) -> Response {
    let body = json!({ "error": what, "executed": false, "retry": false });
    (status, Json(body)).into_response()
}

type Routes = Router<Arc<Admin>>;

/// What applications call.
fn of_services(own: Routes, admin: &Arc<Admin>) -> Routes {
    HTTP_ROUTES.iter().fold(own, |routes, it| {
        let granted = axum::middleware::from_fn_with_state(it.service, access::granted);
        let found = (it.of_users)();
        if found.has_routes() { with(routes, it.service, found.layer(granted), admin) } else { routes }
    })
}

/// Routes of a service beside others.
fn with(routes: Routes, service: &'static Listed, found: Routes, admin: &Arc<Admin>) -> Routes {
    if !found.has_routes() {
        return routes;
    }
    let state = (Arc::clone(admin), service.name);
    let timed = axum::middleware::from_fn_with_state(state, timed);
    let of = (Arc::clone(admin), service);
    let carried = axum::middleware::from_fn_with_state(of, baggage::carried);
    routes.merge(found.layer(carried).layer(timed))
}

fn guarded(routes: Routes, admin: &Arc<Admin>, port: &'static str) -> Router {
    let identified = axum::middleware::from_fn_with_state((Arc::clone(admin), port), access::identified);
    routes
        .method_not_allowed_fallback(not_allowed)
        .layer(identified)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(admin), port::bounded))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(admin), origin::guarded))
        .with_state(Arc::clone(admin))
}

/// Measures a call of a service. What waits for entries, or sends them as they come, is left out.
async fn timed(
    State((admin, service)): State<(Arc<Admin>, &'static str)>,
    request: Request,
    next: Next,
) -> Response {
    let operation = match *request.method() {
        Method::GET => "http_get",
        Method::PUT => "http_put",
        Method::POST => "http_post",
        Method::DELETE => "http_delete",
        _ => "http_other",
    };
    let waits = request.uri().query().is_some_and(|query| query.contains("wait_ms="));
    let began = std::time::Instant::now();
    let response = next.run(request).await;
    if !waits {
        admin.latencies.record((service, operation), began.elapsed());
    }
    if let Some(failure) = failure_of(response.status()) {
        admin.latencies.fail((service, operation), failure);
    }
    response
}

/// Why a call was not done; none if it was.
fn failure_of(status: StatusCode) -> Option<CallFailure> {
    Some(match status {
        StatusCode::BAD_REQUEST => CallFailure::of_caller("malformed"),
        StatusCode::UNAUTHORIZED => CallFailure::of_caller("unauthenticated"),
        StatusCode::FORBIDDEN => CallFailure::NOT_GRANTED,
        StatusCode::NOT_FOUND => CallFailure::of_caller("not_found"),
        StatusCode::CONFLICT => CallFailure::of_caller("conflict"),
        StatusCode::GONE => CallFailure::of_caller("gone"),
        StatusCode::PAYLOAD_TOO_LARGE => CallFailure::of_caller("too_large"),
        StatusCode::SERVICE_UNAVAILABLE => CallFailure::of_service("unavailable"),
        StatusCode::GATEWAY_TIMEOUT => CallFailure::of_service("timeout"),
        StatusCode::INSUFFICIENT_STORAGE => CallFailure::of_service("no_room"),
        status if status.is_client_error() => CallFailure::of_caller("other"),
        status if status.is_server_error() => CallFailure::of_service("other"),
        _ => return None,
    })
}

async fn status(State(admin): State<Arc<Admin>>) -> Response {
    match HostStatus::of(&admin.handle, &admin.file, &admin.host).await {
        Some((status, _)) => axum::Json(status.with(&*admin.health.latest().await)).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer\n").into_response(),
    }
}
