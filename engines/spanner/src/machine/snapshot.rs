//! Snapshots of a shard: its state in pieces, then its keys in pages, as they were when the snapshot began.

use super::calls::{CallSession, CommittedCalls};
use super::versions::{KeyVersion, Versions};
use super::{Decision, Owner, ShardMachine, State};
use crate::messages::shard::{OpenDecision, OwnerState};
use crate::txn::PreparedTxn;
use kernel::{Bytes, Decode, DecodeError, Encode, Reader, SnapshotStep, planted};
use parts::Ballot;
use paxos::Members;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use wire::txn::Timestamp;

const PIECE_CHUNK: u8 = 1;
const LAST_PIECE_CHUNK: u8 = 2;
const KEYS_CHUNK: u8 = 3;

kernel::record! {
    /// The state as it is written.
    struct SavedState {
        ballot: Ballot,
        attempt: u64,
        epoch: u64,
        index: u64,
        horizon: Timestamp,
        assigns_above: Timestamp,
        closed: Timestamp,
        last_commit: Timestamp,
        collected: Timestamp,
        prepared: Vec<PreparedTxn>,
        decisions: Vec<OpenDecision>,
        owners: Vec<OwnerState>,
        calls: Vec<CallSession>,
        members: Members,
    }
}

pub(super) fn encode_state(machine: &ShardMachine) -> Vec<u8> {
    let state = &machine.state;
    let decision = |(&txn, decision): (&_, &Decision)| OpenDecision {
        txn,
        fate: decision.fate,
        waits_for: decision.waits_for.iter().copied().collect(),
    };
    SavedState {
        ballot: state.ballot,
        attempt: state.attempt,
        epoch: state.epoch,
        index: state.index,
        horizon: state.horizon,
        assigns_above: state.assigns_above,
        closed: state.closed,
        last_commit: state.last_commit,
        collected: state.collected,
        prepared: state.prepared.values().cloned().collect(),
        decisions: state.decisions.iter().map(decision).collect(),
        owners: machine.owner_states(),
        calls: state.calls.save(),
        members: state.members.clone(),
    }
    .encoded()
}

fn load_state(machine: &mut ShardMachine, saved: SavedState) {
    let mut state = State {
        ballot: saved.ballot,
        attempt: saved.attempt,
        epoch: saved.epoch,
        index: saved.index,
        horizon: saved.horizon,
        assigns_above: saved.assigns_above,
        closed: saved.closed,
        last_commit: saved.last_commit,
        collected: saved.collected,
        prepared: saved.prepared.into_iter().map(|prepared| (prepared.txn, prepared)).collect(),
        decisions: BTreeMap::new(),
        owners: BTreeMap::new(),
        calls: CommittedCalls::load(saved.calls),
        members: saved.members,
    };
    for OpenDecision { txn, fate, waits_for } in saved.decisions {
        state.decisions.insert(txn, Decision { fate, waits_for: waits_for.into_iter().collect() });
    }
    for OwnerState { gateway, incarnation, below, ended } in saved.owners {
        let ended = ended.into_iter().collect();
        state.owners.insert(gateway, Owner { incarnation, below, ended });
    }
    if planted!(outcomes_not_in_snapshot) {
        state.calls = CommittedCalls::default();
        state.owners.clear();
    }
    for prepared in state.prepared.values() {
        machine.prepared_at.insert((prepared.t_p, prepared.txn));
        let keys = prepared.writes.iter().map(|write| Bytes::copy_from_slice(&write.key));
        machine.writers.extend(keys.map(|key| (key, prepared.txn)));
    }
    machine.state = state;
}

/// A snapshot that is being written.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    state: Vec<u8>,
    taken: usize,
    /// All keys up to this one are written; none before the state is.
    after: Option<Bytes>,
    /// What keys had that have changed since, and are not written yet.
    retained: BTreeMap<Bytes, Vec<KeyVersion>>,
    /// What is left of the last key that was begun.
    rest: VecDeque<(Bytes, KeyVersion)>,
}

impl Writing {
    pub(super) fn new(state: Vec<u8>) -> Self {
        Self { state, taken: 0, after: None, retained: BTreeMap::new(), rest: VecDeque::new() }
    }

    /// A key is about to change.
    pub(super) fn keep(&mut self, versions: &Versions, key: &[u8]) {
        let is_written = match &self.after {
            Some(after) if planted!(snapshot_has_a_key_twice) => key < &after[..],
            Some(after) => key <= &after[..],
            None => false,
        };
        if !is_written && !self.retained.contains_key(key) {
            let history = versions.history(key).unwrap_or_default().to_vec();
            self.retained.insert(Bytes::copy_from_slice(key), history);
        }
    }

    pub(super) fn step(&mut self, versions: &Versions, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let left = &self.state[self.taken..];
        if !left.is_empty() {
            let count = left.len().min(budget.max(1));
            self.taken += count;
            chunk.push(if count == left.len() { LAST_PIECE_CHUNK } else { PIECE_CHUNK });
            chunk.extend_from_slice(&left[..count]);
            return SnapshotStep::More;
        }
        chunk.push(KEYS_CHUNK);
        let before = chunk.len();
        while chunk.len() - before < budget.max(1) {
            if let Some((key, version)) = self.rest.pop_front() {
                key.encode(chunk);
                version.encode(chunk);
            } else if !self.begin_key(versions) {
                return SnapshotStep::Done;
            }
        }
        SnapshotStep::More
    }

    /// Goes on to the next key, as it was when the snapshot began; false if there is none.
    fn begin_key(&mut self, versions: &Versions) -> bool {
        let first = self.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let stored = versions.from(first).next();
        let retained = self.retained.first_key_value().map(|(key, _)| key);
        let takes_retained =
            retained.is_some_and(|retained| stored.is_none_or(|(stored, _)| retained <= stored));
        if takes_retained && let Some((key, history)) = self.retained.pop_first() {
            self.rest.extend(history.into_iter().map(|version| (key.clone(), version)));
            self.after = Some(key);
        } else if let Some((key, history)) = stored {
            self.rest.extend(history.iter().map(|version| (key.clone(), version.clone())));
            self.after = Some(key.clone());
        } else {
            return false;
        }
        true
    }
}

/// True if the state is whole with this chunk.
pub(super) fn install(machine: &mut ShardMachine, chunk: &[u8]) -> Result<bool, DecodeError> {
    let (&kind, rest) = chunk.split_first().ok_or(DecodeError::Truncated)?;
    match kind {
        PIECE_CHUNK => machine.installing.extend_from_slice(rest),
        LAST_PIECE_CHUNK => {
            machine.installing.extend_from_slice(rest);
            let whole = std::mem::take(&mut machine.installing);
            load_state(machine, SavedState::decoded(&whole.into())?);
            return Ok(true);
        }
        KEYS_CHUNK => {
            let mut input = Reader::new(Bytes::copy_from_slice(rest));
            while input.remaining() > 0 {
                let key = Bytes::decode(&mut input)?;
                let mut version = KeyVersion::decode(&mut input)?;
                version.value = version.value.map(|value| Bytes::copy_from_slice(&value));
                machine.versions.add(&key, version);
            }
        }
        kind => return Err(DecodeError::UnknownTag("chunk of a shard's snapshot", kind)),
    }
    Ok(false)
}
