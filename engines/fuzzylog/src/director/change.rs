//! A change of one partition's chain.

use super::{CopyProgress, Director, DirectorLog, Pong, SealAck, Watch};
use crate::messages::chain_server::SealChain;
use crate::parameters::FuzzyParameters;
use crate::projection::{CHAIN_MAX, ChainMember, ChainProjection};
use crate::terms::RowIndex;
use kernel::{Cx, Encode, Instant, NodeId, planted};
use paxos::Value;
use paxos::multipaxos::leader;
use std::collections::BTreeMap;

/// A change in flight.
#[derive(Clone, Debug)]
pub(super) struct Changing {
    begun_at: Instant,
    /// Servers that are to be sealed: members, and those who are to join.
    targets: Vec<NodeId>,
    acks: BTreeMap<NodeId, SealAck>,
    pub(super) proposed: Option<ChainProjection>,
    proposed_at: Instant,
}

impl Director {
    pub(super) fn on_seal_ack(&mut self, from: NodeId, message: SealAck, cx: &mut Cx<'_, Self>) {
        let partition = message.partition;
        let Some(watch) = self.watch(partition) else { return cx.reject("unknown partition") };
        let epoch = watch.projection.epoch.next();
        let Some(changing) = watch.changing.as_mut().filter(|_| message.epoch == epoch) else { return };
        if changing.proposed.is_some() || !changing.targets.contains(&from) {
            return;
        }
        changing.acks.insert(from, message);
        if self.is_leading() {
            let (parameters, log) = (self.patient_parameters(), self.log);
            if let Some(watch) = self.watch(partition) {
                watch.go_on(&parameters, &log, cx);
            }
        }
    }
}

impl Watch {
    /// Begins a change if one is due, and goes on with the one in flight.
    pub(super) fn look(
        &mut self,
        is_patient: bool,
        parameters: &FuzzyParameters,
        log: &DirectorLog,
        cx: &mut Cx<'_, Director>,
    ) {
        self.ask_to_copy(parameters, cx);
        if self.changing.is_none() && !is_patient {
            self.begin(parameters, cx);
        }
        self.choose_targets(parameters, cx.now());
        if let Some(changing) = self.changing.as_ref().filter(|it| it.proposed.is_none()) {
            let epoch = self.projection.epoch.next();
            for &target in changing.targets.iter().filter(|it| !changing.acks.contains_key(it)) {
                let joins = || self.heard.get(&target).map(|heard| heard.pong.journal);
                let is_in = self.projection.nodes().any(|node| node == target) && !self.is_stranger(target);
                let journal = if is_in { self.journal_of(target) } else { joins() };
                cx.send(target, SealChain { epoch, journal });
            }
        }
        self.go_on(parameters, log, cx);
        self.let_more_in(parameters, cx.now());
    }

    /// Proposes the next projection, as soon as enough servers are sealed.
    fn go_on(&mut self, parameters: &FuzzyParameters, log: &DirectorLog, cx: &mut Cx<'_, Director>) {
        let now = cx.now();
        let Some(mut changing) = self.changing.take() else { return };
        if changing.proposed.is_none() {
            // Who is taken for failed is not waited for.
            let mut awaited = changing.targets.iter().filter(|it| !changing.acks.contains_key(it));
            let is_awaited = awaited.any(|&it| self.present(it, now, parameters).is_some());
            let waited = !is_awaited || now.since(changing.begun_at) >= parameters.seal_for;
            changing.proposed = self.next(&changing, waited, parameters, cx);
            changing.proposed_at = Instant(0);
            if changing.proposed.is_some() {
                // If these are heard again, they were not given enough time.
                let late = changing.targets.iter().filter(|it| !changing.acks.contains_key(it));
                self.missing.extend(late);
            }
        }
        if let Some(proposed) = &changing.proposed
            && now.since(changing.proposed_at) >= parameters.resend_after
        {
            changing.proposed_at = now;
            match Value::entry(proposed.encoded()) {
                Ok(value) => cx.send(log.leader, paxos::Message::from(leader::Propose { value })),
                // A chain has at most so many members.
                Err(_) => cx.reject("projection larger than a slot holds"),
            }
        }
        self.changing = Some(changing);
    }

    /// Servers that are not in the chain copy it while it is short of servers.
    fn ask_to_copy(&self, parameters: &FuzzyParameters, cx: &mut Cx<'_, Director>) {
        if !self.is_short(cx.now()) {
            return;
        }
        for &candidate in &self.candidates {
            // Between changes and in one: too few may be left to go on without who joins.
            let present = self.present(candidate, cx.now(), parameters);
            let epoch = self.projection.epoch;
            let copies = |it: &Pong| it.copy.as_ref().is_some_and(|copy| copy.epoch == epoch);
            let idle = present.is_some_and(|it| it.notified == epoch && !copies(it));
            let is_in = self.projection.nodes().any(|node| node == candidate);
            if idle && (!is_in || self.is_stranger(candidate)) {
                self.notify(candidate, cx);
            }
        }
    }

    fn begin(&mut self, parameters: &FuzzyParameters, cx: &mut Cx<'_, Director>) {
        let now = cx.now();
        let epoch = self.projection.epoch;
        let present = |node: NodeId| self.present(node, now, parameters);
        let is_well = |node: NodeId| {
            let journal = self.journal_of(node);
            present(node).is_some_and(|pong| {
                let is_meant = Some(pong.journal) == journal;
                is_meant && pong.sealed <= epoch && (pong.serves || pong.notified < epoch)
            })
        };
        let nodes: Vec<NodeId> = self.projection.nodes().collect();
        let all_well = self.projection.is_bootstrapped() && nodes.iter().all(|&node| is_well(node));
        let stays_well = |node: &&NodeId| is_well(**node) && !self.leaves(**node);
        let well = nodes.iter().filter(|&&node| is_well(node)).count();
        let room = self.width.saturating_sub(nodes.iter().filter(stays_well).count());
        let room = room.min(CHAIN_MAX.saturating_sub(well));
        let joining: Vec<NodeId> = self.joining(&nodes, parameters, now).into_iter().take(room).collect();
        let has_all = |node: &&NodeId| {
            let pong = present(**node).filter(|pong| pong.serves && pong.notified == epoch);
            pong.is_some_and(|pong| pong.has_all == Some(true)) || planted!(joining_server_counts)
        };
        let whole = nodes.iter().filter(stays_well).filter(has_all).count();
        let retires = self.leavers().next().is_some() && self.may_retire(whole, parameters, now);
        // Sealed for a change that came to nothing, it copies in no epoch before that one.
        let is_ahead = |node: &NodeId| present(*node).is_some_and(|pong| pong.sealed > epoch);
        let copies_later = room > 0 && self.candidates.iter().any(|it| !nodes.contains(it) && is_ahead(it));
        let is_due = !all_well || !joining.is_empty() || copies_later || retires;
        if !is_due || !nodes.iter().any(|&node| present(node).is_some()) {
            return;
        }
        if !joining.is_empty() {
            cx.mark("director.lets_a_server_in");
        }
        cx.mark("director.began_a_change");
        self.missing = nodes.iter().copied().filter(|&node| present(node).is_none()).collect();
        let acks = BTreeMap::new();
        let (targets, proposed_at) = (joining, Instant(0));
        let changing = Changing { begun_at: now, targets, acks, proposed: None, proposed_at };
        self.changing = Some(changing);
    }

    /// All members are sealed, but those who have lost their journals: these are to copy before, which nobody does who is sealed. Who was
    /// taken for one of them, by what its host's earlier server had said, is a member.
    fn choose_targets(&mut self, parameters: &FuzzyParameters, now: Instant) {
        let Some(mut changing) = self.changing.take() else { return };
        let Changing { targets, acks, .. } = &mut changing;
        let joining = self.joining(&[], parameters, now);
        targets.retain(|it| acks.contains_key(it) || !self.is_stranger(*it) || joining.contains(it));
        let meant = self.projection.nodes().filter(|node| !self.is_stranger(*node));
        let others = meant.filter(|node| !targets.contains(node)).collect::<Vec<_>>();
        targets.extend(others);
        self.changing = Some(changing);
    }

    /// Servers that copy the chain and lack little of it.
    fn joining(&self, nodes: &[NodeId], parameters: &FuzzyParameters, now: Instant) -> Vec<NodeId> {
        let epoch = self.projection.epoch;
        let joins = |pong: &Pong| {
            let copy = pong.copy.as_ref().filter(|copy| copy.epoch == epoch);
            // Sealed for this change, it has said once how little it lacks, and may have been started again since.
            let was_let_in = |copy: &CopyProgress| copy.lacks.is_none() && pong.sealed > epoch;
            let lacks_little = |lacks: u64| lacks <= parameters.behind_max;
            copy.is_some_and(|copy| copy.lacks.is_some_and(lacks_little) || was_let_in(copy))
        };
        let is_other = |node: &NodeId| !nodes.contains(node) || self.is_stranger(*node);
        let others = self.candidates.iter().copied().filter(is_other);
        others.filter(|node| self.present(*node, now, parameters).is_some_and(joins)).collect()
    }

    /// A change that too few servers are left for waits for others to join: they have copied meanwhile.
    fn let_more_in(&mut self, parameters: &FuzzyParameters, now: Instant) {
        let Some(changing) = self.changing.as_ref().filter(|it| it.proposed.is_none()) else { return };
        if now.since(changing.begun_at) < parameters.seal_for || !self.projection.is_bootstrapped() {
            return;
        }
        let room = self.width.saturating_sub(changing.acks.keys().filter(|it| !self.leaves(**it)).count());
        let joining = self.joining(&changing.targets, parameters, now);
        if let Some(changing) = &mut self.changing {
            let joining = joining.into_iter().filter(|it| !changing.targets.contains(it));
            changing.targets.extend(joining.take(room).collect::<Vec<_>>());
        }
    }

    /// Servers without which the chain does not serve: all hosts, if there are fewer.
    fn least(&self, parameters: &FuzzyParameters) -> usize {
        parameters.replicas_min.min(self.width).max(1)
    }

    /// Servers whose hosts leave are left out when `whole` others have everything: as many as a chain is to have, or as there can be,
    /// and never fewer than it serves with.
    fn may_retire(&self, whole: usize, parameters: &FuzzyParameters, now: Instant) -> bool {
        let nodes: Vec<NodeId> = self.projection.nodes().collect();
        let is_there = |node: &&NodeId| self.present(**node, now, parameters).is_some();
        let there = self.candidates.iter().filter(is_there);
        let can_be = match nodes.len() < CHAIN_MAX {
            true => there.count(),
            false => there.filter(|node| nodes.contains(node)).count(),
        };
        whole >= self.least(parameters) && whole >= self.width.min(can_be)
    }

    /// Without the servers whose hosts leave, if these are not needed any more.
    fn retire<'a>(
        &self,
        acks: &'a BTreeMap<NodeId, SealAck>,
        parameters: &FuzzyParameters,
        cx: &mut Cx<'_, Director>,
    ) -> BTreeMap<NodeId, &'a SealAck> {
        let current = &self.projection;
        let has_all = |node: NodeId, ack: &SealAck| {
            current.means(node, ack.journal) && ack.length >= current.whole_from
                || planted!(joining_server_counts)
        };
        let whole = acks.iter().filter(|(node, ack)| !self.leaves(**node) && has_all(**node, ack)).count();
        let retires = current.is_bootstrapped()
            && acks.keys().any(|node| self.leaves(*node))
            && self.may_retire(whole, parameters, cx.now());
        if retires {
            cx.mark("director.retires_a_server");
        }
        acks.iter()
            .filter(|(node, _)| !retires || !self.leaves(**node))
            .map(|(node, ack)| (*node, ack))
            .collect()
    }

    /// The projection to propose, if enough servers are sealed.
    fn next(
        &self,
        changing: &Changing,
        waited: bool,
        parameters: &FuzzyParameters,
        cx: &mut Cx<'_, Director>,
    ) -> Option<ChainProjection> {
        let current = &self.projection;
        let is_first = !current.is_bootstrapped();
        let all = changing.acks.len() == changing.targets.len();
        if !all && (is_first || !waited) {
            return None;
        }
        let acks = self.retire(&changing.acks, parameters, cx);
        let acks = acks.iter().map(|(&node, &ack)| (node, ack));
        let stays = |node: NodeId, ack: &SealAck| {
            if is_first { current.nodes().any(|it| it == node) } else { current.means(node, ack.journal) }
        };
        let whole: Vec<(NodeId, &SealAck)> = acks
            .clone()
            .filter(|(node, ack)| stays(*node, ack) && ack.length >= current.whole_from)
            .collect();
        if whole.is_empty() {
            return None;
        }
        // What was acknowledged is on the disks of all members.
        let whole_from = whole.iter().map(|(_, ack)| ack.length).min().unwrap_or(RowIndex(0));
        let longest = whole.iter().map(|(_, ack)| ack.length).max().unwrap_or_default();
        let is_behind = |node: NodeId, ack: &SealAck| {
            let copied = ack.copy == Some(current.epoch);
            let lags = stays(node, ack) && ack.length < current.whole_from;
            !is_first && (copied || lags) && ack.length <= longest
        };
        let order: Vec<NodeId> = current.nodes().collect();
        let place = |node: NodeId| order.iter().position(|it| *it == node).unwrap_or(usize::MAX);
        let mut behind: Vec<(NodeId, &SealAck)> = acks.filter(|(node, ack)| is_behind(*node, ack)).collect();
        behind.sort_by_key(|(_, ack)| std::cmp::Reverse(ack.length));
        // Who has it all comes first of those with equal rows, and goes last if there are too many.
        let leavers = whole.iter().filter(|(node, _)| self.leaves(*node)).count();
        let wanted = (self.width + leavers).min(CHAIN_MAX).max(whole.len());
        let base = |ack: &SealAck| ack.base.unwrap_or_default();
        let mut first_left = whole.iter().map(|(_, ack)| base(ack)).max().unwrap_or_default();
        let mut members = whole;
        for (node, ack) in behind {
            // What it lacks must still be there, as commands.
            let is_served = ack.length >= first_left || kernel::planted!(row_begins_behind_successor);
            if members.len() < wanted && is_served {
                first_left = first_left.max(base(ack));
                members.push((node, ack));
            }
        }
        if kernel::planted!(restarted_head_goes_on) {
            members.sort_by_key(|(node, _)| place(*node));
        } else {
            members.sort_by_key(|(node, ack)| (std::cmp::Reverse(ack.length), place(*node)));
        }
        let has_all = |node: NodeId, ack: &SealAck| stays(node, ack) && ack.length >= current.whole_from;
        let stay = members.iter().filter(|(node, ack)| has_all(*node, ack)).count();
        let left = changing.acks.iter().filter(|(node, ack)| has_all(**node, ack)).count() - stay;
        kernel::invariant!(
            DUR,
            left == 0 || stay >= self.least(parameters),
            "{left} servers that have everything leave {current:?}, and {stay} of {members:?} have it, too"
        );
        let members: Vec<ChainMember> =
            members.into_iter().map(|(node, ack)| ChainMember { node, journal: Some(ack.journal) }).collect();
        if members.len() < self.least(parameters) {
            return None;
        }
        let (partition, epoch) = (current.partition, current.epoch.next());
        Some(ChainProjection { partition, epoch, members, whole_from })
    }
}
