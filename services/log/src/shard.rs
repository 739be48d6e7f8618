//! The logs of one space.

mod executing;
mod install;
mod recounts;
mod stored;

use crate::Rows;
use crate::groups::Groups;
use crate::log::{Dropped, FITS, Log};
use crate::producers::{Judged, Producers, Taken};
use crate::retired::{Archiving, Origin};
use crate::segment::Part;
use crate::snapshot::{Cleaned, Created, Head, Item, Numbered};
use crate::space_of;
use crate::storage::{Held, SpaceBounds, Storage};
use crate::wire::{
    Answer, Append, Cleanup, Create, Description, GroupState, LOGS_MAX, LogIdentity, Produce, Rejected,
    Request, Why,
};
use kernel::{BlobId, BlobRange, Bytes, Decode, DecodeError, Encode, NodeId, Reader, Recount, SnapshotStep};
use mason::{Archived, BlobBacked, Order, Shard, ShardOut, Space};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

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

    /// What it was made to be, and what it has dropped.
    pub fn description(&self) -> Description {
        self.log.description(&self.log.origin.name)
    }

    /// What its entries cost that are left, in bytes.
    pub fn bytes(&self) -> u64 {
        self.log.bytes
    }

    /// True if nothing is appended to it any more.
    pub fn is_sealed(&self) -> bool {
        self.log.sealed
    }

    /// Its number: no other log of the space has had it.
    pub fn number(&self) -> u64 {
        self.log.origin.number
    }

    /// When it was made, in milliseconds since 1970; 0 if that was before logs remembered it.
    pub fn created_ms(&self) -> u64 {
        self.log.origin.created_ms
    }

    /// Its segments that reach beyond position `from`.
    pub fn segments(&self, from: u64) -> impl Iterator<Item = SegmentView<'_>> {
        let begin = self.log.parts.partition_point(|part| part.next() <= from);
        self.log.parts.range(begin..).map(|part| {
            let rows = match part {
                Part::InMemory(segment) => Some(segment.rows()),
                Part::Stored(_) => None,
            };
            SegmentView { first: part.first(), next: part.next(), rows }
        })
    }
}

/// A segment for those who look inside.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView<'a> {
    /// The position of its first entry.
    pub first: u64,
    /// The position after its last entry.
    pub next: u64,
    /// Its entries (see [`crate::Rows`]), if they are in memory.
    pub rows: Option<&'a [u8]>,
}

/// The logs of one space.
#[derive(Clone, Debug)]
pub struct Logs {
    space: Space,
    spaces: u16,
    /// What it executes are packs of operations.
    is_packed: bool,
    storage: Storage,
    logs: BTreeMap<String, Log>,
    /// The names of the logs, by their numbers.
    numbers: BTreeMap<u64, String>,
    /// The number of the log that was made last.
    created: u64,
    /// At least what the open segments hold; exactly when it was last looked at.
    open_bytes: usize,
    /// What the logs were created to hold, together.
    reserved: u64,
    producers: Producers,
    groups: Groups,
    digest: u64,
    /// Who is notified when something is appended; this server's own.
    watchers: BTreeMap<String, BTreeSet<NodeId>>,
    writing: VecDeque<Item>,
    installing: Option<String>,
    /// How often logs have come or gone that may drop entries for want of room.
    droppable_changes: u64,
    /// What was said last to the gateways: how much is held, and as of which of those changes.
    remarked: Option<(u64, u64)>,
}

impl Logs {
    /// No logs yet, in `space` of `spaces`.
    pub fn new(space: Space, spaces: u16, bounds: SpaceBounds) -> Self {
        Self {
            space,
            spaces,
            is_packed: false,
            storage: Storage::new(bounds),
            logs: BTreeMap::new(),
            numbers: BTreeMap::new(),
            created: 0,
            open_bytes: 0,
            reserved: 0,
            producers: Producers::default(),
            groups: Groups::default(),
            digest: 0,
            watchers: BTreeMap::new(),
            writing: VecDeque::new(),
            installing: None,
            droppable_changes: 0,
            remarked: None,
        }
    }

    /// With an archive: what is trimmed goes when it is there.
    #[must_use]
    pub fn with_archive(mut self, archiving: Archiving) -> Self {
        self.storage.retired.begin(archiving);
        self
    }

    /// Over an order of packs: what is executed at a number are the operations of one.
    #[must_use]
    pub fn of_packs(mut self) -> Self {
        self.is_packed = true;
        self
    }

    /// All logs, by name.
    pub fn logs(&self) -> impl Iterator<Item = (&str, LogView<'_>)> {
        self.logs.iter().map(|(name, log)| (name.as_str(), LogView { log }))
    }

    /// What is known of all groups of readers of the space.
    pub fn groups(&self) -> impl Iterator<Item = GroupState> {
        self.groups.all()
    }

    /// Below this position nothing of a log is left here, trimmed or not.
    pub fn retained(&self, name: &str) -> u64 {
        self.logs.get(name).map_or(0, |log| self.identity(log).retained)
    }

    /// What the logs' entries cost, in bytes.
    pub fn bytes(&self) -> u64 {
        self.storage.entry_bytes
    }

    /// Ends the largest open segments while all hold too much together. Which they are depends on what was executed alone.
    fn bound_open_segments(&mut self, added: usize) {
        self.open_bytes += added;
        while self.open_bytes > self.storage.bounds.open_bytes {
            self.open_bytes = self.logs.values().map(Log::open_bytes).sum();
            if self.open_bytes > self.storage.bounds.open_bytes
                && let Some(largest) = self.logs.values_mut().max_by_key(|log| log.open_bytes())
            {
                self.open_bytes -= largest.open_bytes();
                largest.end_segment(&mut self.storage);
            }
        }
    }

    /// The segment of this name, of a log or on its way to the archive.
    fn part(&self, id: BlobId) -> Option<&Part> {
        let log = self.numbers.get(&id.series).and_then(|name| self.logs.get(name));
        log.and_then(|log| log.part(id.first)).or_else(|| self.storage.retired.part(id))
    }

    fn is_here(&self, name: &str) -> bool {
        space_of(name, self.spaces) == self.space
    }

    fn position(&self, part: &crate::wire::Part) -> (u8, u64) {
        self.logs.get(&part.name).map_or((Why::NoSuchLog as u8, 0), |log| log.position(part.expect))
    }

    /// Where each part that is here would go.
    fn positions(&self, append: &Append) -> Vec<(u8, u64)> {
        append.parts.iter().filter(|part| self.is_here(&part.name)).map(|part| self.position(part)).collect()
    }

    fn append(
        &mut self,
        append: &Append,
        order: &Order,
        others: &[(Space, Bytes)],
        out: &mut ShardOut,
    ) -> Answer {
        let mut said: BTreeMap<Space, std::vec::IntoIter<(u8, u64)>> = BTreeMap::new();
        said.insert(self.space, self.positions(append).into_iter());
        for (space, inputs) in others {
            let positions = Vec::<(u8, u64)>::decode(&mut Reader::new(inputs.clone())).unwrap_or_default();
            said.insert(*space, positions.into_iter());
        }
        let mut firsts = Vec::with_capacity(append.parts.len());
        let mut refused = None;
        for part in &append.parts {
            let space = space_of(&part.name, self.spaces);
            let position = said.get_mut(&space).and_then(Iterator::next);
            let (why, at) = position.unwrap_or((Why::Malformed as u8, 0));
            if why != FITS
                && refused.is_none()
                && !(kernel::planted!(other_refusals_ignored) && space != self.space)
            {
                refused = Some(Answer::about(Why::of(why), &part.name, at));
            }
            firsts.push(at);
        }
        if let Some(refused) = refused {
            return refused;
        }
        for part in &append.parts {
            if let Some(log) = self.logs.get_mut(&part.name) {
                let added = log.append(&part.entries, order.time, append.admitted, &mut self.storage);
                self.bound_open_segments(added);
                self.notify(&part.name, out);
            }
        }
        Answer::Appended(firsts)
    }

    /// What was taken already is answered as it was then, whatever has become of the log.
    fn produce(&mut self, produce: &Produce, order: &Order, out: &mut ShardOut) -> Answer {
        let Produce { name, producer, epoch, sequence, entries, admitted } = produce;
        let Some(log) = self.logs.get_mut(name) else { return Answer::about(Why::NoSuchLog, name, 0) };
        let count = Rows::count(entries).unwrap_or(0) as u32;
        match self.producers.judge(name, *producer, *epoch, *sequence, count) {
            Judged::Again(first) => return Answer::Appended(vec![first]),
            Judged::OutOfSequence(next) => return Answer::Rejected(Rejected::OutOfSequence(next)),
            Judged::Fenced(by) => return Answer::Rejected(Rejected::Fenced(by.into())),
            Judged::Unknown => return Answer::Rejected(Rejected::Unknown(log.next)),
            Judged::Next => {}
        }
        let (why, first) = log.position(None);
        if why != FITS {
            return Answer::about(Why::of(why), name, first);
        }
        let added = log.append(entries, order.time, *admitted, &mut self.storage);
        self.bound_open_segments(added);
        self.producers.took(name, *producer, *epoch, Taken { sequence: *sequence, count, first });
        self.notify(name, out);
        Answer::Appended(vec![first])
    }

    fn notify(&mut self, name: &str, out: &mut ShardOut) {
        for reader in self.watchers.remove(name).unwrap_or_default() {
            out.notify(reader, Bytes::copy_from_slice(name.as_bytes()));
        }
    }

    fn create(&mut self, create: Create, created_ms: u64) -> Answer {
        let Create { name, retain_bytes, retain_ms, capacity, cleanup, first } = create;
        if self.logs.contains_key(&name) {
            return Answer::about(Why::Exists, &name, 0);
        }
        let free = capacity.saturating_sub(self.reserved);
        if retain_bytes > free || self.logs.len() >= LOGS_MAX {
            return Answer::about(Why::Full, &name, free);
        }
        self.reserved += retain_bytes;
        self.created += 1;
        let (number, parts) = (self.created, VecDeque::new());
        let (sealed, open, dropped) = (false, false, Dropped::default());
        let (cleanup, first) = (cleanup.unwrap_or_default(), first.unwrap_or(0));
        let origin = Arc::new(Origin { name: name.clone(), number, created_ms });
        let log = Log {
            origin,
            first,
            next: first,
            bytes: 0,
            retain_bytes,
            retain_ms,
            sealed,
            cleanup,
            dropped,
            open,
            parts,
        };
        self.numbers.insert(number, name.clone());
        self.droppable_changes += u64::from(cleanup == Cleanup::DropOldest);
        self.logs.insert(name, log);
        Answer::Done
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Log, &mut Storage)) -> Answer {
        match self.logs.get_mut(name) {
            None => Answer::about(Why::NoSuchLog, name, 0),
            Some(log) => {
                change(log, &mut self.storage);
                Answer::Done
            }
        }
    }

    fn expire(&mut self, now: u64) -> Answer {
        self.logs.values_mut().for_each(|log| log.expire(now, &mut self.storage));
        Answer::Done
    }

    fn delete(&mut self, name: &str) -> Answer {
        match self.logs.remove(name) {
            None => Answer::about(Why::NoSuchLog, name, 0),
            Some(mut log) => {
                log.clear(&mut self.storage);
                self.droppable_changes += u64::from(log.cleanup == Cleanup::DropOldest);
                self.numbers.remove(&log.origin.number);
                let lost = kernel::planted!(room_of_deleted_log_retained);
                self.reserved -= if lost { 0 } else { log.retain_bytes };
                if !kernel::planted!(producers_of_deleted_log_retained) {
                    self.producers.forget(name);
                }
                Answer::Done
            }
        }
    }

    fn identity(&self, log: &Log) -> LogIdentity {
        let Origin { number, created_ms, .. } = *log.origin;
        let (mut waiting, mut retained) = (0, log.parts.front().map_or(log.next, Part::first));
        for part in self.storage.retired.of(number) {
            waiting += part.bytes() as u64;
            retained = retained.min(part.first());
        }
        LogIdentity { space: self.space.0, number, created_ms, retained, waiting_bytes: waiting }
    }

    fn answer_read(&mut self, reader: NodeId, request: &Request) -> Result<Answer, BlobRange> {
        Ok(match request {
            Request::Read(read) => {
                let Some(log) = self.logs.get(&read.name) else {
                    return Ok(Answer::about(Why::NoSuchLog, &read.name, 0));
                };
                if read.wait_ms > 0 && read.from == log.next && !log.sealed {
                    self.watchers.entry(read.name.clone()).or_default().insert(reader);
                }
                log.read(read, &mut self.storage)?
            }
            Request::Recall(read) => match self.logs.get(&read.name) {
                None => Answer::about(Why::NoSuchLog, &read.name, 0),
                Some(log) => log.recall(read, &mut self.storage)?,
            },
            Request::Identify(named) => match self.logs.get(&named.name) {
                None => Answer::about(Why::NoSuchLog, &named.name, 0),
                Some(log) => Answer::Identity(self.identity(log)),
            },
            Request::Describe(named) => match self.logs.get(&named.name) {
                None => Answer::about(Why::NoSuchLog, &named.name, 0),
                Some(log) => Answer::Description(log.description(&named.name)),
            },
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
            | Request::Expire(_)
            | Request::Seal(_)
            | Request::Delete(_) => Answer::refused(Why::Malformed),
        })
    }
}

/// None if the log is as logs were before there was a budget.
fn cleaned(log: &Log) -> Option<Cleaned> {
    let Dropped { entries, bytes } = log.dropped;
    let is_plain = log.cleanup == Cleanup::Refuse && entries == 0;
    (!is_plain).then_some(Cleaned { cleanup: log.cleanup, dropped: entries, dropped_bytes: bytes })
}

impl Shard for Logs {
    fn recounts(&self) -> Vec<Recount> {
        self.all_recounts()
    }

    fn inputs(&self, body: &[u8], _order: &Order, out: &mut Vec<u8>) {
        let body = Bytes::copy_from_slice(body);
        let positions = match self.operation_of_several(&body).as_ref().map(Request::decoded) {
            Some(Ok(Request::Append(append))) => self.positions(&append),
            Some(Ok(_) | Err(_)) | None => Vec::new(),
        };
        positions.encode(out);
    }

    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut) {
        if self.is_packed {
            return self.execute_pack(body, order, others, out);
        }
        self.execute_one(body, order, others, out).encode(out.answer());
    }

    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        let answer = match Request::decoded(&Bytes::copy_from_slice(query)) {
            Ok(request) => self.answer_read(reader, &request),
            Err(_) => Ok(Answer::refused(Why::Malformed)),
        };
        match answer {
            Ok(answer) => {
                answer.encode(out);
                None
            }
            Err(range) => Some(range),
        }
    }

    fn forget_reader(&mut self, reader: NodeId) {
        self.watchers.retain(|_, readers| {
            readers.remove(&reader);
            !readers.is_empty()
        });
    }

    fn begin_snapshot(&mut self) {
        self.writing = VecDeque::from([Item::Head(Head { digest: self.digest }, self.created)]);
        for (name, log) in &self.logs {
            let numbered = Numbered { number: log.origin.number, open: log.open };
            let created = Created { created_ms: log.origin.created_ms };
            self.writing.push_back(Item::Log(log.stat(name), numbered, created, cleaned(log)));
            let open = usize::from(kernel::planted!(open_segments_not_in_snapshot) && log.open);
            let parts = log.parts.iter().take(log.parts.len().saturating_sub(open));
            self.writing.extend(parts.cloned().map(Item::Part));
        }
        if !kernel::planted!(archived_segments_not_in_snapshot) {
            let retired = self.storage.retired.all();
            self.writing.extend(retired.map(|(_, it)| Item::Retired(it.origin.clone(), it.part.clone())));
        }
        if !kernel::planted!(producers_not_in_snapshot) {
            self.writing.extend(self.producers.all().map(Item::Producer));
        }
        self.writing.extend(self.groups.all().map(Item::Group));
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        while chunk.len() < budget
            && let Some(item) = self.writing.pop_front()
        {
            item.write(chunk);
        }
        if self.writing.is_empty() { SnapshotStep::Done } else { SnapshotStep::More }
    }

    /// What a snapshot that is being written holds, and who watches, stay.
    fn reset(&mut self) {
        self.logs.clear();
        self.numbers.clear();
        self.droppable_changes += 1;
        self.storage.reset();
        (self.created, self.open_bytes) = (0, 0);
        self.producers.clear();
        self.groups.clear();
        (self.reserved, self.digest, self.installing) = (0, 0, None);
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let mut input = Reader::new(Bytes::copy_from_slice(chunk));
        while input.remaining() > 0 {
            self.install_item(&mut input)?;
        }
        self.open_bytes = self.logs.values().map(Log::open_bytes).sum();
        Ok(())
    }

    /// Said anew where what is used has changed by a sixteenth of a segment, or what may be dropped by a log.
    fn remark(&mut self) -> Option<Bytes> {
        let grain = (self.storage.bounds.segment_bytes as u64 / 16).max(1);
        let held = self.storage.held();
        let said = (held / grain, self.droppable_changes);
        if self.remarked == Some(said) {
            return None;
        }
        self.remarked = Some(said);
        let droppable = self.logs.iter().filter(|(_, log)| log.cleanup == Cleanup::DropOldest);
        let droppable = droppable.map(|(name, _)| parts::digest(name.as_bytes())).collect();
        Some(Held { bytes: held, droppable }.encoded().into())
    }

    /// Readers that wait look again.
    fn installed(&mut self, out: &mut ShardOut) {
        for name in self.watchers.keys().cloned().collect::<Vec<_>>() {
            self.notify(&name, out);
        }
    }

    fn digest(&self) -> u64 {
        let mut bytes = self.digest.encoded();
        for number in [self.created, self.reserved, self.logs.len() as u64, self.storage.entry_bytes] {
            number.encode(&mut bytes);
        }
        self.logs.iter().for_each(|(name, log)| log.encode_facts(name, &mut bytes));
        self.producers.all().for_each(|known| known.encode(&mut bytes));
        self.groups.all().for_each(|group| group.encode(&mut bytes));
        parts::digest(&bytes)
    }

    fn as_blob_backed(&self) -> Option<&dyn BlobBacked> {
        Some(self)
    }

    fn as_blob_backed_mut(&mut self) -> Option<&mut dyn BlobBacked> {
        Some(self)
    }

    fn as_archived(&self) -> Option<&dyn Archived> {
        Some(self)
    }

    fn as_archived_mut(&mut self) -> Option<&mut dyn Archived> {
        Some(self)
    }
}
