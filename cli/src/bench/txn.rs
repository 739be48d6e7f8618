//! `ordinate bench txn`.

use super::closed_loop::{self, Window, Wire};
use super::local::LoadedCluster;
use super::unmeasured;
use bench::transactions::{Draws, TxnWorkload, Zipf, key};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use hdrhistogram::Histogram;
use kernel::{Bytes, Encode as _, Rng};
use mio::{Poll, Token};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::txn::{
    KeyWrite, OneShot, TO_CLIENT, Timestamp, TxnCall, TxnLevel, TxnReply, native_call, read_native_reply,
};

/// Measure the transaction service: on a cluster of its own that it starts and stops, or on yours.
#[derive(clap::Args)]
pub struct Txn {
    /// Native addresses of a running cluster, separated by commas; without them a cluster of three hosts is started
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    endpoints: Vec<SocketAddr>,
    /// What the transactions are
    #[arg(long, default_value = "retwis", value_parser = workloads())]
    workload: TxnWorkload,
    /// Level of read-only transactions
    #[arg(long, default_value = "strict", value_parser = ["strict", "rss", "process-ordered"])]
    level: String,
    /// Skew of the keys: the k-th is drawn with a weight of 1/k^ZIPF
    #[arg(long, default_value = "0.7", value_parser = skew)]
    zipf: f64,
    /// Connections
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Transactions that each connection has in flight, each a session of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    outstanding: u64,
    /// Sessions that come a second, at random times (Poisson), over all connections; without it the load is closed. As many at a time
    /// as --connections x --outstanding; one that finds no room is counted
    #[arg(long, value_name = "SESSIONS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    arrivals: Option<u64>,
    /// With --arrivals: how likely a session goes on with another transaction after each
    #[arg(long, default_value = "0.9", value_parser = chance, requires = "arrivals")]
    stay: f64,
    /// Keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// Shards of the started cluster
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    shards: u64,
    /// What the started cluster's clocks may be off
    #[arg(long, default_value = "100us", value_parser = span)]
    epsilon: String,
    /// Seconds measured, after a fifth of that as warm-up
    #[arg(long, default_value = "5", value_parser = crate::commands::seconds)]
    seconds: Duration,
    /// What an acknowledgement of the started cluster promises
    #[arg(long, default_value = "majority-fsync", value_parser = ["majority-fsync", "memory"])]
    durability: String,
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

fn workloads() -> impl TypedValueParser<Value = TxnWorkload> {
    let all = TxnWorkload::ALL
        .iter()
        .map(|of| PossibleValue::new(of.name()).help(of.about().trim_end_matches('.')));
    PossibleValuesParser::new(all)
        .map(|name| TxnWorkload::named(&name).expect("the parser has taken one of these names"))
}

fn skew(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|skew| (0.0..=2.0).contains(skew)).ok_or_else(|| "wanted: 0 to 2".to_owned())
}

fn chance(text: &str) -> Result<f64, String> {
    let known = text.parse().ok().filter(|chance| (0.0..1.0).contains(chance));
    known.ok_or_else(|| "wanted: 0 to less than 1".to_owned())
}

fn span(text: &str) -> Result<String, String> {
    let known = server::cluster::keys::parse_duration(text);
    known.map(|_| text.to_owned()).ok_or_else(|| "wanted: a span as in 100us or 10ms".to_owned())
}

/// How late a session may begin that comes while nothing else happens.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Keys that one transaction writes while the store is filled.
const FILL_KEYS: u64 = 100;

/// A session: one transaction in flight at a time.
struct Session {
    token: Timestamp,
    sent_at: Instant,
    writes: bool,
}

/// Sessions that come by themselves and go: the load is partly open.
struct Arrivals {
    /// On average between two of a connection.
    every: Duration,
    stay: f64,
    next: Instant,
    /// Sessions that have left, or have not come.
    free: Vec<usize>,
}

impl Arrivals {
    /// When the one after the next comes, if times are drawn from an exponential distribution.
    fn draw(&mut self, rng: &mut Rng) {
        self.next += self.every.mul_f64(-(1.0 - rng.unit()).ln());
    }
}

struct Connection {
    wire: Wire,
    sessions: Vec<Session>,
    begun: bool,
    /// None: each session has a transaction in flight all the time.
    arrivals: Option<Arrivals>,
}

/// What a run counts.
struct Tally {
    rng: Rng,
    inserted: u64,
    chunk: Vec<u8>,
    from: Instant,
    /// Nanoseconds: read-only transactions, and those that write.
    latencies: [Histogram<u64>; 2],
    failed: u64,
    /// Sessions that found no room.
    turned_away: u64,
    /// The next key to fill, while that goes on.
    fill: Option<u64>,
    filled: u64,
}

impl Connection {
    fn serve(&mut self, draws: &Draws, tally: &mut Tally, now: Instant) -> io::Result<()> {
        self.wire.receive(&mut tally.chunk)?;
        let mut answered = Vec::new();
        self.wire.take(|message| {
            if message.first() != Some(&TO_CLIENT) {
                return Ok(());
            }
            let reply = read_native_reply(&message).map_err(|error| io::Error::other(error.to_string()))?;
            answered.push(reply);
            Ok(())
        })?;
        for reply in answered {
            let (number, token) = match reply {
                TxnReply::ReadRows(reply) => (reply.id, Some(reply.token)),
                TxnReply::Committed(reply) => (reply.id, Some(reply.token)),
                TxnReply::Failed(reply) => (reply.id, None),
                TxnReply::NotMet(_)
                | TxnReply::Begun(_)
                | TxnReply::RowsWithin(_)
                | TxnReply::Fenced(_)
                | TxnReply::CommitFate(_) => return Err(io::Error::other("a reply to another call")),
            };
            let session = self.sessions.get_mut(number as usize);
            let session = session.ok_or_else(|| io::Error::other("a reply to no call"))?;
            if let Some(token) = token {
                session.token = session.token.max(token);
            }
            tally.filled += u64::from(token.is_some());
            if now >= tally.from {
                match token {
                    Some(_) => {
                        let nanos = (now - session.sent_at).as_nanos() as u64;
                        tally.latencies[usize::from(session.writes)].saturating_record(nanos);
                    }
                    None => tally.failed += 1,
                }
            }
            match &mut self.arrivals {
                Some(arrivals) if !tally.rng.chance(arrivals.stay) => arrivals.free.push(number as usize),
                Some(_) | None => self.ask(number as usize, draws, tally, now),
            }
        }
        if self.arrivals.is_some() {
            self.let_in(draws, tally, now);
        } else if !std::mem::replace(&mut self.begun, true) {
            (0..self.sessions.len()).for_each(|session| self.ask(session, draws, tally, now));
        }
        self.wire.flush()
    }

    /// Those whose time has come.
    fn let_in(&mut self, draws: &Draws, tally: &mut Tally, now: Instant) {
        while let Some(arrivals) = self.arrivals.as_mut().filter(|arrivals| arrivals.next <= now) {
            arrivals.draw(&mut tally.rng);
            match arrivals.free.pop() {
                Some(number) => {
                    self.sessions[number].token = Timestamp(0);
                    self.ask(number, draws, tally, now);
                }
                None => tally.turned_away += u64::from(now >= tally.from),
            }
        }
    }

    fn ask(&mut self, number: usize, draws: &Draws, tally: &mut Tally, now: Instant) {
        let session = &mut self.sessions[number];
        let mut call = match &mut tally.fill {
            None => draws.call(session.token, &mut tally.inserted, &mut tally.rng),
            Some(next) if *next >= draws.keys => return,
            Some(next) => {
                let keys = *next..draws.keys.min(*next + FILL_KEYS);
                *next = keys.end;
                let write = |number| KeyWrite { key: key(number), value: Some(draws.value.clone()) };
                OneShot {
                    id: 0,
                    token: session.token,
                    key: None,
                    acknowledged: 0,
                    conditions: Vec::new(),
                    writes: keys.map(write).collect(),
                    reads: Vec::new(),
                    otherwise: Vec::new(),
                }
                .into()
            }
        };
        match &mut call {
            TxnCall::ReadOnly(call) => (call.id, session.writes) = (number as u64, false),
            TxnCall::OneShot(call) => (call.id, session.writes) = (number as u64, true),
            TxnCall::Begin(_)
            | TxnCall::ReadWithin(_)
            | TxnCall::Commit(_)
            | TxnCall::GiveUp(_)
            | TxnCall::Fence(_)
            | TxnCall::CommitStatus(_) => {}
        }
        session.sent_at = now;
        Bytes::from(native_call(&call)).encode(self.wire.writer().body());
    }
}

/// What a run showed.
struct Shown {
    seconds: f64,
    latencies: [Histogram<u64>; 2],
    failed: u64,
    turned_away: u64,
    server_cpu: Option<Duration>,
}

impl Txn {
    /// Runs and prints.
    pub fn run(self) -> ExitCode {
        self.measure().map_or_else(|error| unmeasured(&error, "txn"), |()| ExitCode::SUCCESS)
    }

    fn measure(&self) -> io::Result<()> {
        let settings = format!(
            "[clock]\nsource = \"fixed\"\nepsilon = \"{}\"\n[txn]\nshards = {}\n",
            self.epsilon, self.shards
        );
        let cluster = LoadedCluster::find(&self.endpoints, &[], &self.durability, &settings)?;
        let endpoints = &cluster.endpoints;
        let level = match self.level.as_str() {
            "rss" => TxnLevel::Rss,
            "process-ordered" => TxnLevel::ProcessOrdered,
            _ => TxnLevel::Strict,
        };
        let draws = Draws {
            workload: self.workload,
            level,
            zipf: Arc::new(Zipf::new(self.keys, self.zipf)),
            keys: self.keys,
            value: vec![b'v'; self.value].into(),
        };
        // Reads of keys that do not exist would be too cheap.
        self.load(endpoints, &draws, Some(0), Window::until_done(), &[])?;
        let window = Window::after(self.seconds / 5, self.seconds);
        let window = if self.arrivals.is_some() { window.looking_every(LOOK_EVERY) } else { window };
        let shown = self.load(endpoints, &draws, None, window, &cluster.processes)?;
        self.print(&shown, cluster.is_own());
        Ok(())
    }

    fn load(
        &self,
        endpoints: &[SocketAddr],
        draws: &Draws,
        fill: Option<u64>,
        window: Window,
        processes: &[u32],
    ) -> io::Result<Shown> {
        let mut poll = Poll::new()?;
        let histogram = || Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other);
        let mut tally = Tally {
            rng: Rng::seeded(server::unique::unique_number()),
            inserted: 0,
            chunk: vec![0; 64 << 10],
            from: window.from,
            latencies: [histogram()?, histogram()?],
            failed: 0,
            turned_away: 0,
            fill,
            filled: 0,
        };
        let mut connections = Vec::new();
        for index in 0..self.connections as usize {
            let wire = Wire::connect(endpoints[index % endpoints.len()], &poll, Token(index))?;
            let session = || Session { token: Timestamp(0), sent_at: Instant::now(), writes: false };
            let sessions = (0..self.outstanding).map(|_| session()).collect();
            let arrivals = self.arrivals.filter(|_| fill.is_none()).map(|rate| Arrivals {
                every: Duration::from_secs_f64(self.connections as f64 / rate as f64),
                stay: self.stay,
                next: Instant::now(),
                free: (0..self.outstanding as usize).collect(),
            });
            connections.push(Connection { wire, sessions, begun: false, arrivals });
        }
        let fills = draws.keys.div_ceil(FILL_KEYS);
        let spent = closed_loop::run(
            &mut poll,
            &mut connections,
            window,
            processes,
            |connection| connection.arrivals.is_some(),
            |connection, now| {
                connection.serve(draws, &mut tally, now)?;
                Ok(tally.fill.is_some() && tally.filled >= fills)
            },
        )?;
        let Tally { latencies, failed, turned_away, .. } = tally;
        let (seconds, server_cpu) = (spent.seconds, spent.server_cpu);
        Ok(Shown { seconds, latencies, failed, turned_away, server_cpu })
    }

    fn print(&self, shown: &Shown, own: bool) {
        let durability = if own { self.durability.as_str() } else { "as the cluster says (ordinate status)" };
        let done = shown.latencies.iter().map(Histogram::len).sum::<u64>();
        let per_second = done as f64 / shown.seconds;
        let cpu = shown.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / done.max(1) as f64);
        let [reads, writes] = &shown.latencies;
        let workload = self.workload.name();
        let micros = |of: &Histogram<u64>, quantile: f64| of.value_at_quantile(quantile) as f64 / 1000.0;
        if self.output == "json" {
            let json = serde_json::json!({
                "service": "txn", "workload": workload, "level": self.level, "zipf": self.zipf,
                "arrivals_per_second": self.arrivals, "stay": self.arrivals.map(|_| self.stay),
                "turned_away": shown.turned_away,
                "durability": durability, "connections": self.connections, "outstanding": self.outstanding,
                "keys": self.keys, "value_bytes": self.value, "shards": self.shards, "epsilon": self.epsilon,
                "seconds": shown.seconds, "transactions": done, "failed": shown.failed,
                "transactions_per_second": per_second, "server_cpu_us_per_transaction": cpu,
                "read_p50_us": micros(reads, 0.5), "read_p99_us": micros(reads, 0.99),
                "write_p50_us": micros(writes, 0.5), "write_p99_us": micros(writes, 0.99),
            });
            println!("{json}");
            return;
        }
        println!(
            "txn  {workload}  reads {}  zipf {}  {} connections x {} sessions  {} keys  {} B values",
            self.level, self.zipf, self.connections, self.outstanding, self.keys, self.value
        );
        if let Some(arrivals) = self.arrivals {
            let (stay, away) = (self.stay, shown.turned_away);
            println!("sessions     {arrivals}/s come, each stays with {stay}; {away} found no room");
        }
        println!("durability   {durability}");
        println!(
            "throughput   {per_second:.0} transactions/s   ({done} in {:.1} s, {} failed)",
            shown.seconds, shown.failed
        );
        for (name, of) in [("read-only", reads), ("read-write", writes)] {
            if !of.is_empty() {
                println!(
                    "{name:<12} p50 {:.0} us   p99 {:.0} us   p99.9 {:.0} us   ({} of them)",
                    micros(of, 0.5),
                    micros(of, 0.99),
                    micros(of, 0.999),
                    of.len()
                );
            }
        }
        match cpu {
            Some(cpu) => println!("server CPU   {cpu:.2} us per transaction, all hosts together"),
            None => println!("server CPU   not measured: the hosts are not this command's own"),
        }
    }
}
