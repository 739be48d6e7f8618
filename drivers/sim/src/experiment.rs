//! A scenario with its type forgotten, so that one program can list, run and sweep those of all families.

use crate::outcome::{Options, Outcome};
use crate::run::run_seed;
use crate::scenario::Scenario;
use crate::shrink::{Shrunk, shrink};
use crate::sweep::{Divergence, Sweep, SweepReport, determinism, sweep};
use kernel::Rng;
use std::ops::Range;
use std::time::Duration;

/// What can be done with a scenario.
pub trait Experiment: Sync {
    /// The family's name.
    fn family(&self) -> &'static str;
    /// See [`run_seed`].
    fn run(&self, seed: u64, options: &Options) -> Outcome;
    /// See [`sweep()`].
    fn sweep(&self, options: &Sweep) -> SweepReport;
    /// See [`determinism`].
    fn determinism(&self, seeds: Range<u64>, options: &Options) -> Vec<Divergence>;
    /// See [`shrink()`].
    fn shrink(&self, failing: &Outcome, options: &Options, budget: Duration) -> Option<Shrunk>;
}

/// The scenario that `factory` draws from a seed, as an experiment.
pub fn experiment<S: Scenario + 'static>(
    factory: impl Fn(&mut Rng) -> S + Sync + 'static,
) -> Box<dyn Experiment> {
    Box::new(Of(factory))
}

struct Of<F>(F);

impl<S: Scenario, F: Fn(&mut Rng) -> S + Sync> Experiment for Of<F> {
    fn family(&self) -> &'static str {
        S::FAMILY
    }

    fn run(&self, seed: u64, options: &Options) -> Outcome {
        run_seed(&self.0, seed, options)
    }

    fn sweep(&self, options: &Sweep) -> SweepReport {
        sweep(&self.0, options)
    }

    fn determinism(&self, seeds: Range<u64>, options: &Options) -> Vec<Divergence> {
        determinism(&self.0, seeds, options)
    }

    fn shrink(&self, failing: &Outcome, options: &Options, budget: Duration) -> Option<Shrunk> {
        shrink(&self.0, failing, options, budget)
    }
}
