//! How fast the simulator is: the register on 3 and 5 servers, all faults, on one thread. `cargo bench -p sim`.
#![allow(missing_docs)]

#[path = "../tests/register/mod.rs"]
mod register;

use register::Mistake;
use register::scenario::RegisterScenario;
use register::scope::RegisterScope;
use sim::{Bounds, Sweep};

fn main() {
    let factory = |rng: &mut kernel::Rng| RegisterScenario::draw(Mistake::None, rng);
    let report = sim::sweep(&factory, &Sweep::of(0..5_000));
    assert!(report.passed(), "{}", report.to_json());
    println!(
        "{} seeds, {:.1} simulated hours, {} operations, {} events in {:.1} s: {:.0} events a second",
        report.seeds,
        report.sim_hours,
        report.operations,
        report.events,
        report.wall_seconds,
        report.events as f64 / report.wall_seconds
    );
    let requests =
        vec![vec![register::Request::Write { key: 0, value: 1 }], vec![register::Request::Read { key: 0 }]];
    let bounds = Bounds { states: 2_000_000, ..Bounds::default() };
    let found = sim::explore(&RegisterScope { mistake: Mistake::None, servers: 3, requests, bounds });
    assert!(found.passed(), "{}", found.to_json());
    println!(
        "{} distinct states, {} steps in {:.1} s: {:.0} states a second",
        found.states,
        found.steps,
        found.wall_seconds,
        found.states as f64 / found.wall_seconds
    );
}
