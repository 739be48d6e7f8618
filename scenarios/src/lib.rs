//! Simulated clusters: for each protocol family who runs where, what clients do, and what must hold.
//!
//! `ordinate sim run FAMILY` sweeps them; the feature `planted` adds the known mistakes of each protocol, which the
//! sweeps must find.
#![forbid(unsafe_code)]

mod audit;
pub mod composed;
pub mod coordination;
pub mod coordination_chains;
pub mod corfu;
pub mod fuzzylog;
mod limits;
pub mod log;
pub mod log_chains;
pub mod mason;
mod moments;
pub mod mutants;
pub mod paxos;
pub mod planted;
pub mod shrinking;
pub mod spanner;

/// Every family, for programs that list, run and sweep them.
pub fn families() -> Vec<Box<dyn sim::Experiment>> {
    vec![
        sim::experiment(paxos::PaxosScenario::draw),
        sim::experiment(mason::MasonScenario::draw),
        sim::experiment(coordination::CoordinationScenario::draw),
        sim::experiment(log::LogScenario::draw),
        sim::experiment(corfu::CorfuScenario::draw),
        sim::experiment(spanner::SpannerScenario::draw),
        sim::experiment(fuzzylog::FuzzyScenario::draw),
        sim::experiment(fuzzylog::regions::RegionsScenario::draw),
        sim::experiment(fuzzylog::maps::MapsScenario::draw),
        sim::experiment(composed::ComposedScenario::draw),
        sim::experiment(log_chains::LogChainsScenario::draw),
        sim::experiment(coordination_chains::CoordinationChainsScenario::draw),
    ]
}
