//! `ordinate config`: check a cluster file, explain its keys, print one to start from.

use super::example::{self, EXAMPLE};
use super::output::{GivenOutput, Output};
use super::profile;
use super::serve::read_file;
use crate::failure::Failure;
use clap::Subcommand;
use parts::Shape;
use serde_json::{Value, json};
use server::access::AccessFile;
use server::cluster::ClusterFile;
use server::cluster::file::environment_name;
use server::cluster::keys::KeyKind;
use server::cluster::regions::Region;
use server::cluster::values::wanted;
use server::cluster::{key_table, keys};
use server::secure::{HostTls, ends_at};
use server::services::{Engine, Service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use time::OffsetDateTime;

/// The cluster file
#[derive(Subcommand)]
pub enum Config {
    /// Read a cluster file and say what is wrong with it
    Check {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// What a key means, its value and where that comes from; all keys without one
    Explain {
        /// The key, for example durability.ack
        key: Option<String>,
        /// A cluster file to take values from
        #[arg(long)]
        config: Option<PathBuf>,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// Print a cluster file to start from, with every service
    Example {
        /// Write the files of so many hosts on this machine instead, which run side by side as they are
        #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u16).range(1..=9))]
        laptop: Option<u16>,
        /// Where those files go
        #[arg(long, value_name = "DIR", default_value = ".", requires = "laptop")]
        out: PathBuf,
        /// Ports from this one on, ten for each host, instead of the usual ones
        #[arg(long, value_name = "PORT", requires = "laptop", value_parser = first_port())]
        first_port: Option<u16>,
        #[command(flatten)]
        output: GivenOutput,
    },
    /// The profiles that --profile and ORDINATE_PROFILE name
    Profiles {
        #[command(flatten)]
        output: GivenOutput,
    },
}

fn first_port() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=i64::from(example::FIRST_PORT_MAX))
}

impl Config {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check { file, output: GivenOutput(output) } => check(&file, output),
            Self::Explain { key, config, output: GivenOutput(output) } => {
                explain(key.as_deref(), config, output)
            }
            Self::Example { laptop: Some(count), out, first_port, output: GivenOutput(output) } => {
                example::laptop(count, &out, first_port, output)
            }
            Self::Example { laptop: None, output: GivenOutput(output), .. } => {
                output.print(|| json!({ "file": EXAMPLE }), || EXAMPLE.trim_end().to_owned());
                Ok(())
            }
            Self::Profiles { output: GivenOutput(output) } => profile::list(output),
        }
    }
}

fn check(path: &Path, output: Output) -> Result<(), Failure> {
    let checked = read_file(path, &[])?;
    let regions = each_region(&checked);
    let faults = |seen: &ClusterFile| seen.placement.configuration().acceptors.faults();
    let survives = regions.iter().map(|(_, seen)| faults(seen)).min().unwrap_or_else(|| faults(&checked));
    let mut shown = check_surroundings(&checked)?;
    for (region, seen) in &regions {
        let hosts: Vec<&str> = seen.hosts.iter().map(|host| host.name.as_str()).collect();
        let text = format!("{region}: {}; survives {} failed hosts", hosts.join(", "), faults(seen));
        shown.push(("region", text));
    }
    let (path, hosts) = (path.display(), checked.hosts.len());
    if output.is_json() {
        let shown: Vec<Value> =
            shown.into_iter().map(|(name, text)| json!({ "of": name, "text": text })).collect();
        println!(
            "{}",
            json!({ "file": path.to_string(), "sound": true, "cluster": checked.cluster, "hosts": hosts,
                "durability": checked.durability.to_string(), "survives": survives, "remarks": shown })
        );
        return Ok(());
    }
    println!("{path} is sound: cluster {}, {hosts} hosts", checked.cluster);
    println!("  durability {}; survives {survives} failed hosts", checked.durability);
    for (name, text) in shown {
        println!("  {name:<12}{text}");
    }
    Ok(())
}

/// The file as each region's hosts see it, by the regions' names; none without regions.
fn each_region(file: &ClusterFile) -> Vec<(String, ClusterFile)> {
    let of = |region: &Region| {
        let seen = region.hosts.first().map(|host| file.clone().seen_from(&host.name));
        seen.map(|seen| (region.name.clone(), seen))
    };
    file.regions.iter().filter_map(of).collect()
}

/// What a host would find when it starts: files that are named, and addresses that cannot all be listened at. What is given back is to be
/// shown.
fn check_surroundings(file: &ClusterFile) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut shown = Vec::new();
    let mut peers: BTreeMap<&str, &str> = BTreeMap::new();
    for host in &file.hosts {
        if let Some(other) = peers.insert(&host.address, &host.name) {
            let what = format!("hosts {other} and {} have one address, {}", host.name, host.address);
            return Err(Failure::input(
                "O2001",
                what,
                "each host listens at its own",
                "ordinate config explain hosts",
            ));
        }
    }
    let listen = &file.listen;
    let own = [
        ("listen.native", Some(listen.native.clone())),
        ("listen.admin", Some(listen.admin.clone())),
        ("listen.http", listen.http.clone()),
        ("listen.http_secure", listen.http_secure.clone()),
    ];
    let of_services = file.services().iter().flat_map(|service| service.ports());
    let of_services = of_services.map(|port| (port.key, Some(port.address)));
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    for (key, address) in own.into_iter().chain(of_services) {
        let Some(address) = address.filter(|address| !address.ends_with(":0")) else { continue };
        let other = taken.insert(address.clone(), key).filter(|other| *other != key);
        if let Some(other) = other {
            let what = format!("{other} and {key} are both {address}");
            return Err(Failure::input(
                "O2001",
                what,
                "each needs a port of its own",
                format!("ordinate config explain {key}"),
            ));
        }
    }
    shown.extend(warnings(file).into_iter().map(|text| ("WARNING", text)));
    if let Some(paths) = &file.tls {
        HostTls::load(paths).map_err(|error| {
            let remedy = "ordinate tls init makes them; ordinate tls show FOLDER shows what there is";
            Failure::input("O2105", "the TLS files cannot be used", error.to_string(), remedy)
        })?;
        for (whose, path) in [("host", &paths.cert), ("authority", &paths.ca)] {
            let Some(ends) = ends_at(path) else { continue };
            let days = (ends - OffsetDateTime::now_utc().unix_timestamp()).div_euclid(24 * 60 * 60);
            if days < 0 {
                let what = format!("the certificate of the {whose} has ended");
                return Err(Failure::input("O2105", what, path.display().to_string(), "ordinate tls renew"));
            }
            shown.push(("tls", format!("the certificate of the {whose} is good for {days} days")));
        }
    }
    if let Some(path) = &file.access {
        let policy = AccessFile::read(path).and_then(|file| file.policy()).map_err(|error| {
            let what = format!("the access file {} cannot be used", path.display());
            Failure::input("O2116", what, error.to_string(), "ordinate access list --file FILE")
        })?;
        shown.push(("access", format!("{} identities in {}", policy.len(), path.display())));
    }
    Ok(shown)
}

/// What works, and is hardly meant so.
fn warnings(file: &ClusterFile) -> Vec<String> {
    let mut warnings = Vec::new();
    for (region, seen) in each_region(file) {
        warnings.extend(warnings_of_hosts(&seen).into_iter().map(|text| format!("region {region}: {text}")));
    }
    if file.regions.is_empty() {
        warnings.extend(warnings_of_hosts(file));
    }
    let has = match (file.listen.is_admin_exposed(), &file.access) {
        (false, _) => None,
        (true, None) => Some("no password"),
        (true, Some(_)) => Some("no TLS"),
    };
    if let Some(has) = has {
        warnings.push(format!(
            "listen.admin ({}) is reached from other machines, and has {has}",
            file.listen.admin
        ));
    }
    let is_on_chains = |it: &&Arc<dyn Service>| it.listed().name == "log" && it.engine() == Engine::FuzzyLog;
    if file.services().iter().any(|it| is_on_chains(&it))
        && file.placement.configuration().acceptors.faults() > 1
    {
        let what = "the log over fuzzylog survives one failed host at a time: chains have three servers, and three hosts direct them";
        warnings.push(what.to_owned());
    }
    warnings
}

fn warnings_of_hosts(file: &ClusterFile) -> Vec<String> {
    let mut warnings = Vec::new();
    if file.hosts.len() == 2 {
        warnings.push("two hosts survive no failure, as one does: run one, or three".to_owned());
    }
    for group in file.placement.configuration().acceptors.groups() {
        let count = group.members().len();
        if count > 2 && count.is_multiple_of(2) && group.shape() == Shape::Majority {
            warnings.push(format!("{count} hosts that vote survive no more failures than {}", count - 1));
        }
    }
    warnings
}

fn explain(name: Option<&str>, config: Option<PathBuf>, output: Output) -> Result<(), Failure> {
    let file = config.map(|path| read_file(&path, &[])).transpose()?;
    let chosen: Vec<_> = match name {
        None => key_table::explained(),
        Some(name) => {
            vec![key_table::explained().into_iter().find(|key| key.name == name).ok_or_else(|| {
                let near = keys::nearest(name, key_table::explained().into_iter().map(|key| key.name));
                let fact = near.map_or_else(String::new, |near| format!("did you mean {near}?"));
                Failure::input("O2004", format!("unknown key {name}"), fact, "ordinate config explain")
            })?]
        }
    };
    for key in chosen {
        let set = file.as_ref().and_then(|file| file.value(key.name));
        if output.is_json() {
            let (value, origin) = set.map(|(value, origin)| (value.to_owned(), origin.to_string())).unzip();
            println!(
                "{}",
                json!({ "key": key.name, "meaning": key.meaning, "takes": wanted(key.kind), "default": key.default,
                    "value": value, "origin": origin, "if_wrong": key.risk })
            );
            continue;
        }
        println!("{}", key.name);
        println!("  {}", key.meaning);
        println!("  takes     {}", wanted(key.kind));
        println!("  default   {}", if key.default.is_empty() { "none" } else { key.default });
        if let Some((value, origin)) = set {
            println!("  value     {value}   ({origin})");
        }
        println!("  if wrong  {}", key.risk);
        if !matches!(key.kind, KeyKind::Section(_)) {
            println!("  also      --set {}=VALUE, {}", key.name, environment_name(key.name));
        }
    }
    Ok(())
}
