//! `ordinate config`: check a cluster file, explain its keys, print one to start from.

use super::serve::read_file;
use crate::failure::Failure;
use clap::Subcommand;
use server::access::AccessFile;
use server::cluster::ClusterFile;
use server::cluster::file::environment_name;
use server::cluster::values::wanted;
use server::cluster::{key_table, keys};
use server::secure::{HostTls, ends_at};
use std::collections::BTreeMap;
use std::path::PathBuf;
use time::OffsetDateTime;

/// The cluster file
#[derive(Subcommand)]
pub enum Config {
    /// Read a cluster file and say what is wrong with it
    Check {
        /// The file
        file: PathBuf,
    },
    /// What a key means, its value and where that comes from; all keys without one
    Explain {
        /// The key, for example durability.ack
        key: Option<String>,
        /// A cluster file to take values from
        #[arg(long)]
        config: Option<PathBuf>,
    },
    /// Print a cluster file to start from
    Example,
}

const EXAMPLE: &str = r#"cluster = "prod-eu"              # refuses peers of another cluster
data    = "ordinate-data"        # a folder per host in it

[hosts]                          # names and the addresses of their peers' port, re-resolved on every dial
a = "127.0.0.1:7172"
b = "127.0.0.1:7272"
c = "127.0.0.1:7372"

[listen]                         # of the host that reads this; --set listen.native=... for several on one machine
native = "127.0.0.1:7071"
admin  = "127.0.0.1:7070"        # web page, HTTP, metrics, health

[durability]
ack = "majority-fsync"           # or "memory", with a warning at every start

# [clock]                        # ordinate clock measures the sources of this machine
# source = "auto"                # or clockbound, chrony, kernel; "fixed" believes epsilon
# epsilon = "10ms"
# error_max = "250ms"

# [tls]                          # made by: ordinate tls init --out tls a b c
# ca   = "tls/ca.pem"
# cert = "tls/a.pem"
# key  = "tls/a.key"

# Without a section [[place]] every host plays every role. Compartmentalized, for example:
# [[place]]
# role    = "paxos.acceptor"
# on      = ["a", "b", "c", "d"]
# columns = 2                    # a grid of 2 x 2: rows are read quorums, columns write quorums
"#;

impl Config {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Check { file } => {
                let checked = read_file(&file, &[])?;
                let configuration = checked.placement.configuration();
                println!(
                    "{} is sound: cluster {}, {} hosts",
                    file.display(),
                    checked.cluster,
                    checked.hosts.len()
                );
                let warnings = check_surroundings(&checked)?;
                println!(
                    "  durability {}; survives {} failed hosts",
                    checked.durability,
                    configuration.acceptors.faults()
                );
                for (name, text) in warnings {
                    println!("  {name:<12}{text}");
                }
                Ok(())
            }
            Self::Explain { key, config } => explain(key.as_deref(), config),
            Self::Example => {
                print!("{EXAMPLE}");
                Ok(())
            }
        }
    }
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
    if file.hosts.len() == 2 {
        let text = "two hosts survive no failure, as one does: run one, or three";
        shown.push(("WARNING", text.to_owned()));
    }
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

fn explain(name: Option<&str>, config: Option<PathBuf>) -> Result<(), Failure> {
    let file = config.map(|path| read_file(&path, &[])).transpose()?;
    let chosen: Vec<_> = match name {
        None => key_table::all(),
        Some(name) => vec![key_table::find(name).ok_or_else(|| {
            let near = keys::nearest(name, key_table::all().into_iter().map(|key| key.name));
            let fact = near.map_or_else(String::new, |near| format!("did you mean {near}?"));
            Failure::input("O2004", format!("unknown key {name}"), fact, "ordinate config explain")
        })?],
    };
    for key in chosen {
        println!("{}", key.name);
        println!("  {}", key.meaning);
        println!("  takes     {}", wanted(key.kind));
        println!("  default   {}", if key.default.is_empty() { "none" } else { key.default });
        if let Some((value, origin)) = file.as_ref().and_then(|file| file.value(key.name)) {
            println!("  value     {value}   ({origin})");
        }
        println!("  if wrong  {}", key.risk);
        println!("  also      --set {}=VALUE, {}", key.name, environment_name(key.name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    // The file that new users start from must be one that the program accepts.
    #[test]
    fn the_example_is_sound() {
        let overrides = server::cluster::file::Overrides::default();
        let checked =
            server::cluster::ClusterFile::parse(super::EXAMPLE, std::path::Path::new("."), &overrides);
        let file = checked.unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!((file.hosts.len(), file.placement.configuration().acceptors.faults()), (3, 1));
    }
}
