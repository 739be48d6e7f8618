//! How a partition's head copies what other regions have appended, and how its servers hand out what they are to copy.
//!
//! ```text
//! head here                         head there
//!   | PullNodes (behind a time)        |
//!   |--------------------------------->|   waits while there is nothing
//!   |                      NodesPulled |
//!   |<---------------------------------|
//!   | CopyNodes, a command of the row  |
//!   | PullNodes (behind the page)      |
//!   |--------------------------------->| CopiedThrough, a command of the row: trims may go on
//! ```
//! One page of each partition there is on its way at a time. What was copied is in the row, and so is how far: the next head goes on from
//! there, and a page that two heads have asked for counts once.

use super::{ChainServer, LeavingRegion, NodesPulled, PullNodes};
use crate::partition::command::{
    AddRegion, Command, CopiedThrough, CopyNodes, JoinRegions, RegionPartitions, RemoveRegion, RowEntry,
    StreamPoint,
};
use crate::terms::{AppendTime, ColourPlacement, PartitionId, RegionId, RowIndex};
use kernel::{Cx, HostId, HostSlot, Instant, NodeId, planted};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Copies may take such a part beyond what may be retained. Else two partitions that are full of what the other one has not copied would
/// wait for each other.
const COPIES_BEYOND: usize = 8;

/// Another region, as the cluster file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherRegion {
    /// The region.
    pub region: RegionId,
    /// How many partitions it has.
    pub partitions: u16,
    /// Its hosts.
    pub hosts: Vec<HostId>,
}

/// All regions, as the cluster file has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionPlan {
    /// The region of this host.
    pub own: RegionId,
    /// The others, in the order of their numbers.
    pub others: Vec<OtherRegion>,
    /// Regions that this host was started with before, and is not any more.
    pub removed: Vec<RegionId>,
    /// Where the server of the first partition is, on every host.
    pub first_server: HostSlot,
}

impl RegionPlan {
    fn partitions(&self) -> Vec<RegionPartitions> {
        let of = |it: &OtherRegion| RegionPartitions { region: it.region, partitions: it.partitions };
        self.others.iter().map(of).collect()
    }
}

/// A partition of another region, as the head sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SourceSeen {
    /// The region, the partition, and how far it is copied.
    pub point: StreamPoint,
    /// When it answered last.
    pub heard_at: Option<Instant>,
}

/// A partition of another region that is copied.
#[derive(Clone, Debug)]
struct Source {
    region: RegionId,
    partition: PartitionId,
    /// Its servers, one of which is asked.
    servers: Vec<NodeId>,
    /// Which one is asked next, if nobody has said who is the head.
    next: usize,
    head: Option<NodeId>,
    /// When it was asked what it has not answered.
    asked_at: Option<Instant>,
    heard_at: Option<Instant>,
    /// The last page's command, which may not be applied.
    ordered: Option<RowIndex>,
    /// It is not asked before.
    rests_until: Instant,
}

/// A question that waits for something new.
#[derive(Clone, Debug)]
struct Held {
    from: NodeId,
    question: PullNodes,
    until: Instant,
}

/// What a server knows of other regions, beside what is in the row.
#[derive(Clone, Debug)]
pub(super) struct Replicator {
    plan: Arc<RegionPlan>,
    sources: Vec<Source>,
    /// By who asks: so many as there are partitions elsewhere.
    held: BTreeMap<(RegionId, PartitionId), Held>,
    /// How far others have copied, as commands of the row say that may not be applied.
    confirmed: BTreeMap<(RegionId, PartitionId), AppendTime>,
    /// The last command that adds or removes a region, which may not be applied.
    changed: Option<RowIndex>,
}

impl Replicator {
    pub(super) fn new(plan: Arc<RegionPlan>, placement: ColourPlacement, partition: PartitionId) -> Self {
        let mut sources = Vec::new();
        for other in &plan.others {
            let there = ColourPlacement::over(other.partitions);
            let all = (0..there.partitions()).map(PartitionId);
            for source in all.filter(|it| placement.meets(partition, there, *it)) {
                let slot = HostSlot(plan.first_server.0 + u32::from(source.0));
                let servers = other.hosts.iter().map(|&host| NodeId::new(host, slot)).collect();
                sources.push(Source {
                    region: other.region,
                    partition: source,
                    servers,
                    next: 0,
                    head: None,
                    asked_at: None,
                    heard_at: None,
                    ordered: None,
                    rests_until: Instant(0),
                });
            }
        }
        let (held, confirmed) = (BTreeMap::new(), BTreeMap::new());
        Self { plan, sources, held, confirmed, changed: None }
    }
}

impl ChainServer {
    /// The regions of its cluster file are not those of its row: those are copied that are in both.
    pub fn regions_differ(&self) -> bool {
        let Some(replicator) = &self.replicator else { return self.state.region().is_some() };
        let plan = &replicator.plan;
        let differs = |own| own != plan.own || self.state.other_regions() != plan.partitions();
        self.state.region().is_some_and(differs)
    }

    /// What the head knows of the partitions that it copies.
    pub fn sources(&self) -> Vec<SourceSeen> {
        let Some(replicator) = &self.replicator else { return Vec::new() };
        let copied = self.state.copied();
        let seen = |source: &Source| {
            let of = |it: &&StreamPoint| (it.region, it.partition) == (source.region, source.partition);
            let point = copied.iter().find(of).copied()?;
            Some(SourceSeen { point, heard_at: source.heard_at })
        };
        replicator.sources.iter().filter_map(seen).collect()
    }

    /// An earlier epoch's questions and pages mean nothing to this one.
    pub(super) fn forget_pulls(&mut self) {
        if let Some(replicator) = &mut self.replicator {
            replicator.held.clear();
            replicator.confirmed.clear();
            replicator.changed = None;
            for source in &mut replicator.sources {
                (source.asked_at, source.ordered) = (None, None);
            }
        }
    }

    fn order_own(&mut self, command: impl Into<Command>, cx: &mut Cx<'_, Self>) {
        self.order(RowEntry { origin: cx.node(), call: 0, command: command.into() }, cx);
    }

    /// The regions are the first thing that a head orders, so that all that comes later is of one of them.
    pub(super) fn begin_with_regions(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(Replicator { plan, .. }) = self.replicator.as_ref().filter(|_| self.is_head(cx.node()))
        else {
            return;
        };
        if self.state.region().is_none() {
            self.order_own(JoinRegions { own: plan.own, others: plan.partitions() }, cx);
        }
    }

    /// Regions of the row that all servers of the chain were started without, from this one on.
    pub(super) fn started_without(&self, me: NodeId) -> Vec<LeavingRegion> {
        let Some(replicator) = &self.replicator else { return Vec::new() };
        let (plan, is_tail) = (&replicator.plan, self.is_tail(me));
        let leaves = |region: RegionId| {
            let behind = self.links.without.iter().find(|it| it.region == region);
            let is_everywhere = is_tail || behind.is_some();
            let was_there = plan.removed.contains(&region) || behind.is_some_and(|it| it.was_there);
            is_everywhere.then_some(LeavingRegion { region, was_there })
        };
        let of_row = self.state.other_regions().iter().map(|it| it.region);
        let is_missing = |region: &RegionId| plan.others.iter().all(|it| it.region != *region);
        of_row.filter(is_missing).filter_map(leaves).collect()
    }

    /// A region comes in when the head was started with it. One goes when all servers of the chain were started without it, and one of
    /// them with it before: a host that has an older file, or a wrong one, removes nothing.
    fn change_regions(&mut self, cx: &mut Cx<'_, Self>) {
        let leaves = self.started_without(cx.node()).into_iter().find(|it| it.was_there);
        let is_busy = self.is_busy(usize::MAX, cx);
        let (applied, next) = (self.state.applied(), self.row.length());
        let is_known = |region| {
            self.state.other_regions().iter().any(|it| it.region == region)
                || self.state.removed_regions().any(|it| it == region)
        };
        let Some(replicator) = &mut self.replicator else { return };
        let is_changing = replicator.changed.is_some_and(|it| it >= applied);
        if self.state.region() != Some(replicator.plan.own) || is_changing || is_busy {
            return;
        }
        let comes = replicator.plan.partitions().into_iter().find(|it| !is_known(it.region));
        let command: Command = match (comes, leaves) {
            (Some(RegionPartitions { region, partitions }), _) => AddRegion { region, partitions }.into(),
            (None, Some(LeavingRegion { region, .. })) => RemoveRegion { region }.into(),
            (None, None) => return,
        };
        replicator.changed = Some(next);
        self.order_own(command, cx);
    }

    /// Asks again what was lost, and answers those who have waited for long.
    pub(super) fn look_after_regions(&mut self, cx: &mut Cx<'_, Self>) {
        if self.replicator.is_none() || !self.is_head(cx.node()) {
            return;
        }
        self.change_regions(cx);
        let now = cx.now();
        let Some(replicator) = &mut self.replicator else { return };
        let late: Vec<_> =
            replicator.held.iter().filter(|(_, held)| held.until <= now).map(|(&key, _)| key).collect();
        for key in late {
            if let Some(held) = self.replicator.as_mut().and_then(|it| it.held.remove(&key)) {
                self.hand_out(held.from, &held.question, cx);
            }
        }
        self.pull_nodes(cx);
    }

    /// Asks every partition of which nothing is on its way.
    fn pull_nodes(&mut self, cx: &mut Cx<'_, Self>) {
        let own = self.replicator.as_ref().map(|it| it.plan.own);
        if self.state.region().is_none() || self.state.region() != own || !self.is_head(cx.node()) {
            return;
        }
        let most = self.parameters.live_bytes_max;
        let is_full = self.state.live_bytes() + self.window >= most + most / COPIES_BEYOND;
        if is_full || self.is_busy(usize::MAX, cx) {
            // What is not copied stays where it is.
            return cx.mark("region.has_no_room");
        }
        let (partition, partitions) = (self.partition, self.placement.partitions());
        let (copied, now, patience) = (self.state.copied(), cx.now(), self.parameters.pull_again_after);
        let applied = self.state.applied();
        let Some(replicator) = &mut self.replicator else { return };
        let (region, run) = (replicator.plan.own, self.run);
        for (index, source) in (0..).zip(&mut replicator.sources) {
            let of = |it: &&StreamPoint| (it.region, it.partition) == (source.region, source.partition);
            let Some(&StreamPoint { at: after, .. }) = copied.iter().find(of) else { continue };
            if source.ordered.is_some_and(|ordered| ordered >= applied) || now < source.rests_until {
                continue;
            }
            source.ordered = None;
            match source.asked_at {
                Some(asked_at) if now.since(asked_at) < patience => continue,
                Some(_) => {
                    cx.mark("region.asked_another_server");
                    (source.head, source.next) = (None, source.next + 1);
                }
                None => {}
            }
            // All questions of a run for one partition have one name: a late answer is as good, if it is what comes next.
            let session = run.wrapping_add(index);
            source.asked_at = Some(now);
            let next = source.servers.get(source.next % source.servers.len().max(1)).copied();
            if let Some(server) = source.head.or(next) {
                // The source drops what is asked behind, and a chain's only server has applied what its disk may not have yet.
                let question = PullNodes { session, region, partition, partitions, after };
                if planted!(asked_behind_what_is_not_durable) {
                    cx.send(server, question);
                } else {
                    cx.send_durable(server, question);
                }
            }
        }
    }

    pub(super) fn on_pull_nodes(&mut self, from: NodeId, message: &PullNodes, cx: &mut Cx<'_, Self>) {
        let PullNodes { region, partition, partitions, after, .. } = *message;
        let known = RegionPartitions { region, partitions };
        if !self.state.other_regions().contains(&known) {
            return cx.mark("region.was_asked_by_a_stranger");
        }
        let key = (region, partition);
        let is_head = self.is_head(cx.node());
        let of = |it: &StreamPoint| (it.region, it.partition) == key;
        let Some(point) = self.state.confirmed().into_iter().find(of) else {
            return cx.reject("question for nodes by a partition that has none of their colours");
        };
        let has_room = !self.is_busy(usize::MAX, cx);
        let Some(replicator) = &mut self.replicator else { return };
        let confirmed = replicator.confirmed.get(&key).copied().unwrap_or_default().max(point.at);
        if is_head && after > confirmed && has_room {
            replicator.confirmed.insert(key, after);
            self.order_own(CopiedThrough { region, partition, through: after }, cx);
        }
        let until = cx.now() + self.parameters.pull_again_after / 2;
        if !is_head || self.has_news(message) {
            return self.hand_out(from, message, cx);
        }
        if let Some(replicator) = &mut self.replicator {
            replicator.held.insert(key, Held { from, question: message.clone(), until });
        }
    }

    /// True if there is something behind what was asked.
    fn has_news(&self, question: &PullNodes) -> bool {
        let there = (ColourPlacement::over(question.partitions), question.partition);
        self.state.outgoing_page(there, question.after, 1).through > question.after
    }

    fn hand_out(&self, to: NodeId, question: &PullNodes, cx: &mut Cx<'_, Self>) {
        let PullNodes { session, partition, partitions, after, .. } = *question;
        let there = (ColourPlacement::over(partitions), partition);
        let page = self.state.outgoing_page(there, after, self.parameters.page_bytes);
        let head = self.serving_projection().and_then(|it| it.head());
        // What a tail has applied may not be on its own disk.
        let (through, nodes) = (page.through, page.nodes);
        let begins = Some(page.begins).filter(|it| !it.is_empty());
        cx.send_durable(to, NodesPulled { session, after, through, nodes, head, begins });
    }

    pub(super) fn on_nodes_pulled(&mut self, from: NodeId, message: NodesPulled, cx: &mut Cx<'_, Self>) {
        let NodesPulled { session, after, through, nodes, head, begins } = message;
        if !self.is_head(cx.node()) {
            return;
        }
        let (now, rest) = (cx.now(), self.parameters.resend_after);
        let patience = self.parameters.pull_again_after;
        let index = usize::try_from(session.wrapping_sub(self.run)).unwrap_or(usize::MAX);
        let (copied, next) = (self.state.copied(), self.row.length());
        let source = self.replicator.as_mut().and_then(|it| it.sources.get_mut(index));
        let Some(source) = source.filter(|it| it.ordered.is_none()) else { return };
        let (region, partition) = (source.region, source.partition);
        if !copied.contains(&StreamPoint { region, partition, at: after }) {
            // Somebody has answered before. Asked again for each answer, more and more would be on their way.
            return cx.mark("region.page_came_late");
        }
        (source.asked_at, source.heard_at) = (None, Some(now));
        match head {
            Some(head) => source.head = Some(head),
            // Its region is looking for a head.
            None => (source.head, source.next) = (None, source.next + 1),
        }
        if source.head != Some(from) && nodes.is_empty() {
            source.rests_until = now + rest;
        }
        if through > after {
            let command = CopyNodes { region, partition, after, through, nodes, begins };
            if !self.state.knows_regions_of(&command) {
                source.rests_until = now + patience;
                return cx.mark("region.page_names_an_unknown_region");
            }
            if self.state.may_copy(&command) {
                source.ordered = Some(next);
                cx.mark("region.copied_nodes");
                return self.order_own(command, cx);
            }
            source.rests_until = now + patience;
            return cx.reject("nodes of another region that are not those that come next");
        }
        self.pull_nodes(cx);
    }

    /// What was applied in this burst goes to those who wait for it, and the next pages are asked for.
    pub(super) fn pass_on_to_regions(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(replicator) = &mut self.replicator else { return };
        if replicator.held.is_empty() && replicator.sources.iter().all(|it| it.ordered.is_none()) {
            return;
        }
        let held = std::mem::take(&mut replicator.held);
        if !self.is_head(cx.node()) {
            return;
        }
        for (key, held) in held {
            if self.has_news(&held.question) {
                self.hand_out(held.from, &held.question, cx);
            } else if let Some(replicator) = &mut self.replicator {
                replicator.held.insert(key, held);
            }
        }
        self.pull_nodes(cx);
    }
}
