//! What listens at the native addresses that a command was given, once no answer came.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;
use wire::native::{PREFACE_BYTES, VERSION, preface, version_of};

/// How long it is tried to learn whether a host is there at all.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);

fn connected(endpoint: &str) -> Option<TcpStream> {
    let addresses = endpoint.to_socket_addrs().into_iter().flatten();
    addresses.filter_map(|it| TcpStream::connect_timeout(&it, CONNECTED_WITHIN).ok()).next()
}

/// The addresses at which somebody listens.
pub fn listening(endpoints: &[String]) -> Vec<&str> {
    endpoints.iter().map(String::as_str).filter(|endpoint| connected(endpoint).is_some()).collect()
}

/// True if what listens there ends a connection that begins as a client's without TLS: it is another port than a host's native one. One
/// that says nothing may be a host that hangs.
pub fn is_another_port(endpoint: &str) -> bool {
    let Some(mut stream) = connected(endpoint) else { return false };
    let mut answer = [0; PREFACE_BYTES];
    let greeted = stream
        .set_read_timeout(Some(CONNECTED_WITHIN))
        .and_then(|()| stream.write_all(&preface(VERSION)))
        .and_then(|()| stream.read_exact(&mut answer));
    match greeted {
        Ok(()) => version_of(&answer).is_none(),
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}
