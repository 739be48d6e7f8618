//! A deterministic simulator of clusters, networks, disks and clocks that fail.
//!
//! It runs any [`kernel::Node`] as the real runtime does (bursts, a journal with one fsync a burst, durable sends that
//! wait for it) and draws everything else from one seed: who is slow, which message is lost, when a host dies and what
//! its disk then forgets. Each run has a **safety phase**, in which faults strike, and a **liveness phase**: a random
//! quorum core is healed, the rest stays broken, and the core must serve its clients and converge.
//!
//! - [`run_seed`] makes one run; the same seed gives the same [`Outcome::hash`].
//! - [`sweep`] makes many and says what they reached; [`determinism`] checks the simulator itself.
//! - [`shrink`] takes faults and operations out of a failing run for as long as it fails; [`report()`] prints the rest.
//! - [`experiment`] makes one object of a scenario, for programs that run many.
//! - [`explore`] visits every state of a cluster small enough for that.
//! - [`cost`] is the other physics: nothing fails, and everything takes time.
//!
//! # What is simulated
//!
//! **Hosts** hold nodes that share a journal, crash together, and pass messages between them in order. A host that is
//! busy collects what arrives and works it off as one burst. **Links** keep the order of what they carry unless a fault
//! says otherwise. **Disks** hold framed records with checksums; see [`Loss`] for what a crash leaves. A restart hands
//! back every record that was durable and not trimmed; depending on the seed also some that were trimmed, as a journal
//! made of whole segments does. A journal whose durable part is damaged is never handed back:
//! [`Scenario::on_disk_lost`] decides. **Clocks**: a role's monotonic clock starts anywhere in each incarnation; the wall
//! clock is honest unless [`Class::ClockLie`] is on. **Full disks** hold appends back until there is space.
//!
//! # A complete example
//!
//! ```
//! use kernel::{Cx, Family, HostId, NodeId, HostSlot, Position, RequestId, Rng, Role};
//! use sim::{Cluster, Control, Core, HostSpec, Incarnation, OperationId, Scenario, Sweep};
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! // The protocol: a counter that remembers, and a client that asks until it is answered.
//! kernel::messages! {
//!     /// To the counter.
//!     pub enum CounterIn in Message::Counter {
//!         /// Raise the counter to at least `to`.
//!         1 => Raise { request: u64, to: u64 },
//!     }
//! }
//! kernel::messages! {
//!     /// To the client.
//!     pub enum ClientIn in Message::Client {
//!         /// It is at least that now.
//!         1 => Raised { request: u64, sum: u64 },
//!     }
//! }
//! kernel::timers! {
//!     /// The client's timers.
//!     pub enum ClientTimer { Resend }
//! }
//! kernel::family! {
//!     /// All messages.
//!     messages Message;
//!     /// All roles.
//!     members Member [] [] of Counting {
//!         1 => Counter(CounterIn, Counter, "counter"),
//!         2 => Client(ClientIn, Client, "client"),
//!     }
//! }
//! pub struct Counting;
//! impl Family for Counting {
//!     type Message = Message;
//!     type Request = u64;
//!     type Response = u64;
//! }
//!
//! #[derive(Default)]
//! pub struct Counter { sum: u64 }
//! impl Role for Counter {
//!     type Family = Counting;
//!     type In = CounterIn;
//!     type Timer = Infallible;
//!     type Record = u64;
//!     fn restore(&mut self, _: Position, sum: u64) { self.sum = self.sum.max(sum); }
//!     fn on_message(&mut self, from: NodeId, message: CounterIn, cx: &mut Cx<'_, Self>) {
//!         let CounterIn::Raise(Raise { request, to }) = message;
//!         if to > self.sum {
//!             self.sum = to;
//!             let at = cx.append(&self.sum);
//!             cx.trim(at);
//!         }
//!         cx.send_durable(from, Raised { request, sum: self.sum });
//!     }
//! }
//!
//! #[derive(Default)]
//! pub struct Client { waits: Option<(RequestId, u64)> }
//! impl Client {
//!     fn ask(&mut self, cx: &mut Cx<'_, Self>) {
//!         if let Some((id, to)) = self.waits {
//!             cx.send(COUNTER, Raise { request: id.0, to });
//!             cx.set_timer(ClientTimer::Resend, Duration::from_millis(200));
//!         }
//!     }
//! }
//! impl Role for Client {
//!     type Family = Counting;
//!     type In = ClientIn;
//!     type Timer = ClientTimer;
//!     type Record = Infallible;
//!     fn restore(&mut self, _: Position, record: Infallible) { match record {} }
//!     fn on_request(&mut self, id: RequestId, to: u64, cx: &mut Cx<'_, Self>) {
//!         self.waits = Some((id, to));
//!         self.ask(cx);
//!     }
//!     fn on_timer(&mut self, _: ClientTimer, cx: &mut Cx<'_, Self>) {
//!         cx.mark("client.resend");
//!         self.ask(cx);
//!     }
//!     fn on_message(&mut self, _: NodeId, message: ClientIn, cx: &mut Cx<'_, Self>) {
//!         let ClientIn::Raised(Raised { request, sum }) = message;
//!         if self.waits.is_some_and(|(id, _)| id.0 == request) {
//!             self.waits = None;
//!             cx.respond(RequestId(request), sum);
//!         }
//!     }
//! }
//!
//! // The scenario: who runs where, what clients do, what must hold.
//! const SERVER: HostId = HostId(1);
//! const COUNTER: NodeId = NodeId::new(SERVER, HostSlot(0));
//! const CLIENT: NodeId = NodeId::new(HostId(2), HostSlot(0));
//!
//! #[derive(Default)]
//! struct CounterScenario { acknowledged: u64 }
//! impl Scenario for CounterScenario {
//!     type Node = Member;
//!     const FAMILY: &'static str = "counter";
//!     const MARKS: &'static [&'static str] = &["client.resend"];
//!     fn hosts(&self) -> Vec<HostSpec> {
//!         vec![HostSpec::server(SERVER), HostSpec::client(CLIENT.host())]
//!     }
//!     fn clients(&self) -> Vec<NodeId> { vec![CLIENT] }
//!     fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
//!         if incarnation.host == SERVER {
//!             vec![(HostSlot(0), Member::Counter(Counter::default()))]
//!         } else {
//!             vec![(HostSlot(0), Member::Client(Client::default()))]
//!         }
//!     }
//!     fn operate(&mut self, _: OperationId, node: NodeId, rng: &mut Rng, control: &mut Control<'_, Member>) {
//!         control.request(node, rng.below(1_000));
//!     }
//!     fn on_response(&mut self, _: NodeId, _: RequestId, sum: u64, _: &mut Control<'_, Member>) {
//!         kernel::invariant!(DUR, sum >= self.acknowledged, "{sum} after {}", self.acknowledged);
//!         self.acknowledged = sum;
//!     }
//!     fn core(&mut self, _: &Cluster<'_, Member>, _: &mut Rng) -> Core {
//!         Core::Hosts(vec![SERVER, CLIENT.host()])
//!     }
//! }
//!
//! let report = sim::sweep(&|_: &mut Rng| CounterScenario::default(), &Sweep::of(0..20));
//! assert!(report.passed(), "{}", report.to_json());
//! ```
#![forbid(unsafe_code)]

mod archive;
mod beacons;
mod class;
mod clock;
pub mod cost;
mod disk;
mod draw;
mod echoes;
mod effects;
mod effort;
mod elders;
mod experiment;
mod explore;
mod fact;
mod files;
mod host;
mod latency;
mod network;
mod outcome;
mod outside;
mod panics;
mod plan;
pub mod planted;
mod queue;
mod report;
mod run;
mod scenario;
mod shrink;
mod spec;
mod swarm;
mod sweep;
mod trace;
mod words;

pub use archive::SimulatedArchive;
pub use class::{Class, Classes, Injections};
pub use clock::WALL_EPOCH;
pub use effort::core_seconds;
pub use experiment::{Experiment, experiment};
pub use explore::{
    Counterexample, Exploration, ExploreBounds, ExploredCluster, Scope, Spent, StepKind, explore,
};
pub use fact::{Fact, IsClaim};
pub use latency::Latency;
pub use network::Hindrance;
pub use outcome::{Options, Outcome, Violation};
pub use plan::{
    Aim, BegunOperation, Blow, Fate, Fault, Frozen, HostIndex, HostMask, Loss, NetworkPartition, OperationId,
    Plan, PlanError,
};
pub use report::{Before, Report, report};
pub use run::run_seed;
pub use scenario::{Cluster, Control, Core, Replacement, Scenario};
pub use shrink::{Shrunk, shrink};
pub use spec::{HostKind, HostSpec, Incarnation, MessageOf, RequestOf, ResponseOf, StrikeKind};
pub use swarm::{Swarm, Tuning};
pub use sweep::{Divergence, Found, Reached, Sweep, SweepReport, determinism, sweep};
pub use trace::TraceLine;
pub use words::plain;
