//! What clients of the native protocol are owed: reads go on their way as far as there is room for their answers.

use crate::family::Ordinate;
use crate::latency::{Latencies, Stopwatch, TimedCall};
use parts::{Account, Pool, ReplyBounds, Sequence, SessionId};
use runtime::SessionCx;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What all connections of the port are owed.
pub type Owed = Rc<RefCell<Pool>>;

/// A pool of so many bytes.
pub fn pool(bytes_max: usize) -> Owed {
    Rc::new(RefCell::new(Pool::new(ReplyBounds { bytes_max, ..ReplyBounds::default() })))
}

/// Reads of one connection without an answer; more wait.
const READS_MAX: usize = 4_096;
/// A read without an answer for so long has none: its client asks again, or waits no more.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// Nobody knows how large the first answer will be.
const FIRST_ANSWER_BYTES: usize = 12 << 10;
/// No read is taken to want more: the services bound an answer themselves.
const WANTED_MAX: usize = 2 << 20;

/// A read without an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OwedRead {
    /// Of the key-value service.
    Query(SessionId, Sequence),
    /// Of another one: the receiver's tag of its calls, and the call's number.
    Call(u8, u64),
}

/// 2^64 by the golden ratio: calls of different services get numbers that are far apart.
const APART: u64 = 0x9e37_79b9_7f4a_7c15;

impl TimedCall for OwedRead {
    fn number(&self) -> u64 {
        match self {
            Self::Query(_, sequence) => sequence.0,
            Self::Call(receiver, id) => id.wrapping_add(u64::from(*receiver).wrapping_mul(APART)),
        }
    }
}

/// What one connection is owed.
pub struct OwedReads {
    pool: Owed,
    account: Account,
    /// What the read was to be answered that found no room, until it is asked again.
    refused: Option<usize>,
    in_flight: BTreeMap<OwedRead, (kernel::Instant, usize)>,
    /// How long its calls take, those that are no reads too.
    pub watch: Stopwatch<OwedRead>,
}

impl OwedReads {
    /// Nothing yet.
    pub fn new(pool: Owed, latencies: Latencies) -> Self {
        let mut account = Account::default();
        account.learn(FIRST_ANSWER_BYTES);
        let watch = Stopwatch::new(latencies);
        Self { pool, account, refused: None, in_flight: BTreeMap::new(), watch }
    }

    /// How large the next answer will be.
    pub fn expected(&self) -> usize {
        self.account.expected(self.pool.borrow().bounds())
    }

    /// How much room a call that reads needs that may be answered so many bytes. The first of a connection that waits for what is
    /// appended is taken to find little: followers of a log would else hold room for pages while nothing happens. Where it finds more than
    /// there is room for, it is refused, and needs as much when it is asked again.
    pub fn room_of_call(&mut self, bytes: usize, waits: bool) -> usize {
        match self.refused.take() {
            Some(refused) => bytes.max(refused),
            None if waits && self.in_flight.is_empty() => bytes.min(FIRST_ANSWER_BYTES),
            None => bytes,
        }
    }

    /// Whether there is room for answers of so many bytes together.
    pub fn admits(&self, bytes: usize) -> bool {
        self.in_flight.len() < READS_MAX && self.pool.borrow().admits(&self.account, bytes.min(WANTED_MAX))
    }

    /// A read goes on its way.
    pub fn ask(&mut self, asked: OwedRead, bytes: usize, now: kernel::Instant) {
        let bytes = bytes.min(WANTED_MAX);
        if let Some((_, before)) = self.in_flight.insert(asked, (now, bytes)) {
            // Asked again: it is answered once or twice, and owed once.
            self.pool.borrow_mut().release(&mut self.account, before);
        }
        self.pool.borrow_mut().reserve(&mut self.account, bytes);
    }

    /// An answer of so many bytes has come; false if it is not that of a read.
    pub fn answered(&mut self, asked: OwedRead, bytes: usize) -> bool {
        let Some((_, reserved)) = self.in_flight.remove(&asked) else { return false };
        self.pool.borrow_mut().release(&mut self.account, reserved);
        self.account.learn(bytes);
        true
    }

    /// Whether answers of so many bytes can be written now. Where they cannot, reads are to be asked again. Who is owed nothing gets also what
    /// there is never room for.
    pub fn takes(&self, bytes: usize) -> bool {
        let pool = self.pool.borrow();
        pool.admits(&self.account, bytes) || (self.account.owed() == 0 && !pool.holds(bytes))
    }

    /// The answer to a call has come; false if it does not fit, and the call is to be refused.
    pub fn takes_call(&mut self, receiver: u8, id: u64, bytes: usize) -> bool {
        self.answered(OwedRead::Call(receiver, id), bytes);
        let takes = bytes <= FIRST_ANSWER_BYTES || self.takes(bytes);
        if !takes {
            self.refused = Some(bytes);
        }
        takes
    }

    /// Counts what was written for the client, and what it has taken.
    pub fn count(&mut self, cx: &SessionCx<'_, Ordinate>) {
        let all = cx.taken_bytes() + cx.unsent_bytes() as u64;
        let fresh = all.saturating_sub(self.account.written());
        let mut pool = self.pool.borrow_mut();
        pool.write(&mut self.account, fresh as usize);
        pool.take(&mut self.account, cx.taken_bytes());
    }

    /// Time has passed.
    pub fn tick(&mut self, now: kernel::Instant) {
        let Self { pool, account, in_flight, refused: _, watch: _ } = self;
        in_flight.retain(|_, (since, bytes)| {
            let waits = now.since(*since) < ANSWERED_WITHIN;
            if !waits {
                pool.borrow_mut().release(account, *bytes);
            }
            waits
        });
    }
}

impl Drop for OwedReads {
    fn drop(&mut self) {
        self.pool.borrow_mut().close(&mut self.account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Instant;

    // Room that is not given back stops a port for good; room that is not taken is no bound.
    #[test]
    fn room_for_reads_is_taken_and_given_back() {
        let pool = pool(64 << 20);
        let (mut one, mut other) = (
            OwedReads::new(Rc::clone(&pool), Latencies::default()),
            OwedReads::new(Rc::clone(&pool), Latencies::default()),
        );
        let mut asked = 0;
        while one.admits(1 << 20) {
            one.ask(OwedRead::Call(22, asked), 1 << 20, Instant(0));
            asked += 1;
        }
        assert_eq!(asked, 1, "one large answer at a time");
        assert!(other.admits(1 << 20), "others have theirs");
        // The same again, by a client that has lost patience.
        one.ask(OwedRead::Call(22, 0), 1 << 20, Instant(0));
        assert!(
            one.answered(OwedRead::Call(22, 0), 1 << 20) && !one.answered(OwedRead::Call(22, 0), 1 << 20)
        );
        assert!(one.admits(1 << 20));
        one.ask(OwedRead::Query(SessionId(1), Sequence(2)), 1 << 20, Instant(0));
        other.ask(OwedRead::Call(22, 7), 1 << 20, Instant(0));
        one.tick(Instant(0) + ANSWERED_WITHIN);
        assert!(one.admits(1 << 20), "an answer that never comes is not waited for");
        drop(other);
        assert_eq!(pool.borrow().used(), 0);
    }

    // Followers of one log, who hold little while they wait, wake at once and are owed a megabyte each.
    #[test]
    fn followers_that_wake_at_once_are_answered_within_the_pool() {
        let pool = pool(64 << 20);
        let mut followers: Vec<OwedReads> =
            (0..1_000).map(|_| OwedReads::new(Rc::clone(&pool), Latencies::default())).collect();
        let mut answered = 0;
        for reads in &mut followers {
            let room = reads.room_of_call(1 << 20, true);
            assert!(reads.admits(room));
            reads.ask(OwedRead::Call(22, 1), room, Instant(0));
        }
        for reads in &mut followers {
            if reads.takes_call(22, 1, 1 << 20) {
                pool.borrow_mut().write(&mut reads.account, 1 << 20);
                answered += 1;
            }
        }
        assert!((30..64).contains(&answered), "{answered} are answered");
        assert!(pool.borrow().used() <= 64 << 20);
        let refused = &mut followers[999];
        assert_eq!(refused.room_of_call(1 << 20, true), 1 << 20, "it waits for its room now");
        assert_eq!(refused.room_of_call(1 << 20, true), FIRST_ANSWER_BYTES);
    }

    // A thousand clients that follow quiet logs must not hold all the room there is.
    #[test]
    fn followers_of_a_log_hold_little() {
        let pool = pool(64 << 20);
        let followers: Vec<OwedReads> = (0..2_000)
            .map(|_| {
                let mut reads = OwedReads::new(Rc::clone(&pool), Latencies::default());
                let room = reads.room_of_call(1 << 20, true);
                assert!(reads.admits(room));
                reads.ask(OwedRead::Call(22, 1), room, Instant(0));
                assert_eq!(reads.room_of_call(1 << 20, true), 1 << 20, "the first one alone");
                reads
            })
            .collect();
        assert_eq!(pool.borrow().used(), 0);
        drop(followers);
    }
}
