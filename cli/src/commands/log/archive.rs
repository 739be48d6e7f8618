//! `ordinate log archive`, and `ordinate log read --archive`: what was trimmed, read back.

use super::{PAGE, broken, failed_read, write_lines};
use crate::commands::kv::{Endpoint, Output};
use crate::commands::output::GivenOutput;
use crate::failure::Failure;
use clap::Subcommand;
use kernel::Bytes;
use ordinate_client::{Log as Client, LogError, LogIdentity, Rows};
use runtime::blobs::ArchiveError;
use serde_json::json;
use server::services::log::ArchiveLocation;
use server::services::log::archive::{ArchivedExtent, ArchivedLog, LogArchive, Segments, Unreadable};
use shared_log::archive::{ArchivedName, LogIncarnation};
use std::io::{BufWriter, Write as _};

/// The archive of trimmed segments; no host is asked
#[derive(Subcommand)]
pub enum Command {
    /// The logs that something was archived of, deleted ones and earlier ones of the same name too
    List {
        /// Where: file:///DIRECTORY or s3://BUCKET/PREFIX, as log.archive of the cluster file
        #[arg(long, value_name = "URL", value_parser = ArchiveLocation::parse)]
        archive: ArchiveLocation,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Write archived entries to the standard output, each as a line
    Read {
        /// The log
        name: String,
        /// Where: file:///DIRECTORY or s3://BUCKET/PREFIX
        #[arg(long, value_name = "URL", value_parser = ArchiveLocation::parse)]
        archive: ArchiveLocation,
        /// Of the clusters that have archived there; needed if several have a log of this name
        #[arg(long)]
        cluster: Option<String>,
        /// Which of the logs that have had this name, as `list` shows it; the one that was made last unless given
        #[arg(long, value_parser = incarnation)]
        incarnation: Option<LogIncarnation>,
        /// The first position; the first in the archive unless given
        #[arg(long)]
        from: Option<u64>,
        /// How many at most; all that are there unless given
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        #[command(flatten)]
        output: GivenOutput,
    },
}

fn incarnation(text: &str) -> Result<LogIncarnation, String> {
    LogIncarnation::parse(text).ok_or_else(|| "wanted: as ordinate log archive list shows it".to_owned())
}

impl Command {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::failed("O1000", "cannot start", error.to_string(), ""))?;
        match self {
            Self::List { archive, output } => runtime.block_on(list(&archive, output)),
            Self::Read { name, archive, cluster, incarnation, from, limit, output: GivenOutput(shape) } => {
                runtime.block_on(read_archived(&archive, &name, cluster, incarnation, from, limit, shape))
            }
        }
    }
}

fn unreachable_archive(error: ArchiveError) -> Failure {
    let remedy = "see log.archive of the cluster file, and for s3:// the AWS_ variables of the environment";
    Failure::failed("O1020", "the archive cannot be read", error.0, remedy)
}

fn unreadable(error: Unreadable) -> Failure {
    match error {
        Unreadable::Archive(error) => unreachable_archive(error),
        Unreadable::Damaged(what) => {
            let remedy = "restore the object from the archive's own copies; --from reads on behind it";
            Failure::failed("O1021", "an object of the archive is not what was written", what, remedy)
        }
    }
}

fn nowhere(name: &str, from: u64, to: u64) -> Failure {
    let what = format!("entries of {name} are neither in the archive nor at the hosts");
    let fact = format!("positions {from} to {}", to.saturating_sub(1));
    Failure::failed("O1022", what, fact, format!("ordinate log read {name} --archive URL --from {to}"))
}

fn open(location: &ArchiveLocation) -> Result<LogArchive, Failure> {
    LogArchive::open(location).map_err(unreachable_archive)
}

async fn list(location: &ArchiveLocation, output: Output) -> Result<(), Failure> {
    let logs = open(location)?.logs().await.map_err(unreachable_archive)?;
    for (ArchivedLog { cluster, name, incarnation }, extent) in logs {
        let ArchivedExtent { segments, first, next, bytes, missing } = extent;
        match output {
            Output::Table => {
                let missing = if missing > 0 { format!("   {missing} MISSING") } else { String::new() };
                println!(
                    "{cluster}   {name}   {incarnation}   positions {first} to {next}   {segments} segments   {bytes} bytes{missing}"
                );
            }
            Output::Json => println!(
                "{}",
                json!({ "cluster": cluster, "log": name, "incarnation": incarnation.to_string(),
                    "created_ms": incarnation.created_ms, "first": first, "next": next, "segments": segments,
                    "bytes": bytes, "missing": missing })
            ),
        }
    }
    Ok(())
}

/// The segment that holds a position.
fn holding(segments: &Segments, at: u64) -> Option<&object_store::path::Path> {
    let most = ArchivedName { first: at, next: u64::MAX, digest: u64::MAX };
    let mut before = segments.range(..=most).rev();
    before.find(|(name, _)| name.first <= at && at < name.next).map(|(_, path)| path)
}

/// Writes the entries of a segment from position `at` on, up to `end`; returns where to go on.
async fn write_segment(
    archive: &LogArchive,
    path: &object_store::path::Path,
    at: u64,
    end: u64,
    shape: Output,
    output: &mut impl std::io::Write,
) -> Result<u64, Failure> {
    let (segment, rows) = archive.segment(path).await.map_err(unreadable)?;
    let skipped = at.saturating_sub(segment.first) as usize;
    let most = end.saturating_sub(at) as usize;
    let entries: Vec<&[u8]> = Rows::iter(&rows).skip(skipped).take(most).collect();
    write_lines(output, shape, at, &entries)?;
    Ok(at + entries.len() as u64)
}

/// `ordinate log archive read`.
async fn read_archived(
    location: &ArchiveLocation,
    name: &str,
    cluster: Option<String>,
    incarnation: Option<LogIncarnation>,
    from: Option<u64>,
    limit: Option<u64>,
    shape: Output,
) -> Result<(), Failure> {
    let archive = open(location)?;
    let mut logs = archive.logs_named(name).await.map_err(unreachable_archive)?;
    logs.retain(|log| cluster.as_ref().is_none_or(|cluster| *cluster == log.cluster));
    logs.retain(|log| incarnation.is_none_or(|incarnation| incarnation == log.incarnation));
    let Some(log) = logs.iter().max_by_key(|log| log.incarnation) else {
        let what = format!("nothing was archived of such a log {name}");
        let remedy = format!("ordinate log archive list --archive {location}");
        return Err(Failure::input("O1023", what, location.to_string(), remedy));
    };
    if let Some(other) = logs.iter().find(|other| other.cluster != log.cluster) {
        let what = format!("several clusters have archived a log {name}");
        let fact = format!("{} and {} among them", other.cluster, log.cluster);
        return Err(Failure::input("O1023", what, fact, "give --cluster NAME"));
    }
    let segments = archive.segments_of(log).await.map_err(unreachable_archive)?;
    let first = segments.first_key_value().map_or(0, |(segment, _)| segment.first);
    let next = segments.keys().map(|segment| segment.next).max().unwrap_or(0);
    let mut at = from.unwrap_or(first);
    let end = limit.map_or(next, |limit| at.saturating_add(limit).min(next));
    let mut output = BufWriter::new(std::io::stdout().lock());
    while at < end {
        let Some(path) = holding(&segments, at) else {
            output.flush().map_err(broken("the output cannot be written"))?;
            let behind = segments.keys().map(|segment| segment.first).find(|&first| first > at);
            let fact = format!("positions {at} to {}", behind.unwrap_or(end).saturating_sub(1));
            let remedy =
                format!("ordinate log read {name} --archive {location} --from {at}: hosts may have them");
            return Err(Failure::failed(
                "O1022",
                format!("entries of {name} are not in the archive"),
                fact,
                remedy,
            ));
        };
        at = write_segment(&archive, path, at, end, shape, &mut output).await?;
    }
    output.flush().map_err(broken("the output cannot be written"))
}

/// The log of the archive that a log of the cluster is.
async fn counterpart(
    archive: &LogArchive,
    name: &str,
    identity: &LogIdentity,
) -> Result<Option<ArchivedLog>, Failure> {
    let LogIdentity { created_ms, space, number, .. } = *identity;
    let incarnation = LogIncarnation { created_ms, space, number };
    let logs = archive.logs_named(name).await.map_err(unreachable_archive)?;
    Ok(logs.into_iter().find(|log| log.incarnation == incarnation))
}

async fn segments_of(archive: &LogArchive, log: Option<&ArchivedLog>) -> Result<Segments, Failure> {
    match log {
        Some(log) => archive.segments_of(log).await.map_err(unreachable_archive),
        None => Ok(Segments::new()),
    }
}

/// `ordinate log read --archive`: archived entries first, then those that the hosts have. What is trimmed is in the archive or on its
/// way there; what is on its way, and what is trimmed of a segment that is not done for, hosts still hand out.
pub(super) fn read_through(
    endpoint: &Endpoint,
    name: &str,
    from: Option<u64>,
    limit: Option<u64>,
    location: &ArchiveLocation,
) -> Result<(), Failure> {
    endpoint.with_log(|client| async move {
        let archive = open(location)?;
        let identity = client.identify(name).await.map_err(|error| failed_read(&error))?;
        let tail = client.stat(name).await.map_err(|error| failed_read(&error))?.next;
        let mut log = counterpart(&archive, name, &identity).await?;
        let mut segments = segments_of(&archive, log.as_ref()).await?;
        let first = segments.first_key_value().map_or(identity.retained, |(segment, _)| segment.first);
        let mut at = from.unwrap_or(first.min(identity.retained));
        let end = limit.map_or(tail, |limit| at.saturating_add(limit).min(tail));
        let mut output = BufWriter::new(std::io::stdout().lock());
        while at < end {
            if let Some(path) = holding(&segments, at) {
                at = write_segment(&archive, path, at, end, endpoint.output(), &mut output).await?;
                continue;
            }
            let entries = match recall(&client, name, at, end).await? {
                Ok(entries) => entries,
                Err(stored) => {
                    // It may have been archived since the archive was listed.
                    log = counterpart(&archive, name, &identity).await?;
                    segments = segments_of(&archive, log.as_ref()).await?;
                    if holding(&segments, at).is_some() {
                        continue;
                    }
                    output.flush().map_err(broken("the output cannot be written"))?;
                    let archived = segments.keys().map(|segment| segment.first).find(|&first| first > at);
                    return Err(nowhere(name, at, archived.map_or(stored, |first| first.min(stored))));
                }
            };
            write_lines(&mut output, endpoint.output(), at, &entries)?;
            at += entries.len() as u64;
        }
        output.flush().map_err(broken("the output cannot be written"))?;
        let now = client.identify(name).await.map_err(|error| failed_read(&error))?;
        if (now.space, now.number, now.created_ms) != (identity.space, identity.number, identity.created_ms) {
            let what = format!("the log {name} was deleted and made anew while it was read");
            return Err(Failure::failed("O1022", what, "what was written is of both", "read it again"));
        }
        Ok(())
    })
}

/// Entries from the hosts; or the first position that they have.
async fn recall(client: &Client, name: &str, at: u64, end: u64) -> Result<Result<Vec<Bytes>, u64>, Failure> {
    let most = end.saturating_sub(at).min(PAGE.into()) as u32;
    match client.recall(name, at, most).await {
        Ok(page) if page.entries.is_empty() => Ok(Err(at + 1)),
        Ok(page) => Ok(Ok(page.entries)),
        Err(LogError::Trimmed { resume_from, .. }) => Ok(Err(resume_from)),
        Err(error) => Err(failed_read(&error)),
    }
}
