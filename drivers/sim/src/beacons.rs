//! Lists of beacons on their way from host to host.

use kernel::{Bytes, HostId, NodeId};

/// What a beacon says, and by which of its host's settings: the same may be set again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lit {
    pub(crate) bytes: Bytes,
    pub(crate) setting: u64,
}

/// What one host sends another of its beacons.
#[derive(Clone, Debug)]
pub(crate) struct BeaconList {
    pub(crate) from_host: HostId,
    pub(crate) incarnation: u32,
    /// Later ones have higher numbers.
    pub(crate) number: u64,
    /// To whom, and from whom.
    pub(crate) lit: Vec<(NodeId, NodeId, Lit)>,
}

impl BeaconList {
    /// Leaves out those to other nodes.
    pub(crate) fn retain(&mut self, mut is_let_through: impl FnMut(NodeId) -> bool) {
        self.lit.retain(|&(to, ..)| is_let_through(to));
    }
}
