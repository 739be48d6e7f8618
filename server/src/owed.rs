//! What clients of the native protocol are owed: reads go on their way as far as there is room for their answers.

use crate::family::Ordinate;
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
const FIRST_ANSWER_BYTES: usize = 64 << 10;
/// No read is taken to want more: the services bound an answer themselves.
const WANTED_MAX: usize = 2 << 20;

/// A read without an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Asked {
    /// Of the key-value service.
    Query(SessionId, Sequence),
    /// Of the log.
    Call(u64),
}

/// What one connection is owed.
pub struct Reads {
    pool: Owed,
    account: Account,
    under_way: BTreeMap<Asked, (kernel::Instant, usize)>,
}

impl Reads {
    /// Nothing yet.
    pub fn new(pool: Owed) -> Self {
        let mut account = Account::default();
        account.learn(FIRST_ANSWER_BYTES);
        Self { pool, account, under_way: BTreeMap::new() }
    }

    /// How large the next answer will be.
    pub fn expected(&self) -> usize {
        self.account.expected(self.pool.borrow().bounds())
    }

    /// Whether there is room for answers of so many bytes together.
    pub fn admits(&self, bytes: usize) -> bool {
        self.under_way.len() < READS_MAX && self.pool.borrow().admits(&self.account, bytes.min(WANTED_MAX))
    }

    /// A read goes on its way.
    pub fn ask(&mut self, asked: Asked, bytes: usize, now: kernel::Instant) {
        let bytes = bytes.min(WANTED_MAX);
        if let Some((_, before)) = self.under_way.insert(asked, (now, bytes)) {
            // Asked again: it is answered once or twice, and owed once.
            self.pool.borrow_mut().release(&mut self.account, before);
        }
        self.pool.borrow_mut().reserve(&mut self.account, bytes);
    }

    /// An answer of so many bytes has come; false if it is not that of a read.
    pub fn answered(&mut self, asked: Asked, bytes: usize) -> bool {
        let Some((_, reserved)) = self.under_way.remove(&asked) else { return false };
        self.pool.borrow_mut().release(&mut self.account, reserved);
        self.account.learn(bytes);
        true
    }

    /// Whether answers of so many bytes can be written now. Where they cannot, reads are to be asked again.
    pub fn takes(&self, bytes: usize) -> bool {
        self.account.owed() == 0 || self.pool.borrow().admits(&self.account, bytes)
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
        let Self { pool, account, under_way } = self;
        under_way.retain(|_, (since, bytes)| {
            let waits = now.since(*since) < ANSWERED_WITHIN;
            if !waits {
                pool.borrow_mut().release(account, *bytes);
            }
            waits
        });
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.pool.borrow_mut().close(&mut self.account);
    }
}
