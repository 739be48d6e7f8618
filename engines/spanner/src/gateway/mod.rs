//! The gateway of a host: the paper's client. It draws read timestamps, estimates and waits out earliest end times, and plays
//! Algorithm 1 for its users, who need no clock.
//!
//! `read_only` and `read_write` are the two kinds of transactions, `users` those who ask.

mod estimates;
mod merge;
mod read_only;
mod read_write;
mod users;

use crate::directory::Directory;
use crate::messages::gateway::GatewayIn;
use crate::messages::shard::{AskFate, OwnerAlive};
use crate::parameters::SpannerParameters;
use crate::shard::BoundedUse;
use crate::txn::{ShardId, TrueTime};
use crate::{Spanner, SpannerMessage};
use estimates::Estimates;
use kernel::client::Event;
use kernel::{Bytes, Cx, Decode, Instant, NodeId, Position, RequestId, Role};
use parts::Incarnation;
use read_only::ReadOnly;
use read_write::Attempt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use users::{Asker, Caller};
use wire::txn::{CallKey, CommitFate, Committed, Fenced, NotMet, Timestamp, TxnCall, TxnFailure};

kernel::timers! {
    /// The gateway's timers.
    pub enum GatewayTimer {
        /// Look after what is late.
        Tick,
        /// A timestamp has surely passed.
        Passed,
        /// A transaction has paused for long enough, and is tried again.
        Again,
    }
}

/// What is asked for again at once, at a look.
const AGAIN_MAX: usize = 64;

/// Those that have been late for the longest.
fn longest_late<T: Ord>(mut late: Vec<(Instant, T)>) -> BTreeSet<T> {
    if late.len() > AGAIN_MAX {
        late.sort_unstable();
        late.truncate(AGAIN_MAX);
    }
    late.into_iter().map(|(_, which)| which).collect()
}

/// Everything that a gateway hears.
#[derive(Clone, PartialEq, Debug)]
pub enum GatewayHears {
    /// From shards.
    Shard(GatewayIn),
    /// From users' connections.
    User(Event),
}

/// What is answered when a timestamp has surely passed.
#[derive(Clone, Debug)]
enum Passing {
    Commit(Committed),
    Fence(Fenced),
}

/// A question for a commit's fate.
#[derive(Clone, Debug)]
struct FateAsked {
    caller: Caller,
    key: CallKey,
    /// Shards that have not answered.
    missing: BTreeSet<u16>,
    found: Option<Timestamp>,
    /// What is answered if it was not committed, instead of that.
    otherwise: Option<NotMet>,
    asked_at: Instant,
    since: Instant,
}

/// Commit waits that users had at this gateway since it started.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CommitWaits {
    /// How many.
    pub count: u64,
    /// How long they were together.
    pub sum: Duration,
}

/// The gateway of a host.
#[derive(Clone, Debug)]
pub struct TxnGateway {
    directory: Arc<Directory>,
    parameters: SpannerParameters,
    incarnation: Incarnation,
    next_attempt: u64,
    next_read: u64,
    reads: BTreeMap<u64, ReadOnly>,
    attempts: BTreeMap<u64, Attempt>,
    /// Attempts that pause, by the end of their pause.
    paused: BTreeSet<(Instant, u64)>,
    /// Users' interactive transactions.
    interactive: BTreeMap<(Asker, u64), u64>,
    fates: BTreeMap<u64, FateAsked>,
    /// By the timestamp that has to pass.
    passing: BTreeMap<(Timestamp, u64), (Caller, Passing)>,
    /// How far this host's replicas may be read.
    safe: Vec<Timestamp>,
    estimates: Estimates,
    commit_waits: CommitWaits,
    reported_alive_at: Instant,
    reported_below: u64,
    /// It has nothing to look after.
    rests: bool,
}

impl TxnGateway {
    /// A gateway that has announced its first incarnation to nobody yet.
    pub fn new(directory: Arc<Directory>, parameters: SpannerParameters) -> Self {
        let shards = usize::from(directory.count());
        Self {
            directory,
            parameters,
            incarnation: Incarnation::default(),
            next_attempt: 1,
            next_read: 1,
            reads: BTreeMap::new(),
            attempts: BTreeMap::new(),
            paused: BTreeSet::new(),
            interactive: BTreeMap::new(),
            fates: BTreeMap::new(),
            passing: BTreeMap::new(),
            safe: vec![Timestamp(0); shards],
            estimates: Estimates::default(),
            commit_waits: CommitWaits::default(),
            reported_alive_at: Instant(0),
            reported_below: 0,
            rests: false,
        }
    }

    /// Calls in progress.
    pub fn in_progress(&self) -> usize {
        self.reads.len() + self.attempts.len() + self.fates.len() + self.passing.len()
    }

    /// What is bounded here, how much of it is used, and the bound.
    pub fn usage(&self) -> [BoundedUse; 2] {
        let (calls, max) = (self.in_progress(), self.parameters.calls_max);
        let interactive = self.interactive.len();
        [
            BoundedUse { what: "calls in progress", used: calls, max },
            BoundedUse { what: "interactive transactions", used: interactive, max },
        ]
    }

    /// Commit waits since it started.
    pub fn commit_waits(&self) -> CommitWaits {
        self.commit_waits
    }

    fn next_number(&mut self) -> u64 {
        self.next_read += 1;
        self.next_read
    }

    /// Answers when a timestamp has surely passed.
    fn answer_after(&mut self, at: Timestamp, caller: Caller, what: Passing, cx: &mut Cx<'_, Self>) {
        let number = self.next_number();
        if matches!(what, Passing::Commit(_)) {
            self.commit_waits.count += 1;
            self.commit_waits.sum += TrueTime(cx.wall()).until_passed(at);
        }
        self.passing.insert((at, number), (caller, what));
        self.look_at_the_time(cx);
    }

    fn look_at_the_time(&mut self, cx: &mut Cx<'_, Self>) {
        let now = TrueTime(cx.wall());
        while let Some((&(at, number), _)) = self.passing.first_key_value() {
            if !now.has_passed(at) {
                if !cx.wall().usable {
                    // Nobody knows when; the next tick looks again.
                    return;
                }
                let after = now.until_passed(at).max(Duration::from_micros(1));
                return cx.set_timer(GatewayTimer::Passed, after);
            }
            match self.passing.remove(&(at, number)) {
                Some((caller, Passing::Commit(committed))) => caller.answer(committed, cx),
                Some((caller, Passing::Fence(fenced))) => caller.answer(fenced, cx),
                None => return,
            }
        }
    }

    fn on_call(&mut self, asker: Asker, call: TxnCall, cx: &mut Cx<'_, Self>) {
        let caller = Caller::of(asker, &call);
        if let Err(why) = self.admit(&call, cx) {
            return caller.fail(why, cx);
        }
        match call {
            TxnCall::ReadOnly(call) => self.on_read_only(caller, call, cx),
            TxnCall::OneShot(call) => self.on_one_shot(caller, call, cx),
            TxnCall::Begin(call) => self.on_begin(caller, &call, cx),
            TxnCall::ReadWithin(call) => self.on_read_within(caller, call, cx),
            TxnCall::Commit(call) => self.on_commit(caller, call, cx),
            TxnCall::GiveUp(call) => self.on_give_up(caller, call.txn, cx),
            TxnCall::Fence(call) => {
                let bound = self.parameters.fence_bound.as_micros() as u64;
                let early = kernel::planted!(fence_does_not_wait);
                let until = if early { Timestamp(0) } else { call.token.plus(bound) };
                let fenced = Fenced { id: call.id, token: call.token };
                self.answer_after(until, caller, Passing::Fence(fenced), cx);
            }
            TxnCall::CommitStatus(call) => self.on_status(caller, call.key, cx),
        }
    }

    /// Whether a call may be taken in now.
    fn admit(&self, call: &TxnCall, cx: &Cx<'_, Self>) -> Result<(), TxnFailure> {
        // Nothing that a shard may not be asked.
        if call.fault().is_some() {
            return Err(TxnFailure::Malformed);
        }
        if !cx.wall().usable && !users::needs_no_clock(call) {
            return Err(TxnFailure::NoClock);
        }
        let token = users::token_of(call);
        let ahead = self.parameters.clock_error_max.as_micros() as u64;
        if token > TrueTime(cx.wall()).latest().plus(ahead) {
            return Err(TxnFailure::FromTheFuture);
        }
        if self.in_progress() >= self.parameters.calls_max {
            return Err(TxnFailure::Busy);
        }
        let writes = matches!(call, TxnCall::OneShot(_) | TxnCall::Begin(_) | TxnCall::Commit(_));
        if writes && cx.is_disk_full() {
            return Err(TxnFailure::DiskFull);
        }
        Ok(())
    }

    fn on_status(&mut self, caller: Caller, key: CallKey, cx: &mut Cx<'_, Self>) {
        self.find_fate(caller, key, None, cx);
    }

    /// Answers that a condition does not hold, unless the call was committed when it was sent before.
    fn answer_unless_committed(
        &mut self,
        caller: Caller,
        key: CallKey,
        not_met: NotMet,
        cx: &mut Cx<'_, Self>,
    ) {
        self.find_fate(caller, key, Some(not_met), cx);
    }

    fn find_fate(&mut self, caller: Caller, key: CallKey, otherwise: Option<NotMet>, cx: &mut Cx<'_, Self>) {
        let id = self.next_number();
        let missing = self.directory.all().map(|shard| shard.0).collect();
        let (found, now) = (None, cx.now());
        self.fates
            .insert(id, FateAsked { caller, key, missing, found, otherwise, asked_at: now, since: now });
        self.ask_fate(id, cx);
    }

    fn ask_fate(&mut self, id: u64, cx: &mut Cx<'_, Self>) {
        let Some(asked) = self.fates.get_mut(&id) else { return };
        asked.asked_at = cx.now();
        let (gateway, key) = (cx.node(), asked.key);
        for &shard in &asked.missing {
            if let Some(role) = self.directory.role(ShardId(shard), gateway.host()) {
                cx.send(role, AskFate { gateway, id, key });
            }
        }
    }

    fn on_fate_found(&mut self, id: u64, shard: u16, committed: Option<Timestamp>, cx: &mut Cx<'_, Self>) {
        let Some(asked) = self.fates.get_mut(&id) else { return };
        asked.missing.remove(&shard);
        asked.found = asked.found.or(committed);
        if (asked.missing.is_empty() || asked.found.is_some())
            && let Some(asked) = self.fates.remove(&id)
        {
            let (id, committed) = (asked.caller.id(), asked.found);
            match (asked.otherwise, committed) {
                (None, _) => asked.caller.answer(CommitFate { id, committed }, cx),
                (Some(not_met), None) => asked.caller.answer(not_met, cx),
                (Some(not_met), Some(at)) => {
                    let token = not_met.token.max(at);
                    asked.caller.answer(Committed { id, token, at, rows: Vec::new() }, cx);
                }
            }
        }
    }

    /// Reports to the shards that this gateway is alive, while it has something there; and what it will not ask for again.
    fn report_alive(&mut self, cx: &mut Cx<'_, Self>) {
        let below = self.attempts.keys().next().copied().unwrap_or(self.next_attempt);
        let due = cx.now().since(self.reported_alive_at) >= self.parameters.owner_alive_every;
        if !due || (self.attempts.is_empty() && below == self.reported_below) {
            return;
        }
        (self.reported_alive_at, self.reported_below) = (cx.now(), below);
        let (gateway, incarnation, next) = (cx.node(), self.incarnation.number, self.next_attempt);
        let mut open: BTreeMap<ShardId, Vec<u64>> = BTreeMap::new();
        for (&number, attempt) in &self.attempts {
            for shard in attempt.goes_on_at() {
                open.entry(shard).or_default().push(number);
            }
        }
        for shard in self.directory.all() {
            if let Some(role) = self.directory.role(shard, gateway.host()) {
                let open = open.remove(&shard).unwrap_or_default();
                cx.repeat_durable([role], OwnerAlive { gateway, incarnation, below, next, open });
            }
        }
    }
}

impl Role for TxnGateway {
    type Family = Spanner;
    type In = GatewayHears;
    type Timer = GatewayTimer;
    type Record = Incarnation;

    fn restore(&mut self, _position: Position, record: Incarnation) {
        self.incarnation = record;
    }

    fn on_start(&mut self, cx: &mut Cx<'_, Self>) {
        self.incarnation.begin(cx);
        // An answer to a read of an earlier incarnation is no answer to one of this: incarnations are numbered by nanoseconds.
        self.next_read = self.incarnation.number;
        cx.set_timer(GatewayTimer::Tick, self.parameters.tick);
    }

    fn on_message(&mut self, from: NodeId, message: GatewayHears, cx: &mut Cx<'_, Self>) {
        match message {
            GatewayHears::User(event) => self.on_event(from, event, cx),
            GatewayHears::Shard(message) => match message {
                GatewayIn::LockedValues(message) => self.on_locked_values(message, cx),
                GatewayIn::LostLocks(message) => self.on_lost_locks(&message, cx),
                GatewayIn::Ended(message) => self.on_ended(&message, cx),
                GatewayIn::FastReply(message) => self.on_fast_reply(message, cx),
                GatewayIn::SlowReply(message) => self.on_slow_reply(&message, cx),
                GatewayIn::ReadRefused(message) => self.on_read_refused(&message, cx),
                GatewayIn::ReplicaSafe(message) => {
                    if let Some(safe) = self.safe.get_mut(usize::from(message.shard.0)) {
                        *safe = message.safe.max(*safe);
                    }
                }
                GatewayIn::FateFound(message) => {
                    self.on_fate_found(message.id, message.shard.0, message.committed, cx);
                }
            },
        }
    }

    fn on_timer(&mut self, timer: GatewayTimer, cx: &mut Cx<'_, Self>) {
        match timer {
            GatewayTimer::Passed => self.look_at_the_time(cx),
            GatewayTimer::Again => self.try_paused(cx),
            GatewayTimer::Tick => {
                self.look_at_the_time(cx);
                self.look_after_reads(cx);
                self.look_after_attempts(cx);
                let (now, after) = (cx.now(), self.parameters.resend_after);
                let late = self.fates.iter().filter(|(_, asked)| now.since(asked.asked_at) >= after);
                for id in longest_late(late.map(|(&id, asked)| (asked.asked_at, id)).collect()) {
                    let expired =
                        self.fates.get(&id).is_some_and(|it| now.since(it.since) >= self.parameters.try_for);
                    match expired.then(|| self.fates.remove(&id)).flatten() {
                        Some(asked) => asked.caller.fail(TxnFailure::Unavailable, cx),
                        None => self.ask_fate(id, cx),
                    }
                }
                self.report_alive(cx);
                self.rests = self.in_progress() + self.paused.len() == 0;
                let rest = if self.rests { kernel::until_rare_moment(cx.now()) } else { Duration::ZERO };
                cx.set_timer(GatewayTimer::Tick, rest.max(self.parameters.tick));
            }
        }
    }

    fn on_burst_end(&mut self, cx: &mut Cx<'_, Self>) {
        if self.rests && self.in_progress() > 0 {
            self.rests = false;
            cx.set_timer(GatewayTimer::Tick, self.parameters.tick);
        }
    }

    fn on_request(&mut self, id: RequestId, request: Bytes, cx: &mut Cx<'_, Self>) {
        match TxnCall::decoded(&request) {
            Ok(call) => self.on_call(Asker::Local(id), call, cx),
            Err(_) => cx.reject("request that does not decode"),
        }
    }
}

impl<M: Into<GatewayIn>> From<M> for GatewayHears {
    fn from(message: M) -> Self {
        Self::Shard(message.into())
    }
}

impl TryFrom<SpannerMessage> for GatewayHears {
    type Error = SpannerMessage;

    fn try_from(message: SpannerMessage) -> Result<Self, SpannerMessage> {
        match message {
            SpannerMessage::Gateway(message) => Ok(Self::Shard(message)),
            SpannerMessage::User(event) => Ok(Self::User(event)),
            other => Err(other),
        }
    }
}
