//! `ordinate plan`: the least deployment that carries a load, of the store, of a service over Mason, or of the partially ordered log.

use super::output::{GivenOutput, Output};
use crate::failure::Failure;
use bench::multipaxos::{AcceptorLayout, Clients, Demand, MachineLayout, StoreDeployment, Workload};
use bench::plan::{CapacityPlan as Planned, FAULTS, Trial, WantedLoad, chains, mason};
use bench::{Profile, figures::Unit};
use paxos::Level;
use serde_json::{Map, Value, json};

/// Deduce the least deployment that carries a load, and simulate it
///
/// Of the key-value store with --writes and --reads; of the sequence with --numbers; of the coordination service over Mason with
/// --operations; of the partially ordered log with --appends.
#[derive(clap::Args)]
pub struct Plan {
    /// Writes a second: 800k/s, 1.2M/s, 50000
    #[arg(long, default_value = "0", value_parser = rate)]
    writes: f64,
    /// Reads a second
    #[arg(long, default_value = "0", value_parser = rate)]
    reads: f64,
    /// Multi-sequence numbers a second, of the sequence
    #[arg(long, value_parser = rate, conflicts_with_all = ["writes", "reads", "operations"])]
    numbers: Option<f64>,
    /// Spaces that each multi-sequence number is of
    #[arg(long, default_value_t = 1, requires = "numbers", value_parser = clap::value_parser!(u16).range(1..=64))]
    spaces: u16,
    /// Writes a second of the coordination service, each executed by one shard
    #[arg(long, value_parser = rate, conflicts_with_all = ["writes", "reads"])]
    operations: Option<f64>,
    /// Appends a second of the partially ordered log
    #[arg(long, value_parser = rate, conflicts_with_all = ["writes", "reads", "operations", "numbers"])]
    appends: Option<f64>,
    /// Percent of the appends that go to two colours
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "appends",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    two_colours: u8,
    /// Freshness of reads
    #[arg(long, default_value = "linearizable", value_parser = ["linearizable", "sequential", "eventual"])]
    consistency: String,
    /// Bytes of a value
    #[arg(long, default_value_t = 16, value_parser = value)]
    value: usize,
    /// What machines cost: a name, or a file that ordinate calibrate wrote [default: m5.xlarge; d430 for services over Mason; c4.2xlarge for appends]
    #[arg(long, value_name = "NAME|FILE")]
    machines: Option<String>,
    #[command(flatten)]
    output: GivenOutput,
}

/// Nobody asks for more, and counts stay exact.
const RATE_MAX: f64 = 1e9;

fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, unit) = match number.chars().last() {
        Some('k' | 'K') => (&number[..number.len() - 1], 1e3),
        Some('M') => (&number[..number.len() - 1], 1e6),
        _ => (number, 1.0),
    };
    let rate = number.parse::<f64>().ok().map(|number| number * unit);
    rate.filter(|rate| (0.0..=RATE_MAX).contains(rate))
        .ok_or_else(|| "wanted: 50000, 800k/s, 1.2M/s".to_owned())
}

fn value(text: &str) -> Result<usize, String> {
    let bytes = text.parse().map_err(|_| "not a number of bytes".to_owned())?;
    if bytes <= kv::VALUE_BYTES_MAX { Ok(bytes) } else { Err(format!("at most {}", kv::VALUE_BYTES_MAX)) }
}

impl Plan {
    /// Runs and prints.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(per_second) = self.appends.filter(|appends| *appends >= 1.0) {
            return self.plan_chains(per_second);
        }
        let ordered = match (self.numbers, self.operations) {
            (Some(per_second), _) => {
                Some((per_second, mason::WhatIsOrdered::Sequence { spaces: self.spaces }))
            }
            (_, Some(per_second)) => {
                Some((per_second, mason::WhatIsOrdered::Operations { bytes: self.value }))
            }
            (None, None) => None,
        };
        let per_second = ordered.map_or(self.writes + self.reads, |(per_second, _)| per_second);
        if per_second < 1.0 {
            let remedy = "ordinate plan --writes 800k/s --value 16";
            return Err(Failure::input("O8003", "no load is given", "neither writes nor reads", remedy));
        }
        let profile = self.profile(if ordered.is_some() { "d430" } else { "m5.xlarge" })?;
        match ordered {
            Some((per_second, ordered)) => {
                let wanted = mason::OrderingLoad { per_second, ordered };
                let plan = wanted.plan(&profile).map_err(|error| none(&error))?;
                match self.output.0 {
                    Output::Table => print_ordered(&wanted, &profile, &plan),
                    Output::Json => println!("{}", ordered_as_json(&plan)),
                }
            }
            None => self.plan_store(per_second, &profile)?,
        }
        Ok(())
    }

    fn profile(&self, usual: &str) -> Result<Profile, Failure> {
        let name = self.machines.as_deref().unwrap_or(usual);
        Profile::find(name).map_err(|error| {
            let what = format!("{name} is no profile");
            Failure::input("O8004", what, error.to_string(), "ordinate calibrate --out machine.toml")
        })
    }

    fn plan_chains(&self, per_second: f64) -> Result<(), Failure> {
        let in_two = f64::from(self.two_colours) / 100.0;
        let wanted = chains::AppendLoad { per_second, bytes: self.value, in_two };
        let profile = self.profile("c4.2xlarge")?;
        let plan = wanted.plan(&profile).map_err(|error| none(&error))?;
        match self.output.0 {
            Output::Table => print_chains(&wanted, &profile, &plan),
            Output::Json => println!("{}", chains_as_json(&plan)),
        }
        Ok(())
    }

    fn plan_store(&self, per_second: f64, profile: &Profile) -> Result<(), Failure> {
        let level = match self.consistency.as_str() {
            "sequential" => Level::Sequential,
            "eventual" => Level::Eventual,
            _ => Level::Linearizable,
        };
        let workload = Workload::writes(self.value).with_reads(self.reads / per_second, level);
        let wanted = WantedLoad { per_second, workload };
        let plan = wanted.plan(profile).map_err(|error| none(&error))?;
        match self.output.0 {
            Output::Table => self.print(&wanted, profile, &plan),
            Output::Json => println!("{}", store_as_json(&wanted, &plan)),
        }
        Ok(())
    }

    fn print(&self, wanted: &WantedLoad, profile: &Profile, plan: &Planned) {
        let rate = |rate: f64| Unit::PerSecond.write(rate.round());
        let Planned { deployment, model, trial, smaller } = plan;
        println!(
            "{}/s writes, {}/s {} reads, {} B values, on {} machines",
            rate(self.writes),
            rate(self.reads),
            self.consistency,
            self.value,
            profile.name
        );
        println!("  {}", profile.about);
        let batching = match deployment.batching.commands {
            1 => "each command in a slot of its own".to_owned(),
            commands => format!("batches of {commands}, or what came in {:?}", deployment.batching.delay),
        };
        println!("  {} machines survive {FAULTS} failure; {batching}", deployment.machines());
        println!("  {:14} {:>8}   {:>12} {:>12}", "", "machines", "busy by hand", "simulated");
        for (demand, busy) in wanted.busy_by_hand(plan) {
            let simulated = trial.busy.iter().find(|(name, _)| *name == demand.station);
            let note = match (demand.station, deployment.shape) {
                ("leader", _) => "  and one that waits",
                ("batcher", _) => "  each with an unbatcher: clients connect here",
                (
                    "acceptor",
                    MachineLayout::Compartmentalized { acceptors: AcceptorLayout::Grid { .. }, .. },
                ) => "  in a grid",
                _ => "",
            };
            println!(
                "  {:14} {:>8}   {:>11.0}% {:>11.0}%{note}{}",
                demand.station,
                demand.machines,
                busy * 100.0,
                simulated.map_or(0.0, |(_, busy)| busy * 100.0),
                grid(deployment, demand.station),
            );
        }
        let bottleneck = model.bottleneck();
        println!(
            "  bottleneck     {}: none of its time is left at {}/s",
            bottleneck.station,
            rate(model.capacity())
        );
        println!("  simulated      {}", words(trial));
        if smaller.is_empty() {
            println!("  fewer          every station is as small as {FAULTS} failure allows");
        }
        for (station, trial) in smaller {
            let count = count(&trial.deployment, station);
            println!("  fewer          {count} of {station}: {}", words(trial));
        }
    }
}

fn store_as_json(wanted: &WantedLoad, plan: &Planned) -> Value {
    let Planned { deployment, model, trial, smaller } = plan;
    let station = |(demand, busy): (Demand, f64)| {
        let simulated = trial.busy.iter().find(|(name, _)| *name == demand.station).map(|(_, busy)| *busy);
        json!({ "station": demand.station, "machines": demand.machines, "busy": busy, "busy_simulated": simulated })
    };
    let stations: Vec<Value> = wanted.busy_by_hand(plan).into_iter().map(station).collect();
    let fewer = smaller.iter().map(|(station, trial)| {
        json!({ "station": station, "machines": count(&trial.deployment, station), "trial": trial_as_json(trial) })
    });
    json!({ "machines": deployment.machines(), "batch": deployment.batching.commands, "stations": stations,
        "bottleneck": model.bottleneck().station, "capacity_per_second": model.capacity(),
        "trial": trial_as_json(trial), "fewer": fewer.collect::<Vec<_>>() })
}

fn ordered_as_json(plan: &mason::OrderingPlan) -> Value {
    let mason::OrderingPlan { size, trial, smaller } = plan;
    let busy = trial.busy.iter().map(|(name, busy)| ((*name).to_owned(), json!(busy)));
    let fewer = smaller.iter().map(|(station, trial)| {
        json!({ "station": station, "leader_machines": trial.deployment.leader_machines,
            "shards": trial.deployment.shards, "trial": trial_as_json(trial) })
    });
    json!({ "machines": size.machines(), "leader_machines": size.leader_machines, "shards": size.shards,
        "busy_simulated": busy.collect::<Map<String, Value>>(), "trial": trial_as_json(trial),
        "fewer": fewer.collect::<Vec<_>>() })
}

fn chains_as_json(plan: &chains::AppendPlan) -> Value {
    let chains::AppendPlan { size, trial, smaller } = plan;
    let busy = trial.busy.iter().map(|(name, busy)| ((*name).to_owned(), json!(busy)));
    json!({ "machines": size.machines(), "partitions": size.partitions,
        "busy_simulated": busy.collect::<Map<String, Value>>(), "trial": trial_as_json(trial),
        "fewer": smaller.as_ref().map(|trial| json!({ "partitions": trial.deployment.partitions, "trial": trial_as_json(trial) })) })
}

fn trial_as_json<D>(trial: &Trial<D>) -> Value {
    json!({ "carries": trial.carries(), "asked_per_second": trial.asked, "answered_per_second": trial.answered,
        "median_ms": trial.median.as_secs_f64() * 1e3, "p99_ms": trial.tail.as_secs_f64() * 1e3 })
}

fn none(error: &dyn std::error::Error) -> Failure {
    let remedy = "ordinate plan with a smaller load, or with the profile of a faster machine";
    Failure::failed("O8005", "no deployment carries this load", error.to_string(), remedy)
}

fn print_ordered(wanted: &mason::OrderingLoad, profile: &Profile, plan: &mason::OrderingPlan) {
    let rate = Unit::PerSecond.write(wanted.per_second.round());
    match wanted.ordered {
        mason::WhatIsOrdered::Sequence { spaces } => {
            println!(
                "{rate}/s numbers of {spaces} space{}, on {} machines",
                plural(spaces.into()),
                profile.name
            );
        }
        mason::WhatIsOrdered::Operations { bytes } => {
            println!("{rate}/s operations of {bytes} B over Mason, on {} machines", profile.name);
        }
    }
    println!("  {}", profile.about);
    let mason::OrderingPlan { size, trial, smaller } = plan;
    println!("  {} machines survive {FAULTS} failure of each kind", size.machines());
    println!("  {:14} {:>8}   {:>12}", "", "machines", "simulated");
    let rows = [
        ("sequencer", 1, "  and one that waits"),
        ("proxy leader", size.leader_machines, "  of 8 leaders each"),
        ("proxy follower", 2 * size.leader_machines, ""),
        ("shard server", 3 * size.shards, "  of one shard each"),
    ];
    for (station, machines, note) in rows.into_iter().filter(|(_, machines, _)| *machines > 0) {
        let busy = trial.busy.iter().find(|(name, _)| *name == station).map_or(0.0, |(_, busy)| *busy);
        println!("  {station:14} {machines:>8}   {:>11.0}%{note}", busy * 100.0);
    }
    println!("  simulated      {}", words(trial));
    if smaller.is_empty() {
        println!("  fewer          there is one of each kind");
    }
    for (station, trial) in smaller {
        let what = match *station {
            "shard server" => format!("{} shard{}", trial.deployment.shards, plural(trial.deployment.shards)),
            _ => {
                let count = trial.deployment.leader_machines;
                format!("{count} machine{} of proxy leaders", plural(count))
            }
        };
        println!("  fewer          {what}: {}", words(trial));
    }
}

fn print_chains(wanted: &chains::AppendLoad, profile: &Profile, plan: &chains::AppendPlan) {
    let chains::AppendPlan { size, trial, smaller } = plan;
    println!(
        "{}/s appends of {} B, {:.0} % of them to two colours, on {} machines",
        Unit::PerSecond.write(wanted.per_second.round()),
        wanted.bytes,
        wanted.in_two * 100.0,
        profile.name
    );
    println!("  {}", profile.about);
    println!("  {} machines survive {FAULTS} failure of each chain", size.machines());
    println!("  {:14} {:>8}   {:>12}", "", "machines", "simulated");
    let servers = 2 * usize::from(size.partitions);
    for (station, machines, note) in
        [("director", 3, ""), ("server", servers, "  two a partition; the busiest is each head")]
    {
        let busy = trial.busy.iter().find(|(name, _)| *name == station).map_or(0.0, |(_, busy)| *busy);
        println!("  {station:14} {machines:>8}   {:>11.0}%{note}", busy * 100.0);
    }
    println!("  simulated      {}", words(trial));
    match smaller {
        None => println!("  fewer          there is one partition"),
        Some(trial) => {
            let partitions = trial.deployment.partitions;
            println!(
                "  fewer          {partitions} partition{}: {}",
                plural(partitions.into()),
                words(trial)
            );
        }
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn words<D>(trial: &Trial<D>) -> String {
    let rate = |rate: f64| Unit::PerSecond.write(rate.round());
    let verdict = if trial.carries() { "carries it" } else { "does not carry it" };
    format!(
        "{verdict}: {}/s of {}/s answered, median {:.2} ms, 99 % within {:.2} ms",
        rate(trial.answered),
        rate(trial.asked),
        trial.median.as_secs_f64() * 1e3,
        trial.tail.as_secs_f64() * 1e3
    )
}

fn count(deployment: &StoreDeployment, station: &str) -> usize {
    match (deployment.shape, deployment.clients, station) {
        (MachineLayout::Compartmentalized { proxy_leaders, .. }, _, "proxy leader") => proxy_leaders,
        (MachineLayout::Compartmentalized { acceptors, .. }, _, "acceptor") => acceptors.count(),
        (MachineLayout::Compartmentalized { replicas, .. }, _, "replica") => replicas,
        (_, Clients::Connect { batchers }, "batcher") => batchers,
        _ => 1,
    }
}

fn grid(deployment: &StoreDeployment, station: &str) -> String {
    match (deployment.shape, station) {
        (
            MachineLayout::Compartmentalized { acceptors: AcceptorLayout::Grid { rows, columns }, .. },
            "acceptor",
        ) => {
            format!(" of {rows} rows and {columns} columns")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    // A rate read wrongly by a thousand plans for nothing.
    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!(rate("800k/s"), Ok(800_000.0));
        assert_eq!(rate("1.2M"), Ok(1_200_000.0));
        assert_eq!(rate("50"), Ok(50.0));
        assert!(rate("-1").is_err() && rate("many").is_err() && rate("NaN").is_err());
    }
}
