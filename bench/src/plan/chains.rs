//! The least partially ordered log that carries appends: found by simulating, with more partitions and fewer.

use super::{MACHINES_MAX, REPAIRS_MAX, Trial};
use crate::chains::{ChainDeployment, ChainsNotReady, ColourLoad, PastOf};
use crate::profile::Profile;
use crate::step::PricedStep;
use sim::cost::{Measured, Pace, Window};
use std::time::Duration;

/// A load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AppendLoad {
    /// Appends a second.
    pub per_second: f64,
    /// Bytes of a body.
    pub bytes: usize,
    /// The share of appends that go to two colours.
    pub in_two: f64,
}

/// Chains that survive a failure each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainSize {
    /// Partitions, each a chain of two servers.
    pub partitions: u16,
}

/// A plan and its proof.
#[derive(Clone, Debug)]
pub struct AppendPlan {
    /// The deployment.
    pub size: ChainSize,
    /// The simulation under the load.
    pub trial: Trial<ChainSize>,
    /// The same with a partition fewer, which does not carry the load; none if there is one partition.
    pub smaller: Option<Trial<ChainSize>>,
}

/// Why there is no plan.
#[derive(Clone, Debug)]
pub enum NoAppendPlan {
    /// The profile does not say what a step costs.
    Unpriced(PricedStep),
    /// More partitions than are tried.
    TooMany(Box<Trial<ChainSize>>),
    /// A deployment did not come up.
    Broken(ChainsNotReady),
}

impl std::fmt::Display for NoAppendPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unpriced(step) => write!(f, "the profile does not say what {} costs", step.name()),
            Self::TooMany(trial) => {
                let partitions = trial.deployment.partitions;
                write!(f, "partitions: {partitions}, which answer {:.0} appends a second", trial.answered)
            }
            Self::Broken(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for NoAppendPlan {}

/// Servers of a chain: one may fail.
const CHAIN: usize = 2;
/// Directors: one may fail.
const DIRECTORS: usize = 3;
/// What a client's machine appends a second without being busy for half of its time; an append to two colours is taken for three.
const PER_CLIENT: f64 = 120_000.0;
/// Calls in flight that saturate one partition.
const SATURATING: u32 = 1_500;
const WARM_UP: Duration = Duration::from_millis(5);
const MEASURED_MIN: Duration = Duration::from_millis(5);
/// Appends of a trial, about.
const APPENDS: f64 = 40_000.0;
const APPENDS_MIN: f64 = 400.0;

impl ChainSize {
    /// Machines: of chains and of directors.
    pub fn machines(self) -> usize {
        CHAIN * usize::from(self.partitions) + DIRECTORS
    }
}

impl AppendLoad {
    /// The least deployment, with its proof.
    ///
    /// # Errors
    /// If nothing of a sensible size carries the load, or the profile knows nothing of chains.
    pub fn plan(&self, profile: &Profile) -> Result<AppendPlan, NoAppendPlan> {
        let needed = [PricedStep::SubmitCommand, PricedStep::ForwardCommands, PricedStep::CommandDone];
        if let Some(&step) = needed.iter().find(|step| !profile.handle.contains_key(step.name())) {
            return Err(NoAppendPlan::Unpriced(step));
        }
        let mut size = self.guess(profile)?;
        let mut trial = self.simulate(size, profile)?;
        let mut repairs = 0;
        while !trial.carries() {
            repairs += 1;
            if repairs > REPAIRS_MAX || usize::from(size.partitions) >= MACHINES_MAX {
                return Err(NoAppendPlan::TooMany(Box::new(trial)));
            }
            size.partitions += 1;
            trial = self.simulate(size, profile)?;
        }
        while size.partitions > 1 {
            let fewer = ChainSize { partitions: size.partitions - 1 };
            let tried = self.simulate(fewer, profile)?;
            if !tried.carries() {
                return Ok(AppendPlan { size, trial, smaller: Some(tried) });
            }
            (size, trial) = (fewer, tried);
        }
        Ok(AppendPlan { size, trial, smaller: None })
    }

    /// As many partitions as one, saturated with appends of one colour, says.
    fn guess(&self, profile: &Profile) -> Result<ChainSize, NoAppendPlan> {
        let (alone, window) =
            (ChainSize { partitions: 1 }, Window { warm_up: WARM_UP, measured: MEASURED_MIN });
        let of_one_colour = Self { in_two: 0.0, ..*self };
        let pace = Pace::Closed { outstanding: SATURATING };
        let (measured, stations) = of_one_colour.run((alone, 4), profile, pace, window)?;
        let trial = Trial::of(alone, &measured, &stations);
        // Both phases and the clean-up of an append to two colours are commands of the chain.
        let commands = self.per_second * (1.0 + 2.0 * self.in_two);
        let partitions = (commands / trial.answered.max(1.0)).ceil().max(1.0);
        if partitions > 2.0 * MACHINES_MAX as f64 {
            // Far more than is tried: simulating it would take minutes.
            return Err(NoAppendPlan::TooMany(Box::new(trial)));
        }
        Ok(ChainSize { partitions: partitions.min(MACHINES_MAX as f64) as u16 })
    }

    fn simulate(&self, size: ChainSize, profile: &Profile) -> Result<Trial<ChainSize>, NoAppendPlan> {
        let appends = APPENDS.min(self.per_second / 4.0).max(APPENDS_MIN);
        let window = super::window(self.per_second, appends, WARM_UP, MEASURED_MIN);
        let clients = (self.per_second * (1.0 + 2.0 * self.in_two) / PER_CLIENT).ceil().max(2.0) as usize;
        let pace = Pace::Open { per_second: self.per_second };
        let (measured, stations) = self.run((size, clients), profile, pace, window)?;
        Ok(Trial::of(size, &measured, &stations))
    }

    fn run(
        &self,
        (size, clients): (ChainSize, usize),
        profile: &Profile,
        pace: Pace,
        window: Window,
    ) -> Result<(Measured, Vec<&'static str>), NoAppendPlan> {
        let partitions = size.partitions;
        let deployment = ChainDeployment { partitions, width: CHAIN, sequencer: None, clients };
        let mut running = deployment.start(profile, 1).map_err(NoAppendPlan::Broken)?;
        let colour = |client: usize| {
            let partitions = usize::from(partitions);
            running.colour((client % partitions) as u16, client / partitions)
        };
        let colours = (0..clients).map(colour).collect();
        let mut load = ColourLoad::new(colours, self.in_two, PastOf::Handle).of_bytes(self.bytes);
        let nodes = running.clients.clone();
        let measured = running.testbed.run(&nodes, pace, &mut load, window);
        // What clients' machines do is theirs to plan.
        let name_of = |&name: &&'static str| if name == "client" { "clients" } else { name };
        let stations = running.stations.iter().map(name_of).collect();
        Ok((measured, stations))
    }
}
