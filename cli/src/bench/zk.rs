//! `ordinate bench zk`: a closed loop of ZooKeeper's protocol, against whatever serves it.

use super::closed_loop::{self, Spent, Window};
use super::fanout;
use super::session::{FOLDER, Load, Session, Tally};
use crate::failure::Failure;
use coordination::wire::{JuteInput, JuteOutput, op};
use hdrhistogram::Histogram;
use kernel::Rng;
use mio::net::TcpStream;
use mio::{Interest, Poll, Token};
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measure a service that speaks ZooKeeper's protocol: this one, or another.
#[derive(clap::Args)]
pub struct Zk {
    /// Client addresses of all servers, separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    endpoints: Vec<SocketAddr>,
    /// What is asked: setData, getData, create; mixed: 80 % getData and 20 % setData, mixed95: 95 and 5 %; multi: ten setData at
    /// once; watch: how long until all sessions are notified of a change
    #[arg(long, default_value = "set", value_parser = ["set", "get", "create", "mixed", "mixed95", "multi", "watch"])]
    mix: String,
    /// Sessions, spread over the servers
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    sessions: u64,
    /// Requests that each session has in flight
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    outstanding: u64,
    /// Bytes of a node
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// Nodes that are read and written, drawn uniformly
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    nodes: u64,
    /// Folders that the nodes are in; a multi changes ten nodes of one
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    folders: u64,
    /// Seconds measured, after a fifth of that as warm-up
    #[arg(long, default_value = "5", value_parser = crate::commands::seconds)]
    seconds: Duration,
    /// Processes of the servers, whose processor time is measured
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    processes: Vec<u32>,
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

/// Changes of one multi.
const STEPS: usize = 10;

impl Zk {
    /// Runs and prints.
    pub fn run(self) -> ExitCode {
        match self.measure() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let remedy = "echo srvr | nc ADDRESS PORT";
                Failure::failed("O7001", "nothing could be measured", error.to_string(), remedy).report()
            }
        }
    }

    fn load(&self) -> Load<'_> {
        let Self { endpoints, sessions, value, seconds, processes, .. } = self;
        Load { endpoints, sessions: *sessions, value: *value, seconds: *seconds, processes }
    }

    fn measure(&self) -> io::Result<()> {
        let mut tally = Tally {
            rng: Rng::seeded(u64::from(std::process::id())),
            chunk: vec![0; 64 << 10],
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(io::Error::other)?,
            operations: 0,
            failed: 0,
            from: Instant::now(),
            run: std::process::id(),
            created: 0,
            preparing: Some(0),
            prepared: 0,
            to_prepare: self.nodes + self.folders + 1,
        };
        if self.mix == "watch" {
            let Spent { seconds, server_cpu } = fanout::measure(&self.load(), &mut tally)?;
            self.print(&tally, seconds, server_cpu);
            return Ok(());
        }
        let mut poll = Poll::new()?;
        let mut sessions = Vec::new();
        for index in 0..self.sessions as usize {
            let mut stream = TcpStream::connect(self.endpoints[index % self.endpoints.len()])?;
            poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            sessions.push(Session::new(stream));
        }
        // A session that had nothing to ask hears nothing: the folder first, and then all of them make its nodes.
        let preparing = Window::until_done();
        self.turn(&mut poll, &mut sessions, &mut tally, preparing, |tally| tally.prepared > 0)?;
        self.turn(&mut poll, &mut sessions, &mut tally, preparing, |tally| tally.preparing.is_none())?;
        let window = Window::after(self.seconds / 5, self.seconds);
        tally.from = window.from;
        let Spent { seconds, server_cpu } =
            self.turn(&mut poll, &mut sessions, &mut tally, window, |_| false)?;
        self.print(&tally, seconds, server_cpu);
        Ok(())
    }

    /// Serves all sessions until `ended`, or until the window ends.
    fn turn(
        &self,
        poll: &mut Poll,
        sessions: &mut [Session],
        tally: &mut Tally,
        window: Window,
        ended: impl Fn(&Tally) -> bool,
    ) -> io::Result<Spent> {
        // Nothing may be in flight at all, so nothing would wake us.
        for session in sessions.iter_mut().filter(|session| session.open) {
            session.serve(self, tally)?;
        }
        // One that has nothing to ask hears nothing, and would expire while the others go on.
        let is_idle = |session: &Session| session.open && session.in_flight.is_empty();
        closed_loop::run(poll, sessions, window, &self.processes, is_idle, |session, _| {
            session.serve(self, tally)?;
            Ok(ended(tally))
        })
    }

    fn print(&self, tally: &Tally, seconds: f64, cpu: Option<Duration>) {
        let per_second = tally.operations as f64 / seconds;
        let micros = |quantile: f64| tally.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let cpu = cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / tally.operations.max(1) as f64);
        if self.output == "json" {
            let json = serde_json::json!({
                "service": "zookeeper", "mix": self.mix, "sessions": self.sessions, "outstanding": self.outstanding,
                "value_bytes": self.value, "nodes": self.nodes, "seconds": seconds, "operations": tally.operations,
                "failed": tally.failed, "ops_per_second": per_second, "p50_us": micros(0.5),
                "p99_us": micros(0.99), "p999_us": micros(0.999), "max_us": micros(1.0), "server_cpu_us_per_op": cpu,
            });
            println!("{json}");
            return;
        }
        println!(
            "zookeeper  {}  {} sessions x {} outstanding  {} B  {} nodes",
            self.mix, self.sessions, self.outstanding, self.value, self.nodes
        );
        if self.mix == "watch" {
            println!("an operation is a notification; a latency is that of the last of a change");
        }
        println!(
            "throughput   {per_second:.0} ops/s   ({} operations, {} failed)",
            tally.operations, tally.failed
        );
        let latency = [0.5, 0.99, 0.999, 1.0].map(micros);
        println!(
            "latency      p50 {:.0} us   p99 {:.0} us   p99.9 {:.0} us   longest {:.0} us",
            latency[0], latency[1], latency[2], latency[3]
        );
        match cpu {
            Some(cpu) => println!("server CPU   {cpu:.1} us per operation, all servers together"),
            None => println!("server CPU   not measured: --processes was not given"),
        }
    }
}

impl Session {
    fn serve(&mut self, bench: &Zk, tally: &mut Tally) -> io::Result<()> {
        self.receive(tally)?;
        if self.open {
            let outstanding = bench.outstanding as usize;
            while self.in_flight.len() < outstanding && self.ask(bench, tally) {}
        }
        self.flush()
    }

    fn receive(&mut self, tally: &mut Tally) -> io::Result<()> {
        self.take_in(tally)?;
        let (mut at, now) = (0, Instant::now());
        while let Some(len) = self.input[at..].first_chunk::<4>() {
            let end = at + 4 + u32::from_be_bytes(*len) as usize;
            let Some(body) = self.input.get(at + 4..end) else { break };
            at = end;
            if !self.open {
                self.open = true;
                continue;
            }
            let mut body = JuteInput(body);
            let header = (body.i32(), body.i64(), body.i32());
            let (Ok(_), Ok(_), Ok(error)) = header else {
                return Err(io::Error::other("a reply without header"));
            };
            let Some(sent_at) = self.in_flight.pop_front() else { continue };
            tally.answered(error, now, sent_at);
        }
        self.input.drain(..at);
        Ok(())
    }

    /// Asks for one thing more; false if there is none.
    fn ask(&mut self, bench: &Zk, tally: &mut Tally) -> bool {
        self.xid += 1;
        let xid = self.xid;
        if let Some(next) = tally.preparing {
            if next >= tally.to_prepare {
                return false;
            }
            // The first is the folder, then come those in it: the others come when they are there.
            if next == 1 && tally.prepared == 0 || next == bench.folders + 1 && tally.prepared < next {
                return false;
            }
            tally.preparing = Some(next + 1);
            let path = match next.checked_sub(1) {
                None => FOLDER.to_owned(),
                Some(number) if number < bench.folders => folder(number),
                Some(number) => bench.node(number - bench.folders),
            };
            self.create(xid, &path, bench.value);
        } else {
            let path = bench.node(tally.rng.below(bench.nodes));
            let reads = match bench.mix.as_str() {
                "get" => true,
                "mixed" => tally.rng.chance(0.8),
                "mixed95" => tally.rng.chance(0.95),
                _ => false,
            };
            if bench.mix == "create" {
                tally.created += 1;
                let folder = folder(tally.created % bench.folders);
                let path = format!("{folder}/new-{}x{}x", tally.run, tally.created);
                self.create(xid, &path, bench.value);
            } else if reads {
                self.request(xid, op::GET_DATA, |out| {
                    out.put_text(&path);
                    out.push(0);
                });
            } else if bench.mix == "multi" {
                let folder = tally.rng.below(bench.folders);
                let rows = (bench.nodes / bench.folders).max(1);
                let number = |tally: &mut Tally| folder + bench.folders * tally.rng.below(rows);
                let paths: Vec<String> =
                    (0..STEPS).map(|_| bench.node(number(tally) % bench.nodes)).collect();
                self.request(xid, op::MULTI, |out| {
                    for path in &paths {
                        out.put_i32(op::SET_DATA);
                        out.push(0);
                        out.put_i32(-1);
                        set_data(path, bench.value, out);
                    }
                    out.put_i32(-1);
                    out.push(1);
                    out.put_i32(-1);
                });
            } else {
                self.request(xid, op::SET_DATA, |out| set_data(&path, bench.value, out));
            }
        }
        self.in_flight.push_back(Instant::now());
        true
    }
}

impl Tally {
    fn answered(&mut self, error: i32, now: Instant, sent_at: Instant) {
        if self.preparing.is_some() {
            self.prepared += 1;
            // What an earlier run has left is as good.
            if self.prepared == self.to_prepare {
                self.preparing = None;
            }
            return;
        }
        if error != 0 {
            self.failed += 1;
        } else if now >= self.from {
            self.operations += 1;
            // A latency beyond the histogram's range is its maximum.
            self.latency.saturating_record((now - sent_at).as_nanos() as u64);
        }
    }
}

fn set_data(path: &str, value: usize, out: &mut Vec<u8>) {
    out.put_text(path);
    out.put_buffer(Some(&vec![b'v'; value]));
    out.put_i32(-1);
}

fn folder(number: u64) -> String {
    format!("{FOLDER}/{number}x")
}

impl Zk {
    fn node(&self, number: u64) -> String {
        format!("{}/node-{number}x", folder(number % self.folders))
    }
}
