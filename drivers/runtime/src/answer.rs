//! One value on its way from the reactor to another thread: waited for, or awaited.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Why a value did not come. Whether what was asked took effect is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The host has stopped, or the node does not exist.
    #[error("the host stopped before it answered")]
    Stopped,
    /// The time given was not enough.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

enum State<T> {
    Waiting(Option<Waker>),
    Here(T),
    Gone,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, state: State<T>) {
        let before = std::mem::replace(&mut *self.state(), state);
        self.changed.notify_all();
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// The side that waits.
#[must_use = "the answer is thrown away unless somebody waits for it"]
pub struct Answer<T>(Arc<Shared<T>>);

/// The side that answers; dropping it signals to the other that no answer will come.
pub(crate) struct Promise<T>(Option<Arc<Shared<T>>>);

pub(crate) fn promise<T>() -> (Promise<T>, Answer<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Waiting(None)), changed: Condvar::new() });
    (Promise(Some(Arc::clone(&shared))), Answer(shared))
}

impl<T> Promise<T> {
    pub(crate) fn keep(mut self, value: T) {
        if let Some(shared) = self.0.take() {
            shared.settle(State::Here(value));
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.settle(State::Gone);
        }
    }
}

impl<T> Answer<T> {
    /// Blocks until the answer is there, at most for `limit`. Never to be called on the reactor's thread.
    pub fn wait(self, limit: Duration) -> Result<T, NoAnswer> {
        let deadline = Instant::now() + limit;
        let mut state = self.0.state();
        loop {
            match std::mem::replace(&mut *state, State::Gone) {
                State::Here(value) => return Ok(value),
                State::Gone => return Err(NoAnswer::Stopped),
                waiting @ State::Waiting(_) => *state = waiting,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoAnswer::TimedOut(limit));
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, NoAnswer>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, State::Gone) {
            State::Here(value) => Poll::Ready(Ok(value)),
            State::Gone => Poll::Ready(Err(NoAnswer::Stopped)),
            State::Waiting(_) => {
                *state = State::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A caller that never learns of the host's end would block an HTTP handler for ever.
    #[test]
    fn a_dropped_promise_ends_the_wait() {
        let (promise, answer) = promise::<u8>();
        drop(promise);
        assert_eq!(answer.wait(Duration::from_secs(60)), Err(NoAnswer::Stopped));
    }

    // A value that is retained before anybody waits must still be there.
    #[test]
    fn a_retained_promise_answers_waiters_and_pollers() {
        let (retained, answer) = promise();
        retained.keep(7);
        assert_eq!(answer.wait(Duration::ZERO), Ok(7));
        let (late, mut answer) = promise();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(Pin::new(&mut answer).poll(&mut cx), Poll::Pending);
        late.keep(8);
        assert_eq!(Pin::new(&mut answer).poll(&mut cx), Poll::Ready(Ok(8)));
        let (_open, answer) = promise::<u8>();
        assert_eq!(answer.wait(Duration::ZERO), Err(NoAnswer::TimedOut(Duration::ZERO)));
    }
}
