//! What a protocol brings to the simulator: its cluster, its workload, its invariants.

use crate::archive::SimulatedArchive;
use crate::class::Classes;
use crate::fact::{Fact, IsClaim};
use crate::files::{rots_a_blob, whole};
use crate::host::{Host, Status};
use crate::network::Hindrance;
use crate::plan::{Blow, Frozen, HostIndex, HostMask, Loss, NetworkPartition, OperationId};
use crate::spec::{HostKind, HostSpec, Incarnation, MessageOf, RequestOf, ResponseOf, StrikeKind};
use crate::swarm::Tuning;
use kernel::{BlobId, Bytes, ClockTrouble, HostId, HostSlot, Node, NodeId, RequestId, Rng};
use std::time::Duration;

/// What happens to a host whose disk is lost or corrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replacement {
    /// It never comes back.
    StayDown,
    /// It starts with an empty disk; [`Scenario::build`] learns so and decides under which identity.
    Wiped,
}

/// Who is healed at the end of the safety phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Core {
    /// These hosts, clients' hosts included; they must then converge.
    Hosts(Vec<HostId>),
    /// Too much is lost for anybody to converge, for this reason. Counted, and bounded by the sweep.
    Excused(String),
}

/// A protocol under test. One value lasts for one run.
///
/// **Contract.** A scenario is as deterministic as the nodes it builds: it draws only from what it is handed. It
/// reports a violation by panicking with the invariant's id before the first colon (see [`kernel::invariant!`]), in
/// any of its methods.
pub trait Scenario: Sized {
    /// What its hosts run.
    type Node: Node;

    /// The family's name in reports.
    const FAMILY: &'static str;

    /// Its structural events.
    const STRIKES: &'static [StrikeKind] = &[];

    /// The marks that a sweep must reach.
    const MARKS: &'static [&'static str] = &[];

    /// The hosts, 64 at most. Their order gives the numbers that plans use.
    fn hosts(&self) -> Vec<HostSpec>;

    /// The client nodes whose operations the simulator paces, one at a time each; a node listed twice has two
    /// operations at a time.
    fn clients(&self) -> Vec<NodeId>;

    /// The fault classes that the protocol must bear. A scenario with structural events adds their classes; one whose
    /// hosts may lose their disks adds those, and says when by [`Scenario::may_lose_disk`].
    fn classes(&self) -> Classes {
        Classes::PHYSICAL
    }

    /// The ranges that seeds draw from.
    fn tuning(&self) -> Tuning {
        Tuning::default()
    }

    /// The nodes of a host's new incarnation, before their records are restored.
    fn build(&mut self, incarnation: Incarnation) -> Vec<(HostSlot, Self::Node)>;

    /// The nodes of which a host's next incarnation would be made, as [`Scenario::build`] makes them; of those that are left out no
    /// record is read back. For [`Scenario::on_dry_restart`].
    fn blank_nodes(&self, _host: HostId) -> Vec<(HostSlot, Self::Node)> {
        Vec::new()
    }

    /// A node that runs, and what a restart would make of it if its process ended now and all that it has written were there. Called for
    /// all nodes of a host after some of its bursts, and before it crashes; its last burst has ended.
    fn on_dry_restart(&mut self, _node: NodeId, _running: &Self::Node, _restarted: &Self::Node) {}

    /// Whether nodes read their blobs when they start, and never else. A blob that rots is noticed no later than a journal then: its host
    /// is started again.
    fn reads_blobs_at_start(&self) -> bool {
        false
    }

    /// Called once, before anything is built: the classes of faults that the seed has switched on.
    fn drawn(&mut self, _classes: Classes) {}

    /// Called once, when every host has started.
    fn on_begin(&mut self, _control: &mut Control<'_, Self::Node>) {}

    /// A client's turn: issue one request by [`Control::request`], drawn from `rng` alone, so that leaving out one
    /// operation leaves the others as they are.
    fn operate(
        &mut self,
        operation: OperationId,
        node: NodeId,
        rng: &mut Rng,
        control: &mut Control<'_, Self::Node>,
    );

    /// A request was answered.
    fn on_response(
        &mut self,
        node: NodeId,
        id: RequestId,
        response: ResponseOf<Self::Node>,
        control: &mut Control<'_, Self::Node>,
    );

    /// A request will never be answered, because its node crashed: its outcome is unknown.
    fn on_lost(&mut self, _node: NodeId, _id: RequestId) {}

    /// An alarm set by [`Control::alarm`] is due.
    fn on_alarm(&mut self, _token: u64, _control: &mut Control<'_, Self::Node>) {}

    /// The servers that are of the cluster now: they compare their clocks.
    fn members(&self) -> Vec<HostId> {
        let servers = self.hosts().into_iter().filter(|host| host.kind == HostKind::Server);
        servers.map(|host| host.id).collect()
    }

    /// The messages that [`Scenario::on_fact`] is to be notified of, which makes a scenario one that audits; `None` for one that does not.
    fn claims(&self) -> Option<IsClaim<Self::Node>> {
        None
    }

    /// Something that decides what a crash would leave, or what others rely on. Reported in the order in which it happens, before
    /// [`Scenario::after_burst`].
    fn on_fact(&mut self, _fact: Fact<MessageOf<Self::Node>>, _cluster: &Cluster<'_, Self::Node>) {}

    /// Checks invariants over all live nodes after a burst of `host`.
    fn after_burst(&mut self, _host: HostId, _cluster: &Cluster<'_, Self::Node>) {}

    /// Whether [`Scenario::watch`] is to be called.
    fn watches(&self) -> bool {
        false
    }

    /// Looks at the cluster after every burst of the safety phase, and strikes when the moment has come.
    fn watch(&mut self, _control: &mut Control<'_, Self::Node>) {}

    /// Carries out a structural event; false if the moment allows none.
    fn strike(&mut self, _which: usize, _rng: &mut Rng, _control: &mut Control<'_, Self::Node>) -> bool {
        false
    }

    /// Whether the protocol can bear that `host` loses its journal now.
    fn may_lose_disk(&self, _host: HostId, _cluster: &Cluster<'_, Self::Node>) -> bool {
        false
    }

    /// What becomes of a host whose journal is lost or corrupt.
    fn on_disk_lost(&mut self, _host: HostId, _cluster: &Cluster<'_, Self::Node>) -> Replacement {
        Replacement::StayDown
    }

    /// A random set of hosts that must be able to go on alone, the clients that must be served included.
    fn core(&mut self, cluster: &Cluster<'_, Self::Node>, rng: &mut Rng) -> Core;

    /// How hosts outside the core may stay broken.
    fn frozen_ways(&self) -> Vec<Frozen> {
        Frozen::ALL.to_vec()
    }

    /// The core has been healed.
    fn on_heal(&mut self, _core: &[HostId], _control: &mut Control<'_, Self::Node>) {}

    /// Whether the healed core agrees, once its clients are served; the text says what is missing. Asked again until
    /// the bound.
    fn converged(&self, _core: &[HostId], _cluster: &Cluster<'_, Self::Node>) -> Result<(), String> {
        Ok(())
    }

    /// Whether a node is of the cluster as it has become: at rest it has nothing left to do. One of a cluster that was may wait for ever.
    fn is_in_use(&self, _node: NodeId, _cluster: &Cluster<'_, Self::Node>) -> bool {
        true
    }

    /// Where everybody stands, in a few words: for the report of a core that did not converge.
    fn describe(&self, _cluster: &Cluster<'_, Self::Node>) -> String {
        String::new()
    }

    /// Checks what can be checked at the end, such as the history.
    fn finish(&mut self, _cluster: &Cluster<'_, Self::Node>) {}

    /// After [`Scenario::finish`]: the history was too hard for the steps that were given to its check, so that nobody knows whether it
    /// holds. Counted, and bounded by the sweep.
    fn is_undecided(&self) -> bool {
        false
    }

    /// The recorded history as text, for the report of a violation.
    fn history(&self) -> Option<String> {
        None
    }
}

/// The cluster as it is now.
pub struct Cluster<'a, N: Node> {
    pub(crate) hosts: &'a [Host<N>],
    pub(crate) archive: &'a SimulatedArchive,
    pub(crate) now: u64,
}

impl<'a, N: Node> Cluster<'a, N> {
    /// The time of the run, in nanoseconds; only for scenarios, roles have their own clocks.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Every host, in the order of the plan's numbers.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + use<'a, N> {
        self.hosts.iter().map(|host| host.id)
    }

    /// Every live node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &'a N)> + use<'a, N> {
        self.hosts.iter().flat_map(Host::nodes)
    }

    /// The live nodes of one host.
    pub fn nodes_of(&self, host: HostId) -> impl Iterator<Item = (NodeId, &'a N)> + use<'a, N> {
        self.hosts.iter().filter(move |candidate| candidate.id == host).flat_map(Host::nodes)
    }

    /// In [`Scenario::after_burst`]: the nodes of that host that were called since. All others are as they were.
    pub fn called_nodes_of(&self, host: HostId) -> impl Iterator<Item = (NodeId, &'a N)> + use<'a, N> {
        let of_host = self.hosts.iter().filter(move |candidate| candidate.id == host);
        of_host.flat_map(Host::called_nodes)
    }

    /// One node; `None` if it is not alive.
    pub fn node(&self, id: NodeId) -> Option<&'a N> {
        self.hosts.iter().find(|host| host.id == id.host())?.node(id)
    }

    /// Whether `host` runs (it may be paused).
    pub fn is_up(&self, host: HostId) -> bool {
        self.status(host) == Some(Status::Up)
    }

    /// Whether `host` lost its disk for good.
    pub fn is_lost(&self, host: HostId) -> bool {
        self.status(host) == Some(Status::Lost)
    }

    /// Why a host's wall clock may not be relied on; none if it may, or the host is unknown.
    pub fn clock_trouble(&self, host: HostId) -> Option<ClockTrouble> {
        let host = self.hosts.iter().find(|candidate| candidate.id == host);
        host.and_then(|host| host.clock.trouble(self.now))
    }

    /// How far wall clocks may be off, as their hosts declare it.
    pub fn clock_error(&self) -> Duration {
        self.hosts.first().map_or(Duration::ZERO, |host| host.clock.declared_error())
    }

    /// Whether a blob is on the disk of its node's host, readable or not.
    pub fn has_blob(&self, node: NodeId, id: BlobId) -> bool {
        let host = self.hosts.iter().find(|candidate| candidate.id == node.host());
        host.is_some_and(|host| host.disk.blobs.has(node.host_slot(), id))
    }

    /// What a blob on the disk of its node's host holds; none if it is not there, or cannot be read.
    pub fn blob(&self, node: NodeId, id: BlobId) -> Option<Bytes> {
        let host = self.hosts.iter().find(|candidate| candidate.id == node.host())?;
        host.disk.blobs.read(node.host_slot(), whole(id))
    }

    /// How often any blob came to a host's disk or left it.
    pub fn blob_changes(&self, host: HostId) -> u64 {
        let host = self.hosts.iter().find(|candidate| candidate.id == host);
        host.map_or(0, |host| host.disk.blobs.changes())
    }

    /// The archive of all hosts.
    pub fn archive(&self) -> &'a SimulatedArchive {
        self.archive
    }

    /// Whether a durable bit of `host` is known to be wrong, or may be when it restarts.
    pub fn is_damaged(&self, host: HostId) -> bool {
        self.hosts.iter().any(|candidate| candidate.id == host && candidate.is_damaged())
    }

    fn status(&self, host: HostId) -> Option<Status> {
        self.hosts.iter().find(|candidate| candidate.id == host).map(|host| host.status)
    }

    fn index(&self, host: HostId) -> Option<HostIndex> {
        self.hosts.iter().position(|candidate| candidate.id == host).map(|index| index as HostIndex)
    }
}

/// A command of the scenario, carried out when its callback returns.
pub(crate) enum Command<N: Node> {
    Request { node: NodeId, id: RequestId, request: RequestOf<N> },
    Inflict { blow: Blow, lasts: u64 },
    Boot { host: HostIndex },
    Stop { host: HostIndex },
    Resume { host: HostIndex },
    Sever { from: HostIndex, to: HostIndex, severed: bool },
    Hinder { to: NodeId, how: Option<Hindrance>, lasts: u64 },
    PartitionArchive { hosts: HostMask, lasts: u64 },
    Alarm { after: u64, token: u64 },
    Mark { name: &'static str },
}

/// The scenario's hand on the run. What it asks for happens when the callback returns, in order.
pub struct Control<'a, N: Node> {
    /// The cluster as it is now.
    pub cluster: Cluster<'a, N>,
    pub(crate) commands: &'a mut Vec<Command<N>>,
    pub(crate) requests: &'a mut u64,
}

impl<N: Node> Control<'_, N> {
    /// Asks a node; the answer comes by [`Scenario::on_response`], the loss by [`Scenario::on_lost`].
    pub fn request(&mut self, node: NodeId, request: RequestOf<N>) -> RequestId {
        let id = RequestId(*self.requests);
        *self.requests += 1;
        self.commands.push(Command::Request { node, id, request });
        id
    }

    /// Kills a host; it is back after `down`.
    pub fn crash(&mut self, host: HostId, loss: Loss, down: Duration, rng: &mut Rng) {
        if let Some(index) = self.cluster.index(host) {
            let hosts = HostMask::of(index);
            let (aim, draw) = (crate::plan::Aim::Now, rng.bits());
            self.inflict(Blow::Crash { hosts, aim, loss, output_lost: false, draw }, down);
        }
    }

    /// Kills those of `hosts` that are up; each is back by itself, a tenth of a second to a second later.
    pub fn crash_all(&mut self, hosts: impl IntoIterator<Item = HostId>, loss: Loss, rng: &mut Rng) {
        let second = Duration::from_secs(1);
        for host in hosts {
            if self.cluster.is_up(host) {
                self.crash(host, loss, rng.duration(second / 10, second), rng);
            }
        }
    }

    /// Stops a host's process for a while.
    pub fn pause(&mut self, host: HostId, lasts: Duration) {
        if let Some(host) = self.cluster.index(host) {
            self.inflict(Blow::Pause { host }, lasts);
        }
    }

    /// Flips a bit of one of a host's blobs, if it has any that are sound and can bear it; nobody knows before it is read. False
    /// if it has none.
    pub fn rot_blob(&mut self, host: HostId, rng: &mut Rng) -> bool {
        let sound = self.cluster.hosts.iter().any(|it| it.id == host && it.disk.blobs.can_rot());
        if let Some(host) = self.cluster.index(host).filter(|_| sound) {
            let draw = std::iter::repeat_with(|| rng.bits()).find(|&draw| rots_a_blob(draw));
            self.inflict(Blow::BitRot { host, draw: draw.unwrap_or(0) }, Duration::ZERO);
        }
        sound
    }

    /// A host's disk is lost, if the cluster can bear that.
    pub fn lose_disk(&mut self, host: HostId, down: Duration) {
        if let Some(host) = self.cluster.index(host) {
            self.inflict(Blow::DiskLost { host }, down);
        }
    }

    /// Lets a paused process go on before its time.
    pub fn resume(&mut self, host: HostId) {
        if let Some(host) = self.cluster.index(host) {
            self.commands.push(Command::Resume { host });
        }
    }

    /// `to` does not hear `from` any more, until the link is mended as often as it was severed, or the core is healed.
    pub fn sever(&mut self, from: HostId, to: HostId) {
        self.link(from, to, true);
    }

    /// Undoes one [`Control::sever`].
    pub fn mend(&mut self, from: HostId, to: HostId) {
        self.link(from, to, false);
    }

    fn link(&mut self, from: HostId, to: HostId, severed: bool) {
        if let (Some(from), Some(to)) = (self.cluster.index(from), self.cluster.index(to)) {
            self.commands.push(Command::Sever { from, to, severed });
        }
    }

    /// Hinders for a while, or until the core is healed, what other hosts send to one node; what hindered it before is over.
    pub fn hinder(&mut self, to: NodeId, how: Hindrance, lasts: Duration) {
        self.commands.push(Command::Hinder { to, how: Some(how), lasts: lasts.as_nanos() as u64 });
    }

    /// Undoes [`Control::hinder`] for what is sent from now on.
    pub fn unhinder(&mut self, to: NodeId) {
        self.commands.push(Command::Hinder { to, how: None, lasts: 0 });
    }

    /// Holds for a while what one host sends another; then it arrives, in its order.
    pub fn clog(&mut self, from: HostId, to: HostId, lasts: Duration) {
        if let (Some(from), Some(to)) = (self.cluster.index(from), self.cluster.index(to)) {
            self.inflict(Blow::Clog { from, to }, lasts);
        }
    }

    /// Partitions a host for a while, both ways.
    pub fn isolate(&mut self, host: HostId, lasts: Duration) {
        if let Some(index) = self.cluster.index(host) {
            let links = NetworkPartition::Both { side: HostMask::of(index) };
            self.inflict(Blow::Partition { links }, lasts);
        }
    }

    /// Loses what a host says for a while; it still hears.
    pub fn mute(&mut self, host: HostId, lasts: Duration) {
        if let Some(index) = self.cluster.index(host) {
            let links = NetworkPartition::OneWay { side: HostMask::of(index) };
            self.inflict(Blow::Partition { links }, lasts);
        }
    }

    /// Nobody reaches the archive for a while, or one host does not.
    pub fn partition_archive(&mut self, host: Option<HostId>, lasts: Duration) {
        let hosts = match host {
            Some(host) => self.cluster.index(host).map_or(HostMask(0), HostMask::of),
            None => HostMask(u64::MAX),
        };
        self.commands.push(Command::PartitionArchive { hosts, lasts: lasts.as_nanos() as u64 });
    }

    /// Inflicts any fault now.
    pub fn inflict(&mut self, blow: Blow, lasts: Duration) {
        let lasts = lasts.as_nanos() as u64;
        self.commands.push(Command::Inflict { blow, lasts });
    }

    /// Starts a spare host, or one that is down.
    pub fn boot(&mut self, host: HostId) {
        if let Some(host) = self.cluster.index(host) {
            self.commands.push(Command::Boot { host });
        }
    }

    /// Stops a host cleanly (nothing unsynced is lost); it stays down until it is booted.
    pub fn stop(&mut self, host: HostId) {
        if let Some(host) = self.cluster.index(host) {
            self.commands.push(Command::Stop { host });
        }
    }

    /// Asks to be called back.
    pub fn alarm(&mut self, after: Duration, token: u64) {
        self.commands.push(Command::Alarm { after: after.as_nanos() as u64, token });
    }

    /// Marks a rare situation as reached, as a node does.
    pub fn mark(&mut self, name: &'static str) {
        self.commands.push(Command::Mark { name });
    }
}
