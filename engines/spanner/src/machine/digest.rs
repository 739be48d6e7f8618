//! What replicas must have alike, in bytes.

use super::{Decision, Owner, ShardMachine, State};
use kernel::Encode as _;

impl ShardMachine {
    /// Every field of the state, and what is derived from it: what a snapshot leaves out is missed when it is read back.
    pub(super) fn fields(&self) -> Vec<u8> {
        let State {
            ballot,
            attempt,
            epoch,
            index,
            horizon,
            assigns_above,
            closed,
            last_commit,
            collected,
            prepared,
            decisions,
            owners,
            calls,
            members,
        } = &self.state;
        let mut out = Vec::with_capacity(512);
        ballot.encode(&mut out);
        for number in [attempt, epoch, index] {
            number.encode(&mut out);
        }
        for at in [horizon, assigns_above, closed, last_commit, collected] {
            at.encode(&mut out);
        }
        prepared.values().for_each(|prepared| prepared.encode(&mut out));
        for (txn, Decision { fate, waits_for }) in decisions {
            txn.encode(&mut out);
            fate.encode(&mut out);
            waits_for.iter().for_each(|shard| shard.encode(&mut out));
        }
        for (gateway, Owner { incarnation, below, ended }) in owners {
            (*gateway, *incarnation).encode(&mut out);
            below.encode(&mut out);
            ended.iter().for_each(|(number, fate)| {
                number.encode(&mut out);
                fate.encode(&mut out);
            });
        }
        calls.save().encode(&mut out);
        members.encode(&mut out);
        for (key, txn) in &self.writers {
            key.encode(&mut out);
            txn.encode(&mut out);
        }
        for (t_p, txn) in &self.prepared_at {
            t_p.encode(&mut out);
            txn.encode(&mut out);
        }
        out
    }
}
