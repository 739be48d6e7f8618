//! Changes of membership, as operators ask for them.

use super::adversary::Plot;
use super::{Node, PaxosScenario, cluster};
use kernel::{HostId, Rng};
use parts::Slot;
use paxos::{Call, Configuration};
use sim::Control;
use std::sync::Arc;

impl PaxosScenario {
    fn reconfigure(
        &mut self,
        wanted: Configuration,
        boots: Option<HostId>,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let latest = self.latest();
        if let Some(host) = boots {
            // What an operator who adds a machine writes into its cluster file: who plays, with or without the machine
            // itself, and nothing of what happened since the bootstrap.
            // Or the file of the bootstrap, in which nobody stands who came later: those in it hand the machine on.
            let listed = match rng.below(4) {
                0 | 1 => &wanted,
                2 => &latest,
                _ => self.layout.first(),
            };
            let listed = listed.clone();
            let file = Configuration { version: 0, first_slot: Slot(0), joined: Vec::new(), ..listed };
            self.files.entry(host).or_insert(file);
            control.boot(host);
            if self.blanks && rng.chance(0.3) {
                self.blank(host, rng, control);
            }
        }
        self.wanted.push(wanted.clone());
        // The dangerous moment of a change is a new leader just when it was executed.
        if self.ambushes && !self.plots.iter().any(Plot::concerns_a_change) {
            let plotted = match rng.below(5) {
                0 | 1 => self.usurp(&latest, &wanted, control),
                2 | 3 => self.strand(&latest, &wanted, control) || self.usurp(&latest, &wanted, control),
                _ => false,
            };
            if !plotted {
                self.ambush(wanted.version, control);
            }
        }
        let client = self.layout.client_nodes()[0];
        let id = control.request(client, Call::Reconfigure(Arc::new(wanted.clone())));
        self.reconfigurations.insert(id, wanted);
    }

    /// A change is through: who left may be switched off for good, whatever its disk holds.
    pub(super) fn retire(&mut self, stays: &Configuration, control: &mut Control<'_, Node>) {
        let needed = self.invariants.truth.needed();
        kernel::invariant!(
            DUR,
            needed.iter().all(|needed| needed.version >= stays.version),
            "the change to configuration {} is answered as done, and configuration {} is still needed",
            stays.version,
            needed[0].version
        );
        if self.latest().version != stays.version {
            return;
        }
        let used: Vec<HostId> = self.needed().iter().flat_map(cluster::hosts_of).collect();
        for host in self.layout.all_hosts() {
            if !used.contains(&host) && (self.files.contains_key(&host) || self.layout.is_first(host)) {
                self.gone.insert(host);
                if self.switches_off {
                    control.stop(host);
                }
            }
        }
    }

    pub(super) fn replace_a_host(&mut self, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let latest = self.latest();
        let used = cluster::hosts_of(&latest);
        let mut spares = self.layout.spares();
        spares.retain(|spare| {
            !used.contains(spare) && !control.cluster.is_up(*spare) && !self.files.contains_key(spare)
        });
        spares.retain(|&spare| !self.is_bad(spare, &control.cluster));
        let Some(&spare) = rng.pick(&spares) else { return false };
        let bad: Vec<HostId> =
            used.iter().copied().filter(|&host| self.is_bad(host, &control.cluster)).collect();
        let Some(&leaver) = rng.pick(if bad.is_empty() { &used } else { &bad }) else { return false };
        self.reconfigure(cluster::substitute(&latest, leaver, spare), Some(spare), rng, control);
        true
    }

    pub(super) fn grow_or_shrink(&mut self, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let latest = self.latest();
        if !self.layout.is_colocated() {
            return false;
        }
        let hosts = cluster::hosts_of(&latest);
        let spares: Vec<HostId> = self
            .layout
            .spares()
            .into_iter()
            .filter(|spare| !hosts.contains(spare) && !self.files.contains_key(spare))
            .collect();
        let sound: Vec<HostId> = spares
            .into_iter()
            .filter(|&it| !control.cluster.is_up(it) && !self.is_bad(it, &control.cluster))
            .collect();
        let grows = hosts.len() < 5 && rng.chance(0.6);
        match rng.pick(&sound) {
            Some(&spare) if grows => {
                let wanted: Vec<HostId> = hosts.iter().copied().chain([spare]).collect();
                self.reconfigure(cluster::colocated(latest.version + 1, &wanted), Some(spare), rng, control);
                true
            }
            _ if hosts.len() > 3 => {
                let leaver = hosts[rng.index(hosts.len())];
                let wanted: Vec<HostId> = hosts.iter().copied().filter(|&host| host != leaver).collect();
                let bad = wanted.iter().filter(|&&host| self.is_bad(host, &control.cluster)).count();
                if bad * 2 >= wanted.len() {
                    return false;
                }
                self.reconfigure(cluster::colocated(latest.version + 1, &wanted), None, rng, control);
                true
            }
            _ => false,
        }
    }
}
