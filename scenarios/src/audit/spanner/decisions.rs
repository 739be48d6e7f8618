//! Decisions over the shards: a coordinator commits what all participants have prepared, and remembers it until their logs have it.

use ::spanner::{Fate, ShardId, ShardMachine, TxnId};
use kernel::{NodeId, invariant};
use std::collections::{BTreeMap, BTreeSet};

/// What the furthest replica of a shard has had.
#[derive(Debug, Default)]
struct Newest {
    executed: u64,
    prepared: BTreeSet<TxnId>,
    /// Commits, with the participants that have not reported them as logged.
    commits: BTreeMap<TxnId, BTreeSet<ShardId>>,
}

/// The decisions of all shards.
#[derive(Debug, Default)]
pub(super) struct DecisionAudit {
    shards: BTreeMap<ShardId, Newest>,
    /// What was ever prepared.
    prepared: BTreeSet<(ShardId, TxnId)>,
}

impl DecisionAudit {
    /// Looks at a replica that has executed so much. `ended`: whether a shard knows that a transaction has ended.
    pub(super) fn look(
        &mut self,
        id: NodeId,
        executed: u64,
        machine: &ShardMachine,
        ended: impl Fn(ShardId, &TxnId) -> bool,
    ) {
        let shard = machine.shard();
        let before = self.shards.entry(shard).or_default();
        if executed <= before.executed {
            return;
        }
        let prepared: BTreeSet<TxnId> = machine.prepared().map(|prepared| prepared.txn).collect();
        let is_commit = |fate: Fate| fate.committed().is_some();
        let commits: BTreeMap<TxnId, BTreeSet<ShardId>> = machine
            .decisions()
            .filter(|(_, fate, _)| is_commit(*fate))
            .map(|(txn, _, waits_for)| (*txn, waits_for.clone()))
            .collect();
        self.prepared.extend(prepared.iter().map(|txn| (shard, *txn)));
        let before = std::mem::replace(before, Newest { executed, prepared, commits });
        let Some(now) = self.shards.get(&shard) else { return };
        for (txn, waited_for) in &before.commits {
            let waits_for = now.commits.get(txn);
            let settled = waited_for.iter().filter(|it| waits_for.is_none_or(|left| !left.contains(it)));
            for participant in settled {
                let is_open = self.shards.get(participant).is_some_and(|it| it.prepared.contains(txn));
                invariant!(
                    ATOMIC,
                    !is_open,
                    "{id} forgets that {txn:?} was committed, and shard {participant} has it prepared"
                );
            }
        }
        for (txn, waits_for) in now.commits.iter().filter(|(txn, _)| !before.commits.contains_key(txn)) {
            for participant in waits_for {
                let was_prepared = self.prepared.contains(&(*participant, *txn)) || ended(*participant, txn);
                invariant!(
                    ATOMIC,
                    was_prepared,
                    "{id} has committed {txn:?}, and shard {participant} has not prepared it"
                );
            }
        }
    }
}
