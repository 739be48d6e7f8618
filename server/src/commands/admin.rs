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

/// The token that this command was given, for all hosts that it asks: `--token`, which every verb has, or the environment.
#[derive(Clone, Default)]
pub struct GivenToken(pub Option<String>);

/// The flag, as the root of the command line defines it.
pub const TOKEN_FLAG: &str = "token";

impl clap::FromArgMatches for GivenToken {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        // The root's flag is a global one: its value is handed down to every verb.
        Ok(Self(matches.try_get_one::<String>(TOKEN_FLAG).ok().flatten().cloned()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for GivenToken {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

/// Asks a host's admin port; returns the status and the answer's body.
pub fn call(
    admin: &str,
    token: &GivenToken,
    verb: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let address =
        admin.to_socket_addrs()?.next().ok_or_else(|| std::io::Error::other("the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let length = body.len();
    let GivenToken(token) = token;
    let shown = token.as_ref().map_or_else(String::new, |it| format!("Authorization: Bearer {it}\r\n"));
    write!(
        stream,
        "{verb} {path} HTTP/1.1\r\nHost: {admin}\r\n{shown}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
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
pub fn fetch(admin: &str, token: &GivenToken, path: &str) -> Result<String, Failure> {
    match call(admin, token, "GET", path, "") {
        Ok((200, body)) => Ok(body),
        Ok((401 | 403, body)) => Err(not_granted(&body)),
        Ok((_, body)) => Err(Failure::unreachable(admin, body.trim().to_owned())),
        Err(error) => Err(Failure::unreachable(admin, error.to_string())),
    }
}

/// A host refuses because of who asks; `body` has its words.
pub fn not_granted(body: &str) -> Failure {
    let words = serde_json::from_str::<Value>(body).ok();
    let words = words.as_ref().and_then(|words| words["error"].as_str()).unwrap_or(body.trim());
    Failure::failed("O1050", "the host refuses this: it was not granted", words, GRANT_REMEDY)
}

/// What to do about a refusal.
pub const GRANT_REMEDY: &str =
    "give --token (or ORDINATE_TOKEN) of an identity that was granted it; ordinate access list shows who was";
