//! The client: takes positions, writes chains, reads, and fills holes.

mod extent;
mod several;

pub use crate::messages::client::*;
pub use extent::Extent;

use crate::Corfu;
use crate::messages::auxiliary::WantProjection;
use crate::messages::sequencer::{Next, Tail};
use crate::messages::storage::{Measure, Read, Trim, Write};
use crate::projection::{Data, Entry, Epoch, LogPosition, Parameters, Projection};
use kernel::{AwaitedTimers, Bytes, Cx, Instant, NodeId, Position, RequestId, Role, planted};
use several::Several;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// What a local application asks.
#[derive(Clone, PartialEq, Debug)]
pub enum CorfuRequest {
    /// Put this at the end.
    Append(Bytes),
    /// Put these at the end, at positions that follow one another unless something fails meanwhile.
    AppendAll(Vec<Bytes>),
    /// What is there?
    Read(LogPosition),
    /// Drop what is below.
    Trim(LogPosition),
    /// How far does it go?
    Stat,
}

/// What it is answered.
#[derive(Clone, PartialEq, Debug)]
pub enum CorfuResponse {
    /// The entry is at this position.
    Appended(LogPosition),
    /// The entries are at these positions.
    AllAppended(Vec<LogPosition>),
    /// This is there.
    Entry(Bytes),
    /// Nothing is there, and never will be.
    Junk,
    /// Nothing is there yet: it is beyond the tail.
    Unwritten,
    /// What was there is gone; this is the first position that may be left.
    Gone(LogPosition),
    /// It is done.
    Trimmed,
    /// So far it goes.
    Stat(Extent),
    /// Too many calls are in flight, or the entry is too large; nothing was done.
    Refused,
}

kernel::timers! {
    /// The client's timers.
    pub enum ClientTimer {
        /// Look for what has no answer, and for holes to fill.
        Tick,
    }
}

/// What an operation is for.
#[derive(Clone, Debug)]
enum Call {
    /// One entry; `part`: of an append of several, and which of them.
    Append {
        data: Data,
        part: Option<(u64, usize)>,
    },
    /// Several, until they have positions.
    AppendAll {
        bodies: Vec<Bytes>,
    },
    Read {
        position: LogPosition,
        hole_since: Option<Instant>,
    },
    Trim {
        before: LogPosition,
    },
    Stat,
}

#[derive(Clone, Debug)]
enum Stage {
    /// A position is asked for.
    Token,
    /// The chain is written, down to the server before `at`.
    Write { position: LogPosition, entry: Entry, at: usize },
    /// The epoch changed under a write: does the head have the entry?
    Check { position: LogPosition },
    /// The tail is asked.
    ReadTail,
    /// The whole chain is asked: these have nothing.
    ReadAll { empty: Vec<NodeId> },
    /// Nothing is there: was the position given away?
    AskTail,
    /// It was: its writer is waited for.
    AwaitWriter,
    /// All servers are asked to drop: these have.
    Trim { done: Vec<NodeId> },
    /// The tails of all chains are asked how much they have. It comes after the sequencer's answer: they are not sealed, so its epoch
    /// was in force when it gave it.
    Measure { next: LogPosition, said: BTreeMap<NodeId, (LogPosition, u64)> },
}

#[derive(Clone, Debug)]
struct Operation {
    request: RequestId,
    call: Call,
    stage: Stage,
    sent_at: Instant,
}

/// Appends and reads.
#[derive(Clone, Debug)]
pub struct Client {
    auxiliaries: Vec<NodeId>,
    parameters: Parameters,
    projection: Projection,
    /// An epoch that is known to be needed, while its projection is not.
    wanted: Option<Epoch>,
    asked_at: Instant,
    /// Names calls; a run begins at random, so that answers to an earlier one are nobody's.
    next_id: u64,
    operations: BTreeMap<u64, Operation>,
    several: BTreeMap<u64, Several>,
}

impl Client {
    /// A client of the log that begins with `initial`.
    pub fn new(auxiliaries: Vec<NodeId>, initial: Projection, parameters: Parameters) -> Self {
        Self {
            auxiliaries,
            parameters,
            projection: initial,
            wanted: None,
            asked_at: Instant(0),
            next_id: 0,
            operations: BTreeMap::new(),
            several: BTreeMap::new(),
        }
    }

    /// Calls without an answer.
    pub fn outstanding(&self) -> usize {
        self.operations.len()
    }

    /// The epoch that it works in.
    pub fn epoch(&self) -> Epoch {
        self.projection.epoch
    }

    /// Says, or says again, what the operation waits to be answered.
    fn say(&mut self, id: u64, cx: &mut Cx<'_, Self>) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.sent_at = cx.now();
        let (projection, epoch) = (&self.projection, self.projection.epoch);
        match (&operation.stage, &operation.call) {
            (Stage::Token, call) => {
                let count = if let Call::AppendAll { bodies } = call { bodies.len() as u32 } else { 1 };
                cx.send(projection.sequencer, Next { id, epoch, count });
            }
            (Stage::AskTail, _) => cx.send(projection.sequencer, Tail { id, epoch }),
            (Stage::Write { position, entry, at }, _) => {
                if let Some(&server) = projection.chain(*position).get(*at) {
                    cx.send(server, Write { id, epoch, position: *position, entry: entry.clone() });
                }
            }
            (Stage::Check { position }, _) => {
                if let Some(&head) = projection.chain(*position).first() {
                    cx.send(head, Read { id, epoch, position: *position });
                }
            }
            (Stage::ReadTail, Call::Read { position, .. }) => {
                let chain = projection.chain(*position);
                let server = if planted!(read_from_head) { chain.first() } else { chain.last() };
                if let Some(&server) = server {
                    cx.send(server, Read { id, epoch, position: *position });
                }
            }
            (Stage::ReadAll { empty }, Call::Read { position, .. }) => {
                let missing = projection.chain(*position).iter().filter(|server| !empty.contains(server));
                cx.multicast(missing.copied(), Read { id, epoch, position: *position });
            }
            (Stage::Trim { done }, Call::Trim { before }) => {
                let missing = projection.servers().filter(|server| !done.contains(server));
                cx.multicast(missing, Trim { id, epoch, before: *before });
            }
            (Stage::Measure { said, .. }, _) => {
                let missing = projection.tails().filter(|tail| !said.contains_key(tail));
                cx.multicast(missing, Measure { id, epoch });
            }
            (Stage::AwaitWriter | Stage::ReadTail | Stage::ReadAll { .. } | Stage::Trim { .. }, _) => {}
        }
    }

    fn enter(&mut self, id: u64, stage: Stage, cx: &mut Cx<'_, Self>) {
        if let Some(operation) = self.operations.get_mut(&id) {
            operation.stage = stage;
            self.say(id, cx);
        }
    }

    fn end(&mut self, id: u64, response: CorfuResponse, cx: &mut Cx<'_, Self>) {
        let Some(operation) = self.operations.remove(&id) else { return };
        match (operation.call, response) {
            (Call::Append { part: Some((several, index)), .. }, CorfuResponse::Appended(position)) => {
                self.appended_one(several, index, position, cx);
            }
            (_, response) => cx.respond(operation.request, response),
        }
    }

    fn on_token(&mut self, message: &Token, cx: &mut Cx<'_, Self>) {
        let Token { id, position, .. } = *message;
        match self.operations.get_mut(&id) {
            Some(Operation { call: Call::Append { data, .. }, stage: Stage::Token, .. }) => {
                let entry = Entry::Data(data.clone());
                self.enter(id, Stage::Write { position, entry, at: 0 }, cx);
            }
            Some(Operation { request, call: Call::AppendAll { bodies }, stage: Stage::Token, .. }) => {
                let (request, bodies) = (*request, std::mem::take(bodies));
                self.operations.remove(&id);
                self.write_all(id, request, position, bodies, cx);
            }
            // Asked for twice: the second position is nobody's.
            Some(_) | None => cx.mark("client.left_a_hole"),
        }
    }

    /// A name for a call.
    fn name(&mut self) -> u64 {
        let name = self.next_id;
        self.next_id += 1;
        name
    }

    fn on_written(&mut self, from: NodeId, message: &Written, cx: &mut Cx<'_, Self>) {
        let Written { id, position, .. } = *message;
        let Some(Operation { call, stage: Stage::Write { position: mine, entry, at }, .. }) =
            self.operations.get(&id)
        else {
            return;
        };
        let chain = self.projection.chain(position);
        if position != *mine || chain.get(*at) != Some(&from) {
            return;
        }
        let (at, entry) = (*at + 1, entry.clone());
        if at < chain.len() && !planted!(append_done_at_head) {
            return self.enter(id, Stage::Write { position, entry, at }, cx);
        }
        let response = match call {
            Call::Append { .. } | Call::AppendAll { .. } => CorfuResponse::Appended(position),
            Call::Read { .. } | Call::Trim { .. } | Call::Stat => answer(entry),
        };
        self.end(id, response, cx);
    }

    fn on_occupied(&mut self, from: NodeId, message: Occupied, cx: &mut Cx<'_, Self>) {
        let Occupied { id, position, entry, .. } = message;
        let Some(Operation { call, stage: Stage::Write { position: mine, at, .. }, .. }) =
            self.operations.get(&id)
        else {
            return;
        };
        if position != *mine || self.projection.chain(position).get(*at) != Some(&from) {
            return;
        }
        match call {
            // A reader took it for a hole.
            Call::Append { .. } if *at == 0 => {
                cx.mark("client.lost_its_position");
                self.enter(id, Stage::Token, cx);
            }
            // Its writer was there first after all: it is helped.
            Call::Read { .. } if *at == 0 => self.copy_down(id, position, entry, cx),
            Call::Append { .. }
            | Call::AppendAll { .. }
            | Call::Read { .. }
            | Call::Trim { .. }
            | Call::Stat => cx.reject("two entries of one position in a chain"),
        }
    }

    /// What the head has goes down the chain.
    fn copy_down(&mut self, id: u64, position: LogPosition, entry: Entry, cx: &mut Cx<'_, Self>) {
        if self.projection.chain(position).len() > 1 {
            return self.enter(id, Stage::Write { position, entry, at: 1 }, cx);
        }
        let response = match self.operations.get(&id).map(|operation| &operation.call) {
            Some(Call::Append { .. } | Call::AppendAll { .. }) => CorfuResponse::Appended(position),
            Some(Call::Read { .. } | Call::Trim { .. } | Call::Stat) | None => answer(entry),
        };
        self.end(id, response, cx);
    }

    fn on_found(&mut self, from: NodeId, message: Found, cx: &mut Cx<'_, Self>) {
        let Found { id, position, entry, .. } = message;
        let chain = self.projection.chain(position);
        let (is_head, is_tail) = (chain.first() == Some(&from), chain.last() == Some(&from));
        let Some(operation) = self.operations.get_mut(&id) else { return };
        match (&mut operation.stage, &operation.call) {
            (Stage::Check { position: mine }, Call::Append { data, .. }) if *mine == position && is_head => {
                match entry {
                    Some(Entry::Data(found)) if found == *data => {
                        cx.mark("client.found_its_entry_after_a_change");
                        self.copy_down(id, position, Entry::Data(found), cx);
                    }
                    // It is nowhere in the chain, and never will be.
                    Some(_) | None => self.enter(id, Stage::Token, cx),
                }
            }
            (Stage::ReadTail, Call::Read { position: mine, .. }) if *mine == position => match entry {
                Some(entry) if is_tail || planted!(read_from_head) => self.end(id, answer(entry), cx),
                Some(_) => {}
                None => self.enter(id, Stage::ReadAll { empty: Vec::new() }, cx),
            },
            (Stage::ReadAll { empty }, Call::Read { position: mine, .. }) if *mine == position => match entry
            {
                Some(entry) if is_head => {
                    cx.mark("client.helped_a_writer");
                    self.copy_down(id, position, entry, cx);
                }
                // It came after the head was asked; the head has it by now.
                Some(_) => self.enter(id, Stage::ReadTail, cx),
                None => {
                    if !empty.contains(&from) && chain.contains(&from) {
                        empty.push(from);
                    }
                    if empty.len() == chain.len() {
                        self.enter(id, Stage::AskTail, cx);
                    }
                }
            },
            // An answer to what it does not ask any more.
            (
                _,
                Call::Append { .. }
                | Call::AppendAll { .. }
                | Call::Read { .. }
                | Call::Trim { .. }
                | Call::Stat,
            ) => {}
        }
    }

    fn on_tail_is(&mut self, message: &TailIs, cx: &mut Cx<'_, Self>) {
        let TailIs { id, next, .. } = *message;
        let (now, hole_after) = (cx.now(), self.parameters.hole_after);
        if let Some(Operation { call: Call::Stat, stage: Stage::AskTail, .. }) = self.operations.get(&id) {
            return self.enter(id, Stage::Measure { next, said: BTreeMap::new() }, cx);
        }
        let Some(Operation { call: Call::Read { position, hole_since }, stage, .. }) =
            self.operations.get_mut(&id)
        else {
            return;
        };
        let Stage::AskTail = stage else { return };
        let position = *position;
        if position >= next {
            return self.end(id, CorfuResponse::Unwritten, cx);
        }
        if now.since(*hole_since.get_or_insert(now)) < hole_after {
            *stage = Stage::AwaitWriter;
            return;
        }
        cx.mark("client.filled_a_hole");
        self.enter(id, Stage::Write { position, entry: Entry::Junk, at: 0 }, cx);
    }

    fn want(&mut self, epoch: Epoch, cx: &mut Cx<'_, Self>) {
        if epoch > self.projection.epoch && self.wanted.is_none_or(|wanted| wanted < epoch) {
            self.wanted = Some(epoch);
            self.ask_auxiliaries(epoch, cx);
        }
    }

    fn ask_auxiliaries(&mut self, epoch: Epoch, cx: &mut Cx<'_, Self>) {
        self.asked_at = cx.now();
        cx.multicast(self.auxiliaries.iter().copied(), WantProjection { epoch });
    }

    fn on_installed(&mut self, projection: Projection, cx: &mut Cx<'_, Self>) {
        if projection.epoch <= self.projection.epoch || !projection.is_sound() {
            return;
        }
        self.wanted = self.wanted.filter(|&wanted| wanted > projection.epoch);
        self.projection = projection;
        let ids: Vec<u64> = self.operations.keys().copied().collect();
        for id in ids {
            let Some(operation) = self.operations.get(&id) else { continue };
            let stage = match (&operation.call, &operation.stage) {
                (Call::Append { .. }, Stage::Write { position, .. } | Stage::Check { position })
                    if !planted!(sealed_write_takes_new_position) =>
                {
                    Stage::Check { position: *position }
                }
                (Call::Append { .. } | Call::AppendAll { .. }, _) => Stage::Token,
                (Call::Read { .. }, _) => Stage::ReadTail,
                (Call::Trim { .. }, _) => Stage::Trim { done: Vec::new() },
                (Call::Stat, _) => Stage::AskTail,
            };
            self.enter(id, stage, cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, resend_after) = (cx.now(), self.parameters.resend_after);
        let late = |operation: &&mut Operation| match operation.stage {
            Stage::AwaitWriter => now.since(operation.sent_at) >= self.parameters.hole_after,
            _ => now.since(operation.sent_at) >= resend_after,
        };
        let mut ids: Vec<u64> = Vec::new();
        for (&id, operation) in &mut self.operations {
            if late(&operation) {
                if let Stage::AwaitWriter = operation.stage {
                    operation.stage = Stage::ReadTail;
                }
                ids.push(id);
            }
        }
        // Somebody is silent: there may be a new projection.
        if (self.wanted.is_some() || !ids.is_empty()) && now.since(self.asked_at) >= resend_after {
            self.ask_auxiliaries(self.wanted.unwrap_or(self.projection.epoch.next()), cx);
        }
        ids.into_iter().for_each(|id| self.say(id, cx));
    }
}

fn answer(entry: Entry) -> CorfuResponse {
    match entry {
        Entry::Data(data) => CorfuResponse::Entry(data.body),
        Entry::Junk => CorfuResponse::Junk,
    }
}

impl Role for Client {
    type Family = Corfu;
    type In = ClientIn;
    type Timer = ClientTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.next_id = cx.rng().bits() >> 1;
        self.ask_auxiliaries(self.projection.epoch.next(), cx);
        cx.set_timer(ClientTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
        // What another epoch's server says is not what the chain of this one says.
        let here = self.projection.epoch;
        match message {
            ClientIn::Token(message) if message.epoch == here => self.on_token(&message, cx),
            ClientIn::TailIs(message) if message.epoch == here => self.on_tail_is(&message, cx),
            ClientIn::Written(message) if message.epoch == here => self.on_written(from, &message, cx),
            ClientIn::Occupied(message) if message.epoch == here => self.on_occupied(from, message, cx),
            ClientIn::Found(message) if message.epoch == here => self.on_found(from, message, cx),
            ClientIn::Gone(message) if message.epoch == here => self.on_gone(from, &message, cx),
            ClientIn::Trimmed(message) if message.epoch == here => self.on_trimmed(from, message.id, cx),
            ClientIn::Measured(message) if message.epoch == here => self.on_measured(from, &message, cx),
            ClientIn::Token(_)
            | ClientIn::TailIs(_)
            | ClientIn::Written(_)
            | ClientIn::Occupied(_)
            | ClientIn::Found(_)
            | ClientIn::Gone(_)
            | ClientIn::Trimmed(_)
            | ClientIn::Measured(_) => {}
            ClientIn::Sealed(message) => self.want(message.epoch, cx),
            ClientIn::Installed(message) => self.on_installed(message.projection, cx),
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(ClientTimer::Tick, true)
    }

    fn on_timer(&mut self, timer: ClientTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ClientTimer::Tick => {
                self.tick(cx);
                cx.set_timer(ClientTimer::Tick, self.parameters.tick);
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: CorfuRequest, cx: &mut Cx<'_, Self>) {
        let most = self.parameters.entry_bytes_max;
        let (fits, calls) = match &request {
            CorfuRequest::Append(body) => (body.len() <= most, 1),
            CorfuRequest::AppendAll(bodies) => {
                (!bodies.is_empty() && bodies.iter().all(|body| body.len() <= most), bodies.len())
            }
            CorfuRequest::Read(_) | CorfuRequest::Trim(_) | CorfuRequest::Stat => (true, 1),
        };
        if !fits || self.outstanding() + calls > self.parameters.calls_max {
            return cx.respond(id, CorfuResponse::Refused);
        }
        let name = self.name();
        let (call, stage) = match request {
            CorfuRequest::Append(body) => {
                let data = Data { writer: cx.node(), tag: name, body };
                (Call::Append { data, part: None }, Stage::Token)
            }
            CorfuRequest::AppendAll(bodies) => (Call::AppendAll { bodies }, Stage::Token),
            CorfuRequest::Read(position) => (Call::Read { position, hole_since: None }, Stage::ReadTail),
            CorfuRequest::Trim(before) => (Call::Trim { before }, Stage::Trim { done: Vec::new() }),
            CorfuRequest::Stat => (Call::Stat, Stage::AskTail),
        };
        self.operations.insert(name, Operation { request: id, call, stage, sent_at: cx.now() });
        self.say(name, cx);
    }
}
