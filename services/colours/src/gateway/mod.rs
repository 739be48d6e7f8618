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

mod backups;
mod crossing;

use crate::family::{Colours, ColoursMessage};
use crate::following::Following;
use crate::names::{Times, colour_of, colours_of, content_after, played};
use crate::outcomes::{Appending, Failing, positions};
use crate::regions::RegionNames;
use crossing::{Awaited, Naming, Seeking};
use fuzzylog::client::FuzzyClientTimer;
use fuzzylog::director::{FewerPartitions, MorePartitions, MoveColours, PlacementChange};
use fuzzylog::{
    AppendCall, AppendTime, Colour, FuzzyClient, FuzzyMessage, FuzzyRequest, FuzzyResponse, NodePosition,
    PartitionId, PlayCall, PlayedPage, SnapshotCall, SyncCall, TrimCall,
};
use kernel::client::{Close, Event, Output, Response};
use kernel::{Bytes, Cx, Decode as _, Encode as _, InnerRole, Instant, NodeId, Position, RequestId, Role};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;
use wire::fuzzylog::{
    AppendNodes, AppendPlayed, AppendedNodes, AwaitSnapshot, CHANGE_WAIT_MS, FuzzyCall, FuzzyFailed,
    FuzzyFailure, FuzzyReply, MapChanged, NewNode, PlayColour, PlayedAcross, PlayedNodes, SeenTime,
    SnapshotColours, SnapshotTaken, SyncColour, TrimColour, TrimSeen, TrimmedColour, WAIT_MS_MAX,
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
    /// Where colours are is changed.
    Change,
    /// What a user has seen is named for other regions.
    Name(Naming),
    /// What a user has seen elsewhere is waited for.
    Await(Seeking),
    /// A part of a backup, or of a restore.
    Backup {
        /// A restore comes into view.
        opens: bool,
    },
}

/// A call without an answer.
#[derive(Clone, Debug)]
struct Pending {
    caller: Caller,
    seen: AppendTime,
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
    /// Its region among others, if there are others.
    regions: Option<RegionNames>,
    times: Times,
    awaited: Awaited,
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
            regions: None,
            times: Times::default(),
            awaited: Awaited::default(),
            looks: false,
            watches: false,
        }
    }

    /// The same in one region among others.
    #[must_use]
    pub fn among(self, regions: RegionNames) -> Self {
        Self { times: regions.times(), regions: Some(regions), ..self }
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

    /// The work of a call without an answer.
    fn work(&mut self, call: u64) -> Option<&mut Work> {
        self.calls.get_mut(&call).map(|pending| &mut pending.work)
    }

    fn begin(
        &mut self,
        caller: Caller,
        seen: AppendTime,
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
            FuzzyCall::AppendNodes(_) | FuzzyCall::AppendPlayed(_) if cx.is_disk_full() => {
                caller.fail(FuzzyFailure::DiskFull, cx);
            }
            FuzzyCall::AppendNodes(call) => self.on_append(caller, &call, &[], cx),
            FuzzyCall::AppendPlayed(AppendPlayed { id, seen, by, nodes, played }) => {
                self.on_append(caller, &AppendNodes { id, seen, by, nodes }, &played, cx);
            }
            FuzzyCall::SyncColour(call) => self.on_sync(caller, call, cx),
            FuzzyCall::PlayColour(PlayColour { colour: name, from, to, .. }) => {
                let (colour, from) = (colour_of(&name), NodePosition(from));
                let work = Work::Read { name, colour, from, waits_until: None };
                let call = self.begin(caller, AppendTime::ZERO, work, Duration::ZERO, cx);
                let play = PlayCall { colour, from, to: NodePosition(to) };
                self.ask(call, 0, FuzzyRequest::Play(play), cx);
            }
            FuzzyCall::SnapshotColours(call) => self.on_snapshot(caller, &call, cx),
            FuzzyCall::TrimColour(TrimColour { id, colour, before }) => {
                let seen = SeenTime::default();
                self.on_trim(caller, &TrimSeen { id, seen, colour, before }, cx);
            }
            FuzzyCall::TrimSeen(call) => self.on_trim(caller, &call, cx),
            FuzzyCall::NameSnapshot(call) => self.on_name_snapshot(caller, call, cx),
            FuzzyCall::AwaitSnapshot(AwaitSnapshot { snapshot, wait_ms, .. }) => {
                self.on_await_snapshot(caller, &snapshot, wait_ms, cx);
            }
            FuzzyCall::CutColours(call) => self.on_cut(caller, &call, cx),
            FuzzyCall::ScanNodes(call) => self.on_scan(caller, &call, cx),
            FuzzyCall::RestoreNodes(call) => self.on_restore(caller, &call, cx),
            FuzzyCall::OpenRestored(call) => self.on_open(caller, &call, cx),
            FuzzyCall::MoveColour(call) => {
                let (colours, to) = (vec![colour_of(&call.colour)], PartitionId(call.partition));
                self.on_change(caller, MoveColours { colours, to }.into(), cx);
            }
            FuzzyCall::AddPartition(call) => {
                let added = call.partition.map(PartitionId);
                self.on_change(caller, MorePartitions { added }.into(), cx);
            }
            FuzzyCall::RemovePartition(call) => {
                let removed = PartitionId(call.partition);
                self.on_change(caller, FewerPartitions { removed }.into(), cx);
            }
        }
    }

    /// An operator changes where colours are.
    fn on_change(&mut self, caller: Caller, change: PlacementChange, cx: &mut Cx<'_, Self>) {
        let wait = Duration::from_millis(CHANGE_WAIT_MS.into());
        let call = self.begin(caller, AppendTime::ZERO, Work::Change, wait, cx);
        self.ask(call, 0, FuzzyRequest::Change(change), cx);
    }

    /// What a caller has seen, as the engine has it; one that nobody here was answered is refused.
    fn time_seen(&self, given: SeenTime, caller: Caller, cx: &mut Cx<'_, Self>) -> Option<AppendTime> {
        self.times.time_of(given).map_err(|strange| caller.fail(FuzzyFailure::from(strange), cx)).ok()
    }

    fn on_trim(&mut self, caller: Caller, call: &TrimSeen, cx: &mut Cx<'_, Self>) {
        let TrimSeen { seen, ref colour, before, .. } = *call;
        // Among several regions it must be said which one's position it is.
        if self.regions.is_some() && seen == SeenTime::default() {
            return caller.fail(FuzzyFailure::OtherRegion, cx);
        }
        let Some(seen) = self.time_seen(seen, caller, cx) else { return };
        let call = self.begin(caller, seen, Work::Trim, Duration::ZERO, cx);
        let (colour, before) = (colour_of(colour), NodePosition(before));
        self.ask(call, 0, FuzzyRequest::Trim(TrimCall { colour, before }), cx);
    }

    /// `played` has nothing, or what the user has played of each node's colours.
    fn on_append(&mut self, caller: Caller, call: &AppendNodes, played: &[Vec<u64>], cx: &mut Cx<'_, Self>) {
        let AppendNodes { seen, by, nodes, .. } = call;
        let Some(seen) = self.time_seen(*seen, caller, cx) else { return };
        // Without other regions nobody asks for it.
        let played = if self.regions.is_some() { played } else { &[] };
        let colours: Result<Vec<Vec<Colour>>, _> =
            nodes.iter().map(|node| colours_of(&node.colours)).collect();
        let Ok(colours) = colours else { return caller.fail(FuzzyFailure::OneDigest, cx) };
        let content = |(at, (node, colours)): (usize, (&NewNode, &Vec<Colour>))| {
            content_after(node, colours, played.get(at).map_or(&[], Vec::as_slice))
        };
        let contents: Vec<_> = nodes.iter().zip(&colours).enumerate().map(content).collect();
        let work = Work::Append(Appending::of(colours, self.times));
        let number = self.begin(caller, seen, work, Duration::ZERO, cx);
        for (index, content) in contents.into_iter().enumerate() {
            let (client, below) = (by.client, by.below);
            let append = AppendCall { client, number: by.number + index as u64, below, seen, content };
            self.ask(number, index, FuzzyRequest::Append(append), cx);
        }
    }

    fn on_sync(&mut self, caller: Caller, call: SyncColour, cx: &mut Cx<'_, Self>) {
        let SyncColour { seen, colour: name, from, wait_ms, .. } = call;
        let Some(seen) = self.time_seen(seen, caller, cx) else { return };
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
        let sync = SyncCall { colour: *colour, from: *from, seen: *seen };
        self.ask(call, 0, FuzzyRequest::Sync(sync), cx);
    }

    fn on_snapshot(&mut self, caller: Caller, call: &SnapshotColours, cx: &mut Cx<'_, Self>) {
        let SnapshotColours { seen, by, colours, .. } = call;
        let Some(seen) = self.time_seen(*seen, caller, cx) else { return };
        let Ok(colours) = colours_of(colours) else { return caller.fail(FuzzyFailure::OneDigest, cx) };
        let mut sorted = colours.clone();
        sorted.sort_unstable();
        let number = self.begin(caller, seen, Work::Snapshot(colours), Duration::ZERO, cx);
        let client = by.client;
        let snapshot = SnapshotCall { client, number: by.number, below: by.below, seen, colours: sorted };
        self.ask(number, 0, FuzzyRequest::Snapshot(snapshot), cx);
    }

    /// The engine's client has answered.
    fn on_response(&mut self, request: u64, response: FuzzyResponse, cx: &mut Cx<'_, Self>) {
        if let FuzzyResponse::Appended { at, .. }
        | FuzzyResponse::Snapshotted { at, .. }
        | FuzzyResponse::LogsFound { at, .. }
        | FuzzyResponse::Played(PlayedPage { seen: at, .. }) = &response
        {
            self.times.answered(*at);
        }
        let Some((call, index)) = self.asked.remove(&request) else { return };
        // It may be overdue, or its connection closed.
        let Some(pending) = self.calls.get_mut(&call) else { return };
        let (caller, seen, times) = (pending.caller, pending.seen, self.times);
        match (&mut pending.work, response) {
            (Work::Name(_), response) => self.on_counted(call, index, response, cx),
            (Work::Await(_), response) => self.on_found(call, index, response, cx),
            (Work::Backup { opens }, response) => {
                let opens = *opens;
                self.on_part_done(call, opens, response, cx);
            }
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
                        let seen = times.seen_of(seen.max(latest));
                        caller.answer(AppendedNodes { id: caller.id(), seen, nodes }, cx);
                    }
                    Err(failing) => caller.fail(failing, cx),
                }
            }
            (Work::Read { .. }, FuzzyResponse::Played(page)) => self.on_page(call, &page, cx),
            (Work::Snapshot(colours), FuzzyResponse::Snapshotted { at, tails }) => {
                let tails = positions(&tails, colours);
                self.calls.remove(&call);
                match tails {
                    Some(tails) => {
                        let (seen, at) = (times.seen_of(seen.max(at)), times.seen_of(at));
                        caller.answer(SnapshotTaken { id: caller.id(), seen, at, tails }, cx);
                    }
                    None => caller.fail(FuzzyFailure::Unknown, cx),
                }
            }
            (Work::Trim, FuzzyResponse::Trimmed { first }) => {
                self.calls.remove(&call);
                caller.answer(TrimmedColour { id: caller.id(), first: first.0 }, cx);
            }
            (Work::Change, FuzzyResponse::Changed { version, partition }) => {
                self.calls.remove(&call);
                let (id, version, partition) = (caller.id(), version.0, partition.0);
                caller.answer(MapChanged { id, version, partition }, cx);
            }
            (Work::Read { .. } | Work::Snapshot(_) | Work::Trim | Work::Change, other) => {
                self.fail(call, failing(&other), cx)
            }
        }
    }

    /// A response that is no result.
    fn fail_by(&mut self, call: u64, response: &FuzzyResponse, cx: &mut Cx<'_, Self>) {
        self.fail(call, failing(response), cx);
    }

    fn fail(&mut self, call: u64, failing: impl Into<Failing>, cx: &mut Cx<'_, Self>) {
        if let Some(pending) = self.leave(call) {
            pending.caller.fail(failing, cx);
        }
    }

    /// Forgets a call.
    fn leave(&mut self, call: u64) -> Option<Pending> {
        let pending = self.calls.remove(&call)?;
        self.awaited.forget(call);
        if let Work::Read { colour, .. } = &pending.work {
            self.following.leave(*colour, call);
        }
        Some(pending)
    }

    fn on_page(&mut self, call: u64, page: &PlayedPage, cx: &mut Cx<'_, Self>) {
        let Some(pending) = self.calls.get_mut(&call) else { return };
        let Work::Read { name, colour, waits_until, .. } = &pending.work else { return };
        let colour = *colour;
        pending.seen = pending.seen.max(page.seen);
        if let Some(until) = waits_until.filter(|until| page.nodes.is_empty() && cx.now() < *until) {
            self.following.wait(colour, call, until);
            return self.look_later(cx);
        }
        let times = self.times;
        let nodes = page.nodes.iter().map(|node| played(node, name, times)).collect();
        let (caller, seen) = (pending.caller, times.seen_of(pending.seen));
        let (id, from, tail) = (caller.id(), page.from.0, page.tail.0);
        self.leave(call);
        match &self.regions {
            None => caller.answer(PlayedNodes { id, seen, from, tail, nodes }, cx),
            Some(regions) => {
                let origins = page.nodes.iter().map(|node| regions.origin_of(node)).collect();
                let region = regions.own_name();
                caller.answer(PlayedAcross { id, seen, from, tail, nodes, region, origins }, cx);
            }
        }
        if !page.nodes.is_empty() {
            for other in self.following.take(colour) {
                self.sync(other, cx);
            }
        }
    }

    /// Those that wait look again after a while.
    fn look_later(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.looks {
            self.looks = true;
            cx.set_timer(ColourTimer::Look, LOOK_EVERY);
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
        self.look_for_snapshots(cx);
        self.looks = !self.following.is_empty() || !self.awaited.is_empty();
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
        | FuzzyResponse::LogsCounted { .. }
        | FuzzyResponse::LogsFound { .. }
        | FuzzyResponse::Scanned(_)
        | FuzzyResponse::Restored { .. }
        | FuzzyResponse::Changed { .. }
        | FuzzyResponse::PlacesForgotten { .. }
        | FuzzyResponse::ChangeUnknown
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
