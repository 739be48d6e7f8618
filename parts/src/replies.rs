//! How much a client may be owed: bounds the answers that are made for those who do not take them, before they are made.
//!
//! A [`Pool`] is what all clients of a gateway together may be owed, an [`Account`] what one is: answers that were written and
//! that it has not taken, and room reserved for answers on their way. The more of the pool is in use, the less one client gets of what
//! is left, so many greedy ones leave room for the others.

use kernel::Recount;

/// The bounds of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyBounds {
    /// What all clients together may be owed, in bytes.
    pub bytes_max: usize,
    /// What each may be owed beside that: small answers never wait for room.
    pub free_bytes: usize,
}

impl Default for ReplyBounds {
    /// No bound: where answers are written to nobody's socket.
    fn default() -> Self {
        Self { bytes_max: usize::MAX, free_bytes: 16 << 10 }
    }
}

/// A client that is owed something gets at most this share of what is left.
const SHARES: usize = 64;
/// A client that is owed nothing gets one answer of any size, but leaves this share of the pool to others.
const LEFT_SHARE: usize = 8;

/// A guess of an answer's size is at most this share of the pool, and at least this share of what is free.
const GUESS_SHARE: usize = 16;
/// Sums of guesses do not overflow.
const GUESS_MAX: usize = 1 << 40;

/// What all clients are owed. See the module.
#[derive(Clone, Debug)]
pub struct Pool {
    bounds: ReplyBounds,
    used: usize,
    used_max: usize,
}

/// What one client is owed.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Bytes written for it, since it came.
    written: u64,
    /// Bytes of them that it has taken.
    taken: u64,
    /// Room for answers that are being made.
    reserved: usize,
    /// What the pool knows of.
    counted: usize,
    /// The size of the answers of late.
    usual: usize,
}

impl Account {
    /// What it is owed, and may be owed soon, in bytes.
    pub fn owed(&self) -> usize {
        self.waiting() + self.reserved
    }

    /// Bytes that were written and that it has not taken.
    pub fn waiting(&self) -> usize {
        usize::try_from(self.written.saturating_sub(self.taken)).unwrap_or(usize::MAX)
    }

    /// Bytes written for it since it came.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Room for answers that are being made, in bytes.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// How large the next answer will be, judged by those before, as far as a guess is worth keeping room for.
    pub fn expected(&self, bounds: &ReplyBounds) -> usize {
        (self.usual + self.usual / 4).min(bounds.bytes_max / GUESS_SHARE).max(bounds.free_bytes / GUESS_SHARE)
    }

    /// An answer was so large.
    pub fn learn(&mut self, bytes: usize) {
        self.usual = bytes.min(GUESS_MAX).max(self.usual - self.usual.div_ceil(8));
    }
}

impl Pool {
    /// A pool that nobody is owed anything of.
    pub fn new(bounds: ReplyBounds) -> Self {
        Self { bounds, used: 0, used_max: 0 }
    }

    /// Its bounds.
    pub fn bounds(&self) -> &ReplyBounds {
        &self.bounds
    }

    /// What is owed now, without what each client has for free, in bytes.
    pub fn used(&self) -> usize {
        self.used
    }

    /// What is owed, beside what these clients are owed.
    pub fn recount<'a>(&self, accounts: impl Iterator<Item = &'a Account>) -> Recount {
        let beyond = accounts.map(|account| account.owed().saturating_sub(self.bounds.free_bytes));
        Recount::of("bytes owed to clients", self.used, beyond.sum())
    }

    /// The most that was owed at a time.
    pub fn used_max(&self) -> usize {
        self.used_max
    }

    /// Whether there is room for `bytes` more that the client is to get.
    pub fn admits(&self, account: &Account, bytes: usize) -> bool {
        let (owed, left) = (account.owed(), self.bounds.bytes_max.saturating_sub(self.used));
        let wanted = owed.saturating_add(bytes);
        let retained = self.bounds.bytes_max / LEFT_SHARE;
        wanted <= self.bounds.free_bytes.max(left / SHARES)
            || owed <= self.bounds.free_bytes && bytes <= left.saturating_sub(retained)
    }

    /// Whether there can ever be room for so much.
    pub fn holds(&self, bytes: usize) -> bool {
        bytes <= self.bounds.bytes_max - self.bounds.bytes_max / LEFT_SHARE
    }

    /// Keeps room for an answer.
    pub fn reserve(&mut self, account: &mut Account, bytes: usize) {
        account.reserved += bytes;
        self.count(account);
    }

    /// Gives room back that was reserved.
    pub fn release(&mut self, account: &mut Account, bytes: usize) {
        account.reserved = account.reserved.saturating_sub(bytes);
        self.count(account);
    }

    /// So many bytes were written for the client.
    pub fn write(&mut self, account: &mut Account, bytes: usize) {
        account.written += bytes as u64;
        self.count(account);
    }

    /// The client has taken so many bytes in all; true if that is news.
    pub fn take(&mut self, account: &mut Account, bytes: u64) -> bool {
        let news = bytes > account.taken && bytes <= account.written;
        if news {
            account.taken = bytes;
            self.count(account);
        }
        news
    }

    /// The client is gone.
    pub fn close(&mut self, account: &mut Account) {
        *account = Account { counted: account.counted, ..Account::default() };
        if !kernel::planted!(closed_account_stays_counted) {
            self.count(account);
        }
    }

    fn count(&mut self, account: &mut Account) {
        let counted = account.owed().saturating_sub(self.bounds.free_bytes);
        self.used = (self.used + counted).saturating_sub(account.counted);
        account.counted = counted;
        self.used_max = self.used_max.max(self.used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ReplyBounds = ReplyBounds { bytes_max: 96 << 20, free_bytes: 16 << 10 };
    const MIB: usize = 1 << 20;

    // Clients that take nothing fill the host's memory, or leave those who do read without room.
    #[test]
    fn greedy_clients_leave_room_for_others() {
        for answer in [1_000, 100_000, MIB, 20 * MIB] {
            let mut pool = Pool::new(BOUNDS);
            let mut greedy = vec![Account::default(); 640];
            for account in &mut greedy {
                for _ in 0..1_000 {
                    if pool.admits(account, answer) {
                        pool.reserve(account, answer);
                    }
                }
            }
            assert!(pool.used() <= BOUNDS.bytes_max, "{} bytes of answers of {answer}", pool.used());
            let polite = Account::default();
            assert!(pool.admits(&polite, 16 << 10), "a small answer never waits: {}", pool.used());
            assert!(
                greedy[0].owed() >= answer,
                "a user that is owed nothing gets one answer of {answer} bytes"
            );
        }
    }

    // One client of many must not have what is there for all of them.
    #[test]
    fn one_client_has_a_share_beyond_its_first_answer() {
        let (mut pool, mut account) = (Pool::new(BOUNDS), Account::default());
        while pool.admits(&account, 50_000) {
            pool.reserve(&mut account, 50_000);
        }
        assert!((MIB..2 * MIB).contains(&account.owed()), "{} bytes", account.owed());
        assert!(pool.admits(&Account::default(), 80 * MIB), "the others' single answers do not suffer");
        assert!(!pool.holds(90 * MIB) && pool.holds(80 * MIB));
    }

    // Bytes that are counted twice, or for ever, stop a host that has nothing to do.
    #[test]
    fn what_was_taken_is_owed_no_more() {
        let (mut pool, mut one, mut other) = (Pool::new(BOUNDS), Account::default(), Account::default());
        for account in [&mut one, &mut other] {
            pool.reserve(account, MIB);
            pool.release(account, MIB);
            pool.write(account, 900_000);
        }
        assert_eq!(pool.used(), 2 * (900_000 - BOUNDS.free_bytes));
        assert!(pool.take(&mut one, 400_000));
        assert!(!pool.take(&mut one, 300_000), "an old word");
        assert!(!pool.take(&mut one, 1_000_000), "more than it was written");
        assert_eq!((one.waiting(), one.owed()), (500_000, 500_000));
        assert!(pool.take(&mut one, 900_000));
        pool.close(&mut other);
        assert_eq!((pool.used(), one.owed(), other.owed()), (0, 0, 0));
        assert!(pool.used_max() >= 2 * (900_000 - BOUNDS.free_bytes));
    }

    // A guess that stays small lets answers be made for which there is no room; one that stays large holds up small ones.
    #[test]
    fn sizes_are_learned() {
        let mut account = Account::default();
        assert_eq!(account.expected(&BOUNDS), 1 << 10);
        account.learn(MIB);
        assert!(account.expected(&BOUNDS) > MIB);
        (0..80).for_each(|_| account.learn(100));
        assert_eq!(account.expected(&BOUNDS), 1 << 10);
    }
}
