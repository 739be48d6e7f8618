//! Whether a host that owes answers hangs: it is greeted on a connection of its own, which one that hangs does not answer.

use crate::Credentials;
use crate::connection::{Connection, DialError};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

/// A host that owes an answer and says nothing for so long is greeted, and again after twice as long.
const GREET_AFTER: Duration = Duration::from_millis(500);
const GREET_AFTER_MAX: Duration = Duration::from_secs(8);
/// How long it may take to answer a greeting.
const GREET_WITHIN: Duration = Duration::from_secs(1);

/// What is suspected of one host.
pub(crate) struct Suspicion {
    endpoint: String,
    credentials: Credentials,
    /// When to greet it; none: it owes nothing.
    at: Option<Instant>,
    /// The next pause.
    pause: Duration,
    /// It was greeted since it was heard last.
    was_greeted: bool,
    greeting: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

impl Suspicion {
    pub(crate) fn of(endpoint: String, credentials: Credentials) -> Self {
        Self { endpoint, credentials, at: None, pause: GREET_AFTER, was_greeted: false, greeting: None }
    }

    /// The host owes an answer that it may take so long for.
    pub(crate) fn expects_within(&mut self, wait: Duration) {
        let at = Instant::now() + self.pause + wait;
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    /// The host has said something, and may take so long for the first of what it still owes; none: it owes nothing.
    pub(crate) fn heard(&mut self, wait: Option<Duration>) {
        if !self.was_greeted {
            // One that is slow for long is greeted seldom: thousands of clients would be a load of their own.
            self.pause = (self.pause * 7 / 8).max(GREET_AFTER);
        }
        (self.at, self.was_greeted, self.greeting) = (None, false, None);
        if let Some(wait) = wait {
            self.expects_within(wait);
        }
    }

    /// Returns when it hangs. Cancelling loses nothing.
    pub(crate) async fn hangs(&mut self) {
        loop {
            match &mut self.greeting {
                Some(greeting) => {
                    let answered = greeting.await;
                    self.greeting = None;
                    if !answered {
                        return;
                    }
                    (self.was_greeted, self.pause) = (true, (2 * self.pause).min(GREET_AFTER_MAX));
                    self.at = Some(Instant::now() + self.pause);
                }
                None => {
                    match self.at {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                    let dial =
                        Connection::dial(self.endpoint.clone(), self.credentials.clone(), GREET_WITHIN);
                    // One that turns the client away does not hang.
                    self.greeting = Some(Box::pin(async { !matches!(dial.await, Err(DialError::Broken)) }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Clients of a host that is only slow would greet it twice a second, each of them.
    #[test]
    fn a_host_that_is_slow_for_long_is_greeted_seldom() {
        let mut suspicion = Suspicion::of("127.0.0.1:9".to_owned(), Credentials::default());
        suspicion.was_greeted = true;
        suspicion.pause = GREET_AFTER_MAX;
        suspicion.heard(None);
        assert_eq!(suspicion.pause, GREET_AFTER_MAX, "it took as long as before");
        suspicion.heard(None);
        assert!(suspicion.pause < GREET_AFTER_MAX, "it answered by itself");
        (0..30).for_each(|_| suspicion.heard(None));
        assert_eq!(suspicion.pause, GREET_AFTER);
    }
}
