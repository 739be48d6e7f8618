//! Names for the appends of users who do not name theirs: the host is their client, and numbers them.

use crate::unique::unique_number;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::fuzzylog::NumberedBy;

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

/// A number in use, until it is said to be answered. If that is never said, what it names may still be executed: the host goes on as another
/// client, which cannot say that it has the answer.
#[derive(Debug)]
pub(super) struct Numbered<'a> {
    of: &'a Numbers,
    by: NumberedBy,
    is_answered: bool,
}

impl Inner {
    fn drawn() -> Self {
        Self { client: unique_number(), next: 1, in_flight: BTreeSet::new() }
    }
}

impl Numbers {
    /// Those of a client that nobody else is.
    pub(super) fn drawn() -> Self {
        Self(Mutex::new(Inner::drawn()))
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
        let by = NumberedBy { client: inner.client, number, below };
        Some(Numbered { of: self, by, is_answered: false })
    }
}

impl Numbered<'_> {
    /// The client, its number, and below which one all have their answers.
    pub(super) fn by(&self) -> NumberedBy {
        self.by
    }

    /// It was executed, or surely not.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Numbered<'_> {
    fn drop(&mut self) {
        let mut inner = self.of.inner();
        if inner.client != self.by.client {
            return;
        }
        if self.is_answered {
            inner.in_flight.remove(&self.by.number);
        } else {
            *inner = Inner::drawn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(numbers: &Numbers) -> Numbered<'_> {
        numbers.next().expect("there is room")
    }

    fn counts(numbered: &Numbered<'_>) -> (u64, u64) {
        (numbered.by().number, numbered.by().below)
    }

    // A number that is said to be answered while it is not may be executed twice, or never.
    #[test]
    fn numbers_are_said_to_be_answered_when_they_are() {
        let numbers = Numbers::drawn();
        let (first, second) = (next(&numbers), next(&numbers));
        assert_eq!((counts(&first), counts(&second)), ((1, 1), (2, 1)));
        second.answered();
        let third = next(&numbers);
        assert_eq!(counts(&third), (3, 1));
        first.answered();
        assert_eq!(counts(&next(&numbers)), (4, 3));
    }

    // An append that nobody has the answer to, and that the host says it has, stays unfinished in some of its colours. Its caller may have
    // hung up: then nobody says anything.
    #[test]
    fn the_host_is_another_client_after_an_append_without_an_answer() {
        let numbers = Numbers::drawn();
        let (first, second) = (next(&numbers), next(&numbers));
        let client = first.by().client;
        drop(first);
        let other = next(&numbers);
        assert_ne!(other.by().client, client);
        assert_eq!(counts(&other), (1, 1));
        // One of the client before changes nothing, whatever comes of it.
        second.answered();
        let another = next(&numbers);
        assert_eq!((another.by().client, counts(&another)), (other.by().client, (2, 1)));
        other.answered();
        assert_eq!(counts(&next(&numbers)), (3, 2));
    }

    // A partition refuses what is too far above; the caller is to be refused before.
    #[test]
    fn too_many_at_once_are_refused() {
        let numbers = Numbers::drawn();
        let mut held: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| numbers.next().expect("there is room")).collect();
        assert!(numbers.next().is_none());
        held.remove(0).answered();
        assert!(numbers.next().is_some());
    }
}
