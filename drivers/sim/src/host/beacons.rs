//! Beacons of one host: each other host is sent a list of those to its nodes, again and again and when they change. A list may be lost as
//! any packet; one that is overtaken by a later one is not read.

use super::{Host, Status};
use crate::beacons::{BeaconList, Lit};
use crate::outside::{Happening, Outside};
use crate::queue::Event;
use kernel::{Beacons, Bytes, Family, HostId, Node, NodeId, REPEAT_WITHIN};
use std::collections::{BTreeMap, BTreeSet};

/// What a host knows of its beacons and of others'.
#[derive(Default)]
pub(crate) struct BeaconTables {
    /// What its nodes may ask.
    pub(crate) heard: Beacons,
    /// Those of its nodes, by receiver and sender.
    lit: BTreeMap<(NodeId, NodeId), Lit>,
    settings: u64,
    /// Hosts that are to be sent a list.
    changed: BTreeSet<HostId>,
    number: u64,
    /// An event is scheduled.
    waits: bool,
    /// The last list of each host: its incarnation and number.
    last: BTreeMap<HostId, (u32, u64)>,
    /// What these lists say, by receiver and sender.
    seen: BTreeMap<(NodeId, NodeId), Lit>,
}

impl BeaconTables {
    /// Whom a node of this host shows beacons.
    pub(crate) fn shown_by(&self, node: NodeId) -> BTreeSet<NodeId> {
        self.lit.keys().filter(|(_, from)| *from == node).map(|(to, _)| *to).collect()
    }
}

impl<N: Node> Host<N> {
    pub(super) fn set_beacon(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: <N::Family as Family>::Message,
        out: &mut Outside<N::Family>,
    ) {
        let bytes = Bytes::from(kernel::Encode::encoded(&message));
        if self.beacons.lit.get(&(to, from)).is_some_and(|lit| lit.bytes == bytes) {
            return;
        }
        self.beacons.settings += 1;
        self.beacons.lit.insert((to, from), Lit { bytes, setting: self.beacons.settings });
        out.reported(from, to, &message);
        if to.host() == self.id {
            self.beacons.heard.light(from, to);
            self.local.push_back((from, to, message));
        } else {
            self.beacons.changed.insert(to.host());
        }
    }

    pub(super) fn stop_beacon(&mut self, from: NodeId, to: NodeId, out: &mut Outside<N::Family>) {
        if self.beacons.lit.remove(&(to, from)).is_none() {
            return;
        }
        if to.host() == self.id {
            self.beacons.heard.put_out(from, to);
            self.end_silences(from, to, out);
        } else {
            self.beacons.changed.insert(to.host());
        }
    }

    /// Sends lists of what has changed.
    pub(super) fn send_changed_beacons(&mut self, out: &mut Outside<N::Family>) {
        for host in std::mem::take(&mut self.beacons.changed) {
            self.send_beacons(host, out);
        }
        self.await_beacons(out);
    }

    /// All lists are due. A paused host sends none.
    pub(crate) fn beacons_due(&mut self, out: &mut Outside<N::Family>) {
        self.beacons.waits = false;
        if self.status == Status::Up && self.paused_until <= out.now {
            let mut hosts: BTreeSet<HostId> = self.beacons.lit.keys().map(|(to, _)| to.host()).collect();
            hosts.remove(&self.id);
            for host in hosts {
                self.send_beacons(host, out);
            }
        }
        self.await_beacons(out);
    }

    fn await_beacons(&mut self, out: &mut Outside<N::Family>) {
        if self.beacons.waits || self.beacons.lit.keys().all(|(to, _)| to.host() == self.id) {
            return;
        }
        self.beacons.waits = true;
        let at = out.now + self.clock.true_duration(REPEAT_WITHIN).max(1);
        out.queue.push(at, Event::Beacons { host: self.index, incarnation: self.incarnation });
    }

    fn send_beacons(&mut self, host: HostId, out: &mut Outside<N::Family>) {
        let BeaconTables { lit, number, .. } = &mut self.beacons;
        *number += 1;
        let to_host = lit.iter().filter(|((to, _), _)| to.host() == host);
        let lit = to_host.map(|(&(to, from), lit)| (to, from, lit.clone())).collect();
        let list = BeaconList { from_host: self.id, incarnation: self.incarnation, number: *number, lit };
        out.send_beacons(self.index, host, list);
    }

    /// A list has arrived: what is new in it is handed over.
    pub(super) fn hear_beacons(&mut self, list: BeaconList, out: &mut Outside<N::Family>) {
        let BeaconList { from_host, incarnation, number, lit } = list;
        let before = self.beacons.last.get(&from_host).copied();
        if before.is_some_and(|before| before >= (incarnation, number)) {
            return;
        }
        out.happened(Happening::Delivery, u64::from(from_host.0), number);
        self.beacons.last.insert(from_host, (incarnation, number));
        let is_same_run = before.is_some_and(|(run, _)| run == incarnation);
        let now = self.clock.monotonic(out.now);
        let BeaconTables { heard, seen, .. } = &mut self.beacons;
        heard.hear(from_host, u64::from(incarnation), now);
        let mut stopped = Vec::new();
        seen.retain(|&(to, from), _| {
            let stays = from.host() != from_host
                || is_same_run && lit.iter().any(|&(lit_to, lit_from, _)| (lit_to, lit_from) == (to, from));
            if !stays && is_same_run {
                heard.put_out(from, to);
                stopped.push((from, to));
            }
            stays
        });
        stopped.into_iter().for_each(|(from, to)| self.end_silences(from, to, out));
        for (to, from, lit) in lit {
            if self.beacons.seen.get(&(to, from)) != Some(&lit) {
                self.beacons.seen.insert((to, from), lit.clone());
                self.beacons.heard.light(from, to);
                out.trace.mix_bytes(&lit.bytes);
                let message = out.decode(from, to, &lit.bytes);
                self.deliver(from, to, message, out);
            }
        }
    }
}
