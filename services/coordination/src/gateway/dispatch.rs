//! The way of requests: each goes when those before it let it, and when there is room for its answer.

use crate::gateway::Asker;
use crate::gateway::Gateway;
use crate::gateway::choice;
use crate::gateway::connection::{EntrySeq, Purpose, Reply, Work, entry_of};
use crate::gateway::reads::{ANSWER_HEAD_BYTES, Target};
use crate::gateway::room::Room;
use crate::wire::{Body, Code, JuteOutput as _, WatchSeq};
use kernel::{Bytes, NodeId};
use mason::Space;

/// What becomes of those behind a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// They may go, too.
    Go,
    /// They wait.
    Wait,
}

impl Gateway {
    /// Sends what may go on its way, in the order asked.
    pub(crate) fn dispatch(&mut self, node: NodeId) {
        while let Some(seq) = self.connections.get(&node).map(|connection| connection.next) {
            let may_go = self.may_go(node, seq);
            let room = if may_go { self.room_for(node, seq) } else { Room::Now };
            if matches!(room, Room::Now | Room::Never) {
                self.roomless.remove(node);
            }
            if matches!(room, Room::Later | Room::NextTurn)
                || self.dispatch_one(node, seq, may_go, room) == Behind::Wait
            {
                return;
            }
            if let Some(connection) = self.connections.get_mut(&node) {
                connection.next = seq.next();
            }
        }
    }

    fn dispatch_one(&mut self, node: NodeId, seq: EntrySeq, may_go: bool, room: Room) -> Behind {
        let Some(connection) = self.connections.get_mut(&node) else { return Behind::Wait };
        let (first, writes) = (connection.first, connection.writes_in_flight);
        let Some(entry) = entry_of(&mut connection.queue, first, seq) else { return Behind::Wait };
        match &mut entry.work {
            Work::Done(_) => Behind::Go,
            Work::CheckWatches { .. } => {
                // Its turn is when it is the first, and nothing behind it is in flight: what that leaves is not its business.
                if seq == first {
                    connection.next = seq.next();
                }
                Behind::Wait
            }
            Work::Write { .. } => self.dispatch_write(node, seq),
            Work::Close => self.dispatch_close(node, seq),
            Work::Handshake { .. } => {
                if writes == 0 {
                    connection.writes_in_flight += 1;
                    self.upkeep.handshakes.push((node, seq));
                }
                Behind::Wait
            }
            Work::Sync { barrier, path } => {
                let has_passed = self.upstream.has_passed(*barrier) || kernel::planted!(sync_without_barrier);
                if writes > 0 || !has_passed {
                    return Behind::Wait;
                }
                let mut body = Vec::new();
                body.put_text(path);
                // What is read from here on shows all that was known when the barrier had passed.
                entry.work = Work::Done(Reply::new(self.highest, 0, body));
                Behind::Go
            }
            Work::Read(read) if read.sent => behind(read.blocks()),
            Work::Read(read) if room == Room::Never => {
                let counted = read.counted;
                read.leave(&mut connection.account, &mut self.pool);
                connection.reads_in_flight -= usize::from(counted);
                entry.work = Work::Done(Reply::new(0, Code::BadArguments.number(), Bytes::new()));
                Behind::Go
            }
            Work::Read(_) if may_go => self.dispatch_read(node, seq),
            Work::Read(_) => Behind::Wait,
        }
    }

    fn dispatch_write(&mut self, node: NodeId, seq: EntrySeq) -> Behind {
        let Some((home, alone)) = self.home_of_writes(node) else { return Behind::Wait };
        let Some(connection) = self.connections.get_mut(&node) else { return Behind::Wait };
        let (reads, writes) = (connection.reads_in_flight, connection.writes_in_flight);
        let Some(entry) = entry_of(&mut connection.queue, connection.first, seq) else { return Behind::Wait };
        let Work::Write { body, survey, sent } = &mut entry.work else { return Behind::Wait };
        if reads > 0 || *sent || (alone && writes > 0) {
            return Behind::Wait;
        }
        *sent = true;
        let (body, blocks) = (body.clone(), survey.is_some());
        (connection.home, connection.rehoming) = (home, alone);
        connection.writes_in_flight += 1;
        self.submit(home, body, Asker::Request(node, seq));
        behind(blocks)
    }

    fn dispatch_close(&mut self, node: NodeId, seq: EntrySeq) -> Behind {
        let Some((home, alone)) = self.home_of_writes(node) else { return Behind::Wait };
        let Some(connection) = self.connections.get_mut(&node) else { return Behind::Wait };
        if connection.reads_in_flight > 0 || (alone && connection.writes_in_flight > 0) {
            return Behind::Wait;
        }
        (connection.home, connection.rehoming) = (home, alone);
        connection.writes_in_flight += 1;
        let (session, epoch) = (connection.session, connection.epoch);
        self.submit(home, Body::Close { session, epoch }.written(), Asker::Request(node, seq));
        Behind::Go
    }

    /// Where the session is at home, and whether its next write waits for those before it: it goes to another group than they.
    fn home_of_writes(&self, node: NodeId) -> Option<(usize, bool)> {
        let connection = self.connections.get(&node)?;
        let home = self.home(connection.session);
        Some((home, connection.home != home || connection.rehoming))
    }

    fn dispatch_read(&mut self, node: NodeId, seq: EntrySeq) -> Behind {
        let (placement, shard_map) = (self.settings.placement, self.marks.shard_map().version);
        let Some(connection) = self.connections.get_mut(&node) else { return Behind::Wait };
        let expected = connection.account.expected(self.pool.bounds());
        let low_watermark = connection.seen.max(connection.written);
        let Some(entry) = entry_of(&mut connection.queue, connection.first, seq) else { return Behind::Wait };
        let Work::Read(read) = &mut entry.work else { return Behind::Wait };
        read.sent = true;
        if read.shard_map != shard_map {
            read.leave(&mut connection.account, &mut self.pool);
            choice::choose_anew(&placement, shard_map, read);
        }
        // What a learner claims to have seen may not exist.
        let low_watermark = if matches!(read.purpose, Purpose::Greeting { .. }) { 0 } else { low_watermark };
        let (watch, blocks) = (read.leaves(), read.blocks());
        connection.reads_in_flight += usize::from(!std::mem::replace(&mut read.counted, true));
        let mut asked = Vec::new();
        for (at, part) in read.parts.iter_mut().enumerate().filter(|(_, part)| part.room.is_none()) {
            let room = part.needs.unwrap_or(expected);
            part.room = Some(room);
            self.pool.reserve(&mut connection.account, room);
            asked.push((at, part.space, part.query.clone(), room));
        }
        for (at, space, query, room) in asked {
            self.ask_part((node, seq, at), (space, query), (low_watermark, room), watch, shard_map);
        }
        behind(blocks)
    }

    /// Whether the entry is a read or a write whose turn it is.
    fn may_go(&mut self, node: NodeId, seq: EntrySeq) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        let (reads, writes) = (connection.reads_in_flight, connection.writes_in_flight);
        match connection.entry(seq).map(|entry| &entry.work) {
            Some(Work::Read(read)) => writes == 0 && !read.sent && self.upstream.has_passed(read.barrier),
            Some(Work::Write { sent, .. }) => reads == 0 && !sent,
            _ => false,
        }
    }

    /// Asks a part again, of a state that is not older than `at_least`.
    pub(crate) fn ask_again(&mut self, node: NodeId, seq: EntrySeq, at: usize, at_least: u64) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let connection_expected = connection.account.expected(self.pool.bounds());
        let Some(entry) = connection.entry(seq) else { return };
        let Work::Read(read) = &mut entry.work else { return };
        let Some(part) = read.parts.get_mut(at) else { return };
        part.answer = None;
        read.unanswered += 1;
        let before = part.room.unwrap_or(0);
        let room = before.max(connection_expected);
        part.room = Some(room);
        let asked = (part.space, part.query.clone());
        let (watch, shard_map) = (read.leaves(), read.shard_map);
        let path = match &read.purpose {
            Purpose::Node { path, watch: true, .. } => Some(path.clone()),
            _ => None,
        };
        self.pool.reserve(&mut connection.account, room - before);
        if let Some(path) = path {
            // What the first answer left is void: the client never sees that answer.
            connection.events.retain(|_, event| event.after != seq);
            let placement = &self.settings.placement;
            let unwatched = self.watchers.take_back(connection, &path, seq, placement);
            self.forget(unwatched);
        }
        self.metrics.reads_again += 1;
        self.ask_part((node, seq, at), asked, (at_least, room), watch, shard_map);
    }

    pub(crate) fn ask_part(
        &mut self,
        (node, seq, part): (NodeId, EntrySeq, usize),
        (space, query): (Space, Bytes),
        (at_least, room): (u64, usize),
        watch: Option<WatchSeq>,
        shard_map: u64,
    ) {
        watch.into_iter().for_each(|watch| self.unneeded.sent(watch));
        let watch = watch.map(|watch| (watch, query.clone()));
        let target = Target::Part { node, seq, part, at_least, watch, shard_map };
        // Every answer begins with what it shows, and a code.
        let limit = (room + ANSWER_HEAD_BYTES) as u64;
        self.reads.ask_within(space, Some(shard_map), query, (at_least, limit), target);
    }
}

fn behind(blocks: bool) -> Behind {
    if blocks { Behind::Wait } else { Behind::Go }
}
