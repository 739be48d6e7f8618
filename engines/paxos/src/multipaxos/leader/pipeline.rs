//! Leading: one slot per batch, as far ahead of execution as the window allows.

use super::election::Tallies;
use super::membership::Activation;
use super::phase1::Phase1;
use super::recall::Recall;
use super::rest::Rest;
use super::{Leader, LeaderTimer, Phase1b, Propose, State, Wanted};
use crate::configuration::Configuration;
use crate::multipaxos::messages::proxy_leader;
use crate::value::{BatchId, Value};
use kernel::{Bytes, Cx, Decode, Instant, NodeId, Reader, Recount, planted};
use parts::{Ballot, Set, Slot, SlotRing};
use std::collections::{BTreeMap, VecDeque};

/// Batches that wait for the window, in bytes; beyond it batchers have to send again.
const QUEUE_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug)]
struct Proposal {
    value: Value,
    sent_at: Instant,
}

/// What a leader keeps while it leads.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    ballot: Ballot,
    log: SlotRing<Proposal>,
    next: Slot,
    /// Values that may have been chosen in earlier ballots; up to `recovered_end` they come before any other.
    recovered: BTreeMap<Slot, Value>,
    recovered_end: Slot,
    /// Slots below are filled with no-ops if nothing else comes.
    pub(super) fill_to: Slot,
    queue: VecDeque<Value>,
    queue_bytes: usize,
    in_flight: Set<(NodeId, u64)>,
    /// The latest configuration in force, and the latest with a finished Phase 1.
    pub(super) active_version: u64,
    pub(super) phase1_version: u64,
    pub(super) activating: Option<Activation>,
    pub(super) recall: Option<Recall>,
    heard: Tallies,
    heard_at: Instant,
    pub(super) rest: Rest,
}

impl Pipeline {
    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// A name in flight without its value would turn the same value away for as long as this leader leads.
    pub(super) fn recounts(&self) -> Vec<Recount> {
        let proposed = self.log.iter().map(|(_, proposal)| &proposal.value);
        let named = self.queue.iter().chain(proposed).filter_map(name_of);
        let named: Set<(NodeId, u64)> = named.filter(|name| self.in_flight.contains(name)).collect();
        vec![
            Recount::of("queued bytes", self.queue_bytes, self.queue.iter().map(Value::size).sum()),
            Recount::of("names in flight", self.in_flight.len(), named.len()),
        ]
    }

    pub(super) fn describe(&self) -> String {
        let Self { ballot, next, recovered_end, fill_to, active_version, .. } = self;
        let activating = if self.activating.is_some() { " and puts the next in force" } else { "" };
        format!(
            "{ballot:?} next {next} recovers to {recovered_end} fills to {fill_to}, {} queued, configuration \
             {active_version} in force{activating}",
            self.queue.len()
        )
    }

    /// True if nothing waits for a slot, for its execution or for acceptors.
    pub(super) fn is_idle(&self, known: Slot) -> bool {
        let is_done = self.next == known && self.recovered_end <= known && self.fill_to <= known;
        is_done && self.queue.is_empty() && self.log.is_empty() && self.activating.is_none()
    }

    /// True if it looks again at what it has proposed.
    pub(super) fn has_proposals(&self) -> bool {
        !self.log.is_empty() || self.activating.is_some()
    }

    /// What is not proposed, or not in force.
    pub(super) fn unfinished(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("values to propose", self.queue.len()),
            ("changes of configuration to put in force", usize::from(self.activating.is_some())),
        ]
    }

    /// How long ago a write quorum was last heard.
    pub(super) fn unheard_since(&self, now: Instant) -> std::time::Duration {
        now.since(self.heard_at)
    }

    pub(super) fn heard(&mut self, from: NodeId, configuration: &Configuration, now: Instant) {
        self.heard.count(configuration, from);
        if self.heard.can_write(configuration) {
            self.heard = Tallies::default();
            self.heard_at = now;
        }
    }

    /// Acceptors are heard on and on, these then: a quorum was heard last when the first of its members was that fell silent since.
    pub(super) fn heard_at_rest(&mut self, mut signs: Vec<(Instant, NodeId)>, configuration: &Configuration) {
        signs.sort_unstable_by_key(|&(at, _)| std::cmp::Reverse(at));
        let mut tallies = Tallies::default();
        for (at, acceptor) in signs {
            tallies.count(configuration, acceptor);
            if tallies.can_write(configuration) {
                self.heard_at = self.heard_at.max(at);
                return;
            }
        }
    }

    pub(super) fn is_recalling(&self, inquiry: u64) -> bool {
        self.recall.as_ref().is_some_and(|recall| recall.inquiry() == inquiry)
    }

    pub(super) fn on_phase1b(&mut self, from: NodeId, message: Phase1b, cx: &mut Cx<'_, Leader>) {
        let Some(activation) = &mut self.activating else { return };
        if let Some(votes) = activation.on_phase1b(from, message, cx) {
            self.recover(votes);
        }
    }

    /// Adds what acceptors have voted for in slots not yet proposed in.
    fn recover(&mut self, votes: BTreeMap<Slot, Value>) {
        for (slot, value) in votes {
            if slot >= self.next {
                self.recovered_end = self.recovered_end.max(slot.next());
                self.recovered.insert(slot, value);
            }
        }
    }

    /// Queues a value unless it is in flight already; false if it was or there is no room.
    pub(super) fn enqueue(&mut self, value: Value) -> bool {
        if self.queue_bytes + value.size() > QUEUE_BYTES_MAX {
            return false;
        }
        if let Some(name) = name_of(&value)
            && !self.in_flight.insert(name)
        {
            return false;
        }
        self.queue_bytes += value.size();
        self.queue.push_back(value);
        true
    }

    /// True if a value like this waits or was proposed and not yet executed.
    pub(super) fn has(&self, wanted: impl Fn(&Value) -> bool) -> bool {
        self.queue.iter().any(&wanted) || self.log.iter().any(|(_, proposal)| wanted(&proposal.value))
    }

    fn forget_executed(&mut self, known: Slot) {
        while self.log.start() < known && !self.log.is_empty() {
            let first = self.log.start();
            if let Some(name) = self.log.get(first).and_then(|proposal| name_of(&proposal.value))
                && !planted!(executed_value_stays_in_flight)
            {
                self.in_flight.remove(&name);
            }
            self.log.advance(first.next());
        }
        self.log.advance(known);
        self.next = self.next.max(known);
        self.recovered = self.recovered.split_off(&known);
    }

    /// The value for the next slot, if there is any reason to fill it.
    fn next_value(&mut self) -> Option<Value> {
        if self.next < self.recovered_end {
            return Some(self.recovered.remove(&self.next).unwrap_or(Value::Noop));
        }
        if let Some(value) = self.queue.pop_front() {
            self.queue_bytes -= value.size();
            return Some(value);
        }
        (self.next < self.fill_to).then_some(Value::Noop)
    }
}

/// What distinguishes a value that was sent again from a new one: a batch's name, an entry's contents.
fn name_of(value: &Value) -> Option<(NodeId, u64)> {
    match value {
        Value::Batch(batch) => {
            let id = BatchId::decode(&mut Reader::new(Bytes::clone(batch.bytes()))).ok()?;
            Some((id.batcher, id.number))
        }
        Value::Entry(entry) => Some((NodeId::ZERO, parts::digest(entry.bytes()))),
        Value::Noop | Value::Configure(_) => None,
    }
}

impl Leader {
    pub(super) fn lead(&mut self, phase1: Phase1, cx: &mut Cx<'_, Self>) {
        let ballot = phase1.ballot();
        cx.mark("leader.leads");
        cx.note(|| format!("leads in ballot {ballot:?} from slot {}", self.known));
        let phase1_version = self.configurations.latest().version;
        let mut pipeline = Pipeline {
            ballot,
            log: SlotRing::new(self.known, 2 * self.parameters.window as usize),
            next: self.known,
            recovered: BTreeMap::new(),
            recovered_end: self.known,
            fill_to: Slot(0),
            queue: VecDeque::new(),
            queue_bytes: 0,
            in_flight: Set::default(),
            active_version: self.version_in_force(),
            phase1_version: phase1_version.min(phase1.latest_version()),
            activating: None,
            recall: None,
            heard: Tallies::default(),
            heard_at: cx.now(),
            rest: Rest::default(),
        };
        let votes = phase1.into_votes();
        if votes.keys().any(|&slot| slot >= self.known) {
            cx.mark("leader.recovered_votes");
        }
        pipeline.recover(votes);
        if pipeline.recovered.len() as u64 != pipeline.recovered_end.0 - pipeline.next.0 {
            cx.mark("leader.found_gaps");
        }
        self.state = State::Leading(Box::new(pipeline));
        cx.stop_timer(LeaderTimer::Election);
        cx.set_timer(LeaderTimer::Heartbeat, self.parameters.heartbeat_every);
        self.pulse(cx);
        self.advance(cx);
    }

    /// Sees to it that what gets lost is noticed.
    pub(super) fn expect_resend(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.resends {
            self.resends = true;
            cx.set_timer(LeaderTimer::Resend, self.parameters.resend_after);
        }
    }

    pub(super) fn on_propose(&mut self, message: Propose, cx: &mut Cx<'_, Self>) {
        if !matches!(message.value, Value::Batch(_) | Value::Entry(_)) {
            return cx.reject("batcher proposed what is no batch");
        }
        let State::Leading(pipeline) = &mut self.state else { return };
        if pipeline.enqueue(message.value) {
            self.fill_window(cx);
        }
    }

    pub(super) fn on_wanted(&mut self, message: Wanted, cx: &mut Cx<'_, Self>) {
        let furthest = self.known.plus(self.parameters.window);
        let State::Leading(pipeline) = &mut self.state else { return };
        if pipeline.next < message.through {
            cx.mark("leader.filled_idle_slots_for_a_read");
            if self.configurations.latest().acceptors.groups().len() > 1 {
                cx.mark("leader.filled_the_slots_of_another_group");
            }
        }
        pipeline.fill_to = pipeline.fill_to.max(message.through.min(furthest));
        self.fill_window(cx);
    }

    /// What becomes possible when execution or knowledge has advanced.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_, Self>) {
        self.retry_finish(cx);
        let (known, in_force) = (self.known, self.version_in_force());
        if let State::Leading(pipeline) = &mut self.state {
            if in_force > pipeline.phase1_version {
                // Others have gone on without this leader, under acceptors that never promised it anything.
                cx.mark("leader.was_overtaken_by_a_change");
                return self.follow(cx);
            }
            if in_force > pipeline.active_version {
                pipeline.active_version = in_force;
                pipeline.activating = None;
            }
            pipeline.forget_executed(known);
            self.activate_next(cx);
            self.fill_window(cx);
            self.leave_if_removed(cx);
        }
    }

    /// Proposes in every slot that the window and the configurations in force allow.
    pub(super) fn fill_window(&mut self, cx: &mut Cx<'_, Self>) {
        let State::Leading(pipeline) = &self.state else { return };
        let proxies = self.proxies(pipeline.next, cx);
        let State::Leading(pipeline) = &mut self.state else { return };
        let mut limit = self.known.plus(self.parameters.window);
        if let Some(next) = self.configurations.with_version(pipeline.active_version + 1) {
            // Its slots belong to acceptors that have not promised yet.
            limit = limit.min(next.first_slot);
            // One of its own is filled as well: once that is executed, no later leader asks the old acceptors.
            pipeline.fill_to = pipeline.fill_to.max(next.first_slot.next());
        }
        while pipeline.next < limit {
            if planted!(gaps_not_filled)
                && pipeline.next < pipeline.recovered_end
                && !pipeline.recovered.contains_key(&pipeline.next)
            {
                pipeline.next = pipeline.next.next();
                continue;
            }
            let Some(value) = pipeline.next_value() else { break };
            let slot = pipeline.next;
            pipeline.next = slot.next();
            let configuration = self.configurations.governing(slot);
            kernel::invariant!(
                AGREE,
                configuration.version <= pipeline.phase1_version,
                "slot {slot} belongs to configuration {}, and Phase 1 went as far as {}",
                configuration.version,
                pipeline.phase1_version
            );
            let proxy = proxies[(slot.0 % proxies.len() as u64) as usize];
            let assign = proxy_leader::Assign {
                ballot: pipeline.ballot,
                slot,
                version: configuration.version,
                value: value.clone(),
            };
            cx.send(proxy, assign);
            let proposed = pipeline.log.insert(slot, Proposal { value, sent_at: cx.now() });
            kernel::invariant!(
                AGREE,
                matches!(proposed, Ok(None)),
                "slot {slot} has a proposal already, or no room after {}",
                self.known
            );
        }
        if !pipeline.log.is_empty() {
            self.expect_resend(cx);
        }
    }

    /// Whom to assign slots to: the proxy leader of this host if there is one, else all that were heard of late, else all.
    fn proxies(&self, slot: Slot, cx: &Cx<'_, Self>) -> Vec<NodeId> {
        let all = &self.configurations.governing(slot).proxy_leaders;
        if let Some(&near) = all.iter().find(|proxy| proxy.host() == cx.node().host()) {
            return vec![near];
        }
        let alive: Vec<NodeId> =
            all.iter().copied().filter(|&proxy| self.is_alive(proxy, cx.now())).collect();
        if alive.is_empty() { all.clone() } else { alive }
    }

    pub(super) fn resend(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, patience) = (cx.now(), self.parameters.resend_after);
        self.resends = false;
        match &mut self.state {
            State::Following | State::PreVoting(_) => return,
            State::Recovering(phase1) => phase1.ask(cx),
            State::Leading(pipeline) if pipeline.activating.is_none() && pipeline.log.is_empty() => return,
            State::Leading(pipeline) => {
                if let Some(activation) = &pipeline.activating {
                    activation.ask(cx);
                }
                let ballot = pipeline.ballot;
                let slots: Vec<Slot> = pipeline
                    .log
                    .iter()
                    .filter(|(_, proposal)| now.since(proposal.sent_at) >= patience)
                    .map(|(slot, _)| slot)
                    .collect();
                for slot in slots {
                    let Some(proposal) = pipeline.log.get_mut(slot) else { continue };
                    proposal.sent_at = now;
                    cx.mark("leader.assigned_again");
                    let configuration = self.configurations.governing(slot);
                    // Any of them, at random: the one on this host may be the one that cannot reach a quorum.
                    let Some(&proxy) = cx.rng().pick(&configuration.proxy_leaders) else { continue };
                    let value = proposal.value.clone();
                    cx.send(
                        proxy,
                        proxy_leader::Assign { ballot, slot, version: configuration.version, value },
                    );
                }
            }
        }
        self.expect_resend(cx);
    }
}
