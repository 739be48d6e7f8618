//! Where the roles are on a host: at the same slots on all.

use crate::order::{Group, Space};
use kernel::HostSlot;
use paxos::{EmbeddedLog, LogRole};

/// How many slots one deployment may use.
pub const SLOTS_PER_DEPLOYMENT: u32 = 0x10_0000;
/// The slot of a host's gateway.
pub const GATEWAY: HostSlot = HostSlot(0x101);
pub(crate) const SEQUENCER: HostSlot = HostSlot(0x100);
const FIRST_SHARD: u32 = 0x200;
const FIRST_GROUP: u32 = 0x1000;
const SLOTS_PER_GROUP: u32 = 0x10;

/// Behind the roles of the group's log.
const PROXY: u32 = 7;

/// The roles of a group on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Of its log.
    Log(LogRole),
    /// The proxy.
    Proxy,
}

impl Part {
    fn at(offset: u32) -> Option<Self> {
        if offset == PROXY { Some(Self::Proxy) } else { LogRole::at(offset).map(Self::Log) }
    }
}

/// What is at a slot of a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// The sequencer.
    Sequencer,
    /// The gateway.
    Gateway,
    /// The server of a shard.
    Shard(Space),
    /// A role of a group.
    Part(Group, Part),
}

impl Post {
    /// What is at the slot that is `offset` after the deployment's first; none if nothing ever is.
    pub fn at(offset: u32) -> Option<Self> {
        if offset >= FIRST_GROUP {
            let group = u16::try_from((offset - FIRST_GROUP) / SLOTS_PER_GROUP).ok()?;
            let number = (offset - FIRST_GROUP) % SLOTS_PER_GROUP;
            return Part::at(number).map(|part| Self::Part(Group(group), part));
        }
        if offset >= FIRST_SHARD {
            return u16::try_from(offset - FIRST_SHARD).ok().map(|space| Self::Shard(Space(space)));
        }
        match HostSlot(offset) {
            SEQUENCER => Some(Self::Sequencer),
            GATEWAY => Some(Self::Gateway),
            _ => None,
        }
    }
}

/// The log of a group, in the deployment whose slots begin at `first`.
pub(crate) fn log_of(first: u32, group: Group) -> EmbeddedLog {
    let first = first + FIRST_GROUP + SLOTS_PER_GROUP * u32::from(group.0);
    EmbeddedLog { first: HostSlot(first), number: group.0, proposer: HostSlot(first + PROXY) }
}

pub(crate) fn proxy_slot(first: u32, group: Group) -> HostSlot {
    log_of(first, group).proposer
}

pub(crate) fn shard_slot(first: u32, space: u16) -> HostSlot {
    HostSlot(first + FIRST_SHARD + u32::from(space))
}
