//! `ordinate config`: check a cluster file, explain its keys, print one to start from.

use super::serve::read_file;
use crate::failure::Failure;
use clap::Subcommand;
use server::cluster::file::{environment_name, wanted};
use server::cluster::keys;
use std::path::PathBuf;

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
                println!(
                    "  durability {}; survives {} failed hosts",
                    checked.durability,
                    configuration.acceptors.faults()
                );
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

fn explain(name: Option<&str>, config: Option<PathBuf>) -> Result<(), Failure> {
    let file = config.map(|path| read_file(&path, &[])).transpose()?;
    let chosen: Vec<_> = match name {
        None => keys::all(),
        Some(name) => vec![keys::find(name).ok_or_else(|| {
            let near = keys::nearest(name, keys::all().into_iter().map(|key| key.name));
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
