//! What happens between reading and writing: nodes work, messages within the host cascade, effects are carried out.

use crate::clients::CLIENT_SLOTS;
use crate::error::HostError;
use crate::reactor::{Held, Message, Reactor};
use crate::timers::NodeIndex;
use kernel::{BlobEffect, Bytes, Effect, Effects, HostId, HostSlot, Listener, Node, NodeId, Rng};
use std::collections::BTreeSet;
use std::time::Duration;

/// Messages within the host in one burst; what is beyond waits until sockets have had their turn.
const CASCADE_MAX: usize = 1 << 16;
/// The same in time, looked at after so many messages.
const CASCADE_TIME_MAX: Duration = Duration::from_millis(20);
const CASCADE_LOOK_EVERY: usize = 64;

impl<N: Node + 'static> Reactor<N> {
    /// Gives each node its records back.
    pub(crate) fn place_nodes(
        &mut self,
        nodes: Vec<(HostSlot, N)>,
        forget: &[HostSlot],
        me: HostId,
        tracing: bool,
        rng: &mut Rng,
    ) -> Result<(), HostError> {
        let mut host_slots = BTreeSet::new();
        for (host_slot, node) in nodes {
            if host_slot.0 >= CLIENT_SLOTS || !host_slots.insert(host_slot) {
                return Err(HostError::Slot { host_slot });
            }
            let journal = self.journal.as_ref();
            let next = journal.map_or(kernel::Position(0), |journal| journal.next_position(host_slot));
            self.nodes.push(NodeId::new(me, host_slot), node, Effects::new(next, tracing), rng.fork());
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        for (host_slot, records) in journal.host_slots() {
            if records > 0 && !host_slots.contains(&host_slot) && !forget.contains(&host_slot) {
                return Err(HostError::Orphan { host_slot, records });
            }
        }
        let nodes = &mut self.nodes;
        journal.replay(|host_slot, position, record| {
            let Some(index) = nodes.find(host_slot) else { return Ok(()) };
            let restored = nodes.slots[index.0].node.restore(position, Bytes::copy_from_slice(record));
            restored.map_err(|cause| HostError::Record { host_slot, position, cause })
        })??;
        for host_slot in forget.iter().filter(|host_slot| !host_slots.contains(host_slot)) {
            let next = journal.next_position(*host_slot);
            journal.trim(*host_slot, next);
            self.blobs.carry_out(*host_slot, BlobEffect::Keep { ids: Vec::new() });
        }
        Ok(())
    }

    /// Hands a message to a node or client of this host.
    pub(crate) fn deliver(&mut self, from: NodeId, to: NodeId, message: Message<N>) {
        if let Some(observer) = &mut self.router.observer {
            observer.on_received(from, to, &message);
        }
        if to.host_slot().0 >= CLIENT_SLOTS {
            let (clients, mut outside) = self.client_parts();
            clients.deliver(from, to, message, &mut outside);
        } else if let Some(index) = self.nodes.find(to.host_slot()) {
            self.nodes.message(index, from, message);
        } else {
            self.router.metrics.drop_message("no such node");
        }
    }

    /// Until nothing is left to be done within the host, or the bound is reached.
    pub(crate) fn settle(&mut self) {
        let (mut left, began) = (CASCADE_MAX, std::time::Instant::now());
        loop {
            self.carry_out();
            if self.router.inbox.is_empty() || left == 0 {
                if !self.nodes.end_burst() {
                    return;
                }
                continue;
            }
            for _ in 0..self.router.inbox.len().min(left) {
                if let Some((from, to, message)) = self.router.inbox.pop_front() {
                    self.deliver(from, to, message);
                    left -= 1;
                }
                if left.is_multiple_of(CASCADE_LOOK_EVERY) && began.elapsed() >= CASCADE_TIME_MAX {
                    self.router.metrics.rounds_limited += 1;
                    left = 0;
                    break;
                }
            }
        }
    }

    fn carry_out(&mut self) {
        for (from, to, message) in self.clients.sends.drain(..) {
            self.router.route(from, to, message, self.nodes.now);
        }
        while let Some(index) = self.nodes.next_dirty() {
            self.carry_out_of(index);
        }
    }

    /// Carries out the effects of one node; what must wait for the journal is put aside with its commit.
    fn carry_out_of(&mut self, index: NodeIndex) {
        let now = self.nodes.now;
        let slot = &mut self.nodes.slots[index.0];
        let from = slot.id;
        if let Some(journal) = &mut self.journal
            && slot.effects.records().next().is_some()
        {
            journal.append(from.host_slot(), slot.effects.records());
            slot.last_append = journal.pending();
        }
        slot.effects.clear_records();
        let durable = self.journal.as_ref().is_none_or(|journal| journal.durable() >= slot.last_append);
        let after = slot.last_append;
        for effect in slot.effects.drain() {
            match effect {
                Effect::Send { to, message } => self.router.route(from, to, message, now),
                Effect::SendDurable { to, message, .. } if durable => {
                    self.router.route(from, to, message, now)
                }
                Effect::SendDurable { to, message, .. } => {
                    self.held.push_back((after, Held::Send { from, to, message }));
                }
                Effect::Repeat { to, message, after: Some(_) } if !durable => {
                    self.held.push_back((after, Held::Repeat { from, to, message }));
                }
                Effect::Repeat { to, message, .. } => self.router.repeat(from, to, message, now),
                Effect::SetBeacon { to, message } => {
                    if self.router.set_beacon(from, to, message, now) {
                        self.nodes.beacons.light(from, to);
                    }
                }
                Effect::StopBeacon { to } => {
                    self.router.stop_beacon(from, to, now);
                    if to.host() == self.me {
                        self.nodes.beacons.put_out(from, to);
                        self.nodes.timers.end_silences(from, to, now);
                    }
                }
                Effect::Trim { before } => {
                    self.held.push_back((after, Held::Trim { host_slot: from.host_slot(), before }));
                }
                Effect::Blob(effect @ BlobEffect::Drop { .. }) if !durable => {
                    self.held.push_back((after, Held::Blob { host_slot: from.host_slot(), effect }));
                }
                Effect::Blob(effect) => self.blobs.carry_out(from.host_slot(), effect),
                Effect::SetTimer { timer, after, silence: None } => {
                    self.nodes.timers.set(index, timer, now, after);
                }
                Effect::SetTimer { timer, after, silence: Some(silence) } => {
                    let listener = Listener { node: from, silence, since: now, until: now + after };
                    self.nodes.timers.listen(index, timer, listener, &self.nodes.beacons);
                }
                Effect::StopTimer { timer } => self.nodes.timers.stop(index, timer),
                Effect::Respond { id, response } => {
                    if let Some(promise) = self.requests.remove(&id) {
                        promise.keep(response);
                    }
                }
                Effect::Reject { reason } => *self.router.metrics.rejects.entry(reason).or_insert(0) += 1,
                Effect::Mark { name } => *self.router.metrics.marks.entry(name).or_insert(0) += 1,
                Effect::Note { text } => {
                    self.events_out.push(crate::event::HostEvent::Note { node: from, text });
                }
            }
        }
    }

    /// Lets go what waited for a commit that is durable now; true if there was anything to send.
    pub(crate) fn release(&mut self) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        let mut sent = false;
        while let Some((after, _)) = self.held.front()
            && *after <= journal.durable()
            && let Some((_, held)) = self.held.pop_front()
        {
            match held {
                Held::Send { from, to, message } => {
                    sent = true;
                    self.router.route(from, to, message, self.nodes.now);
                }
                Held::Repeat { from, to, message } => {
                    sent = true;
                    self.router.repeat(from, to, message, self.nodes.now);
                }
                Held::Trim { host_slot, before } => journal.trim(host_slot, before),
                Held::Blob { host_slot, effect } => self.blobs.carry_out(host_slot, effect),
            }
        }
        sent
    }
}
