//! `ordinate bench kv`.

use super::load::{Load, Measured, Mix, Target};
use super::local::LoadedCluster;
use super::summary::{Summary, durability};
use super::unmeasured;
use consistency::kv::KvHistory;
use paxos::Level;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

const VIOLATED: u8 = 5;

/// Measure the key-value service: on a cluster of its own that it starts and stops, or on yours.
#[derive(clap::Args)]
pub struct Kv {
    /// Native addresses of a running cluster, separated by commas; without them a cluster of three hosts is started
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    endpoints: Vec<SocketAddr>,
    /// Connections
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    connections: u64,
    /// Calls that each connection has in flight
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4_096))]
    outstanding: u64,
    /// Share of reads, 0 to 1
    #[arg(long, default_value = "0", value_parser = share)]
    reads: f64,
    /// Freshness of reads
    #[arg(long, default_value = "linearizable", value_parser = ["linearizable", "sequential", "eventual"])]
    consistency: String,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// Keys, drawn uniformly
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Seconds measured, after a fifth of that as warm-up
    #[arg(long, default_value = "5", value_parser = crate::commands::seconds)]
    seconds: Duration,
    /// What an acknowledgement of the started cluster promises
    #[arg(long, default_value = "majority-fsync", value_parser = ["majority-fsync", "memory"])]
    durability: String,
    /// Record every call on keys of its own, decide whether the history is linearizable, and write it here for
    /// `ordinate check`
    #[arg(long, value_name = "FILE")]
    history: Option<std::path::PathBuf>,
    /// Output
    #[arg(short, long, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "wanted: 0 to 1".to_owned())
}

impl Kv {
    /// Runs and prints.
    pub fn run(self) -> ExitCode {
        match self.measure() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(VIOLATED),
            Err(error) => unmeasured(&error, "kv"),
        }
    }

    /// False if a recorded history is not linearizable.
    fn measure(&self) -> std::io::Result<bool> {
        let cluster = LoadedCluster::find(&self.endpoints, &[], &self.durability, "")?;
        let endpoints = &cluster.endpoints;
        let level = match self.consistency.as_str() {
            "sequential" => Level::Sequential,
            "eventual" => Level::Eventual,
            _ => Level::Linearizable,
        };
        let keys = self.keys.max(1);
        let mix = |reads, fill, record| Mix { reads, level, keys, value_bytes: self.value, fill, record };
        let target =
            |connections, outstanding| Target { endpoints: endpoints.clone(), connections, outstanding };
        // Reads of keys that do not exist would be too cheap.
        let limit = Duration::from_secs(600);
        let filling = Load {
            target: target(30, 64),
            mix: mix(0.0, true, false),
            warm_up: Duration::ZERO,
            measured: limit,
        };
        filling.run(&[])?;
        let load = Load {
            target: target(self.connections as usize, self.outstanding as usize),
            mix: mix(self.reads, false, self.history.is_some()),
            warm_up: self.seconds / 5,
            measured: self.seconds,
        };
        let measured = load.run(&cluster.processes)?;
        self.print(&measured, cluster.is_own());
        match &self.history {
            None => Ok(true),
            Some(path) => judge(&measured.history, path),
        }
    }

    fn print(&self, measured: &Measured, own: bool) {
        let summary = Summary {
            counted: ["operation", "operations"],
            per: "ops",
            of_calls: ["", ""],
            durability: durability(&self.durability, own),
            done: measured.operations,
            refused: measured.refused,
            latency: &measured.latency,
            seconds: measured.seconds,
            server_cpu: measured.server_cpu,
        };
        if self.output == "json" {
            return summary.print_json(serde_json::json!({
                "service": "kv", "connections": self.connections, "outstanding": self.outstanding, "reads": self.reads,
                "consistency": self.consistency, "value_bytes": self.value, "keys": self.keys,
            }));
        }
        let reads = if self.reads > 0.0 {
            format!("{:.0} % {} reads", self.reads * 100.0, self.consistency)
        } else {
            "puts".to_owned()
        };
        summary.print(&format!(
            "kv  {reads}  {} connections x {} outstanding  {} B values  {} keys",
            self.connections, self.outstanding, self.value, self.keys
        ));
    }
}

fn judge(history: &KvHistory, path: &std::path::Path) -> std::io::Result<bool> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    history.write_jsonl(&mut out)?;
    let verdict = history.check_linearizable();
    println!("history      {} calls in {}: {verdict:?}", history.len(), path.display());
    Ok(verdict.holds())
}
