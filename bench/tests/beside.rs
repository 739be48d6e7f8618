//! A real cluster on loopback beside its simulation.

use bench::Profile;
use bench::calibrate::{beside, calibrate};
use std::time::Duration;

/// Simulated processor time a command over the real one. Wide: the machine that runs tests is busy with others, caches are colder
/// in a real cluster, and a calibration is older than what it is held against. Units that are mixed up are outside all the
/// same, and so is a profile that is ten times too dear; what is seen stands in docs/figures.md.
const BAND: std::ops::RangeInclusive<f64> = 0.2..=5.0;

// Costs that nobody holds against reality may say anything.
#[test]
fn a_real_cluster_spends_what_its_simulation_says() {
    let profile = calibrate(&std::env::temp_dir(), Duration::from_millis(300)).expect("hosts on loopback");
    let ratio = simulated_over_real(&profile);
    assert!(BAND.contains(&ratio), "simulated over real {ratio:.2}");
    let dear = simulated_over_real(&ten_times_dearer(profile));
    assert!(!BAND.contains(&dear), "ten times the costs are held for {dear:.2} times as much");
}

fn simulated_over_real(profile: &Profile) -> f64 {
    let both = beside(profile, 64, Duration::from_millis(800)).expect("three hosts on loopback");
    assert!(both.commands > 100, "{both:?}");
    let ratio = both.simulated.as_secs_f64() / both.real.as_secs_f64();
    println!("{both:?}: simulated over real {ratio:.2}");
    ratio
}

fn ten_times_dearer(mut profile: Profile) -> Profile {
    let driver = &mut profile.driver;
    let costs = [
        &mut driver.burst,
        &mut driver.read,
        &mut driver.write,
        &mut driver.receive,
        &mut driver.receive_byte,
        &mut driver.send,
        &mut driver.send_byte,
    ];
    costs.into_iter().for_each(|cost| *cost *= 10.0);
    for handle in profile.handle.values_mut() {
        (handle.message, handle.item) = (10.0 * handle.message, 10.0 * handle.item);
    }
    profile
}
