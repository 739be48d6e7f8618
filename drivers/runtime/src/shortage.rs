//! What the system may be short of for a while: files, memory, room on the disk. None of it says that anything is damaged.

use std::fmt;
use std::io;
use std::time::Duration;

/// What an operation failed for want of. It works again when there is some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// Room on the disk, or in a quota.
    Space,
    /// This process has as many files and sockets open as it may.
    Files,
    /// So has the whole system.
    FilesOfSystem,
    /// Memory.
    Memory,
}

impl Shortage {
    /// What the error is a want of, if it is one.
    pub fn of(error: &io::Error) -> Option<Self> {
        Self::of_errno(error.raw_os_error()?)
    }

    fn of_errno(errno: i32) -> Option<Self> {
        match errno {
            libc::ENOSPC | libc::EDQUOT => Some(Self::Space),
            libc::EMFILE => Some(Self::Files),
            libc::ENFILE => Some(Self::FilesOfSystem),
            libc::ENOMEM | libc::ENOBUFS => Some(Self::Memory),
            _ => None,
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Space => "the disk is full",
            Self::Files => "this process has as many files and sockets open as the system allows it",
            Self::FilesOfSystem => "the system has as many files and sockets open as it can",
            Self::Memory => "the system has no memory left",
        })
    }
}

const AGAIN_AFTER: Duration = Duration::from_millis(50);
const ATTEMPTS_MAX: u32 = 600;

/// Tries again while files or memory are short, for threads that may wait. Room on a disk others wait for.
pub(crate) fn patiently<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    errno_of: impl Fn(&E) -> Option<i32>,
) -> Result<T, E> {
    for _ in 0..ATTEMPTS_MAX {
        match attempt() {
            Err(error)
                if errno_of(&error).and_then(Shortage::of_errno).is_some_and(|it| it != Shortage::Space) =>
            {
                std::thread::sleep(AGAIN_AFTER);
            }
            outcome => return outcome,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    // A want that passes must not be taken for a broken disk, nor a broken disk for a want that passes.
    #[test]
    fn wants_are_reported_from_faults() {
        let of = |errno| Shortage::of(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::EMFILE), Some(Shortage::Files));
        assert_eq!(of(libc::ENFILE), Some(Shortage::FilesOfSystem));
        assert_eq!(of(libc::ENOMEM), Some(Shortage::Memory));
        assert_eq!(of(libc::EDQUOT), Some(Shortage::Space));
        assert_eq!([of(libc::EIO), of(libc::EROFS), of(libc::ENOENT)], [None; 3]);
        assert_eq!(Shortage::of(&io::Error::other("no number")), None);
    }

    // A file that cannot be opened for a moment must not be reported lost.
    #[test]
    fn who_may_wait_tries_again() {
        let mut left = 2;
        let found = patiently(
            || {
                left -= 1;
                if left > 0 { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Ok(7) }
            },
            io::Error::raw_os_error,
        );
        assert_eq!(found.ok(), Some(7));
        let fault =
            patiently(|| Err::<u8, _>(io::Error::from_raw_os_error(libc::EIO)), io::Error::raw_os_error);
        assert!(fault.is_err());
    }
}
