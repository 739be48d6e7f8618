//! How small failing runs become: ten of them, each the first failure of a planted bug.

use crate::mutants::{MUTANTS, Mutant, hunt};
use sim::{Experiment, Options, core_seconds};
use std::time::Duration;

/// The bugs whose first failures are measured: of every family, and with runs that are short and long.
pub const MEASURED: [&str; 10] = ["P04", "P07", "P10", "M11", "M17", "K05", "K07", "C17", "C04", "C06"];

/// How many of them must lose nine tenths of their faults and of their operations.
pub const SMALL_MIN: usize = 9;

/// How much a failing run had, and what was left.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// At first.
    pub before: usize,
    /// After shrinking.
    pub after: usize,
}

impl Lost {
    /// Whether nine tenths are gone.
    pub fn is_small(self) -> bool {
        10 * self.after <= self.before
    }
}

/// One failing run, shrunk.
#[derive(Clone, Copy, Debug)]
pub struct Shrinking {
    /// The bug.
    pub mutant: Mutant,
    /// The first seed that it fails.
    pub seed: u64,
    /// Faults.
    pub faults: Lost,
    /// Operations.
    pub operations: Lost,
    /// How many runs were tried.
    pub runs: u64,
    /// Seconds of a core.
    pub seconds: f64,
}

impl Shrinking {
    /// Whether nine tenths of both are gone.
    pub fn is_small(&self) -> bool {
        self.faults.is_small() && self.operations.is_small()
    }
}

/// Finds the first failure of each measured bug and shrinks it within `budget`; a bug that survives `seeds_max` seeds is left out.
pub fn measure(
    families: &[Box<dyn Experiment>],
    seeds_max: u64,
    budget: Duration,
) -> impl Iterator<Item = Shrinking> {
    let mutants = MEASURED.iter().flat_map(|id| MUTANTS.iter().find(|mutant| mutant.planted.id == *id));
    mutants.filter_map(move |mutant| {
        let family = families.iter().find(|family| family.family() == mutant.family)?;
        shrink_first(family.as_ref(), *mutant, seeds_max, budget)
    })
}

fn shrink_first(
    family: &dyn Experiment,
    mutant: Mutant,
    seeds_max: u64,
    budget: Duration,
) -> Option<Shrinking> {
    let hunted = hunt(family, mutant, seeds_max, Duration::MAX);
    let seed = hunted.fired.and(hunted.seeds.checked_sub(1))?;
    let options = Options { planted: Some(mutant.planted), ..Options::default() };
    let failing = family.run(seed, &options);
    let began = core_seconds();
    let shrunk = family.shrink(&failing, &options, budget)?;
    let plan = &shrunk.outcome.plan;
    let retained = plan.retained.as_ref().map_or(shrunk.operations_before, Vec::len);
    Some(Shrinking {
        mutant,
        seed,
        faults: Lost { before: shrunk.faults_before, after: plan.faults.len() },
        operations: Lost { before: shrunk.operations_before, after: retained },
        runs: shrunk.runs,
        seconds: core_seconds() - began,
    })
}
