//! Reads: a linearizable one first asks a read quorum how far it has voted (the paper's section 3.4).

use super::{
    Batcher, GROUP_HEAD_BYTES, PreReadAck, Query, ReadBatch, Superseded, Unasked, bytes_of, chosen_below,
};
use crate::multipaxos::messages::{acceptor, client, replica};
use crate::value::Level;
use kernel::{Cx, NodeId, PageBudget, planted};
use parts::{Slot, Tally};
use std::collections::BTreeMap;

impl Batcher {
    pub(super) fn on_query(&mut self, from: NodeId, message: Query, cx: &mut Cx<'_, Self>) {
        let Query { session, level, seen, queries } = message;
        if !queries.is_sound() || queries.size() > self.parameters.batch_bytes_max {
            return self.refuse(from, session, &queries, client::Status::Malformed, cx);
        }
        if self.waiting_bytes() + queries.size() + GROUP_HEAD_BYTES > self.parameters.pending_bytes_max {
            cx.mark("batcher.refused_a_read_as_busy");
            return self.refuse(from, session, &queries, client::Status::Busy, cx);
        }
        let group = replica::ReadGroup { client: from, session, queries };
        match level {
            Level::Linearizable => {
                self.expect_flush(cx);
                self.pending_read_bytes += bytes_of(&group);
                self.pending_reads.push_back(group);
            }
            Level::Sequential => self.take_unasked(level, seen, group, cx),
            Level::Eventual => self.take_unasked(level, Slot(0), group, cx),
        }
    }

    /// Reads of one level share a message, as linearizable ones do: a weaker level must not cost more. The furthest slot
    /// that any of them needs counts for all.
    pub(super) fn take_unasked(
        &mut self,
        level: Level,
        through: Slot,
        group: replica::ReadGroup,
        cx: &mut Cx<'_, Self>,
    ) {
        self.expect_flush(cx);
        let bytes = bytes_of(&group);
        let reads = self.unasked.entry(level).or_default();
        let full = !reads.groups.is_empty() && reads.bytes + bytes > self.parameters.read_batch_bytes();
        let sent = if full { std::mem::take(reads) } else { Unasked::default() };
        reads.through = reads.through.max(through);
        reads.bytes += bytes;
        reads.groups.push(group);
        if full {
            self.send_reads(sent.through, sent.groups, cx);
        }
    }

    pub(super) fn flush_unasked(&mut self, cx: &mut Cx<'_, Self>) {
        for reads in std::mem::take(&mut self.unasked).into_values() {
            self.send_reads(reads.through, reads.groups, cx);
        }
    }

    pub(super) fn flush_reads(&mut self, cx: &mut Cx<'_, Self>) {
        // By an unconfirmed configuration it would ask acceptors that have not voted yet, and take their word for it.
        while !self.pending_reads.is_empty()
            && self.reads_in_flight.len() < self.parameters.read_batches_in_flight_max
            && !self.configurations.are_unconfirmed()
        {
            self.send_a_read_batch(cx);
        }
    }

    /// No more than a batch holds: it goes to a replica in one message, perhaps on another host.
    pub(super) fn send_a_read_batch(&mut self, cx: &mut Cx<'_, Self>) {
        let id = self.next_read;
        self.next_read += 1;
        let mut budget = PageBudget::new(self.parameters.read_batch_bytes());
        let fits = self.pending_reads.iter().take_while(|group| budget.admits(bytes_of(group))).count();
        let reads: Vec<replica::ReadGroup> = self.pending_reads.drain(..fits).collect();
        let bytes: usize = reads.iter().map(bytes_of).sum();
        self.pending_read_bytes -= bytes;
        self.read_bytes_in_flight += bytes;
        let mut batch = ReadBatch {
            version: 0,
            group: 0,
            tally: Tally::default(),
            voted_through: BTreeMap::new(),
            attempts: 0,
            sent_at: cx.now(),
            reads,
        };
        self.ask_acceptors(id, &mut batch, cx);
        self.reads_in_flight.insert(id, batch);
    }

    pub(super) fn end_reads(&mut self, id: u64) -> Vec<replica::ReadGroup> {
        let reads = self.reads_in_flight.remove(&id).map(|batch| batch.reads).unwrap_or_default();
        let (bytes, all) = (reads.iter().map(bytes_of).sum::<usize>(), self.read_bytes_in_flight);
        kernel::invariant!(BOUND, bytes <= all, "reads of {bytes} bytes of {all} in flight end");
        self.read_bytes_in_flight = all - bytes;
        reads
    }

    /// Asks a read quorum of one group: a random row of a grid, everybody of a majority.
    pub(super) fn ask_acceptors(&self, id: u64, batch: &mut ReadBatch, cx: &mut Cx<'_, Self>) {
        let configuration = self.configurations.latest();
        let groups = configuration.acceptors.groups();
        batch.version = configuration.version;
        batch.group = cx.rng().index(groups.len());
        if !planted!(answers_of_two_configurations_counted) {
            batch.tally = Tally::default();
            batch.voted_through.clear();
        }
        let choice = cx.rng().bits();
        let group = &groups[batch.group];
        // The acceptor on this host costs nothing and may complete a majority of three.
        cx.multicast(group.read_quorum(choice), acceptor::PreRead { id, version: batch.version });
    }

    pub(super) fn on_pre_read_ack(&mut self, from: NodeId, message: PreReadAck, cx: &mut Cx<'_, Self>) {
        let Some(batch) = self.reads_in_flight.get_mut(&message.id) else { return };
        let Some(configuration) = self.configurations.with_version(batch.version) else { return };
        let groups = configuration.acceptors.groups();
        let Some(index) = groups[batch.group].index_of(from) else { return };
        batch.tally.insert(index);
        batch.voted_through.insert(index, message.voted_through);
        let group = &groups[batch.group];
        if !group.is_read_quorum(batch.tally) {
            return;
        }
        let unheard = group.members().len() - batch.voted_through.len();
        if cx.is_disk_full() && unheard > 0 && batch.attempts == 0 {
            // An acceptor whose disk has room has voted in slots that the others cannot vote in: the more are heard, the fewer of those
            // must be waited for.
            return cx.mark("batcher.waits_for_all_acceptors");
        }
        let voted_through = chosen_below(group, &batch.voted_through);
        // The other groups may be up to one round ahead; slots before the first belong to earlier configurations.
        let first_slot = if planted!(read_does_not_wait_for_earlier_configuration) {
            Slot(0)
        } else {
            configuration.first_slot
        };
        let through = voted_through.max(first_slot).plus(groups.len() as u64 - 1);
        let reads = self.end_reads(message.id);
        self.send_reads(through, reads, cx);
    }

    pub(super) fn on_superseded(&mut self, message: Superseded, cx: &mut Cx<'_, Self>) {
        self.configurations.adopt(&message.configurations);
        let latest = self.configurations.latest().version;
        let Some(mut batch) = self.reads_in_flight.remove(&message.id) else { return };
        if batch.version < latest {
            self.ask_acceptors(message.id, &mut batch, cx);
        }
        self.reads_in_flight.insert(message.id, batch);
    }

    /// To the replica of this host if there is one, else to any that is alive as far as is known.
    pub(super) fn send_reads(&self, through: Slot, reads: Vec<replica::ReadGroup>, cx: &mut Cx<'_, Self>) {
        let replicas = &self.configurations.latest().replicas;
        let here = cx.node().host();
        let near = replicas.iter().find(|replica| replica.host() == here).copied();
        let alive: Vec<NodeId> =
            replicas.iter().copied().filter(|replica| self.alive.contains(replica)).collect();
        let far = if alive.is_empty() { replicas } else { &alive };
        if let Some(replica) = near.or_else(|| cx.rng().pick(far).copied()) {
            cx.send(replica, replica::ReadBatch { through, unbatcher: self.unbatcher, reads });
        }
    }
}
