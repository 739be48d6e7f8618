//! A storage server: positions that are written once (the paper's flash units).

use crate::auxiliary::{Beyond, SealAck, StoragePong};
use crate::client::{Found, Gone, Measured, Occupied, Sealed, Trimmed, Written};
use crate::projection::{Entry, Epoch, LogPosition};
use crate::{Corfu, Message};
use kernel::{Cx, Decode, DecodeError, Encode, NodeId, Position, Reader, Role, planted};
use std::collections::BTreeMap;
use std::convert::Infallible;

kernel::messages! {
    /// Everything a storage server can be sent.
    pub enum StorageIn in Message::Storage {
        /// From a client: keep this, if nothing is there.
        1 => Write {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
            /// What.
            entry: Entry,
        },
        /// From a client: what is there?
        2 => Read {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// Where.
            position: LogPosition,
        },
        /// From an auxiliary: serve no epoch below this one any more, and say how far you are written.
        3 => Seal {
            /// The epoch.
            epoch: Epoch,
        },
        /// From an auxiliary: are you there?
        4 => Ping {},
        /// From a client: drop what is below a position.
        5 => Trim {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
            /// The first position to keep.
            before: LogPosition,
        },
        /// From a client: how much is there?
        6 => Measure {
            /// The client's name for its call.
            id: u64,
            /// The client's epoch.
            epoch: Epoch,
        },
    }
}

/// What a storage server keeps.
#[derive(Clone, PartialEq, Debug)]
pub enum StorageRecord {
    /// It serves no epoch below.
    Sealed(Epoch),
    /// A position is written.
    Kept(LogPosition, Entry),
    /// Positions below are gone.
    Trimmed(LogPosition),
}

impl Encode for StorageRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sealed(epoch) => {
                out.push(1);
                epoch.encode(out);
            }
            Self::Kept(position, entry) => {
                out.push(2);
                position.encode(out);
                entry.encode(out);
            }
            Self::Trimmed(before) => {
                out.push(3);
                before.encode(out);
            }
        }
    }
}

impl Decode for StorageRecord {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Epoch::decode(input).map(Self::Sealed),
            2 => Ok(Self::Kept(input.field()?, input.field()?)),
            3 => LogPosition::decode(input).map(Self::Trimmed),
            tag => Err(DecodeError::UnknownTag("record of a storage server", tag)),
        }
    }
}

/// An entry, and where the journal has it.
#[derive(Clone, Debug)]
struct Kept {
    record: Position,
    entry: Entry,
}

impl Kept {
    fn bytes(&self) -> u64 {
        match &self.entry {
            Entry::Junk => ENTRY_OVERHEAD,
            Entry::Data(data) => ENTRY_OVERHEAD + data.body.len() as u64,
        }
    }
}

/// What an entry costs beside its bytes.
const ENTRY_OVERHEAD: u64 = 64;

/// Keeps entries, in memory and in its journal: at most about as many bytes as it is told; beyond it the oldest go.
///
/// Invariant: a position that holds an entry holds it until it is trimmed; nothing is written in an epoch below the one it is
/// sealed for, nor below the first position that is left.
#[derive(Clone, Debug)]
pub struct StorageServer {
    epoch: Epoch,
    entries: BTreeMap<LogPosition, Kept>,
    /// Everything below is gone.
    first: LogPosition,
    bytes: u64,
    retain_bytes: u64,
}

impl StorageServer {
    /// A server of the first epoch, or one that waits to be sealed for a later one.
    pub fn new(retain_bytes: u64) -> Self {
        Self { epoch: Epoch(1), entries: BTreeMap::new(), first: LogPosition(0), bytes: 0, retain_bytes }
    }

    /// The epoch it serves, or waits to serve.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What it has.
    pub fn entries(&self) -> impl Iterator<Item = (LogPosition, &Entry)> {
        self.entries.iter().map(|(&position, kept)| (position, &kept.entry))
    }

    /// What it has at a position.
    pub fn entry(&self, position: LogPosition) -> Option<&Entry> {
        self.entries.get(&position).map(|kept| &kept.entry)
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
            if planted!(C06) {
                return false;
            }
            cx.send_durable(client, Sealed { id, epoch: self.epoch });
        } else if epoch > self.epoch {
            // Every server of a projection is sealed before anybody knows the projection.
            cx.reject("call of an epoch that this server was not sealed for");
        }
        epoch != self.epoch
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
            Some(known) if !(planted!(C04) || planted!(C05) && entry == Entry::Junk) => {
                return cx.send_durable(client, Occupied { id, epoch, position, entry: known.clone() });
            }
            Some(_) | None => {
                let record = cx.append(&StorageRecord::Kept(position, entry.clone()));
                self.insert(position, Kept { record, entry });
                self.retain(cx);
            }
        }
        cx.send_durable(client, Written { id, epoch, position });
    }

    fn insert(&mut self, position: LogPosition, kept: Kept) {
        self.bytes += kept.bytes();
        if let Some(replaced) = self.entries.insert(position, kept) {
            self.bytes -= replaced.bytes();
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
        let before = before.min(self.next());
        if before > self.first {
            self.drop_below(before);
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
            if let Some((position, kept)) = self.entries.pop_first() {
                self.bytes -= kept.bytes();
                self.first = position.next();
            }
        }
        cx.mark("storage.dropped_its_oldest");
        self.forget(cx);
    }

    fn drop_below(&mut self, before: LogPosition) {
        self.first = self.first.max(before);
        let kept = self.entries.split_off(&before);
        let dropped = std::mem::replace(&mut self.entries, kept);
        self.bytes -= dropped.values().map(Kept::bytes).sum::<u64>();
    }

    /// Lets the journal go up to the oldest record that is still needed.
    fn forget(&self, cx: &mut Cx<'_, Self>) {
        let sealed = cx.append(&StorageRecord::Sealed(self.epoch));
        cx.append(&StorageRecord::Trimmed(self.first));
        let oldest = self.entries.values().map(|kept| kept.record).min();
        cx.trim(oldest.unwrap_or(sealed).min(sealed));
    }

    fn on_seal(&mut self, auxiliary: NodeId, epoch: Epoch, cx: &mut Cx<'_, Self>) {
        if epoch < self.epoch {
            return cx.send_durable(auxiliary, Beyond { epoch: self.epoch });
        }
        if epoch > self.epoch {
            self.epoch = epoch;
            cx.append(&StorageRecord::Sealed(epoch));
        }
        cx.send_durable(auxiliary, SealAck { epoch, next: self.next() });
    }
}

impl Role for StorageServer {
    type Family = Corfu;
    type In = StorageIn;
    type Timer = Infallible;
    type Record = StorageRecord;

    fn restore(&mut self, record_at: Position, record: StorageRecord) {
        match record {
            StorageRecord::Sealed(epoch) => self.epoch = self.epoch.max(epoch),
            StorageRecord::Kept(position, entry) => self.insert(position, Kept { record: record_at, entry }),
            StorageRecord::Trimmed(before) => self.drop_below(before),
        }
    }

    fn on_message(&mut self, from: NodeId, message: StorageIn, cx: &mut Cx<'_, Self>) {
        match message {
            StorageIn::Write(message) => self.on_write(from, message, cx),
            StorageIn::Read(message) => self.on_read(from, &message, cx),
            StorageIn::Seal(message) => self.on_seal(from, message.epoch, cx),
            StorageIn::Ping(Ping {}) => cx.send_durable(from, StoragePong { epoch: self.epoch }),
            StorageIn::Trim(message) => self.on_trim(from, &message, cx),
            StorageIn::Measure(message) => self.on_measure(from, &message, cx),
        }
    }
}
