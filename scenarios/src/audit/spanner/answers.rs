//! What gateways are answered of data. An answer at a timestamp shows all that is ever committed at or before it, but for what it says that
//! it has skipped; whether the leader that gave it was still one, and whatever leaders come after it.

use super::leaders::true_time;
use ::spanner::machine::entry::{FoundValues, ReplicaValues};
use ::spanner::messages::gateway::{Ended, FastReply, LockedValues, SkippedTxn};
use ::spanner::messages::shard::{ReadAt, ReadReplica};
use ::spanner::{Fate, ReadSet, ShardId, ShardMachine, TxnId};
use kernel::{Bytes, Decode, NodeId, invariant};
use std::collections::BTreeMap;
use wire::txn::{KeyRow, KeyWrite, Timestamp};

/// A read that was asked of a shard.
#[derive(Clone, Debug)]
struct Asked {
    t_read: Timestamp,
    t_min: Timestamp,
    of_leader: bool,
    what: ReadSet,
}

/// What a shard has answered.
#[derive(Clone, Debug)]
struct Given {
    from: NodeId,
    shard: ShardId,
    asked: Asked,
    found: FoundValues,
    skipped: Vec<SkippedTxn>,
}

/// All answers of a run.
#[derive(Debug, Default)]
pub(super) struct Answers {
    asked: BTreeMap<(NodeId, u64, ShardId), Asked>,
    given: Vec<Given>,
    /// How transactions ended, and the least earliest end that was said of them.
    ended: BTreeMap<TxnId, (Timestamp, Timestamp)>,
}

/// What was committed, by key: the versions at or below a timestamp, the newest first.
pub(crate) trait Committed {
    /// The versions of a key.
    fn versions(&self, key: &[u8], at: Timestamp) -> Vec<Timestamp>;
    /// Keys of a range that a shard has or ever had.
    fn keys(&self, shard: ShardId, range: &wire::txn::KeyRange) -> Vec<Bytes>;
}

impl Answers {
    pub(super) fn on_read_at(&mut self, shard: ShardId, message: &ReadAt) {
        let ReadAt { gateway, id, t_read, t_min, what, .. } = message.clone();
        let asked = Asked { t_read, t_min, of_leader: true, what };
        self.asked.insert((gateway, id, shard), asked);
    }

    pub(super) fn on_read_replica(&mut self, shard: ShardId, message: &ReadReplica) {
        let ReadReplica { gateway, id, at, what } = message.clone();
        let asked = Asked { t_read: at, t_min: Timestamp(0), of_leader: false, what };
        self.asked.insert((gateway, id, shard), asked);
    }

    pub(super) fn on_ended(&mut self, message: &Ended) {
        if let Fate::Committed(t_c) = message.fate {
            let known = self.ended.entry(message.txn).or_insert((t_c, message.t_ee));
            known.1 = message.t_ee.min(known.1);
        }
    }

    /// A shard answers a read. `now`: the time, where clocks can be relied on.
    pub(super) fn on_answer(
        &mut self,
        (from, to): (NodeId, NodeId),
        message: &FastReply,
        machine: Option<&ShardMachine>,
        now: Option<u64>,
    ) {
        let Ok(ReplicaValues::Found(found)) = ReplicaValues::decoded(&message.values) else { return };
        // What was skipped may be there and not have passed: the gateway awaits its end.
        check_found(from, &found, now.filter(|_| message.skipped.is_empty()));
        let Some(asked) = self.asked.get(&(to, message.id, message.shard)) else { return };
        if let Some(machine) = machine {
            let may_serve = if asked.of_leader { machine.horizon() } else { safe(machine) };
            invariant!(
                TS,
                asked.t_read <= may_serve,
                "{from} answers a read at {}, and its log lets it serve {may_serve}",
                asked.t_read
            );
        }
        let (shard, asked, skipped) = (message.shard, asked.clone(), message.skipped.clone());
        self.given.push(Given { from, shard, asked, found, skipped });
    }

    /// All answers, when it is known what was committed.
    pub(super) fn check(&self, committed: &impl Committed) {
        for given in &self.given {
            for row in &given.found.rows {
                given.check_row(row, committed);
            }
            given.check_scans(committed);
            for skipped in &given.skipped {
                if let Some((t_c, t_ee)) = self.ended.get(&skipped.txn) {
                    given.check_skipped(skipped, *t_c, *t_ee);
                }
            }
        }
    }
}

/// How far a replica may be read: below what is prepared, and not beyond what is closed.
fn safe(machine: &ShardMachine) -> Timestamp {
    let prepared = machine.prepared().map(|prepared| prepared.t_p.before()).min();
    machine.closed().min(prepared.unwrap_or(Timestamp::MAX))
}

/// What is shown has passed, and the newest of it is said to be.
fn check_found(from: NodeId, found: &FoundValues, now: Option<u64>) {
    let rows = found.rows.iter().chain(found.scans.iter().flat_map(|scan| &scan.rows));
    for KeyRow { key, version, .. } in rows {
        invariant!(
            TOKEN,
            *version <= found.newest,
            "{from} shows {key:?} of {version}, and says that nothing is newer than {}",
            found.newest
        );
    }
    if let Some(now) = now {
        let newest = found.newest;
        invariant!(
            CW,
            true_time(newest) < now,
            "{from} shows what was committed at {newest}, which has not passed"
        );
    }
}

/// What a gateway is shown under locks.
pub(super) fn check_locked(from: NodeId, message: &LockedValues, now: Option<u64>) {
    if let Ok(ReplicaValues::Found(found)) = ReplicaValues::decoded(&message.values) {
        check_found(from, &found, now);
    }
}

impl Given {
    fn check_row(&self, row: &KeyRow, committed: &impl Committed) {
        let writes = |write: &&KeyWrite| write.key == row.key;
        let skipped = self.skipped.iter().flat_map(|skipped| &skipped.writes).filter(writes).count();
        let versions = committed.versions(&row.key, self.asked.t_read);
        let missing: Vec<&Timestamp> =
            versions.iter().take_while(|version| **version > row.version).collect();
        invariant!(
            SNAP,
            missing.len() <= skipped,
            "{} answered a read at {} with {:?} of {}: {missing:?} were committed before, and {skipped} skipped",
            self.from,
            self.asked.t_read,
            row.key,
            row.version
        );
    }

    /// Scans skip nothing: what they have not found is not there, and they say how new the deletions are that they have looked at.
    fn check_scans(&self, committed: &impl Committed) {
        for (scan, found) in self.asked.what.scans.iter().zip(&self.found.scans) {
            for key in committed.keys(self.shard, &scan.range) {
                if found.next.as_ref().is_some_and(|next| *next <= key) {
                    continue;
                }
                let newest = committed.versions(&key, self.asked.t_read).first().copied().unwrap_or_default();
                let row = found.rows.iter().find(|row| row.key == key);
                let shown = row.map_or(self.found.newest, |row| row.version);
                invariant!(
                    SNAP,
                    newest <= shown,
                    "{} answered a scan at {}, and says that it has seen {key:?} of {shown}, which was written at {newest}",
                    self.from,
                    self.asked.t_read
                );
            }
        }
    }

    /// What was skipped is neither what the reader's session may have seen, nor can it have ended when the read began.
    fn check_skipped(&self, skipped: &SkippedTxn, t_c: Timestamp, t_ee: Timestamp) {
        let (t_read, t_min) = (self.asked.t_read, self.asked.t_min);
        invariant!(
            SNAP,
            t_c > t_min && t_c >= skipped.t_p,
            "{} let a reader that had seen {t_min} skip {:?}, prepared at {}, which is committed at {t_c}",
            self.from,
            skipped.txn,
            skipped.t_p
        );
        invariant!(
            TEE,
            t_ee > t_read,
            "{} let a read at {t_read} skip {:?}, which may have ended at {t_ee}",
            self.from,
            skipped.txn
        );
    }
}
