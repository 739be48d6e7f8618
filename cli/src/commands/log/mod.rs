//! `ordinate log`: the shared log from the command line.

mod archive;
mod dump;

use super::kv::{Endpoint, Output};
use crate::failure::{Exit, Failure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use ordinate_client::{Cleanup, Description, LogError, LogOptions, LogStat, Rows};
use serde_json::{Value, json};
use server::cluster::keys;
use server::services::log::ArchiveLocation;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{BufRead as _, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;

/// The shared log: named logs without holes
#[derive(Subcommand)]
pub enum Log {
    /// Make a log
    Create {
        /// Its name: letters, digits, '.', '_' and '-'
        #[arg(value_parser = log_name)]
        name: String,
        /// What it may hold, at least 1MiB; beyond it the oldest entries go. No limit but the hosts' disk budget unless given
        #[arg(long, value_name = "SIZE", value_parser = size)]
        retain_bytes: Option<u64>,
        /// How long entries are retained, as in 12h or 90s; for ever unless given
        #[arg(long, value_parser = age)]
        retain: Option<Duration>,
        /// What becomes of appends when the hosts' disk budget is reached: refuse them, or drop-oldest to make room, and count what
        /// goes
        #[arg(long, default_value = "refuse", value_parser = cleanup)]
        cleanup: Cleanup,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// The logs there are
    List {
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Append the lines of the standard input, each as an entry
    Append {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Append one entry to each of several logs, all or nothing
    MultiAppend {
        /// LOG=TEXT, two or more
        #[arg(required = true, num_args = 2.., value_parser = assignment)]
        entries: Vec<(String, String)>,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Write entries to the standard output, each as a line
    Read {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        /// The first position; the first that is left unless given
        #[arg(long)]
        from: Option<u64>,
        /// How many at most; up to the tail as it is now unless given
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        /// Read what was trimmed, too, from the archive at file:///DIRECTORY or s3://BUCKET/PREFIX; from the beginning unless --from is
        /// given
        #[arg(long, value_name = "URL", value_parser = ArchiveLocation::parse)]
        archive: Option<ArchiveLocation>,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// The archive of trimmed segments
    #[command(subcommand)]
    Archive(archive::Command),
    /// Write the last entries, and with --follow those to come
    Tail {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        /// How many of those that are there
        #[arg(short = 'n', long, default_value_t = 10)]
        lines: u64,
        /// Go on until interrupted, or until the log is sealed
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Drop the entries below a position
    Trim {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        /// The first position to keep
        #[arg(long)]
        before: u64,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Let nothing be appended any more
    Seal {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Drop a log with its entries
    Delete {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Write what a log holds into a file, with checksums
    Dump {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        /// The file; it appears when it is whole
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Check a file that `log dump` wrote, and append its entries
    Load {
        /// The log; positions are as they were if it is empty, and the dump begins at 0
        #[arg(value_parser = log_name)]
        name: String,
        /// The file
        #[arg(long = "in", value_name = "FILE")]
        input: PathBuf,
        /// Check it, and append nothing
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// How far a log goes, how it was made, and what it has dropped
    Stat {
        /// The log
        #[arg(value_parser = log_name)]
        name: String,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
}

/// Bytes of lines in one append, and appends in flight at a time.
const BATCH_BYTES: usize = 64 << 10;
const IN_FLIGHT_MAX: usize = 16;
/// Entries of one read.
const PAGE: u32 = 10_000;
/// Logs of one page of the list.
const LISTED: u32 = 500;
/// How long one read of a follower waits.
const FOLLOW_WAIT: Duration = Duration::from_secs(20);

/// What a log may be called.
const NAME_RULE: &str = "wanted: letters, digits, '.', '_' and '-', at most 128";

fn log_name(text: &str) -> Result<String, String> {
    if wire::log::is_name(text) { Ok(text.to_owned()) } else { Err(NAME_RULE.to_owned()) }
}

fn size(text: &str) -> Result<u64, String> {
    keys::parse_size(text).ok_or_else(|| "wanted: a size like 64MiB".to_owned())
}

fn age(text: &str) -> Result<Duration, String> {
    keys::parse_duration(text).ok_or_else(|| "wanted: a span of time like 12h".to_owned())
}

fn cleanup(text: &str) -> Result<Cleanup, String> {
    Cleanup::named(text).ok_or_else(|| "wanted: refuse or drop-oldest".to_owned())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, entry) = text.split_once('=').ok_or("wanted: LOG=TEXT")?;
    Ok((name.to_owned(), entry.to_owned()))
}

impl Log {
    /// Does it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create { name, retain_bytes, retain, cleanup, endpoint } => {
                let options =
                    LogOptions { retain_bytes: retain_bytes.unwrap_or(0), retain, cleanup, first: 0 };
                endpoint.with_log(|log| async move {
                    log.create_with(&name, options).await.map_err(|error| failure(&error))
                })
            }
            Self::List { output, endpoint } => list(&endpoint, output),
            Self::Append { name, endpoint } => append(&endpoint, &name),
            Self::MultiAppend { entries, endpoint } => multi_append(&endpoint, &entries),
            Self::Read { name, from, limit, archive: None, endpoint } => read(&endpoint, &name, from, limit),
            Self::Read { name, from, limit, archive: Some(location), endpoint } => {
                archive::read_through(&endpoint, &name, from, limit, &location)
            }
            Self::Archive(command) => command.run(),
            Self::Tail { name, lines, follow, endpoint } => tail(&endpoint, &name, lines, follow),
            Self::Trim { name, before, endpoint } => endpoint.with_log(|log| async move {
                log.trim(&name, before).await.map_err(|error| failure(&error))
            }),
            Self::Seal { name, endpoint } => {
                endpoint.with_log(|log| async move { log.seal(&name).await.map_err(|error| failure(&error)) })
            }
            Self::Delete { name, endpoint } => endpoint
                .with_log(|log| async move { log.delete(&name).await.map_err(|error| failure(&error)) }),
            Self::Dump { name, out, endpoint } => dump::dump(&endpoint, &name, &out),
            Self::Load { name, input, check, endpoint } => dump::load(&endpoint, &name, &input, check),
            Self::Stat { name, output, endpoint } => endpoint.with_log(|log| async move {
                match log.describe(&name).await {
                    Ok(description) => print_description(&description, output),
                    // The baseline counts nothing.
                    Err(LogError::Unsupported) => {
                        print(&[log.stat(&name).await.map_err(|error| failed_read(&error))?], output);
                    }
                    Err(error) => return Err(failed_read(&error)),
                }
                Ok(())
            }),
        }
    }
}

/// A failed call that changes nothing, whatever became of it, in the user's terms.
pub(super) fn failed_read(error: &LogError) -> Failure {
    let mut failure = failure(error);
    if let LogError::Call(ordinate_client::CallError::TimedOut(after)) = error {
        failure.fact = format!("no answer within {after:?}; nothing was executed");
    }
    if let LogError::Call(ordinate_client::CallError::TurnedAway { after, why }) = error {
        failure.fact = format!("no answer within {after:?}; {why}; nothing was executed");
    }
    failure
}

/// A failed call in the user's terms.
pub(super) fn failure(error: &LogError) -> Failure {
    let said = error.to_string();
    match error {
        LogError::Call(ordinate_client::CallError::NotSent(_)) => {
            let what = "the log was not reached: nothing was executed";
            Failure { exit: Exit::Unreachable, ..Failure::failed("O1010", what, said, "ordinate status") }
        }
        LogError::Call(
            ordinate_client::CallError::TimedOut(_) | ordinate_client::CallError::TurnedAway { .. },
        ) => {
            let what = "the log did not answer in time";
            Failure { exit: Exit::Unreachable, ..Failure::failed("O1010", what, said, "ordinate status") }
        }
        LogError::Call(ordinate_client::CallError::Invalid(_)) => Failure::input(
            "O1012",
            "the log refused the call",
            said,
            "a name has letters, digits, '.', '_' and '-', at most 128; an entry at most 1 MiB",
        ),
        LogError::Call(ordinate_client::CallError::Off(_)) => super::kv::service_off(said),
        LogError::Call(ordinate_client::CallError::MaybeExecuted) => Failure::failed(
            "O1011",
            "the entries may have been appended",
            said,
            "ordinate log tail NAME, and append what is missing",
        ),
        LogError::Call(ordinate_client::CallError::NotGranted) => {
            let what = "the cluster refuses this: it was not granted";
            Failure::failed("O1050", what, said, super::admin::GRANT_REMEDY)
        }
        LogError::Call(_) | LogError::TooLarge => {
            Failure::input("O1012", "the log refused the call", said, "ordinate log --help")
        }
        LogError::NoSuchLog(name) => {
            let remedy = format!("ordinate log create {name}");
            Failure::input("O1013", "there is no such log", said, remedy)
        }
        LogError::Trimmed { name, resume_from } => {
            let remedy = format!("ordinate log read {name} --from {resume_from}");
            Failure::input("O1014", "the entries are gone", said, remedy)
        }
        LogError::Unarchived { .. } => Failure::failed(
            "O1019",
            "nothing is appended while the archive keeps what was trimmed waiting",
            said,
            "ordinate status: it says why the archive does not take it",
        ),
        LogError::OverBudget { .. } => Failure::failed(
            "O1026",
            "nothing was appended: the logs have reached their disk budget",
            said,
            "ordinate log trim or delete what nobody needs, or raise log.disk_bytes",
        ),
        LogError::Unsupported => Failure::input(
            "O1017",
            "the cluster's log does not do this",
            said,
            "docs/operations.md: what the log's engines do",
        ),
        LogError::Exists(_)
        | LogError::Sealed { .. }
        | LogError::Moved { .. }
        | LogError::BeyondTail { .. }
        | LogError::Full { .. } => {
            Failure::input("O1015", "the log cannot do this", said, "ordinate log list")
        }
    }
}

fn broken(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::failed("O1016", what, error.to_string(), "")
}

fn print(logs: &[LogStat], output: Output) {
    for stat in logs {
        let LogStat { name, first, next, bytes, retain_bytes, retain_ms, sealed } = stat;
        match output {
            Output::Table => {
                let sealed = if *sealed { "   sealed" } else { "" };
                let stored = match retain_ms {
                    0 => String::new(),
                    ms => {
                        format!("   retained for {}", humantime::format_duration(Duration::from_millis(*ms)))
                    }
                };
                let limit = if *retain_bytes > 0 { format!(" of {retain_bytes}") } else { String::new() };
                println!("{name}   first {first}   tail {next}   {bytes}{limit} bytes{stored}{sealed}");
            }
            Output::Json => println!("{}", json_of(stat)),
        }
    }
}

fn json_of(stat: &LogStat) -> Value {
    let LogStat { name, first, next, bytes, retain_bytes, retain_ms, sealed } = stat;
    json!({ "name": name, "first": first, "tail": next, "bytes": bytes, "retain_bytes": retain_bytes,
        "retain_ms": retain_ms, "sealed": sealed })
}

fn print_description(Description { stat, cleanup, dropped, dropped_bytes }: &Description, output: Output) {
    match output {
        Output::Table => {
            print(std::slice::from_ref(stat), output);
            println!("cleanup {}   dropped {dropped} entries of {dropped_bytes} bytes", cleanup.name());
        }
        Output::Json => {
            let mut described = json_of(stat);
            described["cleanup"] = json!(cleanup.name());
            described["dropped"] = json!({ "entries": dropped, "bytes": dropped_bytes });
            println!("{described}");
        }
    }
}

fn list(endpoint: &Endpoint, output: Output) -> Result<(), Failure> {
    endpoint.with_log(|log| async move {
        let mut after = String::new();
        loop {
            let logs = log.list(&after, LISTED).await.map_err(|error| failed_read(&error))?;
            print(&logs, output);
            match logs.last() {
                Some(last) if logs.len() == LISTED as usize => after.clone_from(&last.name),
                Some(_) | None => return Ok(()),
            }
        }
    })
}

/// Lines to append, and how many.
type Batch = (u64, Rows);
/// An append that was sent, and how many lines it holds.
type Sent = (u64, Pin<Box<dyn Future<Output = Result<u64, LogError>>>>);

/// Reads lines, and sends a batch when it is full or the input has no more for now.
fn read_lines(batches: &mpsc::Sender<Batch>) -> std::io::Result<()> {
    let mut input = BufReader::with_capacity(BATCH_BYTES, std::io::stdin().lock());
    let (mut rows, mut lines, mut line) = (Rows::default(), 0, Vec::new());
    loop {
        line.clear();
        let ended = input.read_until(b'\n', &mut line)? == 0;
        if !ended {
            rows.push(line.strip_suffix(b"\n").unwrap_or(&line));
            lines += 1;
        }
        let due = ended || rows.len() >= BATCH_BYTES || input.buffer().is_empty();
        if due && lines > 0 {
            let batch = (std::mem::take(&mut lines), std::mem::take(&mut rows));
            if batches.blocking_send(batch).is_err() {
                return Ok(());
            }
        }
        if ended {
            return Ok(());
        }
    }
}

fn append(endpoint: &Endpoint, name: &str) -> Result<(), Failure> {
    endpoint.with_log(|log| async move {
        let bar = std::io::stderr().is_terminal().then(progress);
        let (sender, mut batches) = mpsc::channel::<Batch>(IN_FLIGHT_MAX);
        // A line that is waited for must not hold up the answers to those before.
        let reading = std::thread::spawn(move || read_lines(&sender));
        let mut in_flight: VecDeque<Sent> = VecDeque::new();
        let (mut done, mut open) = (0, true);
        let mut outcome = Ok(());
        while outcome.is_ok() && (open || !in_flight.is_empty()) {
            let room = open && in_flight.len() < IN_FLIGHT_MAX;
            let oldest = async {
                match in_flight.front_mut() {
                    Some((lines, answer)) => answer.await.map(|_| *lines),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = oldest => {
                    in_flight.pop_front();
                    outcome = answer.map(|lines| done += lines);
                }
                batch = batches.recv(), if room => match batch {
                    Some((lines, rows)) => in_flight.push_back((lines, Box::pin(log.append(name, rows)))),
                    None => open = false,
                },
            }
            if let Some(bar) = &bar {
                bar.set_position(done);
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let words = || format!("{done} entries appended");
        endpoint.output().say(|| json!({ "log": name, "appended": done }), words);
        outcome.map_err(|error| failure(&error))?;
        match reading.join() {
            Ok(read) => read.map_err(broken("the input cannot be read")),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} entries appended, {per_sec}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The same where it is known how many entries there are.
fn progress_of(entries: u64) -> ProgressBar {
    let bar = ProgressBar::new(entries);
    let form = "{bar:40} {human_pos} of {human_len} entries, {per_sec}, {eta} to go";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar
}

fn multi_append(endpoint: &Endpoint, entries: &[(String, String)]) -> Result<(), Failure> {
    endpoint.with_log(|log| async move {
        let parts = entries.iter().map(|(name, entry)| {
            let mut rows = Rows::default();
            rows.push(entry.as_bytes());
            (name.clone(), rows)
        });
        let firsts = log.append_to_all(parts.collect()).await.map_err(|error| failure(&error))?;
        for ((name, _), first) in entries.iter().zip(firsts) {
            let words = || format!("{name} {first}");
            endpoint.output().print(|| json!({ "log": name, "position": first }), words);
        }
        Ok(())
    })
}

fn read(endpoint: &Endpoint, name: &str, from: Option<u64>, limit: Option<u64>) -> Result<(), Failure> {
    endpoint.with_log(|log| async move {
        let stat = log.stat(name).await.map_err(|error| failed_read(&error))?;
        let mut at = from.unwrap_or(stat.first);
        let end = limit.map_or(stat.next, |limit| at.saturating_add(limit).min(stat.next));
        let mut output = BufWriter::new(std::io::stdout().lock());
        // A first position that is gone, or not there yet, is refused by the read.
        loop {
            let most = end.saturating_sub(at).min(PAGE.into()) as u32;
            let page = log.read(name, at, most, Duration::ZERO).await.map_err(|error| failed_read(&error))?;
            write_lines(&mut output, endpoint.output(), at, &page.entries)?;
            at = page.next();
            if at >= end {
                break;
            }
        }
        output.flush().map_err(broken("the output cannot be written"))
    })
}

/// Writes entries, the first of which is at `first`, each as a line.
fn write_lines(
    output: &mut impl std::io::Write,
    shape: Output,
    first: u64,
    entries: &[impl AsRef<[u8]>],
) -> Result<(), Failure> {
    for (position, entry) in (first..).zip(entries) {
        let written = match shape {
            Output::Table => output.write_all(entry.as_ref()).and_then(|()| output.write_all(b"\n")),
            Output::Json => writeln!(output, "{}", entry_as_json(position, entry.as_ref())),
        };
        written.map_err(broken("the output cannot be written"))?;
    }
    Ok(())
}

/// An entry that is no text stands in `entry_base64`.
fn entry_as_json(position: u64, entry: &[u8]) -> Value {
    match std::str::from_utf8(entry) {
        Ok(text) => json!({ "position": position, "entry": text }),
        Err(_) => json!({ "position": position, "entry_base64": BASE64.encode(entry) }),
    }
}

fn tail(endpoint: &Endpoint, name: &str, lines: u64, follow: bool) -> Result<(), Failure> {
    endpoint.with_log(|log| async move {
        let stat = log.stat(name).await.map_err(|error| failed_read(&error))?;
        let mut at = stat.next.saturating_sub(lines).max(stat.first);
        let mut output = std::io::stdout().lock();
        loop {
            let wait = if follow { FOLLOW_WAIT } else { Duration::ZERO };
            let page = log.read(name, at, PAGE, wait).await.map_err(|error| failed_read(&error))?;
            write_lines(&mut output, endpoint.output(), at, &page.entries)?;
            output.flush().map_err(broken("the output cannot be written"))?;
            at = page.next();
            if at >= page.tail && (!follow || page.sealed) {
                return Ok(());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ordinate_client::CallError;

    // A reader who learns that entries may have been appended looks for them; an appender who learns that nothing was appends them twice.
    #[test]
    fn only_what_may_have_been_executed_is_said_to_be() {
        let after = std::time::Duration::from_secs(1);
        let turned_away = || CallError::TurnedAway { after, why: "a: not a member".to_owned() };
        let text = |failure: Failure| format!("{}; {}", failure.what, failure.fact);
        let may = |text: &str| text.contains("may have been");
        for error in [CallError::TimedOut(after), turned_away(), CallError::MaybeExecuted] {
            assert!(may(&text(failure(&LogError::Call(error.clone())))), "an append, {error:?}");
        }
        for error in [CallError::TimedOut(after), turned_away(), CallError::NotSent(after)] {
            let said = text(failed_read(&LogError::Call(error)));
            assert!(!may(&said) && said.contains("nothing was executed"), "a read: {said}");
        }
        let unsent = failure(&LogError::Call(CallError::NotSent(after)));
        assert_eq!(
            (unsent.code, unsent.what.as_str()),
            ("O1010", "the log was not reached: nothing was executed")
        );
    }
}
