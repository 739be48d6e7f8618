//! What all hosts of a cluster must have alike: hosts compare when they greet each other.

use super::description::ClusterFile;
use super::removed::{REGION_OF, REMOVED, removed_setting};
use runtime::Agreement;

/// The data are made with it.
pub const FIXED: bool = true;

impl ClusterFile {
    /// Of the cluster and of every service that is on: what its data are made with, which stays as it is, and what its hosts decide by
    /// while they execute, which can be changed while all of them are stopped.
    pub fn agreement(&self) -> Agreement {
        let mut agreement = Agreement::default();
        agreement.add("durability.ack", &self.durability.to_string(), !FIXED);
        agreement.add("paxos.window", &self.parameters.window.to_string(), FIXED);
        for region in &self.regions {
            for host in &region.hosts {
                // Another host's file may lack a host that is new, and have it nowhere else.
                agreement.add(&format!("{REGION_OF}{}", host.name), &region.name, FIXED);
            }
        }
        for region in &self.removed {
            agreement.add(&removed_setting(&region.name), REMOVED, FIXED);
        }
        self.services().iter().for_each(|service| service.agree(&mut agreement));
        agreement
    }
}
