//! What must hold after every burst, and when a healed core has come to rest.

use super::checks::NOWHERE;
use super::judged::{JudgedSessions, JudgedTree};
use super::node::Seat;
use coordination::wire::ZkSessionId;
use coordination::wire::parent_of;
use kernel::{HostId, NodeId, invariant};
use mason::proxy::machine::ProxyMachine;
use mason::shard::ShardServer;
use mason::{MasonMember, Number, Shard as _, Space};
use parts::ReplyBounds;
use sim::Cluster;
use std::collections::{BTreeMap, BTreeSet};

/// What all servers have agreed on so far.
#[derive(Default)]
pub(super) struct Servers {
    digests: BTreeMap<(Space, Number), u64>,
    checked: BTreeMap<NodeId, Number>,
    /// How many snapshots of peers a server has taken in this incarnation.
    skips: BTreeMap<NodeId, u64>,
    /// Which replica of a home group had which session.
    held: BTreeSet<(NodeId, u64)>,
    /// The newest layout of groups.
    layout: u64,
    /// When a replica was first seen without a session that it had.
    over: BTreeMap<u64, u64>,
}

impl Servers {
    pub(super) fn forget(&mut self, host: HostId) {
        self.checked.retain(|node, _| node.host() != host);
        self.skips.retain(|node, _| node.host() != host);
        self.held.retain(|(held_by, _)| held_by.host() != host);
    }

    pub(super) fn over_at(&self, session: u64) -> Option<u64> {
        self.over.get(&session).copied()
    }

    /// Notes which of these sessions end.
    pub(super) fn watch_sessions(
        &mut self,
        host: HostId,
        sessions: impl Iterator<Item = u64>,
        cluster: &Cluster<'_, Seat>,
    ) {
        let known = replicas(cluster.called_nodes_of(host)).map(|(_, machine)| machine.layout().version);
        self.layout = known.fold(self.layout, u64::max);
        for session in sessions {
            for (node, machine) in replicas(cluster.called_nodes_of(host)) {
                let stub = machine.stub().sessions();
                if stub.contains(ZkSessionId(session)) {
                    self.held.insert((node, session));
                } else if stub.has_ended(ZkSessionId(session))
                    // One that begins anew, or lags, knows of earlier homes only.
                    && machine.layout().version == self.layout
                    && self.held.remove(&(node, session))
                {
                    self.over.entry(session).or_insert(cluster.now());
                }
            }
        }
    }

    /// Returns whether a server has skipped something.
    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, Seat>) -> bool {
        let mut skipped = false;
        for (id, node) in cluster.called_nodes_of(host) {
            let Seat::Member(member) = node else { continue };
            let MasonMember::Shard(server) = &**member else { continue };
            let (next, skips) = (server.next(), server.skips());
            skipped |= self.skips.insert(id, skips).unwrap_or(0) != skips;
            if self.checked.insert(id, next) == Some(next) {
                continue;
            }
            let half_done = server.service().znodes().contains(NOWHERE);
            invariant!(ATOMIC, !half_done, "{id} has {NOWHERE}: a multi that was refused has made it");
            let digest = server.service().digest();
            let known = *self.digests.entry((server.space(), next)).or_insert(digest);
            invariant!(PREFIX, known == digest, "{id} differs from another server below number {next}");
        }
        skipped
    }
}

impl Servers {
    /// What a server would be after a restart is what servers were below its next number.
    pub(super) fn check_restarted(&self, id: NodeId, restarted: &Member) {
        let MasonMember::Shard(server) = restarted else { return };
        let at = (server.space(), server.next());
        let known = self.digests.get(&at).copied();
        invariant!(
            PREFIX,
            known.is_none_or(|known| known == server.service().digest()),
            "{id} would differ from other servers of its shard at {at:?} after a restart"
        );
    }
}

/// A role of the service.
pub(super) type Member = MasonMember<JudgedSessions, JudgedTree, coordination::Gateway>;

/// The roles of the cluster on one host.
pub(super) fn members_of<'a>(
    host: HostId,
    cluster: &Cluster<'a, Seat>,
) -> impl Iterator<Item = (NodeId, &'a Member)> {
    cluster.called_nodes_of(host).filter_map(|(id, node)| match node {
        Seat::Member(member) => Some((id, &**member)),
        Seat::Socket(_) => None,
    })
}

/// The shards' servers on a host.
pub(super) fn servers_of<'a>(
    host: HostId,
    cluster: &Cluster<'a, Seat>,
) -> impl Iterator<Item = (NodeId, &'a ShardServer<JudgedTree>)> {
    members_of(host, cluster).filter_map(|(id, member)| match member {
        MasonMember::Shard(server) => Some((id, &**server)),
        MasonMember::Sequencer(_) | MasonMember::Proxy(_) | MasonMember::Gateway(_) | MasonMember::Log(_) => {
            None
        }
    })
}

/// A gateway has shards make no more answers for a user than there is room for: one of any size, or several that are small
/// together.
pub(super) fn check_answers(host: HostId, replies: &ReplyBounds, cluster: &Cluster<'_, Seat>) {
    for (id, node) in cluster.called_nodes_of(host) {
        let Seat::Member(member) = node else { continue };
        let MasonMember::Gateway(gateway) = &**member else { continue };
        let bound = replies.free_bytes.max(replies.bytes_max / 64);
        let mut all = 0;
        for (user, bytes, largest) in gateway.answers_held() {
            // A read that is asked anew may find more than the first time.
            let within = bytes - largest <= 2 * bound;
            invariant!(
                BOUND,
                within,
                "{id} holds {bytes} bytes of answers for {user}, the largest {largest}; others may have {bound}"
            );
            all += bytes.saturating_sub(2 * replies.free_bytes);
        }
        let max = replies.bytes_max;
        invariant!(BOUND, all <= max, "{id} holds {all} bytes of answers for its users, the bound is {max}");
    }
}

fn members<'a>(
    core: &'a [HostId],
    cluster: &'a Cluster<'_, Seat>,
) -> impl Iterator<Item = (NodeId, &'a Member)> {
    cluster.nodes().filter(|(id, _)| core.contains(&id.host())).filter_map(|(id, node)| match node {
        Seat::Member(member) => Some((id, &**member)),
        Seat::Socket(_) => None,
    })
}

/// The home groups' replicas among these.
pub(super) fn replicas<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a Seat)>,
) -> impl Iterator<Item = (NodeId, &'a ProxyMachine<JudgedSessions>)> {
    nodes.filter_map(|(node, seat)| {
        let Seat::Member(member) = seat else { return None };
        let MasonMember::Log(embedded) = &**member else { return None };
        let paxos::Member::Replica(replica) = embedded.node() else { return None };
        Some((node, replica.machine()))
    })
}

/// All servers of the core have executed the same.
pub(super) fn agreed(core: &[HostId], cluster: &Cluster<'_, Seat>) -> Result<(), String> {
    let mut reached: BTreeMap<Space, (Number, u64)> = BTreeMap::new();
    for (id, member) in members(core, cluster) {
        let MasonMember::Shard(server) = member else { continue };
        let at = (server.next(), server.service().digest());
        let known = *reached.entry(server.space()).or_insert(at);
        if known != at {
            return Err(format!("{id} is at {at:?}, another server of its shard at {known:?}"));
        }
    }
    Ok(())
}

/// No node that is elsewhere or twice, none without its parent, no ephemeral node without its session: the name of what is broken, and
/// what.
pub(super) fn sound(core: &[HostId], cluster: &Cluster<'_, Seat>) -> Result<(), (&'static str, String)> {
    let Some(&host) = core.first() else { return Ok(()) };
    let one = [host];
    let (mut paths, mut owners) = (BTreeSet::new(), BTreeSet::new());
    let mut shard_map = None;
    for (_, member) in members(&one, cluster) {
        let MasonMember::Shard(server) = member else { continue };
        let known = shard_map.get_or_insert(server.shard_map());
        if server.shard_map().version > known.version {
            *known = server.shard_map();
        }
        if let Some(path) = server.service().znodes().misplaced() {
            return Err((
                "UNIQ",
                format!("{path} is in shard {}, where nobody looks for it", server.space()),
            ));
        }
        if let Some(path) = server.service().znodes().paths().find(|&path| !paths.insert(path)) {
            return Err(("UNIQ", format!("{path} is in two shards")));
        }
        owners.extend(server.service().znodes().owners());
    }
    for (id, member) in members(&one, cluster) {
        if let (MasonMember::Shard(server), Some(shard_map)) = (member, shard_map)
            && shard_map.spaces().any(|space| space == server.space())
            && server.shard_map().version < shard_map.version
        {
            return Err(("LIVE", format!("{id} has not come to {shard_map:?}")));
        }
    }
    for path in &paths {
        if let Some(parent) = parent_of(path).filter(|parent| !paths.contains(parent)) {
            return Err(("ATOMIC", format!("{path} is there and {parent} is not")));
        }
    }
    akin(host, cluster)?;
    for (node, machine) in replicas(cluster.nodes()).filter(|(node, _)| core.contains(&node.host())) {
        if let Some(view) =
            machine.stub().sessions().after(ZkSessionId(0), machine.now()).find(|view| view.closing)
        {
            return Err(("SESS", format!("{node} is closing session {} and does not end it", view.session)));
        }
    }
    for owner in owners {
        // Whichever group has come to be its home.
        let mut of_core = replicas(cluster.nodes()).filter(|(node, _)| core.contains(&node.host()));
        // One that is closing, or that nobody lets expire, is no excuse.
        let is_held = of_core.any(|(_, machine)| {
            let mut views = machine.stub().sessions().after(ZkSessionId(owner.0 - 1), machine.now());
            views.next().is_some_and(|view| view.session == owner && !view.closing && view.expires_in > 0)
        });
        if !is_held {
            return Err(("EPH", format!("session {owner} is over and owns nodes")));
        }
    }
    Ok(())
}

/// Parents and children know of each other, whatever shards they are in, and an ephemeral node has no children.
fn akin(host: HostId, cluster: &Cluster<'_, Seat>) -> Result<(), (&'static str, String)> {
    let (mut nodes, one) = (BTreeMap::new(), [host]);
    for (_, member) in members(&one, cluster) {
        let MasonMember::Shard(server) = member else { continue };
        nodes.extend(server.service().znodes().kinships().map(|node| (node.path, node)));
    }
    let mut listed = 0;
    for node in nodes.values() {
        if node.is_ephemeral && !node.children.is_empty() {
            return Err(("ATOMIC", format!("{} goes with its session, and has children", node.path)));
        }
        listed += node.children.len();
        let above = if node.path == "/" { "" } else { node.path };
        for name in &node.children {
            let path = format!("{above}/{name}");
            let Some(child) = nodes.get(path.as_str()) else {
                return Err(("ATOMIC", format!("{path} is not there, and its parent lists it")));
            };
            if child.czxid > node.pzxid {
                let (made, changed) = (child.czxid, node.pzxid);
                return Err(("ATOMIC", format!("{path} was made at {made}, and its parent says {changed}")));
            }
        }
    }
    let below = nodes.keys().filter(|path| **path != "/").count();
    if listed != below {
        return Err(("ATOMIC", format!("{below} nodes have parents, which list {listed}")));
    }
    Ok(())
}

/// How far everybody is.
pub(super) fn describe(cluster: &Cluster<'_, Seat>) -> String {
    let mut words = Vec::new();
    for (id, node) in cluster.nodes() {
        let Seat::Member(member) = node else { continue };
        match &**member {
            MasonMember::Sequencer(sequencer) => {
                words.extend(sequencer.active_epoch().map(|epoch| format!("{id} is sequencer {epoch}")));
            }
            MasonMember::Proxy(proxy) if proxy.is_leading() => words.push(format!("{id} leads {proxy:?}")),
            MasonMember::Shard(server) => words.push(format!("{id} {}", server.describe())),
            MasonMember::Gateway(gateway) => {
                words.push(format!("{id} has {} outstanding", gateway.metrics().outstanding));
            }
            MasonMember::Proxy(_) | MasonMember::Log(_) => {}
        }
    }
    words.join(" | ")
}
