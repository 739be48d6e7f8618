//! Reading chosen values back from the acceptors, for a replica that no other replica can help.
//!
//! A replica may be the only one left that lacks a slot: the others that executed it are gone, and acceptors alone have
//! it. Phase 1 in the leader's own ballot disturbs nobody: in a slot below the leader's knowledge the vote of the highest
//! ballot in a read quorum is the chosen value.

use super::election::Tallies;
use super::phase1::relevant;
use super::{Leader, Phase1b, ReportedVote, State, Stuck};
use crate::configuration::Configuration;
use crate::multipaxos::messages::{acceptor, replica};
use crate::value::Value;
use kernel::{Cx, Instant, NodeId, PageBudget, planted};
use parts::{Ballot, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a recall for other slots may keep one waiting.
const RECALL_STALLED_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(super) struct Recall {
    replicas: BTreeSet<NodeId>,
    from: Slot,
    inquiry: u64,
    begun_at: Instant,
    asked_at: Instant,
    configurations: Vec<Configuration>,
    answered: Vec<Tallies>,
    votes: BTreeMap<Slot, (Ballot, Value)>,
    /// Every page received reaches at least here, and the replica knows who governs the slots up to here.
    through: Slot,
}

impl Recall {
    pub(super) fn inquiry(&self) -> u64 {
        self.inquiry
    }

    fn ask(&self, ballot: Ballot, cx: &mut Cx<'_, Leader>) {
        let acceptors: BTreeSet<NodeId> =
            self.configurations.iter().flat_map(|configuration| configuration.acceptors.nodes()).collect();
        cx.multicast(
            acceptors,
            acceptor::Phase1a { ballot, from: self.from, inquiry: self.inquiry, version: None },
        );
    }
}

impl Leader {
    pub(super) fn on_stuck(&mut self, from: NodeId, message: Stuck, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let inquiry = self.next_inquiry();
        let State::Leading(pipeline) = &mut self.state else { return };
        if message.from >= self.known {
            return;
        }
        let ballot = pipeline.ballot();
        if let Some(recall) = &mut pipeline.recall {
            if recall.from == message.from {
                // The same question again, not another one: answers may take longer than the replica's patience.
                recall.replicas.insert(from);
                if now.since(recall.asked_at) >= 2 * self.parameters.resend_after {
                    recall.asked_at = now;
                    recall.ask(ballot, cx);
                }
                return;
            }
            if now.since(recall.begun_at) < RECALL_STALLED_AFTER {
                return;
            }
        }
        // A replica at slot `i` knows who governs every slot before `i + window`, and no other slot is answered: under the
        // wrong acceptors a vote that was never chosen could look like the last one.
        let through = self.known.min(message.from.plus(self.parameters.window));
        let mut configurations = relevant(&message.configurations, message.from);
        configurations.retain(|configuration| configuration.first_slot < through);
        let recall = pipeline.recall.insert(Recall {
            replicas: BTreeSet::from([from]),
            from: message.from,
            inquiry,
            begun_at: now,
            asked_at: now,
            answered: vec![Tallies::default(); configurations.len()],
            configurations,
            votes: BTreeMap::new(),
            through,
        });
        recall.ask(ballot, cx);
    }

    pub(super) fn on_recalled(&mut self, from: NodeId, message: Phase1b, cx: &mut Cx<'_, Self>) {
        let known = self.known;
        let State::Leading(pipeline) = &mut self.state else { return };
        let Some(recall) = &mut pipeline.recall else { return };
        if message.truncated_below > recall.from {
            // Only a snapshot has it.
            pipeline.recall = None;
            return;
        }
        if !planted!(recall_reaches_beyond_its_pages) {
            recall.through = message.more.map_or(recall.through, |more| recall.through.min(more));
        }
        for ReportedVote { slot, ballot, value } in message.votes {
            let best = recall.votes.entry(slot).or_insert_with(|| (ballot, value.clone()));
            if best.0 < ballot {
                *best = (ballot, value);
            }
        }
        for (configuration, answered) in recall.configurations.iter().zip(&mut recall.answered) {
            answered.count(configuration, from);
        }
        let complete = recall
            .configurations
            .iter()
            .zip(&recall.answered)
            .all(|(configuration, it)| it.can_read(configuration));
        if !complete {
            return;
        }
        let Some(mut recall) = pipeline.recall.take() else { return };
        let mut values = Vec::new();
        let mut slot = recall.from;
        // The acceptors' pages may come to more than a message: the replica asks for what follows.
        let mut page = PageBudget::new(self.parameters.page_bytes);
        while slot < recall.through {
            let Some((_, value)) = recall.votes.remove(&slot).filter(|(_, value)| page.admits(value.size()))
            else {
                break;
            };
            values.push(value);
            slot = slot.next();
        }
        kernel::invariant!(
            AGREE,
            slot <= known,
            "recalls slots below {slot}, and knows {known} to be chosen"
        );
        cx.mark("leader.recalled_entries_for_a_replica");
        cx.multicast(recall.replicas, replica::ChosenValues { from: recall.from, values, executed: known });
    }
}
