//! What must hold of a host's roles after every burst, and when all is at rest.

use super::node::{ChainedSeat, Home, HomeOrSocket, TreeMember};
use crate::coordination::checks::NOWHERE;
use crate::coordination::judged::JudgedTree;
use ::fuzzylog::{ChainServer, FuzzyMember};
use ::mason::shard::ShardServer;
use ::mason::{MasonMember, Number, Shard as _, Space};
use coordination::feeder::{COLOUR, TreeFeeder, TreeFeederNode};
use coordination::wire::{ZkSessionId, parent_of};
use kernel::{HostId, NodeId, invariant};
use sim::Cluster;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Clocks gain or lose up to one part in a hundred in the simulator.
const DRIFT: u64 = 100;
/// How long a sign of life may be on its way, or the group's clock be read late, beyond the slack of sessions.
const STALL_MAX: u64 = 4_000_000_000;
const MILLION: u64 = 1_000_000;

/// The shards' servers among nodes.
pub(super) fn shards<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a ChainedSeat)>,
) -> impl Iterator<Item = (NodeId, &'a ShardServer<JudgedTree>)> {
    nodes.filter_map(|(id, node)| match node {
        ChainedSeat::Tree(embedded) => match embedded.node() {
            TreeMember::Shard(server) => Some((id, &**server)),
            MasonMember::Sequencer(_)
            | MasonMember::Proxy(_)
            | MasonMember::Gateway(_)
            | MasonMember::Log(_) => None,
        },
        ChainedSeat::Beside(_) | ChainedSeat::Feeder(_) | ChainedSeat::Chain(_) => None,
    })
}

/// The sessions' servers among nodes.
pub(super) fn homes<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a ChainedSeat)>,
) -> impl Iterator<Item = (NodeId, &'a Home)> {
    nodes.filter_map(|(id, node)| {
        let ChainedSeat::Beside(embedded) = node else { return None };
        let HomeOrSocket::Home(home) = embedded.node() else { return None };
        Some((id, &**home))
    })
}

/// The feeders among nodes.
pub(super) fn feeders<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a ChainedSeat)>,
) -> impl Iterator<Item = (NodeId, &'a TreeFeeder)> {
    nodes.filter_map(|(id, node)| {
        let ChainedSeat::Feeder(embedded) = node else { return None };
        let TreeFeederNode::Feeder(feeder) = embedded.node();
        Some((id, &**feeder))
    })
}

fn chain_servers<'a>(
    nodes: impl Iterator<Item = (NodeId, &'a ChainedSeat)>,
) -> impl Iterator<Item = (NodeId, &'a ChainServer)> {
    nodes.filter_map(|(id, node)| {
        let ChainedSeat::Chain(embedded) = node else { return None };
        let FuzzyMember::ChainServer(server) = embedded.node() else { return None };
        Some((id, &**server))
    })
}

/// What is known of one session.
#[derive(Debug, Default)]
struct Incarnation {
    /// In milliseconds.
    timeout: u64,
    /// When the user asked for the last thing that its session is known to have done.
    acted_at: u64,
    /// The user may have closed it.
    closes: bool,
    over: bool,
}

/// The incarnations of all sessions.
#[derive(Debug, Default)]
pub(super) struct Living {
    incarnations: BTreeMap<u64, Incarnation>,
    had: BTreeMap<NodeId, BTreeSet<u64>>,
}

impl Living {
    /// A session was granted, or has done what was asked then.
    pub(super) fn acted(&mut self, session: u64, asked: u64) {
        let incarnation = self.incarnations.entry(session).or_default();
        incarnation.acted_at = asked.max(incarnation.acted_at);
    }

    pub(super) fn closes(&mut self, session: u64) {
        self.incarnations.entry(session).or_default().closes = true;
    }

    pub(super) fn forget(&mut self, host: HostId) {
        self.had.retain(|node, _| node.host() != host);
    }

    /// Returns which sessions were seen to be over for the first time.
    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, ChainedSeat>) -> Vec<u64> {
        let (now, mut over) = (cluster.now(), Vec::new());
        for (node, home) in homes(cluster.called_nodes_of(host)) {
            let time = home.service().now();
            invariant!(
                SESS,
                time.0 * MILLION <= now + now / DRIFT,
                "the clock of sessions is at {time} ms, {now} ns after the beginning"
            );
            let mut here = BTreeSet::new();
            for view in home.service().sessions().sessions().after(ZkSessionId(0), time) {
                let incarnation = self.incarnations.entry(view.session.0).or_default();
                incarnation.timeout = u64::from(view.timeout);
                if view.closing {
                    over.extend(incarnation.ends(view.session.0, now).then_some(view.session.0));
                } else {
                    here.insert(view.session.0);
                }
            }
            let had = self.had.insert(node, here).unwrap_or_default();
            for session in had.difference(&self.had[&node]) {
                let ends = self.incarnations.entry(*session).or_default().ends(*session, now);
                over.extend(ends.then_some(*session));
            }
        }
        over
    }
}

impl Incarnation {
    fn ends(&mut self, session: u64, now: u64) -> bool {
        if std::mem::replace(&mut self.over, true) {
            return false;
        }
        let due = self.timeout * MILLION;
        invariant!(
            SESS,
            self.closes || now.saturating_sub(self.acted_at) + STALL_MAX >= due - due / DRIFT,
            "session {session:x} with a timeout of {} ms is over at {now} ns; it did what its user asked at {} ns",
            self.timeout,
            self.acted_at
        );
        true
    }
}

/// What all servers have agreed on so far.
#[derive(Default)]
pub(super) struct Servers {
    digests: BTreeMap<(Space, Number), u64>,
    checked: BTreeMap<NodeId, Number>,
    skips: BTreeMap<NodeId, u64>,
    /// When sessions were first seen to be over.
    over: BTreeMap<u64, u64>,
}

impl Servers {
    pub(super) fn forget(&mut self, host: HostId) {
        self.checked.retain(|node, _| node.host() != host);
        self.skips.retain(|node, _| node.host() != host);
    }

    /// A session was seen to be over.
    pub(super) fn note_over(&mut self, session: u64, now: u64) {
        self.over.entry(session).or_insert(now);
    }

    /// When a session was first seen to be over.
    pub(super) fn over_at(&self, session: u64) -> Option<u64> {
        self.over.get(&session).copied()
    }

    fn agree(&mut self, id: NodeId, space: Space, next: Number, digest: u64) {
        let known = *self.digests.entry((space, next)).or_insert(digest);
        invariant!(PREFIX, known == digest, "{id} differs from another server below number {next}");
    }

    /// Returns whether a server has skipped something.
    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, ChainedSeat>) -> bool {
        let mut skipped = false;
        for (id, server) in shards(cluster.called_nodes_of(host)) {
            let (next, skips) = (server.next(), server.skips());
            skipped |= self.skips.insert(id, skips).unwrap_or(0) != skips;
            if self.checked.insert(id, next) != Some(next) {
                let half_done = server.service().znodes().contains(NOWHERE);
                invariant!(ATOMIC, !half_done, "{id} has {NOWHERE}: a multi that was refused has made it");
                self.agree(id, server.space(), next, server.service().digest());
            }
        }
        for (id, home) in homes(cluster.called_nodes_of(host)) {
            let next = home.next();
            if self.checked.insert(id, next) != Some(next) {
                self.agree(id, home.space(), next, home.service().digest());
            }
        }
        skipped
    }
}

/// What the colour has lost, enough servers of each shard have in durable snapshots. Who is down has at least what it had.
pub(super) fn check_trims(hosts: &[HostId], host: HostId, cluster: &Cluster<'_, ChainedSeat>) {
    if hosts.iter().any(|&host| !cluster.is_up(host) && !cluster.is_lost(host)) {
        return;
    }
    let lost = hosts.iter().filter(|&&host| cluster.is_lost(host)).count();
    for (id, server) in chain_servers(cluster.called_nodes_of(host)) {
        let first = server.state().first(COLOUR).0;
        if first > 0 {
            let has = |home: &&Home| home.durable_below() > Number(first);
            let count = homes(cluster.nodes()).filter(|(_, home)| has(home)).count();
            invariant!(
                DUR,
                count + lost > hosts.len() / 2,
                "{id} has lost what is below {first}, and {count} servers of sessions have it"
            );
        }
    }
}

fn of<'a>(
    core: &'a [HostId],
    cluster: &Cluster<'a, ChainedSeat>,
) -> impl Iterator<Item = (NodeId, &'a ChainedSeat)> {
    cluster.nodes().filter(|(id, _)| core.contains(&id.host()))
}

/// Nothing is lost with any one host: all serve the same chain, have all that was acknowledged, and vote in the directors' log.
pub(super) fn bears_a_loss(hosts: &[HostId], cluster: &Cluster<'_, ChainedSeat>) -> bool {
    let members = || {
        cluster.nodes().filter_map(|(_, node)| {
            let ChainedSeat::Chain(embedded) = node else { return None };
            Some(embedded.node())
        })
    };
    let directors = || {
        members()
            .filter_map(|it| if let FuzzyMember::Director(director) = it { Some(director) } else { None })
    };
    let votes = |it: &&FuzzyMember| {
        let FuzzyMember::Log(embedded) = it else { return false };
        matches!(embedded.node(), paxos::Member::Acceptor(acceptor) if acceptor.is_active())
    };
    let latest = directors().flat_map(|it| it.projections()).max_by_key(|it| it.epoch);
    let serves = |server: &ChainServer| {
        latest.is_some_and(|it| server.serves() == Some(it.epoch) && server.length() >= it.whole_from)
    };
    let serving = chain_servers(cluster.nodes()).filter(|(_, server)| serves(server)).count();
    let voting = members().filter(votes).count();
    serving == hosts.len() && voting == hosts.len() && !directors().any(|it| it.is_changing())
}

/// What was there when users were found served first. The clock of their sessions goes on, so a node is always on its way.
#[derive(Default)]
pub(super) struct Served(OnceCell<Asked>);

struct Asked {
    /// Nodes below are there.
    known: u64,
    /// Up to which of its own nodes each feeder was asked for something.
    nodes: BTreeMap<NodeId, u64>,
}

impl Served {
    /// All of that is executed.
    pub(super) fn is_executed(
        &self,
        core: &[HostId],
        cluster: &Cluster<'_, ChainedSeat>,
    ) -> Result<(), String> {
        let Asked { known, nodes } = self.0.get_or_init(|| Asked {
            known: feeders(of(core, cluster)).map(|(_, feeder)| feeder.extent().1).max().unwrap_or(0),
            nodes: feeders(of(core, cluster)).map(|(id, feeder)| (id, feeder.asked_through())).collect(),
        });
        for (id, home) in homes(of(core, cluster)) {
            if home.next() < Number(known + 1) {
                return Err(format!("{id} is at {}, and nodes below {known} are there", home.next()));
            }
        }
        for (id, feeder) in feeders(of(core, cluster)) {
            let awaited =
                feeder.first_awaited().filter(|node| nodes.get(&id).is_some_and(|last| node <= last));
            if feeder.handed() < Some(*known) || awaited.is_some() {
                let state = feeder.describe();
                return Err(format!("{id}, of {known} nodes, awaits {awaited:?} of its own: {state}"));
            }
        }
        Ok(())
    }
}

/// All servers of the shards have executed the same.
pub(super) fn agreed(core: &[HostId], cluster: &Cluster<'_, ChainedSeat>) -> Result<(), String> {
    let mut reached: BTreeMap<Space, (Number, u64)> = BTreeMap::new();
    for (id, server) in shards(of(core, cluster)) {
        let at = (server.next(), server.service().digest());
        let known = *reached.entry(server.space()).or_insert(at);
        if known != at {
            return Err(format!("{id} is at {at:?}, another server of its shard at {known:?}"));
        }
    }
    Ok(())
}

/// No node that is elsewhere or twice, none without its parent, no ephemeral node without its session.
pub(super) fn sound(host: HostId, cluster: &Cluster<'_, ChainedSeat>) -> Result<(), String> {
    let (mut paths, mut owners) = (BTreeSet::new(), BTreeSet::new());
    for (_, server) in shards(cluster.nodes_of(host)) {
        let znodes = server.service().znodes();
        if let Some(path) = znodes.misplaced() {
            return Err(format!("{path} is in shard {}, where nobody looks for it", server.space()));
        }
        if let Some(path) = znodes.paths().find(|&path| !paths.insert(path)) {
            return Err(format!("{path} is in two shards"));
        }
        owners.extend(znodes.owners());
    }
    for path in &paths {
        if let Some(parent) = parent_of(path).filter(|parent| !paths.contains(parent)) {
            return Err(format!("{path} is there and {parent} is not"));
        }
    }
    for (id, home) in homes(cluster.nodes_of(host)) {
        let sessions = home.service().sessions().sessions();
        let closing = sessions.after(ZkSessionId(0), home.service().now()).find(|view| view.closing);
        if let Some(view) = closing {
            return Err(format!("{id} is closing session {} and does not end it", view.session));
        }
        if let Some(owner) = owners.iter().find(|owner| !sessions.contains(**owner)) {
            return Err(format!("session {owner} is over and owns nodes"));
        }
    }
    Ok(())
}

/// How far everybody is.
pub(super) fn describe(cluster: &Cluster<'_, ChainedSeat>) -> String {
    let shards = shards(cluster.nodes()).map(|(id, server)| format!("{id}: {}", server.describe()));
    let homes = homes(cluster.nodes()).map(|(id, home)| format!("{id}: {}", home.describe()));
    let feeders = feeders(cluster.nodes())
        .map(|(id, feeder)| format!("{id}: {}, asks {}", feeder.describe(), feeder.client().describe()));
    shards.chain(homes).chain(feeders).collect::<Vec<_>>().join("\n")
}
