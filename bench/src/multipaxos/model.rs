//! What each station spends on a command, added up by hand: the closed form that simulations are held against.

use super::deployment::{AcceptorLayout, Clients, MachineLayout, StoreDeployment};
use super::workload::Workload;
use crate::profile::{Handle, Profile};
use crate::step::PricedStep;
use kernel::{Encode, HostId, HostSlot, NodeId};
use parts::{Ballot, Sequence, SessionId, Slot};
use paxos::multipaxos::client::{Row, Status};
use paxos::multipaxos::{acceptor, batcher, client, leader, proxy_leader, replica, unbatcher};
use paxos::{Batch, BatchId, CommandGroup, Commands, GroupKind, Level, Message, Value};

/// One kind of machine in a deployment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Its name.
    pub station: &'static str,
    /// How many there are.
    pub machines: usize,
    /// Nanoseconds that each of them spends on an average command.
    pub nanos: f64,
}

/// The stations of a deployment.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// With what they spend.
    pub demands: Vec<Demand>,
}

/// What a burst does for all its inputs together is divided over so many, where bursts have no bound.
const BURST_UNDER_LOAD: usize = 64;

impl Model {
    /// Commands a second at which the first station has no time left.
    pub fn capacity(&self) -> f64 {
        1e9 / self.bottleneck().nanos
    }

    /// That station.
    pub fn bottleneck(&self) -> Demand {
        let nothing = Demand { station: "nobody", machines: 0, nanos: 0.0 };
        self.demands.iter().copied().max_by(|a, b| a.nanos.total_cmp(&b.nanos)).unwrap_or(nothing)
    }

    /// The stations of a compartmentalized deployment; of another one, nothing is known in closed form but its single machine.
    pub fn of(deployment: &StoreDeployment, profile: &Profile, workload: &Workload) -> Model {
        let sums = Sums::new(deployment, profile, workload);
        match deployment.shape {
            MachineLayout::Compartmentalized { proxy_leaders, acceptors, replicas } => {
                sums.compartmentalized(deployment.clients, proxy_leaders, acceptors, replicas)
            }
            MachineLayout::Colocated { .. } | MachineLayout::Unreplicated => {
                let nanos =
                    sums.taken(PricedStep::Unreplicated, sums.batch, &sums.propose) + sums.put(&sums.results);
                let nanos = nanos / sums.batch;
                Model { demands: vec![Demand { station: "unreplicated", machines: 1, nanos }] }
            }
        }
    }
}

/// Messages of this workload, to be weighed.
struct Sums<'a> {
    profile: &'a Profile,
    burst: f64,
    writes: f64,
    reads: f64,
    level: Level,
    batch: f64,
    read_batch: f64,
    submit: Message,
    query: Message,
    propose: Message,
    assign: Message,
    phase2a: Message,
    phase2b: Message,
    chosen: Message,
    results: Message,
    answer: Message,
    pre_read: Message,
    pre_read_ack: Message,
    read: Message,
    read_results: Message,
    read_answer: Message,
}

fn rows(command: &[u8]) -> Commands {
    let mut row = Vec::new();
    Commands::push(&mut row, Sequence(0), command);
    Commands::from_row(row)
}

impl<'a> Sums<'a> {
    fn new(deployment: &StoreDeployment, profile: &'a Profile, workload: &Workload) -> Self {
        let node = NodeId::new(HostId(1), HostSlot(1));
        let (session, slot, ballot) = (SessionId(1), Slot(1), Ballot { round: 1, leader: node });
        let (put, get) = (rows(&workload.put(0)), rows(&workload.get(0)));
        let kind = GroupKind::ExecuteIn(slot);
        let group =
            || CommandGroup { client: node, session, acknowledged: Sequence(0), kind, commands: put.clone() };
        let batch = deployment.batching.commands.max(1);
        let read_group = || replica::ReadGroup { client: node, session, queries: get.clone() };
        let read_batch = batch;
        let id = BatchId { batcher: node, number: 1 };
        let batched = Batch {
            id: id.clone(),
            unbatcher: node,
            groups: (0..batch).map(|_| group()).collect(),
            rules: None,
        };
        let value = Value::batch(batched.encoded()).expect("it is small");
        let row = |bytes: usize| {
            let mut row = Row::default();
            row.push(Sequence(0), Status::Done, &vec![0; bytes]);
            row
        };
        // A put is answered by two revisions, a get by a value and its revision; both behind a tag.
        let (written, gotten) = (17, workload.value_bytes + 13);
        let reply =
            |bytes| unbatcher::GroupResults { client: node, session, results: row(bytes), opened: None };
        let answered = |bytes| client::Results { session, executed: slot, results: row(bytes) };
        let results = |batch: Option<BatchId>, count: usize, bytes: usize| unbatcher::BatchResults {
            batch,
            executed: slot,
            replies: (0..count).map(|_| reply(bytes)).collect(),
        };
        Self {
            profile,
            burst: profile.driver.burst_inputs_max.clamp(1, BURST_UNDER_LOAD) as f64,
            writes: 1.0 - workload.reads,
            reads: workload.reads,
            level: workload.level,
            batch: batch as f64,
            read_batch: read_batch as f64,
            submit: batcher::Submit { session, acknowledged: Sequence(0), kind, commands: put.clone() }
                .into(),
            query: batcher::Query { session, level: workload.level, seen: slot, queries: get.clone() }.into(),
            propose: leader::Propose { value: value.clone() }.into(),
            assign: proxy_leader::Assign { ballot, slot, version: 0, value: value.clone() }.into(),
            phase2a: acceptor::Phase2a { ballot, slot, value: value.clone() }.into(),
            phase2b: proxy_leader::Phase2b { ballot, slot }.into(),
            chosen: replica::Chosen { ballot, slot, value: Some(value) }.into(),
            results: results(Some(id), batch, written).into(),
            answer: answered(written).into(),
            pre_read: acceptor::PreRead { id: 1, version: 0 }.into(),
            pre_read_ack: batcher::PreReadAck { id: 1, voted_through: slot }.into(),
            read: replica::ReadBatch {
                through: slot,
                unbatcher: node,
                reads: (0..read_batch).map(|_| read_group()).collect(),
            }
            .into(),
            read_results: results(None, read_batch, gotten).into(),
            read_answer: answered(gotten).into(),
        }
    }

    fn handled(&self, step: PricedStep, items: f64) -> f64 {
        let Handle { message, item } = self.profile.handle(step);
        message + item * items
    }

    /// Receiving and handling a message.
    fn taken(&self, step: PricedStep, items: f64, message: &Message) -> f64 {
        let driver = &self.profile.driver;
        let bytes = message.encoded().len() as f64;
        (driver.burst + driver.read) / self.burst
            + driver.receive
            + driver.receive_byte * bytes
            + self.handled(step, items)
    }

    /// Sending a message.
    fn put(&self, message: &Message) -> f64 {
        let driver = &self.profile.driver;
        driver.write / self.burst + driver.send + driver.send_byte * message.encoded().len() as f64
    }

    fn compartmentalized(
        &self,
        clients: Clients,
        proxy_leaders: usize,
        acceptors: AcceptorLayout,
        replicas: usize,
    ) -> Model {
        let (batch, read_batch) = (self.batch, self.read_batch);
        // Whom a write asks, and whom a read asks.
        let (written, asked) = match acceptors {
            AcceptorLayout::Majority(count) => (count / 2 + 1, count),
            AcceptorLayout::Grid { rows, columns } => (rows, columns),
        };
        let asked = if self.level == Level::Linearizable { asked as f64 } else { 0.0 };
        let (written, all, replicas_f) = (written as f64, acceptors.count() as f64, replicas as f64);
        let leader = self.writes / batch
            * (self.taken(PricedStep::Propose, batch, &self.propose) + self.put(&self.assign));
        let proxy = self.taken(PricedStep::Assign, batch, &self.assign)
            + written * (self.put(&self.phase2a) + self.taken(PricedStep::Phase2b, 0.0, &self.phase2b))
            + replicas_f * self.put(&self.chosen);
        let vote = self.taken(PricedStep::Phase2a, batch, &self.phase2a) + self.put(&self.phase2b);
        let notify = self.taken(PricedStep::PreRead, 0.0, &self.pre_read) + self.put(&self.pre_read_ack);
        let write =
            self.taken(PricedStep::Chosen, batch, &self.chosen) + self.put(&self.results) / replicas_f;
        let read = self.taken(PricedStep::Read, read_batch, &self.read) + self.put(&self.read_results);
        let mut demands = vec![
            Demand { station: "leader", machines: 1, nanos: leader },
            Demand {
                station: "proxy leader",
                machines: proxy_leaders,
                nanos: self.writes / batch * proxy / proxy_leaders as f64,
            },
            Demand {
                station: "acceptor",
                machines: acceptors.count(),
                nanos: self.writes / batch * vote * written / all
                    + self.reads / read_batch * notify * asked / all,
            },
            Demand {
                station: "replica",
                machines: replicas,
                nanos: self.writes / batch * write + self.reads / read_batch * read / replicas_f,
            },
        ];
        if let Clients::Connect { batchers } = clients {
            let write = self.taken(PricedStep::Submit, 1.0, &self.submit)
                + (self.put(&self.propose)
                    + self.taken(PricedStep::Unbatch, batch, &self.results)
                    + self.handled(PricedStep::Done, 0.0))
                    / batch
                + self.put(&self.answer);
            let ask = self.put(&self.pre_read) + self.taken(PricedStep::PreReadAck, 0.0, &self.pre_read_ack);
            let read = self.taken(PricedStep::Query, 1.0, &self.query)
                + (asked * ask
                    + self.put(&self.read)
                    + self.taken(PricedStep::Unbatch, read_batch, &self.read_results))
                    / read_batch
                + self.put(&self.read_answer);
            let nanos = (self.writes * write + self.reads * read) / batchers as f64;
            demands.push(Demand { station: "batcher", machines: batchers, nanos });
        }
        Model { demands }
    }
}
