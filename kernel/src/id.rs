//! Who is who: hosts, the nodes (role instances) on them, and the calls of local applications.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use std::fmt;

/// A machine's identity: a hash of its name in the cluster file, so that it survives a new address and a reordered
/// file. Two names of one cluster that hash alike are refused when the file is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    /// The identity of the host called `name` (FNV-1a, 32 bits).
    pub fn named(name: &str) -> Self {
        let hash = name
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self(hash)
    }
}

/// Which role instance on its host, given by the placement: the same number in every driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostSlot(pub u32);

/// One role instance: a host and a slot on it. Messages go from node to node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u64);

impl NodeId {
    /// Nobody: below every node of a real host.
    pub const ZERO: NodeId = NodeId(0);

    /// The node at `slot` on `host`.
    pub const fn new(host: HostId, slot: HostSlot) -> Self {
        Self(((host.0 as u64) << 32) | slot.0 as u64)
    }

    /// The machine it runs on. Nodes of one host share a journal, crash together, and lose no message between them.
    pub fn host(self) -> HostId {
        HostId((self.0 >> 32) as u32)
    }

    /// Its slot on that machine.
    pub fn host_slot(self) -> HostSlot {
        HostSlot(self.0 as u32)
    }

    /// The identity as one number, for tables and wires.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The identity a number stands for.
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}

/// The name of a cluster; hosts refuse peers and data directories of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterName(pub String);

/// A call that a local application made of a role, and that the role answers once by [`crate::Cx::respond`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{:x}", self.0)
    }
}

impl fmt::Debug for HostSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.host(), self.host_slot().0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Encode for NodeId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for NodeId {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        u64::decode(input).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A node id that mixes up host and slot would deliver messages to the wrong role.
    #[test]
    fn node_ids_keep_host_and_slot() {
        let node = NodeId::new(HostId::named("b"), HostSlot(7));
        assert_eq!((node.host(), node.host_slot()), (HostId::named("b"), HostSlot(7)));
        assert_ne!(HostId::named("a"), HostId::named("b"));
    }
}
