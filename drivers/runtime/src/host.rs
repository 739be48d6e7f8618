//! Starting a host, and waiting for its end.

use crate::config::HostConfig;
use crate::data::Incarnation;
use crate::error::HostError;
use crate::event::EventSink;
use crate::front_end::FrontEndConfig;
use crate::handle::HostHandle;
use crate::observer::ObservedBy;
use crate::reactor::Reactor;
use crate::storage::open_storage;
use kernel::{Family, HostId, HostSlot, Node};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

/// A running host. Dropping it stops it and waits for its end.
pub struct Host<N: Node + 'static> {
    handle: HostHandle<N>,
    incarnation: Incarnation,
    thread: Option<JoinHandle<Result<(), HostError>>>,
}

impl<N: Node + 'static> Host<N> {
    /// Starts a host: opens the journal, builds the nodes by calling `nodes` on the reactor's thread, gives them their
    /// records back, starts them, and listens. Returns when all that is done.
    pub fn start(
        config: HostConfig,
        nodes: impl FnOnce() -> Vec<(HostSlot, N)> + Send + 'static,
        front_ends: Vec<FrontEndConfig<N::Family>>,
    ) -> Result<Self, HostError> {
        Self::start_observed(config, nodes, front_ends, None)
    }

    /// The same, with somebody who watches what the nodes send and are sent.
    pub fn start_observed(
        config: HostConfig,
        nodes: impl FnOnce() -> Vec<(HostSlot, N)> + Send + 'static,
        front_ends: Vec<FrontEndConfig<N::Family>>,
        observer: ObservedBy<<N::Family as Family>::Message>,
    ) -> Result<Self, HostError> {
        let host = HostId::named(&config.name);
        let (ready, started) = sync_channel(1);
        let body = move || {
            let mut events = EventsOut(None);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let (mut config, storage) = open_storage(config)?;
                events.0 = config.events.take();
                let mut reactor = Reactor::new(config, storage, nodes(), front_ends)?;
                reactor.router.observer = observer;
                // The starter waits for this; if it is gone, so is the host's owner.
                let _ = ready.send((reactor.inlet(), reactor.incarnation()));
                reactor.run(&mut events.0)
            }));
            let outcome = outcome.unwrap_or_else(|panic| Err(HostError::Panicked(text_of(&*panic))));
            if let (Err(error), Some(events)) = (&outcome, &mut events.0) {
                events(&crate::event::HostEvent::Stopping { reason: error.to_string() });
            }
            outcome
        };
        let thread = std::thread::Builder::new()
            .name("reactor".to_owned())
            .spawn(body)
            .map_err(|source| HostError::Io { action: "start a thread", source })?;
        match started.recv() {
            Ok((inlet, incarnation)) => Ok(Self {
                handle: HostHandle { host, inlet, seen: std::sync::Arc::default() },
                incarnation,
                thread: Some(thread),
            }),
            Err(_) => Err(match thread.join() {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => HostError::Panicked("the reactor ended before it began".to_owned()),
            }),
        }
    }

    /// For other threads.
    pub fn handle(&self) -> HostHandle<N> {
        self.handle.clone()
    }

    /// The incarnation of the data directory, or of this run without one.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Waits for the end: `Ok` after `stop` or `kill`, else why it stopped by itself.
    pub fn join(mut self) -> Result<(), HostError> {
        self.thread.take().map_or(Ok(()), joined)
    }

    /// Stops and waits.
    pub fn stop(self) -> Result<(), HostError> {
        self.handle.stop();
        self.join()
    }

    /// Stops as a crash does, and waits until every file and socket is closed.
    pub fn kill(self) -> Result<(), HostError> {
        self.handle.kill();
        self.join()
    }
}

impl<N: Node + 'static> Drop for Host<N> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.stop();
            // `join` gives the outcome.
            let _ = joined(thread);
        }
    }
}

struct EventsOut(Option<EventSink>);

fn joined(thread: JoinHandle<Result<(), HostError>>) -> Result<(), HostError> {
    thread.join().unwrap_or_else(|panic| Err(HostError::Panicked(text_of(&*panic))))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text").to_owned()
}
