//! The gateway of a host: the engine's client, and the users that it works for.
//!
//! ```text
//! user                      gateway                      chains
//!   | AppendNodes (n nodes)    | n appends of the engine    |
//!   |------------------------->|--------------------------->|
//!   |<--------- AppendedNodes, when all have come to something
//!   | SyncColour (wait_ms)     | a sync; while there is nothing, one for all followers of a colour each LOOK_EVERY
//! ```
//! A call without an answer for [`ANSWER_WITHIN`] is answered `Unknown`, and may be sent again under its number.

use crate::family::{Colours, ColoursMessage};
use crate::following::Following;
use crate::names::{colour_of, colours_of, content_of, played, seen_of, time_of};
use crate::outcomes::{Appending, Failing, positions};
use fuzzylog::client::FuzzyClientTimer;
use fuzzylog::{
    AppendCall, Colour, FuzzyClient, FuzzyMessage, FuzzyRequest, FuzzyResponse, NodePosition, PlayCall,
    PlayedPage, SnapshotCall, SyncCall, TrimCall,
};
use kernel::client::{Close, Event, Output, Response};
use kernel::{Bytes, Cx, Decode as _, Encode as _, InnerRole, Instant, NodeId, Position, RequestId, Role};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use wire::fuzzylog::{
    AppendNodes, AppendedNodes, FuzzyCall, FuzzyFailed, FuzzyFailure, FuzzyReply, PlayColour, PlayedNodes,
    SeenTime, SnapshotColours, SnapshotTaken, SyncColour, TrimColour, TrimmedColour, WAIT_MS_MAX,
    native_reply, read_native_call,
};

kernel::timers! {
    /// The gateway's timers.
    pub enum ColourTimer {
        /// The engine's client has something to look at.
        Client,
        /// Syncs that wait look whether there is more.
        Look,
        /// Calls that have waited for long enough are answered.
        Overdue,
    }
}

/// How long an answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often calls are looked through for those that have waited for so long.
const OVERDUE_EVERY: Duration = Duration::from_millis(500);
/// How often syncs that wait look whether there is more.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Calls without an answer; more are answered busy.
const CALLS_MAX: usize = 65_536;

/// Who waits for an answer, and its number for the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// A local application.
    Local(RequestId, u64),
    /// A user's connection.
    Connection(NodeId, u64),
}

impl Caller {
    fn id(self) -> u64 {
        match self {
            Self::Local(_, id) | Self::Connection(_, id) => id,
        }
    }

    fn answer(self, reply: impl Into<FuzzyReply>, cx: &mut Cx<'_, ColourGateway>) {
        let reply = reply.into();
        match self {
            Self::Local(request, _) => cx.respond(request, Response(reply.encoded().into())),
            Self::Connection(node, _) => cx.send(node, Output { bytes: native_reply(&reply).into() }),
        }
    }

    fn fail(self, failing: impl Into<Failing>, cx: &mut Cx<'_, ColourGateway>) {
        let Failing { why, position } = failing.into();
        self.answer(FuzzyFailed { id: self.id(), why, position }, cx);
    }
}

/// What a call asks for.
#[derive(Clone, Debug)]
enum Work {
    Append(Appending),
    /// A sync, or a play; of a sync that waits: until when it does.
    Read {
        name: Bytes,
        colour: Colour,
        from: NodePosition,
        waits_until: Option<Instant>,
    },
    Snapshot(Vec<Colour>),
    Trim,
}

/// A call without an answer.
#[derive(Clone, Debug)]
struct Pending {
    caller: Caller,
    seen: SeenTime,
    work: Work,
    /// When it is answered whatever has come.
    until: Instant,
}

/// The gateway of a host. A local call is an encoded [`FuzzyCall`]; its answer an encoded [`FuzzyReply`].
#[derive(Debug)]
pub struct ColourGateway {
    client: InnerRole<FuzzyClient>,
    calls: BTreeMap<u64, Pending>,
    /// What the client was asked: of which call, and which of its nodes.
    asked: BTreeMap<u64, (u64, usize)>,
    next: u64,
    following: Following,
    looks: bool,
    watches: bool,
}

impl ColourGateway {
    /// A gateway that does its work by `client`.
    pub fn new(client: FuzzyClient) -> Self {
        Self {
            client: InnerRole::new(client),
            calls: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: 0,
            following: Following::default(),
            looks: false,
            watches: false,
        }
    }

    /// The engine's client.
    pub fn client(&self) -> &FuzzyClient {
        self.client.get()
    }

    /// Calls without an answer.
    pub fn outstanding(&self) -> usize {
        self.calls.len()
    }

    /// Calls the engine's client, and acts on what it answers.
    fn with_client(
        &mut self,
        cx: &mut Cx<'_, Self>,
        call: impl FnOnce(&mut FuzzyClient, &mut Cx<'_, FuzzyClient>),
    ) {
        for (request, response) in self.client.call(ColourTimer::Client, cx, call) {
            self.on_response(request.0, response, cx);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Asks the engine for a part of a call.
    fn ask(&mut self, call: u64, index: usize, request: FuzzyRequest, cx: &mut Cx<'_, Self>) {
        let number = self.number();
        self.asked.insert(number, (call, index));
        self.with_client(cx, |client, cx| client.on_request(RequestId(number), request, cx));
    }

    fn begin(
        &mut self,
        caller: Caller,
        seen: SeenTime,
        work: Work,
        wait: Duration,
        cx: &mut Cx<'_, Self>,
    ) -> u64 {
        let call = self.number();
        let until = cx.now() + ANSWER_WITHIN + wait;
        self.calls.insert(call, Pending { caller, seen, work, until });
        if !self.watches {
            self.watches = true;
            cx.set_timer(ColourTimer::Overdue, OVERDUE_EVERY);
        }
        call
    }

    fn on_call(&mut self, caller: Caller, call: FuzzyCall, cx: &mut Cx<'_, Self>) {
        if call.fault().is_some() {
            return caller.fail(FuzzyFailure::Malformed, cx);
        }
        if self.calls.len() >= CALLS_MAX {
            return caller.fail(FuzzyFailure::Busy, cx);
        }
        match call {
            FuzzyCall::AppendNodes(_) if cx.is_disk_full() => caller.fail(FuzzyFailure::DiskFull, cx),
            FuzzyCall::AppendNodes(call) => self.on_append(caller, &call, cx),
            FuzzyCall::SyncColour(call) => self.on_sync(caller, call, cx),
            FuzzyCall::PlayColour(PlayColour { colour: name, from, to, .. }) => {
                let (colour, from) = (colour_of(&name), NodePosition(from));
                let work = Work::Read { name, colour, from, waits_until: None };
                let call = self.begin(caller, SeenTime::default(), work, Duration::ZERO, cx);
                let play = PlayCall { colour, from, to: NodePosition(to) };
                self.ask(call, 0, FuzzyRequest::Play(play), cx);
            }
            FuzzyCall::SnapshotColours(call) => self.on_snapshot(caller, &call, cx),
            FuzzyCall::TrimColour(TrimColour { colour, before, .. }) => {
                let call = self.begin(caller, SeenTime::default(), Work::Trim, Duration::ZERO, cx);
                let (colour, before) = (colour_of(&colour), NodePosition(before));
                self.ask(call, 0, FuzzyRequest::Trim(TrimCall { colour, before }), cx);
            }
        }
    }

    fn on_append(&mut self, caller: Caller, call: &AppendNodes, cx: &mut Cx<'_, Self>) {
        let AppendNodes { seen, by, nodes, .. } = call;
        let colours: Result<Vec<Vec<Colour>>, _> =
            nodes.iter().map(|node| colours_of(&node.colours)).collect();
        let Ok(colours) = colours else { return caller.fail(FuzzyFailure::OneDigest, cx) };
        let contents: Vec<_> =
            nodes.iter().zip(&colours).map(|(node, colours)| content_of(node, colours)).collect();
        let number = self.begin(caller, *seen, Work::Append(Appending::of(colours)), Duration::ZERO, cx);
        for (index, content) in contents.into_iter().enumerate() {
            let (client, below, seen) = (by.client, by.below, time_of(*seen));
            let append = AppendCall { client, number: by.number + index as u64, below, seen, content };
            self.ask(number, index, FuzzyRequest::Append(append), cx);
        }
    }

    fn on_sync(&mut self, caller: Caller, call: SyncColour, cx: &mut Cx<'_, Self>) {
        let SyncColour { seen, colour: name, from, wait_ms, .. } = call;
        let wait = Duration::from_millis(wait_ms.min(WAIT_MS_MAX).into());
        let waits_until = (wait_ms > 0).then(|| cx.now() + wait);
        let work = Work::Read { colour: colour_of(&name), name, from: NodePosition(from), waits_until };
        let call = self.begin(caller, seen, work, wait, cx);
        self.sync(call, cx);
    }

    /// Asks the engine how far the colour of a sync goes.
    fn sync(&mut self, call: u64, cx: &mut Cx<'_, Self>) {
        let Some(Pending { seen, work: Work::Read { colour, from, .. }, .. }) = self.calls.get(&call) else {
            return;
        };
        let sync = SyncCall { colour: *colour, from: *from, seen: time_of(*seen) };
        self.ask(call, 0, FuzzyRequest::Sync(sync), cx);
    }

    fn on_snapshot(&mut self, caller: Caller, call: &SnapshotColours, cx: &mut Cx<'_, Self>) {
        let SnapshotColours { seen, by, colours, .. } = call;
        let Ok(colours) = colours_of(colours) else { return caller.fail(FuzzyFailure::OneDigest, cx) };
        let mut sorted = colours.clone();
        sorted.sort_unstable();
        let number = self.begin(caller, *seen, Work::Snapshot(colours), Duration::ZERO, cx);
        let (client, seen) = (by.client, time_of(*seen));
        let snapshot = SnapshotCall { client, number: by.number, below: by.below, seen, colours: sorted };
        self.ask(number, 0, FuzzyRequest::Snapshot(snapshot), cx);
    }

    /// The engine's client has answered.
    fn on_response(&mut self, request: u64, response: FuzzyResponse, cx: &mut Cx<'_, Self>) {
        let Some((call, index)) = self.asked.remove(&request) else { return };
        // It may be overdue, or its connection closed.
        let Some(pending) = self.calls.get_mut(&call) else { return };
        let (caller, seen) = (pending.caller, pending.seen);
        match (&mut pending.work, response) {
            (Work::Append(appending), response) => {
                match response {
                    FuzzyResponse::Appended { at, placed } => appending.node_done(index, at, &placed),
                    other => appending.node_failed(failing(&other)),
                }
                let latest = appending.latest;
                let Some(outcome) = appending.outcome() else { return };
                self.calls.remove(&call);
                match outcome {
                    Ok(nodes) => {
                        let seen = seen.max(seen_of(latest));
                        caller.answer(AppendedNodes { id: caller.id(), seen, nodes }, cx);
                    }
                    Err(failing) => caller.fail(failing, cx),
                }
            }
            (Work::Read { .. }, FuzzyResponse::Played(page)) => self.on_page(call, &page, cx),
            (Work::Snapshot(colours), FuzzyResponse::Snapshotted { at, tails }) => {
                let (tails, at) = (positions(&tails, colours), seen_of(at));
                self.calls.remove(&call);
                match tails {
                    Some(tails) => {
                        let seen = seen.max(at);
                        caller.answer(SnapshotTaken { id: caller.id(), seen, at, tails }, cx);
                    }
                    None => caller.fail(FuzzyFailure::Unknown, cx),
                }
            }
            (Work::Trim, FuzzyResponse::Trimmed { first }) => {
                self.calls.remove(&call);
                caller.answer(TrimmedColour { id: caller.id(), first: first.0 }, cx);
            }
            (Work::Read { .. } | Work::Snapshot(_) | Work::Trim, other) => {
                self.fail(call, failing(&other), cx)
            }
        }
    }

    fn fail(&mut self, call: u64, failing: impl Into<Failing>, cx: &mut Cx<'_, Self>) {
        if let Some(pending) = self.leave(call) {
            pending.caller.fail(failing, cx);
        }
    }

    /// Forgets a call.
    fn leave(&mut self, call: u64) -> Option<Pending> {
        let pending = self.calls.remove(&call)?;
        if let Work::Read { colour, .. } = &pending.work {
            self.following.leave(*colour, call);
        }
        Some(pending)
    }

    fn on_page(&mut self, call: u64, page: &PlayedPage, cx: &mut Cx<'_, Self>) {
        let Some(pending) = self.calls.get_mut(&call) else { return };
        let Work::Read { name, colour, waits_until, .. } = &pending.work else { return };
        let colour = *colour;
        pending.seen = pending.seen.max(seen_of(page.seen));
        if let Some(until) = waits_until.filter(|until| page.nodes.is_empty() && cx.now() < *until) {
            self.following.wait(colour, call, until);
            if !self.looks {
                self.looks = true;
                cx.set_timer(ColourTimer::Look, LOOK_EVERY);
            }
            return;
        }
        let nodes = page.nodes.iter().map(|node| played(node, name)).collect();
        let (caller, seen, from, tail) = (pending.caller, pending.seen, page.from.0, page.tail.0);
        self.leave(call);
        caller.answer(PlayedNodes { id: caller.id(), seen, from, tail, nodes }, cx);
        if !page.nodes.is_empty() {
            for other in self.following.take(colour) {
                self.sync(other, cx);
            }
        }
    }

    /// Calls that nobody has answered for long enough are.
    fn end_overdue(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let overdue: Vec<u64> =
            self.calls.iter().filter(|(_, it)| it.until <= now).map(|(&call, _)| call).collect();
        for call in overdue {
            cx.mark("gateway.answered_an_overdue_call");
            self.fail(call, FuzzyFailure::Unknown, cx);
        }
    }

    /// Syncs that wait look whether there is more; those that have waited in vain look for the last time.
    fn look(&mut self, cx: &mut Cx<'_, Self>) {
        for call in self.following.due(cx.now()) {
            let Some(Pending { work: Work::Read { colour, waits_until, .. }, .. }) =
                self.calls.get_mut(&call)
            else {
                continue;
            };
            *waits_until = None;
            let colour = *colour;
            self.following.leave(colour, call);
            self.sync(call, cx);
        }
        for call in self.following.turn() {
            self.sync(call, cx);
        }
        self.looks = !self.following.is_empty();
        if self.looks {
            cx.set_timer(ColourTimer::Look, LOOK_EVERY);
        }
    }
}

/// What a call that has no result is answered.
fn failing(response: &FuzzyResponse) -> Failing {
    match response {
        FuzzyResponse::Refused(refusal) => (*refusal).into(),
        FuzzyResponse::AlreadyTrimmed { first } => Failing { why: FuzzyFailure::Trimmed, position: first.0 },
        // An answer to something else.
        FuzzyResponse::Appended { .. }
        | FuzzyResponse::Snapshotted { .. }
        | FuzzyResponse::Played(_)
        | FuzzyResponse::Followed { .. }
        | FuzzyResponse::Trimmed { .. } => FuzzyFailure::Unknown.into(),
    }
}

impl Role for ColourGateway {
    type Family = Colours;
    type In = ColoursMessage;
    type Timer = ColourTimer;
    type Record = Infallible;

    fn restore(&mut self, _position: Position, record: Infallible) {
        match record {}
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.with_client(cx, |client, cx| client.on_start(cx));
    }

    fn on_message(&mut self, from: NodeId, message: ColoursMessage, cx: &mut Cx<'_, Self>) {
        match message {
            ColoursMessage::Fuzzy(FuzzyMessage::Client(message)) => {
                self.with_client(cx, |client, cx| client.on_message(from, message, cx));
            }
            ColoursMessage::User(Event::Input(input)) => match read_native_call(&input.bytes) {
                Ok(call) => self.on_call(Caller::Connection(from, call.id()), call, cx),
                Err(_) => {
                    cx.reject("message that is no call");
                    cx.send(from, Close { reason: "a call does not decode".to_owned() });
                }
            },
            ColoursMessage::User(Event::Disconnected(_)) => {
                let is_gone = |caller: Caller| matches!(caller, Caller::Connection(node, _) if node == from);
                let gone: Vec<u64> =
                    self.calls.iter().filter(|(_, it)| is_gone(it.caller)).map(|(&call, _)| call).collect();
                for call in gone {
                    self.leave(call);
                }
            }
            ColoursMessage::User(Event::Connected(_) | Event::Taken(_) | Event::Proven(_)) => {}
            ColoursMessage::Fuzzy(_) | ColoursMessage::Connection(_) => cx.reject("message for another role"),
        }
    }

    fn on_timer(&mut self, timer: ColourTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            ColourTimer::Client => {
                self.with_client(cx, |client, cx| client.on_timer(FuzzyClientTimer::Tick, cx));
            }
            ColourTimer::Look => self.look(cx),
            ColourTimer::Overdue => {
                self.end_overdue(cx);
                self.watches = !self.calls.is_empty();
                if self.watches {
                    cx.set_timer(ColourTimer::Overdue, OVERDUE_EVERY);
                }
            }
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.with_client(cx, |client, cx| client.on_burst_end(cx));
    }

    fn on_request(&mut self, request: RequestId, call: Bytes, cx: &mut Cx<'_, Self>) {
        match FuzzyCall::decoded(&call) {
            Ok(call) => self.on_call(Caller::Local(request, call.id()), call, cx),
            Err(_) => Caller::Local(request, 0).fail(FuzzyFailure::Malformed, cx),
        }
    }
}
