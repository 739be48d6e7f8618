//! A storage server: positions that are written once (the paper's flash units).

mod copy;
mod record;
mod source;

pub use crate::messages::storage::*;
pub use record::StorageRecord;

use crate::Corfu;
use crate::messages::auxiliary::{Beyond, SealAck, StoragePong, StorageStatus};
use crate::messages::client::{Found, Gone, Measured, Occupied, Sealed, Trimmed, Written};
use crate::projection::{Entry, Epoch, JournalId, LogPosition};
use copy::Copy;
use kernel::{AwaitedTimers, Cx, NodeId, Position, Recount, Role, Statement, planted};
use std::collections::{BTreeMap, VecDeque};

kernel::timers! {
    /// The storage server's timers.
    pub enum StorageTimer {
        /// Ask for more of what is copied.
        Copy,
    }
}

/// An entry, and where the journal has it.
#[derive(Clone, Debug)]
struct Retained {
    record: Position,
    entry: Entry,
}

impl Retained {
    fn bytes(&self) -> u64 {
        match &self.entry {
            Entry::Junk => ENTRY_OVERHEAD,
            Entry::Data(data) => ENTRY_OVERHEAD + data.body.len() as u64,
        }
    }
}

/// What an entry costs beside its bytes.
const ENTRY_OVERHEAD: u64 = 64;

/// Keeps entries, in memory and in its journal: at most about as many bytes as are configured; beyond it the oldest go.
///
/// Invariant: while it serves, a position that holds an entry holds it until it is trimmed; nothing is written in an epoch below the
/// one it is sealed for, nor below the first position that is left; it serves the epochs alone whose projection means its journal.
#[derive(Clone, Debug)]
pub struct StorageServer {
    journal: Option<JournalId>,
    /// Drawn anew at every start.
    run: u64,
    /// It serves no epoch below.
    epoch: Epoch,
    /// The last epoch that it was asked to serve.
    opened: Epoch,
    /// The last projection that this run of it was notified of.
    reported: Epoch,
    entries: BTreeMap<LogPosition, Retained>,
    /// What was written, in the journal's order. What is gone or was replaced stays until it is the first.
    order: VecDeque<(Position, LogPosition)>,
    /// Everything below is gone.
    first: LogPosition,
    bytes: u64,
    retain_bytes: u64,
    /// Positions that one answer to a learner reports.
    page: usize,
    /// While it is not in the projection, and its chain has room for it.
    copy: Option<Copy>,
}

/// Positions that one answer to a learner reports, unless something else is said.
const PAGE: usize = 1_024;

impl StorageServer {
    /// A server that waits for the order to serve.
    pub fn new(retain_bytes: u64) -> Self {
        Self {
            journal: None,
            run: 0,
            epoch: Epoch(1),
            opened: Epoch(0),
            reported: Epoch(0),
            entries: BTreeMap::new(),
            order: VecDeque::new(),
            first: LogPosition(0),
            bytes: 0,
            retain_bytes,
            page: PAGE,
            copy: None,
        }
    }

    /// The same, with so many positions in one answer to a learner, at least one.
    #[must_use]
    pub fn with_page(mut self, positions: usize) -> Self {
        self.page = positions.max(1);
        self
    }

    /// True if it serves the epoch of [`StorageServer::epoch`].
    pub fn serves(&self) -> bool {
        self.opened == self.epoch
    }

    /// The last epoch that it was asked to serve.
    pub fn opened(&self) -> Epoch {
        self.opened
    }

    /// Its journal's name; none before it has started.
    pub fn journal(&self) -> Option<JournalId> {
        self.journal
    }

    /// The epoch it serves, or waits to serve.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What it has.
    pub fn entries(&self) -> impl Iterator<Item = (LogPosition, &Entry)> {
        self.entries.iter().map(|(&position, retained)| (position, &retained.entry))
    }

    /// What it has at a position.
    pub fn entry(&self, position: LogPosition) -> Option<&Entry> {
        self.entries.get(&position).map(|retained| &retained.entry)
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What its entries cost, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The numbers that it keeps beside what they count.
    pub fn recounts(&self) -> Vec<Recount> {
        let counted = self.entries.values().map(Retained::bytes).sum();
        vec![Recount { what: "bytes of entries", known: self.bytes, counted }]
    }

    /// The first position that may be left.
    pub fn first(&self) -> LogPosition {
        self.first
    }

    /// The position after the last one written.
    fn next(&self) -> LogPosition {
        self.entries.last_key_value().map_or(self.first, |(last, _)| last.next().max(self.first))
    }

    /// Turns a client of another epoch away; true if it was one.
    fn refuse(&self, client: NodeId, id: u64, epoch: Epoch, cx: &mut Cx<'_, Self>) -> bool {
        if epoch < self.epoch {
            if planted!(sealed_server_serves) {
                return false;
            }
            cx.send_durable(client, Sealed { id, epoch: self.epoch });
        }
        // A later epoch's client knows a projection that this server has not heard of, or that means an earlier run of it.
        epoch != self.epoch || !self.serves() && !planted!(serves_before_opened)
    }

    /// The same of one that asks for what is gone.
    fn refuse_gone(&self, client: NodeId, id: u64, position: LogPosition, cx: &mut Cx<'_, Self>) -> bool {
        let gone = position < self.first;
        if gone {
            cx.send_durable(client, Gone { id, epoch: self.epoch, position, resume_from: self.first });
        }
        gone
    }

    fn on_write(&mut self, client: NodeId, message: Write, cx: &mut Cx<'_, Self>) {
        let Write { id, epoch, position, entry } = message;
        if self.refuse(client, id, epoch, cx) || self.refuse_gone(client, id, position, cx) {
            return;
        }
        match self.entry(position) {
            Some(known) if *known == entry => {}
            Some(known)
                if !(planted!(position_written_twice)
                    || planted!(entry_replaced_by_junk) && entry == Entry::Junk) =>
            {
                return cx.send_durable(client, Occupied { id, epoch, position, entry: known.clone() });
            }
            Some(_) | None => {
                let record = cx.append(&StorageRecord::Retained(position, entry.clone()));
                let wrong = planted!(position_written_twice) || planted!(entry_replaced_by_junk);
                let (first, replaced) = (self.first, self.insert(position, Retained { record, entry }));
                kernel::invariant!(
                    AGREE,
                    wrong || !replaced && position >= first,
                    "{position} is written again, or is below {first}"
                );
                self.retain(cx);
            }
        }
        cx.send_durable(client, Written { id, epoch, position });
    }

    /// Returns true if something was there.
    fn insert(&mut self, position: LogPosition, retained: Retained) -> bool {
        self.bytes += retained.bytes();
        self.order.push_back((retained.record, position));
        let replaced = self.entries.insert(position, retained);
        self.bytes -= replaced.as_ref().map_or(0, Retained::bytes);
        replaced.is_some()
    }

    fn remove(&mut self, position: LogPosition) {
        if let Some(retained) = self.entries.remove(&position) {
            self.bytes -= retained.bytes();
        }
    }

    fn on_read(&mut self, client: NodeId, message: &Read, cx: &mut Cx<'_, Self>) {
        let Read { id, epoch, position } = *message;
        if !self.refuse(client, id, epoch, cx) && !self.refuse_gone(client, id, position, cx) {
            // It may not be durable yet.
            cx.send_durable(client, Found { id, epoch, position, entry: self.entry(position).cloned() });
        }
    }

    fn on_trim(&mut self, client: NodeId, message: &Trim, cx: &mut Cx<'_, Self>) {
        let Trim { id, epoch, before } = *message;
        if self.refuse(client, id, epoch, cx) {
            return;
        }
        // What is not written yet cannot be gone.
        let before = if planted!(trim_beyond_end) { before } else { before.min(self.next()) };
        if before > self.first {
            let next = self.next();
            self.drop_below(before);
            kernel::invariant!(
                DUR,
                self.first <= next || planted!(trim_beyond_end),
                "drops positions below {}, and {next} is to be written next",
                self.first
            );
            self.forget(cx);
        }
        cx.send_durable(client, Trimmed { id, epoch });
    }

    fn on_measure(&self, client: NodeId, message: &Measure, cx: &mut Cx<'_, Self>) {
        let Measure { id, epoch } = *message;
        if !self.refuse(client, id, epoch, cx) {
            cx.send_durable(client, Measured { id, epoch, first: self.first, bytes: self.bytes });
        }
    }

    /// Drops an eighth of what may be held when there is more, so that the journal is trimmed seldom.
    fn retain(&mut self, cx: &mut Cx<'_, Self>) {
        if self.bytes <= self.retain_bytes {
            return;
        }
        let wanted = self.retain_bytes - self.retain_bytes / 8;
        while self.bytes > wanted && self.entries.len() > 1 {
            if let Some((position, retained)) = self.entries.pop_first() {
                self.bytes -= retained.bytes();
                self.first = position.next();
            }
        }
        cx.mark("storage.dropped_its_oldest");
        self.forget(cx);
    }

    fn drop_below(&mut self, before: LogPosition) {
        self.first = self.first.max(before);
        let retained = self.entries.split_off(&before);
        let dropped = std::mem::replace(&mut self.entries, retained);
        self.bytes -= dropped.values().map(Retained::bytes).sum::<u64>();
    }

    /// Lets the journal go up to the oldest record that is still needed.
    fn forget(&mut self, cx: &mut Cx<'_, Self>) {
        let status = cx.append(&StorageRecord::Sealed(self.epoch));
        cx.append(&StorageRecord::Serves(self.opened));
        if !planted!(trim_leaves_first_out) {
            cx.append(&StorageRecord::Trimmed(self.first));
        }
        if let Some(journal) = self.journal {
            cx.append(&StorageRecord::JournalId(journal));
        }
        let is_left = |&(record, position): &(Position, LogPosition)| {
            self.entries.get(&position).is_some_and(|retained| retained.record == record)
        };
        let gone = self.order.iter().take_while(|written| !is_left(written)).count();
        self.order.drain(..gone);
        cx.trim(self.order.front().map_or(status, |&(record, _)| record));
    }

    fn seal(&mut self, epoch: Epoch, cx: &mut Cx<'_, Self>) {
        if epoch > self.epoch {
            self.epoch = epoch;
            cx.append(&StorageRecord::Sealed(epoch));
        }
    }

    fn on_seal(&mut self, auxiliary: NodeId, message: &Seal, cx: &mut Cx<'_, Self>) {
        let Seal { epoch, journal } = *message;
        if journal != self.journal && !planted!(lost_disk_not_fenced) {
            return self.report_status(auxiliary, cx);
        }
        if epoch < self.epoch {
            return cx.send_durable(auxiliary, Beyond { epoch: self.epoch });
        }
        self.seal(epoch, cx);
        cx.send_durable(auxiliary, SealAck { epoch, next: self.next(), journal: self.journal });
    }

    fn report_status(&self, auxiliary: NodeId, cx: &mut Cx<'_, Self>) {
        let copied = self.copy.as_ref().map(Copy::progress);
        let status = self.journal.map(|journal| StorageStatus {
            journal,
            run: self.run,
            reported: self.reported,
            copied,
        });
        cx.repeat_durable([auxiliary], StoragePong { epoch: self.epoch, status });
    }

    fn on_project(&mut self, message: &Project, cx: &mut Cx<'_, Self>) {
        let Project { projection, chain } = message;
        let Some(journal) = self.journal.filter(|_| projection.is_sound() && projection.epoch >= self.epoch)
        else {
            return;
        };
        let epoch = projection.epoch;
        if projection.servers().any(|server| server == cx.node()) && projection.means(cx.node(), journal) {
            if epoch > self.epoch && !planted!(lost_disk_not_fenced) {
                return cx.reject("a projection for which this server was not sealed");
            }
            if self.copy.take().is_some() {
                cx.mark("storage.was_let_in");
            }
            if self.opened < epoch {
                self.seal(epoch, cx);
                self.opened = epoch;
                cx.append(&StorageRecord::Serves(epoch));
            }
        } else {
            self.seal(epoch, cx);
            self.copy_from(projection, *chain, cx);
        }
        let (opened, sealed) = (self.opened, self.epoch);
        kernel::invariant!(
            AGREE,
            opened <= sealed || planted!(lost_disk_not_fenced),
            "serves {opened:?}, sealed for {sealed:?}"
        );
        self.reported = epoch;
    }
}

impl Role for StorageServer {
    type Family = Corfu;
    type In = StorageIn;
    type Timer = StorageTimer;
    type Record = StorageRecord;

    fn restore(&mut self, record_at: Position, record: StorageRecord) {
        match record {
            StorageRecord::Sealed(epoch) => self.epoch = self.epoch.max(epoch),
            StorageRecord::Retained(position, entry) => {
                self.insert(position, Retained { record: record_at, entry });
            }
            StorageRecord::Trimmed(before) => self.drop_below(before),
            StorageRecord::JournalId(journal) => self.journal = Some(journal),
            StorageRecord::Serves(epoch) => self.opened = self.opened.max(epoch),
            StorageRecord::Dropped(position) => self.remove(position),
        }
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.run = cx.rng().bits();
        if self.journal.is_none() {
            let journal = JournalId(cx.rng().bits());
            self.journal = Some(journal);
            cx.append(&StorageRecord::JournalId(journal));
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(StorageTimer::Copy, self.copies_from().is_some())
    }

    fn statement(&self) -> Statement {
        Statement { recounts: self.recounts(), ..Statement::default() }
    }

    fn on_message(&mut self, from: NodeId, message: StorageIn, cx: &mut Cx<'_, Self>) {
        match message {
            StorageIn::Write(message) => self.on_write(from, message, cx),
            StorageIn::Read(message) => self.on_read(from, &message, cx),
            StorageIn::Seal(message) => self.on_seal(from, &message, cx),
            StorageIn::Ping(Ping {}) => self.report_status(from, cx),
            StorageIn::Trim(message) => self.on_trim(from, &message, cx),
            StorageIn::Measure(message) => self.on_measure(from, &message, cx),
            StorageIn::Project(message) => self.on_project(&message, cx),
            StorageIn::Finish(message) => self.on_finish(from, &message, cx),
            StorageIn::Compare(message) => self.on_compare(from, &message, cx),
            StorageIn::Compared(message) => self.on_compared(from, message, cx),
            StorageIn::Follow(message) => self.on_follow(from, &message, cx),
            StorageIn::Followed(message) => self.on_followed(from, message, cx),
        }
    }

    fn on_timer(&mut self, timer: StorageTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            StorageTimer::Copy => self.look(cx),
        }
    }
}
