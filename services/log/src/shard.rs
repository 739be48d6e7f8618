//! The logs of one space.

use crate::Rows;
use crate::groups::Groups;
use crate::producers::{Judged, Known, Producers, Taken};
use crate::rows::ROW_OVERHEAD;
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::wire::{
    Answer, Append, Create, Entries, GroupState, LOGS_MAX, LogStat, Part, Produce, READ_BYTES_MAX, Read,
    Rejected, Request, Trim, Why, space_of,
};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, SnapshotStep};
use mason::{Order, Shard, ShardOut, Space};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// One log. Its segments follow one another without a gap, from at most `first` to `next`.
#[derive(Clone, Debug)]
struct Log {
    first: u64,
    next: u64,
    bytes: u64,
    retain_bytes: u64,
    retain_ms: u64,
    sealed: bool,
    /// Shared with snapshots that are being written.
    segments: VecDeque<Arc<Segment>>,
}

/// A log for those who look inside: see [`Logs::logs`].
#[derive(Clone, Copy, Debug)]
pub struct LogView<'a> {
    log: &'a Log,
}

impl LogView<'_> {
    /// The first position that is left, and the tail.
    pub fn range(&self) -> (u64, u64) {
        (self.log.first, self.log.next)
    }

    /// The entries from position `from` on that are left.
    pub fn entries(&self, from: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self.log.first.max(from);
        let begin = self.log.segments.partition_point(|segment| segment.next() <= first);
        let all = self.log.segments.range(begin..);
        all.flat_map(|segment| (segment.first..).zip(Rows::iter(segment.rows())))
            .skip_while(move |(position, _)| *position < first)
    }
}

/// The logs of one space, in memory.
#[derive(Clone, Debug)]
pub struct Logs {
    space: Space,
    spaces: u16,
    segment_bytes: usize,
    logs: BTreeMap<String, Log>,
    /// What the logs were created to hold, together.
    reserved: u64,
    producers: Producers,
    groups: Groups,
    digest: u64,
    /// Who is told when something is appended; this server's own.
    watchers: BTreeMap<String, BTreeSet<NodeId>>,
    writing: VecDeque<Item>,
    installing: Option<String>,
}

kernel::record! {
    struct Head {
        digest: u64,
    }
}

kernel::record! {
    struct SavedSegment {
        first: u64,
        last_time: u64,
        rows: Bytes,
    }
}

/// What a snapshot is made of: a head, then each log before its segments.
#[derive(Clone, Debug)]
enum Item {
    Head(Head),
    Log(LogStat),
    Segment(Arc<Segment>),
    Producer(Known),
    Group(GroupState),
}

impl Log {
    fn stat(&self, name: &str) -> LogStat {
        let Self { first, next, bytes, retain_bytes, retain_ms, sealed, .. } = *self;
        LogStat { name: name.to_owned(), first, next, bytes, retain_bytes, retain_ms, sealed }
    }

    /// Where the entries would go, or why they cannot.
    fn place(&self, expect: Option<u64>) -> (u8, u64) {
        if self.sealed {
            return (Why::Sealed as u8, self.next);
        }
        let moved = expect.is_some_and(|at| at != self.next);
        (if moved { Why::Moved as u8 } else { FITS }, self.next)
    }

    fn append(&mut self, rows: &[u8], time: u64, segment_bytes: usize) {
        let count = Rows::count(rows).unwrap_or(0);
        let bytes = rows.len() + count * (ROW_OVERHEAD - 4);
        if !self.segments.back().is_some_and(|segment| segment.has_room_for(bytes, segment_bytes)) {
            self.segments.push_back(Arc::new(Segment::new(self.next)));
        }
        if let Some(open) = self.segments.back_mut() {
            let open = Arc::make_mut(open);
            let time = time.max(open.last_time);
            open.push(rows, time);
        }
        self.next += count as u64;
        self.bytes += bytes as u64;
        self.retain(time);
    }

    /// Drops whole segments that are beyond what the log may hold; never the last.
    fn retain(&mut self, now: u64) {
        while self.segments.len() > 1 {
            let oldest = &self.segments[0];
            let expired = self.retain_ms > 0 && now.saturating_sub(oldest.last_time) > self.retain_ms;
            if self.bytes <= self.retain_bytes && !expired {
                break;
            }
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.segments.pop_front() {
            self.bytes -= oldest.bytes() as u64;
            self.first = self.first.max(oldest.next());
        }
    }

    fn trim(&mut self, before: u64) {
        self.first = self.first.max(before.min(self.next));
        while self.segments.front().is_some_and(|oldest| oldest.next() <= self.first) {
            self.drop_oldest();
        }
    }

    fn read(&self, read: &Read) -> Answer {
        let Read { name, from, entries_max, bytes_max, .. } = read;
        if *from < self.first {
            return Answer::about(Why::Trimmed, name, self.first);
        }
        if *from > self.next {
            return Answer::about(Why::BeyondTail, name, self.next);
        }
        let mut rows = Vec::new();
        let (mut next, mut left) = (*from, (*entries_max).max(1) as usize);
        let bytes_max = (*bytes_max).min(READ_BYTES_MAX) as usize;
        let begin = self.segments.partition_point(|segment| segment.next() <= *from);
        for segment in self.segments.range(begin..) {
            let room = bytes_max.saturating_sub(rows.len());
            let count = segment.read_into(next, left, room, rows.is_empty(), &mut rows);
            next += count as u64;
            left -= count;
            if next < segment.next() || left == 0 {
                break;
            }
        }
        Answer::Entries(Entries {
            first: *from,
            next,
            tail: self.next,
            sealed: self.sealed,
            rows: rows.into(),
        })
    }
}

/// What a participant says of a part that it can take.
const FITS: u8 = 0;

impl Logs {
    /// No logs yet, in `space` of `spaces`.
    pub fn new(space: Space, spaces: u16) -> Self {
        Self {
            space,
            spaces,
            segment_bytes: SEGMENT_BYTES,
            logs: BTreeMap::new(),
            reserved: 0,
            producers: Producers::default(),
            groups: Groups::default(),
            digest: 0,
            watchers: BTreeMap::new(),
            writing: VecDeque::new(),
            installing: None,
        }
    }

    /// The same with segments of another size, which must be equal on all servers: retention drops whole ones.
    #[must_use]
    pub fn with_segments_of(self, segment_bytes: usize) -> Self {
        Self { segment_bytes, ..self }
    }

    /// All logs, by name.
    pub fn logs(&self) -> impl Iterator<Item = (&str, LogView<'_>)> {
        self.logs.iter().map(|(name, log)| (name.as_str(), LogView { log }))
    }

    /// What the logs' entries cost, in bytes.
    pub fn bytes(&self) -> u64 {
        self.logs.values().map(|log| log.bytes).sum()
    }

    fn lives_here(&self, name: &str) -> bool {
        space_of(name, self.spaces) == self.space
    }

    fn place(&self, part: &Part) -> (u8, u64) {
        self.logs.get(&part.name).map_or((Why::NoSuchLog as u8, 0), |log| log.place(part.expect))
    }

    /// Where each part that lives here would go.
    fn places(&self, append: &Append) -> Vec<(u8, u64)> {
        append.parts.iter().filter(|part| self.lives_here(&part.name)).map(|part| self.place(part)).collect()
    }

    fn append(
        &mut self,
        append: &Append,
        order: &Order,
        others: &[(Space, Bytes)],
        out: &mut ShardOut,
    ) -> Answer {
        let mut said: BTreeMap<Space, std::vec::IntoIter<(u8, u64)>> = BTreeMap::new();
        said.insert(self.space, self.places(append).into_iter());
        for (space, inputs) in others {
            let places = Vec::<(u8, u64)>::decode(&mut Reader::new(inputs.clone())).unwrap_or_default();
            said.insert(*space, places.into_iter());
        }
        let mut firsts = Vec::with_capacity(append.parts.len());
        let mut refused = None;
        for part in &append.parts {
            let space = space_of(&part.name, self.spaces);
            let place = said.get_mut(&space).and_then(Iterator::next);
            let (why, at) = place.unwrap_or((Why::Malformed as u8, 0));
            if why != FITS && refused.is_none() && !(kernel::planted!(C11) && space != self.space) {
                refused = Some(Answer::about(Why::of(why), &part.name, at));
            }
            firsts.push(at);
        }
        if let Some(refused) = refused {
            return refused;
        }
        for part in &append.parts {
            if let Some(log) = self.logs.get_mut(&part.name) {
                log.append(&part.entries, order.time, self.segment_bytes);
                self.notify(&part.name, out);
            }
        }
        Answer::Appended(firsts)
    }

    /// What was taken already is answered as it was then, whatever has become of the log.
    fn produce(&mut self, produce: &Produce, order: &Order, out: &mut ShardOut) -> Answer {
        let Produce { name, producer, epoch, sequence, entries } = produce;
        let Some(log) = self.logs.get_mut(name) else { return Answer::about(Why::NoSuchLog, name, 0) };
        let count = Rows::count(entries).unwrap_or(0) as u32;
        match self.producers.judge(name, *producer, *epoch, *sequence, count) {
            Judged::Again(first) => return Answer::Appended(vec![first]),
            Judged::OutOfSequence(next) => return Answer::Rejected(Rejected::OutOfSequence(next)),
            Judged::Fenced(by) => return Answer::Rejected(Rejected::Fenced(by.into())),
            Judged::Unknown => return Answer::Rejected(Rejected::Unknown(log.next)),
            Judged::Next => {}
        }
        let (why, first) = log.place(None);
        if why != FITS {
            return Answer::about(Why::of(why), name, first);
        }
        log.append(entries, order.time, self.segment_bytes);
        self.producers.took(name, *producer, *epoch, Taken { sequence: *sequence, count, first });
        self.notify(name, out);
        Answer::Appended(vec![first])
    }

    fn notify(&mut self, name: &str, out: &mut ShardOut) {
        for reader in self.watchers.remove(name).unwrap_or_default() {
            out.notify(reader, Bytes::copy_from_slice(name.as_bytes()));
        }
    }

    fn create(&mut self, create: Create) -> Answer {
        let Create { name, retain_bytes, retain_ms, capacity } = create;
        if self.logs.contains_key(&name) {
            return Answer::about(Why::Exists, &name, 0);
        }
        let free = capacity.saturating_sub(self.reserved);
        if retain_bytes > free || self.logs.len() >= LOGS_MAX {
            return Answer::about(Why::Full, &name, free);
        }
        self.reserved += retain_bytes;
        let (segments, sealed) = (VecDeque::new(), false);
        let log = Log { first: 0, next: 0, bytes: 0, retain_bytes, retain_ms, sealed, segments };
        self.logs.insert(name, log);
        Answer::Done
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Log)) -> Answer {
        match self.logs.get_mut(name) {
            None => Answer::about(Why::NoSuchLog, name, 0),
            Some(log) => {
                change(log);
                Answer::Done
            }
        }
    }

    fn delete(&mut self, name: &str) -> Answer {
        match self.logs.remove(name) {
            None => Answer::about(Why::NoSuchLog, name, 0),
            Some(log) => {
                self.reserved -= log.retain_bytes;
                self.producers.forget(name);
                Answer::Done
            }
        }
    }

    fn answer_read(&mut self, reader: NodeId, request: &Request) -> Answer {
        match request {
            Request::Read(read) => {
                let Some(log) = self.logs.get(&read.name) else {
                    return Answer::about(Why::NoSuchLog, &read.name, 0);
                };
                if read.wait_ms > 0 && read.from == log.next && !log.sealed {
                    self.watchers.entry(read.name.clone()).or_default().insert(reader);
                }
                log.read(read)
            }
            Request::Stat(named) => match self.logs.get(&named.name) {
                None => Answer::about(Why::NoSuchLog, &named.name, 0),
                Some(log) => Answer::Logs(vec![log.stat(&named.name)]),
            },
            Request::List(list) => {
                let range = (Bound::Excluded(list.after.clone()), Bound::Unbounded);
                let logs = self.logs.range(range).take(list.limit as usize);
                Answer::Logs(logs.map(|(name, log)| log.stat(name)).collect())
            }
            Request::GroupOf(group) => Answer::Group(self.groups.state(&group.name)),
            Request::Create(_)
            | Request::BeginGeneration(_)
            | Request::Commit(_)
            | Request::Append(_)
            | Request::Produce(_)
            | Request::Trim(_)
            | Request::Seal(_)
            | Request::Delete(_) => Answer::refused(Why::Malformed),
        }
    }
}

impl Shard for Logs {
    fn inputs(&self, body: &[u8], _order: &Order, out: &mut Vec<u8>) {
        let request = Request::decoded(&Bytes::copy_from_slice(body));
        let places = match &request {
            Ok(Request::Append(append)) => self.places(append),
            _ => Vec::new(),
        };
        places.encode(out);
    }

    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        let answer = match Request::decoded(body) {
            Err(_) => Answer::refused(Why::Malformed),
            Ok(request) => match (request.fault(), request) {
                (Some(why), _) => Answer::refused(why),
                (None, Request::Append(append)) => self.append(&append, order, others, out),
                (None, Request::Produce(produce)) => self.produce(&produce, order, out),
                (None, Request::BeginGeneration(group)) => self.groups.begin(&group.name),
                (None, Request::Commit(commit)) => self.groups.commit(commit),
                (None, Request::Create(create)) => self.create(create),
                (None, Request::Trim(Trim { name, before })) => self.change(&name, |log| log.trim(before)),
                (None, Request::Seal(named)) => {
                    let sealed = self.change(&named.name, |log| log.sealed = true);
                    self.notify(&named.name, out);
                    sealed
                }
                (None, Request::Delete(named)) => {
                    let deleted = self.delete(&named.name);
                    self.notify(&named.name, out);
                    deleted
                }
                (None, Request::Read(_) | Request::Stat(_) | Request::List(_) | Request::GroupOf(_)) => {
                    Answer::refused(Why::Malformed)
                }
            },
        };
        let mut step = self.digest.encoded();
        order.encode(&mut step);
        answer.encode(&mut step);
        parts::digest(body).encode(&mut step);
        self.digest = parts::digest(&step);
        answer.encode(out.answer());
    }

    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) {
        let answer = match Request::decoded(&Bytes::copy_from_slice(query)) {
            Ok(request) => self.answer_read(reader, &request),
            Err(_) => Answer::refused(Why::Malformed),
        };
        answer.encode(out);
    }

    fn forget_reader(&mut self, reader: NodeId) {
        self.watchers.retain(|_, readers| {
            readers.remove(&reader);
            !readers.is_empty()
        });
    }

    fn begin_snapshot(&mut self) {
        self.writing = VecDeque::from([Item::Head(Head { digest: self.digest })]);
        for (name, log) in &self.logs {
            self.writing.push_back(Item::Log(log.stat(name)));
            let open = usize::from(kernel::planted!(C12));
            let segments = log.segments.iter().take(log.segments.len().saturating_sub(open));
            self.writing.extend(segments.cloned().map(Item::Segment));
        }
        self.writing.extend(self.producers.all().map(Item::Producer));
        self.writing.extend(self.groups.all().map(Item::Group));
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        while chunk.len() < budget
            && let Some(item) = self.writing.pop_front()
        {
            match item {
                Item::Head(head) => {
                    chunk.push(1);
                    head.encode(chunk);
                }
                Item::Log(stat) => {
                    chunk.push(2);
                    stat.encode(chunk);
                }
                Item::Segment(segment) => {
                    chunk.push(3);
                    let (first, last_time) = (segment.first, segment.last_time);
                    SavedSegment { first, last_time, rows: segment.rows_bytes() }.encode(chunk);
                }
                Item::Producer(known) => {
                    chunk.push(4);
                    known.encode(chunk);
                }
                Item::Group(state) => {
                    chunk.push(5);
                    state.encode(chunk);
                }
            }
        }
        if self.writing.is_empty() { SnapshotStep::Done } else { SnapshotStep::More }
    }

    /// What a snapshot that is being written holds, and who watches, stay.
    fn reset(&mut self) {
        self.logs.clear();
        self.producers.clear();
        self.groups.clear();
        (self.reserved, self.digest, self.installing) = (0, 0, None);
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let mut input = Reader::new(Bytes::copy_from_slice(chunk));
        while input.remaining() > 0 {
            match u8::decode(&mut input)? {
                1 => self.digest = Head::decode(&mut input)?.digest,
                2 => {
                    let stat = LogStat::decode(&mut input)?;
                    let LogStat { name, first, next, retain_bytes, retain_ms, sealed, .. } = stat;
                    self.installing = Some(name.clone());
                    self.reserved += retain_bytes;
                    let segments = VecDeque::new();
                    let log = Log { first, next, bytes: 0, retain_bytes, retain_ms, sealed, segments };
                    self.logs.insert(name, log);
                }
                3 => {
                    let SavedSegment { first, last_time, rows } = SavedSegment::decode(&mut input)?;
                    let segment = Segment::read(first, last_time, &rows);
                    let log = self.installing.as_ref().and_then(|name| self.logs.get_mut(name));
                    let (Some(segment), Some(log)) = (segment, log) else {
                        return Err(DecodeError::Invalid("segment"));
                    };
                    log.bytes += segment.bytes() as u64;
                    log.segments.push_back(Arc::new(segment));
                }
                4 => self.producers.install(Known::decode(&mut input)?),
                5 => self.groups.install(GroupState::decode(&mut input)?),
                tag => return Err(DecodeError::UnknownTag("snapshot item", tag)),
            }
        }
        Ok(())
    }

    /// Whoever waits looks again.
    fn installed(&mut self, out: &mut ShardOut) {
        for name in self.watchers.keys().cloned().collect::<Vec<_>>() {
            self.notify(&name, out);
        }
    }

    fn digest(&self) -> u64 {
        self.digest
    }
}
