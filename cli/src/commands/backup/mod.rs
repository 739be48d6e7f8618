//! `ordinate backup` and `ordinate restore`.

mod colours;
mod lease;
mod manifest;
mod restore;
pub mod schedule;
mod store;
mod take;
mod writer;

use super::output::GivenOutput;
use crate::commands::kv::Endpoint;
use crate::commands::zk::Connecting;
use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use lease::{Lease, Work};
use manifest::{CHUNKS, Manifest, name_of, read_chunk};
use restore::{Restoring, Wanted};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::future::Future;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
pub use store::{BackupStore, Location};
use take::Source;
use writer::{Counts, Writer};

/// Takes a backup of all services while they run, or looks after those that there are.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Backup {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Where backups are: a directory, or s3://BUCKET/PREFIX. What is there already is not written again
    #[arg(long, value_name = "DIR|URL", value_parser = Location::parse, required = true)]
    to: Option<Location>,
    /// Admin address of the host whose state is copied; one that does not lead is not missed
    #[arg(long, default_value = "127.0.0.1:7070", env = "ORDINATE_ADMIN", value_parser = super::admin::address)]
    admin: String,
    #[command(flatten)]
    endpoint: Endpoint,
}

/// Looks after backups.
#[derive(clap::Subcommand)]
enum Verb {
    /// Read all of a backup, and say what is damaged
    Verify {
        #[command(flatten)]
        there: There,
        /// Which; the newest unless given
        #[arg(long, value_name = "ID")]
        backup: Option<String>,
    },
    /// The backups there are, the newest last
    List {
        #[command(flatten)]
        there: There,
        /// Print JSON, one backup a line
        #[arg(long)]
        json: bool,
    },
    /// Remove all but the newest backups, and what no other has part in. While one is being taken, only the former
    Prune {
        #[command(flatten)]
        there: There,
        /// How many to keep
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        keep: u64,
    },
}

/// Where backups are.
#[derive(clap::Args)]
struct There {
    /// Where backups are: a directory, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR|URL", value_parser = Location::parse)]
    to: Location,
    #[command(flatten)]
    output: GivenOutput,
}

/// Writes a backup into a cluster that is empty: of another identity, of any size.
#[derive(clap::Args)]
pub struct RestoreBackup {
    /// Where backups are: a directory, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR|URL", value_parser = Location::parse)]
    from: Location,
    /// Which; the newest unless given
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
    /// Only these services, separated by commas: kv, coordination, log, txn, fuzzylog
    #[arg(long, value_name = "SERVICES", value_delimiter = ',', value_parser = ["kv", "coordination", "log", "txn", "fuzzylog"])]
    only: Vec<String>,
    /// Only keys and colours that begin so, or znodes below this path; with --only
    #[arg(long, requires = "only")]
    prefix: Option<String>,
    /// Only this log; may be given several times
    #[arg(long = "log", value_name = "NAME", requires = "only")]
    logs: Vec<String>,
    /// Into a cluster that has something already: what has the same name is made over, other things stay. A log that is there is an
    /// error, and so is a colour that has nodes
    #[arg(long)]
    merge: bool,
    #[command(flatten)]
    zookeeper: Connecting,
    #[command(flatten)]
    endpoint: Endpoint,
}

/// Runs what waits for a store.
fn wait<T>(ask: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed("O1000", "cannot start", error.to_string(), ""))?.block_on(ask)
}

fn bar(template: &str, all: Option<u64>) -> Option<ProgressBar> {
    let bar = all.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    std::io::stderr().is_terminal().then_some(bar)
}

impl Backup {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match (self.verb, self.to) {
            (Some(Verb::Verify { there, backup }), _) => verify(&there, backup.as_deref()),
            (Some(Verb::List { there, json }), _) => list(&there.to, json || there.output.0.is_json()),
            (Some(Verb::Prune { there, keep }), _) => {
                let pruned = prune(&there.to, keep as usize)?;
                there.output.0.print(
                    || json!({ "removed_backups": pruned.backups, "removed_chunks": pruned.chunks }),
                    || pruned.to_string(),
                );
                Ok(())
            }
            (None, Some(to)) => {
                let taken = take(&to, &self.admin, &self.endpoint)?;
                self.endpoint.output().print(|| taken.json(), || taken.words());
                Ok(())
            }
            (None, None) => Err(Failure::input(
                "O1040",
                "no directory or bucket is given",
                "",
                "ordinate backup --to DIR",
            )),
        }
    }
}

/// A backup that was taken.
pub struct Taken {
    id: String,
    manifest: Manifest,
    counts: Counts,
    seconds: f64,
}

impl Taken {
    /// What there is to say of it.
    pub fn words(&self) -> String {
        let Self { id, manifest, counts, seconds } = self;
        let left_out = match manifest.left_out.is_empty() {
            true => String::new(),
            false => format!("\nWARNING   left out: {}", manifest.left_out.join(", ")),
        };
        format!(
            "backup {id}: {}\n{} bytes in {} chunks, of which {} bytes in {} were not there yet, in {seconds:.1} s{left_out}",
            words(manifest),
            counts.bytes,
            counts.chunks,
            counts.written_bytes,
            counts.written,
        )
    }

    fn json(&self) -> Value {
        let Self { id, manifest, counts, seconds } = self;
        json!({ "backup": id, "bytes": counts.bytes, "chunks": counts.chunks, "seconds": seconds,
            "written_bytes": counts.written_bytes, "written_chunks": counts.written, "left_out": manifest.left_out })
    }
}

/// Takes a backup.
pub fn take(to: &Location, admin: &str, endpoint: &Endpoint) -> Result<Taken, Failure> {
    let began = Instant::now();
    let store = BackupStore::open(to, true)?;
    let lease = Lease::take(&store, Work::Backup)?;
    let bar = bar("{spinner} {bytes} looked at, {bytes_per_sec}", None);
    lease.wait_for(Work::Prune, |words| bar.iter().for_each(|bar| bar.println(words)))?;
    let mut writer = Writer::new(&store, bar.as_ref());
    let (id, manifest) = Source { admin, endpoint, lease: &lease }.take(&store, &mut writer)?;
    let counts = writer.counts;
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    Ok(Taken { id, manifest, counts, seconds: began.elapsed().as_secs_f64() })
}

fn words(manifest: &Manifest) -> String {
    let mut words = Vec::new();
    let services =
        [("keys", &manifest.kv), ("znodes", &manifest.coordination), ("keys of transactions", &manifest.txn)];
    for (name, records) in services {
        words.extend(records.as_ref().map(|records| format!("{} {name}", records.count())));
    }
    if let Some(logs) = &manifest.logs {
        let entries: u64 = logs.iter().map(|log| log.next - log.first).sum();
        words.push(format!("{entries} entries of {} logs", logs.len()));
    }
    if let Some(saved) = &manifest.fuzzylog {
        let sum = |of: fn(&manifest::ColourChunk) -> u64| saved.chunks().map(of).sum::<u64>();
        words.push(format!("{} nodes of {} colours", sum(|it| it.nodes), sum(|it| it.colours)));
    }
    words.join(", ")
}

fn verify(there: &There, id: Option<&str>) -> Result<(), Failure> {
    let store = BackupStore::open(&there.to, false)?;
    wait(async {
        let (id, manifest) = Manifest::chosen(&store, id).await?;
        let bytes: u64 = manifest.chunks().map(|chunk| chunk.bytes).sum();
        let bar = bar("{bar:40} {bytes} of {total_bytes}", Some(bytes));
        for chunk in manifest.chunks() {
            read_chunk(&store, &id, chunk).await?;
            if let Some(bar) = &bar {
                bar.inc(chunk.bytes);
            }
        }
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        there.output.0.print(
            || json!({ "backup": id, "sound": true, "bytes": bytes }),
            || format!("backup {id} is sound: {}, {bytes} bytes", words(&manifest)),
        );
        Ok(())
    })
}

fn list(to: &Location, json: bool) -> Result<(), Failure> {
    let store = BackupStore::open(to, false)?;
    wait(async {
        for id in Manifest::all(&store).await? {
            let manifest = Manifest::read(&store, &id).await?;
            let bytes: u64 = manifest.chunks().map(|chunk| chunk.bytes).sum();
            if json {
                let (cluster, host, begun_ms) = (&manifest.cluster, &manifest.host, manifest.begun_ms);
                let line = json!({ "backup": id, "cluster": cluster, "host": host, "begun_ms": begun_ms,
                    "bytes": bytes, "left_out": manifest.left_out });
                println!("{line}");
            } else {
                println!("{id}   cluster {}   {}   {bytes} bytes", manifest.cluster, words(&manifest));
            }
        }
        Ok(())
    })
}

/// What was removed.
pub struct Pruned {
    backups: usize,
    /// None: a backup is being taken, which may rely on any of them.
    chunks: Option<usize>,
}

impl std::fmt::Display for Pruned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "removed {} backups and ", self.backups)?;
        match self.chunks {
            Some(chunks) => write!(f, "{chunks} chunks"),
            None => write!(f, "no chunks: a backup is being taken, and the next prune removes them"),
        }
    }
}

/// Removes all but the newest backups, and the chunks that no other has part in.
pub fn prune(to: &Location, keep: usize) -> Result<Pruned, Failure> {
    let store = BackupStore::open(to, false)?;
    let lease = Lease::take(&store, Work::Prune)?;
    let is_alone = lease.others(Work::Backup)? == 0;
    wait(async {
        let all = Manifest::all(&store).await?;
        let (old, newest) = all.split_at(all.len().saturating_sub(keep.max(1)));
        let mut needed = BTreeSet::new();
        // One that cannot be read may need any chunk: then nothing is removed.
        for id in newest {
            needed.extend(Manifest::read(&store, id).await?.chunks().map(manifest::BackupChunk::name));
        }
        for id in old {
            store.delete(&name_of(id)).await?;
        }
        if !is_alone {
            return Ok(Pruned { backups: old.len(), chunks: None });
        }
        let mut chunks = 0;
        for name in store.list(CHUNKS).await? {
            if !needed.contains(&name) {
                lease.check()?;
                store.delete(&name).await?;
                chunks += 1;
            }
        }
        Ok(Pruned { backups: old.len(), chunks: Some(chunks) })
    })
}

impl RestoreBackup {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let began = Instant::now();
        let store = BackupStore::open(&self.from, false)?;
        let (id, manifest) = wait(Manifest::chosen(&store, self.backup.as_deref()))?;
        let wanted = Wanted { services: self.only, prefix: self.prefix, logs: self.logs, merge: self.merge };
        let all: u64 = manifest.chunks().map(|chunk| chunk.count).sum();
        let bar = bar("{bar:40} {human_pos} of {human_len}, {per_sec}, {eta} to go", Some(all));
        let restoring = Restoring {
            store: &store,
            id: &id,
            manifest: &manifest,
            wanted: &wanted,
            endpoint: &self.endpoint,
            zookeeper: &self.zookeeper,
            bar: bar.as_ref(),
        };
        let done = restoring.run()?;
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        let seconds = began.elapsed().as_secs_f64();
        self.endpoint.output().print(
            || json!({ "backup": id, "restored": done, "seconds": seconds }),
            || format!("restored {} of backup {id} in {seconds:.1} s", done.join(", ")),
        );
        Ok(())
    }
}
