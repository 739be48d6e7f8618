//! Read-write transactions: reads under locks, then two-phase commit, which the coordinator's shard decides.

mod reading;

use super::users::{Asker, Caller};
use super::{Passing, TxnGateway};
use crate::messages::gateway::Ended;
use crate::messages::shard::{LockedUnder, PrepareTxn, Release};
use crate::txn::{CallRef, Fate, Priority, ReadSet, ShardId, TrueTime, TxnId};
use kernel::{Bytes, Cx, Instant, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::txn::{
    Begin, Begun, CallKey, Commit, Committed, Condition, KeyRow, KeyWrite, OneShot, ReadWithin, ScannedRows,
    Timestamp, TxnFailure,
};

/// What a one-shot call asks.
#[derive(Clone, Debug)]
pub(super) struct OneShotCall {
    pub(super) token: Timestamp,
    pub(super) call: Option<CallRef>,
    pub(super) conditions: Vec<Condition>,
    writes: Vec<KeyWrite>,
    reads: Vec<Bytes>,
    pub(super) otherwise: Vec<Bytes>,
    /// When the first attempt began.
    first_start: Timestamp,
    since: Instant,
    attempts: u32,
}

/// A read of a shard that is not answered.
#[derive(Clone, Debug)]
struct Pending {
    what: ReadSet,
    /// Keys that are written there afterwards.
    writes: Vec<Bytes>,
    scans: Vec<usize>,
}

/// What an attempt has at a shard.
#[derive(Clone, Debug, Default)]
struct AtShard {
    /// Locks for what it has read there.
    held: Option<LockedUnder>,
    pending: Option<Pending>,
    /// Bytes of what it has locked there or asks to lock.
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    OneShot(Box<OneShotCall>),
    Interactive {
        /// The user's name for it.
        name: u64,
        owner: Asker,
        since: Instant,
    },
}

/// A commit on its way.
#[derive(Clone, Debug)]
struct Committing {
    participants: Vec<ShardId>,
    call: Option<CallRef>,
    writes: BTreeMap<ShardId, Vec<KeyWrite>>,
    start: Timestamp,
    t_ee: Timestamp,
    coordinator: ShardId,
    began: Instant,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Nothing is asked of the shards.
    Idle,
    /// Shards are to answer reads.
    Reading,
    /// The coordinator is to answer.
    Committing(Box<Committing>),
    /// Its locks are lost, and its user does not know yet.
    Lost { busy: bool },
    /// Tried again after a while.
    BackingOff { until: Instant },
}

/// One attempt at a transaction.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    txn: TxnId,
    priority: Priority,
    kind: Kind,
    caller: Option<Caller>,
    token: Timestamp,
    phase: Phase,
    shards: BTreeMap<ShardId, AtShard>,
    /// What was read by the call at hand.
    keys: Vec<Bytes>,
    rows: BTreeMap<Bytes, KeyRow>,
    scans: Vec<(wire::txn::KeyScan, Vec<ScannedRows>)>,
    asked_at: Instant,
    used_at: Instant,
}

impl Attempt {
    /// The shards at which it goes on.
    pub(super) fn goes_on_at(&self) -> Vec<ShardId> {
        match &self.phase {
            Phase::Committing(committing) => committing.participants.clone(),
            Phase::Idle | Phase::Reading => self.shards.keys().copied().collect(),
            Phase::Lost { .. } | Phase::BackingOff { .. } => Vec::new(),
        }
    }
}

/// True if a key has the version of a condition.
pub(super) fn holds(condition: &Condition, row: &KeyRow) -> bool {
    let version = if row.value.is_some() { row.version } else { Timestamp(0) };
    version == condition.version
}

/// The longest pause before a transaction is tried again that a shard was too busy for.
const BACK_OFF_MAX: Duration = Duration::from_millis(50);
/// The longest pause of one that made way for an older one: it keeps its age, and waits for locks instead of taking them from others.
const MADE_WAY_PAUSE_MAX: Duration = Duration::from_millis(2);

/// How long an interactive transaction may be open, in times that it may be idle: younger ones wait for what it has read.
const OPEN_IDLES: u32 = 6;

/// One-shot transactions.
impl TxnGateway {
    pub(super) fn on_one_shot(&mut self, caller: Caller, call: OneShot, cx: &mut Cx<'_, Self>) {
        let OneShot { token, key, acknowledged, conditions, writes, reads, otherwise, .. } = call;
        let first_start = TrueTime(cx.wall()).latest();
        let call = OneShotCall {
            token,
            call: key.map(|key| CallRef { key, acknowledged }),
            conditions,
            writes,
            reads,
            otherwise,
            first_start,
            since: cx.now(),
            attempts: 0,
        };
        self.try_one_shot(caller, call, cx);
    }

    /// Begins an attempt.
    pub(super) fn try_one_shot(&mut self, caller: Caller, mut call: OneShotCall, cx: &mut Cx<'_, Self>) {
        call.attempts += 1;
        let (token, first_start) = (call.token, call.first_start);
        let mut keys: Vec<Bytes> = call.conditions.iter().map(|condition| condition.key.clone()).collect();
        keys.extend(call.reads.iter().cloned());
        let number = self.new_attempt(Kind::OneShot(Box::new(call)), Some(caller), token, first_start, cx);
        self.read_under_locks(number, keys, Vec::new(), cx);
    }

    fn new_attempt(
        &mut self,
        kind: Kind,
        caller: Option<Caller>,
        token: Timestamp,
        first_start: Timestamp,
        cx: &mut Cx<'_, Self>,
    ) -> u64 {
        let number = self.next_attempt;
        self.next_attempt += 1;
        let txn = TxnId { gateway: cx.node(), incarnation: self.incarnation.number, number };
        let attempt = Attempt {
            txn,
            priority: Priority { first_start, txn },
            kind,
            caller,
            token,
            phase: Phase::Idle,
            shards: BTreeMap::new(),
            keys: Vec::new(),
            rows: BTreeMap::new(),
            scans: Vec::new(),
            asked_at: cx.now(),
            used_at: cx.now(),
        };
        self.attempts.insert(number, attempt);
        number
    }
}

/// Interactive transactions.
impl TxnGateway {
    pub(super) fn on_begin(&mut self, caller: Caller, call: &Begin, cx: &mut Cx<'_, Self>) {
        let owner = caller.owner();
        if self.interactive.contains_key(&(owner, call.id)) {
            return caller.fail(TxnFailure::Malformed, cx);
        }
        let first_start = call.priority.unwrap_or_else(|| TrueTime(cx.wall()).latest());
        let kind = Kind::Interactive { name: call.id, owner, since: cx.now() };
        let number = self.new_attempt(kind, None, call.token, first_start, cx);
        self.interactive.insert((owner, call.id), number);
        caller.answer(Begun { id: call.id, priority: first_start }, cx);
    }

    /// The attempt that a call goes on with, if it can.
    fn go_on(&mut self, caller: Caller, name: u64, cx: &mut Cx<'_, Self>) -> Result<u64, TxnFailure> {
        let key = (caller.owner(), name);
        let number = *self.interactive.get(&key).ok_or(TxnFailure::NoTransaction)?;
        let attempt = self.attempts.get_mut(&number).ok_or(TxnFailure::NoTransaction)?;
        match attempt.phase {
            Phase::Idle => {
                (attempt.caller, attempt.used_at) = (Some(caller), cx.now());
                Ok(number)
            }
            Phase::Lost { busy } => {
                self.interactive.remove(&key);
                self.attempts.remove(&number);
                Err(if busy { TxnFailure::Busy } else { TxnFailure::Aborted })
            }
            // One call at a time.
            Phase::Reading | Phase::Committing(_) | Phase::BackingOff { .. } => Err(TxnFailure::Malformed),
        }
    }

    pub(super) fn on_read_within(&mut self, caller: Caller, call: ReadWithin, cx: &mut Cx<'_, Self>) {
        let ReadWithin { txn, keys, scans, .. } = call;
        match self.go_on(caller, txn, cx) {
            Ok(number) => self.read_under_locks(number, keys, scans, cx),
            Err(why) => caller.fail(why, cx),
        }
    }

    pub(super) fn on_commit(&mut self, caller: Caller, call: Commit, cx: &mut Cx<'_, Self>) {
        let Commit { txn, key, acknowledged, writes, .. } = call;
        match self.go_on(caller, txn, cx) {
            Ok(number) => {
                let call = key.map(|key: CallKey| CallRef { key, acknowledged });
                self.commit(number, call, writes, cx);
            }
            Err(why) => caller.fail(why, cx),
        }
    }

    /// A connection is not answered; a local application is: with nothing if the attempt is given up.
    pub(super) fn on_give_up(&mut self, caller: Caller, name: u64, cx: &mut Cx<'_, Self>) {
        let number = self.interactive.get(&(caller.owner(), name)).copied();
        let phase = number.and_then(|number| self.attempts.get(&number)).map(|attempt| &attempt.phase);
        let refused = match phase {
            None => Some(TxnFailure::NoTransaction),
            Some(Phase::Committing(_)) => Some(TxnFailure::Unknown),
            Some(Phase::Idle | Phase::Lost { .. } | Phase::Reading | Phase::BackingOff { .. }) => None,
        };
        if let Some(number) = number.filter(|_| refused.is_none()) {
            self.drop_attempt(number, cx);
        }
        caller.given_up(refused, cx);
    }

    /// A user is gone: what it has not asked to commit is given up.
    pub(super) fn on_disconnected(&mut self, asker: Asker, cx: &mut Cx<'_, Self>) {
        let first = (asker, 0);
        let of = self.interactive.range(first..).take_while(|((owner, _), _)| *owner == asker);
        let open: Vec<u64> = of.map(|(_, &number)| number).collect();
        for number in open {
            match self.attempts.get_mut(&number) {
                Some(attempt) if matches!(attempt.phase, Phase::Committing(_)) => attempt.caller = None,
                _ => self.drop_attempt(number, cx),
            }
        }
    }

    /// Gives up an attempt that is not to be committed.
    fn drop_attempt(&mut self, number: u64, cx: &mut Cx<'_, Self>) {
        let Some(attempt) = self.attempts.remove(&number) else { return };
        if let Kind::Interactive { name, owner, .. } = attempt.kind {
            self.interactive.remove(&(owner, name));
        }
        self.release(&attempt, cx);
    }

    fn release(&self, attempt: &Attempt, cx: &mut Cx<'_, Self>) {
        for shard in attempt.shards.keys() {
            if let Some(role) = self.directory.role(*shard, cx.node().host()) {
                cx.send(role, Release { txn: attempt.txn });
            }
        }
    }
}

/// Committing.
impl TxnGateway {
    fn commit(&mut self, number: u64, call: Option<CallRef>, writes: Vec<KeyWrite>, cx: &mut Cx<'_, Self>) {
        let now = TrueTime(cx.wall());
        let Some(attempt) = self.attempts.get_mut(&number) else { return };
        let mut by_shard: BTreeMap<ShardId, Vec<KeyWrite>> = BTreeMap::new();
        for write in writes {
            by_shard.entry(self.directory.shard_of(&write.key)).or_default().push(write);
        }
        let mut participants: Vec<ShardId> = attempt.shards.keys().chain(by_shard.keys()).copied().collect();
        participants.sort_unstable();
        participants.dedup();
        if participants.is_empty() {
            // It has neither read nor written anything.
            let (caller, token) = (attempt.caller, attempt.token);
            self.drop_attempt(number, cx);
            if let Some(caller) = caller {
                let at = token;
                caller.answer(Committed { id: caller.id(), token, at, rows: Vec::new() }, cx);
            }
            return;
        }
        // A call that is sent again to another host has the same coordinator, which knows whether it was committed.
        let which = call.map_or(number, |call| call.key.session.wrapping_add(call.key.number));
        let coordinator = participants[(which % participants.len() as u64) as usize];
        // Beyond the fence's bound it would only put the commit off.
        let least = self.estimates.least(&participants).min(self.parameters.fence_bound / 2);
        let least = least.as_micros() as u64;
        let committing = Committing {
            call,
            writes: by_shard,
            start: now.latest().max(attempt.token),
            t_ee: now.earliest().plus(least),
            coordinator,
            began: cx.now(),
            participants,
        };
        attempt.phase = Phase::Committing(Box::new(committing));
        self.ask_to_prepare(number, cx);
    }

    fn ask_to_prepare(&mut self, number: u64, cx: &mut Cx<'_, Self>) {
        let Some(attempt) = self.attempts.get_mut(&number) else { return };
        attempt.asked_at = cx.now();
        let Phase::Committing(committing) = &attempt.phase else { return };
        for &shard in &committing.participants {
            let Some(role) = self.directory.role(shard, cx.node().host()) else { continue };
            let is_coordinator = shard == committing.coordinator;
            let participants = if is_coordinator { committing.participants.clone() } else { Vec::new() };
            let prepare = PrepareTxn {
                txn: attempt.txn,
                priority: attempt.priority,
                call: committing.call.filter(|_| is_coordinator),
                locked: attempt.shards.get(&shard).and_then(|at| at.held),
                start: committing.start,
                t_ee: committing.t_ee,
                coordinator: committing.coordinator,
                participants,
                writes: committing.writes.get(&shard).cloned().unwrap_or_default(),
            };
            cx.send_durable(role, prepare);
        }
    }

    pub(super) fn on_ended(&mut self, message: &Ended, cx: &mut Cx<'_, Self>) {
        let Ended { txn, fate, t_ee, .. } = *message;
        let Some(attempt) = self.attempts.get(&txn.number).filter(|it| it.txn == txn) else { return };
        let Phase::Committing(committing) = &attempt.phase else { return };
        let (took, participants) = (cx.now().since(committing.began), committing.participants.clone());
        // A call that was committed when it was sent earlier: what was read now is not what it read then.
        let is_earlier = fate.committed().is_some_and(|at| at <= committing.start);
        if fate.committed().is_some() && !is_earlier {
            self.estimates.measured(&participants, took, cx.now());
        }
        let Some(attempt) = self.attempts.remove(&txn.number) else { return };
        if let Kind::Interactive { name, owner, .. } = attempt.kind {
            self.interactive.remove(&(owner, name));
        }
        match (fate, attempt.kind) {
            (Fate::Committed(at), kind) => {
                let Some(caller) = attempt.caller else { return };
                let wanted = match kind {
                    Kind::OneShot(call) if !is_earlier => call.reads,
                    Kind::OneShot(_) | Kind::Interactive { .. } => Vec::new(),
                };
                let rows = wanted.iter().filter_map(|key| attempt.rows.get(key).cloned()).collect();
                let committed = Committed { id: caller.id(), token: at.max(attempt.token), at, rows };
                let waits = if planted!(earliest_end_not_waited_out) { at } else { t_ee };
                if t_ee > at {
                    cx.mark("gateway.waited_out_an_earliest_end");
                }
                let until = if planted!(no_commit_wait) { Timestamp(0) } else { waits.max(at) };
                self.answer_after(until, caller, Passing::Commit(committed), cx);
            }
            (Fate::Aborted, Kind::OneShot(call)) => {
                if let Some(caller) = attempt.caller {
                    // Another attempt would not come to its end in time, and nobody would know how it ends.
                    if cx.now().since(call.since) >= self.parameters.lock_wait_max() {
                        cx.mark("gateway.gave_up_between_attempts");
                        return caller.fail(TxnFailure::Busy, cx);
                    }
                    let (token, start) = (call.token, call.first_start);
                    let kind = Kind::OneShot(call.clone());
                    let number = self.new_attempt(kind, Some(caller), token, start, cx);
                    self.try_again(number, *call, MADE_WAY_PAUSE_MAX, cx);
                }
            }
            (Fate::Aborted, Kind::Interactive { .. }) => {
                if let Some(caller) = attempt.caller {
                    caller.fail(TxnFailure::Aborted, cx);
                }
            }
        }
    }

    /// Those whose answers have been late for the longest, as many as may be asked for again at once: thousands that wait for one lock
    /// would fill the ways to other hosts.
    fn first_late(&self, after: Duration, now: Instant) -> BTreeSet<u64> {
        let late = self.attempts.iter().filter(|(_, attempt)| {
            let asks = matches!(attempt.phase, Phase::Committing(_) | Phase::Reading);
            asks && now.since(attempt.asked_at) >= after
        });
        super::longest_late(late.map(|(&number, attempt)| (attempt.asked_at, number)).collect())
    }

    /// Asks again where answers are late, and gives up what has been idle or tried for too long.
    pub(super) fn look_after_attempts(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, after) = (cx.now(), self.parameters.resend_after);
        let all: Vec<u64> = self.attempts.keys().copied().collect();
        let again = self.first_late(after, now);
        for number in all {
            let Some(attempt) = self.attempts.get_mut(&number) else { continue };
            let idle_max = self.parameters.idle_max;
            let is_committing = matches!(attempt.phase, Phase::Committing(_));
            let expired = match &attempt.kind {
                Kind::OneShot(call) => now.since(call.since) >= self.parameters.try_for,
                Kind::Interactive { since, .. } => {
                    let is_old = now.since(*since) >= OPEN_IDLES * idle_max && !is_committing;
                    now.since(attempt.used_at) >= idle_max || is_old
                }
            };
            let is_late = again.contains(&number);
            match &attempt.phase {
                Phase::Committing(_) => {
                    if expired && let Some(caller) = attempt.caller.take() {
                        cx.mark("gateway.does_not_know_how_a_commit_ended");
                        caller.fail(TxnFailure::Unknown, cx);
                    }
                    if is_late {
                        cx.mark("gateway.asked_to_prepare_again");
                        self.ask_to_prepare(number, cx);
                    }
                }
                Phase::Idle | Phase::Reading | Phase::Lost { .. } | Phase::BackingOff { .. } if expired => {
                    let caller = attempt.caller;
                    self.drop_attempt(number, cx);
                    if let Some(caller) = caller {
                        caller.fail(TxnFailure::Unavailable, cx);
                    }
                }
                Phase::Reading if is_late => self.ask_shards(number, cx),
                Phase::Idle | Phase::Reading | Phase::Lost { .. } | Phase::BackingOff { .. } => {}
            }
        }
    }
}

impl Pending {
    fn empty() -> Self {
        let what = ReadSet { keys: Vec::new(), scans: Vec::new() };
        Self { what, writes: Vec::new(), scans: Vec::new() }
    }
}
