//! The log over CORFU', a baseline to compare with: one log, whose gateways are the clients that do the work (see [`corfu`]).
//!
//! **Promised.** A position holds one entry for good, until it is trimmed; what was answered is on every server of its chain. **Not
//! promised**, and so refused or reported: the log's positions have holes where an append failed, which readers skip; entries of one
//! append follow one another, or else its caller is answered that it is not known what became of it; appends of one connection keep no
//! order; there is one log, made with the cluster and never sealed.

use crate::gateway::{Asker, reply};
use crate::native::{Call, Native};
use crate::wire::{Answer, Append, Entries, List, LogStat, Read, Request, Why};
use crate::{READ_BYTES_MAX, Rows};
use ::corfu::{Client, CorfuResponse as Done, Extent, LogPosition};
use kernel::client::{ConnectionIn, Event, Output, Response};
use kernel::{Bytes, Cx, Decode, Family, InnerRole, Instant, NodeId, Position, RequestId, Role};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// The family of the gateway.
#[derive(Debug)]
pub struct CorfuLog;

impl Family for CorfuLog {
    type Message = CorfuLogMessage;
    type Request = Bytes;
    type Response = Response;
}

kernel::sum! {
    /// What the gateway hears and says.
    pub enum CorfuLogMessage {
        /// Of the engine.
        1 => Corfu(corfu::CorfuMessage),
        /// Of a user's connection.
        2 => User(Event),
        /// To a user's connection.
        3 => Connection(ConnectionIn),
    }
}

impl From<corfu::CorfuMessage> for CorfuLogMessage {
    fn from(message: corfu::CorfuMessage) -> Self {
        Self::Corfu(message)
    }
}

impl From<Output> for CorfuLogMessage {
    fn from(message: Output) -> Self {
        Self::Connection(message.into())
    }
}

kernel::timers! {
    /// The gateway's timers.
    pub enum CorfuTimer {
        /// The engine's client has something to look at.
        Client,
        /// Readers at the tail look again.
        Look,
    }
}

/// The name of the one log.
pub const NAME: &str = "log";
/// How often readers at the tail look whether there is more.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Entries of one read.
const PAGE: u64 = 64;
/// Calls that wait for an answer; more are answered busy.
const CALLS_MAX: usize = 10_000;
/// Questions for the tail in flight; the reads that come meanwhile share the next one.
const STATS_MAX: usize = 4;
/// The longest that a read waits for an entry.
const WAIT_MS_MAX: u32 = 30_000;

/// What the engine's client was asked, and for whom.
#[derive(Clone, Debug)]
enum Asked {
    /// By a user, who gets the answer.
    Direct(Asker),
    /// How far the log goes, by these reads.
    Stat(Vec<u64>),
    /// One entry of a read.
    Entry { read: u64, index: usize },
}

/// A read on its way.
#[derive(Clone, Debug)]
struct Reading {
    asker: Asker,
    request: Request,
    /// When it is answered even if there is nothing.
    until: Instant,
    /// It waits for more to be appended.
    idle: bool,
    /// The tail, as it was while the read was in flight.
    tail: u64,
    entries: Vec<Option<Done>>,
    missing: usize,
}

/// The gateway of a host. A call is an encoded [`Request`]; its answer an encoded [`Answer`].
#[derive(Debug)]
pub struct Gateway {
    client: InnerRole<Client>,
    retain_bytes: u64,
    asked: BTreeMap<u64, Asked>,
    next_id: u64,
    reads: BTreeMap<u64, Reading>,
    /// Reads that wait for the next question for the tail.
    wanting: Vec<u64>,
    stats: usize,
}

impl Gateway {
    /// A gateway that does its work by `client`; servers hold about `retain_bytes`.
    pub fn new(client: Client, retain_bytes: u64) -> Self {
        Self {
            client: InnerRole::new(client),
            retain_bytes,
            asked: BTreeMap::new(),
            next_id: 0,
            reads: BTreeMap::new(),
            wanting: Vec::new(),
            stats: 0,
        }
    }

    /// Calls without an answer.
    pub fn outstanding(&self) -> usize {
        self.asked.len() + self.reads.len()
    }

    /// Calls the engine's client, and acts on what it answers.
    fn with_client(&mut self, cx: &mut Cx<'_, Self>, call: impl FnOnce(&mut Client, &mut Cx<'_, Client>)) {
        for (id, response) in self.client.call(CorfuTimer::Client, cx, call) {
            self.on_done(id.0, response, cx);
        }
    }

    fn ask(&mut self, asked: Asked, request: corfu::CorfuRequest, cx: &mut Cx<'_, Self>) {
        self.next_id += 1;
        let id = self.next_id;
        self.asked.insert(id, asked);
        self.with_client(cx, |client, cx| client.on_request(RequestId(id), request, cx));
    }

    fn take(&mut self, asker: Asker, request: Request, cx: &mut Cx<'_, Self>) {
        if let Some(why) = request.fault() {
            return reply(asker, Answer::refused(why), cx);
        }
        if self.outstanding() >= CALLS_MAX {
            return reply(asker, Answer::refused(Why::Busy), cx);
        }
        if cx.is_disk_full() && !request.written().is_empty() {
            return reply(asker, Answer::refused(Why::DiskFull), cx);
        }
        let unsupported = |name: &str| Answer::about(Why::Unsupported, name, 0);
        let there = |name: &str| (name != NAME).then(|| Answer::about(Why::NoSuchLog, name, 0));
        let refused = match &request {
            Request::Create(create) if create.name == NAME => Some(Answer::about(Why::Exists, NAME, 0)),
            Request::Append(Append { parts, .. }) => match parts.as_slice() {
                [part] if part.expect.is_none() => there(&part.name),
                _ => Some(unsupported(NAME)),
            },
            Request::Trim(trim) => there(&trim.name),
            Request::Read(read) => there(&read.name),
            Request::Stat(named) => there(&named.name),
            Request::List(_) => None,
            Request::Create(create) => Some(unsupported(&create.name)),
            Request::Seal(named) | Request::Delete(named) => Some(unsupported(&named.name)),
            Request::Produce(produce) => Some(unsupported(&produce.name)),
            Request::BeginGeneration(named)
            | Request::GroupOf(named)
            | Request::Identify(named)
            | Request::Describe(named)
            | Request::Expire(named) => Some(unsupported(&named.name)),
            Request::Recall(read) => Some(unsupported(&read.name)),
            Request::Commit(commit) => Some(unsupported(&commit.group)),
        };
        if let Some(refused) = refused {
            return reply(asker, refused, cx);
        }
        match request {
            Request::Append(Append { parts, .. }) => {
                let rows = parts.into_iter().next().map(|part| part.entries).unwrap_or_default();
                let bodies = Rows::iter(&rows).map(|entry| rows.slice_ref(entry)).collect();
                self.ask(Asked::Direct(asker), corfu::CorfuRequest::AppendAll(bodies), cx);
            }
            Request::Trim(trim) => {
                self.ask(Asked::Direct(asker), corfu::CorfuRequest::Trim(LogPosition(trim.before)), cx);
            }
            request => self.read(asker, request, cx),
        }
    }

    fn read(&mut self, asker: Asker, request: Request, cx: &mut Cx<'_, Self>) {
        let wait_ms = if let Request::Read(read) = &request { read.wait_ms.min(WAIT_MS_MAX) } else { 0 };
        let until = cx.now() + Duration::from_millis(wait_ms.into());
        self.next_id += 1;
        let (idle, tail, entries, missing) = (false, 0, Vec::new(), 0);
        self.reads.insert(self.next_id, Reading { asker, request, until, idle, tail, entries, missing });
        self.wanting.push(self.next_id);
    }

    fn end(&mut self, read: u64, answer: Answer, cx: &mut Cx<'_, Self>) {
        if let Some(reading) = self.reads.remove(&read) {
            reply(reading.asker, answer, cx);
        }
    }

    fn on_done(&mut self, id: u64, response: Done, cx: &mut Cx<'_, Self>) {
        match self.asked.remove(&id) {
            Some(Asked::Direct(asker)) => reply(asker, answer_of(&response), cx),
            Some(Asked::Stat(reads)) => {
                self.stats -= 1;
                for read in reads {
                    match response {
                        Done::Stat(extent) => self.on_extent(read, extent, cx),
                        _ => self.end(read, Answer::refused(Why::Busy), cx),
                    }
                }
            }
            Some(Asked::Entry { read, index }) => {
                let Some(reading) = self.reads.get_mut(&read) else { return };
                if let Done::Gone(first) = response {
                    return self.end(read, Answer::about(Why::Trimmed, NAME, first.0), cx);
                }
                reading.entries[index] = Some(response);
                reading.missing -= 1;
                if reading.missing == 0 {
                    let answer = reading.page();
                    self.end(read, answer, cx);
                }
            }
            None => {}
        }
    }

    fn on_extent(&mut self, read: u64, extent: Extent, cx: &mut Cx<'_, Self>) {
        let Some(reading) = self.reads.get_mut(&read) else { return };
        let Extent { first, next, .. } = extent;
        let stat = || LogStat {
            name: NAME.to_owned(),
            first: first.0,
            next: next.0,
            bytes: extent.bytes,
            retain_bytes: self.retain_bytes,
            retain_ms: 0,
            sealed: false,
        };
        let answer = match &reading.request {
            Request::Read(Read { from, .. }) if *from < first.0 => Answer::about(Why::Trimmed, NAME, first.0),
            Request::Read(Read { from, .. }) if *from > next.0 => {
                Answer::about(Why::BeyondTail, NAME, next.0)
            }
            Request::Read(Read { from, entries_max, .. }) => {
                reading.tail = next.0;
                let (from, count) = (*from, PAGE.min((*entries_max).max(1).into()).min(next.0 - *from));
                if count > 0 {
                    (reading.entries, reading.missing) = (vec![None; count as usize], count as usize);
                    for index in 0..count {
                        let asked = Asked::Entry { read, index: index as usize };
                        self.ask(asked, corfu::CorfuRequest::Read(LogPosition(from + index)), cx);
                    }
                    return;
                }
                if cx.now() < reading.until {
                    reading.idle = true;
                    return;
                }
                reading.page()
            }
            Request::List(List { after, .. }) if after.as_str() >= NAME => Answer::Logs(Vec::new()),
            _ => Answer::Logs(vec![stat()]),
        };
        self.end(read, answer, cx);
    }
}

impl Reading {
    /// Entries that follow one another, behind the holes that they begin with.
    fn page(&self) -> Answer {
        let Request::Read(Read { from, bytes_max, .. }) = &self.request else {
            return Answer::refused(Why::Malformed);
        };
        let bytes_max = (*bytes_max).min(READ_BYTES_MAX) as usize;
        let is_hole = |entry: &&Option<Done>| matches!(entry, Some(Done::Junk));
        let holes = self.entries.iter().take_while(is_hole).count();
        let (mut rows, mut count) = (Rows::default(), 0);
        for entry in &self.entries[holes..] {
            let Some(Done::Entry(body)) = entry else { break };
            if count > 0 && rows.len() + body.len() > bytes_max {
                break;
            }
            rows.push(body);
            count += 1;
        }
        let first = from + holes as u64;
        Answer::Entries(Entries {
            first,
            next: first + count,
            tail: self.tail,
            sealed: false,
            rows: rows.into_bytes(),
        })
    }
}

fn answer_of(response: &Done) -> Answer {
    match response {
        Done::AllAppended(positions) => match positions.first() {
            Some(first) if positions.iter().enumerate().all(|(nth, at)| at.0 == first.0 + nth as u64) => {
                Answer::Appended(vec![first.0])
            }
            // They are there, but not behind one another.
            Some(_) | None => Answer::refused(Why::Unknown),
        },
        Done::Trimmed => Answer::Done,
        Done::Refused
        | Done::Appended(_)
        | Done::Entry(_)
        | Done::Junk
        | Done::Unwritten
        | Done::Gone(_)
        | Done::Stat(_) => Answer::refused(Why::Busy),
    }
}

impl Role for Gateway {
    type Family = CorfuLog;
    type In = CorfuLogMessage;
    type Timer = CorfuTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.with_client(cx, |client, cx| client.on_start(cx));
        cx.set_timer(CorfuTimer::Look, LOOK_EVERY);
    }

    fn on_message(&mut self, from: NodeId, message: CorfuLogMessage, cx: &mut Cx<'_, Self>) {
        match message {
            CorfuLogMessage::Corfu(corfu::CorfuMessage::Client(message)) => {
                self.with_client(cx, |client, cx| client.on_message(from, message, cx));
            }
            CorfuLogMessage::User(Event::Input(message)) => match Native::decoded(&message.bytes) {
                Ok(Native::Call(Call { id, request })) => {
                    self.take(Asker::Connection { node: from, id }, request, cx);
                }
                Ok(Native::Reply(_)) | Err(_) => cx.reject("message that is no call"),
            },
            CorfuLogMessage::Corfu(_) | CorfuLogMessage::User(_) | CorfuLogMessage::Connection(_) => {
                cx.reject("message for another role")
            }
        }
    }

    fn on_timer(&mut self, timer: CorfuTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            CorfuTimer::Client => {
                let tick = corfu::client::ClientTimer::Tick;
                self.with_client(cx, |client, cx| client.on_timer(tick, cx));
            }
            CorfuTimer::Look => {
                cx.set_timer(CorfuTimer::Look, LOOK_EVERY);
                for (&read, reading) in self.reads.iter_mut().filter(|(_, reading)| reading.idle) {
                    reading.idle = false;
                    self.wanting.push(read);
                }
            }
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match Request::decoded(&request) {
            Ok(request) => self.take(Asker::Call(id), request, cx),
            Err(_) => reply(Asker::Call(id), Answer::refused(Why::Malformed), cx),
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.wanting.is_empty() && self.stats < STATS_MAX {
            self.stats += 1;
            let reads = std::mem::take(&mut self.wanting);
            self.ask(Asked::Stat(reads), corfu::CorfuRequest::Stat, cx);
        }
    }
}

kernel::nodes! {
    /// The gateway as a node.
    #[derive(Debug)]
    pub enum GatewayNode of CorfuLog {
        /// The gateway.
        role Gateway(Gateway) "gateway",
    }
}
