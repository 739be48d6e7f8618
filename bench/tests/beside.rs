//! A real cluster on loopback beside its simulation.

use bench::calibrate::{beside, calibrate};
use std::time::Duration;

/// Simulated processor time a command over the real one. Wide: the machine that runs tests is busy with others, caches are colder
/// in a real cluster, and a calibration is a minute older than what it is held against. A step that is forgotten or counted
/// twice is outside all the same; what is seen on a quiet machine stands in docs/figures.md.
const BAND: std::ops::RangeInclusive<f64> = 0.2..=5.0;

// Costs that nobody holds against reality may say anything.
#[test]
fn a_real_cluster_spends_what_its_simulation_says() {
    let profile = calibrate(&std::env::temp_dir(), Duration::from_millis(300)).expect("hosts on loopback");
    let both = beside(&profile, 64, Duration::from_millis(800)).expect("three hosts on loopback");
    assert!(both.commands > 100, "{both:?}");
    let ratio = both.simulated.as_secs_f64() / both.real.as_secs_f64();
    assert!(BAND.contains(&ratio), "{both:?}: simulated over real {ratio:.2}");
    println!("{both:?}: simulated over real {ratio:.2}");
}
