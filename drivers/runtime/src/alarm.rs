//! An alarm that is finer than a poll's time-out, which is in whole milliseconds: a timerfd among the polled descriptors.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

/// From this time-out on a poll rounds well enough.
const COARSE_FROM: Duration = Duration::from_millis(2);

/// Makes the poll return when it goes off. Nobody need read it: setting it again takes back what it has counted.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        let alarm = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        registry.register(&mut SourceFd(&alarm.0.as_raw_fd()), token, Interest::READABLE)?;
        Ok(alarm)
    }

    /// Sets it, if a poll that waits so long would wait too long. A failure leaves the poll's own time-out.
    pub(crate) fn set_for(&self, timeout: Option<Duration>) {
        let Some(after) = timeout.filter(|after| !after.is_zero() && *after < COARSE_FROM) else { return };
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        let time = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the descriptor is a timer's, `time` outlives the call, and the old value is not asked for.
        let _ = unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &time, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::time::Instant;

    /// Waits as the reactor does: a signal (a stopped and continued process has had one) ends no wait.
    fn wait(poll: &mut Poll, events: &mut Events, timeout: Duration) {
        while let Err(error) = poll.poll(events, Some(timeout)) {
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
        }
    }

    // An alarm that does not go off leaves every wait of 100 us at a millisecond and more; one that goes on spins an idle host.
    #[test]
    fn it_goes_off_before_a_polls_own_timeout_and_once() {
        let mut poll = Poll::new().expect("there are descriptors");
        let mut events = Events::with_capacity(8);
        let alarm = Alarm::new(poll.registry(), Token(7)).expect("there are descriptors");
        for _ in 0..50 {
            let begun = Instant::now();
            alarm.set_for(Some(Duration::from_micros(100)));
            wait(&mut poll, &mut events, Duration::from_secs(60));
            assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [Token(7)]);
            assert!(begun.elapsed() >= Duration::from_micros(100), "too early");
        }
        wait(&mut poll, &mut events, Duration::from_millis(20));
        assert!(events.is_empty(), "it went off again");
        for coarse in [None, Some(Duration::ZERO), Some(COARSE_FROM)] {
            alarm.set_for(coarse);
            wait(&mut poll, &mut events, Duration::from_millis(5));
            assert!(events.is_empty(), "{coarse:?} is the poll's own business");
        }
    }
}
