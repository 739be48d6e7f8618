//! What handlers cost: roles in the cost simulator, with a clock around every call.

use crate::multipaxos::{
    AcceptorLayout, Batching, Clients, MachineLayout, Running, Seat, StoreDeployment, Workload,
};
use crate::ordering::MayLead;
use crate::profile::{Handle, Profile};
use crate::services::{self, Operations, OrderedService};
use crate::step::{PricedStep, Steps};
use kernel::{Bytes, DecodeError, Effects, Family, Node, NodeId, Position, RequestId, Situation, TimerIndex};
use mason::proxy::Proxy;
use paxos::Level;
use sim::cost::{Pace, Scale, Window};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What was spent on one step.
#[derive(Clone, Debug, Default)]
struct Spent {
    items: f64,
    /// Of each message.
    handled: Vec<f64>,
    /// Of each burst that ended with it.
    ended: Vec<f64>,
}

impl Spent {
    fn messages(&self) -> f64 {
        self.handled.len() as f64
    }

    /// Nanoseconds, without the calls in the middle of which the processor was given to somebody else.
    fn nanos(&self) -> f64 {
        undisturbed(&self.handled) + undisturbed(&self.ended)
    }
}

/// The sum, with the longest hundredth taken for as long as the others.
fn undisturbed(spans: &[f64]) -> f64 {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let retained = &sorted[..sorted.len() - sorted.len() / 100];
    retained.iter().sum::<f64>() * spans.len() as f64 / retained.len().max(1) as f64
}

#[derive(Debug)]
struct Books {
    spent: Vec<Spent>,
    /// Looking at the clock twice.
    clock: f64,
}

/// A node with a clock around its calls; the end of a burst is booked on what the node handled last.
pub struct Timed<N = Seat> {
    seat: N,
    books: Rc<RefCell<Books>>,
    last: Option<PricedStep>,
}

impl AsRef<Seat> for Timed {
    fn as_ref(&self) -> &Seat {
        &self.seat
    }
}

impl MayLead for Timed<services::Seat> {
    fn proxy(&self) -> Option<&Proxy> {
        self.seat.proxy()
    }
}

impl<N> Timed<N> {
    /// Books a message with its items, or the end of a burst.
    fn book(&self, step: PricedStep, items: Option<u32>, began: Instant) {
        let nanos = began.elapsed().as_nanos() as f64;
        let mut books = self.books.borrow_mut();
        let nanos = (nanos - books.clock).max(0.0);
        let spent = &mut books.spent[step as usize];
        match items {
            Some(items) => {
                spent.items += f64::from(items);
                spent.handled.push(nanos);
            }
            None => spent.ended.push(nanos),
        }
    }
}

impl<N: Node> Node for Timed<N>
where
    Steps: Scale<N::Family>,
{
    type Family = N::Family;

    fn restore(&mut self, position: Position, record: Bytes) -> Result<(), DecodeError> {
        self.seat.restore(position, record)
    }

    fn on_start(&mut self, situation: Situation<'_>, effects: &mut Effects<N::Family>) {
        self.seat.on_start(situation, effects);
    }

    fn on_message(
        &mut self,
        from: NodeId,
        message: <N::Family as Family>::Message,
        situation: Situation<'_>,
        effects: &mut Effects<N::Family>,
    ) {
        let weight = Scale::<N::Family>::weigh(&Steps, &message);
        let step = PricedStep::ALL.get(usize::from(weight.kind.0)).copied();
        let began = Instant::now();
        self.seat.on_message(from, message, situation, effects);
        if let Some(step) = step {
            self.book(step, Some(weight.items), began);
        }
        self.last = step;
    }

    fn on_timer(&mut self, timer: TimerIndex, situation: Situation<'_>, effects: &mut Effects<N::Family>) {
        self.last = None;
        self.seat.on_timer(timer, situation, effects);
    }

    fn on_request(
        &mut self,
        id: RequestId,
        request: <N::Family as Family>::Request,
        situation: Situation<'_>,
        effects: &mut Effects<N::Family>,
    ) {
        self.last = None;
        self.seat.on_request(id, request, situation, effects);
    }

    fn on_burst_end(&mut self, situation: Situation<'_>, effects: &mut Effects<N::Family>) {
        let began = Instant::now();
        self.seat.on_burst_end(situation, effects);
        if let Some(step) = self.last.take() {
            self.book(step, None, began);
        }
    }

    fn role_name(&self) -> &'static str {
        self.seat.role_name()
    }
}

fn clock() -> f64 {
    const LOOKS: u32 = 10_000;
    let began = Instant::now();
    let mut sum = Duration::ZERO;
    for _ in 0..LOOKS {
        sum += Instant::now().elapsed();
    }
    // What a look costs in all, of which about half falls between two.
    (began.elapsed().as_nanos() as f64).max(sum.as_nanos() as f64) / f64::from(LOOKS) / 2.0
}

const WINDOW: Window = Window { warm_up: Duration::from_millis(60), measured: Duration::from_millis(60) };
const SERVICE_WINDOW: Window =
    Window { warm_up: Duration::from_millis(5), measured: Duration::from_millis(10) };

fn books() -> Rc<RefCell<Books>> {
    Rc::new(RefCell::new(Books { spent: vec![Spent::default(); PricedStep::ALL.len()], clock: clock() }))
}

fn run_store(commands: usize, clients: usize) -> Vec<Spent> {
    let workload = Workload::writes(100).with_reads(0.3, Level::Linearizable);
    let shape = MachineLayout::Compartmentalized {
        proxy_leaders: 2,
        acceptors: AcceptorLayout::Majority(3),
        replicas: 2,
    };
    let connect = Clients::Connect { batchers: 2 };
    let deployment = StoreDeployment { shape, clients: connect, batching: Batching::of(commands) };
    let books = books();
    let profile = Profile::m5_xlarge();
    let wrap = |seat| Timed { seat, books: books.clone(), last: None };
    if let Ok(mut running) = Running::start_as(&deployment, &profile, &workload, clients, 1, wrap) {
        let nodes = running.clients.clone();
        books.borrow_mut().spent.fill(Spent::default());
        running.testbed.run(&nodes, Pace::Closed { outstanding: 1 }, &mut workload.clone(), WINDOW);
    }
    books.borrow().spent.clone()
}

/// A service over Mason: one machine of leaders, one shard.
fn run_service(outstanding: u32) -> Vec<Spent> {
    let deployment = services::ServiceDeployment {
        service: OrderedService::Shards { shards: 1 },
        leader_machines: 1,
        clients: 8,
    };
    let books = books();
    let wrap = |seat| Timed { seat, books: books.clone(), last: None };
    if let Ok(mut running) = deployment.start_as(&Profile::d430(), 1, wrap) {
        let nodes = running.clients.clone();
        books.borrow_mut().spent.fill(Spent::default());
        let pace = Pace::Closed { outstanding };
        running.testbed.run(&nodes, pace, &mut Operations::over(1, 100), SERVICE_WINDOW);
    }
    books.borrow().spent.clone()
}

/// What the roles of the store and of a service over Mason cost; what both have is the store's.
pub(super) fn measure() -> Vec<(PricedStep, Handle)> {
    let mut handles = solve(&run_store(1, 60), &run_store(32, 600));
    let of_services = solve(&run_service(1), &run_service(64));
    let is_new = |step: &PricedStep| !handles.iter().any(|(known, _)| known == step);
    let new: Vec<_> = of_services.into_iter().filter(|(step, _)| is_new(step)).collect();
    handles.extend(new);
    handles
}

/// From two runs, one with a command a batch and one with many: what a message costs, and each item in it.
fn solve(one: &[Spent], many: &[Spent]) -> Vec<(PricedStep, Handle)> {
    let mut handles = Vec::new();
    for &step in PricedStep::ALL {
        let (one, many) = (&one[step as usize], &many[step as usize]);
        if one.handled.is_empty() || many.handled.is_empty() {
            continue;
        }
        let (mean_one, mean_many) = (one.nanos() / one.messages(), many.nanos() / many.messages());
        let (items_one, items_many) = (one.items / one.messages(), many.items / many.messages());
        let item = if items_many > items_one + 1.0 {
            ((mean_many - mean_one) / (items_many - items_one)).max(0.0)
        } else {
            0.0
        };
        let message = (mean_one - item * items_one).max(0.0);
        handles.push((step, Handle { message: message.round(), item: item.round() }));
    }
    handles
}
