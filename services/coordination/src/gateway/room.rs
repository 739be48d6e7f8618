//! Room for answers: no read goes to a shard before there is room for what it will be answered, and no connection has more than its
//! turn. See [`parts::Pool`].
//!
//! How large an answer is, nobody knows before it is made. A read goes out with as much room as the answers before it have
//! needed; a shard that would answer more says how much, and the read goes out again when there is room for that.

use crate::gateway::Gateway;
use crate::gateway::connection::{Connection, EntrySeq, Purpose, Read, Work};
use kernel::{Cx, NodeId};
use parts::{Account, Pool, TurnBounds};
use std::ops::Bound;
use std::time::Duration;

/// What all connections together may ask for in one turn. Answers are copied from the tree to sockets before anybody else has a turn, and
/// who waits for a write waits for several of them.
pub(crate) const TURN_BOUNDS: TurnBounds = TurnBounds { requests_max: 2_000, bytes_max: 1 << 20 };
/// Requests taken from one connection in one turn.
const TURN_REQUESTS_OF_ONE_MAX: usize = 200;
/// Until the next turn.
pub(crate) const TURN: Duration = Duration::from_millis(1);
/// Writes of one connection that are not answered, in bytes, beside the last; and of all. What is in flight goes to the disks before what
/// others write.
const WRITE_BYTES_MAX: usize = 1 << 20;
const WRITE_BYTES_MAX_TOTAL: usize = 64 << 20;
/// Where more than so much of all is not answered, a connection has one write in flight.
const WRITE_BYTES_PIPELINED: usize = 2 << 20;
/// Whole requests of one connection that are not looked at yet, in bytes.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// While others wait for room, who has taken nothing for so long loses what is reserved for it.
const UNREAD_MAX: Duration = Duration::from_secs(5);
/// What an answer to a write is taken for: most say a path and the node's numbers, and what waits is counted as it is.
const WRITE_ANSWER_BYTES: usize = 1 << 10;

/// Whether a read may go on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Now,
    /// When somebody has taken what it was sent.
    Later,
    /// In the next turn.
    NextTurn,
    /// Its answer is larger than all that may wait.
    Never,
}

impl Read {
    /// Room for the parts that are not asked yet.
    fn wanted(&self, expected: usize) -> usize {
        let parts = self.parts.iter().filter(|part| part.room.is_none());
        parts.fold(0, |sum: usize, part| sum.saturating_add(part.needs.unwrap_or(expected)))
    }

    /// Room for what it was or will be answered.
    pub(crate) fn room(&self) -> usize {
        self.parts.iter().filter_map(|part| part.room).sum()
    }

    /// Gives the room for it back.
    pub(crate) fn leave(&mut self, account: &mut Account, pool: &mut Pool) {
        pool.release(account, self.room());
        self.parts.iter_mut().for_each(|part| part.room = None);
    }

    /// What goes on its way is behind it.
    pub(crate) fn blocks(&self) -> bool {
        matches!(self.purpose, Purpose::Greeting { .. } | Purpose::Survey(_) | Purpose::Dump)
    }
}

impl Connection {
    /// Bytes of answers that wait for their turn here, and room for those that shards are asked for; for invariants. And how
    /// many of them are of the largest.
    pub(crate) fn answers_held(&self) -> (usize, usize) {
        let reads = self.queue.iter().filter_map(|entry| match &entry.work {
            Work::Read(read) => Some(read.room()),
            _ => None,
        });
        reads.fold((0, 0), |(bytes, largest), room| (bytes + room, largest.max(room)))
    }
}

impl Gateway {
    /// By connection: bytes of answers that shards were asked for and that are not written yet, and those of the largest.
    pub fn answers_held(&self) -> impl Iterator<Item = (NodeId, usize, usize)> {
        self.connections.iter().map(|(&node, connection)| {
            let (bytes, largest) = connection.answers_held();
            (node, bytes, largest)
        })
    }

    /// Takes one request out of the turn, of which the connection has had `had`; false if it has to wait for the next.
    pub(crate) fn takes_turn(&mut self, node: NodeId, had: usize) -> bool {
        if !self.turn.has_requests(self.now) || had >= TURN_REQUESTS_OF_ONE_MAX {
            self.next_turn.push(node);
            return false;
        }
        self.turn.spend_request();
        true
    }

    /// Connections take turns: the one behind the last that had one.
    pub(crate) fn next_runnable(&mut self) -> Option<NodeId> {
        let behind = (Bound::Excluded(self.served), Bound::Unbounded);
        let next = self.runnable.range(behind).next().or_else(|| self.runnable.first()).copied()?;
        self.runnable.remove(&next);
        self.served = next;
        Some(next)
    }

    /// Whether there is room for what a request of the connection will be answered.
    pub(crate) fn room_for(&mut self, node: NodeId, seq: EntrySeq) -> Room {
        let bounds = *self.pool.bounds();
        let Some(connection) = self.connections.get_mut(&node) else { return Room::Now };
        let expected = connection.account.expected(&bounds);
        let frame_bytes_max = self.settings.frame_bytes_max;
        let (wanted, known, fits) = match connection.entry(seq).map(|entry| &entry.work) {
            Some(Work::Read(read)) if !read.sent => {
                let wanted = read.wanted(expected);
                let survey = matches!(read.purpose, Purpose::Survey(_));
                let needs = read.parts.iter().filter_map(|part| part.needs);
                let known = needs.fold(0, |sum: usize, bytes| sum.saturating_add(bytes));
                (wanted, known, !survey || known <= frame_bytes_max)
            }
            Some(Work::Write { body, sent: false, .. }) => (body.len().min(WRITE_ANSWER_BYTES), 0, true),
            _ => return Room::Now,
        };
        if !fits || !self.pool.holds(known) {
            self.metrics.answers_refused += 1;
            return Room::Never;
        }
        let Some(connection) = self.connections.get(&node) else { return Room::Now };
        if !self.pool.admits(&connection.account, wanted) && !kernel::planted!(reads_without_room) {
            self.metrics.waits_for_room += 1;
            self.roomless.push(node);
            return Room::Later;
        }
        if !self.turn.has_bytes(self.now) {
            self.next_turn.push(node);
            return Room::NextTurn;
        }
        self.turn.spend(wanted);
        Room::Now
    }

    /// A shard has an answer that is larger than the room for it.
    pub(crate) fn on_withheld(
        &mut self,
        (node, seq, at): (NodeId, EntrySeq, usize),
        shard_map: u64,
        bytes: u64,
    ) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        connection.account.learn(bytes);
        let next = connection.next;
        let Some(entry) = connection.entry(seq) else { return };
        let Work::Read(read) = &mut entry.work else { return };
        if read.shard_map != shard_map {
            return;
        }
        let Some(part) = read.parts.get_mut(at).filter(|part| part.answer.is_none()) else { return };
        // It may have grown a little by the time that it is asked for again.
        part.needs = Some(bytes.saturating_add(bytes / 16));
        let room = part.room.take().unwrap_or(0);
        read.sent = false;
        connection.next = next.min(seq);
        self.pool.release(&mut connection.account, room);
        self.metrics.answers_withheld += 1;
        self.freed = true;
        self.runnable.insert(node);
    }

    /// The user has taken so much of what was written.
    pub(crate) fn on_taken(&mut self, node: NodeId, bytes: u64) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let owed = connection.account.waiting();
        if self.pool.take(&mut connection.account, bytes) {
            connection.took_at = self.now;
            // Who reads a long answer is alive, though what it says stands behind it.
            connection.heard |= owed > self.pool.bounds().free_bytes;
            self.freed = true;
            self.runnable.insert(node);
        }
    }

    /// Whether more requests of the connection are to be looked at.
    pub(crate) fn is_full(&self, connection: &Connection) -> bool {
        connection.queue.len() >= self.settings.outstanding_max
            || self.upstream.outstanding() >= self.settings.window_max
            || connection.write_bytes >= WRITE_BYTES_MAX
            || (connection.write_bytes > 0 && self.write_bytes >= WRITE_BYTES_PIPELINED)
            || self.write_bytes >= WRITE_BYTES_MAX_TOTAL
    }

    /// Whether so few of its requests are left that it may be read again.
    pub(crate) fn is_half_empty(&self, connection: &Connection) -> bool {
        connection.queue.len() <= self.settings.outstanding_max / 2
            && connection.write_bytes <= WRITE_BYTES_MAX / 2
            && connection.parsable < INPUT_BYTES_MAX
            && !self.is_full(connection)
    }

    /// Whether requests that have come whole wait for their turn.
    pub(crate) fn is_behind(&self, connection: &Connection) -> bool {
        connection.parsable >= INPUT_BYTES_MAX
    }

    /// Who is owed much and takes nothing of it while others wait for room.
    pub(crate) fn drop_unread(&mut self, cx: &mut Cx<'_, Self>) {
        if self.roomless.is_empty() {
            return;
        }
        let free = self.pool.bounds().free_bytes;
        let unread = self.connections.values().filter(|connection| {
            connection.account.waiting() > free && self.now.since(connection.took_at) >= UNREAD_MAX
        });
        let unread: Vec<NodeId> = unread.map(|connection| connection.node).collect();
        for node in unread {
            self.metrics.unread += 1;
            self.close(node, "reads nothing of what it is sent", cx);
        }
    }
}
