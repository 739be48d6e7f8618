//! Which calls of users were committed, so that a call that is sent again is executed once.

use crate::txn::{CallRef, Fate};
use std::collections::{BTreeMap, BTreeSet};
use wire::txn::{CallKey, Timestamp};

/// Sessions that are remembered; the one whose last commit is the oldest leaves first.
const CALL_SESSIONS_MAX: usize = 65_536;
/// Commits of one session that it has not acknowledged; more are refused.
const CALLS_PER_SESSION_MAX: usize = 4_096;

kernel::record! {
    /// What one session has committed and not acknowledged.
    #[derive(Eq)]
    pub(super) struct CallSession {
        session: u64,
        acknowledged: u64,
        committed: Vec<(u64, Timestamp)>,
        last: Timestamp,
    }
}

#[derive(Clone, Debug, Default)]
struct Calls {
    acknowledged: u64,
    committed: BTreeMap<u64, Timestamp>,
    last: Timestamp,
}

/// Commits of all sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct CommittedCalls {
    sessions: BTreeMap<u64, Calls>,
    by_age: BTreeSet<(Timestamp, u64)>,
}

impl CommittedCalls {
    /// When a call was committed, if it was and that is remembered.
    pub(super) fn committed(&self, key: CallKey) -> Option<Timestamp> {
        self.sessions.get(&key.session)?.committed.get(&key.number).copied()
    }

    /// The fate of a call that must not be executed now; none if it is to be.
    pub(super) fn refuses(&self, key: CallKey) -> Option<Fate> {
        let calls = self.sessions.get(&key.session)?;
        if let Some(at) = calls.committed.get(&key.number) {
            return Some(Fate::Committed(*at));
        }
        // Of an acknowledged one nobody waits for the answer.
        let refused = key.number < calls.acknowledged || calls.committed.len() >= CALLS_PER_SESSION_MAX;
        refused.then_some(Fate::Aborted)
    }

    /// A call is committed.
    pub(super) fn commit(&mut self, call: CallRef, at: Timestamp) {
        let CallRef { key, acknowledged } = call;
        let calls = self.sessions.entry(key.session).or_default();
        self.by_age.remove(&(calls.last, key.session));
        calls.last = calls.last.max(at);
        self.by_age.insert((calls.last, key.session));
        if acknowledged > calls.acknowledged {
            calls.acknowledged = acknowledged;
            calls.committed = calls.committed.split_off(&acknowledged);
        }
        calls.committed.insert(key.number, at);
        if self.sessions.len() > CALL_SESSIONS_MAX
            && let Some((_, session)) = self.by_age.pop_first()
        {
            self.sessions.remove(&session);
        }
    }

    /// Sessions whose last commit was before are over.
    pub(super) fn collect(&mut self, below: Timestamp) {
        while let Some(&(last, session)) = self.by_age.first()
            && last < below
        {
            self.by_age.pop_first();
            self.sessions.remove(&session);
        }
    }

    /// A session is over once this is collected; none if there is none.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.by_age.first().map(|(last, _)| last.plus(1))
    }

    pub(super) fn save(&self) -> Vec<CallSession> {
        let session = |(&session, calls): (&u64, &Calls)| CallSession {
            session,
            acknowledged: calls.acknowledged,
            committed: calls.committed.iter().map(|(&number, &at)| (number, at)).collect(),
            last: calls.last,
        };
        self.sessions.iter().map(session).collect()
    }

    pub(super) fn load(saved: Vec<CallSession>) -> Self {
        let mut loaded = Self::default();
        for CallSession { session, acknowledged, committed, last } in saved {
            loaded.by_age.insert((last, session));
            let committed = committed.into_iter().collect();
            loaded.sessions.insert(session, Calls { acknowledged, committed, last });
        }
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A commit that is executed again because its answer was lost takes money twice.
    #[test]
    fn a_call_is_committed_once() {
        let mut calls = CommittedCalls::default();
        let key = |number| CallKey { session: 7, number };
        let call = |number, acknowledged| CallRef { key: key(number), acknowledged };
        assert_eq!(calls.refuses(key(3)), None);
        calls.commit(call(3, 0), Timestamp(10));
        assert_eq!(calls.refuses(key(3)), Some(Fate::Committed(Timestamp(10))));
        calls.commit(call(5, 4), Timestamp(20));
        assert_eq!((calls.committed(key(3)), calls.refuses(key(3))), (None, Some(Fate::Aborted)));
        assert_eq!(calls.refuses(key(4)), None, "it may have waited longer than the one after it");
        let again = CommittedCalls::load(calls.save());
        assert_eq!(again.refuses(key(5)), Some(Fate::Committed(Timestamp(20))));
        calls.collect(Timestamp(20));
        assert_eq!((calls.committed(key(5)), calls.due()), (Some(Timestamp(20)), Some(Timestamp(21))));
        calls.collect(Timestamp(21));
        assert_eq!((calls.committed(key(5)), calls.due()), (None, None));
    }
}
