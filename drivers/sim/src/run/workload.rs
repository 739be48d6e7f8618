//! The clients of a run: when they begin operations, and which of those are still owed an answer.

use super::{Phase, Run};
use crate::draw::{Purpose, exponential, mix, root};
use crate::host::Status;
use crate::plan::{BegunOperation, HostIndex, OperationId};
use crate::queue::Event;
use crate::scenario::{Cluster, Control, Scenario};
use kernel::{NodeId, RequestId, Rng};
use std::collections::{BTreeMap, VecDeque};

/// How long clients of a healed core wait between operations, on average and at most.
const THINK_WHEN_HEALED_MAX: u64 = 100_000_000;

/// How often an operation crosses the longest way, to the middle of the network or from there, at most.
const CALM_WAYS: u64 = 24;

/// What begins earlier may wait until all hosts have found together, in nanoseconds.
const CALM_FROM: u64 = 3_000_000_000;

/// A client of the workload, with one operation at a time.
pub(crate) struct Client {
    pub(crate) node: NodeId,
    pub(crate) host: HostIndex,
    begun: u32,
    pub(crate) asked: Option<RequestId>,
    /// The one moment at which an `Operate` event counts.
    next_at: u64,
    /// Operations completed that began after the heal.
    fresh: u32,
    began_fresh: bool,
    began_at: u64,
}

impl Client {
    pub(crate) fn new(node: NodeId, host: HostIndex) -> Self {
        Self { node, host, begun: 0, asked: None, next_at: 0, fresh: 0, began_fresh: false, began_at: 0 }
    }
}

/// The only operations of a run.
pub(crate) struct Retained {
    all: Vec<BegunOperation>,
    /// Those that have not begun, by their clients.
    ahead: BTreeMap<u16, VecDeque<BegunOperation>>,
}

impl Retained {
    pub(crate) fn of(all: &[BegunOperation]) -> Self {
        let mut ahead: BTreeMap<u16, VecDeque<BegunOperation>> = BTreeMap::new();
        for &retained in all {
            ahead.entry(retained.operation.client).or_default().push_back(retained);
        }
        for of_client in ahead.values_mut() {
            of_client.make_contiguous().sort_unstable_by_key(|retained| retained.operation.nth);
        }
        Self { all: all.to_vec(), ahead }
    }

    fn next_of(&self, client: u16) -> Option<BegunOperation> {
        self.ahead.get(&client)?.front().copied()
    }

    fn take(&mut self, client: u16) -> Option<OperationId> {
        Some(self.ahead.get_mut(&client)?.pop_front()?.operation)
    }

    pub(crate) fn into_all(self) -> Vec<BegunOperation> {
        self.all
    }
}

impl<S: Scenario> Run<S> {
    /// Schedules a client's next operation, if it is to have one.
    pub(crate) fn schedule(&mut self, number: u16) {
        if self.clients[usize::from(number)].asked.is_some() {
            return;
        }
        let next_at = match &self.retained {
            Some(retained) => retained.next_of(number).filter(|_| self.may_begin(number)).map(|next| next.at),
            None => self.drawn_time(number),
        };
        if let Some(at) = next_at {
            let at = at.max(self.out.now + 1);
            self.clients[usize::from(number)].next_at = at;
            self.out.queue.push(at, Event::Operate { client: number });
        }
    }

    fn may_begin(&self, number: u16) -> bool {
        match self.phase {
            Phase::Safety => true,
            Phase::Liveness => self.core.contains(&self.clients[usize::from(number)].host),
            Phase::Over => false,
        }
    }

    /// When the seed has a client begin its next operation, if it has another one.
    fn drawn_time(&self, number: u16) -> Option<u64> {
        let client = &self.clients[usize::from(number)];
        let more = match self.phase {
            Phase::Safety => client.begun < self.out.swarm.operations,
            Phase::Liveness => {
                client.fresh < self.tuning.fresh_operations && self.core.contains(&client.host)
            }
            Phase::Over => false,
        };
        if !more {
            return None;
        }
        let bits = mix(mix(root(self.seed, Purpose::Think), u64::from(number)), u64::from(client.begun));
        let mean = self.out.swarm.think;
        // A healed core has nothing to wait for but its clients.
        let mean = if self.phase == Phase::Safety { mean } else { mean.min(THINK_WHEN_HEALED_MAX) } as f64;
        let think = exponential(bits) * mean;
        Some(self.out.now + think as u64 + 1)
    }

    pub(crate) fn operate(&mut self, number: u16, scenario: &mut S) {
        let client = &mut self.clients[usize::from(number)];
        let up = self.hosts[usize::from(client.host)].status == Status::Up;
        if client.next_at != self.out.now || client.asked.is_some() || !up {
            return;
        }
        let operation = match &mut self.retained {
            Some(retained) => retained.take(number),
            None => Some(OperationId { client: number, nth: client.begun }),
        };
        let Some(operation) = operation else { return };
        client.begun = operation.nth + 1;
        client.began_fresh = self.phase == Phase::Liveness;
        client.began_at = self.out.now;
        let node = client.node;
        if !self.omitted.contains(&operation) {
            self.begun.push(BegunOperation { operation, at: self.out.now });
            let key =
                mix(mix(root(self.seed, Purpose::Operation), u64::from(number)), u64::from(operation.nth));
            let mut rng = Rng::seeded(key);
            let mut commands = std::mem::take(&mut self.commands);
            let cluster = Cluster { hosts: &self.hosts, archive: &self.out.archive, now: self.out.now };
            let mut control = Control { cluster, commands: &mut commands, requests: &mut self.requests };
            scenario.operate(operation, node, &mut rng, &mut control);
            for command in commands.drain(..) {
                self.obey(command, Some(number), scenario);
            }
            self.commands = commands;
        }
        if self.clients[usize::from(number)].asked.is_none() {
            self.completed(number);
        }
    }

    pub(crate) fn completed(&mut self, number: u16) {
        self.check_calm(number);
        let client = &mut self.clients[usize::from(number)];
        client.asked = None;
        client.fresh += u32::from(client.began_fresh);
        self.schedule(number);
    }

    /// Where nothing fails nobody waits for what makes up for a failure.
    fn check_calm(&self, number: u16) {
        let client = &self.clients[usize::from(number)];
        let is_early = client.began_at < CALM_FROM;
        let Some(most) = self.tuning.calm.filter(|_| !client.began_fresh && !is_early) else { return };
        let far = self.out.swarm.distances.iter().max().copied().unwrap_or(0);
        let took = self.out.now - client.began_at;
        let most = most.as_nanos() as u64 + far * CALM_WAYS;
        kernel::invariant!(
            CALM,
            took <= most,
            "{} waited {} us for operation {} of a cluster where nothing fails; {} us at most",
            client.node,
            took / 1_000,
            client.begun - 1,
            most / 1_000
        );
    }

    /// What keeps the clients of the core waiting; `None` if all are served.
    pub(crate) fn waiting(&self) -> Option<String> {
        let wanted = self.tuning.fresh_operations;
        let slow: Vec<_> = self
            .clients
            .iter()
            .zip(0..)
            .filter(|(client, number)| self.core.contains(&client.host) && self.is_owed(client, *number))
            .map(|(client, _)| {
                let waits = client.asked.map_or(String::new(), |id| format!(", request {} waits", id.0));
                format!("{} has {} of {wanted} fresh operations done{waits}", client.node, client.fresh)
            })
            .collect();
        (!slow.is_empty()).then(|| slow.join("; "))
    }

    /// Whether a client has something to do yet. One whose operations were left out is served when it has done the rest.
    fn is_owed(&self, client: &Client, number: u16) -> bool {
        match &self.retained {
            Some(retained) => client.asked.is_some() || retained.next_of(number).is_some(),
            None => client.fresh < self.tuning.fresh_operations,
        }
    }
}
