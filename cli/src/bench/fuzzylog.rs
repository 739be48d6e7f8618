//! `ordinate bench fuzzylog`.

use super::closed_loop::{self, Spent, Window, Wire};
use super::local::LoadedCluster;
use super::summary::{Summary, durability};
use super::unmeasured;
use hdrhistogram::Histogram;
use kernel::{Bytes, Encode as _, Rng};
use mio::{Poll, Token};
use ordinate_client::{FuzzyError, FuzzyLog};
use server::unique::unique_number;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::fuzzylog::{
    AppendNodes, FuzzyCall, FuzzyFailure, FuzzyReply, NewNode, NumberedBy, PlayColour, SeenTime, TO_CLIENT,
    native_call, read_native_reply,
};

/// Measure the partially ordered log: on a cluster of its own that it starts and stops, or on yours.
#[derive(clap::Args)]
pub struct Fuzzylog {
    /// Native addresses of a running cluster, separated by commas; without them a cluster of three hosts is started
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    endpoints: Vec<SocketAddr>,
    /// Processes of the running cluster's hosts, whose processor time is measured
    #[arg(long, value_name = "IDS", value_delimiter = ',', requires = "endpoints")]
    processes: Vec<u32>,
    /// Partitions of the started cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    partitions: u16,
    /// Hosts of the started cluster that hold each partition
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3))]
    replicas: u16,
    /// What an acknowledgement of the started cluster promises
    #[arg(long, default_value = "majority-fsync", value_parser = ["majority-fsync", "memory"])]
    durability: String,
    /// What is asked: appends, or plays of nodes that are there
    #[arg(long, default_value = "append", value_parser = ["append", "play"])]
    mix: String,
    /// Colours, among which nodes are drawn uniformly
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    colours: u64,
    /// How many of a hundred nodes are in two colours
    #[arg(long, default_value_t = 0.0, value_parser = percent)]
    two: f64,
    /// Connections, spread over the hosts
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Calls that each connection has in flight, each of a user of its own
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    outstanding: u64,
    /// Nodes of one call
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    batch: u64,
    /// Bytes of a node
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=4_096))]
    value: u64,
    /// Seconds measured, after a fifth of that as warm-up, and after 3 s at the least of a cluster that is started
    #[arg(long, default_value = "5", value_parser = crate::commands::seconds)]
    seconds: Duration,
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

fn percent(text: &str) -> Result<f64, String> {
    let known = text.parse().ok().filter(|it| (0.0..=100.0).contains(it));
    known.ok_or_else(|| "wanted: 0 to 100".to_owned())
}

/// Chains of a cluster that has just begun are changed once more while its hosts come, and stand still for that.
const SETTLED_AFTER: Duration = Duration::from_secs(3);
/// Nodes that plays find in each colour.
const FILLED: u64 = 10_000;
/// Nodes of one append while colours are filled.
const FILL_BATCH: u64 = 250;

/// A user: one call in flight at a time.
struct User {
    client: u64,
    next: u64,
    seen: SeenTime,
    sent: Instant,
    free: bool,
}

struct Caller {
    wire: Wire,
    users: Vec<User>,
}

struct Tally {
    rng: Rng,
    chunk: Vec<u8>,
    from: Instant,
    latency: Histogram<u64>,
    /// Since `from`.
    nodes: u64,
    refused: u64,
}

impl Fuzzylog {
    /// Runs and prints.
    pub fn run(self) -> ExitCode {
        self.measure().map_or_else(|error| unmeasured(&error, "fuzzylog"), |()| ExitCode::SUCCESS)
    }

    fn measure(&self) -> io::Result<()> {
        let settings = format!(
            "[fuzzylog]\npartitions = {}\nreplicas = {}\nreplicas_min = {}\npartition_bytes = \"4GiB\"\n",
            self.partitions,
            self.replicas,
            self.replicas.min(2)
        );
        let cluster = LoadedCluster::find(&self.endpoints, &self.processes, &self.durability, &settings)?;
        let endpoints = &cluster.endpoints;
        let colours: Vec<Bytes> =
            (0..self.colours).map(|number| format!("bench-{number}").into_bytes().into()).collect();
        if self.mix == "play" {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.fill(endpoints, &colours)).map_err(io::Error::other)?;
        }
        let mut poll = Poll::new()?;
        let mut callers = Vec::new();
        for index in 0..self.connections as usize {
            let wire = Wire::connect(endpoints[index % endpoints.len()], &poll, Token(index))?;
            let user = |_| User {
                client: unique_number(),
                next: 1,
                seen: SeenTime::default(),
                sent: Instant::now(),
                free: true,
            };
            callers.push(Caller { wire, users: (0..self.outstanding).map(user).collect() });
        }
        let warm_up = self.seconds / 5;
        let warm_up = if cluster.is_own() { warm_up.max(SETTLED_AFTER) } else { warm_up };
        let window = Window::after(warm_up, self.seconds);
        let mut tally = Tally {
            rng: Rng::seeded(u64::from(std::process::id())),
            chunk: vec![0; 256 << 10],
            from: window.from,
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?,
            nodes: 0,
            refused: 0,
        };
        let body = Bytes::from(vec![b'n'; self.value as usize]);
        let spent = closed_loop::run(
            &mut poll,
            &mut callers,
            window,
            &cluster.processes,
            |_| false,
            |caller, now| {
                caller.receive(now, &mut tally)?;
                for (slot, user) in caller.users.iter_mut().enumerate().filter(|(_, user)| user.free) {
                    let call = self.call(slot as u64, user, &colours, &body, &mut tally.rng);
                    (user.free, user.sent) = (false, now);
                    let message = Bytes::from(native_call(&call));
                    message.encode(caller.wire.writer().body());
                }
                caller.wire.flush()?;
                Ok(false)
            },
        )?;
        self.print(&tally, &spent, cluster.is_own());
        Ok(())
    }

    fn call(&self, id: u64, user: &mut User, colours: &[Bytes], body: &Bytes, rng: &mut Rng) -> FuzzyCall {
        let at = rng.index(colours.len());
        if self.mix == "play" {
            let from = rng.below(FILLED - self.batch + 1);
            let colour = colours[at].clone();
            return PlayColour { id, colour, from, to: from + self.batch }.into();
        }
        let node = |rng: &mut Rng| {
            let at = rng.index(colours.len());
            let mut of = vec![colours[at].clone()];
            if rng.chance(self.two / 100.0) {
                // Another one: all others are as likely.
                of.push(colours[(at + 1 + rng.index(colours.len() - 1)) % colours.len()].clone());
            }
            NewNode { colours: of, bodies: vec![body.clone()] }
        };
        let nodes = (0..self.batch).map(|_| node(rng)).collect();
        let by = NumberedBy { client: user.client, number: user.next, below: user.next };
        user.next += self.batch;
        AppendNodes { id, seen: user.seen, by, nodes }.into()
    }

    /// Appends what plays are to find.
    async fn fill(&self, endpoints: &[SocketAddr], colours: &[Bytes]) -> Result<(), FuzzyError> {
        let log = FuzzyLog::connect(endpoints.iter().map(ToString::to_string));
        let log = log.with_timeout(Duration::from_secs(30));
        let body = Bytes::from(vec![b'n'; self.value as usize]);
        for colour in colours {
            let name = String::from_utf8_lossy(colour).into_owned();
            let there = log.snapshot(&[&name]).await?.tail(&name);
            for _ in 0..FILLED.saturating_sub(there).div_ceil(FILL_BATCH) {
                let node = |_| NewNode { colours: vec![colour.clone()], bodies: vec![body.clone()] };
                log.append_all((0..FILL_BATCH).map(node).collect()).await?;
            }
        }
        Ok(())
    }

    fn print(&self, tally: &Tally, spent: &Spent, own: bool) {
        let summary = Summary {
            counted: ["node", "nodes"],
            per: "nodes",
            of_calls: [" calls", "   of a call"],
            durability: durability(&self.durability, own),
            done: tally.nodes,
            refused: tally.refused,
            latency: &tally.latency,
            seconds: spent.seconds,
            server_cpu: spent.server_cpu,
        };
        if self.output == "json" {
            return summary.print_json(serde_json::json!({
                "service": "fuzzylog", "engine": "fuzzylog", "mix": self.mix, "connections": self.connections,
                "outstanding": self.outstanding, "batch": self.batch, "two_percent": self.two,
                "value_bytes": self.value, "colours": self.colours, "partitions": self.partitions,
                "replicas": self.replicas,
            }));
        }
        summary.print(&format!(
            "fuzzylog  {}  {} connections x {} outstanding x {} nodes  {} B nodes  {} colours  {} % in two",
            self.mix, self.connections, self.outstanding, self.batch, self.value, self.colours, self.two
        ));
    }
}

impl Caller {
    fn receive(&mut self, now: Instant, tally: &mut Tally) -> io::Result<()> {
        self.wire.receive(&mut tally.chunk)?;
        let Self { wire, users } = self;
        wire.take(|message| {
            if message.first() != Some(&TO_CLIENT) {
                return Ok(());
            }
            let reply = read_native_reply(&message).map_err(io::Error::other)?;
            let Some(user) = users.get_mut(reply.id() as usize) else { return Ok(()) };
            user.free = true;
            user.seen = reply.seen().map_or(user.seen, |seen| seen.max(user.seen));
            tally.answered(&reply, user.sent, now)
        })
    }
}

impl Tally {
    fn answered(&mut self, reply: &FuzzyReply, sent: Instant, now: Instant) -> io::Result<()> {
        let nodes = match reply {
            FuzzyReply::AppendedNodes(reply) => reply.nodes.len(),
            FuzzyReply::PlayedNodes(reply) => reply.nodes.len(),
            FuzzyReply::PlayedAcross(reply) => reply.nodes.len(),
            FuzzyReply::FuzzyFailed(failed)
                if matches!(failed.why, FuzzyFailure::Busy | FuzzyFailure::Unknown) =>
            {
                self.refused += 1;
                return Ok(());
            }
            FuzzyReply::FuzzyFailed(failed) => return Err(io::Error::other(failed.why.to_string())),
            FuzzyReply::SnapshotTaken(_)
            | FuzzyReply::TrimmedColour(_)
            | FuzzyReply::SnapshotNamed(_)
            | FuzzyReply::SnapshotIsHere(_)
            | FuzzyReply::ColoursCut(_)
            | FuzzyReply::NodesScanned(_)
            | FuzzyReply::NodesRestored(_)
            | FuzzyReply::MapChanged(_) => {
                return Err(io::Error::other("a reply to another call"));
            }
        };
        if now >= self.from {
            self.nodes += nodes as u64;
            // A latency beyond the histogram's range is its maximum.
            self.latency.saturating_record((now - sent).as_nanos() as u64);
        }
        Ok(())
    }
}
