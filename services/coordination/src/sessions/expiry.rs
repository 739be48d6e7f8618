//! Which sessions to look at when: a queue by deadline in which each session stands once, however often it is touched.

use crate::wire::ZkSessionId;
use mason::GroupTime;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeMap<GroupTime, Vec<ZkSessionId>>);

impl Deadlines {
    /// Have a look at the session at `when`; its deadline may have moved by then.
    pub(crate) fn queue(&mut self, when: GroupTime, session: ZkSessionId) {
        self.0.entry(when).or_default().push(session);
    }

    /// Those to look at by `now`, in an order that depends on the log alone.
    pub(crate) fn due(&mut self, now: GroupTime) -> Vec<ZkSessionId> {
        let later = self.0.split_off(&now.next());
        let due = std::mem::replace(&mut self.0, later);
        let mut due: Vec<ZkSessionId> = due.into_values().flatten().collect();
        // What a loaded table queues is in another order.
        due.sort_unstable();
        due
    }
}
