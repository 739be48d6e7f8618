//! The least deployment of the store that carries a load: deduced in closed form, then held against a simulation (what the
//! compartmentalization paper leaves as future work, section 8.4).

pub mod chains;
pub mod mason;
pub mod questions;

use crate::multipaxos::{
    AcceptorLayout, Batching, Clients, Demand, MachineLayout, Model, Running, StoreDeployment, Workload,
};
use crate::profile::Profile;
use sim::cost::{Measured, Pace, Window};
use std::time::Duration;

/// A load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WantedLoad {
    /// Commands a second, of both kinds.
    pub per_second: f64,
    /// What they are.
    pub workload: Workload,
}

/// What a simulation of a deployment under the load gave.
#[derive(Clone, Debug)]
pub struct Trial<D = StoreDeployment> {
    /// What was simulated.
    pub deployment: D,
    /// Commands that arrived a second: about as many as wanted, at random.
    pub asked: f64,
    /// Commands answered a second.
    pub answered: f64,
    /// Median latency.
    pub median: Duration,
    /// The latency of which 99 % stayed within.
    pub tail: Duration,
    /// The busiest machine of each station, by share of its time.
    pub busy: Vec<(&'static str, f64)>,
}

/// A plan and its proof.
#[derive(Clone, Debug)]
pub struct CapacityPlan {
    /// The deployment.
    pub deployment: StoreDeployment,
    /// What its stations spend.
    pub model: Model,
    /// The simulation under the load.
    pub trial: Trial,
    /// The same with one machine fewer of each station that has more than a failure demands: none carries the load.
    pub smaller: Vec<(&'static str, Trial)>,
}

/// Why there is no plan.
#[derive(Clone, Debug)]
pub enum NoPlan {
    /// One machine is not enough for the leader, whatever is added elsewhere.
    Leader {
        /// What it could do.
        capacity: f64,
    },
    /// More machines of one station than are tried.
    TooMany(&'static str),
    /// The closed form and the simulation do not agree.
    Disagree(Box<Trial>),
    /// A deployment did not come up.
    Broken(String),
}

impl std::fmt::Display for NoPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Leader { capacity } => {
                write!(
                    f,
                    "one leader orders {capacity:.0} commands a second in batches of {BATCH_MAX} at most"
                )
            }
            Self::TooMany(station) => {
                write!(f, "more than {MACHINES_MAX} of one station would be needed: {station}")
            }
            Self::Disagree(trial) => write!(
                f,
                "{} machines carry it by the closed form, and answer {:.0} a second in the simulation",
                trial.deployment.machines(),
                trial.answered
            ),
            Self::Broken(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for NoPlan {}

/// The failures that a deployment survives.
pub const FAULTS: usize = 1;
const MACHINES_MAX: usize = 64;
const BATCHES: [usize; 4] = [1, 10, 50, BATCH_MAX];
const BATCH_MAX: usize = 100;
/// The stations that machines can be added to.
const SCALED: [&str; 4] = ["proxy leader", "acceptor", "replica", "batcher"];
const GRID_MAX: usize = 6;
/// A deployment whose first station would be busier is not proposed: queues would have no end.
const BUSY_MAX: f64 = 0.99;
/// A simulation carries a load if it answers this share of it.
const ANSWERED: f64 = 0.99;
const CLIENTS: usize = 400;
const REPAIRS_MAX: usize = 8;

/// A simulation lasts until so many commands have come, about.
const COMMANDS_MIN: f64 = 1_000.0;
const WARM_UP: Duration = Duration::from_millis(60);
const MEASURED_MIN: Duration = Duration::from_millis(60);
/// A slow load is simulated for so long at most.
const MEASURED_MAX: Duration = Duration::from_secs(100);

/// How long a load is simulated: long enough for `commands`, and for `least`.
fn window(per_second: f64, commands: f64, warm_up: Duration, least: Duration) -> Window {
    let wanted = Duration::from_secs_f64((commands / per_second).min(MEASURED_MAX.as_secs_f64()));
    Window { warm_up, measured: wanted.max(least) }
}

fn station(model: &Model, name: &str) -> f64 {
    model.demands.iter().find(|demand| demand.station == name).map_or(0.0, |demand| demand.nanos)
}

impl<D> Trial<D> {
    /// What a run under an open load came to; `stations` say what its hosts were for, and clients do not count.
    fn of(deployment: D, measured: &Measured, stations: &[&'static str]) -> Self {
        let mut busy: Vec<(&'static str, f64)> = Vec::new();
        for (&name, &share) in stations.iter().zip(&measured.busy) {
            match busy.iter_mut().find(|(known, _)| *known == name) {
                Some((_, most)) => *most = most.max(share),
                None if name != "clients" && name != "standby" => busy.push((name, share)),
                None => {}
            }
        }
        Self {
            deployment,
            asked: measured.asked as f64 / measured.seconds,
            answered: measured.throughput(),
            median: measured.latency(0.5),
            tail: measured.latency(0.99),
            busy,
        }
    }

    /// The station whose busiest machine has least time left.
    fn busiest(&self) -> &'static str {
        self.busy.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("nobody", |&(name, _)| name)
    }

    /// True if what arrived was answered, and did not queue up.
    pub fn carries(&self) -> bool {
        self.answered >= ANSWERED * self.asked
    }
}

impl WantedLoad {
    /// How busy a station is that spends so much on a command.
    fn busy(&self, demand: &Demand) -> f64 {
        demand.nanos * self.per_second / 1e9
    }

    /// The least deployment, with its proof.
    ///
    /// # Errors
    /// If nothing of a sensible size carries the load.
    pub fn plan(&self, profile: &Profile) -> Result<CapacityPlan, NoPlan> {
        let mut deployment = self.deduce(profile)?;
        let mut trial = self.simulate(&deployment, profile)?;
        let mut repairs = 0;
        while !trial.carries() {
            // The closed form has no bursts and no queues; it is a first guess where those count.
            repairs += 1;
            let station = trial.busiest();
            match with_more(&deployment, station, 1).filter(|_| repairs <= REPAIRS_MAX) {
                Some(larger) => deployment = larger,
                None if SCALED.contains(&station) && repairs <= REPAIRS_MAX => {
                    return Err(NoPlan::TooMany(station));
                }
                None => return Err(NoPlan::Disagree(Box::new(trial))),
            }
            trial = self.simulate(&deployment, profile)?;
        }
        let mut smaller = Vec::new();
        'shrink: loop {
            smaller.clear();
            for name in SCALED {
                let Some(fewer) = with_more(&deployment, name, -1) else { continue };
                let tried = self.simulate(&fewer, profile)?;
                if tried.carries() {
                    (deployment, trial) = (fewer, tried);
                    continue 'shrink;
                }
                smaller.push((name, tried));
            }
            break;
        }
        let model = Model::of(&deployment, profile, &self.workload);
        Ok(CapacityPlan { deployment, model, trial, smaller })
    }

    /// The fewest machines by the closed form; of equals, the smaller batches.
    fn deduce(&self, profile: &Profile) -> Result<StoreDeployment, NoPlan> {
        let mut best: Option<StoreDeployment> = None;
        let (mut leader, mut lacking) = (0.0_f64, None);
        for commands in BATCHES.into_iter().filter(|&commands| self.workload.fits(commands)) {
            let batching = Batching::of(commands);
            for acceptors in quorums() {
                for replicas in FAULTS + 1..=MACHINES_MAX {
                    let of = |proxy_leaders, batchers| StoreDeployment {
                        shape: MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas },
                        clients: Clients::Connect { batchers },
                        batching,
                    };
                    // What one machine of each would spend; both are shared out evenly.
                    let one = Model::of(&of(1, 1), profile, &self.workload);
                    let spent = |name| station(&one, name) * self.per_second / 1e9 / BUSY_MAX;
                    leader = leader.max(1e9 / station(&one, "leader"));
                    if spent("leader") > 1.0 {
                        lacking = lacking.or(Some("leader"));
                        break;
                    }
                    if spent("acceptor") > 1.0 {
                        lacking = Some("acceptor");
                        break;
                    }
                    if spent("replica") > 1.0 {
                        lacking = Some("replica");
                        continue;
                    }
                    let needed = |name| (spent(name).ceil() as usize).max(FAULTS + 1);
                    let found = of(needed("proxy leader"), needed("batcher"));
                    if best.is_none_or(|best| found.machines() < best.machines()) {
                        best = Some(found);
                    }
                    break;
                }
            }
        }
        best.ok_or(match lacking {
            Some("leader") | None => NoPlan::Leader { capacity: leader },
            Some(station) => NoPlan::TooMany(station),
        })
    }

    fn simulate(&self, deployment: &StoreDeployment, profile: &Profile) -> Result<Trial, NoPlan> {
        let started = Running::start(deployment, profile, &self.workload, CLIENTS, 1);
        let mut running: Running = started.map_err(|error| NoPlan::Broken(error.to_string()))?;
        let clients = running.clients.clone();
        let window = window(self.per_second, COMMANDS_MIN, WARM_UP, MEASURED_MIN);
        let pace = Pace::Open { per_second: self.per_second };
        let measured = running.testbed.run(&clients, pace, &mut self.workload.clone(), window);
        Ok(Trial::of(*deployment, &measured, &running.stations))
    }

    /// How busy each station is by the closed form.
    pub fn busy_by_hand(&self, plan: &CapacityPlan) -> Vec<(Demand, f64)> {
        plan.model.demands.iter().map(|demand| (*demand, self.busy(demand))).collect()
    }
}

/// Who may vote, from few to many.
fn quorums() -> Vec<AcceptorLayout> {
    let grids = (2..=GRID_MAX)
        .flat_map(|rows| (2..=GRID_MAX).map(move |columns| AcceptorLayout::Grid { rows, columns }));
    let mut all: Vec<AcceptorLayout> =
        std::iter::once(AcceptorLayout::Majority(2 * FAULTS + 1)).chain(grids).collect();
    all.sort_by_key(|acceptors| acceptors.count());
    all
}

/// One machine more or fewer of a station; none where that is not possible, or a failure would not be survived.
fn with_more(deployment: &StoreDeployment, station: &str, more: isize) -> Option<StoreDeployment> {
    let MachineLayout::Compartmentalized { mut proxy_leaders, mut acceptors, mut replicas } =
        deployment.shape
    else {
        return None;
    };
    let mut clients = deployment.clients;
    let changed = |count: usize| {
        count.checked_add_signed(more).filter(|&count| count > FAULTS && count <= MACHINES_MAX)
    };
    match (station, clients) {
        ("proxy leader", _) => proxy_leaders = changed(proxy_leaders)?,
        ("replica", _) => replicas = changed(replicas)?,
        ("batcher", Clients::Connect { batchers }) => {
            clients = Clients::Connect { batchers: changed(batchers)? };
        }
        // A grid loses or gains a row or a column, whatever is the smaller step.
        ("acceptor", _) => {
            let all = quorums();
            let count = acceptors.count();
            let next = if more < 0 {
                all.iter().rev().find(|other| other.count() < count)
            } else {
                all.iter().find(|other| other.count() > count)
            };
            acceptors = *next?;
        }
        _ => return None,
    }
    let shape = MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas };
    Some(StoreDeployment { shape, clients, ..*deployment })
}
