//! The questions that the page of figures answers, and its table of answers.

use super::{FAULTS, Trial, WantedLoad, chains, mason};
use crate::figures::{RunWatch, Table, Unit, rows};
use crate::multipaxos::{Clients, MachineLayout, StoreDeployment, Workload};
use crate::profile::Profile;
use paxos::Level;

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct PlanQuestion {
    /// What follows `ordinate plan`.
    pub arguments: &'static str,
    asked: Asked,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Store(WantedLoad),
    Mason(mason::OrderingLoad),
    Chains(chains::AppendLoad),
}

/// All questions of the page.
pub fn questions() -> Vec<PlanQuestion> {
    let store = |arguments, writes: f64, reads: f64, value_bytes| {
        let per_second = writes + reads;
        let workload = Workload::writes(value_bytes).with_reads(reads / per_second, Level::Linearizable);
        PlanQuestion { arguments, asked: Asked::Store(WantedLoad { per_second, workload }) }
    };
    let over_mason = |arguments, per_second, ordered| PlanQuestion {
        arguments,
        asked: Asked::Mason(mason::OrderingLoad { per_second, ordered }),
    };
    let over_chains = |arguments, per_second, in_two| PlanQuestion {
        arguments,
        asked: Asked::Chains(chains::AppendLoad { per_second, bytes: 16, in_two }),
    };
    vec![
        store("--writes 800k/s", 800e3, 0.0, 16),
        store("--writes 50k/s --reads 450k/s", 50e3, 450e3, 16),
        store("--writes 20k/s --reads 2M/s", 20e3, 2e6, 16),
        store("--writes 120k/s", 120e3, 0.0, 16),
        store("--writes 120k/s --value 3300", 120e3, 0.0, 3_300),
        store("--reads 2M/s", 0.0, 2e6, 16),
        over_mason("--numbers 5M/s --spaces 4", 5e6, mason::WhatIsOrdered::Sequence { spaces: 4 }),
        over_mason("--operations 2M/s --value 64", 2e6, mason::WhatIsOrdered::Operations { bytes: 64 }),
        over_chains("--appends 3M/s", 3e6, 0.0),
        over_chains("--appends 3M/s --two-colours 10", 3e6, 0.1),
    ]
}

/// The answers, as a table of the page.
///
/// # Errors
/// If a question has no answer.
pub fn answers(watch: &RunWatch<'_>) -> Result<String, String> {
    let heads = ["`ordinate plan`", "machines", "more than a failure demands", "simulated", "one fewer"];
    let answers = watch.each(&questions(), PlanQuestion::answer);
    let table = Table {
        title: String::new(),
        heads: heads.map(str::to_owned).to_vec(),
        rows: answers.into_iter().collect::<Result<_, _>>()?,
    };
    Ok(rows(&table))
}

impl PlanQuestion {
    fn answer(&self) -> Result<Vec<String>, String> {
        let asked = format!("`{}`", self.arguments);
        match self.asked {
            Asked::Store(wanted) => {
                let plan = wanted.plan(&Profile::m5_xlarge()).map_err(|error| error.to_string())?;
                let (machines, stations) = (plan.deployment.machines(), of_the_store(&plan.deployment));
                Ok(row(asked, machines, stations, &plan.trial, &plan.smaller))
            }
            Asked::Mason(wanted) => {
                let plan = wanted.plan(&Profile::d430()).map_err(|error| error.to_string())?;
                Ok(row(asked, plan.size.machines(), of_mason(plan.size), &plan.trial, &plan.smaller))
            }
            Asked::Chains(wanted) => {
                let plan = wanted.plan(&Profile::c4_2xlarge()).map_err(|error| error.to_string())?;
                let stations = format!("{} partitions, chains of two", plan.size.partitions);
                let smaller: Vec<_> = plan.smaller.into_iter().map(|trial| ("partition", trial)).collect();
                Ok(row(asked, plan.size.machines(), stations, &plan.trial, &smaller))
            }
        }
    }
}

fn row<D>(
    asked: String,
    machines: usize,
    stations: String,
    trial: &Trial<D>,
    smaller: &[(&'static str, Trial<D>)],
) -> Vec<String> {
    let busiest = trial.busy.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let busiest =
        busiest.map_or(String::new(), |(name, share)| format!(", {name} {:.0} % busy", share * 100.0));
    let simulated = format!("all answered, median {:.1} ms{busiest}", trial.median.as_secs_f64() * 1e3);
    let fewer: Vec<String> = smaller
        .iter()
        .map(|(station, trial)| format!("{station}: {}/s of {}/s", rate(trial.answered), rate(trial.asked)))
        .collect();
    let fewer = if fewer.is_empty() { "one failure would stop it".to_owned() } else { fewer.join("; ") };
    vec![asked, machines.to_string(), stations, simulated, fewer]
}

fn rate(rate: f64) -> String {
    Unit::PerSecond.write((rate / 1e3).round() * 1e3)
}

fn of_the_store(deployment: &StoreDeployment) -> String {
    let mut stations = Vec::new();
    let mut add = |count: usize, least: usize, name: &str| {
        if count > least {
            stations.push(format!("{count} {name}"));
        }
    };
    if let Clients::Connect { batchers } = deployment.clients {
        add(batchers, FAULTS + 1, "batchers");
    }
    if let MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas } = deployment.shape {
        add(proxy_leaders, FAULTS + 1, "proxy leaders");
        add(acceptors.count(), 2 * FAULTS + 1, "acceptors");
        add(replicas, FAULTS + 1, "replicas");
    }
    match deployment.batching.commands {
        1 => stations.push("no batches".to_owned()),
        commands => stations.push(format!("batches of {commands}")),
    }
    stations.join(", ")
}

fn of_mason(size: mason::Size) -> String {
    let leaders = format!("{} of 8 leading proxies each", size.leader_machines);
    if size.shards == 0 { leaders } else { format!("{leaders}, {} shards", size.shards) }
}
