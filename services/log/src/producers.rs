//! Who has appended what to the logs of a space, so that what is sent again is not appended again (Kafka's idempotent producers).
//!
//! A producer numbers its entries for each log from 0. An append is taken if it begins where the producer's last one ended; one of its
//! latest [`APPENDS_MAX`] is recognized and answered as it was. Bounded: of the least recently seen producers nothing is retained.

use crate::wire::SEQUENCES;
use kernel::Recount;
use std::collections::{BTreeMap, VecDeque};

/// Producers that a space remembers, each log's apart.
pub(crate) const PRODUCERS_MAX: usize = 10_000;
/// Appends of one producer that are recognized.
pub(crate) const APPENDS_MAX: usize = 32;

kernel::record! {
    /// An append that was taken.
    pub(crate) struct Taken {
        /// The number of its first entry.
        sequence: u32,
        /// How many entries.
        count: u32,
        /// Where the first one is.
        first: u64,
    }
}

kernel::record! {
    /// What is known of a producer in one log; also as a snapshot has it.
    pub(crate) struct Known {
        /// The log.
        log: String,
        /// Its number.
        id: u64,
        /// Later epochs fence off earlier ones.
        epoch: u16,
        /// When it was last seen: the space's count of what producers appended.
        seen: u64,
        /// Its latest appends, in order.
        taken: Vec<Taken>,
    }
}

#[derive(Clone, Debug)]
struct Producer {
    epoch: u16,
    seen: u64,
    taken: VecDeque<Taken>,
}

/// What an append of a producer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judged {
    /// The next one.
    Next,
    /// One that was taken, and where.
    Again(u64),
    /// Not the next one: that begins with this number.
    OutOfSequence(u64),
    /// Of an epoch before this one.
    Fenced(u16),
    /// Nothing is known of the producer, and it does not begin with 0.
    Unknown,
}

/// The producers of a space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    /// By log and number.
    known: BTreeMap<(String, u64), Producer>,
    /// The same by when they were last seen: what follows is counted from the latest on, which a snapshot has, too.
    recent: BTreeMap<u64, (String, u64)>,
}

impl Producer {
    fn next(&self) -> u64 {
        self.taken
            .back()
            .map_or(0, |last| (u64::from(last.sequence) + u64::from(last.count)) % u64::from(SEQUENCES))
    }
}

impl Producers {
    /// What an append of `count` entries from number `sequence` on is.
    pub(crate) fn judge(&self, log: &str, id: u64, epoch: u16, sequence: u32, count: u32) -> Judged {
        let begins = u64::from(sequence);
        let Some(producer) = self.known.get(&(log.to_owned(), id)) else {
            return if sequence == 0 { Judged::Next } else { Judged::Unknown };
        };
        if epoch < producer.epoch && !kernel::planted!(earlier_producer_epoch_taken) {
            return Judged::Fenced(producer.epoch);
        }
        if epoch > producer.epoch {
            return if sequence == 0 { Judged::Next } else { Judged::OutOfSequence(0) };
        }
        let again = |taken: &&Taken| taken.sequence == sequence && taken.count == count;
        match producer.taken.iter().rev().find(again) {
            Some(taken) => Judged::Again(taken.first),
            None if begins == producer.next() => Judged::Next,
            None => Judged::OutOfSequence(producer.next()),
        }
    }

    /// Remembers an append that was judged to be the next one.
    pub(crate) fn took(&mut self, log: &str, id: u64, epoch: u16, taken: Taken) {
        let seen = self.recent.last_key_value().map_or(0, |(seen, _)| *seen) + 1;
        let key = (log.to_owned(), id);
        let fresh = || Producer { epoch, seen: 0, taken: VecDeque::new() };
        let producer = self.known.entry(key.clone()).or_insert_with(fresh);
        if producer.epoch != epoch && kernel::planted!(producer_epoch_keeps_sequences) {
            producer.epoch = epoch;
        } else if producer.epoch != epoch {
            (producer.epoch, producer.taken) = (epoch, VecDeque::new());
        }
        self.recent.remove(&producer.seen);
        producer.seen = seen;
        producer.taken.push_back(taken);
        if producer.taken.len() > APPENDS_MAX {
            producer.taken.pop_front();
        }
        self.recent.insert(seen, key);
        if self.known.len() > PRODUCERS_MAX
            && let Some((_, oldest)) = self.recent.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// Forgets those of a log that is deleted.
    pub(crate) fn forget(&mut self, log: &str) {
        self.known.retain(|(of, _), _| of != log);
        self.recent.retain(|_, (of, _)| of != log);
    }

    pub(crate) fn recount(&self) -> Recount {
        let is_known = |(seen, key): &(&u64, &(String, u64))| {
            self.known.get(*key).is_some_and(|producer| producer.seen == **seen)
        };
        let counted = self.recent.iter().filter(is_known).count();
        Recount::of("producers by when they were heard", self.recent.len().max(self.known.len()), counted)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All of them, for a snapshot.
    pub(crate) fn all(&self) -> impl Iterator<Item = Known> {
        self.known.iter().map(|((log, id), producer)| Known {
            log: log.clone(),
            id: *id,
            epoch: producer.epoch,
            seen: producer.seen,
            taken: producer.taken.iter().cloned().collect(),
        })
    }

    /// Takes one over from a snapshot.
    pub(crate) fn install(&mut self, known: Known) {
        let Known { log, id, epoch, seen, taken } = known;
        self.recent.insert(seen, (log.clone(), id));
        self.known.insert((log, id), Producer { epoch, seen, taken: taken.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sequence: u32, count: u32, first: u64) -> Taken {
        Taken { sequence, count, first }
    }

    // An append that is taken twice is what producers number theirs for; one that is refused for good stops its producer.
    #[test]
    fn what_is_sent_again_is_recognized() {
        let mut producers = Producers::default();
        assert_eq!(producers.judge("a", 7, 0, 5, 1), Judged::Unknown);
        for turn in 0..40 {
            assert_eq!(producers.judge("a", 7, 0, turn * 2, 2), Judged::Next);
            producers.took("a", 7, 0, taken(turn * 2, 2, 100 + u64::from(turn)));
        }
        assert_eq!(producers.judge("a", 7, 0, 78, 2), Judged::Again(139));
        assert_eq!(producers.judge("a", 7, 0, 78, 1), Judged::OutOfSequence(80), "another append than then");
        assert_eq!(producers.judge("a", 7, 0, 2, 2), Judged::OutOfSequence(80), "too long ago");
        assert_eq!(producers.judge("a", 7, 0, 82, 2), Judged::OutOfSequence(80), "one is missing");
        assert_eq!(producers.judge("b", 7, 0, 0, 1), Judged::Next, "logs are numbered apart");
        producers.took("a", 7, 1, taken(0, 1, 200));
        assert_eq!(producers.judge("a", 7, 0, 80, 1), Judged::Fenced(1));
        assert_eq!(producers.judge("a", 7, 2, 1, 1), Judged::OutOfSequence(0));
        producers.took("a", 7, 1, taken(u32::MAX >> 1, 1, 300));
        assert_eq!(producers.judge("a", 7, 1, 0, 1), Judged::Again(200), "numbers wrap, and may come again");
        assert_eq!(producers.judge("a", 7, 1, 0, 2), Judged::Next);
    }

    // A server that starts from a snapshot would count on from another number than those that do not, and differ from them for ever.
    #[test]
    fn a_snapshot_counts_on_where_a_log_was_deleted() {
        let mut producers = Producers::default();
        producers.took("a", 1, 0, taken(0, 1, 0));
        producers.took("b", 2, 0, taken(0, 1, 0));
        producers.forget("b");
        let mut copy = Producers::default();
        producers.all().for_each(|known| copy.install(known));
        for producers in [&mut producers, &mut copy] {
            producers.took("a", 3, 0, taken(0, 1, 1));
        }
        assert_eq!(copy.recent, producers.recent);
    }

    // A table that grows with every producer that ever was fills the memory, on every host.
    #[test]
    fn producers_are_bounded_and_come_back_from_a_snapshot() {
        let mut producers = Producers::default();
        for id in 0..PRODUCERS_MAX as u64 + 10 {
            producers.took("a", id, 0, taken(0, 1, id));
            producers.took("a", 0, 0, taken(id as u32 + 1, 1, id));
        }
        assert_eq!(producers.known.len(), PRODUCERS_MAX);
        assert_eq!(producers.recent.len(), PRODUCERS_MAX);
        assert_eq!(producers.judge("a", 1, 0, 1, 1), Judged::Unknown, "the least recently seen is forgotten");
        assert_ne!(producers.judge("a", 0, 0, 1, 1), Judged::Unknown);
        let mut copy = Producers::default();
        producers.all().for_each(|known| copy.install(known));
        assert!(copy.known.keys().eq(producers.known.keys()) && copy.recent == producers.recent);
        copy.took("a", 1 << 40, 0, taken(0, 1, 0));
        producers.took("a", 1 << 40, 0, taken(0, 1, 0));
        assert!(copy.known.keys().eq(producers.known.keys()), "copies forget alike");
        copy.forget("a");
        assert!(copy.known.is_empty() && copy.recent.is_empty());
    }
}
