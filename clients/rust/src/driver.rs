//! Drives the client role: the same code that runs in the simulator, on a real socket and clock.

use crate::CallError;
use crate::connection::{Connection, DialError, Lost, Reading, Writing};
use crate::credentials::Credentials;
use kernel::{
    Beacons, Cx, Effect, Effects, HostId, HostSlot, Instant, NodeId, Position, RequestId, Rng, Role,
    Situation, Wall,
};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use wire::commands::{Call, ClientTimer, CommandCalls, CommandClient, CommandMessage, Outcome};

/// On its way to the driver.
pub(crate) enum Order {
    /// To be made.
    Call {
        /// Of no other call of the client.
        number: u64,
        call: Call,
        answer: Answer,
    },
    /// Nobody waits for this call any more: is it certain that no host has it, nor will?
    GiveUp { number: u64, answer: oneshot::Sender<bool> },
}

/// Who waits for a call; an error if no host has what was called.
type Answer = oneshot::Sender<Result<Outcome, CallError>>;

/// An answer slower than this is looked for at another host.
const RESEND_AFTER: Duration = Duration::from_millis(300);
/// A dial that takes longer is given up for the next endpoint; twice as long after each round of all endpoints.
const DIAL_WITHIN: Duration = Duration::from_millis(300);
const DIAL_WITHIN_MAX: Duration = Duration::from_secs(5);
/// The pause after all endpoints have failed, twice as long each time.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(20);
const DIAL_AGAIN_AFTER_MAX: Duration = Duration::from_millis(500);
/// Calls taken from the queue before anything is sent.
const ORDERS_PER_BURST: usize = 1024;

type Dial = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

/// What hosts have said that turned the client away, by endpoint; none of a host that answered since.
pub(crate) type Refusals = Arc<Mutex<BTreeMap<String, String>>>;

/// The way to one endpoint at a time.
enum Link {
    Down,
    /// What waits for the connection goes first when it is there.
    Dialling {
        endpoint: usize,
        dial: Dial,
        queue: Vec<CommandMessage>,
    },
    Up {
        endpoint: usize,
        reading: Reading,
        writing: Writing,
    },
}

struct Driver {
    endpoints: Vec<String>,
    credentials: Credentials,
    client: CommandClient<CommandCalls>,
    effects: Effects<CommandCalls>,
    rng: Rng,
    started: std::time::Instant,
    waiting: HashMap<RequestId, Answer>,
    resend_at: Option<tokio::time::Instant>,
    /// When to try the next endpoint, after all have failed.
    retry_at: Option<tokio::time::Instant>,
    /// Dials and connections that failed since bytes last came.
    failures: usize,
    refusals: Refusals,
    link: Link,
}

/// Serves calls until every handle is dropped.
pub(crate) async fn run(
    endpoints: Vec<String>,
    credentials: Credentials,
    mut orders: mpsc::UnboundedReceiver<Order>,
    refusals: Refusals,
) {
    let seed = crate::calls::drawn();
    let batchers = (0..endpoints.len()).map(batcher).collect();
    let mut driver = Driver {
        endpoints,
        credentials,
        client: CommandClient::new(batchers, RESEND_AFTER),
        effects: Effects::new(Position(0), false),
        rng: Rng::seeded(seed),
        started: std::time::Instant::now(),
        waiting: HashMap::new(),
        resend_at: None,
        retry_at: None,
        failures: 0,
        refusals,
        link: Link::Down,
    };
    driver.with_role(|client, cx| client.on_start(cx));
    while driver.turn(&mut orders).await {}
}

fn batcher(endpoint: usize) -> NodeId {
    NodeId::new(HostId(endpoint as u32 + 1), HostSlot(1))
}

enum Event {
    Order(Option<Order>),
    Link(LinkEvent),
    Resend,
    Retry,
}

enum LinkEvent {
    Dialled(Result<Connection, DialError>),
    Messages(Vec<CommandMessage>),
    Lost(Lost),
}

impl Driver {
    fn with_role(
        &mut self,
        call: impl FnOnce(&mut CommandClient<CommandCalls>, &mut Cx<'_, CommandClient<CommandCalls>>),
    ) {
        let now = Instant(self.started.elapsed().as_nanos() as u64);
        let wall = Wall { earliest: 0, latest: u64::MAX, usable: false };
        let (node, beacons) = (NodeId::ZERO, &Beacons::default());
        let situation = Situation { node, now, wall, rng: &mut self.rng, disk_full: false, beacons };
        call(&mut self.client, &mut Cx::new(situation, &mut self.effects));
    }

    /// Waits for one event and whatever came with it; false when all handles are gone.
    async fn turn(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> bool {
        let event = tokio::select! {
            order = orders.recv() => Event::Order(order),
            event = self.link.event() => Event::Link(event),
            () = until(self.resend_at) => Event::Resend,
            () = until(self.retry_at) => Event::Retry,
        };
        match event {
            Event::Order(None) => return false,
            Event::Order(Some(order)) => {
                self.take(order);
                for _ in 0..ORDERS_PER_BURST {
                    let Ok(order) = orders.try_recv() else { break };
                    self.take(order);
                }
            }
            Event::Link(LinkEvent::Dialled(Ok(connection))) => self.come_up(connection),
            Event::Link(LinkEvent::Messages(messages)) => self.take_messages(messages),
            Event::Link(LinkEvent::Dialled(Err(DialError::Refused(why)))) => {
                if let Link::Dialling { endpoint, .. } = self.link {
                    self.refusals().insert(self.endpoints[endpoint].clone(), why);
                }
                self.go_down();
            }
            Event::Link(LinkEvent::Lost(Lost::Off(why))) => {
                self.give_all_up(&why);
                self.go_down();
            }
            Event::Link(LinkEvent::Dialled(Err(DialError::Broken)) | LinkEvent::Lost(Lost::Broken)) => {
                self.go_down();
            }
            Event::Resend => {
                self.resend_at = None;
                self.with_role(|client, cx| client.on_timer(ClientTimer::Resend, cx));
            }
            Event::Retry => {
                self.retry_at = None;
                self.with_role(|client, cx| client.turn_to_the_next_batcher(cx));
            }
        }
        self.with_role(|client, cx| client.on_burst_end(cx));
        self.carry_out();
        true
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Call { number, call, answer } => {
                self.waiting.insert(RequestId(number), answer);
                self.with_role(|client, cx| client.on_request(RequestId(number), call, cx));
            }
            Order::GiveUp { number, answer } => {
                let id = RequestId(number);
                // Answered just now: what it came to is not known to the caller.
                let is_unsent = self.waiting.remove(&id).is_some() && self.client.give_up(id);
                // The caller may have stopped waiting.
                let _ = answer.send(is_unsent);
            }
        }
    }

    fn come_up(&mut self, connection: Connection) {
        let Connection { reading, mut writing } = connection;
        if let Link::Dialling { endpoint, queue, .. } = std::mem::replace(&mut self.link, Link::Down) {
            queue.iter().for_each(|message| writing.push(message));
            self.link = Link::Up { endpoint, reading, writing };
        }
    }

    fn take_messages(&mut self, messages: Vec<CommandMessage>) {
        let Link::Up { endpoint, .. } = self.link else { return };
        self.failures = 0;
        self.refusals().clear();
        for message in messages {
            if let CommandMessage::Client(message) = message {
                self.with_role(|client, cx| client.on_message(batcher(endpoint), message, cx));
            }
        }
    }

    /// Hosts of one cluster have the same services: nobody else is asked.
    fn give_all_up(&mut self, why: &str) {
        for (id, answer) in std::mem::take(&mut self.waiting) {
            self.client.give_up(id);
            // The caller may have stopped waiting.
            let _ = answer.send(Err(CallError::Off(why.to_owned())));
        }
    }

    fn refusals(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next endpoint is tried at once, until all have failed.
    fn go_down(&mut self) {
        self.link = Link::Down;
        self.failures += 1;
        if self.failures.is_multiple_of(self.endpoints.len()) {
            let rounds = (self.failures / self.endpoints.len()).min(16) as u32;
            let pause = (DIAL_AGAIN_AFTER * (1 << (rounds - 1))).min(DIAL_AGAIN_AFTER_MAX);
            self.retry_at = Some(tokio::time::Instant::now() + pause);
        } else {
            self.with_role(|client, cx| client.turn_to_the_next_batcher(cx));
        }
    }

    fn carry_out(&mut self) {
        let effects: Vec<_> = self.effects.drain().collect();
        for effect in effects {
            match effect {
                Effect::Send { to, message }
                | Effect::SendDurable { to, message, .. }
                | Effect::SetBeacon { to, message }
                | Effect::Repeat { to, message, .. } => {
                    self.send(to.host().0 as usize - 1, message);
                }
                Effect::SetTimer { after, .. } => self.resend_at = Some(tokio::time::Instant::now() + after),
                // A client sets none.
                Effect::StopBeacon { .. } => {}
                Effect::StopTimer { .. } => self.resend_at = None,
                Effect::Respond { id, response } => {
                    if let Some(answer) = self.waiting.remove(&id) {
                        // The caller may have stopped waiting.
                        let _ = answer.send(Ok(response));
                    }
                }
                // A client keeps nothing, so it has nothing to give up or to read.
                Effect::Blob(_)
                | Effect::Trim { .. }
                | Effect::Reject { .. }
                | Effect::Mark { .. }
                | Effect::Note { .. } => {}
            }
        }
    }

    /// What is lost with a link is sent again by the role.
    fn send(&mut self, to: usize, message: CommandMessage) {
        match &mut self.link {
            Link::Up { endpoint, writing, .. } if *endpoint == to => writing.push(&message),
            Link::Dialling { endpoint, queue, .. } if *endpoint == to => queue.push(message),
            // All have failed just now: the role sends everything again after the pause.
            Link::Down if self.retry_at.is_some() => {}
            Link::Down | Link::Up { .. } | Link::Dialling { .. } => {
                let rounds = (self.failures / self.endpoints.len()).min(16) as u32;
                let within = (DIAL_WITHIN * (1 << rounds)).min(DIAL_WITHIN_MAX);
                let dial = Connection::dial(self.endpoints[to].clone(), self.credentials.clone(), within);
                self.link = Link::Dialling { endpoint: to, dial: Box::pin(dial), queue: vec![message] };
            }
        }
    }
}

impl Link {
    async fn event(&mut self) -> LinkEvent {
        match self {
            Self::Down => std::future::pending().await,
            Self::Dialling { dial, .. } => LinkEvent::Dialled(dial.await),
            Self::Up { reading, writing, .. } => tokio::select! {
                received = reading.receive() => received.map_or_else(LinkEvent::Lost, LinkEvent::Messages),
                written = writing.progress() => {
                    let written: io::Result<Infallible> = written;
                    match written {
                        Ok(never) => match never {},
                        Err(_) => LinkEvent::Lost(Lost::Broken),
                    }
                }
            },
        }
    }
}

async fn until(timer: Option<tokio::time::Instant>) {
    match timer {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
