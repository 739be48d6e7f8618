//! Takes the calls of one host's users: changes to the proxies, reads to this host's shards behind a barrier.
//!
//! A read asks every group how far its log has come (leaderless, see [`mason`]), and then this host's shard. One that waits for an
//! entry registers at the shard and is asked again when something is appended. Reads take turns (see `turns.rs`): one goes to its shard
//! with as much room as answers had of late, and a shard that would answer more says how much.

use crate::budget::{self, Budget, Outcome};
use crate::native::{Call, Native, Reply};
use crate::space_of;
use crate::turns::{TURN, Turns};
use crate::wire::{Admitted, Answer, Entries, List, LogStat, Named, READ_BYTES_MAX, Request, Why};
use kernel::bounds::ANSWER_BYTES_MAX;
use kernel::client::{Output, Response};
use kernel::{
    AwaitedTimers, Bytes, Cx, Decode, Encode, Family, Instant, NodeId, Position, Recount, RequestId, Role,
    Statement,
};
use mason::client::{BarrierPassed, GatewayIn, ReadAnswers};
use mason::shard::Attach;
use mason::{Gsn, Layout, Mason, Questions, Space, To};
use parts::{Incarnation, Passed, Patience, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

kernel::timers! {
    /// The gateway's timers.
    pub enum GatewayTimer {
        /// Send again what has no answer, and end what has waited long enough.
        Tick,
        /// Reads that have waited for their turn are asked for.
        Turn,
    }
}

/// Whom the gateway of a host asks.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The proxies of its host, by group.
    pub proxies: Vec<NodeId>,
    /// The shards' servers of its host, by space.
    pub shards: Vec<NodeId>,
    /// What the logs of one space that have limits of their own may be created to hold together, in bytes.
    pub capacity: u64,
    /// With so many bytes in the logs of its host, or more, appends are refused but to logs that drop their oldest entries.
    pub disk_bytes: u64,
}

/// A call is an encoded [`Request`]; its answer an encoded [`Answer`].
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The shards' servers of its host, by space.
    shards: Vec<NodeId>,
    /// What the logs of one space may be created to hold together, in bytes.
    capacity: u64,
    /// Reads wait for barriers, by their tags.
    upstream: Upstream<Mason, Waiting, u64>,
    /// What the operations without an answer hold, in bytes.
    outstanding_bytes: usize,
    next_group: u16,
    reads: BTreeMap<u64, Reading>,
    next_read: u64,
    /// Reads that are to be asked for.
    turns: Turns,
    questions: Questions,
    /// Spaces to which nothing is to be appended, and what waits for the archive there.
    overfull: BTreeMap<Space, u64>,
    budget: Budget,
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A local application.
    Call(RequestId),
    /// A connection, and its number for the call.
    Connection { node: NodeId, id: u64 },
    /// The gateway itself.
    Nobody,
}

#[derive(Clone, Debug)]
struct Waiting {
    asker: Asker,
    bytes: usize,
}

/// A read on its way.
#[derive(Clone, Debug)]
struct Reading {
    asker: Asker,
    request: Request,
    state: State,
    /// When it is answered even if there is nothing.
    until: Instant,
    asked: Instant,
    /// How large its answer is, in bytes, where a shard has said so.
    needs: Option<usize>,
}

#[derive(Clone, Debug)]
enum State {
    /// Until its barrier has passed.
    Barred,
    /// For its turn.
    Queued,
    /// For these spaces; what the others said.
    Asked(BTreeSet<Space>, Vec<LogStat>),
    /// For something to be appended.
    Idle,
}

const TICK: Duration = kernel::REPEAT_WITHIN;
const RESEND_AFTER: Duration = Duration::from_millis(100);
/// A barrier or a read without an answer is asked for again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Reads at a time; more are answered busy.
const READS_MAX: usize = 10_000;
/// Operations without an answer in one group; more are answered busy.
const OUTSTANDING_MAX: usize = 20_000;
/// Bytes of operations without an answer; more are answered busy.
const OUTSTANDING_BYTES_MAX: usize = 64 << 20;
/// The longest that a read waits for an entry.
const WAIT_MS_MAX: u32 = 30_000;
/// Logs of one answer.
const LIST_MAX: u32 = 1_000;
/// What an answer is taken for that has no entries in it.
const SMALL_ANSWER_BYTES: usize = 1 << 10;

impl Gateway {
    /// The gateway of a host.
    pub fn new(routes: Routes) -> Self {
        let Routes { proxies, shards, capacity, disk_bytes } = routes;
        let layout = Layout::at_bootstrap(proxies.len() as u16, shards.len() as u16);
        let patience = Patience { resend_after: RESEND_AFTER, ask_again_after: ASK_AGAIN_AFTER };
        Self {
            budget: Budget::new(disk_bytes, shards.len() as u16),
            shards,
            capacity,
            upstream: Upstream::new(proxies, layout, patience),
            outstanding_bytes: 0,
            next_group: 0,
            reads: BTreeMap::new(),
            next_read: 0,
            turns: Turns::new(),
            questions: Questions::default(),
            overfull: BTreeMap::new(),
        }
    }

    /// Changes without an answer, in the group where there are most.
    pub fn outstanding(&self) -> usize {
        self.upstream.outstanding()
    }

    /// What of its host's disk budget is used, and the budget, in bytes.
    pub fn disk(&self) -> (u64, u64) {
        self.budget.disk()
    }

    /// Reads without an answer.
    pub fn reading(&self) -> usize {
        self.reads.len()
    }

    /// The reads that wait for an entry to be appended: the space and the name of the log, and the entry. For invariants.
    pub fn idle_reads(&self) -> impl Iterator<Item = (Space, &str, u64)> {
        let idle = self.reads.values().filter(|reading| matches!(reading.state, State::Idle));
        idle.filter_map(|reading| match &reading.request {
            Request::Read(read) => {
                Some((space_of(&read.name, self.shards.len() as u16), read.name.as_str(), read.from))
            }
            _ => None,
        })
    }
}

impl Role for Gateway {
    type Family = Mason;
    type In = GatewayIn;
    type Timer = GatewayTimer;
    type Record = Incarnation;

    fn restore(&mut self, _position: Position, record: Incarnation) {
        self.upstream.restore(record);
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.begin_incarnation(cx);
        cx.set_timer(GatewayTimer::Tick, TICK);
        cx.multicast(self.shards.iter().copied(), Attach {});
    }

    fn on_message(&mut self, from: NodeId, message: GatewayIn, cx: &mut Cx<'_, Self>) {
        match message {
            GatewayIn::Answers(message) => {
                for answer in message.answers {
                    if let Some(waiting) = self.upstream.answered(answer.tagged(message.group), cx.now()) {
                        if !kernel::planted!(answered_bytes_stay_counted) {
                            self.outstanding_bytes -= waiting.bytes;
                        }
                        let answer = Answer::decoded(&answer.body);
                        reply(waiting.asker, answer.unwrap_or(Answer::refused(Why::Malformed)), cx);
                    }
                }
            }
            GatewayIn::Skipped(_) => {
                cx.mark("log.lost_track_of_calls");
                for waiting in self.begin_incarnation(cx) {
                    reply(waiting.asker, Answer::refused(Why::Unknown), cx);
                }
            }
            GatewayIn::Input(message) => match Native::decoded(&message.bytes) {
                Ok(Native::Call(Call { id, request })) => {
                    self.take(Asker::Connection { node: from, id }, request, cx);
                }
                Ok(Native::Reply(_)) | Err(_) => cx.reject("message that is no call"),
            },
            GatewayIn::BarrierPassed(message) => self.on_barrier_passed(&message, cx),
            GatewayIn::ReadAnswers(message) => self.on_read_answers(message, cx),
            GatewayIn::GatewayNotice(message) => {
                let Ok(name) = std::str::from_utf8(&message.body) else { return };
                if self.wake(name, cx.now()) {
                    cx.mark("log.woke_a_reader");
                }
            }
            GatewayIn::Progress(_) => {}
            GatewayIn::Overfull(message) => {
                if message.bytes > 0 {
                    self.overfull.insert(message.space, message.bytes);
                } else {
                    self.overfull.remove(&message.space);
                }
            }
            GatewayIn::Remark(message) => self.budget.learn(message.space, &message.body),
            GatewayIn::Elsewhere(_)
            | GatewayIn::UsesShardMap(_)
            | GatewayIn::GroupNotice(_)
            | GatewayIn::Taken(_)
            | GatewayIn::Proven(_)
            | GatewayIn::Connected(_)
            | GatewayIn::Disconnected(_) => {
                cx.reject("message that the log has no use for");
            }
        }
    }

    fn on_timer(&mut self, timer: GatewayTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            GatewayTimer::Tick => {
                let is_used = self.upstream.outstanding() > 0 || !self.reads.is_empty();
                let now = cx.now();
                let used = TICK + kernel::until_moment(now);
                let after = if is_used { used } else { TICK.max(kernel::until_rare_moment(now)) };
                cx.set_timer(GatewayTimer::Tick, after);
                self.ask_again(cx);
            }
            // The end of the burst does the rest.
            GatewayTimer::Turn => {}
        }
    }

    fn awaited_timers(&self, _me: NodeId) -> AwaitedTimers {
        AwaitedTimers::NONE.and(GatewayTimer::Tick, true).and(GatewayTimer::Turn, !self.turns.is_empty())
    }

    fn statement(&self) -> Statement {
        let bytes = self.upstream.askers().map(|waiting| waiting.bytes).sum();
        Statement {
            recounts: vec![Recount::of("bytes of operations", self.outstanding_bytes, bytes)],
            unfinished: vec![("changes", self.outstanding()), ("reads", self.reads.len())],
            ..Statement::default()
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match Request::decoded(&request) {
            Ok(request) => self.take(Asker::Call(id), request, cx),
            Err(_) => reply(Asker::Call(id), Answer::refused(Why::Malformed), cx),
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        self.upstream.flush(cx);
        self.upstream.send_barrier(cx);
        while let Some(tag) = self.turns.next(cx.now()) {
            self.send(tag);
        }
        if !self.turns.is_empty() {
            cx.set_timer(GatewayTimer::Turn, TURN);
        }
        self.questions.flush(&self.shards, cx);
    }
}

impl Gateway {
    fn take(&mut self, asker: Asker, mut request: Request, cx: &mut Cx<'_, Self>) {
        if let Some(why) = request.fault() {
            return reply(asker, Answer::refused(why), cx);
        }
        if request.written().is_empty() {
            return self.read(asker, request, cx);
        }
        if cx.is_disk_full() {
            cx.mark("log.refused_for_want_of_disk_space");
            return reply(asker, Answer::refused(Why::DiskFull), cx);
        }
        if let Some(refused) = self.refused_for_the_archive(&request) {
            return reply(asker, refused, cx);
        }
        if let Some(refused) = self.refused_for_the_budget(&mut request, cx) {
            return reply(asker, refused, cx);
        }
        if let Request::Create(create) = &mut request {
            create.capacity = self.capacity;
        }
        self.submit(asker, &request, cx);
    }

    fn submit(&mut self, asker: Asker, request: &Request, cx: &mut Cx<'_, Self>) {
        let body = Bytes::from(request.encoded());
        let bytes = body.len();
        let full = self.outstanding_bytes + bytes > OUTSTANDING_BYTES_MAX;
        if full || self.outstanding() >= OUTSTANDING_MAX || self.upstream.groups() == 0 {
            return reply(asker, Answer::refused(Why::Busy), cx);
        }
        let groups = self.upstream.groups() as u64;
        let group = match asker {
            // One group admits what it is sent in the order sent, so a connection's appends stay in their order.
            Asker::Connection { node, .. } => (u64::from(node.host_slot().0) % groups) as u16,
            Asker::Call(_) | Asker::Nobody => {
                self.next_group = ((u64::from(self.next_group) + 1) % groups) as u16;
                self.next_group
            }
        };
        self.outstanding_bytes += bytes;
        self.upstream.push(group.into(), body, Waiting { asker, bytes }, cx.now());
    }

    /// Appends wait at their callers, and not in a log, while the archive keeps what is trimmed waiting.
    fn refused_for_the_archive(&self, request: &Request) -> Option<Answer> {
        if self.overfull.is_empty() || !matches!(request, Request::Append(_) | Request::Produce(_)) {
            return None;
        }
        let spaces = self.shards.len() as u16;
        let names = request.written();
        let waiting = |name: &str| self.overfull.get(&space_of(name, spaces)).copied();
        names.iter().find_map(|name| Some(Answer::about(Why::Unarchived, name, waiting(name)?)))
    }

    /// Appends are refused while the logs have reached the disk budget, and what they say of it is filled in while not.
    fn refused_for_the_budget(&mut self, request: &mut Request, cx: &mut Cx<'_, Self>) -> Option<Answer> {
        if !matches!(request, Request::Append(_) | Request::Produce(_)) {
            return None;
        }
        match self.budget.admit(&request.written(), cx.now()) {
            Outcome::Admitted(how) => {
                if how == Admitted::BeyondBudget {
                    cx.mark("log.had_a_log_drop_its_oldest");
                }
                budget::admit(request, how);
                None
            }
            Outcome::Refused(answer, expire) => {
                if let Some(name) = expire {
                    self.submit(Asker::Nobody, &Request::Expire(Named { name }), cx);
                }
                Some(answer)
            }
        }
    }

    /// Returns who waits for answers that the incarnation before leaves open.
    fn begin_incarnation(&mut self, cx: &mut Cx<'_, Self>) -> Vec<Waiting> {
        self.outstanding_bytes = 0;
        self.upstream.begin_incarnation(cx)
    }

    fn read(&mut self, asker: Asker, mut request: Request, cx: &mut Cx<'_, Self>) {
        if self.reads.len() >= READS_MAX {
            return reply(asker, Answer::refused(Why::Busy), cx);
        }
        let mut until = cx.now();
        match &mut request {
            Request::Read(read) => {
                read.bytes_max = read.bytes_max.min(READ_BYTES_MAX);
                until = until + Duration::from_millis(read.wait_ms.min(WAIT_MS_MAX).into());
            }
            Request::Recall(read) => read.bytes_max = read.bytes_max.min(READ_BYTES_MAX),
            Request::List(list) => list.limit = list.limit.clamp(1, LIST_MAX),
            _ => {}
        }
        self.next_read += 1;
        self.upstream.barriers().want(self.next_read);
        let reading = Reading { asker, request, state: State::Barred, until, asked: cx.now(), needs: None };
        self.reads.insert(self.next_read, reading);
        if kernel::planted!(read_without_barrier) {
            self.ask(self.next_read, cx.now());
        }
    }

    fn on_barrier_passed(&mut self, message: &BarrierPassed, cx: &mut Cx<'_, Self>) {
        let answered = (usize::from(message.group.0), message.id);
        let passed = self.upstream.on_barrier_passed(answered, message.layout.as_ref(), cx);
        let Some(Passed { waiters, asked_at }) = passed else { return };
        for tag in waiters {
            if self.reads.get(&tag).is_some_and(|reading| matches!(reading.state, State::Barred)) {
                self.ask(tag, asked_at);
            }
        }
    }

    /// The shards that know are asked when it has its turn.
    fn ask(&mut self, tag: u64, now: Instant) {
        let Some(reading) = self.reads.get_mut(&tag) else { return };
        reading.asked = now;
        reading.state = State::Queued;
        self.turns.push(tag);
    }

    fn send(&mut self, tag: u64) {
        let spaces = self.shards.len() as u16;
        let Some(reading) = self.reads.get_mut(&tag) else { return };
        let asked: BTreeSet<Space> = match &reading.request {
            Request::Read(read) | Request::Recall(read) => BTreeSet::from([space_of(&read.name, spaces)]),
            Request::Stat(named)
            | Request::Identify(named)
            | Request::Describe(named)
            | Request::GroupOf(named) => BTreeSet::from([space_of(&named.name, spaces)]),
            _ => (0..spaces).map(Space).collect(),
        };
        let body = Bytes::from(reading.request.encoded());
        // Other answers are of a bounded size, and small.
        let is_of_entries = matches!(&reading.request, Request::Read(_) | Request::Recall(_));
        let room = is_of_entries.then(|| reading.needs.unwrap_or(self.turns.expected()));
        self.turns.spend(room.unwrap_or(SMALL_ANSWER_BYTES));
        let limit = room.map_or(u64::MAX, |room| room as u64);
        for &space in &asked {
            let to = To { space, shard_map: None };
            self.questions.ask(to, (tag, body.clone()), Gsn(0), limit);
        }
        reading.state = State::Asked(asked, Vec::new());
    }

    fn on_read_answers(&mut self, message: ReadAnswers, cx: &mut Cx<'_, Self>) {
        for (tag, bytes) in message.withheld.into_iter().flatten() {
            let Some(reading) = self.reads.get_mut(&tag) else { continue };
            if !matches!(reading.state, State::Asked(..)) {
                continue;
            }
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(ANSWER_BYTES_MAX);
            // There may be a little more by the time that it is asked for again; a second time it gets all that there may be.
            reading.needs = Some(reading.needs.map_or(bytes + bytes / 8, |_| ANSWER_BYTES_MAX));
            reading.state = State::Queued;
            self.turns.learn(bytes);
            self.turns.push_first(tag);
            cx.mark("log.asked_again_with_room_for_the_answer");
        }
        for answer in message.answers {
            let Some(reading) = self.reads.get_mut(&answer.tag) else { continue };
            // An answer that was given up and asked for again may come twice.
            let State::Asked(missing, logs) = &mut reading.state else { continue };
            if !missing.remove(&message.space) {
                continue;
            }
            if matches!(&reading.request, Request::Read(_) | Request::Recall(_)) {
                self.turns.learn(answer.body.len());
                reading.needs = None;
            }
            let answered = Answer::decoded(&answer.body).unwrap_or(Answer::refused(Why::Malformed));
            let answered = match (answered, &reading.request) {
                (Answer::Logs(more), Request::List(list)) => {
                    logs.extend(more);
                    if !missing.is_empty() {
                        continue;
                    }
                    Answer::Logs(first_of(std::mem::take(logs), list))
                }
                (Answer::Entries(Entries { first, next, sealed: false, .. }), _)
                    if first == next && reading.until > cx.now() =>
                {
                    reading.state = State::Idle;
                    continue;
                }
                (answered, _) => answered,
            };
            reply(reading.asker, answered, cx);
            self.reads.remove(&answer.tag);
        }
    }

    /// The log has changed: readers that wait for it look again.
    fn wake(&mut self, name: &str, now: Instant) -> bool {
        let waits = |reading: &Reading| {
            matches!(reading.state, State::Idle)
                && matches!(&reading.request, Request::Read(read) if read.name == name)
        };
        let woken: Vec<u64> =
            self.reads.iter().filter(|(_, reading)| waits(reading)).map(|(&tag, _)| tag).collect();
        for &tag in &woken {
            self.ask(tag, now);
        }
        !woken.is_empty()
    }

    /// A proxy that had no leader may have dropped a barrier, and a shard a read; reads that have waited long enough look a
    /// last time.
    fn ask_again(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        self.upstream.ask_again(cx);
        let due = |reading: &Reading| match reading.state {
            State::Barred | State::Queued => false,
            State::Asked(..) => now.since(reading.asked) >= ASK_AGAIN_AFTER,
            State::Idle => now >= reading.until,
        };
        let due: Vec<u64> =
            self.reads.iter().filter(|(_, reading)| due(reading)).map(|(&tag, _)| tag).collect();
        for tag in due {
            self.ask(tag, now);
        }
    }
}

/// The first logs of several shards' answers, by name.
fn first_of(mut logs: Vec<LogStat>, list: &List) -> Vec<LogStat> {
    logs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    logs.truncate(list.limit as usize);
    logs
}

/// Answers a call.
pub(crate) fn reply<R: Role>(asker: Asker, answer: Answer, cx: &mut Cx<'_, R>)
where
    R::Family: Family<Response = Response>,
    <R::Family as Family>::Message: From<Output>,
{
    if let Answer::Refused(refused) = &answer {
        match refused.why {
            Why::Moved => cx.mark("log.refused_a_late_writer"),
            Why::Sealed => cx.mark("log.refused_to_break_a_seal"),
            Why::Trimmed => cx.mark("log.reported_a_reader_where_to_resume"),
            Why::Unarchived => cx.mark("log.refused_what_the_archive_has_no_room_for"),
            Why::OverBudget => cx.mark("log.refused_what_the_budget_has_no_room_for"),
            _ => {}
        }
    }
    match asker {
        Asker::Call(id) => cx.respond(id, Response(answer.encoded().into())),
        Asker::Connection { node, id } => {
            cx.send(node, Output { bytes: Native::Reply(Reply { id, answer }).encoded().into() });
        }
        Asker::Nobody => {}
    }
}
