//! CORFU': one sequencer, chains of two, and clients that do the rest.

use crate::profile::Profile;
use crate::step::Steps;
use corfu::storage::StorageRecord;
use corfu::{
    Auxiliary, Client, CorfuRequest, CorfuResponse, Data, Entry, Epoch, LogPosition, Member, Parameters,
    Projection, Sequencer, StorageServer,
};
use kernel::{Bytes, HostId, HostSlot, NodeId, Position, Rng, Role};
use sim::cost::{Class, HostPlan, Load, LoadSession, MachineSpec, Tariff, TariffIndex, Testbed};
use std::time::Duration;

/// A log.
#[derive(Clone, Copy, Debug)]
pub struct CorfuPrimeLog {
    /// Chains of two storage servers.
    pub chains: usize,
    /// Clients' threads.
    pub clients: usize,
    /// It holds entries in the beginning, to be read: [`Reads`].
    pub written: bool,
}

const HOST_SLOT: HostSlot = HostSlot(1);
const AUXILIARIES: u32 = 0x100;
const SEQUENCER: u32 = 0x200;
const STORAGE: u32 = 0x300;
const CLIENTS: u32 = 0x1000;
const CHAIN: usize = 2;
/// All threads of a machine serve its one role.
const THREADS: u64 = 8;
/// The log has bootstrapped and the sequencer has begun by then.
const BEGINS_WITHIN: Duration = Duration::from_millis(500);

/// Entries of a log that is read.
const WRITTEN: u64 = 4_096;
const ENTRY_BYTES: usize = 64;

/// Patience enough for any load.
pub(super) fn parameters() -> Parameters {
    Parameters {
        resend_after: Duration::from_secs(2),
        suspect_after: Duration::from_secs(5),
        ..Parameters::default()
    }
}

/// A server that serves the first epoch, as if it came back with its journal: where nobody decides projections.
pub(super) fn serving() -> StorageServer {
    let mut server = StorageServer::new(u64::MAX);
    server.restore(Position(0), StorageRecord::Serves(Epoch(1)));
    server
}

/// The same of a chain of a log that has been written.
pub(super) fn written(chain: usize, chains: usize) -> StorageServer {
    let mut server = serving();
    let body = Bytes::from(vec![b'x'; ENTRY_BYTES]);
    for number in (chain as u64..WRITTEN).step_by(chains) {
        let data = Data { writer: node(CLIENTS), tag: number, body: body.clone() };
        server.restore(Position(number), StorageRecord::Retained(LogPosition(number), Entry::Data(data)));
    }
    server
}

fn node(host: u32) -> NodeId {
    NodeId::new(HostId(host), HOST_SLOT)
}

/// A log that has begun.
pub struct Running {
    /// The testbed.
    pub testbed: Testbed<Member, Steps>,
    /// The clients.
    pub clients: Vec<NodeId>,
    /// What each host is for, in the order of [`sim::cost::Measured::busy`].
    pub stations: Vec<&'static str>,
}

impl Running {
    fn host(
        &mut self,
        id: NodeId,
        spec: MachineSpec,
        tariff: TariffIndex,
        role: Member,
        station: &'static str,
    ) {
        let machine = self.testbed.machine(spec);
        self.testbed.host(HostPlan { id: id.host(), machine, core: 0, tariff }, [(id.host_slot(), role)]);
        self.stations.push(station);
    }
}

impl CorfuPrimeLog {
    /// Builds it; the sequencer serves when this returns.
    pub fn start(&self, profile: &Profile, seed: u64) -> Running {
        let parameters = parameters();
        let testbed = Testbed::new(seed, Steps, profile.link());
        let mut running = Running { testbed, clients: Vec::new(), stations: Vec::new() };
        let server = |chain: usize, nth: usize| node(STORAGE + (chain * CHAIN + nth) as u32);
        let chains = (0..self.chains).map(|chain| (0..CHAIN).map(|nth| server(chain, nth)).collect());
        let initial = Projection::initial(node(SEQUENCER), chains.collect());
        let auxiliaries: Vec<NodeId> = (0..3).map(|number| node(AUXILIARIES + number)).collect();
        let shared = running.testbed.tariff(profile.tariff_of_threads(THREADS));
        for &id in &auxiliaries {
            let (peers, sequencers) = (auxiliaries.clone(), vec![node(SEQUENCER)]);
            let role = Auxiliary::new(peers, sequencers, initial.clone(), parameters.clone());
            running.host(id, profile.machine(1), shared, Member::Auxiliary(role), "auxiliary");
        }
        let sequencer = Member::Sequencer(Sequencer::new());
        running.host(node(SEQUENCER), profile.machine(1), shared, sequencer, "sequencer");
        for (index, id) in initial.servers().enumerate() {
            let role =
                if self.written { written(index / CHAIN, self.chains) } else { StorageServer::new(u64::MAX) };
            running.host(id, profile.machine(1), shared, Member::Storage(role), "storage server");
        }
        let free = running.testbed.tariff(Tariff::free());
        let spec = MachineSpec { cores: 1, bytes_per_second: None };
        for number in 0..self.clients {
            let id = node(CLIENTS + number as u32);
            let role = Client::new(auxiliaries.clone(), initial.clone(), parameters.clone());
            running.host(id, spec, free, Member::Client(role), "clients");
            running.clients.push(id);
        }
        running.testbed.run_for(BEGINS_WITHIN);
        running
    }
}

/// Clients that append.
#[derive(Clone, Debug)]
pub struct Appends {
    /// The entry.
    pub body: Bytes,
}

impl Load<corfu::Corfu> for Appends {
    fn ask(&mut self, _session: LoadSession, _rng: &mut Rng) -> (CorfuRequest, Class) {
        (CorfuRequest::Append(self.body.clone()), Class(0))
    }

    fn answered(&mut self, _: LoadSession, _: Class, response: &CorfuResponse, _now: Duration) -> bool {
        matches!(response, CorfuResponse::Appended(_))
    }
}

/// Clients that read a log that was written, at random.
#[derive(Clone, Copy, Debug)]
pub struct RandomReads;

impl RandomReads {
    /// The position to read next.
    pub(super) fn position(self, rng: &mut Rng) -> LogPosition {
        LogPosition(rng.below(WRITTEN))
    }
}

impl Load<corfu::Corfu> for RandomReads {
    fn ask(&mut self, _session: LoadSession, rng: &mut Rng) -> (CorfuRequest, Class) {
        (CorfuRequest::Read(self.position(rng)), Class(0))
    }

    fn answered(&mut self, _: LoadSession, _: Class, response: &CorfuResponse, _now: Duration) -> bool {
        matches!(response, CorfuResponse::Entry(_))
    }
}
