//! The replicated state of a shard: executed alike on every replica of its log.

mod calls;
mod digest;
pub mod entry;
mod snapshot;
mod versions;

use crate::messages::shard::{Began, Installed, OpenDecision, OwnerState, ShardIn, Stepped};
use crate::txn::{CallRef, Fate, PreparedTxn, ReadSet, ShardId, TxnId};
use calls::CommittedCalls;
use entry::{Change, Entry, FateOf, FoundValues, Question, ReplicaValues, Step, ValuesAt};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, SnapshotStep, StateMachine, planted};
use parts::Ballot;
use paxos::Members;
use snapshot::Writing;
use std::collections::{BTreeMap, BTreeSet};
pub use versions::KeyVersion;
use versions::{ROW_BYTES, Versions};
use wire::txn::{KeyWrite, READ_BYTES_MAX, Timestamp};

/// What a gateway's attempts have come to.
#[derive(Clone, Debug, Default, PartialEq)]
struct Owner {
    incarnation: u64,
    /// It has the answers to everything below.
    below: u64,
    ended: BTreeMap<u64, Fate>,
}

/// A decision that not all participants have in their logs.
#[derive(Clone, Debug, PartialEq)]
struct Decision {
    fate: Fate,
    waits_for: BTreeSet<ShardId>,
}

/// The end of a transaction is not remembered: its gateway will not ask again, or is another by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten;

/// What a function of the log is, apart from the versions.
#[derive(Clone, Debug)]
struct State {
    ballot: Ballot,
    /// Which beginning of that ballot's leader.
    attempt: u64,
    epoch: u64,
    index: u64,
    /// Readers may have been promised timestamps up to this.
    horizon: Timestamp,
    /// The horizon when the leader in force began: all its timestamps are above.
    assigns_above: Timestamp,
    /// No later change has a timestamp at or below.
    closed: Timestamp,
    /// The highest commit timestamp.
    last_commit: Timestamp,
    /// Nobody reads below.
    collected: Timestamp,
    prepared: BTreeMap<TxnId, PreparedTxn>,
    decisions: BTreeMap<TxnId, Decision>,
    owners: BTreeMap<NodeId, Owner>,
    calls: CommittedCalls,
    /// The cluster's members that the log follows; version 0: those of the bootstrap.
    members: Members,
}

impl Default for State {
    fn default() -> Self {
        let none = Timestamp(0);
        Self {
            ballot: Ballot::ZERO,
            attempt: 0,
            epoch: 0,
            index: 0,
            horizon: none,
            assigns_above: none,
            closed: none,
            last_commit: none,
            collected: none,
            prepared: BTreeMap::new(),
            decisions: BTreeMap::new(),
            owners: BTreeMap::new(),
            calls: CommittedCalls::default(),
            members: Members { version: 0, hosts: Vec::new() },
        }
    }
}

/// The state machine of a shard's log.
///
/// Invariant: a key has at most one prepared writer, and is written by nobody else meanwhile.
#[derive(Clone, Debug)]
pub struct ShardMachine {
    shard: ShardId,
    /// The shard's role on this host.
    role: NodeId,
    versions: Versions,
    state: State,
    /// Who has prepared to write a key.
    writers: BTreeMap<Bytes, TxnId>,
    /// By their prepare timestamps.
    prepared_at: BTreeSet<(Timestamp, TxnId)>,
    notices: Vec<(NodeId, Bytes)>,
    /// Calls of the step at hand that end otherwise than its leader knew.
    refused: Vec<(TxnId, Fate)>,
    writing: Option<Writing>,
    /// Pieces of a state that was not installed whole yet.
    installing: Vec<u8>,
}

impl ShardMachine {
    /// The machine of a shard's replica, before the first entry. `role` is the shard's role on the same host.
    pub fn new(shard: ShardId, role: NodeId) -> Self {
        Self {
            shard,
            role,
            versions: Versions::default(),
            state: State::default(),
            writers: BTreeMap::new(),
            prepared_at: BTreeSet::new(),
            notices: Vec::new(),
            refused: Vec::new(),
            writing: None,
            installing: Vec::new(),
        }
    }

    /// Its shard.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// How many keys are stored, deleted ones that are remembered included.
    pub fn keys(&self) -> usize {
        self.versions.keys()
    }

    /// How many versions are stored.
    pub fn versions(&self) -> usize {
        self.versions.count()
    }

    /// Bytes of their keys and values.
    pub fn bytes(&self) -> usize {
        self.versions.bytes()
    }

    /// The versions of a key that are retained, oldest first.
    pub fn history(&self, key: &[u8]) -> &[KeyVersion] {
        self.versions.history(key).unwrap_or_default()
    }

    /// All keys and their versions, for invariants.
    pub fn all(&self) -> impl Iterator<Item = (&Bytes, &[KeyVersion])> {
        self.versions.from(std::ops::Bound::Unbounded)
    }

    /// Transactions that are prepared.
    pub fn prepared(&self) -> impl Iterator<Item = &PreparedTxn> {
        self.state.prepared.values()
    }

    /// True if a transaction is prepared.
    pub fn is_prepared(&self, txn: &TxnId) -> bool {
        self.state.prepared.contains_key(txn)
    }

    /// How a transaction ended; none if it has not.
    pub fn ended(&self, txn: &TxnId) -> Result<Option<Fate>, Forgotten> {
        if let Some(decision) = self.state.decisions.get(txn) {
            return Ok(Some(decision.fate));
        }
        match self.state.owners.get(&txn.gateway) {
            Some(owner) if owner.incarnation > txn.incarnation || txn.number < owner.below => Err(Forgotten),
            Some(owner) if owner.incarnation == txn.incarnation => Ok(owner.ended.get(&txn.number).copied()),
            Some(_) | None => Ok(None),
        }
    }

    /// How transactions ended, as far as gateways may ask for it.
    pub fn ends(&self) -> impl Iterator<Item = (TxnId, Fate)> + '_ {
        self.state.owners.iter().flat_map(|(&gateway, owner)| {
            let incarnation = owner.incarnation;
            owner.ended.iter().map(move |(&number, &fate)| (TxnId { gateway, incarnation, number }, fate))
        })
    }

    /// Decisions that not all participants have in their logs.
    pub fn open_decisions(&self) -> usize {
        self.state.decisions.len()
    }

    /// Those decisions, with the participants that have not reported them as logged.
    pub fn decisions(&self) -> impl Iterator<Item = (&TxnId, Fate, &BTreeSet<ShardId>)> {
        self.state.decisions.iter().map(|(txn, open)| (txn, open.fate, &open.waits_for))
    }

    /// The leader in force, counted, and the last of its steps that was applied.
    pub fn position(&self) -> (u64, u64) {
        (self.state.epoch, self.state.index)
    }

    /// No later change has a timestamp at or below.
    pub fn closed(&self) -> Timestamp {
        self.state.closed
    }

    /// Readers may have been promised timestamps up to this.
    pub fn horizon(&self) -> Timestamp {
        self.state.horizon
    }

    /// The highest commit timestamp.
    pub fn last_commit(&self) -> Timestamp {
        self.state.last_commit
    }

    /// Nobody reads below.
    pub fn collected(&self) -> Timestamp {
        self.state.collected
    }

    /// How far this replica may be read: no change that comes has a timestamp at or below it.
    pub fn safe(&self) -> Timestamp {
        let least = self.prepared_at.first().map_or(Timestamp::MAX, |(t_p, _)| t_p.before());
        if planted!(replica_serves_what_is_not_closed) {
            return self.state.closed;
        }
        self.state.closed.min(least)
    }

    fn notify(&mut self, message: impl Into<ShardIn>) {
        self.notices.push((self.role, message.into().encoded().into()));
    }
}

/// Applying entries.
impl ShardMachine {
    fn begin(&mut self, ballot: Ballot, leader: NodeId, attempt: u64) {
        let state = &mut self.state;
        if (ballot, attempt) < (state.ballot, state.attempt) {
            return;
        }
        let known = if planted!(begins_again_under_its_old_name) { attempt } else { state.attempt };
        if (ballot, attempt) > (state.ballot, known) {
            (state.ballot, state.attempt) = (ballot, attempt);
            (state.epoch, state.index) = (state.epoch + 1, 0);
            state.assigns_above = state.horizon;
        }
        let state = &self.state;
        let decision = |(&txn, decision): (&TxnId, &Decision)| OpenDecision {
            txn,
            fate: decision.fate,
            waits_for: decision.waits_for.iter().copied().collect(),
        };
        let began = Began {
            ballot,
            leader,
            attempt,
            epoch: state.epoch,
            index: state.index,
            assigns_above: state.assigns_above,
            last_commit: state.last_commit,
            due: self.due(),
            prepared: state.prepared.values().cloned().collect(),
            decisions: state.decisions.iter().map(decision).collect(),
            owners: self.owner_states(),
            members: state.members.clone(),
        };
        self.notify(began);
    }

    fn owner_states(&self) -> Vec<OwnerState> {
        let owner = |(&gateway, owner): (&NodeId, &Owner)| OwnerState {
            gateway,
            incarnation: owner.incarnation,
            below: owner.below,
            ended: owner.ended.iter().map(|(&number, &fate)| (number, fate)).collect(),
        };
        self.state.owners.iter().map(owner).collect()
    }

    fn step(&mut self, step: Step) {
        let Step { epoch, index, changes } = step;
        if epoch != self.state.epoch || index != self.state.index + 1 {
            return;
        }
        self.state.index = index;
        for change in changes {
            self.change(change);
        }
        let refused = std::mem::take(&mut self.refused);
        let (safe, collected, due) = (self.safe(), self.state.collected, self.due());
        self.notify(Stepped { epoch, index, refused, safe, collected, due });
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::CommitAlone(change) => {
                if let Some(fate) = self.refuses(change.call) {
                    return self.refuse(change.txn, fate);
                }
                self.check_new(change.t_c);
                self.commit(change.txn, change.call, &change.writes, change.t_c);
                self.end(change.txn, Fate::Committed(change.t_c));
            }
            Change::Prepare(change) => self.prepare(change.prepared),
            Change::Decide(change) => self.decide(change),
            Change::Conclude(change) => self.conclude(change.txn, change.fate),
            Change::Extend(change) => {
                self.state.horizon = self.state.horizon.max(change.horizon).max(change.closed);
                self.state.closed = self.state.closed.max(change.closed);
            }
            Change::Settle(change) => {
                for txn in change.txns {
                    let Some(decision) = self.state.decisions.get_mut(&txn) else { continue };
                    decision.waits_for.remove(&change.by);
                    if decision.waits_for.is_empty() || planted!(settled_by_the_first_participant) {
                        self.state.decisions.remove(&txn);
                    }
                }
            }
            Change::Collect(change) => self.collect(change.below),
            Change::ForgetBelow(change) => self.forget(change.gateway, change.incarnation, change.below),
            Change::Follow(change) => {
                if change.members.version > self.state.members.version {
                    self.state.members = change.members;
                }
            }
        }
    }

    /// A timestamp that a leader has assigned: above all that leaders before it may have promised to readers, and that is closed.
    fn check_new(&self, at: Timestamp) {
        let State { assigns_above, closed, .. } = self.state;
        kernel::invariant!(
            TS,
            at > assigns_above && at > closed,
            "assigned {at}: to be above {assigns_above} and {closed}"
        );
    }

    fn refuses(&self, call: Option<CallRef>) -> Option<Fate> {
        self.state.calls.refuses(call?.key)
    }

    /// The call ended earlier: that is what its gateway is answered, and this attempt has no effect.
    fn refuse(&mut self, txn: TxnId, fate: Fate) {
        self.end(txn, Fate::Aborted);
        self.refused.push((txn, fate));
    }

    fn end(&mut self, txn: TxnId, fate: Fate) {
        let owner = self.state.owners.entry(txn.gateway).or_default();
        if owner.incarnation < txn.incarnation {
            *owner = Owner { incarnation: txn.incarnation, ..Owner::default() };
        }
        if owner.incarnation == txn.incarnation && txn.number >= owner.below {
            owner.ended.insert(txn.number, fate);
        }
    }

    fn commit(&mut self, txn: TxnId, call: Option<CallRef>, writes: &[KeyWrite], at: Timestamp) {
        for write in writes {
            self.keep_for_snapshot(&write.key);
            let writer = (!self.writers.is_empty()).then(|| self.writers.get(&write.key)).flatten();
            kernel::invariant!(
                LOCK,
                writer.is_none_or(|writer| *writer == txn),
                "{txn:?} writes what {writer:?} has prepared to write"
            );
            self.versions.write(write, at);
        }
        if let Some(call) = call {
            self.state.calls.commit(call, at);
        }
        self.state.last_commit =
            if planted!(last_commit_sinks) { at } else { self.state.last_commit.max(at) };
        self.state.horizon = self.state.horizon.max(at);
    }

    fn prepare(&mut self, prepared: PreparedTxn) {
        self.check_new(prepared.t_p);
        for write in &prepared.writes {
            let before = self.writers.insert(Bytes::copy_from_slice(&write.key), prepared.txn);
            kernel::invariant!(
                LOCK,
                before.is_none(),
                "{before:?} and {:?} have prepared one key",
                prepared.txn
            );
        }
        self.state.horizon = self.state.horizon.max(prepared.t_p);
        self.prepared_at.insert((prepared.t_p, prepared.txn));
        let before = self.state.prepared.insert(prepared.txn, prepared.clone());
        kernel::invariant!(ONCE, before.is_none(), "{:?} prepares twice", prepared.txn);
    }

    fn decide(&mut self, change: entry::Decide) {
        let entry::Decide { txn, call, mut fate, writes, participants } = change;
        match fate {
            Fate::Committed(at) => {
                if let Some(earlier) = self.refuses(call) {
                    self.refuse(txn, earlier);
                    fate = Fate::Aborted;
                } else {
                    self.check_new(at);
                    self.commit(txn, call, &writes, at);
                    self.end(txn, fate);
                }
            }
            Fate::Aborted => self.end(txn, fate),
        }
        if !participants.is_empty() {
            let waits_for: BTreeSet<ShardId> = participants.into_iter().collect();
            let known =
                self.state.decisions.entry(txn).or_insert(Decision { fate, waits_for: BTreeSet::new() });
            kernel::invariant!(ATOMIC, known.fate == fate, "{txn:?} is {fate:?}, and was {:?}", known.fate);
            known.waits_for.extend(waits_for);
        }
    }

    fn conclude(&mut self, txn: TxnId, fate: Fate) {
        if let Some(prepared) = self.state.prepared.remove(&txn) {
            self.prepared_at.remove(&(prepared.t_p, txn));
            for write in &prepared.writes {
                self.writers.remove(&write.key);
            }
            if let Fate::Committed(at) = fate {
                kernel::invariant!(
                    TS,
                    at >= prepared.t_p,
                    "{txn:?} commits at {at}, prepared at {}",
                    prepared.t_p
                );
                self.commit(txn, None, &prepared.writes, at);
            }
        } else if fate.committed().is_some() {
            // Notified again: a participant that was never prepared is notified of no commit.
            let ended = self.ended(&txn);
            kernel::invariant!(ATOMIC, ended != Ok(None), "{txn:?} is {fate:?}, and was never prepared here");
        }
        self.end(txn, fate);
    }

    fn collect(&mut self, below: Timestamp) {
        if below <= self.state.collected {
            return;
        }
        self.state.collected = below;
        self.state.calls.collect(below);
        let Self { versions, writing, .. } = self;
        while versions.collect(below, usize::MAX, |versions, key| {
            if let Some(writing) = writing {
                writing.keep(versions, key);
            }
        }) {}
    }

    /// Something goes once this is collected; the greatest timestamp if nothing is to go.
    fn due(&self) -> Timestamp {
        let due = [self.versions.due(), self.state.calls.due()];
        due.into_iter().flatten().min().unwrap_or(Timestamp::MAX)
    }

    fn forget(&mut self, gateway: NodeId, incarnation: u64, below: u64) {
        let owner = self.state.owners.entry(gateway).or_default();
        if owner.incarnation < incarnation {
            *owner = Owner { incarnation, ..Owner::default() };
        }
        if owner.incarnation == incarnation && below > owner.below {
            owner.below = below;
            owner.ended = owner.ended.split_off(&below);
        }
    }

    fn keep_for_snapshot(&mut self, key: &[u8]) {
        if let Some(writing) = &mut self.writing {
            writing.keep(&self.versions, key);
        }
    }
}

/// Answering.
impl ShardMachine {
    fn values(&self, asked: &ValuesAt) -> ReplicaValues {
        let ValuesAt { at, what: ReadSet { keys, scans } } = asked;
        let unknown = self.state.collected;
        if *at < unknown && !planted!(reads_what_is_collected) {
            return ReplicaValues::Collected;
        }
        let mut found =
            FoundValues { rows: Vec::new(), scans: Vec::new(), newest: Timestamp(0), is_short: false };
        let mut bytes = READ_BYTES_MAX;
        for key in keys {
            let row = self.versions.at(key, *at, unknown);
            let size = key.len() + row.value.as_ref().map_or(0, Bytes::len) + ROW_BYTES;
            if size > bytes && !found.rows.is_empty() {
                found.is_short = true;
                return ReplicaValues::Found(found);
            }
            bytes = bytes.saturating_sub(size);
            found.newest = found.newest.max(row.version);
            found.rows.push(row);
        }
        for scan in scans {
            let (rows, newest) = self.versions.scan(scan, *at, &mut bytes);
            found.newest = found.newest.max(newest).max(unknown);
            found.scans.push(rows);
        }
        ReplicaValues::Found(found)
    }
}

impl StateMachine for ShardMachine {
    /// A shard takes entries alone.
    fn apply(&mut self, _command: &[u8], _response: &mut Vec<u8>) {}

    fn apply_entry(&mut self, entry: &Bytes) {
        match Entry::decoded(entry) {
            Ok(Entry::Begin { ballot, leader, attempt }) => self.begin(ballot, leader, attempt),
            Ok(Entry::Step(step)) => self.step(step),
            // Of a version that writes what this one cannot read: hosts refuse each other before that.
            Err(error) => kernel::invariant!(PREFIX, false, "an entry of the shard's log: {error}"),
        }
    }

    fn query(&self, query: &[u8], response: &mut Vec<u8>) {
        match Question::read(query) {
            Ok(Question::ValuesAt(asked)) => self.values(&asked).encode(response),
            Ok(Question::FateOf(FateOf { key })) => self.state.calls.committed(key).encode(response),
            Err(_) => {}
        }
    }

    fn take_notices(&mut self, notices: &mut Vec<(NodeId, Bytes)>) {
        notices.append(&mut self.notices);
    }

    fn begin_snapshot(&mut self) {
        let saved = snapshot::encode_state(self);
        self.writing = Some(Writing::new(saved));
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(mut writing) = self.writing.take() else { return SnapshotStep::Done };
        let step = writing.step(&self.versions, budget, chunk);
        if step == SnapshotStep::More {
            self.writing = Some(writing);
        }
        step
    }

    fn snapshot_bytes(&self) -> u64 {
        self.bytes() as u64
    }

    fn reset(&mut self) {
        let (shard, role) = (self.shard, self.role);
        *self = Self::new(shard, role);
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        if snapshot::install(self, chunk)? {
            let (safe, collected) = (self.safe(), self.state.collected);
            self.notify(Installed { safe, collected });
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        parts::digest(&self.fields()) ^ self.versions.digest()
    }
}
