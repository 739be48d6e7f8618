//! How long it takes to finish an append to two partitions whose client stops after its first phase.

use super::deployment::{ChainDeployment, ChainsNotReady};
use super::load::{ColourLoad, PastOf};
use crate::profile::Profile;
use crate::step::Steps;
use fuzzylog::FuzzyMember;
use kernel::NodeId;
use sim::cost::{Pace, Testbed};
use std::time::Duration;

/// Time passes in such steps while somebody looks.
const LOOK: Duration = Duration::from_micros(1);
/// Between one origin's append and the next one's: all is finished by then.
const APART: Duration = Duration::from_secs(1);

/// From the moment at which somebody begins to take an append over until nothing of it is pending, for each of so many origins, each on a
/// machine that stops once its first messages have left.
///
/// # Errors
/// If the deployment does not come up.
pub fn recoveries(
    width: usize,
    origins: usize,
    profile: &Profile,
    seed: u64,
) -> Result<Vec<Duration>, ChainsNotReady> {
    let deployment = ChainDeployment { partitions: 2, width, sequencer: None, clients: origins };
    let mut running = deployment.start(profile, seed)?;
    // Two colours on two partitions, whichever origin appends.
    let colours = (0..origins).map(|nth| running.colour((nth % 2) as u16, nth / 2)).collect();
    let mut load = ColourLoad::new(colours, 1.0, PastOf::Handle).on_two_partitions(running.placement);
    let clients = running.clients.clone();
    let beside: Vec<NodeId> = running.beside.concat();
    running.testbed.begin_load(&clients, Pace::OnDemand);
    // Everybody knows the chains by then.
    for nth in 0..origins {
        running.testbed.ask_once(nth, &mut load);
    }
    running.testbed.run_load_for(APART, &mut load);
    let mut found = Vec::new();
    for (nth, origin) in clients.iter().enumerate() {
        let begins = running.testbed.now();
        running.testbed.ask_once(nth, &mut load);
        // What it has sent has left, and no answer has come.
        running.testbed.crash_at(origin.host(), begins + profile.link().latency);
        let mut began = None;
        while running.testbed.now() < begins + APART {
            running.testbed.run_load_for(LOOK, &mut load);
            match (takes_over(&running.testbed, &beside), began) {
                (true, None) => began = Some(running.testbed.now()),
                (false, Some(since)) => {
                    found.push(running.testbed.now() - since);
                    break;
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        let rest = (begins + APART).saturating_sub(running.testbed.now());
        running.testbed.run_load_for(rest, &mut load);
    }
    Ok(found)
}

/// True if one of the clients works on another one's append, and does not merely wait to begin.
fn takes_over(testbed: &Testbed<FuzzyMember, Steps>, clients: &[NodeId]) -> bool {
    clients.iter().any(|&client| match testbed.node(client) {
        Some(FuzzyMember::Client(role)) => {
            role.several_in_flight().any(|append| append.is_taken_over && !append.waits)
        }
        _ => false,
    })
}
