//! The admin port: health, metrics, status, and the services over HTTP and JSON.

pub mod baggage;
pub mod exposition;
mod metrics;
mod page;
mod port;
mod ready;

pub use port::CONNECTIONS_MAX;

use crate::cluster::ClusterFile;
use crate::family::HostedNode;
use crate::health::HealthWatch;
use crate::latency::Latencies;
use crate::services::SERVICES;
use crate::status::HostStatus;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use runtime::Descriptors;
use runtime::HostHandle;
use std::net::TcpListener;
use std::sync::Arc;

/// What handlers share.
pub struct Admin {
    /// The host.
    pub handle: HostHandle<HostedNode>,
    /// Its cluster file.
    pub file: ClusterFile,
    /// Its name.
    pub host: String,
    /// When it started.
    pub started: std::time::Instant,
    /// How long users' calls take.
    pub latencies: Latencies,
    /// What became of connections.
    counts: Arc<port::Counts>,
    /// Whether its users are served.
    pub health: HealthWatch,
}

impl Admin {
    /// What handlers share from a host's start on.
    pub fn new(
        handle: HostHandle<HostedNode>,
        file: ClusterFile,
        host: &str,
        started: std::time::Instant,
        latencies: Latencies,
        health: HealthWatch,
    ) -> Self {
        let counts = Arc::default();
        Self { handle, file, host: host.to_owned(), started, latencies, counts, health }
    }
}

/// Serves on a thread of its own until the process ends or `stop` is dropped. Connections take their descriptors from `descriptors`.
pub fn serve(
    listener: TcpListener,
    admin: Admin,
    descriptors: Descriptors,
) -> std::io::Result<tokio::sync::oneshot::Sender<()>> {
    listener.set_nonblocking(true)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counts = Arc::clone(&admin.counts);
    let routes = routes(Arc::new(admin));
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            port::serve(listener, routes, descriptors, counts, stopped).await;
        });
    })?;
    Ok(stop)
}

fn routes(admin: Arc<Admin>) -> Router {
    let own = Router::new()
        .route("/", get(page::page))
        .route("/livez", get(ready::livez))
        .route("/healthz", get(ready::livez))
        .route("/readyz", get(ready::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/status", get(status));
    SERVICES
        .iter()
        .fold(own, |routes, service| {
            let state = (Arc::clone(&admin), service.name);
            let timed = axum::middleware::from_fn_with_state(state, timed);
            let of = (Arc::clone(&admin), *service);
            let carried = axum::middleware::from_fn_with_state(of, baggage::carried);
            routes.merge((service.routes)().layer(carried).layer(timed))
        })
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&admin), port::bounded))
        .with_state(admin)
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
    response
}

async fn status(State(admin): State<Arc<Admin>>) -> Response {
    match HostStatus::of(&admin.handle, &admin.file, &admin.host).await {
        Some((status, _)) => axum::Json(status.with(&*admin.health.latest().await)).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer\n").into_response(),
    }
}
