//! Names for the appends of users who do not name theirs: the host is their client, and numbers them.

use crate::unique::unique_number;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Appends of one client that have no answer: an engine's partition remembers no more.
const IN_FLIGHT_MAX: u64 = 1_024;

/// The numbers of one host's client, which is another one after every start.
#[derive(Debug)]
pub(super) struct Numbers(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    client: u64,
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
        Self(Mutex::new(Inner { client: unique_number(), next: 1, in_flight: BTreeSet::new() }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        Some(Numbered { of: self, client: inner.client, number, below })
    }
}

impl Numbered<'_> {
    /// What it names may still be executed, and nobody waits for it any more: the host must not say that it has the answer, so it goes on as
    /// another client.
    pub(super) fn give_up(self) {
        let mut inner = self.of.inner();
        if inner.client == self.client {
            *inner = Inner { client: unique_number(), next: 1, in_flight: BTreeSet::new() };
        }
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        let mut inner = self.of.inner();
        if inner.client == self.client {
            inner.in_flight.remove(&self.number);
        }
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

    // An append that nobody has the answer to, and that the host says it has, stays unfinished in some of its colours.
    #[test]
    fn the_host_is_another_client_after_an_append_without_an_answer() {
        let numbers = Numbers::drawn();
        let first = numbers.next().expect("one");
        let (client, second) = (first.client, numbers.next().expect("two"));
        first.give_up();
        let other = numbers.next().expect("three");
        assert!(other.client != client && (other.number, other.below) == (1, 1));
        drop(second);
        second_of(&numbers, other.client);
        drop(other);
        assert_eq!(numbers.next().map(|it| (it.number, it.below)), Some((3, 3)));
    }

    /// Another one of the same client, while the first has no answer.
    fn second_of(numbers: &Numbers, client: u64) {
        let second = numbers.next().expect("a number");
        assert_eq!((second.client, second.number, second.below), (client, 2, 1));
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
