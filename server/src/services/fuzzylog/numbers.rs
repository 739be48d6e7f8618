//! Names for the appends of users who do not name theirs: the host is their client, and numbers them.

use crate::unique::unique_number;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Appends of one client that have no answer: an engine's partition remembers no more.
const IN_FLIGHT_MAX: u64 = 1_024;

/// The numbers of one host's client, which is another one after every start.
#[derive(Debug)]
pub(super) struct Numbers {
    client: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    in_flight: BTreeSet<u64>,
}

/// A number in use. What is dropped has its answer, or nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Numbered<'a> {
    of: &'a Numbers,
    /// The client.
    pub(super) client: u64,
    /// The number.
    pub(super) number: u64,
    /// All numbers below have their answers.
    pub(super) below: u64,
}

impl Numbers {
    /// Those of a client that nobody else is.
    pub(super) fn drawn() -> Self {
        Self { client: unique_number(), inner: Mutex::new(Inner { next: 1, in_flight: BTreeSet::new() }) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next number; none while too many are in use.
    pub(super) fn next(&self) -> Option<Numbered<'_>> {
        let mut inner = self.inner();
        let number = inner.next;
        let below = inner.in_flight.first().copied().unwrap_or(number);
        if number - below >= IN_FLIGHT_MAX {
            return None;
        }
        inner.next += 1;
        inner.in_flight.insert(number);
        Some(Numbered { of: self, client: self.client, number, below })
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        self.of.inner().in_flight.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A number that is said to be answered while it is not may be executed twice, or never.
    #[test]
    fn numbers_are_said_to_be_answered_when_they_are() {
        let numbers = Numbers::drawn();
        let first = numbers.next().expect("one");
        let second = numbers.next().expect("two");
        assert_eq!((first.number, first.below, second.number, second.below), (1, 1, 2, 1));
        drop(second);
        let third = numbers.next().expect("three");
        assert_eq!((third.number, third.below), (3, 1));
        drop(first);
        assert_eq!(numbers.next().map(|it| (it.number, it.below)), Some((4, 3)));
    }

    // A partition refuses what is too far above; the caller is to be refused before.
    #[test]
    fn too_many_at_once_are_refused() {
        let numbers = Numbers::drawn();
        let mut held: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| numbers.next().expect("there is room")).collect();
        assert!(numbers.next().is_none());
        held.remove(0);
        assert!(numbers.next().is_some());
    }
}
