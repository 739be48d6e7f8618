//! Machines: cores, and network cards that carry so many bytes a second.

use super::price::Cost;
use std::time::Duration;

/// A machine of a testbed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MachineIndex(pub(super) usize);

/// What a machine has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineSpec {
    /// Cores; a host runs on one of them.
    pub cores: usize,
    /// Bytes a second that its network card carries in each direction; none: as many as there are.
    pub bytes_per_second: Option<u64>,
}

/// What lies between any two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// From card to card.
    pub latency: Duration,
    /// What a message takes on the wire beside its own bytes: headers of all layers.
    pub overhead_bytes: u64,
}

pub(super) struct Machine {
    pub(super) first_core: usize,
    pub(super) cores: usize,
    byte: Cost,
    out_free_at: u64,
    in_free_at: u64,
    pub(super) bytes_out: u64,
    pub(super) bytes_in: u64,
}

impl Machine {
    pub(super) fn new(spec: MachineSpec, first_core: usize) -> Self {
        let byte = spec.bytes_per_second.map_or(Cost::ZERO, |rate| Cost::nanos(1e9 / rate.max(1) as f64));
        let (out_free_at, in_free_at, bytes_out, bytes_in) = (0, 0, 0, 0);
        Self { first_core, cores: spec.cores, byte, out_free_at, in_free_at, bytes_out, bytes_in }
    }

    /// When the last byte has left the machine, if it is handed to the card at `at`.
    pub(super) fn send(&mut self, at: u64, bytes: u64) -> u64 {
        self.bytes_out += bytes;
        self.out_free_at = self.out_free_at.max(at) + (self.byte * bytes).0;
        self.out_free_at
    }

    /// When the last byte is in memory, if its link is through with it at `at`.
    pub(super) fn receive(&mut self, at: u64, bytes: u64) -> u64 {
        self.bytes_in += bytes;
        // Its bytes were arriving while they were sent: only what is queued before it delays it.
        self.in_free_at = at.max(self.in_free_at + (self.byte * bytes).0);
        self.in_free_at
    }
}
