//! The admin port's connections: how many, how long they may take for a request, and what their requests may hold.

use super::counts::Counts;
use super::state::Admin;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use runtime::{Descriptor, Descriptors, ServerTls, Shortage};
use std::future::Future as _;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

/// Connections at a time, unless the system allows fewer descriptors.
pub const CONNECTIONS_MAX: usize = 512;
/// How long a request's head may take, from the end of the request before it.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long its body may take.
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// A client that takes nothing of its answer for so long is disconnected.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);
const HEAD_BYTES_MAX: usize = 64 << 10;
const BODY_BYTES_MAX: usize = 2 << 20;
/// A read whose answer is large waits so long for a turn.
const READ_WAITS: Duration = Duration::from_secs(5);
/// Without a descriptor for a connection, it is looked again after so long.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Takes connections for as long as its thread runs.
pub async fn serve(
    listener: TcpListener,
    tls: Option<ServerTls>,
    routes: Router,
    descriptors: Descriptors,
    counts: Arc<Counts>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => match descriptors.take() {
                Some(descriptor) => {
                    let tls = tls.as_ref().map(|tls| tls.config().into());
                    let peer = Peer { address: address.ip(), certificate: None };
                    tokio::spawn(greet(stream, tls, routes.clone(), peer, descriptor, Arc::clone(&counts)));
                }
                None => {
                    counts.note("too many connections");
                    refuse(&stream, "503 Service Unavailable", "too many connections at this port\n");
                }
            },
            Err(error) => {
                if let Some(shortage) = Shortage::of(&error) {
                    counts.note(match shortage {
                        Shortage::Files => "this process has no file descriptor left",
                        Shortage::FilesOfSystem => "the system has no file descriptor left",
                        Shortage::Memory | Shortage::Space => "the system has no memory left",
                    });
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

/// An empty socket takes so little at once; if it does not, the client sees the end.
fn refuse(stream: &TcpStream, status: &str, text: &str) {
    let answer =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len());
    let _ = stream.try_write(answer.as_bytes());
}

/// Who is at the other end of a connection; a part of each of its requests.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: IpAddr,
    /// Its certificate, in DER, if it has shown one.
    pub(super) certificate: Option<Arc<[u8]>>,
}

/// The routes, for requests of one connection.
struct OfPeer {
    routes: TowerToHyperService<Router>,
    peer: Peer,
}

impl hyper::service::Service<hyper::Request<Incoming>> for OfPeer {
    type Response =
        <TowerToHyperService<Router> as hyper::service::Service<hyper::Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as hyper::service::Service<hyper::Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as hyper::service::Service<hyper::Request<Incoming>>>::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.routes.call(request)
    }
}

/// The first byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// Has the client show its certificate where the port is with TLS, and serves it.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    routes: Router,
    mut peer: Peer,
    _descriptor: Descriptor,
    counts: Arc<Counts>,
) {
    // Answers are written whole: waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return converse(stream, routes, peer, &counts).await };
    let greeted = tokio::time::timeout(HEAD_WITHIN, async {
        let mut first = [0];
        if stream.peek(&mut first).await.is_ok_and(|bytes| bytes == 1 && first[0] != TLS_HANDSHAKE) {
            let text = "this port speaks TLS: https://, and a certificate of the cluster's authority\n";
            refuse(&stream, "400 Bad Request", text);
            return None;
        }
        tls.accept(stream).await.ok()
    });
    match greeted.await {
        Ok(Some(stream)) => {
            let chain = stream.get_ref().1.peer_certificates();
            peer.certificate = chain.and_then(|chain| chain.first()).map(|own| Arc::from(own.as_ref()));
            converse(stream, routes, peer, &counts).await;
        }
        Ok(None) | Err(_) => counts.note("no TLS, or no certificate of the authority"),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Router,
    peer: Peer,
    counts: &Counts,
) {
    counts.open.fetch_add(1, Ordering::Relaxed);
    let stream = Impatient { stream, stalled: None };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), OfPeer { routes: TowerToHyperService::new(routes), peer })
        .await;
    counts.open.fetch_sub(1, Ordering::Relaxed);
    if let Err(error) = served {
        let stalled = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        counts.note(match stalled.map(io::Error::kind) {
            Some(io::ErrorKind::TimedOut) => "took nothing of its answer for long",
            _ if error.is_timeout() => "a request's head took too long",
            _ if error.is_parse() => "no HTTP request",
            _ => "connection broken",
        });
    }
}

/// A stream whose other side has to take something now and then of what it is sent.
struct Impatient<S> {
    stream: S,
    /// Since something waits: when that has been too long.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn judge<T>(&mut self, taken: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if taken.is_ready() {
            self.stalled = None;
            return taken;
        }
        let until = || Box::pin(tokio::time::sleep_until(Instant::now() + TAKEN_WITHIN));
        let stalled = self.stalled.get_or_insert_with(until);
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(taken, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Lets a request on when there is room for it: its body, which has to come in time, and its answer, until it is sent.
pub async fn bounded(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let counts = &admin.counts;
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let large = counts.reads.iter().find(|(reads, _)| (reads.includes)(&head.method, path));
    let reads = large.map(|(_, permits)| permits);
    let permit = match reads {
        None => None,
        Some(reads) => match tokio::time::timeout(READ_WAITS, Arc::clone(reads).acquire_owned()).await {
            Ok(Ok(permit)) => Some(permit),
            Ok(Err(_)) | Err(_) => return busy(counts),
        },
    };
    let declared = head.headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    let chunked = head.headers.contains_key(header::TRANSFER_ENCODING);
    let bytes: usize = declared.unwrap_or(if chunked { BODY_BYTES_MAX } else { 0 });
    if bytes > BODY_BYTES_MAX {
        counts.note("a request's body is too large");
        return (StatusCode::PAYLOAD_TOO_LARGE, "a request's body may have 2 MiB\n").into_response();
    }
    let kib = bytes.div_ceil(1 << 10) as u32;
    let Ok(_room) = Arc::clone(&counts.bodies).try_acquire_many_owned(kib) else { return busy(counts) };
    let body = match tokio::time::timeout(BODY_WITHIN, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            counts.note("a request's body is too large");
            return (StatusCode::PAYLOAD_TOO_LARGE, "a request's body may have 2 MiB\n").into_response();
        }
        Err(_) => {
            counts.note("a request's body took too long");
            let text = "the request's body did not come in time; nothing was done\n";
            let close = [(header::CONNECTION, "close")];
            return (StatusCode::REQUEST_TIMEOUT, close, text).into_response();
        }
    };
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    match permit {
        None => response,
        Some(permit) => response.map(|body| Body::new(Held { body, _permit: permit })),
    }
}

fn busy(counts: &Counts) -> Response {
    counts.note("too many requests");
    let text = "the host has too many requests of this port; nothing was done\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// An answer that holds its permit until it is sent.
struct Held {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
