//! Asking over HTTP without TLS, and waiting for the answer: hosts' admin ports, and a collector of traces.

use axum::http::{Request, Response};
use std::io::{ErrorKind, Read};
use std::time::Duration;
use ureq::config::ConfigBuilder;
use ureq::typestate::AgentScope;
use ureq::{Agent, Body};

/// How long a connection may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);

/// What asks.
#[derive(Clone, Debug)]
pub struct HttpClient(Agent);

impl HttpClient {
    /// A call takes at most so long, its answer's last byte included.
    pub fn within(bound: Duration) -> Self {
        Self(config().timeout_global(Some(bound)).build().into())
    }

    /// A call takes as long as it does, if the next bytes come within `silence`.
    pub fn patient(silence: Duration) -> Self {
        Self(config().timeout_per_read(Some(silence)).timeout_per_write(Some(silence)).build().into())
    }

    /// Sends a request and reads the answer, which has at most so many bytes, whatever its status.
    pub fn send<B: AsRef<[u8]>>(
        &self,
        request: Request<B>,
        answer_bytes_max: u64,
    ) -> std::io::Result<Response<Vec<u8>>> {
        let (head, body) = self.begin(request)?.into_parts();
        let read = body.into_with_config().limit(answer_bytes_max).read_to_vec();
        Ok(Response::from_parts(head, read.map_err(io_of)?))
    }

    /// Sends a request; the answer's body is still to be read.
    pub fn begin<B: AsRef<[u8]>>(&self, request: Request<B>) -> std::io::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let answer = match body.as_ref() {
            [] => self.0.run(Request::from_parts(head, ())),
            body => self.0.run(Request::from_parts(head, body)),
        };
        answer.map_err(io_of)
    }
}

fn io_of(error: ureq::Error) -> std::io::Error {
    let no_http =
        || std::io::Error::other("what listens there does not speak HTTP, or closes the connection");
    match error {
        ureq::Error::Protocol(_) => no_http(),
        ureq::Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => no_http(),
        other => other.into_io(),
    }
}

/// No proxy is asked, whatever the environment says, and no redirection followed.
fn config() -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECTED_WITHIN))
        .user_agent(concat!("ordinate/", env!("CARGO_PKG_VERSION")))
}

/// What is left of an answer.
pub fn reader(answer: Response<Body>) -> impl Read + Send + use<> {
    answer.into_body().into_reader()
}
