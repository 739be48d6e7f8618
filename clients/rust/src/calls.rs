//! Calls of a service that answers each by one message: a task with one connection at a time.

use crate::connection::{Connection, DialError, Lost, Reading, Writing};
use crate::suspicion::Suspicion;
use crate::{CallError, Credentials};
use kernel::{Decode, Encode};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long a host may take to take a connection.
const DIAL_WITHIN: Duration = Duration::from_millis(500);
/// The pause after a failed dial.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A host that says it is busy is asked again after this.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// What is asked of a service, and how it is said.
pub(crate) trait Ask: Send + 'static {
    /// A message of either direction.
    type Message: Encode + Decode + Send;
    /// What a host says.
    type Reply;
    /// What the caller gets.
    type Answer: Send;

    /// The message of call `id`.
    fn message(&self, id: u64) -> Self::Message;

    /// The call that a message answers, and how; none if it is no reply.
    fn reply(message: Self::Message) -> Option<(u64, Self::Reply)>;

    /// What the reply comes to; none if the host is busy, has done nothing and is to be asked again.
    fn outcome(&self, reply: Self::Reply, so_far: SoFar) -> Option<Result<Self::Answer, CallError>>;

    /// True if it may be executed twice: then a broken connection is no reason to give it up.
    fn may_repeat(&self) -> bool;

    /// False if hosts do not answer it.
    fn is_answered(&self) -> bool {
        true
    }

    /// How long a host that is well may take for the answer because of what was asked.
    fn wait(&self) -> Duration {
        Duration::ZERO
    }

    /// After so long without any message of a host that owes this answer, another host is asked; none: it is waited for, unless it hangs.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

/// What has become of a call before its reply came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoFar {
    /// There is no time to ask again.
    pub(crate) is_last: bool,
    /// It was sent before, to a host that may have executed it and was lost.
    pub(crate) was_lost: bool,
}

/// Calls on their way to a cluster. Cheap to clone.
#[derive(Debug)]
pub(crate) struct Calls<A: Ask>(mpsc::UnboundedSender<Order<A>>);

impl<A: Ask> Clone for Calls<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Order<A: Ask> {
    ask: A,
    answer: oneshot::Sender<Result<A::Answer, CallError>>,
    stage: Arc<AtomicU8>,
    sent_at: Option<tokio::time::Instant>,
    /// When its caller stops waiting.
    deadline: tokio::time::Instant,
    was_lost: bool,
}

impl<A: Ask> Order<A> {
    /// An answer that takes as long as this one took comes too late, if the call is made again.
    fn so_far(&self) -> SoFar {
        let now = tokio::time::Instant::now();
        let took = self.sent_at.map_or(Duration::ZERO, |sent_at| now - sent_at);
        SoFar { is_last: now + BUSY_PAUSE + took >= self.deadline, was_lost: self.was_lost }
    }
}

/// 64 bits that nobody else draws: the standard library's hasher is seeded by the system. Not a secret.
pub(crate) fn drawn() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Where a call is: nobody waits for what was given up before it was sent, and it never is.
const ORDERED: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// True if a call that was only ordered is now at `next`, or was there before.
fn has_come_to(stage: &AtomicU8, next: u8) -> bool {
    let before = stage.compare_exchange(ORDERED, next, Ordering::AcqRel, Ordering::Acquire);
    before.is_ok() || before == Err(next)
}

impl<A: Ask> Calls<A> {
    /// Begins a task of the runtime that this is called in; it ends with the last handle.
    pub(crate) fn begin<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        credentials: Credentials,
    ) -> Self {
        let (orders, taken) = mpsc::unbounded_channel();
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        // Without endpoints nobody listens, and calls say that the client is closed.
        if !endpoints.is_empty() {
            tokio::spawn(run(endpoints, credentials, taken));
        }
        Self(orders)
    }

    /// The call is on its way when this returns; its answer comes by the future.
    pub(crate) fn call(
        &self,
        ask: A,
        timeout: Duration,
    ) -> impl Future<Output = Result<A::Answer, CallError>> + use<A> {
        let (answer, answered) = oneshot::channel();
        let stage = Arc::new(AtomicU8::new(ORDERED));
        let deadline = tokio::time::Instant::now() + timeout;
        let (sent_at, was_lost, at) = (None, false, Arc::clone(&stage));
        let ordered = self.0.send(Order { ask, answer, stage: at, sent_at, deadline, was_lost });
        async move {
            ordered.map_err(|_| CallError::Closed)?;
            match tokio::time::timeout(timeout, answered).await {
                Err(_) if has_come_to(&stage, GIVEN_UP) => Err(CallError::NotSent(timeout)),
                Err(_) => Err(CallError::TimedOut(timeout)),
                Ok(Err(_)) => Err(CallError::Closed),
                Ok(Ok(outcome)) => outcome,
            }
        }
    }
}

/// Calls of one connection.
struct Served<A: Ask> {
    reading: Reading,
    writing: Writing,
    in_flight: BTreeMap<u64, Order<A>>,
    next: u64,
    /// When the host is given up unless it says something.
    silent_at: Option<tokio::time::Instant>,
    suspicion: Suspicion,
}

enum Event<A: Ask> {
    Order(Option<Order<A>>),
    Messages(Vec<A::Message>),
    Lost(Lost),
    Again,
}

async fn run<A: Ask>(
    endpoints: Vec<String>,
    credentials: Credentials,
    mut orders: mpsc::UnboundedReceiver<Order<A>>,
) {
    let mut waiting: VecDeque<Order<A>> = VecDeque::new();
    let mut at = 0;
    // A number of one connection is never one of another: what a call of the first is named by means nothing on the second.
    let mut next = 0;
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
        match Connection::dial(endpoint.clone(), credentials.clone(), DIAL_WITHIN).await {
            Err(DialError::Broken | DialError::Refused(_)) => {
                while let Ok(order) = orders.try_recv() {
                    waiting.push_back(order);
                }
                // Those whose callers have stopped waiting need no connection.
                waiting.retain(|order| !order.answer.is_closed());
                tokio::time::sleep(DIAL_AGAIN_AFTER).await;
            }
            Ok(Connection { reading, writing }) => {
                let (in_flight, silent_at) = (BTreeMap::new(), None);
                let suspicion = Suspicion::of(endpoint, credentials.clone());
                let mut served = Served { reading, writing, in_flight, next, silent_at, suspicion };
                let open = served.serve(&mut orders, &mut waiting).await;
                next = served.next;
                for mut order in served.in_flight.into_values().filter(|order| !order.answer.is_closed()) {
                    order.was_lost = true;
                    if order.ask.may_repeat() {
                        waiting.push_back(order);
                    } else {
                        // The caller may have stopped waiting.
                        let _ = order.answer.send(Err(CallError::MaybeExecuted));
                    }
                }
                if !open {
                    return;
                }
            }
        }
    }
}

async fn until(timer: Option<tokio::time::Instant>) {
    match timer {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl<A: Ask> Served<A> {
    /// Until the connection breaks (true) or every handle is dropped (false).
    async fn serve(
        &mut self,
        orders: &mut mpsc::UnboundedReceiver<Order<A>>,
        waiting: &mut VecDeque<Order<A>>,
    ) -> bool {
        let mut again_at: Option<tokio::time::Instant> = None;
        loop {
            if again_at.is_none() {
                waiting.drain(..).for_each(|order| self.send(order));
            }
            let (pause, silence) = (until(again_at), until(self.silent_at));
            let event = tokio::select! {
                order = orders.recv() => Event::<A>::Order(order),
                received = self.reading.receive() => received.map_or_else(Event::Lost, Event::Messages),
                _ = self.writing.progress() => Event::Lost(Lost::Broken),
                () = pause => Event::Again,
                () = silence => Event::Lost(Lost::Broken),
                () = self.suspicion.hangs() => Event::Lost(Lost::Broken),
            };
            match event {
                Event::Order(None) => return false,
                Event::Order(Some(order)) => waiting.push_back(order),
                Event::Lost(Lost::Broken) => return true,
                Event::Lost(Lost::Off(why)) => {
                    self.give_all_up(waiting, &why);
                    return true;
                }
                Event::Again => again_at = None,
                Event::Messages(messages) => {
                    self.silent_at = None;
                    for (id, reply) in messages.into_iter().filter_map(A::reply) {
                        if let Some(busy) = self.take(id, reply) {
                            waiting.push_back(busy);
                            again_at = Some(tokio::time::Instant::now() + BUSY_PAUSE);
                        }
                    }
                    self.wait_for_some();
                }
            }
        }
    }

    /// Hosts of one cluster have the same services: nobody else is asked.
    fn give_all_up(&mut self, waiting: &mut VecDeque<Order<A>>, why: &str) {
        for order in std::mem::take(&mut self.in_flight).into_values().chain(waiting.drain(..)) {
            // The caller may have stopped waiting.
            let _ = order.answer.send(Err(CallError::Off(why.to_owned())));
        }
    }

    fn send(&mut self, mut order: Order<A>) {
        if !has_come_to(&order.stage, SENT) {
            return;
        }
        order.sent_at = Some(tokio::time::Instant::now());
        self.next += 1;
        self.writing.push(&order.ask.message(self.next));
        if order.ask.is_answered() {
            let silent_at = order.ask.patience().map(|patience| tokio::time::Instant::now() + patience);
            // One with little patience does not wait as long as one with much.
            self.silent_at = [self.silent_at, silent_at].into_iter().flatten().min();
            self.suspicion.expects_within(order.ask.wait());
            self.in_flight.insert(self.next, order);
        }
    }

    /// The host has so long to answer something, as long as one call has patience.
    fn wait_for_some(&mut self) {
        let (mut patience, mut wait) = (None, None);
        for order in self.in_flight.values().filter(|order| !order.answer.is_closed()) {
            patience = [patience, order.ask.patience()].into_iter().flatten().min();
            wait = [wait, Some(order.ask.wait())].into_iter().flatten().min();
        }
        self.suspicion.heard(wait);
        self.silent_at = patience.map(|patience| tokio::time::Instant::now() + patience);
    }

    /// Returns the call if it is to be made again.
    fn take(&mut self, id: u64, reply: A::Reply) -> Option<Order<A>> {
        let order = self.in_flight.remove(&id)?;
        let Some(outcome) = order.ask.outcome(reply, order.so_far()) else { return Some(order) };
        // The caller may have stopped waiting.
        let _ = order.answer.send(outcome);
        None
    }
}
