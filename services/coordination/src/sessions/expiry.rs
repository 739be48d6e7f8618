//! Which sessions to look at when: a queue by deadline in which each session stands once, however often it is touched.

use crate::wire::ZkSessionId;
use mason::GroupTime;
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(GroupTime, ZkSessionId)>);

impl Deadlines {
    /// Have a look at the session at `when`; its deadline may be later by then.
    pub(crate) fn queue(&mut self, when: GroupTime, session: ZkSessionId) {
        self.0.insert((when, session));
    }

    /// Have none at `when`.
    pub(crate) fn remove(&mut self, when: GroupTime, session: ZkSessionId) {
        self.0.remove(&(when, session));
    }

    /// Those to look at by `now`, in an order that depends on the log alone.
    pub(crate) fn due(&mut self, now: GroupTime) -> Vec<ZkSessionId> {
        let later = self.0.split_off(&(now.next(), ZkSessionId(0)));
        let due = std::mem::replace(&mut self.0, later);
        let mut due: Vec<ZkSessionId> = due.into_iter().map(|(_, session)| session).collect();
        // What a loaded table queues is in another order. One that went to another group and came back may stand twice.
        due.sort_unstable();
        due.dedup();
        due
    }
}
