//! The bound that the kernel keeps: its error at the last correction, and 500 us more each second since.
//!
//! When the clock is set (settimeofday, ADJ_SETOFFSET), the kernel says that it is not synchronised, until a daemon corrects it.

use super::error::ClockError;
use kernel::{ClockBound, Instant};
use std::time::Duration;

const NAME: &str = "kernel";
/// The kernel adds once a second what a second is worth, so its bound may be short of that.
const GROWTH_PPB: u32 = 500_000;
const STALE: Duration = Duration::from_micros(500);
const LASTS: Duration = Duration::from_secs(5);

/// Reads it. Each reading counts as a measurement: the kernel itself notices steps.
pub(super) fn read(now: Instant, reading: u64) -> Result<ClockBound, ClockError> {
    // SAFETY: `timex` is plain data for which all zeros is valid, and mode 0 asks adjtimex only to fill it in.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut timex), timex)
    };
    if state < 0 {
        let fact = std::io::Error::last_os_error().to_string();
        return Err(ClockError::Unreadable { of: NAME, fact });
    }
    let bound = Duration::from_micros(timex.maxerror.max(0) as u64);
    if state == libc::TIME_ERROR || timex.status & libc::STA_UNSYNC != 0 {
        let fact = format!("its bound is {bound:?}");
        return Err(ClockError::Unsynchronised { of: NAME, fact });
    }
    let error = bound + STALE;
    Ok(ClockBound {
        error,
        at: now,
        growth_ppb: GROWTH_PPB,
        lasts: LASTS,
        measurement: reading,
        vouched: false,
    })
}
