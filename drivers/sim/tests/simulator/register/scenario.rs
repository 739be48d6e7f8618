//! The register under the fault simulator.

use super::linearizable::{Entry, flaw};
use super::{Client, Member, Mistake, Request, Server};
use kernel::{HostId, HostSlot, NodeId, RequestId, Rng};
use sim::{
    Class, Classes, Cluster, Control, Core, HostSpec, Incarnation, Loss, OperationId, Replacement, Scenario,
    StrikeKind, Tuning,
};
use std::collections::BTreeMap;
use std::time::Duration;

const SERVER: HostSlot = HostSlot(1);
const CLIENT: HostSlot = HostSlot(2);
pub const KEYS: u64 = 2;

pub struct RegisterScenario {
    mistake: Mistake,
    servers: Vec<HostId>,
    clients: Vec<HostId>,
    history: BTreeMap<RequestId, (u64, Entry)>,
    lost_disks: usize,
    last_server: Option<HostId>,
}

impl RegisterScenario {
    pub fn draw(mistake: Mistake, rng: &mut Rng) -> Self {
        let servers = if rng.chance(0.3) { 5 } else { 3 };
        let clients = 1 + rng.below(3) as u32;
        Self {
            mistake,
            servers: (1..=servers).map(HostId).collect(),
            clients: (1..=clients).map(|client| HostId(100 + client)).collect(),
            history: BTreeMap::new(),
            lost_disks: 0,
            last_server: None,
        }
    }

    fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    fn entries(&self, key: u64) -> Vec<Entry> {
        self.history.values().filter(|(of, _)| *of == key).map(|(_, entry)| *entry).collect()
    }
}

impl Scenario for RegisterScenario {
    type Node = Member;

    const FAMILY: &'static str = "register";
    const STRIKES: &'static [StrikeKind] =
        &[StrikeKind { name: "kill the server that worked last", class: Class::Strike }];
    const MARKS: &'static [&'static str] = &["server.stale_store", "client.resend"];

    fn hosts(&self) -> Vec<HostSpec> {
        let servers = self.servers.iter().copied().map(HostSpec::server);
        servers.chain(self.clients.iter().copied().map(HostSpec::client)).collect()
    }

    fn clients(&self) -> Vec<NodeId> {
        self.clients.iter().map(|&host| NodeId::new(host, CLIENT)).collect()
    }

    fn classes(&self) -> Classes {
        Classes::ALL.without(Class::Membership).without(Class::Upgrade)
    }

    fn tuning(&self) -> Tuning {
        let seconds = Duration::from_secs;
        Tuning { safety: (seconds(10), seconds(60)), liveness: seconds(60), ..Tuning::default() }
    }

    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Member)> {
        if self.servers.contains(&incarnation.host) {
            return vec![(SERVER, Member::Server(Server::new(self.mistake)))];
        }
        let servers = self.servers.iter().map(|&host| NodeId::new(host, SERVER)).collect();
        vec![(CLIENT, Member::Client(Client::new(self.mistake, servers)))]
    }

    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Member>,
    ) {
        let key = rng.below(KEYS);
        let writes = rng.chance(0.5);
        let value = (u64::from(operation.client) + 1) << 32 | u64::from(operation.nth);
        let request = if writes { Request::Write { key, value } } else { Request::Read { key } };
        let entry = Entry { value, writes, start: control.cluster.now(), end: u64::MAX };
        let id = control.request(node, request);
        self.history.insert(id, (key, entry));
    }

    fn on_response(&mut self, _node: NodeId, id: RequestId, value: u64, control: &mut Control<'_, Member>) {
        let (_, entry) = self.history.get_mut(&id).expect("the simulator passes on owed answers only");
        entry.end = control.cluster.now();
        entry.value = value;
    }

    fn after_burst(&mut self, host: HostId, _cluster: &Cluster<'_, Member>) {
        if self.servers.contains(&host) {
            self.last_server = Some(host);
        }
    }

    fn strike(&mut self, _which: usize, rng: &mut Rng, control: &mut Control<'_, Member>) -> bool {
        let Some(host) = self.last_server.filter(|&host| control.cluster.is_up(host)) else { return false };
        control.crash(host, Loss::All, Duration::from_millis(500), rng);
        true
    }

    fn may_lose_disk(&self, host: HostId, cluster: &Cluster<'_, Member>) -> bool {
        let bad =
            self.servers.iter().filter(|&&host| cluster.is_lost(host) || cluster.is_damaged(host)).count();
        self.servers.contains(&host) && bad + 1 < self.majority()
    }

    fn on_disk_lost(&mut self, _host: HostId, _cluster: &Cluster<'_, Member>) -> Replacement {
        self.lost_disks += 1;
        Replacement::StayDown
    }

    fn core(&mut self, cluster: &Cluster<'_, Member>, rng: &mut Rng) -> Core {
        let sound = |host: &HostId| !cluster.is_lost(*host) && !cluster.is_damaged(*host);
        let mut servers: Vec<_> = self.servers.iter().copied().filter(sound).collect();
        if servers.len() < self.majority() {
            return Core::Excused("a majority of the servers lost their disks".to_owned());
        }
        rng.shuffle(&mut servers);
        servers.truncate(self.majority());
        servers.extend(&self.clients);
        Core::Hosts(servers)
    }

    fn finish(&mut self, _cluster: &Cluster<'_, Member>) {
        for key in 0..KEYS {
            if let Some(flaw) = flaw(&self.entries(key)) {
                panic!("LIN: key {key}: {flaw}");
            }
        }
    }

    fn history(&self) -> Option<String> {
        let line =
            |(id, (key, entry)): (&RequestId, &(u64, Entry))| format!("{} key {key} {entry:?}\n", id.0);
        Some(self.history.iter().map(line).collect())
    }
}
