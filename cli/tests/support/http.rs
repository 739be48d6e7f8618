//! HTTP as small as it can be: one request a connection.

use super::cluster::PATIENCE;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub code: u16,
    /// The lines before the body.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Asks; none if there is no answer in a minute.
pub fn ask(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Option<Answer> {
    ask_with(address, method, path, "", body)
}

/// The same with more header lines.
pub fn ask_with(address: SocketAddr, method: &str, path: &str, more: &str, body: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    // A server that refuses a body may close before it has all come.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let split = match (split, read) {
        (Some(split), _) => split,
        (None, _) => return None,
    };
    let head = String::from_utf8_lossy(&answer[..split]).into_owned();
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { code, head, body: answer[split + 4..].to_vec() })
}

/// A GET of what may come in several formats.
pub fn get_as(address: SocketAddr, path: &str, accept: &str) -> Option<Answer> {
    ask_with(address, "GET", path, &format!("Accept: {accept}\r\n"), b"")
}

/// A GET, for states that are asked for again and again: a host that hangs does not answer within a second.
pub fn get(address: SocketAddr, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(1_500))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..split]).into_owned();
    let code = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { code, head, body: answer[split + 4..].to_vec() })
}
