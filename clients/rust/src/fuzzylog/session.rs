//! What a session knows: what it has seen, and which of its appends have no answer.

use crate::calls::drawn;
use kernel::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use wire::fuzzylog::{NUMBERS_MAX, NewNode, NumberedBy, SeenTime};

/// A session of the partially ordered log.
#[derive(Debug)]
pub(super) struct Session {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug)]
struct State {
    seen: SeenTime,
    /// Among several regions: the one that it is of, and how far it has played each colour there.
    region: Option<Bytes>,
    played: BTreeMap<String, u64>,
    /// What its appends are called by.
    client: u64,
    next: u64,
    /// Numbers without an answer.
    open: BTreeSet<u64>,
}

impl Session {
    pub(super) fn new() -> Self {
        let (region, played, open) = (None, BTreeMap::new(), BTreeSet::new());
        let state = State { seen: SeenTime::default(), region, played, client: drawn(), next: 1, open };
        Self { state: Mutex::new(state), answered: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seen(&self) -> SeenTime {
        self.state().seen
    }

    pub(super) fn absorb(&self, seen: SeenTime) {
        let mut state = self.state();
        state.seen = state.seen.max(seen);
    }

    /// It plays in this region. False if it has played in another one: positions there mean nothing here.
    pub(super) fn plays_in(&self, region: &Bytes) -> bool {
        *self.state().region.get_or_insert_with(|| region.clone()) == *region
    }

    /// The region that it has played in.
    pub(super) fn region(&self) -> Option<Bytes> {
        self.state().region.clone()
    }

    /// True if there are several regions, as far as it knows.
    pub(super) fn is_among_regions(&self) -> bool {
        self.state().region.is_some()
    }

    /// It has played a colour so far.
    pub(super) fn has_played(&self, colour: &str, next: u64) {
        let mut state = self.state();
        if let Some(played) = state.played.get_mut(colour) {
            *played = next.max(*played);
        } else {
            state.played.insert(colour.to_owned(), next);
        }
    }

    /// How far it has played these colours; none if there are no other regions, or nothing was played.
    pub(super) fn played_of(&self, nodes: &[NewNode]) -> Option<Vec<Vec<u64>>> {
        let state = self.state();
        state.region.as_ref()?;
        let of = |colour: &Bytes| {
            std::str::from_utf8(colour).ok().and_then(|colour| state.played.get(colour)).copied().unwrap_or(0)
        };
        let played: Vec<Vec<u64>> = nodes.iter().map(|node| node.colours.iter().map(of).collect()).collect();
        played.iter().flatten().any(|played| *played > 0).then_some(played)
    }

    /// The next `count` numbers; waits while too many have no answer.
    pub(super) async fn numbers(&self, count: u64) -> NumberedBy {
        loop {
            let answered = self.answered.notified();
            if let Some(by) = self.try_numbers(count) {
                return by;
            }
            answered.await;
        }
    }

    fn try_numbers(&self, count: u64) -> Option<NumberedBy> {
        let mut state = self.state();
        let number = state.next;
        let below = state.open.first().copied().unwrap_or(number);
        if number + count - below > NUMBERS_MAX {
            return None;
        }
        state.next += count;
        state.open.extend(number..number + count);
        Some(NumberedBy { client: state.client, number, below })
    }

    /// The answers to `count` numbers are there.
    pub(super) fn answered(&self, by: NumberedBy, count: u64) {
        let mut state = self.state();
        if state.client == by.client {
            (by.number..by.number + count).for_each(|number| {
                state.open.remove(&number);
            });
        }
        drop(state);
        self.answered.notify_waiters();
    }

    /// What `by` names may still be executed, and nobody waits for it any more: its client must not say that it has the answer, so the
    /// session goes on as another one.
    pub(super) fn given_up(&self, by: NumberedBy) {
        let mut state = self.state();
        if state.client == by.client {
            (state.client, state.next) = (drawn(), 1);
            state.open.clear();
        }
        drop(state);
        self.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A number that is said to be answered while it is not is never executed, or leaves an append unfinished.
    #[tokio::test]
    async fn numbers_are_acknowledged_when_their_answers_are_there() {
        let session = Session::new();
        let first = session.numbers(1).await;
        let two = session.numbers(2).await;
        assert_eq!((first.number, first.below, two.number, two.below), (1, 1, 2, 1));
        session.answered(two, 2);
        let next = session.numbers(1).await;
        assert_eq!((next.number, next.below), (4, 1));
        session.answered(first, 1);
        assert_eq!(session.numbers(1).await.below, 4);
        session.given_up(next);
        let other = session.numbers(1).await;
        assert_ne!(other.client, first.client);
        assert_eq!((other.number, other.below), (1, 1));
        session.answered(next, 1);
        assert_eq!(session.numbers(1).await.below, 1, "an answer to another client's number");
    }

    // A host refuses what is too far above what is answered.
    #[tokio::test]
    async fn too_many_without_answers_wait() {
        let session = Session::new();
        let first = session.numbers(NUMBERS_MAX - 1).await;
        let last = session.numbers(1).await;
        assert!(session.try_numbers(1).is_none());
        session.answered(last, 1);
        assert!(session.try_numbers(1).is_none());
        session.answered(first, NUMBERS_MAX - 1);
        assert!(session.try_numbers(1).is_some());
    }
}
