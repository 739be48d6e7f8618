//! `ordinate txn`: transactions from the command line.

mod dump;
mod script;
mod show;

use super::kv::{Endpoint, Output};
use crate::failure::{Exit, Failure};
use clap::Subcommand;
use ordinate_client::{
    CallKey, KeyRow, OneShotOutcome, ReadResult, Timestamp, TxnClient, TxnError, TxnFailure, TxnLevel,
};
use serde_json::{Value, json};
use server::cluster::keys::parse_duration;
use std::path::PathBuf;

/// Transactions over many keys, each read at a consistency level of its own
#[derive(Subcommand)]
pub enum Txn {
    /// Print what keys hold, all at one timestamp
    Get {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        freshness: Freshness,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Set keys, all or none
    Put {
        /// KEY VALUE, one pair or more
        #[arg(required = true, num_args = 2.., value_names = ["KEY", "VALUE"])]
        pairs: Vec<String>,
        /// Only if the first key was last written at this version; 0: it does not exist
        #[arg(long)]
        if_version: Option<u64>,
        /// Only if the first key does not exist
        #[arg(long, conflicts_with = "if_version")]
        if_absent: bool,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Remove keys, all or none
    Del {
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// List keys in order, all at one timestamp
    Scan {
        /// Only keys that begin with this
        #[arg(default_value = "")]
        prefix: String,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        freshness: Freshness,
        /// Output
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Run the lines of a file (get KEY, put KEY VALUE, del KEY, scan PREFIX) as one transaction
    Run {
        /// The file; - is the standard input
        file: PathBuf,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// A prompt: begin, get, put, del, scan, commit, abort
    Shell {
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// What became of a commit
    Status {
        /// Its name, as an error or an answer has it
        id: CallKey,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Transactions in progress and what they have locked
    Locks(show::Show),
    /// Transactions that are prepared and wait for their end
    Prepared(show::Show),
    /// The shards: who leads them, and what they hold
    Shards(show::Show),
    /// Write everything, as of one timestamp, into a file with checksums
    Dump {
        /// The file; it appears when it is whole
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// As of this timestamp; now unless given
        #[arg(long)]
        at: Option<u64>,
        #[command(flatten)]
        endpoint: Endpoint,
    },
    /// Check a file that `txn dump` wrote, and write its keys
    Load {
        /// The file
        #[arg(long = "in", value_name = "FILE")]
        input: PathBuf,
        /// Check it, and write nothing
        #[arg(long)]
        check: bool,
        /// Also where there are keys already: those of the file replace them, others stay
        #[arg(long)]
        merge: bool,
        #[command(flatten)]
        endpoint: Endpoint,
    },
}

/// How fresh a read must be.
#[derive(clap::Args, Clone)]
pub struct Freshness {
    /// Strict sees all that was committed before; rss and process-ordered block less, and see what this command has seen
    #[arg(long, value_enum, default_value = "strict", conflicts_with_all = ["at", "stale"])]
    level: Level,
    /// The state at this timestamp
    #[arg(long, conflicts_with = "stale")]
    at: Option<u64>,
    /// A state that is at most so old, as in 2s
    #[arg(long)]
    stale: Option<String>,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum Level {
    Strict,
    Rss,
    ProcessOrdered,
}

impl Freshness {
    fn level(&self) -> Result<TxnLevel, Failure> {
        if let Some(text) = &self.stale {
            let by = parse_duration(text).ok_or_else(|| {
                let fact = format!("it is {text:?}; wanted is a span as in 500ms or 2s");
                Failure::input("O1030", "--stale makes no sense", fact, "ordinate txn get KEY --stale 2s")
            })?;
            return Ok(TxnLevel::Stale(by.as_micros() as u64));
        }
        Ok(match (self.at, self.level) {
            (Some(at), _) => TxnLevel::At(Timestamp(at)),
            (None, Level::Strict) => TxnLevel::Strict,
            (None, Level::Rss) => TxnLevel::Rss,
            (None, Level::ProcessOrdered) => TxnLevel::ProcessOrdered,
        })
    }
}

const REFUSED: &str = "the transaction was refused";

/// A failed transaction in the user's terms.
pub(in crate::commands) fn explain(error: &TxnError, endpoint: &Endpoint) -> Failure {
    let text = error.to_string();
    match error {
        TxnError::Unreached(call) => endpoint.explain_unexecuted(call),
        TxnError::Unknown { id } => Failure {
            exit: endpoint.exit_unknown(),
            ..Failure::failed(
                "O1031",
                "the transaction may have been executed",
                text,
                format!("ordinate txn status {id}"),
            )
        },
        TxnError::Fault(_) => Failure::input(
            "O1030",
            "the transaction is beyond a limit",
            text,
            "docs/transactions.md has the limits",
        ),
        TxnError::Exhausted { .. } => Failure::failed(
            "O1032",
            "the transaction was aborted each time it was tried",
            text,
            "ordinate txn locks",
        ),
        TxnError::Failed(why) => match why {
            TxnFailure::Malformed => {
                Failure::input("O1030", REFUSED, text, "docs/transactions.md has the limits")
            }
            TxnFailure::FromTheFuture => Failure::input("O1030", REFUSED, text, "ordinate clock"),
            TxnFailure::Collected => {
                Failure::input("O1030", REFUSED, text, "ordinate config explain txn.keep")
            }
            TxnFailure::NoClock => Failure::failed(
                "O1033",
                "the host does not know the time well enough",
                text,
                "ordinate clock",
            ),
            TxnFailure::DiskFull => Failure::failed(
                "O1025",
                "the disk is full: the transaction was not executed",
                text,
                "make room; ordinate status shows which host's disk is full",
            ),
            TxnFailure::NotGranted => {
                let what = "the cluster refuses this: it was not granted";
                Failure::failed("O1050", what, text, crate::commands::admin::GRANT_REMEDY)
            }
            TxnFailure::Busy => Failure::failed("O1024", "the service is busy", text, "the same again later"),
            TxnFailure::Unavailable => Failure {
                exit: Exit::Unreachable,
                ..Failure::failed("O1034", "a shard has no leader", text, "ordinate txn shards")
            },
            TxnFailure::Aborted | TxnFailure::NoTransaction | TxnFailure::Unknown => {
                Failure::failed("O1032", "the transaction was aborted", text, "the same again")
            }
        },
    }
}

fn value_of(row: &KeyRow) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = row.value.as_ref().map(|value| text(value));
    let version = row.value.as_ref().map_or(0, |_| row.version.0);
    json!({ "key": text(&row.key), "value": value, "version": version })
}

impl Txn {
    /// Asks and prints.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Get { keys, freshness, output, endpoint } => get(&keys, &freshness, output, &endpoint),
            Self::Put { pairs, if_version, if_absent, endpoint } => {
                put(&pairs, if_version.or(if_absent.then_some(0)), &endpoint)
            }
            Self::Del { keys, endpoint } => {
                let asked = |client: TxnClient| {
                    let (keys, endpoint) = (&keys, &endpoint);
                    async move {
                        let call = keys.iter().fold(client.one_shot(), |call, key| call.delete(key.as_str()));
                        call.run().await.map_err(|error| explain(&error, endpoint))
                    }
                };
                say_outcome(endpoint.with_transactions(asked)?, "", endpoint.output())
            }
            Self::Scan { prefix, limit, freshness, output, endpoint } => {
                let level = freshness.level()?;
                let found = read(&endpoint, |client| client.read(level).scan(prefix.as_str(), limit))?;
                print_scan(&found, output);
                Ok(())
            }
            Self::Run { file, endpoint } => script::run(&file, &endpoint),
            Self::Shell { endpoint } => script::shell(&endpoint),
            Self::Status { id, endpoint } => {
                let asked = |client: TxnClient| {
                    let endpoint = &endpoint;
                    async move { client.status(id).await.map_err(|error| explain(&error, endpoint)) }
                };
                let committed = endpoint.with_transactions(asked)?;
                endpoint.output().print(
                    || json!({ "id": id.to_string(), "committed_at": committed.map(|at| at.0) }),
                    || match committed {
                        Some(at) => format!("committed at {at}"),
                        None => "not committed, as far as is known now".to_owned(),
                    },
                );
                Ok(())
            }
            Self::Locks(show) => show.locks(),
            Self::Prepared(show) => show.prepared(),
            Self::Shards(show) => show.shards(),
            Self::Dump { out, at, endpoint } => dump::dump(&endpoint, &out, at.map(Timestamp)),
            Self::Load { input, check, merge, endpoint } => dump::load(&endpoint, &input, check, merge),
        }
    }
}

fn read(
    endpoint: &Endpoint,
    of: impl for<'a> FnOnce(&'a TxnClient) -> ordinate_client::ReadCall<'a>,
) -> Result<ReadResult, Failure> {
    endpoint.with_transactions(|client| async move {
        of(&client).run().await.map_err(|error| explain(&error, endpoint))
    })
}

fn get(keys: &[String], freshness: &Freshness, output: Output, endpoint: &Endpoint) -> Result<(), Failure> {
    let level = freshness.level()?;
    let found = read(endpoint, |client| client.read(level).keys(keys.iter().map(String::as_str)))?;
    let value_of_one = match &found.rows[..] {
        [KeyRow { value: None, .. }] => {
            let remedy = format!("ordinate txn put {} VALUE", keys[0]);
            return Err(Failure::failed("O1004", format!("no key {}", keys[0]), "", remedy));
        }
        [KeyRow { value, .. }] => value.as_ref(),
        _ => None,
    };
    match (output, value_of_one) {
        (Output::Json, _) => {
            let rows: Vec<Value> = found.rows.iter().map(value_of).collect();
            println!("{}", json!({ "at": found.at.0, "rows": rows }));
        }
        (Output::Table, Some(value)) => println!("{}", String::from_utf8_lossy(value)),
        (Output::Table, None) => found.rows.iter().for_each(|row| print_row(row, output)),
    }
    Ok(())
}

fn print_row(row: &KeyRow, output: Output) {
    if output.is_json() {
        return println!("{}", value_of(row));
    }
    let key = String::from_utf8_lossy(&row.key);
    match &row.value {
        Some(value) => println!("{key}  {}  (version {})", String::from_utf8_lossy(value), row.version),
        None => println!("{key}  (no such key)"),
    }
}

fn print_scan(found: &ReadResult, output: Output) {
    for scan in &found.scans {
        let next = scan.next.as_ref().map(|next| String::from_utf8_lossy(next).into_owned());
        match output {
            Output::Table => {
                scan.rows.iter().for_each(|row| print_row(row, output));
                if let Some(next) = next {
                    eprintln!("there may be more, from {next} on: --limit");
                }
            }
            Output::Json => {
                let rows: Vec<Value> = scan.rows.iter().map(value_of).collect();
                println!("{}", json!({ "at": found.at.0, "rows": rows, "next": next }));
            }
        }
    }
}

fn put(pairs: &[String], version: Option<u64>, endpoint: &Endpoint) -> Result<(), Failure> {
    if !pairs.len().is_multiple_of(2) {
        let fact = format!("{} has no value", pairs[pairs.len() - 1]);
        return Err(Failure::input(
            "O1030",
            "keys and values do not pair",
            fact,
            "ordinate txn put KEY VALUE",
        ));
    }
    let asked = |client: TxnClient| async move {
        let mut call = client.one_shot();
        if let Some(version) = version {
            call = call.if_version(pairs[0].as_str(), Timestamp(version)).otherwise_read(pairs[0].as_str());
        }
        for pair in pairs.chunks(2) {
            call = call.put(pair[0].as_str(), pair[1].as_str());
        }
        call.run().await.map_err(|error| explain(&error, endpoint))
    };
    say_outcome(endpoint.with_transactions(asked)?, &pairs[0], endpoint.output())
}

fn say_outcome(outcome: OneShotOutcome, key: &str, output: Output) -> Result<(), Failure> {
    match outcome {
        OneShotOutcome::Committed { at, .. } => {
            output.print(|| json!({ "committed_at": at.0 }), || format!("committed at {at}"));
            Ok(())
        }
        OneShotOutcome::NotMet { rows, .. } => {
            let holds = rows.first().and_then(|row| row.value.as_ref().map(|value| (value, row.version)));
            let fact = match holds {
                Some((value, version)) => {
                    format!("it holds \"{}\" at version {version}", String::from_utf8_lossy(value))
                }
                None => "it does not exist".to_owned(),
            };
            let remedy = format!("ordinate txn get {key} -o json");
            Err(Failure::failed(
                "O1005",
                format!("{key} is not as expected: nothing was written"),
                fact,
                remedy,
            ))
        }
    }
}
