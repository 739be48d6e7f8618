//! The shards of a deployment: what their servers have reported to the proxies' logs, what those logs believe, and what nobody may have
//! forgotten.

use super::snapshots::{Snapshots, Written};
use ::mason::proxy::machine::ProxyMachine;
use ::mason::shard::ShardServer;
use ::mason::{Group, Gsn, Number, Placed, Shard, Space, Stub};
use kernel::{Bytes, Decode, HostId, NodeId, Position, invariant};
use parts::{Slot, SnapshotRecord};
use std::collections::BTreeMap;

/// What has become of the shards, and of what the logs keep for them.
#[derive(Debug, Default)]
pub(crate) struct ShardAudit {
    disks: BTreeMap<NodeId, (Space, Snapshots<Number>)>,
    /// The highest low watermark that any log has had.
    low_watermarks: BTreeMap<Space, Number>,
    /// The same by group.
    logged: BTreeMap<(Group, Space), Number>,
    /// The members that each replica's log had when it was looked at last.
    members: BTreeMap<NodeId, u64>,
    settled: BTreeMap<Group, u64>,
    /// The last global sequence number and the shard map of a shard below each number.
    stood: BTreeMap<(Space, Number), (Gsn, u64)>,
    stood_at: BTreeMap<NodeId, Number>,
    /// What participants have said of operations, by the sender's space and their numbers in it.
    said: BTreeMap<Space, BTreeMap<Number, Said>>,
    /// Counts the times that a low watermark rose, and how often it had when a space was last rid of what nobody needs any more.
    rises: u64,
    rid_at: BTreeMap<Space, u64>,
    /// How many of them a server retained when it was looked at last, up to which, and how many snapshots of peers it had taken.
    retained_inputs: BTreeMap<NodeId, ((usize, Option<Number>), u64)>,
    /// Runs that a log has retained, by first numbers: their ends, and the slot after which the first replica had them.
    runs: BTreeMap<(Group, Space), BTreeMap<Number, (Number, Slot)>>,
    /// Where a replica stood, and the sum of the low watermarks it had.
    looked: BTreeMap<NodeId, (Slot, u64)>,
}

/// How many slots pass between two looks at what a log keeps, where nothing else asks for one.
const LOOK_EVERY_SLOTS: u64 = 32;

#[derive(Debug)]
struct Said {
    others: Vec<Placed>,
    digest: u64,
}

impl ShardAudit {
    pub(super) fn on_durable(&mut self, space: Space, node: NodeId, position: Position, record: &Bytes) {
        let written =
            match SnapshotRecord::<Number>::decoded(record).expect("a journal holds what its role wrote") {
                SnapshotRecord::Begin { below } => Written::Begin(below),
                SnapshotRecord::Chunk { .. } => Written::Chunk,
                SnapshotRecord::End => Written::End,
            };
        self.disk(space, node).on_durable(node, position, written);
    }

    pub(super) fn on_trimmed(&mut self, space: Space, node: NodeId, before: Position) {
        self.disk(space, node).on_trimmed(node, before);
    }

    pub(super) fn on_report(&mut self, node: NodeId, below: &Placed) {
        self.disk(below.space, node).on_report(node, below.number);
    }

    fn disk(&mut self, space: Space, node: NodeId) -> &mut Snapshots<Number> {
        &mut self.disks.entry(node).or_insert_with(|| (space, Snapshots::default())).1
    }

    pub(super) fn on_disk_lost(&mut self, host: HostId) {
        let here = self.disks.iter_mut().filter(|(node, _)| node.host() == host);
        here.for_each(|(_, (_, disk))| disk.on_disk_lost());
        self.forget(host);
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.members.retain(|node, _| node.host() != host);
        self.retained_inputs.retain(|node, _| node.host() != host);
        self.stood_at.retain(|node, _| node.host() != host);
        self.looked.retain(|node, _| node.host() != host);
    }

    /// How many of these, or of all servers of the space, had everything below in a durable snapshot.
    fn reach(&self, low_watermark: &Placed, among: Option<&[NodeId]>) -> usize {
        let reaches = |(node, (space, disk)): &(&NodeId, &(Space, Snapshots<Number>))| {
            *space == low_watermark.space
                && among.is_none_or(|among| among.contains(node))
                && disk.furthest().is_some_and(|through| through >= low_watermark.number)
        };
        self.disks.iter().filter(reaches).count()
    }

    /// A replica of a group's log, at a slot.
    pub(super) fn check_machine<T: Stub>(&mut self, node: NodeId, machine: &ProxyMachine<T>, executed: Slot) {
        let low_watermarks =
            machine.low_watermarks().iter().map(|low_watermark| low_watermark.number.0).sum();
        let before = self.looked.insert(node, (executed, low_watermarks));
        if before == Some((executed, low_watermarks)) {
            return;
        }
        let (group, topology) = (machine.group(), machine.topology());
        let members_before = self.members.insert(node, topology.version);
        for low_watermark in machine.low_watermarks() {
            let servers = topology.servers(low_watermark.space);
            // Between two looks the log may have counted by former members, of whom there were fewer.
            let strict = members_before == Some(topology.version);
            let needed = if strict { servers.len().div_ceil(2) } else { 2.min(servers.len()) };
            let logged = self.logged.entry((group, low_watermark.space)).or_insert(Number(0));
            if low_watermark.number <= *logged {
                continue;
            }
            *logged = low_watermark.number;
            let known = self.low_watermarks.entry(low_watermark.space).or_insert(Number(0));
            if low_watermark.number > *known {
                (*known, self.rises) = (low_watermark.number, self.rises + 1);
            }
            let reached = self.reach(low_watermark, strict.then_some(servers));
            invariant!(
                DUR,
                reached >= needed,
                "the log of group {group} has {low_watermark:?} durable, and {reached} of {needed} servers have it in snapshots on their disks"
            );
        }
        self.check_settled(machine);
        // It costs more than all else, so it waits for a new incarnation, for what lets the log forget, and for some slots to pass.
        let passed = |at: Slot| at.0 / LOOK_EVERY_SLOTS;
        if before.is_none_or(|(at, sum)| sum != low_watermarks || passed(at) != passed(executed)) {
            self.check_retained(node, machine, executed);
        }
    }

    /// A group that needs none but its new members: enough of those have everything that its log may have forgotten.
    fn check_settled<T: Stub>(&mut self, machine: &ProxyMachine<T>) {
        let (group, topology) = (machine.group(), machine.topology());
        let Some(version) = machine.settled().filter(|version| *version == topology.version) else { return };
        if self.settled.insert(group, version) == Some(version) {
            return;
        }
        for low_watermark in machine.low_watermarks() {
            let servers = topology.servers(low_watermark.space);
            let (reached, needed) = (self.reach(low_watermark, Some(servers)), servers.len().div_ceil(2));
            invariant!(
                DUR,
                reached >= needed,
                "group {group} has settled on members {version}, and {reached} of {needed} of their servers have {low_watermark:?} durably"
            );
        }
    }

    /// What was retained for shards is retained on every replica until a low watermark passes it.
    fn check_retained<T: Stub>(&mut self, node: NodeId, machine: &ProxyMachine<T>, executed: Slot) {
        let group = machine.group();
        let mut here = BTreeMap::new();
        for (space, first, end) in machine.retained() {
            here.insert((space, first), end);
            self.runs.entry((group, space)).or_default().entry(first).or_insert((end, executed));
        }
        let low_watermarks = &self.low_watermarks;
        for (&(_, space), runs) in self.runs.range_mut((group, Space(0))..=(group, Space(u16::MAX))) {
            let low_watermark = low_watermarks.get(&space).copied().unwrap_or_default();
            while runs.first_entry().is_some_and(|first| first.get().0 <= low_watermark) {
                runs.pop_first();
            }
            for (&first, &(end, _)) in runs.iter().filter(|(_, (_, since))| *since <= executed) {
                invariant!(
                    DUR,
                    here.get(&(space, first)) == Some(&end),
                    "{node} at slot {executed} does not keep {first} to {end} of space {space}; too few servers have it durably: {low_watermarks:?}"
                );
            }
        }
    }

    /// A server, and what a restart would make of it: what servers were below its next number, with all that it owes others.
    pub(super) fn on_dry_restart<S: Shard>(
        &mut self,
        node: NodeId,
        running: &ShardServer<S>,
        restarted: &ShardServer<S>,
    ) {
        let (known, found) = (running.durable_below(), restarted.durable_below());
        invariant!(
            DUR,
            known <= found,
            "{node} takes all below {known} for durable, and would find a snapshot of all below {found} after a restart"
        );
        let looked = (self.stood_at.remove(&node), self.retained_inputs.remove(&node));
        self.check_server(node, restarted);
        self.stood_at.extend(looked.0.map(|at| (node, at)));
        self.retained_inputs.extend(looked.1.map(|at| (node, at)));
    }

    /// A shard's server, after its host's replicas were looked at.
    pub(super) fn check_server<S: Shard>(&mut self, node: NodeId, server: &ShardServer<S>) {
        let (space, next) = (server.space(), server.next());
        if self.stood_at.insert(node, next) != Some(next) {
            let stands = (server.executed(), server.shard_map().version);
            let known = *self.stood.entry((space, next)).or_insert(stands);
            invariant!(
                PREFIX,
                known == stands,
                "{node} has executed {stands:?} below number {next}, another server {known:?}: global sequence numbers, and versions of the shard map"
            );
        }
        let looked = (server.inputs_count(), server.skips());
        let before = self.retained_inputs.insert(node, looked);
        if before == Some(looked) {
            return;
        }
        let all = self.said.entry(space).or_default();
        let low_watermarks = &self.low_watermarks;
        let is_settled = |placed: &Placed| {
            low_watermarks.get(&placed.space).is_some_and(|low_watermark| placed.number < *low_watermark)
        };
        for (number, others, digest) in server.inputs_retained() {
            // What one still keeps that nobody needs, others have forgotten.
            if others.iter().all(is_settled) {
                continue;
            }
            let said = all.entry(number).or_insert_with(|| Said { others: others.to_vec(), digest });
            invariant!(
                PREFIX,
                said.digest == digest && said.others == others,
                "{node} says of number {number} to {others:?} otherwise than another server of its shard to {:?}",
                said.others
            );
        }
        if self.rid_at.insert(space, self.rises) != Some(self.rises) {
            all.retain(|_, said| !said.others.iter().all(is_settled));
        }
        let mut stored = server.inputs_retained().map(|(number, _, _)| number).peekable();
        for (&number, said) in all.range(..next) {
            while stored.next_if(|known| *known < number).is_some() {}
            invariant!(
                DUR,
                stored.peek() == Some(&number),
                "{node} has forgotten what it said of number {number} to {:?}; the logs' low watermarks are {low_watermarks:?}",
                said.others
            );
        }
    }
}
