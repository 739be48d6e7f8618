//! `ordinate config example`: cluster files to start from, one for machines of their own and some for one machine.

use super::output::Output;
use crate::failure::Failure;
use serde_json::json;
use std::path::{Path, PathBuf};

/// For hosts on machines of their own, with every service.
pub const EXAMPLE: &str = r#"cluster = "prod-eu"              # refuses peers of another cluster
data    = "ordinate-data"        # a folder per host in it

[hosts]                          # names and the addresses of their peers' port, re-resolved on every dial
a = "127.0.0.1:7172"
b = "127.0.0.1:7272"
c = "127.0.0.1:7372"

[listen]                         # of the host that reads this; --set listen.native=... for several on one machine
native    = "127.0.0.1:7071"     # clients: key-value (always on), sequence, log, transactions
admin     = "127.0.0.1:7070"     # web page, metrics, health, changes
http      = "127.0.0.1:7073"     # applications over HTTP
zookeeper = "127.0.0.1:2181"     # clients of the coordination service
kafka     = "127.0.0.1:9092"     # Kafka's clients, of the log

[durability]
ack = "majority-fsync"           # or "memory", with a warning at every start

# Each service without its section is off. All hosts must agree, from the first start on.
[coordination]                   # the ZooKeeper protocol
engine = "mason"
shards = 4

[sequence]                       # contiguous numbers, in one order over all spaces
spaces = ["ids", "orders"]

[log]                            # named logs without holes
spaces = 4

[txn]                            # transactions: they rest on the clock
shards = 4

# [fuzzylog]                     # the partially ordered log
# partitions = 3
# order = "strict"               # times that follow real time: they rest on the clock

# [regions]                      # hosts far from each other, each region serving alone; with [fuzzylog] and nothing else
# ohio  = "a,b,c"
# tokyo = "d,e,f"

[clock]                          # ordinate clock measures the sources of this machine
source = "auto"                  # or clockbound, chrony, kernel; "fixed" believes epsilon
# epsilon = "10ms"
# error_max = "250ms"

# [tls]                          # made by: ordinate tls init --out tls a b c
# ca   = "tls/ca.pem"
# cert = "tls/a.pem"
# key  = "tls/a.key"

# [access]                       # made by: ordinate access init --file access.toml
# file = "access.toml"

# [trace]                        # one request in so many, to a collector of OpenTelemetry
# endpoint = "http://127.0.0.1:4318"
# one_in   = 1000

# [backup]                       # ordinate config explain backup.to
# to    = "s3://bucket/backups"
# every = "24h"

# Without a section [[place]] every host plays every role. Compartmentalized, for example:
# [[place]]
# role    = "paxos.acceptor"
# on      = ["a", "b", "c", "d"]
# columns = 2                    # a grid of 2 x 2: rows are read quorums, columns write quorums
"#;

/// Names of hosts on one machine.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
/// Ports of one host are so far from those of the next.
const APART: u16 = 10;
/// The last port of the last host must be one.
pub const FIRST_PORT_MAX: u16 = u16::MAX - APART * NAMES.len() as u16;

/// Ports of one host.
struct Ports {
    admin: u16,
    native: u16,
    peer: u16,
    zookeeper: u16,
    kafka: u16,
}

impl Ports {
    /// The usual ones for the first host, and others beside them for the next; or all from a port on.
    fn of(index: u16, first: Option<u16>) -> Self {
        let by = APART * index;
        match first {
            None => Self {
                admin: 7070 + by,
                native: 7071 + by,
                peer: 7072 + by,
                zookeeper: 2181 + by,
                kafka: 9092 + by,
            },
            Some(first) => {
                let at = first + by;
                Self { admin: at, native: at + 1, peer: at + 2, zookeeper: at + 3, kafka: at + 4 }
            }
        }
    }
}

/// The file of one of `count` hosts on this machine.
fn laptop_file(index: u16, count: u16, first: Option<u16>) -> String {
    let all: Vec<(&str, Ports)> =
        (0..count).zip(NAMES).map(|(index, name)| (name, Ports::of(index, first))).collect();
    let hosts: String =
        all.iter().map(|(name, ports)| format!("{name} = \"127.0.0.1:{}\"\n", ports.peer)).collect();
    let brokers: Vec<String> =
        all.iter().map(|(name, ports)| format!("{name}=127.0.0.1:{}", ports.kafka)).collect();
    let (name, Ports { admin, native, zookeeper, kafka, .. }) = &all[usize::from(index)];
    format!(
        r#"# Host {name} of {count} on this machine: ordinate serve --config {name}.toml --host {name}
cluster = "laptop"
data    = "ordinate-data"

[hosts]
{hosts}
[listen]
native    = "127.0.0.1:{native}"
admin     = "127.0.0.1:{admin}"
zookeeper = "127.0.0.1:{zookeeper}"
kafka     = "127.0.0.1:{kafka}"

[coordination]
engine = "mason"
shards = 2

[sequence]
spaces = ["ids"]

[log]
spaces = 2

[kafka]
brokers = "{}"

[txn]
shards = 2

[fuzzylog]
partitions = 2

[clock]                          # hosts on one machine have one clock
source  = "fixed"
epsilon = "1ms"
"#,
        brokers.join(",")
    )
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("{} cannot be written; nothing was changed that was there", path.display());
    let remedy = "ordinate config example --laptop 3 --out ANOTHER-FOLDER";
    Failure::input("O1016", what, error.to_string(), remedy)
}

/// Writes the files of hosts that run side by side on this machine as they are.
pub fn laptop(count: u16, out: &Path, first: Option<u16>, output: Output) -> Result<(), Failure> {
    let files: Vec<PathBuf> =
        NAMES.iter().take(count.into()).map(|name| out.join(format!("{name}.toml"))).collect();
    std::fs::create_dir_all(out).map_err(|error| unwritten(out, &error))?;
    if let Some(there) = files.iter().find(|file| file.exists()) {
        return Err(unwritten(there, &std::io::Error::other("it exists already")));
    }
    for (index, file) in (0..count).zip(&files) {
        std::fs::write(file, laptop_file(index, count, first)).map_err(|error| unwritten(file, &error))?;
    }
    for ((index, name), file) in (0..count).zip(NAMES).zip(&files) {
        let Ports { admin, native, zookeeper, kafka, .. } = Ports::of(index, first);
        let (file, start) =
            (file.display(), format!("ordinate serve --config {} --host {name}", file.display()));
        let json = || {
            json!({ "host": name, "file": file.to_string(), "start": start, "admin": format!("127.0.0.1:{admin}"),
                "native": format!("127.0.0.1:{native}"), "zookeeper": format!("127.0.0.1:{zookeeper}"),
                "kafka": format!("127.0.0.1:{kafka}") })
        };
        output.print(json, || format!("{start}   web page http://127.0.0.1:{admin}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::cluster::ClusterFile;
    use server::cluster::file::Overrides;
    use server::services::SERVICES;

    // The files that new users start from must be ones that the program accepts, with all that there is to try.
    #[test]
    fn the_examples_are_sound_and_have_every_service() {
        // Where it is on, no host joins: it is there to be switched on.
        let all = EXAMPLE.replace("# [fuzzylog]", "[fuzzylog]").replace("# partitions", "partitions");
        let mut texts = vec![(all, 3)];
        texts.extend((0..3).map(|index| (laptop_file(index, 3, None), 3)));
        texts.extend((0..9).map(|index| (laptop_file(index, 9, Some(FIRST_PORT_MAX)), 9)));
        for (text, hosts) in texts {
            let checked = ClusterFile::parse(&text, Path::new("."), &Overrides::default());
            let file = checked.unwrap_or_else(|error| panic!("{error:?}\n{text}"));
            assert_eq!((file.hosts.len(), file.services().len()), (hosts, SERVICES.len()));
            assert_eq!(file.placement.configuration().acceptors.faults(), (hosts - 1) / 2);
        }
    }
}
