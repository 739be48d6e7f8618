//! Planted bugs, and how soon the simulation finds each.

use kernel::Planted;
use sim::{Experiment, Options, core_seconds};
use std::collections::BTreeSet;
use std::time::Duration;

/// A planted bug and what must notice it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The bug.
    pub planted: Planted,
    /// The family it is planted in.
    pub family: &'static str,
    /// The invariants of which one must break.
    pub expected: &'static [&'static str],
}

/// How a hunt for a planted bug ended.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// The bug.
    pub mutant: Mutant,
    /// How many seeds it took, or how many were tried in vain.
    pub seeds: u64,
    /// Seconds on one core.
    pub seconds: f64,
    /// The expected invariant that broke; none if none did.
    pub fired: Option<String>,
    /// What else broke before.
    pub others: BTreeSet<String>,
}

impl Hunted {
    /// True if an expected invariant broke.
    pub fn is_caught(&self) -> bool {
        self.fired.is_some()
    }
}

/// Every planted bug of every family.
pub const MUTANTS: &[Mutant] = &[
    paxos(Planted::P01, &["AGREE"]),
    paxos(Planted::P02, &["AGREE"]),
    paxos(Planted::P03, &["AGREE"]),
    paxos(Planted::P04, &["AGREE"]),
    paxos(Planted::P07, &["LIN", "PREFIX"]),
    paxos(Planted::P08, &["LIN", "PREFIX"]),
    paxos(Planted::P09, &["SC"]),
    paxos(Planted::P10, &["LIVE"]),
    paxos(Planted::P12, &["AGREE"]),
    paxos(Planted::P20, &["LIN"]),
    paxos(Planted::P21, &["LIN"]),
    paxos(Planted::P22, &["AGREE"]),
    paxos(Planted::P23, &["AGREE", "PREFIX", "LIN"]),
    paxos(Planted::P24, &["PREFIX", "LIN"]),
    paxos(Planted::P25, &["LIN"]),
    paxos(Planted::P26, &["DUR"]),
    paxos(Planted::P27, &["AGREE", "PREFIX", "LIN"]),
    paxos(Planted::P28, &["DUR"]),
    paxos(Planted::P29, &["AGREE"]),
    paxos(Planted::P30, &["LIN", "PREFIX", "RETAIN"]),
    paxos(Planted::P31, &["DUR"]),
    paxos(Planted::P32, &["AGREE"]),
    paxos(Planted::P33, &["AGREE"]),
    paxos(Planted::P34, &["AGREE", "LIN"]),
    paxos(Planted::P35, &["AGREE"]),
    paxos(Planted::P36, &["AGREE", "PREFIX"]),
    paxos(Planted::P37, &["AGREE", "PREFIX"]),
    paxos(Planted::P38, &["AGREE", "PREFIX"]),
    paxos(Planted::P39, &["DUR"]),
    paxos(Planted::P40, &["AGREE"]),
    paxos(Planted::P41, &["AGREE"]),
    paxos(Planted::P42, &["DUR"]),
    paxos(Planted::P43, &["BOUND"]),
    mason(Planted::M01, &["UNIQ", "RT"]),
    mason(Planted::M02, &["UNIQ"]),
    mason(Planted::M04, &["UNIQ", "RT"]),
    mason(Planted::M05, &["UNIQ"]),
    mason(Planted::M06, &["CONTIG"]),
    mason(Planted::M07, &["CONTIG"]),
    mason(Planted::M08, &["PREFIX", "DUR"]),
    mason(Planted::M09, &["PREFIX", "DUR"]),
    mason(Planted::M10, &["PREFIX", "DUR"]),
    mason(Planted::M11, &["CONTIG"]),
    mason(Planted::M13, &["UNIQ"]),
    mason(Planted::M14, &["UNIQ"]),
    mason(Planted::M17, &["MSO"]),
    mason(Planted::M18, &["UNIQ", "RT", "PREFIX"]),
    mason(Planted::M19, &["UNIQ", "RT", "PREFIX"]),
    coordination(Planted::M20, &["UNIQ", "RT", "PREFIX", "ATOMIC", "LIN", "DUR"]),
    coordination(Planted::M21, &["UNIQ", "ATOMIC", "LIN", "PREFIX"]),
    log(Planted::M36, &["BOUND"]),
    mason(Planted::M16, &["UNIQ", "RT", "PREFIX"]),
    coordination(Planted::K01, &["AGREE", "UNIQ", "PREFIX", "LIN", "STAT", "ZXID", "SESS"]),
    coordination(Planted::K02, &["PREFIX", "EPH"]),
    coordination(Planted::K04, &["WATCH"]),
    coordination(Planted::K05, &["LIN"]),
    coordination(Planted::K06, &["ATOMIC"]),
    coordination(Planted::K07, &["UNIQ"]),
    coordination(Planted::K14, &["PING"]),
    coordination(Planted::K15, &["WATCH"]),
    coordination(Planted::K16, &["LIN", "STAT", "ZXID"]),
    coordination(Planted::K17, &["WATCH"]),
    mason(Planted::M22, &["DUR"]),
    mason(Planted::M23, &["DUR"]),
    mason(Planted::M25, &["DUR", "LIVE"]),
    mason(Planted::M26, &["DUR"]),
    mason(Planted::M27, &["DUR"]),
    mason(Planted::M28, &["DUR", "LIVE"]),
    mason(Planted::M29, &["PREFIX"]),
    mason(Planted::M30, &["PREFIX", "UNIQ"]),
    mason(Planted::M31, &["DUR", "LIVE"]),
    mason(Planted::M32, &["PREFIX"]),
    coordination(Planted::M33, &["PREFIX", "EPH"]),
    mason(Planted::M34, &["DUR"]),
    mason(Planted::M35, &["UNIQ"]),
    coordination(Planted::K18, &["PREFIX", "EPH"]),
    coordination(Planted::K19, &["PREFIX", "EPH"]),
    coordination(Planted::K20, &["PREFIX", "SESS", "UNIQ"]),
    coordination(Planted::K21, &["PREFIX"]),
    coordination(Planted::K22, &["PREFIX", "SESS", "EPH"]),
    coordination(Planted::K23, &["SESS"]),
    coordination(Planted::K24, &["SESS"]),
    coordination(Planted::K26, &["CLOSE", "LIVE"]),
    coordination(Planted::K27, &["EPH"]),
    coordination(Planted::K28, &["SESS", "EPH"]),
    coordination(Planted::K29, &["EPH", "SESS"]),
    coordination(Planted::K30, &["BOUND"]),
    log(Planted::C10, &["LIN"]),
    log(Planted::C11, &["ATOMIC", "PREFIX", "DUR"]),
    log(Planted::C12, &["DUR"]),
    log(Planted::C15, &["DUR"]),
    log(Planted::C16, &["DUR"]),
    log(Planted::C17, &["UNIQ", "CONTIG"]),
    log(Planted::C18, &["ARCH"]),
    log(Planted::C19, &["ARCH"]),
    log(Planted::C25, &["ARCH"]),
    corfu(Planted::C01, &["DUR", "LIN"]),
    corfu(Planted::C02, &["DUR", "LIN", "UNIQ"]),
    corfu(Planted::C04, &["UNIQ", "DUR"]),
    corfu(Planted::C05, &["DUR", "UNIQ"]),
    corfu(Planted::C06, &["RT", "UNIQ", "LIN", "DUR"]),
    corfu(Planted::C07, &["RT", "LIN", "UNIQ"]),
    corfu(Planted::C08, &["RT", "UNIQ", "LIN", "DUR"]),
    corfu(Planted::C09, &["RT", "LIN"]),
    corfu(Planted::C13, &["AGREE"]),
    corfu(Planted::C14, &["UNIQ"]),
    corfu(Planted::C20, &["DUR", "NEST", "UNIQ", "LIN"]),
    corfu(Planted::C21, &["UNIQ", "DUR", "NEST"]),
    corfu(Planted::C22, &["DUR", "LIN", "NEST"]),
    corfu(Planted::C23, &["DUR", "CONV", "LIVE"]),
    corfu(Planted::C24, &["DUR", "NEST", "UNIQ"]),
    paxos(Planted::J01, &["AGREE", "PREFIX", "LIN"]),
    paxos(Planted::K13, &["AGREE", "PREFIX"]),
];

const fn corfu(planted: Planted, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "corfu", expected }
}

const fn coordination(planted: Planted, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "coordination", expected }
}

const fn log(planted: Planted, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "log", expected }
}

const fn mason(planted: Planted, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "mason", expected }
}

const fn paxos(planted: Planted, expected: &'static [&'static str]) -> Mutant {
    Mutant { planted, family: "paxos", expected }
}

/// Runs seeds with the bug until an expected invariant breaks, at most `seeds_max` of them and about `budget` of time.
pub fn hunt(experiment: &dyn Experiment, mutant: Mutant, seeds_max: u64, budget: Duration) -> Hunted {
    let began = core_seconds();
    let options = Options { planted: Some(mutant.planted), ..Options::default() };
    let mut hunted = Hunted { mutant, seeds: 0, seconds: 0.0, fired: None, others: BTreeSet::new() };
    while hunted.fired.is_none() && hunted.seeds < seeds_max && hunted.seconds < budget.as_secs_f64() {
        let broken = experiment.run(hunted.seeds, &options).violation.map(|violation| violation.invariant);
        match broken {
            Some(broken) if mutant.expected.contains(&broken.as_str()) => hunted.fired = Some(broken),
            Some(broken) => {
                hunted.others.insert(broken);
            }
            None => {}
        }
        hunted.seeds += 1;
        hunted.seconds = core_seconds() - began;
    }
    hunted
}
