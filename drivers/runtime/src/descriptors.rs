//! How many files and sockets this process may have open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The descriptors that clients of a process may have, whatever port they come to; the rest is for journals, segments and peers.
/// Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Descriptors(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    max: usize,
    taken: AtomicUsize,
}

/// One of them; given back when it is dropped.
#[derive(Debug)]
pub struct Descriptor(Descriptors);

impl Descriptors {
    /// So many.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Counted { max, taken: AtomicUsize::new(0) }))
    }

    /// One, if any is left.
    pub fn take(&self) -> Option<Descriptor> {
        let next = |taken: usize| (taken < self.0.max).then_some(taken + 1);
        let taken = self.0.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        taken.ok().map(|_| Descriptor(self.clone()))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Acquire)
    }

    /// How many there are.
    pub fn max(&self) -> usize {
        self.0.max
    }
}

impl Default for Descriptors {
    /// As many as are asked for.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Raises the soft limit of open files to the hard one, which needs no right, and returns what holds from now on. A
/// server has a socket for each client; the soft limit of 1,024 is for programs that use `select`.
pub fn raise_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit` into memory that is borrowed exclusively.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the call reads one initialised `rlimit`.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::Descriptors;

    // A descriptor that is not given back is lost for ever; one too many is the journal's.
    #[test]
    fn descriptors_are_given_back() {
        let (one, other) = {
            let all = Descriptors::new(2);
            (all.clone(), all)
        };
        let (first, second) = (one.take(), other.take());
        assert!(first.is_some() && second.is_some() && one.take().is_none());
        drop(first);
        assert_eq!((other.taken(), other.max()), (1, 2));
        assert!(other.take().is_some());
    }

    // A server that stays at its shell's 1,024 refuses the thousandth client.
    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limits = || std::fs::read_to_string("/proc/self/limits").expect("Linux says so");
        let raised = super::raise_limit().expect("no right is needed");
        let line =
            limits().lines().find(|line| line.starts_with("Max open files")).expect("a limit").to_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            (words[3], words[4]),
            (raised.to_string().as_str(), raised.to_string().as_str()),
            "{line}"
        );
    }
}
