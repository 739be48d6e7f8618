//! Calls of the sequence service: a task with one connection at a time.

use crate::connection::{Connection, DialError, Reading, Writing};
use crate::{CallError, Tls};
use kernel::Bytes;
use sequence::native::{Native, Next, Numbered, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a host may take to take a connection.
const DIAL_WITHIN: Duration = Duration::from_millis(500);
/// The pause after a failed dial.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A host that says it is busy is asked again after this.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A place in the order of all operations of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// One number for each space, in the order asked. Contiguous in every space: each number is somebody's, or a no-op's.
    pub numbers: Vec<u64>,
    /// Grows with real time, over all spaces; has holes.
    pub stamp: u64,
}

struct Order {
    spaces: Vec<String>,
    label: Bytes,
    answer: oneshot::Sender<Result<Place, CallError>>,
}

/// A client of the sequence. Cheap to clone; must be made inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Sequence {
    orders: mpsc::UnboundedSender<Order>,
    timeout: Duration,
}

impl Sequence {
    /// A client of the cluster behind `endpoints`: native addresses of one or more hosts. Returns at once.
    pub fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self::start(endpoints.into_iter().map(Into::into).collect(), None)
    }

    /// The same over TLS.
    pub fn connect_tls<E: Into<String>>(endpoints: impl IntoIterator<Item = E>, tls: Tls) -> Self {
        Self::start(endpoints.into_iter().map(Into::into).collect(), Some(tls))
    }

    fn start(endpoints: Vec<String>, tls: Option<Tls>) -> Self {
        let (orders, taken) = mpsc::unbounded_channel();
        // Without endpoints nobody listens, and calls say that the client is closed.
        if !endpoints.is_empty() {
            tokio::spawn(run(endpoints, tls, taken));
        }
        Self { orders, timeout: Duration::from_secs(10) }
    }

    /// The same client with another time limit per call (10 s unless said).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Takes one place in each of `spaces`. The call is on its way when this returns; its answer comes by the future.
    ///
    /// [`CallError::MaybeExecuted`] and [`CallError::TimedOut`]: a number may have been assigned that nobody was told. Calls
    /// are never sent twice, so that no caller is given two places for one.
    pub fn next<S: AsRef<str>>(
        &self,
        spaces: &[S],
        label: &[u8],
    ) -> impl Future<Output = Result<Place, CallError>> + use<S> {
        let (answer, answered) = oneshot::channel();
        let spaces = spaces.iter().map(|name| name.as_ref().to_owned()).collect();
        let sent = self.orders.send(Order { spaces, label: Bytes::copy_from_slice(label), answer });
        let timeout = self.timeout;
        async move {
            sent.map_err(|_| CallError::Closed)?;
            match tokio::time::timeout(timeout, answered).await {
                Err(_) => Err(CallError::TimedOut(timeout)),
                Ok(Err(_)) => Err(CallError::Closed),
                Ok(Ok(outcome)) => outcome,
            }
        }
    }
}

/// Calls of one connection.
struct Calls {
    reading: Reading,
    writing: Writing,
    under_way: BTreeMap<u64, Order>,
    next: u64,
}

enum Event {
    Order(Option<Order>),
    Answers(Vec<Native>),
    Broken,
    Again,
}

async fn run(endpoints: Vec<String>, tls: Option<Tls>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut waiting: VecDeque<Order> = VecDeque::new();
    let mut at = 0;
    loop {
        // Nobody is dialled before somebody asks.
        if waiting.is_empty() {
            match orders.recv().await {
                Some(order) => waiting.push_back(order),
                None => return,
            }
        }
        let endpoint = endpoints[at % endpoints.len()].clone();
        at += 1;
        match Connection::dial(endpoint, tls.clone(), DIAL_WITHIN).await {
            Err(DialError::Broken | DialError::Refused(_)) => {
                while let Ok(order) = orders.try_recv() {
                    waiting.push_back(order);
                }
                // Those whose callers have stopped waiting need no connection.
                waiting.retain(|order| !order.answer.is_closed());
                tokio::time::sleep(DIAL_AGAIN_AFTER).await;
            }
            Ok(connection) => {
                let Connection { reading, writing } = connection;
                let mut calls = Calls { reading, writing, under_way: BTreeMap::new(), next: 0 };
                let open = calls.serve(&mut orders, &mut waiting).await;
                for order in calls.under_way.into_values() {
                    // Whoever asked may have stopped waiting.
                    let _ = order.answer.send(Err(CallError::MaybeExecuted));
                }
                if !open {
                    return;
                }
            }
        }
    }
}

impl Calls {
    /// Until the connection breaks (true) or every handle is dropped (false).
    async fn serve(
        &mut self,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        waiting: &mut VecDeque<Order>,
    ) -> bool {
        let mut again_at: Option<tokio::time::Instant> = None;
        loop {
            if again_at.is_none() {
                waiting.drain(..).for_each(|order| self.send(order));
            }
            let event = tokio::select! {
                order = orders.recv() => Event::Order(order),
                received = self.reading.receive() => received.map_or(Event::Broken, Event::Answers),
                _ = self.writing.progress() => Event::Broken,
                () = pause(again_at) => Event::Again,
            };
            match event {
                Event::Order(None) => return false,
                Event::Order(Some(order)) => waiting.push_back(order),
                Event::Broken => return true,
                Event::Again => again_at = None,
                Event::Answers(answers) => {
                    for answer in answers {
                        if let Native::Numbered(numbered) = answer
                            && let Some(busy) = self.take(numbered)
                        {
                            waiting.push_back(busy);
                            again_at = Some(tokio::time::Instant::now() + BUSY_PAUSE);
                        }
                    }
                }
            }
        }
    }

    fn send(&mut self, order: Order) {
        self.next += 1;
        let (spaces, label) = (order.spaces.clone(), order.label.clone());
        self.writing.push(&Native::Next(Next { id: self.next, spaces, label }));
        self.under_way.insert(self.next, order);
    }

    /// Returns the call if it is to be made again.
    fn take(&mut self, numbered: Numbered) -> Option<Order> {
        let order = self.under_way.remove(&numbered.id)?;
        let outcome = match Outcome::of(numbered.status) {
            Outcome::Busy => return Some(order),
            Outcome::Done => Ok(Place { numbers: numbered.numbers, stamp: numbered.stamp }),
            Outcome::Unknown => Err(CallError::MaybeExecuted),
            Outcome::Malformed => Err(CallError::Invalid(format!(
                "the cluster has no such spaces ({}), or the label is longer than 256 bytes",
                order.spaces.join(", ")
            ))),
        };
        // Whoever asked may have stopped waiting.
        let _ = order.answer.send(outcome);
        None
    }
}

async fn pause(until: Option<tokio::time::Instant>) {
    match until {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
