//! The admin port: health, metrics, status, and the key-value service over HTTP and JSON.

mod metrics;
mod page;
mod port;
mod ready;

pub use port::CONNECTIONS_MAX;

use crate::cluster::ClusterFile;
use crate::family::Node;
use crate::services::coordination::{arrangement, commands, sessions};
use crate::services::log::{http as logs, tail};
use crate::services::{kv::http as kv, sequence::http as sequence};
use crate::status::Status;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use runtime::Descriptors;
use runtime::HostHandle;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What handlers share.
pub struct Admin {
    /// The host.
    pub handle: HostHandle<Node>,
    /// Its cluster file.
    pub file: ClusterFile,
    /// Its name.
    pub host: String,
    /// When it started.
    pub started: std::time::Instant,
    /// Room for those who follow logs.
    pub tails: Arc<Semaphore>,
    /// What became of connections.
    counts: Arc<port::Counts>,
    probes: ready::Probes,
}

impl Admin {
    /// What handlers share from a host's start on.
    pub fn new(handle: HostHandle<Node>, file: ClusterFile, host: &str, started: std::time::Instant) -> Self {
        let tails = Arc::new(Semaphore::new(tail::READERS_MAX));
        let counts = Arc::default();
        let probes = ready::Probes::of(&file, host);
        Self { handle, file, host: host.to_owned(), started, tails, counts, probes }
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
    Router::new()
        .route("/", get(page::page))
        .route("/healthz", get(healthz))
        .route("/readyz", get(ready::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/commands", get(commands::list))
        .route("/commands/{name}", get(commands::command))
        .route("/v1/status", get(status))
        .route("/v1/sequence/next", post(sequence::next))
        .route("/v1/log/{name}", get(logs::read).put(logs::create))
        .route("/v1/log/{name}/append", post(logs::append))
        .route("/v1/log/{name}/tail", get(tail::tail))
        .route("/v1/zookeeper/sessions", get(sessions::list))
        .route("/v1/zookeeper/proxies", get(arrangement::proxies).put(arrangement::change_proxies))
        .route("/v1/zookeeper/shards", get(arrangement::shards).put(arrangement::change_shards))
        .route("/v1/kv", get(kv::scan).post(kv::batch))
        .route("/v1/kv/{*key}", get(kv::get).put(kv::put).delete(kv::delete).post(kv::increment))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&admin), port::bounded))
        .with_state(admin)
}

async fn healthz(State(admin): State<Arc<Admin>>) -> Response {
    match Status::of(&admin.handle, &admin.file, &admin.host).await {
        Some(_) => "ok\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer\n").into_response(),
    }
}

async fn status(State(admin): State<Arc<Admin>>) -> Response {
    match Status::of(&admin.handle, &admin.file, &admin.host).await {
        Some((status, _)) => axum::Json(status).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the reactor does not answer\n").into_response(),
    }
}
