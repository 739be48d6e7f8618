//! What a run of calls came to, as it is printed.

use hdrhistogram::Histogram;
use serde_json::Value;
use std::time::Duration;

/// What a run came to.
pub(super) struct Summary<'a> {
    /// What is counted, one and many of it.
    pub(super) counted: [&'static str; 2],
    /// As in a rate.
    pub(super) per: &'static str,
    /// What is refused, and what has a latency, in words behind the numbers.
    pub(super) of_calls: [&'static str; 2],
    /// What an acknowledgement promises.
    pub(super) durability: &'a str,
    /// How many were done.
    pub(super) done: u64,
    /// How many calls were refused.
    pub(super) refused: u64,
    /// Nanoseconds.
    pub(super) latency: &'a Histogram<u64>,
    /// How long it was measured.
    pub(super) seconds: f64,
    /// What the servers used, if it is known which they are.
    pub(super) server_cpu: Option<Duration>,
}

/// What an acknowledgement promises: of a cluster that is not the command's own, nobody here knows.
pub(super) fn durability(of_own: &str, is_own: bool) -> &str {
    if is_own { of_own } else { "as the cluster says (ordinate status)" }
}

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

impl Summary<'_> {
    fn micros(&self) -> [f64; 3] {
        QUANTILES.map(|quantile| self.latency.value_at_quantile(quantile) as f64 / 1000.0)
    }

    fn cpu(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.done.max(1) as f64)
    }

    /// Prints lines, the first one given.
    pub(super) fn print(&self, head: &str) {
        let Self { counted: [one, many], per, of_calls: [refused_what, latency_of], .. } = self;
        let [p50, p99, p999] = self.micros();
        println!("{head}");
        println!("durability   {}", self.durability);
        println!(
            "throughput   {:.0} {per}/s   ({} {many} in {:.1} s, {}{refused_what} refused)",
            self.done as f64 / self.seconds,
            self.done,
            self.seconds,
            self.refused
        );
        println!("latency      p50 {p50:.0} us   p99 {p99:.0} us   p99.9 {p999:.0} us{latency_of}");
        match self.cpu() {
            Some(cpu) => println!("server CPU   {cpu:.2} us per {one}, all hosts together"),
            None => println!("server CPU   not measured: the hosts are not this command's own"),
        }
    }

    /// Prints an object: what was asked for, and what it came to.
    pub(super) fn print_json(&self, mut asked: Value) {
        let [p50, p99, p999] = self.micros();
        let found = serde_json::json!({
            "durability": self.durability, "seconds": self.seconds, "operations": self.done, "refused": self.refused,
            "ops_per_second": self.done as f64 / self.seconds, "p50_us": p50, "p99_us": p99, "p999_us": p999,
            "server_cpu_us_per_op": self.cpu(),
        });
        if let (Some(asked), Value::Object(found)) = (asked.as_object_mut(), found) {
            asked.extend(found);
        }
        println!("{asked}");
    }
}
