//! Histories of transactions over keys: who did what when, and what came of it.
//!
//! A history is flat (a million transactions fit in a few hundred megabytes): operations point into one array
//! of accesses, accesses into one array of list elements, and keys, values and services are interned.
//!
//! Conventions of every checker here: intervals are closed, so equal times are concurrent; an operation of
//! unknown fate never ends, and its process goes on as a new one; an answer of unknown fate is no evidence.

mod intern;
mod validate;

use crate::level::Level;
use crate::terms::{Fate, Process, Time, Value, Version};
use std::ops::Range;

pub use intern::{Interner, Symbol};
pub use validate::HistoryError;

/// An operation of a [`History`], by its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpIndex(pub u32);

impl OpIndex {
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// What the service says about the position of a version in its key's order: compared as numbers, left to right.
/// A plain version or log position is the first number; a carstamp is (timestamp, rmw counter, client).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(pub [u64; 3]);

impl Timestamp {
    /// A returned version, revision, zxid or log position, or a commit timestamp.
    pub fn version(number: u64) -> Timestamp {
        Timestamp([number, 0, 0])
    }
}

/// What one access did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Read a register and saw this value; the history's initial value where nobody had written.
    Read(Symbol),
    /// Wrote this value to a register.
    Write(Symbol),
    /// Appended this element to a list.
    Append(Symbol),
    /// Read a whole list: a range of [`History::elements`].
    ReadList(Range<u32>),
}

/// One access of an operation to one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The key.
    pub key: Symbol,
    /// What was done.
    pub kind: AccessKind,
    /// The version read or written, where the service reported it.
    pub timestamp: Option<Timestamp>,
}

/// One operation or transaction, or a real-time fence (which has no accesses).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Who did it.
    pub process: Process,
    /// At which service; fences belong to one, keys too.
    pub service: Symbol,
    /// When it was invoked.
    pub invoke: Time,
    /// When it answered; [`Time::NEVER`] when unknown.
    pub complete: Time,
    /// What became of it.
    pub fate: Fate,
    /// A real-time fence of [`Operation::service`] (the RSS paper, section 4.1).
    pub fence: bool,
    /// It asked for a write, even if none took effect (a refused compare-and-set).
    pub asked_write: bool,
    /// What it may show; only [`crate::Model::ByLevel`] looks at it.
    pub level: Level,
    /// It says that it read the state at this timestamp; versions are timestamps then.
    pub as_of: Option<Version>,
    /// Line of the file it came from, 1 the first; 0 when it came from no file.
    pub line: u32,
    accesses: Range<u32>,
}

/// A message between processes, as one of its two ends saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageEvent {
    /// The process at this end.
    pub process: Process,
    /// When.
    pub at: Time,
    /// Which message.
    pub message: Symbol,
    /// True where it was sent, false where it was received.
    pub sent: bool,
    /// Line of the file; 0 without one.
    pub line: u32,
}

/// A history; see the module for its conventions.
#[derive(Clone, Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    accesses: Vec<Access>,
    elements: Vec<Symbol>,
    messages: Vec<MessageEvent>,
    keys: Interner,
    values: Interner,
    services: Interner,
    message_names: Interner,
    initial: Option<Symbol>,
    pipelined: bool,
    /// Of reads that name none; nothing stands for strict.
    level: Option<Level>,
}

/// An operation under construction, for [`History::add`].
///
/// ```
/// use consistency::history::{Draft, History};
/// use consistency::{Process, Time};
///
/// let mut history = History::new();
/// history.add(Draft::new(Process(1), Time(0), Time(5)).write("x", 1).append("log", 7));
/// history.add(Draft::new(Process(2), Time(6), Time(9)).read("x", 1).read_list("log", [7]));
/// assert!(history.validate().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Draft {
    process: Process,
    invoke: Time,
    complete: Time,
    fate: Fate,
    fence: bool,
    asked_write: bool,
    level: Option<Level>,
    as_of: Option<Version>,
    service: Value,
    line: u32,
    accesses: Vec<DraftAccess>,
    timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct DraftAccess {
    key: Value,
    what: DraftKind,
    timestamp: Option<Timestamp>,
}

#[derive(Clone, Debug)]
enum DraftKind {
    Read(Value),
    Write(Value),
    Append(Value),
    ReadList(Vec<Value>),
}

impl Draft {
    /// An operation that answered ok at `complete`.
    pub fn new(process: Process, invoke: Time, complete: Time) -> Draft {
        Draft {
            process,
            invoke,
            complete,
            fate: Fate::Ok,
            fence: false,
            asked_write: false,
            level: None,
            as_of: None,
            service: Value::Nil,
            line: 0,
            accesses: Vec::new(),
            timestamp: None,
        }
    }

    fn access(mut self, key: impl Into<Value>, what: DraftKind) -> Draft {
        self.asked_write |= matches!(what, DraftKind::Write(_) | DraftKind::Append(_));
        self.accesses.push(DraftAccess { key: key.into(), what, timestamp: None });
        self
    }

    /// It read `value` from `key`.
    pub fn read(self, key: impl Into<Value>, value: impl Into<Value>) -> Draft {
        let value = value.into();
        self.access(key, DraftKind::Read(value))
    }

    /// It read `key` before anybody wrote it.
    pub fn read_nothing(self, key: impl Into<Value>) -> Draft {
        self.access(key, DraftKind::Read(Value::Nil))
    }

    /// It wrote `value` to `key`.
    pub fn write(self, key: impl Into<Value>, value: impl Into<Value>) -> Draft {
        let value = value.into();
        self.access(key, DraftKind::Write(value))
    }

    /// It appended `element` to the list `key`.
    pub fn append(self, key: impl Into<Value>, element: impl Into<Value>) -> Draft {
        let element = element.into();
        self.access(key, DraftKind::Append(element))
    }

    /// It read the whole list `key`.
    pub fn read_list<V: Into<Value>>(
        self,
        key: impl Into<Value>,
        list: impl IntoIterator<Item = V>,
    ) -> Draft {
        let list = list.into_iter().map(Into::into).collect();
        self.access(key, DraftKind::ReadList(list))
    }

    /// The service reported this version, position or carstamp for the access named last.
    pub fn timestamped(mut self, timestamp: Timestamp) -> Draft {
        if let Some(last) = self.accesses.last_mut() {
            last.timestamp = Some(timestamp);
        }
        self
    }

    /// The commit timestamp of the whole transaction: it orders its writes; its reads are placed by what they saw.
    pub fn committed_at(mut self, timestamp: Timestamp) -> Draft {
        self.timestamp = Some(timestamp);
        self
    }

    /// Its fate is unknown.
    pub fn unknown(mut self) -> Draft {
        (self.fate, self.complete) = (Fate::Unknown, Time::NEVER);
        self
    }

    /// It certainly had no effect.
    pub fn failed(mut self) -> Draft {
        self.fate = Fate::Fail;
        self
    }

    /// It ran at this service.
    pub fn at_service(mut self, service: impl Into<Value>) -> Draft {
        self.service = service.into();
        self
    }

    /// It is a real-time fence of its service.
    pub fn fence(mut self) -> Draft {
        self.fence = true;
        self
    }

    /// It asked for a write, whether or not one took effect.
    pub fn asking_write(mut self) -> Draft {
        self.asked_write = true;
        self
    }

    /// Its consistency level. Without one, what writes is strict, what reads has the history's, and a fence is what fences are: it comes
    /// after its own process's past, and before what others do later.
    pub fn at_level(mut self, level: Level) -> Draft {
        self.level = Some(level);
        self
    }

    /// It says that it read the state at `timestamp`.
    pub fn as_of(mut self, timestamp: Version) -> Draft {
        self.as_of = Some(timestamp);
        self
    }

    /// Whether it was given a level, or a timestamp to be as of.
    pub(crate) fn has_level(&self) -> bool {
        self.level.is_some() || self.as_of.is_some()
    }

    pub(crate) fn line(&self) -> u32 {
        self.line
    }

    /// The line of the file it was read from.
    pub fn on_line(mut self, line: u32) -> Draft {
        self.line = line;
        self
    }
}

impl History {
    /// An empty history, whose unwritten keys hold [`Value::Nil`].
    pub fn new() -> History {
        History::default()
    }

    /// Unwritten keys hold `value` (litmus tests like 0); [`Value::Nil`] is then read as unwritten too.
    pub fn with_initial(mut self, value: impl Into<Value>) -> History {
        let value = value.into();
        self.initial = Some(self.values.intern(&value));
        self
    }

    /// Processes may have several operations open at once and are ordered by invocation.
    pub fn with_pipelining(mut self) -> History {
        self.pipelined = true;
        self
    }

    /// The level of reads that name none; strict else.
    pub fn with_level(mut self, level: Level) -> History {
        self.level = Some(level);
        self
    }

    /// True when processes may have several operations open at once.
    pub fn is_pipelined(&self) -> bool {
        self.pipelined
    }

    /// Appends an operation.
    pub fn add(&mut self, draft: Draft) -> OpIndex {
        let service = self.services.intern(&draft.service);
        let start = self.accesses.len() as u32;
        let usual = match (draft.fence, draft.asked_write) {
            (true, _) => Level::Rss,
            (false, true) => Level::Strict,
            (false, false) => self.level.unwrap_or(Level::Strict),
        };
        let level = draft.level.unwrap_or(usual);
        for access in draft.accesses {
            let key = self.keys.intern(&access.key);
            let kind = match access.what {
                DraftKind::Read(value) => AccessKind::Read(self.values.intern(&value)),
                DraftKind::Write(value) => AccessKind::Write(self.values.intern(&value)),
                DraftKind::Append(value) => AccessKind::Append(self.values.intern(&value)),
                DraftKind::ReadList(list) => {
                    let from = self.elements.len() as u32;
                    for value in &list {
                        let element = self.values.intern(value);
                        self.elements.push(element);
                    }
                    AccessKind::ReadList(from..self.elements.len() as u32)
                }
            };
            let writes = matches!(kind, AccessKind::Write(_) | AccessKind::Append(_));
            let timestamp = access.timestamp.or(if writes { draft.timestamp } else { None });
            self.accesses.push(Access { key, kind, timestamp });
        }
        self.operations.push(Operation {
            process: draft.process,
            service,
            invoke: draft.invoke,
            complete: draft.complete,
            fate: draft.fate,
            fence: draft.fence,
            asked_write: draft.asked_write,
            level,
            as_of: draft.as_of,
            line: draft.line,
            accesses: start..self.accesses.len() as u32,
        });
        OpIndex(self.operations.len() as u32 - 1)
    }

    /// Records one end of a message.
    pub fn message(&mut self, process: Process, at: Time, message: impl Into<Value>, sent: bool, line: u32) {
        let message = self.message_names.intern(&message.into());
        self.messages.push(MessageEvent { process, at, message, sent, line });
    }

    /// Records that `process` sent `message`.
    pub fn send(&mut self, process: Process, at: Time, message: impl Into<Value>) {
        self.message(process, at, message, true, 0);
    }

    /// Records that `process` received `message`.
    pub fn receive(&mut self, process: Process, at: Time, message: impl Into<Value>) {
        self.message(process, at, message, false, 0);
    }

    /// All operations, in the order they were added.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The accesses of one operation, in its own order.
    pub fn accesses(&self, operation: &Operation) -> &[Access] {
        &self.accesses[operation.accesses.start as usize..operation.accesses.end as usize]
    }

    /// The elements of a list read.
    pub fn elements(&self, range: &Range<u32>) -> &[Symbol] {
        &self.elements[range.start as usize..range.end as usize]
    }

    /// Both ends of all messages.
    pub fn messages(&self) -> &[MessageEvent] {
        &self.messages
    }

    /// Names of keys.
    pub fn keys(&self) -> &Interner {
        &self.keys
    }

    /// Values of registers and elements of lists.
    pub fn values(&self) -> &Interner {
        &self.values
    }

    /// Names of services.
    pub fn services(&self) -> &Interner {
        &self.services
    }

    /// Names of messages.
    pub fn message_names(&self) -> &Interner {
        &self.message_names
    }

    /// What unwritten registers hold besides nil.
    pub fn initial(&self) -> Option<&Value> {
        self.initial.map(|symbol| self.values.value(symbol))
    }

    /// Reads of nil from keys that are lists elsewhere become reads of the empty list: files write both so.
    pub fn empty_lists(&mut self) {
        let mut is_list = vec![false; self.keys.len()];
        for access in &self.accesses {
            is_list[access.key.at()] |=
                matches!(access.kind, AccessKind::Append(_) | AccessKind::ReadList(_));
        }
        for access in &mut self.accesses {
            let empty = match access.kind {
                AccessKind::Read(value) => *self.values.value(value) == Value::Nil,
                AccessKind::Write(_) | AccessKind::Append(_) | AccessKind::ReadList(_) => false,
            };
            if empty && is_list[access.key.at()] {
                access.kind = AccessKind::ReadList(0..0);
            }
        }
    }

    /// True when a register that shows `value` was never written.
    pub fn is_initial(&self, value: Symbol) -> bool {
        Some(value) == self.initial || *self.values.value(value) == Value::Nil
    }

    /// Whether it wrote: by effect, or also by what it asked for.
    pub fn writes(&self, operation: &Operation, by_type: bool) -> bool {
        (by_type && operation.asked_write)
            || self
                .accesses(operation)
                .iter()
                .any(|access| matches!(access.kind, AccessKind::Write(_) | AccessKind::Append(_)))
    }

    /// Whether its operations ask for different things, or say as of when they read.
    pub fn has_levels(&self) -> bool {
        self.operations.iter().any(|operation| {
            operation.as_of.is_some() || operation.level != Level::Strict && !operation.fence
        })
    }

    /// The history as one service saw it: its operations and fences, and all messages.
    pub fn at_service(&self, service: impl Into<Value>) -> History {
        let service = self.services.find(&service.into());
        let mut part = self.clone();
        part.operations.retain(|operation| Some(operation.service) == service);
        part
    }
}
