//! The register on the smallest cluster, for the explorer.

use super::linearizable::{Entry, flaw};
use super::{Client, Member, Mistake, Registers, Request, Server};
use kernel::{Family, HostId, HostSlot, NodeId, RequestId};
use sim::{ExploreBounds, ExploredCluster, Scope, Spent};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

pub struct RegisterScope {
    pub mistake: Mistake,
    pub servers: u32,
    pub requests: Vec<Vec<Request>>,
    pub bounds: ExploreBounds,
}

#[derive(Clone, Hash, Default)]
pub struct Monitor {
    /// Counts requests and responses: the only order that linearizability looks at.
    moments: u64,
    history: BTreeMap<RequestId, Entry>,
}

const CLIENTS_FROM: u32 = 100;

fn node(host: u32) -> NodeId {
    NodeId::new(HostId(host), HostSlot(0))
}

impl Scope for RegisterScope {
    type Node = Member;
    type Monitor = Monitor;

    const FAMILY: &'static str = "register";

    fn hosts(&self) -> Vec<HostId> {
        let clients = (0..self.requests.len() as u32).map(|client| CLIENTS_FROM + client);
        (0..self.servers).chain(clients).map(HostId).collect()
    }

    fn build(&self, host: HostId, _incarnation: u32) -> Vec<(HostSlot, Member)> {
        let member = if host.0 < CLIENTS_FROM {
            Member::Server(Server::new(self.mistake))
        } else {
            Member::Client(Client::new(self.mistake, (0..self.servers).map(node).collect()))
        };
        vec![(HostSlot(0), member)]
    }

    fn requests(&self) -> Vec<(NodeId, Vec<Request>)> {
        (CLIENTS_FROM..).map(node).zip(self.requests.iter().cloned()).collect()
    }

    fn monitor(&self) -> Monitor {
        Monitor::default()
    }

    fn on_request(&self, monitor: &mut Monitor, _node: NodeId, id: RequestId, request: &Request) {
        monitor.moments += 1;
        let (value, writes) = match *request {
            Request::Read { .. } => (0, false),
            Request::Write { value, .. } => (value, true),
        };
        monitor.history.insert(id, Entry { value, writes, start: monitor.moments, end: u64::MAX });
    }

    fn on_response(
        &self,
        monitor: &mut Monitor,
        _node: NodeId,
        id: RequestId,
        value: <Registers as Family>::Response,
    ) {
        monitor.moments += 1;
        let entry = monitor.history.get_mut(&id).expect("the explorer passes on owed answers only");
        (entry.value, entry.end) = (value, monitor.moments);
    }

    fn check(&self, monitor: &Monitor, _cluster: &ExploredCluster<'_, Member>) {
        let entries: Vec<_> = monitor.history.values().copied().collect();
        if let Some(flaw) = flaw(&entries) {
            panic!("LIN: {flaw}");
        }
    }

    fn check_quiet(&self, monitor: &Monitor, _cluster: &ExploredCluster<'_, Member>, spent: Spent) {
        if spent.losses + spent.crashes > 0 {
            return;
        }
        let unanswered = monitor.history.values().filter(|entry| entry.end == u64::MAX).count();
        kernel::invariant!(
            LIVE,
            unanswered == 0,
            "nothing was lost, and {unanswered} requests wait for ever"
        );
    }

    fn may_crash(&self, host: HostId) -> bool {
        host.0 < CLIENTS_FROM
    }

    fn fingerprint(&self, node: &Member, hasher: &mut impl Hasher) {
        node.hash(hasher);
    }

    fn bounds(&self) -> ExploreBounds {
        self.bounds
    }
}
