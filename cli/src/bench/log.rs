//! `ordinate bench log`.

use super::closed_loop::{self, Spent, Window, Wire};
use super::local::LoadedCluster;
use super::summary::{Summary, durability};
use super::unmeasured;
use hdrhistogram::Histogram;
use kernel::{Bytes, Decode as _, Rng};
use mio::{Poll, Token};
use ordinate_client::{Log as Client, LogError, Rows};
use shared_log::native::{Call, Native, Reply};
use shared_log::{Answer, Append, Entries, Part, READ_BYTES_MAX, Read, Refused, Request, Why};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measure the shared log: on a cluster of its own that it starts and stops, or on yours.
#[derive(clap::Args)]
pub struct Log {
    /// Native addresses of a running cluster, separated by commas; without them a cluster of three hosts is started
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    endpoints: Vec<SocketAddr>,
    /// Processes of the running cluster's hosts, whose processor time is measured
    #[arg(long, value_name = "IDS", value_delimiter = ',', requires = "endpoints")]
    processes: Vec<u32>,
    /// What orders the started cluster's log (log.engine); paxos and corfu have one space and one proxy
    #[arg(long, default_value = "mason", value_parser = ["mason", "paxos", "corfu", "fuzzylog"])]
    engine: String,
    /// Spaces of the started cluster
    #[arg(long, default_value_t = 4)]
    spaces: u16,
    /// Proxies of the started cluster; over fuzzylog, chains
    #[arg(long, default_value_t = 3)]
    proxies: u16,
    /// What an acknowledgement of the started cluster promises
    #[arg(long, default_value = "majority-fsync", value_parser = ["majority-fsync", "memory"])]
    durability: String,
    /// What is asked: appends, or reads of entries that are there
    #[arg(long, default_value = "append", value_parser = ["append", "read"])]
    mix: String,
    /// Connections, spread over the hosts
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Calls that each connection has in flight
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    outstanding: u64,
    /// Entries of one call
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Bytes of an entry
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=65_536))]
    value: u64,
    /// Logs, among which calls are drawn uniformly
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    logs: u64,
    /// Seconds measured at most, after a fifth of that as warm-up
    #[arg(long, default_value = "5", value_parser = crate::commands::seconds)]
    seconds: Duration,
    /// Entries measured at most
    #[arg(long, default_value_t = 20_000_000)]
    entries: u64,
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

/// What each log may hold.
const RETAIN_BYTES: u64 = 16 << 20;
/// Bytes that reads find in each log.
const FILLED_BYTES: u64 = 4 << 20;
/// Entries of one append while logs are filled.
const FILL_BATCH: u64 = 500;

/// A log's name and the positions that are there when a run begins.
struct Target {
    name: String,
    first: u64,
    next: u64,
}

/// One connection, and when each of its calls was sent.
struct Caller {
    wire: Wire,
    sent: Vec<Instant>,
    free: Vec<usize>,
}

struct Tally {
    rng: Rng,
    chunk: Vec<u8>,
    from: Instant,
    latency: Histogram<u64>,
    /// Since `from`.
    entries: u64,
    refused: u64,
    /// Entries of one append.
    batch: u64,
}

impl Log {
    /// Runs and prints.
    pub fn run(self) -> ExitCode {
        self.measure().map_or_else(|error| unmeasured(&error, "log"), |()| ExitCode::SUCCESS)
    }

    fn measure(&self) -> io::Result<()> {
        let settings = format!(
            "[log]\nengine = \"{}\"\nspaces = {}\nproxies = {}\n",
            self.engine, self.spaces, self.proxies
        );
        let cluster = LoadedCluster::find(&self.endpoints, &self.processes, &self.durability, &settings)?;
        let endpoints = &cluster.endpoints;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let targets = runtime.block_on(self.prepare(endpoints)).map_err(io::Error::other)?;
        drop(runtime);
        let mut poll = Poll::new()?;
        let mut callers = Vec::new();
        for index in 0..self.connections as usize {
            let wire = Wire::connect(endpoints[index % endpoints.len()], &poll, Token(index))?;
            let outstanding = self.outstanding as usize;
            let sent = vec![Instant::now(); outstanding];
            callers.push(Caller { wire, sent, free: (0..outstanding).collect() });
        }
        let window = Window::after(self.seconds / 5, self.seconds);
        let mut tally = Tally {
            rng: Rng::seeded(u64::from(std::process::id())),
            chunk: vec![0; 256 << 10],
            from: window.from,
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?,
            entries: 0,
            refused: 0,
            batch: self.batch,
        };
        let entries = self.rows(self.batch).into_bytes();
        let spent = closed_loop::run(
            &mut poll,
            &mut callers,
            window,
            &cluster.processes,
            |_| false,
            |caller, now| {
                caller.receive(now, &mut tally)?;
                let more = tally.entries < self.entries;
                while more && let Some(slot) = caller.free.pop() {
                    let target = &targets[tally.rng.below(targets.len() as u64) as usize];
                    let request = self.request(target, &entries, &mut tally.rng);
                    caller.sent[slot] = now;
                    caller.wire.writer().message(&Native::Call(Call { id: slot as u64, request }));
                }
                caller.wire.flush()?;
                Ok(!more)
            },
        )?;
        self.print(&tally, &spent, cluster.is_own());
        Ok(())
    }

    fn rows(&self, count: u64) -> Rows {
        let entry = vec![b'e'; self.value as usize];
        let mut rows = Rows::default();
        (0..count).for_each(|_| rows.push(&entry));
        rows
    }

    fn request(&self, target: &Target, entries: &Bytes, rng: &mut Rng) -> Request {
        let name = target.name.clone();
        if self.mix == "append" {
            let parts = vec![Part { name, expect: None, entries: entries.clone() }];
            return Request::Append(Append { parts, admitted: None });
        }
        let room = (target.next - target.first).saturating_sub(self.batch) + 1;
        let from = target.first + rng.below(room);
        Request::Read(Read {
            name,
            from,
            entries_max: self.batch as u32,
            bytes_max: READ_BYTES_MAX,
            wait_ms: 0,
        })
    }

    /// Makes the logs, unless they are there, and fills them if they will be read.
    async fn prepare(&self, endpoints: &[SocketAddr]) -> Result<Vec<Target>, LogError> {
        let client = Client::connect(endpoints.iter().map(ToString::to_string));
        let client = client.with_timeout(Duration::from_secs(30));
        let mut names: Vec<String> = (0..self.logs).map(|number| format!("bench-{number}")).collect();
        for name in names.clone() {
            match client.create(&name, RETAIN_BYTES, None).await {
                Ok(()) | Err(LogError::Exists(_)) => {}
                // The engine has the logs that it has.
                Err(LogError::Unsupported) => {
                    names = client.list("", 1).await?.into_iter().map(|stat| stat.name).collect();
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let mut targets = Vec::new();
        for name in names {
            let wanted =
                if self.mix == "read" { (FILLED_BYTES / (self.value + 12)).max(self.batch) } else { 0 };
            let mut stat = client.stat(&name).await?;
            while stat.next - stat.first < wanted {
                client.append(&name, self.rows(FILL_BATCH)).await?;
                stat = client.stat(&name).await?;
            }
            targets.push(Target { name, first: stat.first, next: stat.next });
        }
        Ok(targets)
    }

    fn print(&self, tally: &Tally, spent: &Spent, own: bool) {
        let summary = Summary {
            counted: ["entry", "entries"],
            per: "entries",
            of_calls: [" calls", "   of a call"],
            durability: durability(&self.durability, own),
            done: tally.entries,
            refused: tally.refused,
            latency: &tally.latency,
            seconds: spent.seconds,
            server_cpu: spent.server_cpu,
        };
        if self.output == "json" {
            return summary.print_json(serde_json::json!({
                "service": "log", "engine": self.engine, "mix": self.mix, "connections": self.connections,
                "outstanding": self.outstanding, "batch": self.batch, "value_bytes": self.value, "logs": self.logs,
            }));
        }
        summary.print(&format!(
            "log  {}  {} connections x {} outstanding x {} entries  {} B entries  {} logs",
            self.mix, self.connections, self.outstanding, self.batch, self.value, self.logs
        ));
    }
}

impl Caller {
    fn receive(&mut self, now: Instant, tally: &mut Tally) -> io::Result<()> {
        self.wire.receive(&mut tally.chunk)?;
        let Self { wire, sent, free } = self;
        wire.take(|message| {
            let Native::Reply(Reply { id, answer }) = Native::decoded(&message).map_err(io::Error::other)?
            else {
                return Ok(());
            };
            let Some(sent) = sent.get(id as usize) else { return Ok(()) };
            free.push(id as usize);
            tally.answered(answer, *sent, now)
        })
    }
}

impl Tally {
    fn answered(&mut self, answer: Answer, sent: Instant, now: Instant) -> io::Result<()> {
        let entries = match answer {
            Answer::Entries(Entries { first, next, .. }) => next - first,
            Answer::Appended(_) => self.batch,
            Answer::Refused(Refused { why: Why::Busy | Why::Unknown, .. }) => {
                self.refused += 1;
                return Ok(());
            }
            answer => return Err(io::Error::other(format!("the log answers {answer:?}"))),
        };
        if now >= self.from {
            self.entries += entries;
            // A latency beyond the histogram's range is its maximum.
            self.latency.saturating_record((now - sent).as_nanos() as u64);
        }
        Ok(())
    }
}
