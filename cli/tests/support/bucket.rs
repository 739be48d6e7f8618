//! A server that speaks S3's protocol as far as stores of objects need it: objects in memory, listed by pages, and credentials that are
//! looked at.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use time::OffsetDateTime;

const NAME: &str = "bucket";
const KEY: &str = "test-key";
/// Names in one answer, few, so that there are several.
const PAGE: usize = 5;

/// The server; it ends with the runtime.
#[derive(Clone)]
pub struct Bucket {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    objects: BTreeMap<String, (Bytes, OffsetDateTime)>,
    /// Requests by method.
    requests: BTreeMap<String, u64>,
    refused: u64,
    fails: bool,
}

impl Bucket {
    /// Starts it.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let bucket = Self { address, shared: Arc::default() };
        let router = axum::Router::new().fallback(answer).with_state(bucket.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        bucket
    }

    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a process needs to know to use it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        let of = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        [
            ("AWS_ENDPOINT", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", "test-secret"),
        ]
        .map(of)
        .to_vec()
    }

    /// The names of its objects.
    pub fn names(&self) -> Vec<String> {
        self.shared().objects.keys().cloned().collect()
    }

    /// Flips a byte in the middle of an object.
    pub fn damage(&self, name: &str) {
        let mut shared = self.shared();
        let (bytes, _) = shared.objects.get_mut(name).expect("it is there");
        let mut damaged = bytes.to_vec();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        *bytes = damaged.into();
    }

    /// From now on, whether all requests are answered with an error of the server.
    pub fn set_failing(&self, fails: bool) {
        self.shared().fails = fails;
    }

    /// How many requests with wrong credentials there were.
    pub fn refused(&self) -> u64 {
        self.shared().refused
    }
}

async fn answer(
    State(bucket): State<Bucket>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut shared = bucket.shared();
    *shared.requests.entry(method.to_string()).or_default() += 1;
    if shared.fails {
        return (StatusCode::INTERNAL_SERVER_ERROR, error("InternalError")).into_response();
    }
    let signed = headers.get("authorization").and_then(|it| it.to_str().ok()).unwrap_or("");
    if !signed.starts_with(&format!("AWS4-HMAC-SHA256 Credential={KEY}/")) || !signed.contains("Signature=") {
        shared.refused += 1;
        return (StatusCode::FORBIDDEN, error("InvalidAccessKeyId")).into_response();
    }
    let path = uri.path().trim_start_matches('/');
    let (name, key) = path.split_once('/').unwrap_or((path, ""));
    if name != NAME {
        return (StatusCode::NOT_FOUND, error("NoSuchBucket")).into_response();
    }
    let query = uri.query().unwrap_or("");
    match (method.as_str(), key) {
        ("GET", "") => list(&shared, query).into_response(),
        ("POST", "") if query.starts_with("delete") => {
            let text = String::from_utf8_lossy(&body).into_owned();
            let mut deleted = String::new();
            for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
                shared.objects.remove(key);
                let _ = write!(deleted, "<Deleted><Key>{key}</Key></Deleted>");
            }
            format!("<DeleteResult>{deleted}</DeleteResult>").into_response()
        }
        ("PUT", key) => {
            let tag = tag(&body);
            shared.objects.insert(key.to_owned(), (body, OffsetDateTime::now_utc()));
            [("etag", tag)].into_response()
        }
        ("GET" | "HEAD", key) => match shared.objects.get(key) {
            None => (StatusCode::NOT_FOUND, error("NoSuchKey")).into_response(),
            // The answer to HEAD has the length of what GET would send.
            Some((bytes, written)) => {
                ([("etag", tag(bytes)), ("last-modified", in_words(*written))], bytes.clone()).into_response()
            }
        },
        ("DELETE", key) => {
            shared.objects.remove(key);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, error("MethodNotAllowed")).into_response(),
    }
}

fn error(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>")
}

fn tag(bytes: &[u8]) -> String {
    format!("\"{:016x}-{}\"", parts::digest(bytes), bytes.len())
}

/// A page of names, and where the next one begins.
fn list(shared: &Shared, query: &str) -> String {
    let value = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value);
        found.map(|value| value.replace("%2F", "/").replace("%2f", "/")).unwrap_or_default()
    };
    let (prefix, from) = (value("prefix"), value("continuation-token"));
    let mut found = shared.objects.iter().filter(|(key, _)| key.starts_with(&prefix) && **key > from);
    let page: Vec<_> = found.by_ref().take(PAGE).collect();
    let mut text = String::from("<ListBucketResult>");
    for (key, (bytes, written)) in &page {
        let (day, time) = (written.date(), written.time());
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>{day}T{:02}:{:02}:{:02}.000Z</LastModified><ETag>x</ETag><Size>{}</Size></Contents>",
            time.hour(),
            time.minute(),
            time.second(),
            bytes.len()
        );
    }
    let more = found.next().is_some();
    let _ = write!(text, "<IsTruncated>{more}</IsTruncated>");
    if let Some((last, _)) = page.last().filter(|_| more) {
        let _ = write!(text, "<NextContinuationToken>{last}</NextContinuationToken>");
    }
    text + "</ListBucketResult>"
}

/// As HTTP writes a time.
fn in_words(at: OffsetDateTime) -> String {
    let (weekday, month) = (at.weekday().to_string(), at.month().to_string());
    format!(
        "{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
        &weekday[..3],
        at.day(),
        &month[..3],
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    )
}
