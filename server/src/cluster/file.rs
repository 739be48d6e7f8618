//! Reading a cluster file: every error names the line, the fact, and the nearest valid thing.

use super::clock::ClockKeys;
use super::keys::{self, Key, KeyKind, OrNone};
use super::limits::Limits;
use super::placement::{BootstrapPlacement, PlacedRole};
use crate::services::{Engine, Listed, SERVICES, Service};
use kernel::bounds::CONFIGURATION_BYTES_MAX;
use kernel::{Encode as _, Misfit};
use runtime::TlsFiles;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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

/// What an acknowledgement promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// A majority has fsynced.
    MajorityFsync,
    /// A majority has it in memory.
    Memory,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MajorityFsync => "majority-fsync",
            Self::Memory => "memory",
        })
    }
}

/// Where a host listens for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The native protocol.
    pub native: String,
    /// The admin port.
    pub admin: String,
    /// Applications' HTTP, if it has a port of its own.
    pub http: Option<String>,
    /// The same with TLS, beside the other.
    pub http_secure: Option<String>,
    /// Names by which HTTP clients call the host.
    pub names: Vec<String>,
}

impl Listen {
    /// The admin port is reached from other machines: no name or address of this one's loopback.
    pub fn is_admin_exposed(&self) -> bool {
        let host = self.admin.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        !host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback())
    }
}

impl TlsPaths {
    /// As the runtime takes them.
    pub fn files(&self) -> TlsFiles {
        TlsFiles { certificates: self.cert.clone(), key: self.key.clone(), authorities: self.ca.clone() }
    }
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

/// One host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLine {
    /// Its name.
    pub name: String,
    /// Where its peers reach it.
    pub address: String,
}

/// A checked cluster file.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// The cluster's name.
    pub cluster: String,
    /// The data folder of all hosts.
    pub data: PathBuf,
    /// The hosts, in the order of the file.
    pub hosts: Vec<HostLine>,
    /// Client ports.
    pub listen: Listen,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// The engine's numbers.
    pub parameters: paxos::Parameters,
    /// Bounds on clients.
    pub limits: Limits,
    /// The wall clock.
    pub clock: ClockKeys,
    /// Certificates, if TLS is on.
    pub tls: Option<TlsPaths>,
    /// The access file, if access control is on.
    pub access: Option<PathBuf>,
    /// Who plays which role.
    pub placement: BootstrapPlacement,
    services: Vec<Arc<dyn Service>>,
    values: BTreeMap<&'static str, (String, ValueSource)>,
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

/// Values set outside the file, by key.
#[derive(Clone, Debug, Default)]
pub struct Overrides(BTreeMap<&'static str, (String, ValueSource)>);

impl Overrides {
    /// Those of the environment: `ORDINATE_DURABILITY__ACK` for `durability.ack`.
    pub fn from_environment() -> Self {
        let mut overrides = Self::default();
        for key in keys::all() {
            let name = environment_name(key.name);
            if let Ok(value) = std::env::var(&name) {
                overrides.0.insert(key.name, (value, ValueSource::Environment(name)));
            }
        }
        overrides
    }

    /// Sets a key as a flag does; flags win over the environment.
    pub fn set(&mut self, key: &'static Key, value: String) {
        self.0.insert(key.name, (value, ValueSource::Flag));
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

/// The environment variable of a key.
pub fn environment_name(key: &str) -> String {
    format!("ORDINATE_{}", key.to_uppercase().replace('.', "__"))
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
    }
}

impl ClusterFile {
    /// Reads the file at `path`.
    pub fn read(path: &Path, overrides: &Overrides) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let help = "give the file with --config FILE; `ordinate config example` prints one to start from";
            FileError::new(None, format!("cannot read {}: {error}", path.display()), help)
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, folder, overrides)
    }

    /// Checks the text of a cluster file whose relative paths start at `folder`.
    pub fn parse(text: &str, folder: &Path, overrides: &Overrides) -> Result<Self, FileError> {
        let raw = RawFile::parse(text)?;
        let mut values: BTreeMap<&'static str, (String, ValueSource)> = BTreeMap::new();
        for key in keys::all().into_iter().filter(|key| !key.default.is_empty()) {
            values.insert(key.name, (key.default.to_owned(), ValueSource::Default));
        }
        values.extend(raw.values);
        values.extend(overrides.0.clone());
        for (name, (value, origin)) in &values {
            let Some(key) = keys::find(name) else { continue };
            check_value(key, value).map_err(|what| {
                let line = if let ValueSource::File { line } = origin { Some(*line) } else { None };
                FileError::new(
                    line,
                    format!("{name}: {what} (from {origin})"),
                    format!("ordinate config explain {name}"),
                )
            })?;
        }
        let values = Values { values, folder, hosts: raw.hosts.len() };
        let cluster = values.text("cluster").ok_or_else(|| {
            FileError::new(
                None,
                "the cluster has no name",
                "add a line like  cluster = \"prod-eu\"  at the top",
            )
        })?;
        if raw.hosts.is_empty() {
            let help = "add a section [hosts] with lines like  a = \"a.example.net:7072\"";
            return Err(FileError::new(None, "the cluster has no hosts", help));
        }
        values.check_bounds()?;
        values.check_http()?;
        let placement = BootstrapPlacement::new(&raw.hosts, &raw.placement, values.number("paxos.faults"))?;
        let configuration = placement.configuration().encoded().len();
        if let Some(misfit) = Misfit::of("a configuration", configuration, CONFIGURATION_BYTES_MAX) {
            let help = "fewer hosts, shorter names and addresses, or fewer nodes in [[place]]";
            return Err(FileError::new(None, format!("the cluster is too large: {misfit}"), help));
        }
        let services: Result<Vec<_>, _> = SERVICES.iter().map(|service| (service.read)(&values)).collect();
        let services = services?;
        let services: Vec<Arc<dyn Service>> = services.into_iter().flatten().collect();
        let over_its_engine = |it: &Arc<dyn Service>| it.listed().engines.contains(&it.engine());
        debug_assert!(services.iter().all(over_its_engine), "a service over an engine that it does not list");
        Ok(Self {
            cluster,
            data: values.path("data").unwrap_or_default(),
            listen: Listen {
                native: values.text("listen.native").unwrap_or_default(),
                admin: values.text("listen.admin").unwrap_or_default(),
                http: values.text("listen.http"),
                http_secure: values.text("listen.http_secure"),
                names: values.text("listen.names").and_then(|names| names_of(&names)).unwrap_or_default(),
            },
            durability: match values.text("durability.ack").as_deref() {
                Some("memory") => Durability::Memory,
                _ => Durability::MajorityFsync,
            },
            parameters: values.parameters(),
            limits: Limits::of(&values),
            services,
            clock: ClockKeys::of(&values)?,
            tls: values.tls()?,
            access: values.path("access.file"),
            placement,
            hosts: raw.hosts,
            values: values.values,
        })
    }

    /// A key's value and where it comes from; none if it has neither.
    pub fn value(&self, name: &str) -> Option<(&str, &ValueSource)> {
        self.values.get(name).map(|(value, origin)| (value.as_str(), origin))
    }

    /// The services that are on.
    pub fn services(&self) -> &[Arc<dyn Service>] {
        &self.services
    }

    /// The service of this line of the list, if it is on.
    pub fn on(&self, listed: &Listed) -> Option<&dyn Service> {
        self.services.iter().map(|service| &**service).find(|service| service.listed().name == listed.name)
    }

    /// The service of this type, if it is on.
    pub fn service<S: Service>(&self) -> Option<&S> {
        self.services.iter().find_map(|service| (&**service as &dyn Any).downcast_ref())
    }

    /// The host called `name`.
    pub fn host(&self, name: &str) -> Option<&HostLine> {
        self.hosts.iter().find(|host| host.name == name)
    }
}

/// The values of a file, of the environment and of flags, each checked by its key.
pub struct Values<'a> {
    /// By their keys, with where they come from.
    pub values: BTreeMap<&'static str, (String, ValueSource)>,
    folder: &'a Path,
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

    fn path(&self, name: &str) -> Option<PathBuf> {
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

    fn check_http(&self) -> Result<(), FileError> {
        if self.tls()?.is_none() && self.text("listen.http_secure").is_some() {
            let help = "add [tls] with ca, cert and key; `ordinate tls init` makes them";
            return Err(FileError::new(None, "listen.http_secure is set without [tls]", help));
        }
        Ok(())
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

/// The file as written, names checked, values not.
struct RawFile {
    values: BTreeMap<&'static str, (String, ValueSource)>,
    hosts: Vec<HostLine>,
    placement: Vec<PlacedRole>,
}

impl RawFile {
    fn parse(text: &str) -> Result<Self, FileError> {
        let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
        let table = toml::de::DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| line_of(span.start));
            FileError::new(
                line,
                error.message().to_owned(),
                "the file is TOML: name = \"value\", sections in [brackets]",
            )
        })?;
        let mut raw = Self { values: BTreeMap::new(), hosts: Vec::new(), placement: Vec::new() };
        for (name, value) in table.get_ref() {
            let line = line_of(name.span().start);
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("hosts", toml::de::DeValue::Table(hosts)) => raw.read_hosts(hosts, &line_of)?,
                ("place", toml::de::DeValue::Array(sections)) => {
                    for section in sections {
                        raw.placement.push(PlacedRole::read(section, &line_of)?);
                    }
                }
                (section, toml::de::DeValue::Table(table)) => {
                    for (key, value) in table {
                        let name = format!("{section}.{}", key.get_ref());
                        raw.read_value(&name, value.get_ref(), line_of(key.span().start))?;
                    }
                }
                (key, value) => raw.read_value(key, value, line)?,
            }
        }
        Ok(raw)
    }

    fn read_hosts(
        &mut self,
        hosts: &toml::de::DeTable<'_>,
        line_of: &impl Fn(usize) -> usize,
    ) -> Result<(), FileError> {
        for (name, address) in hosts {
            let line = line_of(name.span().start);
            let toml::de::DeValue::String(address) = address.get_ref() else {
                let help = format!("write  {} = \"name:port\"", name.get_ref());
                return Err(FileError::new(line, format!("host {} has no address", name.get_ref()), help));
            };
            let host = HostLine { name: name.get_ref().to_string(), address: address.to_string() };
            if !is_host_name(&host.name) {
                let what = format!("\"{}\" is no name for a host", host.name);
                return Err(FileError::new(line, what, HOST_NAME_RULE));
            }
            if host.address.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                let what = format!("host {}: \"{}\" is no address", host.name, host.address);
                return Err(FileError::new(line, what, "write name:port, for example a.example.net:7072"));
            }
            let identity = kernel::HostId::named(&host.name);
            if let Some(other) =
                self.hosts.iter().find(|other| kernel::HostId::named(&other.name) == identity)
            {
                let what = format!("hosts {} and {} have the same identity", other.name, host.name);
                return Err(FileError::new(line, what, "rename one of them"));
            }
            self.hosts.push(host);
        }
        // A table does not keep the order of its lines; the order of names is as good, and stable.
        self.hosts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    fn read_value(
        &mut self,
        name: &str,
        value: &toml::de::DeValue<'_>,
        line: usize,
    ) -> Result<(), FileError> {
        let Some(key) = keys::find(name) else {
            let known = keys::all().into_iter().map(|key| key.name).chain(["hosts", "place"]);
            let help = match keys::nearest(name, known) {
                Some(near) => format!("did you mean {near}?"),
                None => "`ordinate config explain` lists all keys".to_owned(),
            };
            return Err(FileError::new(line, format!("unknown key {name}"), help));
        };
        let text = match value {
            toml::de::DeValue::String(text) => text.to_string(),
            toml::de::DeValue::Integer(number) => number.to_string(),
            toml::de::DeValue::Boolean(switch) => switch.to_string(),
            toml::de::DeValue::Array(items) if matches!(key.kind, KeyKind::Names) => {
                let names = items.iter().map(|item| item.get_ref().as_str().unwrap_or_default());
                names.collect::<Vec<_>>().join(",")
            }
            toml::de::DeValue::Float(_)
            | toml::de::DeValue::Datetime(_)
            | toml::de::DeValue::Array(_)
            | toml::de::DeValue::Table(_) => {
                return Err(FileError::new(
                    line,
                    format!("{name} wants {}", wanted(key.kind)),
                    format!("ordinate config explain {name}"),
                ));
            }
        };
        self.values.insert(key.name, (text, ValueSource::File { line }));
        Ok(())
    }
}
