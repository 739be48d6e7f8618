//! Reading a cluster file: every error names the line, the fact, and the nearest valid thing.

use super::clock::ClockKeys;
use super::description::{ClusterFile, Durability, Listen};
use super::key_table;
use super::keys::{self, Key, KeyKind};
use super::limits::Limits;
use super::placement::{BootstrapPlacement, PlacedRole};
use super::regions::{self, Region, RegionLine};
use super::values::{
    FileError, HOST_NAME_RULE, HostLine, ValueSource, Values, check_value, is_host_name, names_of, wanted,
};
use crate::services::{SERVICES, Service};
use kernel::bounds::CONFIGURATION_BYTES_MAX;
use kernel::{Encode as _, Misfit};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Values by key, with where they come from.
type KeyValues = BTreeMap<&'static str, (String, ValueSource)>;

/// Values set outside the file, by key.
#[derive(Clone, Debug, Default)]
pub struct Overrides(BTreeMap<&'static str, (String, ValueSource)>);

impl Overrides {
    /// Those of the environment: `ORDINATE_DURABILITY__ACK` for `durability.ack`.
    pub fn from_environment() -> Self {
        let mut overrides = Self::default();
        for key in key_table::all() {
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

/// The environment variable of a key.
pub fn environment_name(key: &str) -> String {
    format!("ORDINATE_{}", key.to_uppercase().replace('.', "__"))
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
        let values = checked_values(raw.values, overrides)?;
        let mut values = Values { values, folder, hosts: raw.hosts.len() };
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
        let faults = values.number("paxos.faults");
        let regions = regions::checked(&raw.regions, &raw.hosts, &raw.placement, faults)?;
        let placement = match regions.as_slice() {
            [] => BootstrapPlacement::new(&raw.hosts, &raw.placement, faults)?,
            // No host uses it: each has its own region's.
            _ => BootstrapPlacement::new(&raw.hosts, &raw.placement, None)?,
        };
        let configuration = placement.configuration().encoded().len();
        if let Some(misfit) = Misfit::of("a configuration", configuration, CONFIGURATION_BYTES_MAX) {
            let help = "fewer hosts, shorter names and addresses, or fewer nodes in [[place]]";
            return Err(FileError::new(None, format!("the cluster is too large: {misfit}"), help));
        }
        let read = |values: &Values<'_>| -> Result<Vec<_>, FileError> {
            SERVICES.iter().map(|service| (service.read)(values)).collect()
        };
        let services = regions::each_region(&regions, &mut values, read)?;
        let services: Vec<Arc<dyn Service>> = services.into_iter().flatten().collect();
        check_regions(&regions, &services)?;
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
            trace: values.trace()?,
            placement,
            hosts: raw.hosts,
            regions,
            region: None,
            elsewhere: Vec::new(),
            removed: Vec::new(),
            values: values.values,
        })
    }
}

/// Defaults, the file's values and those that were set outside it, each checked by its key.
fn checked_values(of_file: KeyValues, overrides: &Overrides) -> Result<KeyValues, FileError> {
    let mut values = KeyValues::new();
    for key in key_table::all().into_iter().filter(|key| !key.default.is_empty()) {
        values.insert(key.name, (key.default.to_owned(), ValueSource::Default));
    }
    values.extend(of_file);
    values.extend(overrides.0.clone());
    for (name, (value, origin)) in &values {
        let Some(key) = key_table::find(name) else { continue };
        check_value(key, value).map_err(|what| {
            let line = if let ValueSource::File { line } = origin { Some(*line) } else { None };
            FileError::new(
                line,
                format!("{name}: {what} (from {origin})"),
                format!("ordinate config explain {name}"),
            )
        })?;
    }
    Ok(values)
}

/// In a cluster of several regions only those services are on that order nothing over regions.
fn check_regions(regions: &[Region], services: &[Arc<dyn Service>]) -> Result<(), FileError> {
    if regions.is_empty() {
        return Ok(());
    }
    let spans = services.iter().find_map(|it| Some((it, it.goes_with_regions().err()?)));
    if let Some((service, why)) = spans {
        let what = format!("{} does not go with [regions]: {why}", service.listed().name);
        return Err(FileError::new(None, what, "a cluster of its own for it, without [regions]"));
    }
    if !services.iter().any(|it| it.listed().name == crate::services::fuzzylog::LISTED.name) {
        let help = "add a section [fuzzylog] with a line like  partitions = 3";
        return Err(FileError::new(None, "[regions] is for [fuzzylog], which is off", help));
    }
    Ok(())
}

/// The file as written, names checked, values not.
struct RawFile {
    values: BTreeMap<&'static str, (String, ValueSource)>,
    hosts: Vec<HostLine>,
    placement: Vec<PlacedRole>,
    regions: Vec<RegionLine>,
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
        let mut raw =
            Self { values: BTreeMap::new(), hosts: Vec::new(), placement: Vec::new(), regions: Vec::new() };
        for (name, value) in table.get_ref() {
            let line = line_of(name.span().start);
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("hosts", toml::de::DeValue::Table(hosts)) => raw.read_hosts(hosts, &line_of)?,
                ("regions", toml::de::DeValue::Table(table)) => {
                    raw.regions = RegionLine::read(table, &line_of)?;
                }
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
        let Some(key) = key_table::find(name) else {
            let known = key_table::all().into_iter().map(|key| key.name).chain(["hosts", "place", "regions"]);
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
