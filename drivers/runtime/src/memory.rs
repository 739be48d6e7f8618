//! How the process uses memory: its allocator (mimalloc), and pages.

use std::time::Duration;

/// `mi_option_purge_delay`, by its position in mimalloc's enum; the same in its versions 2 and 3.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// How long freed memory is retained before it goes back to the system. A log frees what it has truncated in large pieces and
/// asks for as much again at once; with the allocator's default of 10 ms a fifth of a loaded server's time went into pages
/// that the kernel had to clear again.
pub fn keep_freed(delay: Duration) {
    let milliseconds = delay.as_millis().min(i32::MAX as u128) as std::ffi::c_long;
    // SAFETY: sets one word under mimalloc's own rules for concurrent use; the option exists (see above), and an unknown
    // one would be ignored.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, milliseconds) }
}

/// Asks the kernel for pages of 4 KiB. It clears a huge page whole when its first byte is touched: with them, a fifth of a loaded
/// server's time went into clearing memory of which it used little before it gave it back.
pub fn avoid_huge_pages() {
    // SAFETY: sets a flag of the process and touches no memory of ours. A kernel that does not know it refuses, which changes
    // nothing.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}
