//! A storage server: positions that are written once (the paper's flash units).

use crate::auxiliary::{Beyond, SealAck, StoragePong};
use crate::client::{Found, Occupied, Sealed, Written};
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
    }
}

/// What a storage server keeps.
#[derive(Clone, PartialEq, Debug)]
pub enum StorageRecord {
    /// It serves no epoch below.
    Sealed(Epoch),
    /// A position is written.
    Kept(LogPosition, Entry),
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
        }
    }
}

impl Decode for StorageRecord {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            1 => Epoch::decode(input).map(Self::Sealed),
            2 => Ok(Self::Kept(input.field()?, input.field()?)),
            tag => Err(DecodeError::UnknownTag("record of a storage server", tag)),
        }
    }
}

/// Keeps entries.
///
/// Invariant: a position that holds an entry holds it for good; nothing is written in an epoch below the one it is sealed for.
#[derive(Clone, Debug)]
pub struct StorageServer {
    epoch: Epoch,
    entries: BTreeMap<LogPosition, Entry>,
}

impl StorageServer {
    /// A server of the first epoch, or one that waits to be sealed for a later one.
    pub fn new() -> Self {
        Self { epoch: Epoch(1), entries: BTreeMap::new() }
    }

    /// The epoch it serves, or waits to serve.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What it has.
    pub fn entries(&self) -> impl Iterator<Item = (LogPosition, &Entry)> {
        self.entries.iter().map(|(&position, entry)| (position, entry))
    }

    /// What it has at a position.
    pub fn entry(&self, position: LogPosition) -> Option<&Entry> {
        self.entries.get(&position)
    }

    /// The position after the last one written.
    fn next(&self) -> LogPosition {
        self.entries.last_key_value().map_or(LogPosition(0), |(last, _)| last.next())
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

    fn on_write(&mut self, client: NodeId, message: Write, cx: &mut Cx<'_, Self>) {
        let Write { id, epoch, position, entry } = message;
        if self.refuse(client, id, epoch, cx) {
            return;
        }
        match self.entries.get(&position) {
            Some(known) if *known == entry => {}
            Some(known) if !(planted!(C04) || planted!(C05) && entry == Entry::Junk) => {
                return cx.send_durable(client, Occupied { id, epoch, position, entry: known.clone() });
            }
            Some(_) | None => {
                cx.append(&StorageRecord::Kept(position, entry.clone()));
                self.entries.insert(position, entry);
            }
        }
        cx.send_durable(client, Written { id, epoch, position });
    }

    fn on_read(&mut self, client: NodeId, message: &Read, cx: &mut Cx<'_, Self>) {
        let Read { id, epoch, position } = *message;
        if !self.refuse(client, id, epoch, cx) {
            // It may not be durable yet.
            cx.send_durable(
                client,
                Found { id, epoch, position, entry: self.entries.get(&position).cloned() },
            );
        }
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

impl Default for StorageServer {
    fn default() -> Self {
        Self::new()
    }
}

impl Role for StorageServer {
    type Family = Corfu;
    type In = StorageIn;
    type Timer = Infallible;
    type Record = StorageRecord;

    fn restore(&mut self, _position: Position, record: StorageRecord) {
        match record {
            StorageRecord::Sealed(epoch) => self.epoch = self.epoch.max(epoch),
            StorageRecord::Kept(position, entry) => {
                self.entries.insert(position, entry);
            }
        }
    }

    fn on_message(&mut self, from: NodeId, message: StorageIn, cx: &mut Cx<'_, Self>) {
        match message {
            StorageIn::Write(message) => self.on_write(from, message, cx),
            StorageIn::Read(message) => self.on_read(from, &message, cx),
            StorageIn::Seal(message) => self.on_seal(from, message.epoch, cx),
            StorageIn::Ping(Ping {}) => cx.send_durable(from, StoragePong { epoch: self.epoch }),
        }
    }
}
