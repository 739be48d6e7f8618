//! Asking a host's admin port.

use crate::failure::Failure;
use serde_json::Value;
use server::http_client::HttpClient;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// An address as people give it: `host:port`, perhaps as the URL that a browser has.
pub fn address(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    if address.starts_with("https://") {
        return Err("the admin port speaks HTTP without TLS".to_owned());
    }
    with_port(address, "127.0.0.1:7070")
}

/// `host:port`, and nothing else.
pub fn native_address(address: &str) -> Result<String, String> {
    with_port(address, "127.0.0.1:7071")
}

fn with_port(address: &str, example: &str) -> Result<String, String> {
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() => {
            Ok(address.to_owned())
        }
        Some(_) | None => Err(format!("wanted: an address with a port, like {example}")),
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

/// A host is silent for so long at most: what it answers it has at hand.
const SILENT_FOR: Duration = Duration::from_secs(5);
/// Of an answer, in bytes; more is an error.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// A request to a host's admin port, with the token that was given.
pub fn request<B>(
    admin: &str,
    token: &GivenToken,
    verb: &str,
    path: &str,
    body: B,
) -> std::io::Result<axum::http::Request<B>> {
    let mut request = axum::http::Request::builder().method(verb).uri(format!("http://{admin}{path}"));
    if let GivenToken(Some(token)) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    request.body(body).map_err(std::io::Error::other)
}

/// Hosts by their admin addresses.
#[derive(clap::Args)]
pub struct AdminHosts {
    /// Admin addresses of hosts, separated by commas
    #[arg(
        long,
        visible_alias = "endpoints",
        env = "ORDINATE_ADMIN",
        default_value = "127.0.0.1:7070",
        value_delimiter = ',',
        value_parser = address
    )]
    pub admin: Vec<String>,
    #[command(flatten)]
    pub token: GivenToken,
}

/// How long hosts are asked in turn, one after the other, until one of them answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// A call that any of several hosts may do.
pub struct Call<'a> {
    /// Its verb.
    pub verb: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Its body.
    pub body: &'a str,
    /// It changes something, so that it may have been done although nobody has answered.
    pub writes: bool,
}

/// What a host has answered.
pub struct HostAnswer {
    /// The status.
    pub status: u16,
    /// The answer.
    pub answer: Value,
    /// Why it was not done, if it was not.
    pub why: String,
}

/// What an answer comes to.
pub enum Verdict<T> {
    /// That is it.
    Done(T),
    /// Another host, or the same a little later, may do it.
    Again(Failure),
    /// The same, but it may have been done.
    Unknown(Failure),
    /// No host does it.
    No(Failure),
}

impl AdminHosts {
    /// Asks hosts in turn until one has done it, or none will. `judged` says what an answer comes to, and `unanswered` a change that a host has
    /// perhaps been sent and not answered.
    pub fn ask_in_turn<T>(
        &self,
        asked: &Call<'_>,
        unanswered: impl Fn(String) -> Verdict<T>,
        judged: impl Fn(HostAnswer) -> Verdict<T>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        // A call that somebody may have executed has not failed for sure because the next host cannot be reached.
        let mut unknown = None;
        loop {
            let mut last = None;
            for admin in &self.admin {
                let verdict = match self.ask_one(admin, asked, &unanswered) {
                    Ok(answer) => judged(answer),
                    Err(verdict) => verdict,
                };
                match verdict {
                    Verdict::Done(answer) => return Ok(answer),
                    Verdict::No(failure) => return Err(failure),
                    Verdict::Unknown(failure) => unknown = Some(failure),
                    Verdict::Again(failure) => last = Some(failure),
                }
            }
            if begun.elapsed() >= PATIENCE {
                let nobody = || Failure::unreachable("any address", "no address was given");
                return Err(unknown.or(last).unwrap_or_else(nobody));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn ask_one<T>(
        &self,
        admin: &str,
        asked: &Call<'_>,
        unanswered: impl Fn(String) -> Verdict<T>,
    ) -> Result<HostAnswer, Verdict<T>> {
        let Call { verb, path, body, writes } = *asked;
        let (status, text) = call(admin, &self.token, verb, path, body).map_err(|error| {
            let was_sent = error.kind() != std::io::ErrorKind::ConnectionRefused;
            match writes && was_sent {
                true => unanswered(error.to_string()),
                false => Verdict::Again(Failure::unreachable(admin, error.to_string())),
            }
        })?;
        if matches!(status, 401 | 403) {
            return Err(Verdict::No(not_granted(&text)));
        }
        let answer = parse(admin, &text).map_err(Verdict::No)?;
        let why = answer["error"].as_str().unwrap_or(text.trim()).to_owned();
        Ok(HostAnswer { status, answer, why })
    }
}

/// The service has no room for a call.
pub fn busy(fact: String) -> Failure {
    Failure::failed("O1024", "the service is busy: nothing was done", fact, "the same again later")
}

/// A name as a part of a path.
pub fn in_path(name: &str) -> String {
    name.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            write!(path, "%{byte:02X}").expect("a string takes what is written");
        }
        path
    })
}

/// Asks a host's admin port; returns the status and the answer's body.
pub fn call(
    admin: &str,
    token: &GivenToken,
    verb: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let request = request(admin, token, verb, path, body)?;
    let answer = HttpClient::patient(SILENT_FOR).send(request, ANSWER_BYTES_MAX)?;
    let status = answer.status().as_u16();
    let text = String::from_utf8(answer.into_body());
    Ok((status, text.map_err(|_| std::io::Error::other("the answer is no text"))?))
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
