//! The least deployment of a service over Mason that carries a load: found by simulating, larger and smaller.

use super::{MACHINES_MAX, REPAIRS_MAX, Trial};
use crate::ordering::{self, Asks, NotReady};
use crate::profile::Profile;
use crate::services::{self, Operations, OrderedService};
use crate::step::PricedStep;
use sim::cost::{Measured, Pace, Window};
use std::time::Duration;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhatIsOrdered {
    /// Numbers, of each of so many spaces at once.
    Sequence {
        /// Spaces.
        spaces: u16,
    },
    /// Operations that shards execute, each in one shard, of so many bytes: writes of the coordination service.
    Operations {
        /// Bytes of an operation.
        bytes: usize,
    },
}

/// A load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OrderingLoad {
    /// Operations a second.
    pub per_second: f64,
    /// What they are.
    pub ordered: WhatIsOrdered,
}

/// Machines of one kind each; a failure is survived by each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Machines of leading proxies, each with two machines of followers; eight threads each.
    pub leader_machines: usize,
    /// Shards, each of three servers with a thread; none where nothing is executed.
    pub shards: usize,
}

/// A plan and its proof.
#[derive(Clone, Debug)]
pub struct OrderingPlan {
    /// The deployment.
    pub size: Size,
    /// The simulation under the load.
    pub trial: Trial<Size>,
    /// The same with one machine of leaders (and its followers), or one shard, fewer: none carries the load.
    pub smaller: Vec<(&'static str, Trial<Size>)>,
}

/// Why there is no plan.
#[derive(Clone, Debug)]
pub enum NoOrderingPlan {
    /// The profile does not say what a step costs.
    Unpriced(PricedStep),
    /// More machines of one kind than are tried.
    TooMany(Box<Trial<Size>>),
    /// A deployment did not come up.
    Broken(NotReady),
}

impl std::fmt::Display for NoOrderingPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unpriced(step) => write!(f, "the profile does not say what {} costs", step.name()),
            Self::TooMany(trial) => {
                write!(f, "with {:?} it answers {:.0} a second", trial.deployment, trial.answered)
            }
            Self::Broken(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for NoOrderingPlan {}

/// Clients' threads for each machine of leaders: two a leader.
const CLIENTS_PER_LEADERS: usize = 16;
const MEMBERS: usize = 3;
/// Operations of a trial, about: as many as make chance a matter of less than a hundredth.
const OPERATIONS: f64 = 40_000.0;
const MEASURED_MIN: Duration = Duration::from_millis(3);
/// Operations of a trial of a slow load.
const OPERATIONS_MIN: f64 = 400.0;
const WARM_UP: Duration = Duration::from_millis(4);
/// Calls of each client's thread that keep a deployment saturated.
const SATURATING: u32 = 64;

impl Size {
    /// Machines, the sequencer's and one that waits for it included.
    pub fn machines(&self) -> usize {
        MEMBERS * (self.leader_machines + self.shards) + 2
    }

    fn with(self, station: &str, more: isize) -> Option<Size> {
        let changed =
            |count: usize| count.checked_add_signed(more).filter(|count| (1..=MACHINES_MAX).contains(count));
        let size = match station {
            "shard server" if self.shards > 0 => Size { shards: changed(self.shards)?, ..self },
            "shard server" => return None,
            _ => Size { leader_machines: changed(self.leader_machines)?, ..self },
        };
        Some(size)
    }
}

impl OrderingLoad {
    /// The least deployment, with its proof.
    ///
    /// # Errors
    /// If nothing of a sensible size carries the load, or the profile knows nothing of Mason.
    pub fn plan(&self, profile: &Profile) -> Result<OrderingPlan, NoOrderingPlan> {
        let needed =
            [PricedStep::ProxySubmit, PricedStep::Allocate, PricedStep::ChosenEntry, PricedStep::Deliver];
        if let Some(&step) = needed.iter().find(|step| !profile.handle.contains_key(step.name())) {
            return Err(NoOrderingPlan::Unpriced(step));
        }
        let mut size = self.guess(profile)?;
        let mut trial = self.simulate(size, profile)?;
        let mut repairs = 0;
        while !trial.carries() {
            repairs += 1;
            // The sequencer cannot be added to; more proxies ask it in larger batches.
            let larger = size.with(trial.busiest(), 1).filter(|_| repairs <= REPAIRS_MAX);
            size = larger.ok_or_else(|| NoOrderingPlan::TooMany(Box::new(trial.clone())))?;
            trial = self.simulate(size, profile)?;
        }
        let mut smaller = Vec::new();
        'shrink: loop {
            smaller.clear();
            for station in ["proxy leader", "shard server"] {
                let Some(fewer) = size.with(station, -1) else { continue };
                let tried = self.simulate(fewer, profile)?;
                if tried.carries() {
                    (size, trial) = (fewer, tried);
                    continue 'shrink;
                }
                smaller.push((station, tried));
            }
            break;
        }
        Ok(OrderingPlan { size, trial, smaller })
    }

    /// As many machines as one of each kind, saturated, says.
    fn guess(&self, profile: &Profile) -> Result<Size, NoOrderingPlan> {
        let one = Size { leader_machines: 1, shards: usize::from(self.executes()) };
        let window = Window { warm_up: WARM_UP, measured: MEASURED_MIN };
        let (measured, stations) =
            self.run(one, profile, Pace::Closed { outstanding: SATURATING }, window)?;
        let trial = Trial::of(one, &measured, &stations);
        let of_one = |station: &str| {
            let busy = trial.busy.iter().find(|(name, _)| *name == station);
            // What it would do if it had nothing else to wait for.
            busy.map_or(0.0, |(_, share)| self.per_second * share / trial.answered.max(1.0))
        };
        let count = |station: &str| (of_one(station).ceil() as usize).clamp(1, MACHINES_MAX);
        let shards = if self.executes() { count("shard server") } else { 0 };
        Ok(Size { leader_machines: count("proxy leader"), shards })
    }

    fn executes(&self) -> bool {
        matches!(self.ordered, WhatIsOrdered::Operations { .. })
    }

    fn simulate(&self, size: Size, profile: &Profile) -> Result<Trial<Size>, NoOrderingPlan> {
        // Beyond a quarter of a second only what is needed to have any operations.
        let operations = OPERATIONS.min(self.per_second / 4.0).max(OPERATIONS_MIN);
        let window = super::window(self.per_second, operations, WARM_UP, MEASURED_MIN);
        let (measured, stations) =
            self.run(size, profile, Pace::Open { per_second: self.per_second }, window)?;
        Ok(Trial::of(size, &measured, &stations))
    }

    fn run(
        &self,
        size: Size,
        profile: &Profile,
        pace: Pace,
        window: Window,
    ) -> Result<(Measured, Vec<&'static str>), NoOrderingPlan> {
        let clients = size.leader_machines * CLIENTS_PER_LEADERS;
        match self.ordered {
            WhatIsOrdered::Sequence { spaces } => {
                let deployment =
                    ordering::OrderingDeployment::new(size.leader_machines * MEMBERS, spaces, clients);
                let mut running =
                    ordering::Running::start(&deployment, profile, 1).map_err(NoOrderingPlan::Broken)?;
                let nodes = running.clients.clone();
                let measured = running.testbed.run(&nodes, pace, &mut Asks::of_all(spaces), window);
                Ok((measured, running.stations))
            }
            WhatIsOrdered::Operations { bytes } => {
                let shards = size.shards as u16;
                let service = OrderedService::Shards { shards };
                let deployment =
                    services::ServiceDeployment { service, leader_machines: size.leader_machines, clients };
                let mut running = deployment.start(profile, 1).map_err(NoOrderingPlan::Broken)?;
                let nodes = running.clients.clone();
                let mut load = Operations::over(shards, bytes);
                let measured = running.testbed.run(&nodes, pace, &mut load, window);
                Ok((measured, running.stations))
            }
        }
    }
}
