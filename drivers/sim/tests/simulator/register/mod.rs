//! A replicated register (Attiya, Bar-Noy, Dolev 1995, with many writers), the smallest protocol that has everything
//! the simulator must handle: quorums, journals, retransmission, snapshots of the journal; and known mistakes in it.
// The bench compiles it, too.
#![allow(missing_docs, unreachable_pub, dead_code)]

pub mod linearizable;
pub mod scenario;
pub mod scope;

use kernel::{Cx, Family, NodeId, Position, RequestId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

kernel::record! {
    /// Orders values: the number, then who chose it.
    pub struct Timestamp {
        number: u64,
        chooser: u64,
    }
}

impl Timestamp {
    fn order(&self) -> (u64, u64) {
        (self.number, self.chooser)
    }
}

impl std::hash::Hash for Timestamp {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.order().hash(state);
    }
}

kernel::record! {
    /// A value of a key; 0 is the value before all writes.
    pub struct Cell {
        key: u64,
        timestamp: Timestamp,
        value: u64,
    }
}

impl std::hash::Hash for Cell {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.key, self.timestamp.order(), self.value).hash(state);
    }
}

kernel::messages! {
    pub enum ServerIn in Message::Server {
        /// What is the latest cell of `key`?
        1 => Query { operation: u64, key: u64 },
        /// Keep this cell unless you know a later one.
        2 => Store { operation: u64, cell: Cell },
    }
}

kernel::messages! {
    pub enum ClientIn in Message::Client {
        /// The latest cell I know.
        1 => Latest { operation: u64, cell: Cell },
        /// I have it, or a later one.
        2 => Stored { operation: u64 },
    }
}

kernel::timers! {
    pub enum ClientTimer { Resend }
}

kernel::family! {
    /// All messages.
    messages Message;
    /// All roles.
    #[derive(Clone, Hash, Debug)]
    members Member [] [] of Registers {
        1 => Server(ServerIn, Server, "server"),
        2 => Client(ClientIn, Client, "client"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    Read { key: u64 },
    Write { key: u64, value: u64 },
}

pub struct Registers;

impl Family for Registers {
    type Message = Message;
    type Request = Request;
    /// What was read; a write answers its own value.
    type Response = u64;
}

/// Mistakes that the simulator must notice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    None,
    /// A server acknowledges before its record is durable.
    AckBeforeDurable,
    /// A server keeps nothing in its journal.
    NoJournal,
    /// A server trims its journal before what replaces it is written.
    TrimTooMuch,
    /// A client reads from one server.
    ReadFromOne,
    /// A client does not write back what it read.
    NoWriteBack,
    /// A client sends each message once.
    NeverResends,
    /// A server's own assertion is wrong.
    Panics,
}

#[derive(Clone, Hash, Debug)]
pub struct Server {
    pub mistake: Mistake,
    pub cells: BTreeMap<u64, Cell>,
    appended: u32,
}

/// How many records a server appends between two snapshots of its cells.
const SNAPSHOT_EVERY: u32 = 40;

impl Server {
    pub fn new(mistake: Mistake) -> Self {
        Self { mistake, cells: BTreeMap::new(), appended: 0 }
    }

    fn latest(&self, key: u64) -> Cell {
        self.cells.get(&key).cloned().unwrap_or(Cell {
            key,
            timestamp: Timestamp { number: 0, chooser: 0 },
            value: 0,
        })
    }

    fn keep(&mut self, cell: Cell) -> bool {
        let later = cell.timestamp.order() > self.latest(cell.key).timestamp.order();
        if later {
            self.cells.insert(cell.key, cell);
        }
        later
    }

    fn append(&mut self, cell: &Cell, cx: &mut Cx<'_, Self>) {
        if self.mistake == Mistake::NoJournal {
            return;
        }
        cx.append(cell);
        self.appended += 1;
        if self.appended >= SNAPSHOT_EVERY {
            self.appended = 0;
            cx.mark("server.snapshot");
            let before = cx.cursor();
            if self.mistake == Mistake::TrimTooMuch {
                cx.trim(before);
                return;
            }
            for cell in self.cells.values() {
                cx.append(cell);
            }
            cx.trim(before);
        }
    }
}

impl Role for Server {
    type Family = Registers;
    type In = ServerIn;
    type Timer = std::convert::Infallible;
    type Record = Cell;

    fn restore(&mut self, _position: Position, record: Cell) {
        self.keep(record);
    }

    fn on_message(&mut self, from: NodeId, message: ServerIn, cx: &mut Cx<'_, Self>) {
        match message {
            ServerIn::Query(Query { operation, key }) => {
                cx.send_durable(from, Latest { operation, cell: self.latest(key) });
            }
            ServerIn::Store(Store { operation, cell }) => {
                if self.mistake == Mistake::Panics {
                    kernel::invariant!(
                        AGREE,
                        cell.timestamp.number < 20,
                        "timestamp {:?} is too high",
                        cell.timestamp
                    );
                }
                if self.keep(cell.clone()) {
                    self.append(&cell, cx);
                } else {
                    cx.mark("server.stale_store");
                }
                if self.mistake == Mistake::AckBeforeDurable {
                    cx.send(from, Stored { operation });
                } else {
                    cx.send_durable(from, Stored { operation });
                }
            }
        }
    }
}

#[derive(Clone, Hash, Debug)]
enum Step {
    Ask { latest: Option<Cell> },
    Notify { cell: Cell },
}

#[derive(Clone, Hash, Debug)]
struct Operation {
    request: Request,
    step: Step,
    heard: BTreeSet<NodeId>,
}

#[derive(Clone, Hash, Debug)]
pub struct Client {
    mistake: Mistake,
    servers: Vec<NodeId>,
    resend_after: Duration,
    operations: BTreeMap<u64, Operation>,
}

impl Client {
    pub fn new(mistake: Mistake, servers: Vec<NodeId>) -> Self {
        Self { mistake, servers, resend_after: Duration::from_millis(100), operations: BTreeMap::new() }
    }

    fn quorum(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    fn send(&self, id: u64, cx: &mut Cx<'_, Self>) {
        let Some(operation) = self.operations.get(&id) else { return };
        let silent = self.servers.iter().copied().filter(|server| !operation.heard.contains(server));
        match &operation.step {
            Step::Ask { .. } => {
                let (Request::Read { key } | Request::Write { key, .. }) = operation.request;
                cx.multicast(silent, Query { operation: id, key });
            }
            Step::Notify { cell } => cx.multicast(silent, Store { operation: id, cell: cell.clone() }),
        }
    }

    fn notify(&mut self, id: u64, latest: Cell, cx: &mut Cx<'_, Self>) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let cell = match operation.request {
            Request::Read { .. } => latest,
            Request::Write { key, value } => {
                // The chooser is drawn, because a client that crashed may have used its next number before.
                let timestamp = Timestamp { number: latest.timestamp.number + 1, chooser: cx.rng().bits() };
                Cell { key, timestamp, value }
            }
        };
        if self.mistake == Mistake::NoWriteBack && matches!(operation.request, Request::Read { .. }) {
            self.operations.remove(&id);
            return cx.respond(RequestId(id), cell.value);
        }
        operation.step = Step::Notify { cell };
        operation.heard.clear();
        self.send(id, cx);
    }
}

impl Role for Client {
    type Family = Registers;
    type In = ClientIn;
    type Timer = ClientTimer;
    type Record = std::convert::Infallible;

    fn restore(&mut self, _position: Position, record: std::convert::Infallible) {
        match record {}
    }

    fn on_request(&mut self, id: RequestId, request: Request, cx: &mut Cx<'_, Self>) {
        let operation = Operation { request, step: Step::Ask { latest: None }, heard: BTreeSet::new() };
        self.operations.insert(id.0, operation);
        self.send(id.0, cx);
        if self.mistake != Mistake::NeverResends {
            cx.set_timer(ClientTimer::Resend, self.resend_after);
        }
    }

    fn on_message(&mut self, from: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
        let quorum = self.quorum();
        match message {
            ClientIn::Latest(Latest { operation: id, cell }) => {
                let reads = |request| matches!(request, Request::Read { .. });
                let Some(operation) = self.operations.get_mut(&id) else { return };
                let Step::Ask { latest } = &mut operation.step else { return };
                if latest.as_ref().is_none_or(|known| cell.timestamp.order() > known.timestamp.order()) {
                    *latest = Some(cell);
                }
                let latest = latest.clone();
                operation.heard.insert(from);
                let alone = self.mistake == Mistake::ReadFromOne && reads(operation.request);
                if (operation.heard.len() >= quorum || alone)
                    && let Some(latest) = latest
                {
                    self.notify(id, latest, cx);
                }
            }
            ClientIn::Stored(Stored { operation: id }) => {
                let Some(operation) = self.operations.get_mut(&id) else { return };
                let Step::Notify { cell } = &operation.step else { return };
                let value = cell.value;
                operation.heard.insert(from);
                if operation.heard.len() >= quorum {
                    self.operations.remove(&id);
                    cx.respond(RequestId(id), value);
                }
            }
        }
    }

    fn on_timer(&mut self, timer: ClientTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ClientTimer::Resend => {
                cx.mark("client.resend");
                for &id in self.operations.keys() {
                    self.send(id, cx);
                }
                if !self.operations.is_empty() {
                    cx.set_timer(ClientTimer::Resend, self.resend_after);
                }
            }
        }
    }
}
