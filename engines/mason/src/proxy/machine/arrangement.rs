//! How many groups are in use, as a group's log has it, and what its stub hands over to others' when that changes.

use super::{ProxyMachine, placed_below};
use crate::messages::client::{Elsewhere, GatewayIn};
use crate::messages::sequencer::{Arranged, SequencerIn};
use crate::order::{Group, GroupTime, Gsn, Operation, Order, Placed, Range};
use crate::proxy::delivery::Runs;
use crate::proxy::entry::StubPage;
use crate::proxy::{Awaited, DidReshard, GroupStatus, ProxyIn, Spent};
use crate::service::Stub;
use crate::topology::FIRST;
use crate::topology::{Layout, ShardMap};
use kernel::{Encode, NodeId, planted};
use std::collections::BTreeMap;
use std::sync::Arc;

kernel::record! {
    /// Since the layout is not the bootstrap's any more.
    pub(super) struct Arrangement {
        layout: Layout,
        /// The version that the log had when it was sealed last.
        sealed: u64,
        /// What others have not taken yet.
        leaving: Vec<StubPage>,
        /// Who has not handed over everything.
        awaited: Vec<Awaited>,
        /// Nothing is assigned any more.
        retired: bool,
        /// Nothing is assigned yet: the group has come into use, and its log has not been sealed since.
        unsealed: bool,
        /// The shard map whose resharding the log has.
        handed: Option<ShardMap>,
    }
}

/// Who hands over to `to` when `after` follows `before`.
fn givers(before: &Layout, after: &Layout, to: Group, groups: u16) -> Vec<Group> {
    let moved = (0..groups).map(Group).filter(|&group| after.home(group) == to && before.home(group) != to);
    let mut givers: Vec<Group> = moved.map(|group| before.home(group)).collect();
    givers.sort_unstable();
    givers.dedup();
    givers
}

impl<S: Stub> ProxyMachine<S> {
    /// How many groups are in use.
    pub fn layout(&self) -> &Layout {
        self.state.arrangement.as_ref().map_or(&self.bootstrap, |arrangement| &arrangement.layout)
    }

    /// The shard map whose resharding the log has; none if it is the bootstrap's still.
    pub(super) fn handed(&self) -> Option<&ShardMap> {
        self.state.arrangement.as_ref().and_then(|arrangement| arrangement.handed.as_ref())
    }

    /// All shards of the shard map and of the one before it are to execute this at these numbers.
    pub(super) fn reshard(&mut self, epoch: u64, shard_map: ShardMap, order: Order) {
        let wanted =
            self.group == FIRST && shard_map == self.layout().shard_map && epoch == self.state.sequencer;
        if !wanted {
            return;
        }
        if self.handed().map_or(0, |handed| handed.version) < shard_map.version {
            let mut runs = Runs::default();
            for placed in &order.numbers {
                let row = Range { space: placed.space, first: placed.number, count: 1 };
                kernel::invariant!(UNIQ, !self.state.view.intersects(&row), "{placed:?} is assigned twice");
                self.state.view.insert_range(&row);
                runs.at(placed, order.time).push_reshard(&order.numbers, order.gsn, &shard_map);
            }
            self.state.gsn = self.state.gsn.max(order.gsn);
            if let Some(arrangement) = &mut self.state.arrangement {
                arrangement.handed = Some(shard_map);
            }
            self.status_due = true;
            self.deliver(runs.finish(), None);
        }
        self.notify_proxy(DidReshard { sequencer: epoch });
    }

    /// True if nothing is assigned any more.
    pub fn is_retired(&self) -> bool {
        self.state.arrangement.as_ref().is_some_and(|arrangement| arrangement.retired)
    }

    /// True where numbers can be assigned.
    pub(super) fn assigns(&self) -> bool {
        self.state
            .arrangement
            .as_ref()
            .is_none_or(|arrangement| !arrangement.retired && !arrangement.unsealed)
    }

    pub(super) fn lay_out(&mut self, mut layout: Layout, below: &[Placed], gsn: Gsn) {
        let before = self.layout().clone();
        let groups = self.topology.groups.len() as u16;
        let sound = layout.version == before.version + 1
            && (1..=layout.spanning).contains(&layout.serving)
            && layout.spanning <= groups
            && (1..=self.topology.shards.len()).contains(&usize::from(layout.shard_map.shards));
        if !sound {
            return;
        }
        // What the groups that are taken out have assigned is executed, and so it is assigned.
        if !planted!(removed_group_assignments_forgotten) {
            below.iter().for_each(|low_watermark| self.state.view.collect(low_watermark));
            self.state.gsn = self.state.gsn.max(gsn);
        }
        let me = self.group;
        if me == FIRST {
            layout.after = self.state.sequencer;
        }
        let awaited = givers(&before, &layout, me, groups);
        let awaited = awaited.into_iter().map(|from| Awaited { from, next: 0 }).collect();
        let takers = (0..groups).map(Group).filter(|&to| givers(&before, &layout, to, groups).contains(&me));
        let takers: Vec<Group> = takers.collect();
        let retired = self.is_retired() && me.0 >= layout.serving;
        let (sealed, unsealed) = self
            .state
            .arrangement
            .as_ref()
            .map_or((0, false), |arrangement| (arrangement.sealed, arrangement.unsealed));
        let version = layout.version;
        let added = me.0 >= before.spanning && me.0 < layout.spanning;
        if added {
            (self.state.sequencer, self.state.claim) = (self.state.sequencer.max(layout.after), None);
        }
        let (leaving, unsealed, handed) = (Vec::new(), unsealed || added, self.handed().cloned());
        self.state.arrangement =
            Some(Arrangement { layout, sealed, leaving, awaited, retired, unsealed, handed });
        if added {
            self.report_seal();
        }
        self.arrange_stub();
        let mut pages: BTreeMap<Group, Vec<kernel::Bytes>> =
            takers.iter().map(|&to| (to, Vec::new())).collect();
        for (to, page) in self.stub.depart(self.page_bytes) {
            pages.entry(to).or_default().push(page);
        }
        let mut leaving = Vec::new();
        for (to, mut pages) in pages {
            // An empty one says that there is nothing.
            pages.push(kernel::Bytes::new());
            let count = pages.len() as u32;
            leaving.extend(pages.into_iter().zip(0..).map(|(bytes, index)| StubPage {
                from: me,
                to,
                version,
                index,
                last: index + 1 == count,
                bytes,
            }));
        }
        if let Some(arrangement) = &mut self.state.arrangement {
            arrangement.leaving = leaving;
        }
    }

    /// The stub does not save what the log says of groups.
    pub(super) fn arrange_stub(&mut self) {
        let Some(arrangement) = &self.state.arrangement else { return };
        let awaited: Vec<Group> = arrangement.awaited.iter().map(|awaited| awaited.from).collect();
        self.topology =
            Arc::new(crate::Topology { layout: arrangement.layout.clone(), ..(*self.topology).clone() });
        self.stub.arrange(&arrangement.layout, &awaited);
        (self.status_due, self.pages_due) = (true, true);
    }

    pub(super) fn take_page(&mut self, page: &StubPage, now: GroupTime) {
        let Some(arrangement) = &mut self.state.arrangement else { return };
        if page.to != self.group || page.version != arrangement.layout.version {
            return;
        }
        let Some(awaited) = arrangement.awaited.iter_mut().find(|awaited| awaited.from == page.from) else {
            return;
        };
        if awaited.next != page.index {
            return;
        }
        awaited.next += 1;
        if page.last {
            arrangement.awaited.retain(|awaited| awaited.from != page.from);
        }
        // Our own stub wrote it: one that does not decode is of a version that this one does not know.
        if !page.bytes.is_empty() {
            let _ = self.stub.arrive(&page.bytes, now);
        }
        self.arrange_stub();
    }

    pub(super) fn forget_pages(&mut self, at: Group, version: u64) {
        if let Some(arrangement) = &mut self.state.arrangement
            && arrangement.layout.version == version
        {
            arrangement.leaving.retain(|page| page.to != at);
            self.status_due = true;
        }
    }

    pub(super) fn retire(&mut self, version: u64) {
        let (me, has_follow_ups) = (self.group, !self.state.follow_ups.is_empty());
        if let Some(arrangement) = &mut self.state.arrangement
            && arrangement.layout.version == version
            && me.0 >= arrangement.layout.serving
            && arrangement.leaving.is_empty()
            && arrangement.awaited.is_empty()
            && !has_follow_ups
        {
            arrangement.retired = true;
            self.status_due = true;
        }
    }

    /// Reports to this host's proxies of every group how far this one is: when that changes, and when an incarnation or a snapshot has
    /// begun.
    pub(super) fn report_status(&mut self) {
        if !std::mem::take(&mut self.status_due) {
            return;
        }
        let Some(arrangement) = &self.state.arrangement else { return };
        let Arrangement { layout, sealed, leaving, awaited, retired, handed, .. } = arrangement.clone();
        let handed = handed.map(|handed| handed.version);
        let spent = (retired && self.retained.is_empty())
            .then(|| Spent { below: placed_below(&self.state.view, &self.topology), gsn: self.state.gsn });
        let mut to: Vec<Group> = leaving.iter().map(|page| page.to).collect();
        to.dedup();
        let group = self.group;
        let status = GroupStatus {
            group,
            layout: layout.clone(),
            sealed,
            leaving: to,
            awaited,
            retired,
            spent,
            handed,
        };
        let status: kernel::Bytes = ProxyIn::from(status).encoded().into();
        for group in self.topology.groups() {
            if let Some(proxy) = self.topology.proxy_on(group, self.host) {
                self.notices.push((proxy, status.clone()));
            }
        }
        if let Some(sequencer) = self.topology.sequencer_on(self.host) {
            self.notices.push((sequencer, SequencerIn::from(Arranged { layout }).encoded().into()));
        }
        if !std::mem::take(&mut self.pages_due) {
            return;
        }
        for page in leaving {
            if let Some(proxy) = self.topology.proxy_on(page.to, self.host) {
                self.notices.push((proxy, ProxyIn::from(crate::proxy::Leaving { page }).encoded().into()));
            }
        }
    }

    pub(super) fn turn_away(&mut self, operation: &Operation) {
        if self.speaks_to(operation.origin, operation.tag) {
            let Operation { incarnation, tag, .. } = *operation;
            let message = Elsewhere { group: self.group, incarnation, tag, layout: self.layout().clone() };
            let notice: (NodeId, kernel::Bytes) =
                (operation.origin, GatewayIn::from(message).encoded().into());
            self.notices.push(notice);
        }
    }
}
