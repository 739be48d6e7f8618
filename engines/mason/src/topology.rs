//! Who plays which role of Mason, and the numbers that tune it.

use crate::order::{Group, Space};
use kernel::bounds::{OPERATION_BYTES_MAX, OPERATION_HEAD_BYTES, RECORD_BYTES_MAX, VOTE_BYTES};
use kernel::{Bounds, HostId, Misfit, NodeId};
use parts::InUse;
use paxos::Members;
use std::time::Duration;

/// The first group: its log decides.
pub const FIRST: Group = Group(0);

/// One proxy: a replicated group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyGroup {
    /// Its replicas' proxies; where its leader is, is decided by its log.
    pub proxies: Vec<NodeId>,
}

kernel::record! {
    /// Over how many shards a service's state is spread. Every operation is numbered by one of these and executed by the same (see
    /// [`crate::shard::resharding`]).
    pub struct ShardMap {
        /// The version of the layout that brought it; 0 for the bootstrap's.
        version: u64,
        /// The service's state is in the spaces below this one.
        shards: u16,
        /// It was in the spaces below this one before.
        before: u16,
    }
}

impl Eq for ShardMap {}

impl ShardMap {
    /// The bootstrap's.
    pub fn at_bootstrap(shards: u16) -> Self {
        Self { version: 0, shards, before: shards }
    }

    /// The spaces that hand over or are handed something when it comes into force.
    pub fn spaces(&self) -> impl Iterator<Item = Space> + use<> {
        (0..self.shards.max(self.before)).map(Space)
    }
}

kernel::record! {
    /// How many of a deployment's groups are in use, and over how many shards its service is spread. The first group's log decides on it,
    /// and is itself always in use; the others take it over, each into its own log (see [`crate::proxy::arranging`]).
    pub struct Layout {
        /// 0 for the bootstrap's, one more for each change.
        version: u64,
        /// Origins are served by the groups below this one.
        serving: u16,
        /// The groups below this one may have assigned numbers that nobody else answers for: they are sealed, counted in the ring and
        /// asked by barriers. More than `serving` while the groups between are drained.
        spanning: u16,
        /// The sequencer that the first group's log was sealed for when it got this layout. A group that is added may have been
        /// sealed for it or an earlier one, which nobody who followed since has asked for what it gave away there.
        after: u64,
        /// Over which shards. In force from the operation on that hands over (see [`crate::proxy::entry::Entry::Reshard`]).
        shard_map: ShardMap,
    }
}

impl Eq for Layout {}

impl Layout {
    /// The layout of the bootstrap.
    pub fn at_bootstrap(groups: u16, shards: u16) -> Self {
        let shard_map = ShardMap::at_bootstrap(shards);
        Self { version: 0, serving: groups, spanning: groups, after: 0, shard_map }
    }

    /// Who has what was begun at `group`: the group itself while it serves.
    pub fn home(&self, group: Group) -> Group {
        if group.0 < self.serving { group } else { Group(group.0 % self.serving.max(1)) }
    }

    /// The groups that are in use.
    pub fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        (0..self.spanning).map(Group)
    }
}

impl InUse for Layout {
    fn version(&self) -> u64 {
        self.version
    }

    fn serving(&self) -> usize {
        self.serving.into()
    }

    fn spanning(&self) -> usize {
        self.spanning.into()
    }
}

/// The placement of all roles, as far as a host knows.
///
/// Hosts learn of a change at different times, each from its own replicas of the groups' logs. What an old one does:
///
/// | use | by an old one |
/// |---|---|
/// | whom to ask to be the sequencer | somebody else is asked; whose an epoch is, the logs say ([`crate::proxy::entry::Claim`]) |
/// | whom a sequencer's seals, fillings and calls reach | a leader on a new host is not reached until the sequencer knows it, or until another is called; a recovery waits for every group |
/// | which servers' snapshots make a low watermark | the entry names the version it was counted by, and the log ignores one of another |
/// | which peer's snapshot to take | one that is gone gives none, and the next is asked |
/// | who answers an origin | a host's own roles always do; for others' origins two may, and the second answer is nobody's |
/// | to whom proxies pass operations on, what is on one's own host | slots are the same everywhere: no list is asked |
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// The version of the members that it slots.
    pub version: u64,
    /// The proxies, by group; those that are not in use, too.
    pub groups: Vec<ProxyGroup>,
    /// How many of them are in use.
    pub layout: Layout,
    /// Who may be the sequencer. None: the one group there must be numbers its operations itself, because its log is the order.
    pub sequencers: Vec<NodeId>,
    /// The servers of each shard, by space; those over which nothing is spread, too.
    pub shards: Vec<Vec<NodeId>>,
}

impl Topology {
    /// All spaces, in use or not.
    pub fn spaces(&self) -> impl Iterator<Item = Space> + use<> {
        (0..self.shards.len() as u16).map(Space)
    }

    /// All groups, in use or not.
    pub fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        (0..self.groups.len() as u16).map(Group)
    }

    /// Whom to ask to be the sequencer of `epoch`. Whose it is, the logs decide.
    pub fn standby(&self, epoch: u64) -> Option<NodeId> {
        let count = self.sequencers.len() as u64;
        (count > 0).then(|| self.sequencers[(epoch % count) as usize])
    }

    /// The proxies of a group.
    pub fn proxies(&self, group: Group) -> &[NodeId] {
        self.groups.get(usize::from(group.0)).map_or(&[], |group| &group.proxies)
    }

    /// The servers of a shard.
    pub fn servers(&self, space: Space) -> &[NodeId] {
        self.shards.get(usize::from(space.0)).map_or(&[], |servers| servers)
    }

    /// The shards' servers on `host`, whether it is known to be a member or not.
    pub fn servers_on(&self, host: HostId) -> impl Iterator<Item = (Space, NodeId)> {
        self.spaces().filter_map(move |space| Some((space, moved(self.servers(space), host)?)))
    }

    /// A group's proxy on `host`.
    pub fn proxy_on(&self, group: Group, host: HostId) -> Option<NodeId> {
        moved(self.proxies(group), host)
    }

    /// The sequencer or standby on `host`; none if the order needs none.
    pub fn sequencer_on(&self, host: HostId) -> Option<NodeId> {
        moved(&self.sequencers, host)
    }

    /// True if `node` is at the slot of the shard's servers.
    pub fn serves(&self, space: Space, node: NodeId) -> bool {
        moved(self.servers(space), node.host()) == Some(node)
    }

    /// The same roles on the hosts of `members`.
    #[must_use]
    pub fn moved_to(&self, members: &Members) -> Self {
        let on_all =
            |nodes: &[NodeId]| members.ids().filter_map(|host| moved(nodes, host)).collect::<Vec<_>>();
        Self {
            version: members.version,
            groups: self.groups.iter().map(|group| ProxyGroup { proxies: on_all(&group.proxies) }).collect(),
            layout: self.layout.clone(),
            sequencers: on_all(&self.sequencers),
            shards: self.shards.iter().map(|servers| on_all(servers)).collect(),
        }
    }

    /// The same roles, of which as many groups are in use as `layout` says; none if that is not newer.
    #[must_use]
    pub fn arranged(&self, layout: &Layout) -> Option<Self> {
        (layout.version > self.layout.version).then(|| Self { layout: layout.clone(), ..self.clone() })
    }

    /// The group whose proxy `node` is.
    pub fn group_of(&self, node: NodeId) -> Option<Group> {
        self.groups().find(|&group| self.proxies(group).contains(&node))
    }
}

/// The node of `host` at the slot of these.
fn moved(nodes: &[NodeId], host: HostId) -> Option<NodeId> {
    nodes.first().map(|node| NodeId::new(host, node.host_slot()))
}

/// Timeouts and bounds.
#[derive(Clone, Debug)]
pub struct MasonParameters {
    /// How often a leading proxy looks after requests, pings the sequencer, and sends again.
    pub tick: Duration,
    /// How long an unanswered message waits before it is sent again.
    pub resend_after: Duration,
    /// A sequencer that a leading proxy has not heard for this long is taken for dead.
    pub suspect_after: Duration,
    /// Batches of a proxy that wait for numbers or for the log.
    pub batches_max: usize,
    /// Bytes of operations in one batch.
    pub batch_bytes_max: usize,
    /// Operations in one batch.
    pub batch_operations_max: usize,
    /// Bytes of one operation: a gateway refuses what is larger.
    pub operation_bytes_max: usize,
    /// Bytes of operations that wait in a proxy; beyond it gateways have to send again.
    pub queue_bytes_max: usize,
    /// How often the group's clock is logged.
    pub clock_every: Duration,
    /// How often the proxies collect their views around the ring.
    pub collect_every: Duration,
    /// The numbers of one interval of the collection (the paper's N).
    pub collect_interval: u64,
    /// How far a new sequencer's global sequence numbers start above the highest one recovered.
    pub gsn_gap: u64,
    /// How long a shard waits for a missing number or input before it asks.
    pub ask_after: Duration,
    /// A shard's server takes a snapshot when it has executed at least this many bytes of operations.
    pub snapshot_every_bytes: u64,
    /// And no more often than so many times in as many bytes of operations as its last snapshot held. More often means that fewer
    /// operations wait for a snapshot, in memory and after a restart, and that more is written.
    pub snapshots_per_size: u64,
    /// How long operations are retained for the last of a shard's servers, when enough others have them in durable snapshots. In bytes,
    /// there is a bound to it, too.
    pub wait_for_last: Duration,
    /// The size of a snapshot's chunks.
    pub snapshot_chunk_bytes: usize,
    /// Bytes of one answer to a server that lacks operations.
    pub page_bytes: usize,
    /// How long a server leaves what is to be archived to the one before it in turn.
    pub archive_turn: Duration,
}

impl MasonParameters {
    /// What suits a local network.
    pub const DEFAULT: Self = Self {
        tick: Duration::from_millis(20),
        resend_after: Duration::from_millis(60),
        suspect_after: Duration::from_millis(150),
        batches_max: 4,
        batch_bytes_max: 256 << 10,
        batch_operations_max: 8_192,
        operation_bytes_max: OPERATION_BYTES_MAX,
        queue_bytes_max: 64 << 20,
        clock_every: Duration::from_millis(500),
        collect_every: Duration::from_secs(1),
        collect_interval: 4_096,
        gsn_gap: 1 << 20,
        ask_after: Duration::from_millis(40),
        snapshot_every_bytes: 16 << 20,
        snapshots_per_size: 1,
        wait_for_last: Duration::from_secs(10),
        snapshot_chunk_bytes: 256 << 10,
        page_bytes: 256 << 10,
        archive_turn: Duration::from_secs(2),
    };

    /// What of these contradicts the bounds of journals and links, if anything does.
    pub const fn misfit(&self, bounds: &Bounds) -> Option<Misfit> {
        let (record, frame) = (bounds.record_bytes_max, bounds.frame_bytes_max);
        let in_proportion = OPERATION_HEAD_BYTES * record / RECORD_BYTES_MAX;
        let head = if in_proportion > HEAD_BYTES_MIN { in_proportion } else { HEAD_BYTES_MIN };
        let (batch, operation) = (self.batch_bytes_max, self.operation_bytes_max);
        // A batch holds one operation at least, and so does a run that is made of it, and a chunk or a page of those.
        let run = if batch > operation { batch } else { operation } + head;
        Misfit::first([
            Misfit::of("the vote for a batch of operations", run + VOTE_BYTES, record),
            Misfit::of(
                "a chunk of operations that are retained",
                if run > self.page_bytes { run } else { self.page_bytes } + head,
                record,
            ),
            Misfit::of("a chunk of a shard's snapshot", self.snapshot_chunk_bytes + operation + head, record),
            Misfit::of("a page for a shard", self.page_bytes + run, frame),
        ])
    }
}

/// What an operation takes with it in the smallest cluster.
const HEAD_BYTES_MIN: usize = 1 << 10;

const _: () = assert!(MasonParameters::DEFAULT.misfit(&Bounds::REAL).is_none(), "the default parameters fit");

impl Default for MasonParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}
