//! Values of the cluster file's keys: how each kind is written, where a value comes from, and what is wrong with one.

use super::engine::Engine;
use super::keys::{self, Key, KeyKind, OrNone};
use crate::trace::TraceKeys;
use runtime::TlsFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// Nobody set it.
    Default,
    /// The cluster file.
    File {
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { line } => write!(f, "line {line} of the cluster file"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag => write!(f, "flag"),
        }
    }
}

/// What is wrong with a cluster file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// The line, from 1, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

impl FileError {
    /// What is wrong, where, and what to do.
    pub fn new(line: impl Into<Option<usize>>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { line: line.into(), what: what.into(), help: help.into() }
    }
}

/// One host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLine {
    /// Its name.
    pub name: String,
    /// Where its peers reach it.
    pub address: String,
}

/// Certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsPaths {
    /// The authority.
    pub ca: PathBuf,
    /// This host's certificate.
    pub cert: PathBuf,
    /// This host's key.
    pub key: PathBuf,
}

impl TlsPaths {
    /// As the runtime takes them.
    pub fn files(&self) -> TlsFiles {
        TlsFiles { certificates: self.cert.clone(), key: self.key.clone(), authorities: self.ca.clone() }
    }
}

/// What a host may be called: its name is also the name of a folder and of files.
pub const HOST_NAME_RULE: &str =
    "a host's name has 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first";

/// True if a host may be called so.
pub fn is_host_name(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    letters && name.len() <= 63 && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// What switches a service off.
const NO_ENGINE: &str = "none";

/// Says why `value` is not a value of `key`.
pub fn check_value(key: &Key, value: &str) -> Result<(), String> {
    let fits = match key.kind {
        KeyKind::Text | KeyKind::Path => !value.is_empty(),
        KeyKind::Word(words) => words.contains(&value),
        KeyKind::Names => names_of(value).is_some(),
        KeyKind::Address => is_address(value),
        KeyKind::Addresses => addresses_of(value).is_some(),
        KeyKind::Engine(engines, or_none) => {
            engines.iter().any(|engine| engine.name() == value)
                || (or_none == OrNone::OrNone && value == NO_ENGINE)
        }
        KeyKind::Checked(fits, _) => fits(value),
        KeyKind::Number(low, high) => value.parse::<u64>().is_ok_and(|number| (low..=high).contains(&number)),
        KeyKind::Duration => keys::parse_duration(value).is_some(),
        KeyKind::Size => keys::parse_size(value).is_some(),
        KeyKind::Switch => matches!(value, "true" | "false"),
        KeyKind::Section(_) => false,
    };
    if fits { Ok(()) } else { Err(format!("\"{value}\" is not {}", wanted(key.kind))) }
}

fn is_address(value: &str) -> bool {
    value.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// Hosts' names, each with an address, between commas.
pub fn addresses_of(value: &str) -> Option<BTreeMap<String, String>> {
    let pair = |pair: &str| {
        let (name, address) = pair.trim().split_once('=')?;
        (is_host_name(name) && is_address(address)).then(|| (name.to_owned(), address.to_owned()))
    };
    value.split(',').map(pair).collect()
}

/// Names between commas, if each may be one and they differ.
pub fn names_of(value: &str) -> Option<Vec<String>> {
    let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
    let differ = names.iter().collect::<BTreeSet<_>>().len() == names.len();
    (differ && names.len() <= 256 && names.iter().all(|name| is_host_name(name))).then_some(names)
}

/// What a kind of value looks like.
pub fn wanted(kind: KeyKind) -> String {
    match kind {
        KeyKind::Text => "a name".into(),
        KeyKind::Word(words) => format!("one of: {}", words.join(", ")),
        KeyKind::Address => "an address like 127.0.0.1:7070".into(),
        KeyKind::Addresses => "hosts with addresses, separated by commas, like a=a.example.net:9092".into(),
        KeyKind::Number(low, high) => format!("a whole number from {low} to {high}"),
        KeyKind::Duration => "a duration like 30ms or 2s".into(),
        KeyKind::Size => "a size like 64KiB or 1MiB".into(),
        KeyKind::Names => "different names of letters, digits, dots, hyphens and underscores, separated by commas, at most 256".into(),
        KeyKind::Engine(engines, or_none) => {
            let mut names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
            if or_none == OrNone::OrNone {
                names.push(NO_ENGINE);
            }
            format!("one of: {}", names.join(", "))
        }
        KeyKind::Checked(_, looks) => looks.into(),
        KeyKind::Path => "a path".into(),
        KeyKind::Switch => "true or false".into(),
        KeyKind::Section(lines) => lines.into(),
    }
}

/// The values of a file, of the environment and of flags, each checked by its key.
pub struct Values<'a> {
    /// By their keys, with where they come from.
    pub values: BTreeMap<&'static str, (String, ValueSource)>,
    pub(super) folder: &'a Path,
    /// How many hosts the file lists.
    pub hosts: usize,
}

impl Values<'_> {
    /// As it is written.
    pub fn text(&self, name: &str) -> Option<String> {
        self.values.get(name).map(|(value, _)| value.clone())
    }

    /// A whole number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Whether somebody has set it.
    pub fn is_set(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|(_, source)| *source != ValueSource::Default)
    }

    /// A size in bytes; 0 if there is none.
    pub fn size(&self, name: &str) -> usize {
        self.text(name).and_then(|text| keys::parse_size(&text)).unwrap_or(0) as usize
    }

    /// Whether a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name).as_deref() == Some("true")
    }

    /// The engine that a key names, which was checked; none if it names none.
    pub fn engine(&self, name: &str, engines: &[Engine]) -> Option<Engine> {
        let named = self.text(name)?;
        engines.iter().copied().find(|engine| engine.name() == named)
    }

    /// A span of time; zero if there is none.
    pub fn duration(&self, name: &str) -> Duration {
        self.text(name).and_then(|text| keys::parse_duration(&text)).unwrap_or_default()
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(|text| self.folder.join(text))
    }

    /// Those of the replicated log.
    pub fn parameters(&self) -> paxos::Parameters {
        paxos::Parameters {
            heartbeat_every: self.duration("paxos.heartbeat_every"),
            election_timeout: self.duration("paxos.election_timeout"),
            resend_after: self.duration("paxos.resend_after"),
            window: self.number("paxos.window").unwrap_or(512),
            batch_bytes_max: self.size("paxos.batch_bytes_max"),
            batch_delay: self.duration("paxos.batch_delay"),
            batches_in_flight_max: self.number("paxos.batches_in_flight_max").unwrap_or(8) as usize,
            thrifty: self.is_on("paxos.thrifty"),
            snapshot_every_bytes: self.size("paxos.snapshot_every_bytes") as u64,
            ..paxos::Parameters::default()
        }
    }

    pub(super) fn check_http(&self) -> Result<(), FileError> {
        if self.tls()?.is_none() && self.text("listen.http_secure").is_some() {
            let help = "add [tls] with ca, cert and key; `ordinate tls init` makes them";
            return Err(FileError::new(None, "listen.http_secure is set without [tls]", help));
        }
        Ok(())
    }

    /// What is followed of requests.
    pub(super) fn trace(&self) -> Result<Option<TraceKeys>, FileError> {
        match self.text("trace.endpoint") {
            Some(endpoint) => {
                Ok(Some(TraceKeys { endpoint, one_in: self.number("trace.one_in").unwrap_or(1_000) }))
            }
            None if self.is_set("trace.one_in") => {
                let help = "add  endpoint = \"http://127.0.0.1:4318\"  to [trace]: where a collector takes OTLP over HTTP";
                Err(FileError::new(None, "trace.one_in is set without trace.endpoint", help))
            }
            None => Ok(None),
        }
    }

    /// The certificates.
    pub fn tls(&self) -> Result<Option<TlsPaths>, FileError> {
        match (self.path("tls.ca"), self.path("tls.cert"), self.path("tls.key")) {
            (None, None, None) => Ok(None),
            (Some(ca), Some(cert), Some(key)) => Ok(Some(TlsPaths { ca, cert, key })),
            _ => {
                let help = "give tls.ca, tls.cert and tls.key together; `ordinate tls init` makes them";
                Err(FileError::new(None, "TLS is configured by halves", help))
            }
        }
    }
}
