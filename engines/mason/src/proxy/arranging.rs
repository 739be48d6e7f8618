//! How groups, and shards, are added and removed while running.
//!
//! ```text
//! first group's leader        other groups' leaders             sequencer
//!   | log: Layout(v+1) -- host's replica --> log: Layout(v+1)      |
//!   |                       | log: Page, Arrived (stubs hand over) |
//!   | Recover(e+1)          |                                      |
//!   |------------------------------------------------------------->| seals every group in use: those that were added, too
//!   |                       | drained: log: Retire                 |
//!   |   what it assigned is in snapshots: spent                    |
//!   | log: Layout(v+2), without those                              |
//! ```
//! The first group's log decides. A group can assign nothing before it is sealed for a sequencer, and a standby seals every group
//! that the first group's log had in use when that was sealed: a later one knows of all that may have assigned numbers. So
//! an addition is a layout and a change of sequencers; a group that was in use before must not go on with the sequencer of then,
//! which may live still. A removal is one, too; then the group is drained: what its stub had is
//! handed over, its own operations are ordered, it retires in its log, and when all it assigned is executed and in durable
//! snapshots, another layout takes it out. That layout's entry says how far the group's numbers and global sequence numbers went.
//!
//! Over how many shards the service is spread is part of the layout, and comes into force with a change of sequencers, too: the new
//! one finds everything sealed that was numbered by the old shard map, and has one operation of all shards logged, at which they hand
//! over, before anything is numbered by the new one.
//!
//! Everything between groups goes through the hosts, each of which has replicas of all logs: they notify the host's proxies of every
//! group where their own stands, and the leading one acts on it.

use super::entry::{Entry, StubPage};
use super::leading::Lead;
use super::{Arrange, Awaited, GroupStatus, Proxy, SetShards, Spent};
use crate::messages::shard;
use crate::order::{Group, Gsn, Number, Placed, Space};
pub use crate::topology::FIRST;
use crate::topology::{Layout, ShardMap};
use kernel::{Cx, Decode, DecodeError, Encode, Instant, NodeId, Reader, planted};
use std::collections::BTreeMap;
use std::time::Duration;

kernel::record! {
    /// How far a change has come, as far as a host knows.
    pub struct Progress {
        /// How many groups are in use.
        layout: Layout,
        /// There is room for so many.
        room: u16,
        /// Nothing of the last change is left to be done.
        settled: bool,
        /// There is room for so many shards.
        shards_room: Option<u16>,
    }
}

/// What a local application asks of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub enum ProxyCall {
    /// Follow these members; answered [`super::moving::SETTLED`] or [`super::moving::UNSETTLED`].
    Follow(paxos::Members),
    /// Have origins served by so many groups, none for as they are; answered by [`Progress`].
    Arrange(Option<u16>),
    /// Have the service's state spread over so many shards; answered by [`Progress`].
    SetShards(u16),
}

impl Encode for ProxyCall {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Follow(members) => {
                out.push(1);
                members.encode(out);
            }
            Self::Arrange(groups) => {
                out.push(2);
                groups.encode(out);
            }
            Self::SetShards(shards) => {
                out.push(3);
                shards.encode(out);
            }
        }
    }
}

impl Decode for ProxyCall {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Ok(Self::Follow(input.field()?)),
            2 => Ok(Self::Arrange(input.field()?)),
            3 => Ok(Self::SetShards(input.field()?)),
            tag => Err(DecodeError::UnknownTag("call of a proxy", tag)),
        }
    }
}

/// What a host's replicas have said of the groups' logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Arranging {
    statuses: BTreeMap<Group, GroupStatus>,
    /// What this group's stub is to have, by whose it was.
    pages: BTreeMap<(Group, u32), StubPage>,
    /// What the cluster's operator has asked for.
    wanted: Option<u16>,
    wanted_shards: Option<u16>,
    hurried_at: Instant,
}

/// How often shards are asked for the snapshots without which a group cannot be taken out.
const HURRY_EVERY: Duration = Duration::from_secs(1);

impl Arranging {
    /// Where a group stands; at the bootstrap's layout if its replica has said nothing.
    fn of(&self, group: Group) -> Option<&GroupStatus> {
        self.statuses.get(&group)
    }

    fn version_of(&self, group: Group) -> u64 {
        self.of(group).map_or(0, |status| status.layout.version)
    }

    pub(super) fn is_retired(&self, group: Group) -> bool {
        self.of(group).is_some_and(|status| status.retired)
    }

    /// True if the group's log has the layout, and its stub has given and got all that it must.
    fn has_settled(&self, group: Group, version: u64) -> bool {
        self.version_of(group) == version
            && self.of(group).is_none_or(|status| status.leaving.is_empty() && status.awaited.is_empty())
    }
}

impl Proxy {
    /// How far the last change has come.
    pub fn progress(&self) -> Progress {
        let layout = self.layout_of(FIRST);
        let settled = self.stands(layout);
        let shards_room = Some(self.topology.shards.len() as u16);
        Progress { layout: layout.clone(), room: self.topology.groups.len() as u16, settled, shards_room }
    }

    fn stands(&self, layout: &Layout) -> bool {
        layout.serving == layout.spanning && self.is_arranged(layout)
    }

    /// True if nobody wants other groups or shards than there are.
    pub(super) fn groups_have_settled(&self) -> bool {
        let wants = self.arranging.wanted.is_some() || self.arranging.wanted_shards.is_some();
        !wants && self.stands(self.layout_of(FIRST))
    }

    fn layout_of(&self, group: Group) -> &Layout {
        self.arranging.of(group).map_or(&self.bootstrap, |status| &status.layout)
    }

    /// Every group has the layout and what it is to have by it, and the sequencer knows which groups there are.
    fn is_arranged(&self, layout: &Layout) -> bool {
        let sealed = self.arranging.of(FIRST).is_none_or(|first| {
            first.sealed == layout.version && first.handed.unwrap_or(0) == layout.shard_map.version
        });
        sealed && self.topology.groups().all(|group| self.arranging.has_settled(group, layout.version))
    }

    pub(super) fn on_group_status(&mut self, message: GroupStatus) {
        if message.group == self.group
            && let Some(arranged) = self.topology.arranged(&message.layout)
        {
            self.topology = std::sync::Arc::new(arranged);
            self.arranging.pages.retain(|_, page| page.version >= message.layout.version);
        }
        self.arranging.statuses.insert(message.group, message);
    }

    pub(super) fn on_leaving(&mut self, page: StubPage) {
        if page.to == self.group && page.version >= self.topology.layout.version {
            self.arranging.pages.insert((page.from, page.index), page);
        }
    }

    /// Taken by the leader; passed on to it, once, by the others.
    pub(super) fn on_set_shards(&mut self, from: NodeId, message: &SetShards, cx: &mut Cx<'_, Self>) {
        let slot = cx.node().host_slot();
        let shards = message.shards;
        let sound = (1..=self.topology.shards.len()).contains(&usize::from(shards));
        if !sound || self.group != FIRST || self.topology.sequencers.is_empty() {
            return;
        }
        if self.leads_here() {
            let now = self.layout_of(FIRST).shard_map.shards;
            self.arranging.wanted_shards = (shards != now).then_some(shards);
        } else if let Some(leader) = self.leader.filter(|_| from.host_slot() != slot || from == cx.node()) {
            cx.send(NodeId::new(leader.leader.host(), slot), message.clone());
        }
    }

    /// Taken by the leader; passed on to it, once, by the others.
    pub(super) fn on_arrange(&mut self, from: NodeId, message: &Arrange, cx: &mut Cx<'_, Self>) {
        let slot = cx.node().host_slot();
        let layout = self.layout_of(FIRST);
        let sound = (1..=self.topology.groups.len()).contains(&usize::from(message.groups));
        if !sound || self.group != FIRST || self.topology.sequencers.is_empty() {
            return;
        }
        if self.leads_here() {
            self.arranging.wanted = (message.groups != layout.serving).then_some(message.groups);
        } else if let Some(leader) = self.leader.filter(|_| from.host_slot() != slot || from == cx.node()) {
            cx.send(NodeId::new(leader.leader.host(), slot), message.clone());
        }
    }

    /// Proposes what comes next, again and again: entries that come too late are void.
    pub(super) fn arrange(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, resend_after) = (cx.now(), self.parameters.resend_after);
        if !self.lead.as_mut().is_some_and(|lead| lead.may_arrange(now, resend_after)) {
            return;
        }
        let log = self.log.leader;
        let first = self.layout_of(FIRST).clone();
        if first.version > self.topology.layout.version {
            cx.mark("proxy.took_over_a_layout");
            let entry = Entry::Layout { layout: first, below: Vec::new(), gsn: Gsn(0) };
            return Lead::propose_entry(&entry, log, cx);
        }
        if let Some(own) = self.arranging.of(self.group).cloned() {
            self.reshard(&own, cx);
            if let Some(lead) = self.lead.as_mut().filter(|_| self.group.0 < own.layout.serving) {
                lead.serves_again();
            }
            let drained = own.leaving.is_empty() && own.awaited.is_empty() && !own.retired;
            if self.group.0 >= own.layout.serving
                && self.group.0 < own.layout.spanning
                && drained
                && self.lead.as_mut().is_some_and(Lead::retires)
            {
                cx.mark("proxy.retires");
                Lead::propose_entry(&Entry::Retire { version: own.layout.version }, log, cx);
            }
        }
        let has_to_be_durable = |own: &&GroupStatus| own.retired && own.spent.is_none();
        if self.arranging.of(self.group).filter(has_to_be_durable).is_some()
            && cx.now().since(self.arranging.hurried_at) >= HURRY_EVERY
        {
            self.arranging.hurried_at = cx.now();
            let servers = self.topology.shards.iter().flatten().copied();
            cx.multicast(servers, shard::Hurry {});
        }
        if self.group == FIRST {
            self.lead_arrangement(cx);
        }
    }

    /// What comes from other stubs into the log; what others' logs have, out of it.
    fn reshard(&mut self, own: &GroupStatus, cx: &mut Cx<'_, Self>) {
        let log = self.log.leader;
        for Awaited { from, next } in &own.awaited {
            let page = self.arranging.pages.get(&(*from, *next));
            if let Some(page) = page.filter(|page| page.version == own.layout.version) {
                cx.mark("proxy.took_over_from_a_stub");
                Lead::propose_entry(&Entry::Page(page.clone()), log, cx);
            }
        }
        for &at in &own.leaving {
            let has_all = |status: &&GroupStatus| {
                status.layout.version >= own.layout.version
                    && status.awaited.iter().all(|awaited| awaited.from != self.group)
            };
            if self.arranging.of(at).filter(has_all).is_some() {
                Lead::propose_entry(&Entry::Arrived { at, version: own.layout.version }, log, cx);
            }
        }
    }

    /// What the first group's leader does: begins a change, has the sequencer follow it, and takes out what is spent.
    fn lead_arrangement(&mut self, cx: &mut Cx<'_, Self>) {
        let layout = self.layout_of(FIRST).clone();
        let log = self.log.leader;
        if self.arranging.of(FIRST).is_some_and(|first| first.sealed < layout.version) {
            return self.leading(cx, |lead, frame, cx| lead.call_for_layout(frame, cx));
        }
        if !self.is_arranged(&layout) {
            return;
        }
        let next = layout.version + 1;
        if layout.spanning > layout.serving {
            let drained = (layout.serving..layout.spanning).map(Group);
            let spent: Option<Vec<&Spent>> = drained
                .map(|group| self.arranging.of(group).and_then(|status| status.spent.as_ref()))
                .collect();
            let Some(spent) = spent else { return };
            let mut below: BTreeMap<Space, Number> = BTreeMap::new();
            for placed in spent.iter().flat_map(|spent| &spent.below) {
                let known = below.entry(placed.space).or_insert(placed.number);
                *known = placed.number.max(*known);
            }
            let below = below.into_iter().map(|(space, number)| Placed { space, number }).collect();
            let gsn = spent.iter().map(|spent| spent.gsn).max().unwrap_or(Gsn(0));
            let layout = Layout { version: next, spanning: layout.serving, ..layout };
            cx.mark("proxy.took_groups_out");
            return Lead::propose_entry(&Entry::Layout { layout, below, gsn }, log, cx);
        }
        self.arranging.wanted_shards.take_if(|shards| *shards == layout.shard_map.shards);
        if let Some(shards) = self.arranging.wanted_shards {
            cx.mark(if shards > layout.shard_map.shards {
                "proxy.adds_shards"
            } else {
                "proxy.removes_shards"
            });
            let shard_map = ShardMap { version: next, shards, before: layout.shard_map.shards };
            let layout = Layout { version: next, shard_map, ..layout };
            return Lead::propose_entry(&Entry::Layout { layout, below: Vec::new(), gsn: Gsn(0) }, log, cx);
        }
        let Some(groups) = self.arranging.wanted.filter(|&groups| groups != layout.serving) else {
            self.arranging.wanted = None;
            return;
        };
        cx.mark(if groups > layout.serving { "proxy.adds_groups" } else { "proxy.drains_groups" });
        let spanning =
            if planted!(groups_removed_before_drained) { groups } else { groups.max(layout.spanning) };
        let layout = Layout { version: next, serving: groups, spanning, ..layout };
        Lead::propose_entry(&Entry::Layout { layout, below: Vec::new(), gsn: Gsn(0) }, log, cx);
    }
}
