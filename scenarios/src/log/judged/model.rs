//! All logs as their users know them: a list of entries each, executed in the order of the global sequence numbers.
//!
//! Entries stay here when they are dropped, so that a server that still shows them shows the right ones. Segments are here because retention drops
//! whole ones: each is a number of entries.

use kernel::{Bytes, invariant};
use mason::{Order, Space};
use shared_log::{
    Admitted, Answer, Append, Cleanup, Commit, Create, Description, GroupState, LOGS_MAX, LogStat, Produce,
    ROW_OVERHEAD, Refused, Rejected, Request, Rows, SpaceBounds, Trim, Why, space_of,
};
use std::collections::{BTreeMap, BTreeSet};

/// Appends of a producer that are recognized.
const RECOGNIZED_MAX: usize = 32;
/// Sequences of a producer begin again from 0 at this number.
const SEQUENCES: u64 = 1 << 31;

#[derive(Clone, Debug)]
struct Segment {
    entries: u64,
    bytes: u64,
    last_time: u64,
}

#[derive(Debug)]
struct Log {
    created: Create,
    number: u64,
    created_ms: u64,
    first: u64,
    /// All that there ever were, from the first position on.
    begins: u64,
    entries: Vec<Bytes>,
    sealed: bool,
    /// The last is added to if it is open.
    segments: Vec<Segment>,
    open: bool,
    dropped: (u64, u64),
}

#[derive(Debug, Default)]
struct Producer {
    epoch: u16,
    /// First numbers, counts, and where they are.
    taken: Vec<(u32, u32, u64)>,
}

/// What an operation came to.
#[derive(Clone, Debug)]
pub(super) struct Executed {
    pub(super) answer: Answer,
    /// Logs whose readers look again.
    pub(super) moved: BTreeSet<String>,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Model {
    bounds: SpaceBounds,
    spaces: u16,
    logs: BTreeMap<String, Log>,
    /// How many were ever created in a space.
    created: BTreeMap<Space, u64>,
    producers: BTreeMap<(String, u64), Producer>,
    groups: BTreeMap<String, GroupState>,
    executed: BTreeMap<u64, Executed>,
    last: BTreeMap<Space, u64>,
}

fn refused(why: Why, name: &str, at: u64) -> Answer {
    Answer::Refused(Refused { why, name: name.to_owned(), at })
}

impl Log {
    fn next(&self) -> u64 {
        self.begins + self.entries.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    fn bytes_max(&self) -> u64 {
        if self.created.retain_bytes == 0 { u64::MAX } else { self.created.retain_bytes }
    }

    fn open_bytes(&self) -> u64 {
        self.segments.last().filter(|_| self.open).map_or(0, |segment| segment.bytes)
    }

    fn append(&mut self, rows: &Bytes, time: u64, admitted: Option<Admitted>, bounds: SpaceBounds) {
        let before = self.bytes();
        let entries: Vec<Bytes> = Rows::iter(rows).map(Bytes::copy_from_slice).collect();
        let bytes: u64 = entries.iter().map(|entry| (entry.len() + ROW_OVERHEAD) as u64).sum();
        let segment_max = (bounds.segment_bytes as u64).min(self.bytes_max() / 4);
        let fits = self.segments.last().is_some_and(|last| last.bytes + bytes <= segment_max);
        if !self.open || !fits {
            self.segments.push(Segment { entries: 0, bytes: 0, last_time: 0 });
            self.open = true;
        }
        let mut now = time;
        if let Some(last) = self.segments.last_mut() {
            now = time.max(last.last_time);
            (last.entries, last.bytes) = (last.entries + entries.len() as u64, last.bytes + bytes);
            last.last_time = now;
        }
        self.entries.extend(entries);
        self.expire(now);
        let drops = self.created.cleanup == Some(Cleanup::DropOldest);
        let bytes_max = match admitted {
            Some(Admitted::BeyondBudget) if drops => self.bytes_max().min(before.saturating_sub(bytes)),
            _ => self.bytes_max(),
        };
        while self.segments.len() > 1 && self.bytes() > bytes_max {
            let (first, bytes) = (self.first, self.bytes());
            self.drop_oldest();
            if admitted.is_some() {
                self.dropped = (self.dropped.0 + self.first - first, self.dropped.1 + bytes - self.bytes());
            }
        }
    }

    fn expire(&mut self, now: u64) {
        let retain_ms = self.created.retain_ms;
        while retain_ms > 0
            && self.segments.len() > 1
            && now.saturating_sub(self.segments[0].last_time) > retain_ms
        {
            self.drop_oldest();
        }
    }

    /// Where the oldest segment that is left ends.
    fn oldest_ends(&self) -> u64 {
        let later: u64 = self.segments.iter().skip(1).map(|segment| segment.entries).sum();
        self.next() - later
    }

    fn drop_oldest(&mut self) {
        self.first = self.first.max(self.oldest_ends());
        self.segments.remove(0);
        self.open &= !self.segments.is_empty();
    }

    fn trim(&mut self, before: u64) {
        self.first = self.first.max(before.min(self.next()));
        while !self.segments.is_empty() && self.oldest_ends() <= self.first {
            self.drop_oldest();
        }
    }

    fn stat(&self) -> LogStat {
        let Create { name, retain_bytes, retain_ms, .. } = &self.created;
        LogStat {
            name: name.clone(),
            first: self.first,
            next: self.next(),
            bytes: self.bytes(),
            retain_bytes: *retain_bytes,
            retain_ms: *retain_ms,
            sealed: self.sealed,
        }
    }
}

impl Model {
    pub(super) fn new(spaces: u16, bounds: SpaceBounds) -> Self {
        Self {
            bounds,
            spaces,
            logs: BTreeMap::new(),
            created: BTreeMap::new(),
            producers: BTreeMap::new(),
            groups: BTreeMap::new(),
            executed: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// True if a server that has executed this last has all that any server of its space has executed.
    pub(super) fn is_newest(&self, space: Space, gsn: u64) -> bool {
        self.last.get(&space).is_none_or(|&last| gsn >= last)
    }

    /// What the operation comes to, and whether this is the first that is heard of it. Every space executes what comes before in it first,
    /// and says so to the others: where an operation is executed first, all that it depends on was executed here before.
    pub(super) fn execute(&mut self, body: &Bytes, order: &Order) -> (Executed, bool) {
        use kernel::Decode as _;
        if let Some(known) = self.executed.get(&order.gsn.0) {
            return (known.clone(), false);
        }
        for placed in &order.numbers {
            let last = self.last.entry(placed.space).or_insert(0);
            *last = order.gsn.0.max(*last);
        }
        let mut moved = BTreeSet::new();
        let answer = match Request::decoded(body) {
            Err(_) => refused(Why::Malformed, "", 0),
            Ok(request) => match request.fault() {
                Some(why) => refused(why, "", 0),
                None => self.carry_out(request, order, &mut moved),
            },
        };
        let executed = Executed { answer, moved };
        self.executed.insert(order.gsn.0, executed.clone());
        (executed, true)
    }

    fn carry_out(&mut self, request: Request, order: &Order, moved: &mut BTreeSet<String>) -> Answer {
        match request {
            Request::Create(create) => self.create(create, order.time),
            Request::Append(append) => self.append(&append, order.time, moved),
            Request::Produce(produce) => self.produce(&produce, order.time, moved),
            Request::Trim(Trim { name, before }) => match self.logs.get_mut(&name) {
                None => refused(Why::NoSuchLog, &name, 0),
                Some(log) => {
                    log.trim(before);
                    Answer::Done
                }
            },
            Request::Expire(named) => {
                let space = space_of(&named.name, self.spaces);
                let here = self.logs.iter_mut().filter(|(name, _)| space_of(name, self.spaces) == space);
                here.for_each(|(_, log)| log.expire(order.time));
                Answer::Done
            }
            Request::Seal(named) => {
                moved.insert(named.name.clone());
                match self.logs.get_mut(&named.name) {
                    None => refused(Why::NoSuchLog, &named.name, 0),
                    Some(log) => {
                        (log.sealed, log.open) = (true, false);
                        Answer::Done
                    }
                }
            }
            Request::Delete(named) => {
                moved.insert(named.name.clone());
                if self.logs.remove(&named.name).is_none() {
                    return refused(Why::NoSuchLog, &named.name, 0);
                }
                self.producers.retain(|(log, _), _| *log != named.name);
                Answer::Done
            }
            Request::BeginGeneration(named) => {
                let group = self.group_mut(&named.name);
                group.generation = (group.generation + 1) % (1 << 31);
                Answer::Group(group.clone())
            }
            Request::Commit(commit) => self.commit(commit),
            Request::Read(_)
            | Request::Recall(_)
            | Request::Stat(_)
            | Request::Identify(_)
            | Request::Describe(_)
            | Request::List(_)
            | Request::GroupOf(_) => refused(Why::Malformed, "", 0),
        }
    }

    fn create(&mut self, create: Create, created_ms: u64) -> Answer {
        let name = create.name.clone();
        if self.logs.contains_key(&name) {
            return refused(Why::Exists, &name, 0);
        }
        let space = space_of(&name, self.spaces);
        let here = self.logs.iter().filter(|(name, _)| space_of(name, self.spaces) == space);
        let (count, reserved) =
            here.fold((0, 0), |(count, reserved), (_, log)| (count + 1, reserved + log.created.retain_bytes));
        let free = create.capacity.saturating_sub(reserved);
        if create.retain_bytes > free || count >= LOGS_MAX {
            return refused(Why::Full, &name, free);
        }
        let created = self.created.entry(space).or_insert(0);
        *created += 1;
        let first = create.first.unwrap_or(0);
        let log = Log {
            created: create,
            number: *created,
            created_ms,
            first,
            begins: first,
            entries: Vec::new(),
            sealed: false,
            segments: Vec::new(),
            open: false,
            dropped: (0, 0),
        };
        self.logs.insert(name, log);
        Answer::Done
    }

    /// Where entries would go, or why they cannot.
    fn position(&self, name: &str, expect: Option<u64>) -> Result<u64, Answer> {
        let log = self.logs.get(name).ok_or_else(|| refused(Why::NoSuchLog, name, 0))?;
        let next = log.next();
        if log.sealed {
            return Err(refused(Why::Sealed, name, next));
        }
        if expect.is_some_and(|at| at != next) { Err(refused(Why::Moved, name, next)) } else { Ok(next) }
    }

    fn append(&mut self, append: &Append, time: u64, moved: &mut BTreeSet<String>) -> Answer {
        let firsts: Result<Vec<u64>, Answer> =
            append.parts.iter().map(|part| self.position(&part.name, part.expect)).collect();
        let firsts = match firsts {
            Ok(firsts) => firsts,
            Err(refused) => return refused,
        };
        for part in &append.parts {
            self.add(&part.name, &part.entries, time, append.admitted);
            moved.insert(part.name.clone());
        }
        Answer::Appended(firsts)
    }

    /// Adds entries; then the largest open segments of the space end while all of them hold too much.
    fn add(&mut self, name: &str, entries: &Bytes, time: u64, admitted: Option<Admitted>) {
        let (bounds, space) = (self.bounds, space_of(name, self.spaces));
        if let Some(log) = self.logs.get_mut(name) {
            log.append(entries, time, admitted, bounds);
        }
        loop {
            let here = self.logs.iter_mut().filter(|(name, _)| space_of(name, self.spaces) == space);
            let mut here: Vec<&mut Log> = here.map(|(_, log)| log).collect();
            let all: u64 = here.iter().map(|log| log.open_bytes()).sum();
            if all <= bounds.open_bytes as u64 {
                return;
            }
            // Of equal ones, the last by its name.
            here.sort_by_key(|log| log.open_bytes());
            if let Some(largest) = here.pop() {
                largest.open = false;
            }
        }
    }

    fn produce(&mut self, produce: &Produce, time: u64, moved: &mut BTreeSet<String>) -> Answer {
        let Produce { name, producer, epoch, sequence, entries, admitted } = produce;
        let Some(log) = self.logs.get(name) else { return refused(Why::NoSuchLog, name, 0) };
        let count = Rows::count(entries).unwrap_or(0) as u32;
        let key = (name.clone(), *producer);
        match self.producers.get(&key) {
            None if *sequence != 0 => return Answer::Rejected(Rejected::Unknown(log.next())),
            Some(known) if *epoch < known.epoch => {
                return Answer::Rejected(Rejected::Fenced(known.epoch.into()));
            }
            Some(known) if *epoch == known.epoch => {
                let again = known.taken.iter().rev().find(|taken| (taken.0, taken.1) == (*sequence, count));
                if let Some((_, _, first)) = again {
                    return Answer::Appended(vec![*first]);
                }
                let ends = |taken: &(u32, u32, u64)| (u64::from(taken.0) + u64::from(taken.1)) % SEQUENCES;
                let due = known.taken.last().map_or(0, ends);
                if u64::from(*sequence) != due {
                    return Answer::Rejected(Rejected::OutOfSequence(due));
                }
            }
            Some(_) if *sequence != 0 => return Answer::Rejected(Rejected::OutOfSequence(0)),
            Some(_) | None => {}
        }
        let first = match self.position(name, None) {
            Ok(first) => first,
            Err(refused) => return refused,
        };
        self.add(name, entries, time, *admitted);
        moved.insert(name.clone());
        let known = self.producers.entry(key).or_default();
        if known.epoch != *epoch {
            *known = Producer { epoch: *epoch, taken: Vec::new() };
        }
        known.taken.push((*sequence, count, first));
        if known.taken.len() > RECOGNIZED_MAX {
            known.taken.remove(0);
        }
        Answer::Appended(vec![first])
    }

    fn group_mut(&mut self, name: &str) -> &mut GroupState {
        self.groups.entry(name.to_owned()).or_insert_with(|| GroupState::of(name))
    }

    fn commit(&mut self, commit: Commit) -> Answer {
        let current = self.group(&commit.group).generation;
        if commit.generation.is_some_and(|generation| generation != current) {
            return Answer::Rejected(Rejected::Fenced(current.into()));
        }
        let state = self.group_mut(&commit.group);
        for progress in commit.progress {
            state.progress.retain(|known| known.log != progress.log);
            state.progress.push(progress);
            state.progress.sort_by(|one, other| one.log.cmp(&other.log));
        }
        Answer::Done
    }

    fn group(&self, name: &str) -> GroupState {
        self.groups.get(name).cloned().unwrap_or_else(|| GroupState::of(name))
    }

    /// The names of the logs of a space.
    pub(super) fn names(&self, space: Space) -> impl Iterator<Item = &String> {
        self.logs.keys().filter(move |name| space_of(name, self.spaces) == space)
    }

    /// What a server that is as new as any answers to a question; of a read of entries see [`Model::judge_entries`].
    pub(super) fn answer(&self, request: &Request, space: Space) -> Option<Answer> {
        let found = |name: &String, show: &dyn Fn(&Log) -> Answer| match self.logs.get(name) {
            None => Some(refused(Why::NoSuchLog, name, 0)),
            Some(log) => Some(show(log)),
        };
        match request {
            Request::Stat(named) => found(&named.name, &|log| Answer::Logs(vec![log.stat()])),
            Request::Describe(named) => found(&named.name, &|log| {
                let (dropped, dropped_bytes) = log.dropped;
                let cleanup = log.created.cleanup.unwrap_or_default();
                Answer::Description(Description { stat: log.stat(), cleanup, dropped, dropped_bytes })
            }),
            Request::List(list) => {
                let after = self.names(space).filter(|name| **name > list.after);
                let logs = after.take(list.limit as usize).filter_map(|name| self.logs.get(name));
                Some(Answer::Logs(logs.map(Log::stat).collect()))
            }
            Request::GroupOf(named) => Some(Answer::Group(self.group(&named.name))),
            Request::Read(read) | Request::Recall(read) => match self.logs.get(&read.name) {
                None => Some(refused(Why::NoSuchLog, &read.name, 0)),
                Some(log) if read.from > log.next() => Some(refused(Why::BeyondTail, &read.name, log.next())),
                Some(log) if read.from < log.first && matches!(request, Request::Read(_)) => {
                    Some(refused(Why::Trimmed, &read.name, log.first))
                }
                Some(_) => None,
            },
            _ => None,
        }
    }

    /// Entries that were read are those of the log.
    pub(super) fn judge_entries(&self, request: &Request, answer: &Answer) {
        let (Request::Read(read) | Request::Recall(read)) = request else { return };
        let (Answer::Entries(given), Some(log)) = (answer, self.logs.get(&read.name)) else { return };
        let wanted = (read.from, log.next(), log.sealed);
        invariant!(
            LIN,
            (given.first, given.tail, given.sealed) == wanted,
            "{read:?} is answered with {} to {}, sealed {}, and the model says {wanted:?}",
            given.first,
            given.tail,
            given.sealed
        );
        let rows: Vec<&[u8]> = Rows::iter(&given.rows).collect();
        let begin = read.from.saturating_sub(log.begins) as usize;
        let same =
            rows.iter().zip(log.entries.iter().skip(begin)).all(|(given, wanted)| *given == &wanted[..]);
        let (count, most) = (rows.len() as u64, u64::from(read.entries_max.max(1)));
        let sized = given.next == read.from + count && given.next <= log.next() && count <= most;
        let some = count > 0 || read.from == log.next();
        invariant!(
            LIN,
            same && sized && some,
            "{read:?} is answered with {count} entries that the log has not"
        );
    }

    /// The number of a log in its space, and when it was made.
    pub(super) fn origin(&self, name: &str) -> Option<(u64, u64)> {
        self.logs.get(name).map(|log| (log.number, log.created_ms))
    }
}
