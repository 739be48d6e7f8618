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
    greeting: Option<Pin<Box<dyn Future<Output = bool> + Send>>>,
}

impl Suspicion {
    pub(crate) fn of(endpoint: String, credentials: Credentials) -> Self {
        Self { endpoint, credentials, at: None, pause: GREET_AFTER, greeting: None }
    }

    /// The host owes an answer that it may take so long for.
    pub(crate) fn expects_within(&mut self, wait: Duration) {
        let at = Instant::now() + self.pause + wait;
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    /// The host has said something, and may take so long for the first of what it still owes; none: it owes nothing.
    pub(crate) fn heard(&mut self, wait: Option<Duration>) {
        (self.at, self.pause, self.greeting) = (None, GREET_AFTER, None);
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
                    self.pause = (2 * self.pause).min(GREET_AFTER_MAX);
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
