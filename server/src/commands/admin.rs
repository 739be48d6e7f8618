//! Asking a host's admin port, without a library: one request, one answer.

use crate::failure::Failure;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// An address as people give it: `host:port`, perhaps as the URL that a browser has.
pub fn address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    if address.starts_with("https://") {
        return Err("the admin port speaks HTTP without TLS".to_owned());
    }
    native_address(address)
}

/// `host:port`, and nothing else.
pub fn native_address(address: &str) -> Result<String, String> {
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() => {
            Ok(address.to_owned())
        }
        Some(_) | None => Err("wanted: an address with a port, like 127.0.0.1:7071".to_owned()),
    }
}

/// Asks a host's admin port; returns the status and the answer's body.
pub fn call(admin: &str, verb: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
    let address =
        admin.to_socket_addrs()?.next().ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    write!(
        stream,
        "{verb} {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let truncated = || std::io::Error::other("the answer is truncated");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(truncated)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(truncated)?;
    Ok((status, body.to_owned()))
}

/// The JSON in what [`fetch`] got.
pub fn parse(admin: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::unreachable(admin, format!("it does not speak our HTTP: {error}")))
}

/// A GET: the body of the answer.
pub fn fetch(admin: &str, path: &str) -> Result<String, Failure> {
    let ask = || match call(admin, "GET", path, "")? {
        (200, body) => Ok(body),
        (_, body) => Err(std::io::Error::other(body.trim().to_owned())),
    };
    ask().map_err(|error| Failure::unreachable(admin, error.to_string()))
}
