//! The clients of a run: when they begin operations, and which of those are still owed an answer.

use super::{Phase, Run};
use crate::draw::{Purpose, exponential, mix, root};
use crate::host::Status;
use crate::plan::{HostIndex, OperationId};
use crate::queue::Event;
use crate::scenario::{Cluster, Control, Scenario};
use kernel::{NodeId, RequestId, Rng};

/// How long clients of a healed core wait between operations, on average and at most.
const THINK_WHEN_HEALED_MAX: u64 = 100_000_000;

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
}

impl Client {
    pub(crate) fn new(node: NodeId, host: HostIndex) -> Self {
        Self { node, host, begun: 0, asked: None, next_at: 0, fresh: 0, began_fresh: false }
    }
}

impl<S: Scenario> Run<S> {
    /// Schedules a client's next operation, if it is to have one.
    pub(crate) fn schedule(&mut self, number: u16) {
        let client = &mut self.clients[usize::from(number)];
        let more = match self.phase {
            Phase::Safety => client.begun < self.out.swarm.operations,
            Phase::Liveness => {
                client.fresh < self.tuning.fresh_operations && self.core.contains(&client.host)
            }
            Phase::Over => false,
        };
        if !more || client.asked.is_some() {
            return;
        }
        let bits = mix(mix(root(self.seed, Purpose::Think), u64::from(number)), u64::from(client.begun));
        let mean = self.out.swarm.think;
        // A healed core has nothing to wait for but its clients.
        let mean = if self.phase == Phase::Safety { mean } else { mean.min(THINK_WHEN_HEALED_MAX) } as f64;
        let think = exponential(bits) * mean;
        client.next_at = self.out.now + think as u64 + 1;
        self.out.queue.push(client.next_at, Event::Operate { client: number });
    }

    pub(crate) fn operate(&mut self, number: u16, scenario: &mut S) {
        let client = &mut self.clients[usize::from(number)];
        let up = self.hosts[usize::from(client.host)].status == Status::Up;
        if client.next_at != self.out.now || client.asked.is_some() || !up {
            return;
        }
        let operation = OperationId { client: number, nth: client.begun };
        client.begun += 1;
        client.began_fresh = self.phase == Phase::Liveness;
        let node = client.node;
        let is_kept = self.kept.as_ref().is_none_or(|kept| kept.contains(&operation));
        if is_kept && !self.omitted.contains(&operation) {
            self.begun.push(operation);
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
        let client = &mut self.clients[usize::from(number)];
        client.asked = None;
        client.fresh += u32::from(client.began_fresh);
        self.schedule(number);
    }

    /// What keeps the clients of the core waiting; `None` if all are served.
    pub(crate) fn waiting(&self) -> Option<String> {
        let wanted = self.tuning.fresh_operations;
        let slow: Vec<_> = self
            .clients
            .iter()
            .filter(|client| self.core.contains(&client.host) && client.fresh < wanted)
            .map(|client| {
                let waits = client.asked.map_or(String::new(), |id| format!(", request {} waits", id.0));
                format!("{} has {} of {wanted} fresh operations done{waits}", client.node, client.fresh)
            })
            .collect();
        (!slow.is_empty()).then(|| slow.join("; "))
    }
}
