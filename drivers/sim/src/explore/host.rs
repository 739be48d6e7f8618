//! One host of a small world: its nodes, its journal, and what waits for it.

use super::Scope;
use super::fingerprint::Fingerprint;
use crate::draw::mix;
use crate::effects::{Deferred, Held, Waiting};
use kernel::{Bytes, Encode, Family, HostId, HostSlot, Node, NodeId, Position};
use std::hash::Hasher;
use std::rc::Rc;

pub(super) type Message<N> = <<N as Node>::Family as Family>::Message;

#[derive(Clone)]
pub(super) struct Seat<N: Node> {
    pub(super) id: NodeId,
    pub(super) node: N,
    /// One bit a pending timer.
    pub(super) timers: u64,
    pub(super) next: Position,
    /// How many records the host's journal had with the node's last one.
    pub(super) appended: u64,
    /// Called since its last burst end.
    pub(super) touched: bool,
}

pub(super) struct Retained {
    pub(super) host_slot: HostSlot,
    pub(super) position: Position,
    pub(super) bytes: Bytes,
}

#[derive(Clone)]
pub(super) struct HostState<N: Node> {
    pub(super) id: HostId,
    pub(super) up: bool,
    pub(super) incarnation: u32,
    pub(super) seats: Vec<Seat<N>>,
    pub(super) records: Vec<Rc<Retained>>,
    /// How many records had been trimmed before the first of `records`, so that counts go on growing.
    pub(super) trimmed: u64,
    pub(super) durable: u64,
    /// Up to where each slot was trimmed: its records go on being numbered from there.
    pub(super) trims: Vec<(HostSlot, Position)>,
    pub(super) held: Held<Message<N>>,
    pub(super) fingerprint: u64,
}

impl<N: Node> HostState<N> {
    pub(super) fn new(id: HostId) -> Self {
        Self {
            id,
            up: false,
            incarnation: 0,
            seats: Vec::new(),
            records: Vec::new(),
            trimmed: 0,
            durable: 0,
            trims: Vec::new(),
            held: Held::default(),
            fingerprint: 0,
        }
    }

    /// How many records were ever written.
    pub(super) fn written(&self) -> u64 {
        self.trimmed + self.records.len() as u64
    }

    /// Drops durable records that are not needed.
    pub(super) fn trim(&mut self, host_slot: HostSlot, before: Position) {
        let durable = (self.durable - self.trimmed) as usize;
        let unneeded = |record: &Retained| record.host_slot == host_slot && record.position < before;
        let mut at = 0;
        self.records.retain(|record| {
            at += 1;
            at > durable || !unneeded(record)
        });
        let dropped = at - self.records.len();
        self.trimmed += dropped as u64;
        self.trims.retain(|&(of, _)| of != host_slot);
        self.trims.push((host_slot, before));
    }

    pub(super) fn refresh<S: Scope<Node = N>>(&mut self, scope: &S) {
        let mut hasher = Fingerprint(mix(u64::from(self.incarnation), u64::from(self.up)));
        for seat in &self.seats {
            scope.fingerprint(&seat.node, &mut hasher);
            hasher.write_u64(seat.timers);
            hasher.write_u64(seat.next.0);
        }
        for record in &self.records {
            hasher.write_u64(u64::from(record.host_slot.0) ^ record.position.0.rotate_left(32));
            hasher.write(&record.bytes);
        }
        hasher.write_u64(self.durable - self.trimmed);
        let mut scratch = Vec::new();
        for Waiting { node, deferred, target } in self.held.iter() {
            scratch.clear();
            let left = target - self.trimmed;
            match deferred {
                Deferred::Send { to, message } => {
                    hasher.write_u64(mix(node.as_u64(), to.as_u64()) ^ left);
                    message.encode(&mut scratch);
                    hasher.write(&scratch);
                }
                Deferred::Trim { before } => {
                    hasher.write_u64(mix(u64::from(node.host_slot().0), before.0) ^ left);
                }
                // No explored node has blobs.
                Deferred::DropBlob { .. } => {}
            }
        }
        self.fingerprint = hasher.finish();
    }
}
