//! What a leader knows beside its log, held against what the log says on the same host. It is looked at when the leader knows of every step
//! that its host's replica has applied.

use ::spanner::ShardMachine;
use ::spanner::shard::{LeaderKnowledge, SpannerShard};
use kernel::{NodeId, invariant};
use sim::WALL_EPOCH;
use wire::txn::Timestamp;

/// A timestamp as true time has it, in nanoseconds of the run.
pub(crate) fn true_time(at: Timestamp) -> u64 {
    at.0.saturating_mul(1_000).saturating_sub(WALL_EPOCH)
}

/// Looks at a shard's role and its replica on the same host. `is_new`: the replica has executed something since it was looked at last.
/// `now`: the time, where clocks can be relied on.
pub(super) fn check(id: NodeId, role: &SpannerShard, machine: &ShardMachine, is_new: bool, now: Option<u64>) {
    let Some(knows) = role.knowledge() else { return };
    let both = knows.conflict();
    invariant!(LOCK, both.is_none(), "{id}: {both:?} hold locks that conflict");
    if machine.position() != knows.position() {
        return;
    }
    for prepared in machine.prepared() {
        invariant!(LOCK, knows.holds_prepared(prepared), "{id} leads, and does not hold {prepared:?}");
    }
    // What is on its way to the log may be that they are forgotten.
    for (txn, fate, _) in machine.decisions().filter(|_| knows.is_at_rest()) {
        let known = knows.decision(txn);
        invariant!(
            ATOMIC,
            known == Some(fate),
            "{id}: its log sends {fate:?} of {txn:?} to participants, and its leader {known:?}"
        );
    }
    for (txn, fate) in machine.ends().filter(|_| is_new) {
        invariant!(
            ONCE,
            knows.is_over(&txn),
            "{id}: {txn:?} is {fate:?}, and its leader would go on with it"
        );
    }
    let (closed, above) = (machine.closed(), knows.assigns_above());
    invariant!(TS, above >= closed, "{id} may assign what is above {above}, and {closed} is closed");
    let read = knows.latest_read();
    invariant!(
        TS,
        read.is_none_or(|read| read <= above),
        "{id} may assign what is above {above}, and has begun a read at {read:?}"
    );
    if let Some(now) = now {
        check_time(id, &knows, machine, now);
    }
}

/// Nothing that a leader before has committed is shown before its timestamp has passed, and what it has committed itself is locked until then.
fn check_time(id: NodeId, knows: &LeaderKnowledge<'_>, machine: &ShardMachine, now: u64) {
    let before = knows.last_before();
    invariant!(CW, true_time(before) < now, "{id} serves, and {before} was committed before it began");
    if true_time(machine.last_commit()) < now {
        return;
    }
    for (key, history) in machine.all() {
        let last = history.last().map_or(Timestamp(0), |version| version.at);
        invariant!(
            CW,
            true_time(last) < now || knows.writer(key).is_some(),
            "{id} has {key:?} unlocked, which was written at {last}: that has not passed"
        );
    }
}
