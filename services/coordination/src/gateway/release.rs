//! What goes out when: the rules W1 to W4 of the design.
//!
//! Let M be the global sequence number up to which the events of every shard where the session watches something have arrived.
//! - W1: events go out in the order of their global sequence numbers, up to M, each after the answer that announced its watch.
//! - W2: an answer that shows the state at global sequence number z goes out when M >= z, and after all events up to z.
//! - W3: the zxid of a header is the largest global sequence number shown so far: everything up to it that the session watches has been
//!   announced.
//! - W1 also waits for the session's own writes: an event does not overtake the answer to an earlier write.
//! - W4: events and answers share one stream.
//!
//! An answer must not show an older state than what went out before it: a read that does (it was in flight at another shard
//! meanwhile) is asked for again.

use crate::gateway::Gateway;
use crate::gateway::connection::{
    Connection, EntrySeq, Part, PartAnswer, Purpose, Read, Reply, Stage, Work, entry_of,
};
use crate::gateway::quotas::Quotas;
use crate::gateway::watchers::Unwatched;
use crate::wire::{
    Code, JuteInput, JuteOutput, NO_ZXID, Stat, frame, notification, op, reply_header, shown_by,
};
use kernel::client::Output;
use kernel::{Bytes, Cx, NodeId, planted};

/// A read that is overtaken by events again and again is answered all the same after so many tries.
const TRIES_MAX: u32 = 16;

/// What can be done with the first entry.
enum Front {
    /// It is not answered, or its time has not come.
    Waits,
    /// This goes out.
    Goes(Reply),
    /// These parts are too old.
    Again(Vec<usize>, u64),
    Drops(&'static str),
}

impl Gateway {
    /// Writes what may go out.
    pub(crate) fn release(&mut self, node: NodeId, cx: &mut Cx<'_, Self>) {
        loop {
            let Some(connection) = self.connections.get_mut(&node) else { return };
            let bound = connection.bound(&self.marks);
            match self.front(node) {
                Front::Waits => break,
                Front::Drops(reason) => return self.close(node, reason, cx),
                Front::Again(parts, at_least) => {
                    let Some(connection) = self.connections.get_mut(&node) else { return };
                    let seq = connection.first;
                    if let Some(Work::Read(read)) = connection.queue.front_mut().map(|entry| &mut entry.work)
                    {
                        read.tries += 1;
                    }
                    parts.into_iter().for_each(|part| self.ask_again(node, seq, part, at_least));
                    break;
                }
                Front::Goes(reply) => {
                    if reply.shows > bound && !planted!(answer_overtakes_event) {
                        self.blocked.insert(node);
                        break;
                    }
                    if self.write_reply(node, reply) {
                        self.runnable.insert(node);
                    }
                }
            }
        }
        self.finish(node, cx);
    }

    fn finish(&mut self, node: NodeId, cx: &mut Cx<'_, Self>) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        // The global sequence number of a write in flight is not known: an event must not overtake the answer to an earlier write.
        if connection.writes_in_flight == 0 {
            let bound = connection.bound(&self.marks);
            self.metrics.notifications += write_events(connection, bound);
        }
        if !connection.events.is_empty() {
            self.blocked.insert(node);
        }
        if !connection.output.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut connection.output));
            if connection.account.waiting() == 0 {
                connection.took_at = self.now;
            }
            self.pool.write(&mut connection.account, bytes.len());
            cx.send(node, Output { bytes });
        }
        if connection.stage == Stage::Closed {
            self.close(node, "the last answer was given", cx);
        } else {
            self.press_back(node, cx);
        }
    }

    fn front(&mut self, node: NodeId) -> Front {
        let Some(connection) = self.connections.get_mut(&node) else { return Front::Waits };
        if connection.next <= connection.first || connection.stage == Stage::Closed {
            return Front::Waits;
        }
        let seen = connection.seen;
        let Some(entry) = connection.queue.front_mut() else { return Front::Waits };
        match &mut entry.work {
            Work::Done(reply) => Front::Goes(reply.clone()),
            Work::CheckWatches { path, kinds, remove } => {
                let (path, kinds, remove) = (path.clone(), *kinds, *remove);
                let Some(kinds) = kinds else {
                    return Front::Goes(Reply::new(0, Code::MarshallingError.number(), Bytes::new()));
                };
                if !self.watchers.has(node, &path, kinds) {
                    return Front::Goes(Reply::new(0, Code::NoWatcher.number(), Bytes::new()));
                }
                let unwatched: Option<Unwatched> = if remove {
                    self.watchers.remove(connection, &path, kinds, &self.settings.placement)
                } else {
                    None
                };
                self.forget(unwatched);
                Front::Goes(Reply::new(0, 0, Bytes::new()))
            }
            Work::Read(read) => {
                if read.unanswered > 0 {
                    return Front::Waits;
                }
                let old = if read.tries < TRIES_MAX { too_old(read, seen) } else { (Vec::new(), 0) };
                if !old.0.is_empty() {
                    return Front::Again(old.0, old.1);
                }
                match assemble(read, &self.quotas) {
                    Some(reply) => Front::Goes(reply),
                    None => Front::Drops("a malformed answer of a shard"),
                }
            }
            Work::Write { .. } | Work::Close | Work::Handshake { .. } | Work::Sync { .. } => Front::Waits,
        }
    }

    /// True if it has held up what is behind it, or what is behind it waited to be the first.
    fn write_reply(&mut self, node: NodeId, reply: Reply) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        // An answer that announces watches in several shards shows more than each of them had when it was asked: what came up to there
        // follows it at once, for the header of the next answer says that it was announced.
        let reported = write_events(connection, reply.shows.max(connection.seen));
        let Some(mut entry) = connection.queue.pop_front() else { return false };
        connection.first = connection.first.next();
        connection.seen = connection.seen.max(reply.shows);
        let zxid = connection.seen;
        let written = entry.write_bytes;
        (connection.write_bytes, self.write_bytes) =
            (connection.write_bytes - written, self.write_bytes - written);
        for (kind, path) in &reply.missed {
            notification(*kind, path, NO_ZXID, &mut connection.output);
        }
        frame(&mut connection.output, |out| {
            reply_header(entry.xid, zxid, reply.error, out);
            if reply.error == 0 {
                out.extend_from_slice(&reply.body);
            }
        });
        connection.sent += 1;
        if let Work::Read(read) = &mut entry.work {
            read.leave(&mut connection.account, &mut self.pool);
            connection.reads_in_flight = connection.reads_in_flight.saturating_sub(1);
        }
        if !connection.queue.is_empty() || !connection.input.is_empty() {
            // What had to wait for this answer may go on its way.
            self.runnable.insert(node);
        }
        if reply.last {
            connection.stage = Stage::Closed;
        }
        self.metrics.notifications += reported + reply.missed.len() as u64;
        let next = connection.queue.front().map(|next| &next.work);
        let held_up = [Some(&entry.work), next].into_iter().flatten();
        let mut held_up = held_up.filter(|work| matches!(work, Work::CheckWatches { .. }));
        let held_up = held_up.next().is_some();
        self.metrics.answered(entry.opcode, self.now.since(entry.since));
        held_up
    }

    /// A read that only prepares something has been answered.
    pub(crate) fn advance_blocking_read(&mut self, node: NodeId, seq: EntrySeq) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        let Some(entry) = entry_of(&mut connection.queue, connection.first, seq) else { return };
        let Work::Read(read) = &mut entry.work else { return };
        let answers: Vec<PartAnswer> = read.parts.iter().filter_map(|part| part.answer.clone()).collect();
        if read.blocks() {
            read.leave(&mut connection.account, &mut self.pool);
            connection.reads_in_flight = connection.reads_in_flight.saturating_sub(1);
        }
        let Some(Work::Read(read)) = connection.entry(seq).map(|entry| &entry.work) else { return };
        match &read.purpose {
            Purpose::Greeting { last_zxid, hello } => {
                let (last_zxid, hello) = (*last_zxid, hello.clone());
                if !self.greeting_answered(node, last_zxid, hello)
                    && let Some(connection) = self.connections.get_mut(&node)
                {
                    self.metrics.from_the_future += 1;
                    connection.stage = Stage::Closed;
                    connection.queue.clear();
                }
            }
            Purpose::Survey(_) => self.advance_survey(node, seq, &answers),
            Purpose::Node { .. }
            | Purpose::Nodes { .. }
            | Purpose::SetWatches { .. }
            | Purpose::AddWatch { .. }
            | Purpose::Ephemerals
            | Purpose::Descendants => {}
            Purpose::Dump => self.dump(node, &answers),
        }
    }
}

/// Writes events with global sequence numbers up to `bound`, in order, but none whose watch the client does not know yet.
fn write_events(connection: &mut Connection, bound: u64) -> u64 {
    let (mut reported, first) = (0, connection.first);
    let due = connection.events.range(..=(bound, u32::MAX, "\u{10ffff}".into()));
    let due: Vec<_> =
        due.filter(|(_, event)| event.after < first).map(|(position, _)| position.clone()).collect();
    for position in due {
        if let Some(event) = connection.events.remove(&position) {
            let (gsn, _, path) = &position;
            notification(event.kind, path, *gsn, &mut connection.output);
            connection.seen = connection.seen.max(*gsn);
            reported += 1;
        }
    }
    reported
}

/// The parts that show an older state than the client has seen, or than other parts show.
fn too_old(read: &Read, seen: u64) -> (Vec<usize>, u64) {
    let at_one_moment = match &read.purpose {
        Purpose::Nodes { .. } => true,
        Purpose::Node { .. } | Purpose::Ephemerals | Purpose::Descendants | Purpose::Dump => false,
        Purpose::SetWatches { .. }
        | Purpose::AddWatch { .. }
        | Purpose::Greeting { .. }
        | Purpose::Survey(_) => {
            return (Vec::new(), 0);
        }
    };
    let shown = |part: &Part| part.answer.as_ref().map_or(0, |answer| answer.shows);
    let newest = if at_one_moment { read.parts.iter().map(shown).max().unwrap_or(0) } else { 0 };
    let low_watermark = newest.max(seen);
    let old = |part: &Part| {
        part.answer.as_ref().is_some_and(|answer| answer.covers.max(answer.shows) < low_watermark)
    };
    let old = read.parts.iter().enumerate().filter(|(_, part)| old(part)).map(|(at, _)| at);
    (old.collect(), low_watermark)
}

/// The answer to the user out of the answers of the shards.
fn assemble(read: &Read, quotas: &Quotas) -> Option<Reply> {
    let answers: Vec<&PartAnswer> = read.parts.iter().filter_map(|part| part.answer.as_ref()).collect();
    let shows = answers.iter().map(|answer| answer.shows).max().unwrap_or(0);
    match &read.purpose {
        Purpose::Node { opcode, path, .. } => {
            let answer = answers.first()?;
            let served = (*opcode == op::GET_DATA && answer.error == 0).then(|| {
                let (nodes, bytes) = quotas.used(shown_by(path)?)?;
                Some(format!("count={nodes},bytes={bytes}"))
            });
            let body = match served.flatten() {
                Some(data) => Bytes::from(with_data(&answer.body, data.as_bytes())?),
                None => answer.body.clone(),
            };
            Some(Reply::new(answer.shows, answer.error, body))
        }
        Purpose::Nodes { parts } => {
            let mut inputs: Vec<JuteInput<'_>> =
                answers.iter().map(|answer| JuteInput(&answer.body)).collect();
            let mut body = Vec::new();
            for &part in parts {
                body.extend_from_slice(inputs.get_mut(usize::from(part))?.buffer().ok()??);
            }
            body.put_i32(-1);
            body.push(1);
            body.put_i32(-1);
            Some(Reply::new(shows, 0, body))
        }
        Purpose::SetWatches { .. } => {
            let mut missed = Vec::new();
            for answer in answers {
                missed.extend(super::answers::missed(&answer.body).ok()?);
            }
            missed.sort();
            missed.dedup();
            Some(Reply { missed, ..Reply::new(0, 0, Bytes::new()) })
        }
        Purpose::AddWatch { .. } => Some(Reply::new(0, 0, vec![0; 4])),
        Purpose::Ephemerals => {
            let mut paths = Vec::new();
            for answer in &answers {
                let mut input = JuteInput(&answer.body);
                while !input.0.is_empty() {
                    paths.push(input.text().ok()?);
                }
            }
            paths.sort_unstable();
            let mut body = Vec::new();
            body.put_count(paths.len());
            paths.iter().for_each(|path| body.put_text(path));
            Some(Reply::new(shows, 0, body))
        }
        Purpose::Descendants => {
            let (first, counts) = answers.split_first()?;
            if first.error != 0 {
                return Some(Reply::new(first.shows, first.error, Bytes::new()));
            }
            let count: u64 = counts.iter().filter_map(|answer| JuteInput(&answer.body).u64().ok()).sum();
            let mut body = Vec::new();
            body.put_i32(i32::try_from(count).unwrap_or(i32::MAX));
            Some(Reply::new(shows, 0, body))
        }
        Purpose::Greeting { .. } | Purpose::Survey(_) | Purpose::Dump => None,
    }
}

/// A getData answer with other data.
fn with_data(body: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let mut input = JuteInput(body);
    input.buffer().ok()?;
    let stat = Stat { data_length: data.len() as i32, ..Stat::read(&mut input).ok()? };
    let mut out = Vec::new();
    out.put_buffer(Some(data));
    stat.write(&mut out);
    Some(out)
}
