//! Entries on their way to the group's log.

use super::{Lead, Numbers, Pending, Stage, early};
use crate::proxy::entry::{AssignmentBatch, Entry};
use crate::proxy::{Frame, Proxy};
use kernel::{Cx, Encode, NodeId, planted};
use paxos::multipaxos::leader;
use paxos::{Members, Value};

impl Lead {
    pub(in crate::proxy) fn propose_members(members: &Members, log: NodeId, cx: &mut Cx<'_, Proxy>) {
        Self::propose_entry(&Entry::Members(members.clone()), log, cx);
    }

    pub(in crate::proxy) fn propose_entry(entry: &Entry, log: NodeId, cx: &mut Cx<'_, Proxy>) {
        propose_encoded(entry.encoded(), log, cx);
    }
}

/// Returns how many bytes it comes to.
pub(super) fn propose_batch(
    pending: &mut Pending,
    epoch: u64,
    sequencer: u64,
    frame: &Frame<'_>,
    cx: &mut Cx<'_, Proxy>,
) -> u64 {
    let Stage::Proposed { index, numbers } = &pending.stage else { return 0 };
    let Numbers { request, rows, gsn, cut, time } = numbers.clone();
    let index = *index;
    if planted!(operations_delivered_before_logged) || planted!(operations_not_in_log) {
        early::have_executed(pending, frame, cx);
    }
    // Lent for the time of the encoding.
    let items = std::mem::take(&mut pending.items);
    let bytes: usize = items.iter().map(|item| item.operation.body.len() + 64).sum();
    let mut value = Vec::with_capacity(bytes + 256);
    let batch = AssignmentBatch { epoch, index, sequencer, request, rows, gsn, cut, time, items };
    if planted!(operations_not_in_log) {
        Entry::Batch(AssignmentBatch { items: Vec::new(), ..batch.clone() }).encode(&mut value);
        pending.items = batch.items;
    } else {
        let entry = Entry::Batch(batch);
        entry.encode(&mut value);
        if let Entry::Batch(batch) = entry {
            pending.items = batch.items;
        }
    }
    let bytes = value.len() as u64;
    propose_encoded(value, frame.log.leader, cx);
    bytes
}

pub(super) fn propose(entry: &Entry, frame: &Frame<'_>, cx: &mut Cx<'_, Proxy>) {
    propose_encoded(entry.encoded(), frame.log.leader, cx);
}

fn propose_encoded(entry: Vec<u8>, log: NodeId, cx: &mut Cx<'_, Proxy>) {
    match Value::entry(entry) {
        Ok(value) => cx.send(log, paxos::Message::from(leader::Propose { value })),
        // Operations, pages and rows of numbers are bounded where they are taken: see `misfit` of the parameters.
        Err(_) => cx.reject("entry larger than a slot holds"),
    }
}
