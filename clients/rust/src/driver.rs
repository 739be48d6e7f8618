//! Drives the client role: the same code that runs in the simulator, on a real socket and clock.

use crate::connection::Connection;
use kernel::{
    Cx, Effect, Effects, HostId, Instant, NodeId, Place, Position, RequestId, Rng, Role, Situation, Wall,
};
use paxos::multipaxos::client::{Client, ClientTimer};
use paxos::{Call, Message, Outcome, Paxos};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A call on its way to the driver.
pub(crate) struct Order {
    pub(crate) call: Call,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// An answer slower than this is looked for at another host.
const RESEND_AFTER: Duration = Duration::from_millis(300);
/// The pause after a failed dial.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Calls taken from the queue before anything is sent.
const ORDERS_PER_BURST: usize = 1024;

struct Driver {
    endpoints: Vec<String>,
    client: Client,
    effects: Effects<Paxos>,
    rng: Rng,
    started: std::time::Instant,
    waiting: HashMap<RequestId, oneshot::Sender<Outcome>>,
    next: u64,
    timer: Option<tokio::time::Instant>,
    connection: Option<(usize, Connection)>,
}

/// Serves calls until every handle is dropped.
pub(crate) async fn run(endpoints: Vec<String>, mut orders: mpsc::UnboundedReceiver<Order>) {
    // The standard library's hasher is seeded by the system; its output is as good a seed as any.
    let seed = RandomState::new().build_hasher().finish();
    let batchers = (0..endpoints.len()).map(batcher).collect();
    let mut driver = Driver {
        endpoints,
        client: Client::new(batchers, RESEND_AFTER),
        effects: Effects::new(Position(0), false),
        rng: Rng::seeded(seed),
        started: std::time::Instant::now(),
        waiting: HashMap::new(),
        next: 0,
        timer: None,
        connection: None,
    };
    driver.with_role(|client, cx| client.on_start(cx));
    while driver.turn(&mut orders).await {}
}

fn batcher(endpoint: usize) -> NodeId {
    NodeId::new(HostId(endpoint as u32 + 1), Place(1))
}

enum Event {
    Order(Option<Order>),
    Messages(std::io::Result<Vec<Message>>),
    Timer,
}

impl Driver {
    fn with_role(&mut self, call: impl FnOnce(&mut Client, &mut Cx<'_, Client>)) {
        let now = Instant(self.started.elapsed().as_nanos() as u64);
        let wall = Wall { earliest: 0, latest: u64::MAX };
        let situation = Situation { node: NodeId::ZERO, now, wall, rng: &mut self.rng };
        call(&mut self.client, &mut Cx::new(situation, &mut self.effects));
    }

    /// Waits for one event and whatever came with it; false when all handles are gone.
    async fn turn(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> bool {
        let event = tokio::select! {
            order = orders.recv() => Event::Order(order),
            messages = receive(&mut self.connection) => Event::Messages(messages),
            () = until(self.timer) => Event::Timer,
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
            Event::Messages(Ok(messages)) => {
                let from = self.connection.as_ref().map_or(NodeId::ZERO, |(endpoint, _)| batcher(*endpoint));
                for message in messages {
                    if let Message::Client(message) = message {
                        self.with_role(|client, cx| client.on_message(from, message, cx));
                    }
                }
            }
            Event::Messages(Err(_)) => {
                self.connection = None;
                self.with_role(|client, cx| client.turn_to_the_next_batcher(cx));
            }
            Event::Timer => {
                self.timer = None;
                self.with_role(|client, cx| client.on_timer(ClientTimer::Resend, cx));
            }
        }
        self.with_role(|client, cx| client.on_burst_end(cx));
        self.carry_out().await;
        true
    }

    fn take(&mut self, order: Order) {
        let id = RequestId(self.next);
        self.next += 1;
        self.waiting.insert(id, order.answer);
        self.with_role(|client, cx| client.on_request(id, order.call, cx));
    }

    async fn carry_out(&mut self) {
        let effects: Vec<_> = self.effects.drain().collect();
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendDurable { to, message, .. } => {
                    if self.reach(to).await
                        && let Some((_, connection)) = &mut self.connection
                    {
                        connection.push(&message);
                    }
                }
                Effect::SetTimer { after, .. } => self.timer = Some(tokio::time::Instant::now() + after),
                Effect::StopTimer { .. } => self.timer = None,
                Effect::Respond { id, response } => {
                    if let Some(answer) = self.waiting.remove(&id) {
                        // Whoever asked may have stopped waiting.
                        let _ = answer.send(response);
                    }
                }
                Effect::Trim { .. } | Effect::Reject { .. } | Effect::Mark { .. } | Effect::Note { .. } => {}
            }
        }
        let flushed = match &mut self.connection {
            Some((_, connection)) => connection.flush().await,
            None => Ok(()),
        };
        if flushed.is_err() {
            self.connection = None;
            // The next look at late answers turns to another host.
            self.timer = Some(tokio::time::Instant::now() + DIAL_AGAIN_AFTER);
        }
    }

    /// True if the host `to` is connected, after dialling it if need be. What cannot be sent is sent again by the role.
    async fn reach(&mut self, to: NodeId) -> bool {
        let endpoint = to.host().0 as usize - 1;
        if self.connection.as_ref().is_some_and(|(connected, _)| *connected == endpoint) {
            return true;
        }
        self.connection = None;
        match Connection::dial(&self.endpoints[endpoint]).await {
            Ok(connection) => {
                self.connection = Some((endpoint, connection));
                true
            }
            Err(_) => {
                self.timer = Some(tokio::time::Instant::now() + DIAL_AGAIN_AFTER);
                false
            }
        }
    }
}

async fn receive(connection: &mut Option<(usize, Connection)>) -> std::io::Result<Vec<Message>> {
    match connection {
        Some((_, connection)) => connection.receive().await,
        None => std::future::pending().await,
    }
}

async fn until(timer: Option<tokio::time::Instant>) {
    match timer {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
