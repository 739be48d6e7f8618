//! Barriers: what makes reads linearizable. One passes when every group has said how far its log had come after it was sent.

use crate::gateway::Gateway;
use kernel::{Cx, Instant, NodeId};
use mason::client::BarrierPassed;
use mason::proxy::Barrier;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// So many barriers are under way at most; the reads that come meanwhile share the next one.
const BARRIERS_MAX: usize = 4;
/// A barrier that has not passed by then is asked for again.
const BARRIER_AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct UnderWay {
    id: u64,
    missing: BTreeSet<usize>,
    /// The groups below this one were asked.
    asked_below: usize,
    asked: Instant,
}

#[derive(Debug)]
pub(crate) struct Barriers {
    /// The one that reads of now will wait for; not sent yet.
    next: u64,
    wanted: bool,
    passed: u64,
    under_way: VecDeque<UnderWay>,
    waiting: BTreeMap<u64, Vec<NodeId>>,
}

impl Barriers {
    pub(crate) fn new() -> Self {
        Self { next: 1, wanted: false, passed: 0, under_way: VecDeque::new(), waiting: BTreeMap::new() }
    }

    /// The barrier that a read of now has to wait for; `node` becomes runnable when it has passed.
    pub(crate) fn want(&mut self, node: NodeId) -> u64 {
        self.wanted = true;
        let waiting = self.waiting.entry(self.next).or_default();
        if waiting.last() != Some(&node) {
            waiting.push(node);
        }
        self.next
    }

    /// The same where nobody becomes runnable.
    pub(crate) fn want_for_nobody(&mut self) -> u64 {
        self.wanted = true;
        self.next
    }

    pub(crate) fn has_passed(&self, barrier: u64) -> bool {
        barrier <= self.passed
    }
}

impl Gateway {
    pub(crate) fn send_barriers(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.barriers.wanted || self.barriers.under_way.len() >= BARRIERS_MAX {
            return;
        }
        let id = self.barriers.next;
        self.barriers.wanted = false;
        self.barriers.next += 1;
        self.metrics.barriers += 1;
        let asked_below = usize::from(self.layout.spanning);
        let missing = (0..asked_below).collect();
        self.barriers.under_way.push_back(UnderWay { id, missing, asked_below, asked: self.now });
        cx.multicast(self.settings.routes.proxies.iter().copied().take(asked_below), Barrier { id });
    }

    /// A proxy that had no leader may have dropped the question.
    pub(crate) fn ask_barriers_again(&mut self, cx: &mut Cx<'_, Self>) {
        for barrier in &mut self.barriers.under_way {
            if self.now.since(barrier.asked) >= BARRIER_AGAIN_AFTER {
                barrier.asked = self.now;
                let proxies = &self.settings.routes.proxies;
                let missing = barrier.missing.iter().filter_map(|&group| proxies.get(group).copied());
                cx.multicast(missing, Barrier { id: barrier.id });
            }
        }
    }

    /// The first group's log says which groups are in use: a write that was answered before the barrier was sent was made by one
    /// of those.
    pub(crate) fn on_barrier_passed(&mut self, message: BarrierPassed, cx: &mut Cx<'_, Self>) {
        let layout = message.layout.filter(|_| message.group == mason::proxy::arranging::FIRST);
        if let Some(layout) = &layout {
            self.learn_layout(layout);
        }
        let barriers = &mut self.barriers.under_way;
        let Some(at) = barriers.iter().position(|barrier| barrier.id == message.id) else { return };
        let barrier = &mut barriers[at];
        barrier.missing.remove(&usize::from(message.group.0));
        if let Some(layout) = layout {
            let spanning = usize::from(layout.spanning);
            let proxies = &self.settings.routes.proxies;
            let added = proxies.iter().copied().take(spanning).skip(barrier.asked_below);
            cx.multicast(added, Barrier { id: message.id });
            barrier.missing.extend(barrier.asked_below..spanning);
            barrier.missing.retain(|&group| group < spanning);
            barrier.asked_below = spanning.max(barrier.asked_below);
        }
        if !barriers[at].missing.is_empty() {
            return;
        }
        // What a later barrier has waited for includes what an earlier one waits for.
        barriers.drain(..=at);
        self.barriers.passed = self.barriers.passed.max(message.id);
        let later = self.barriers.waiting.split_off(&(self.barriers.passed + 1));
        let woken = std::mem::replace(&mut self.barriers.waiting, later);
        self.runnable.extend(woken.into_values().flatten());
    }
}
