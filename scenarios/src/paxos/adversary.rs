//! Plots: faults that wait for a dangerous moment and strike just then.

use super::cluster::hosts_of;
use super::{Node, PaxosScenario};
use kernel::{HostId, Rng};
use parts::{Ballot, Slot, Tally};
use paxos::multipaxos::acceptor::Acceptor;
use paxos::multipaxos::leader::Leader;
use paxos::{Configuration, Member, Value};
use sim::{Cluster, Control, Loss};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// What waits for its moment. Times are nanoseconds of the run.
pub(super) enum Plot {
    /// Pauses the leader when a configuration is executed and not yet in force.
    Ambush { version: u64, until: u64 },
    /// The leader is gone, with proposals on their way to it; when another leads, everybody who promised that one a vote
    /// crashes and loses what is not synced, and then the old leader goes on.
    Coup { old: HostId, ballot: Ballot, way: Removal, stage: CoupStage, until: u64 },
    /// A host that leaves does not learn of it; when the change is in force, members that stay are partitioned too: the two
    /// could go on reading by the old configuration.
    Backwater { leader: HostId, leaver: HostId, comer: HostId, stays: Vec<HostId>, parted: bool, until: u64 },
    /// The members that learn of a change are not those that voted for it; then its leader is paused.
    Usurpation {
        version: u64,
        leader: HostId,
        witnesses: Vec<HostId>,
        deaf: Vec<HostId>,
        reported: bool,
        until: u64,
    },
    /// A machine that joins loses its disk, some time after it is up and before it counts: what was said of it holds no more.
    Blank { comer: HostId, after: u64, since: Option<u64>, until: u64 },
}

impl Plot {
    /// One change of membership is plotted against at a time.
    pub(super) fn concerns_a_change(&self) -> bool {
        match self {
            Self::Ambush { .. } | Self::Backwater { .. } | Self::Usurpation { .. } => true,
            Self::Coup { .. } | Self::Blank { .. } => false,
        }
    }
}

/// How a leader is removed from its cluster.
pub(super) enum Removal {
    /// It stands still, and what is sent to it waits.
    Paused,
    /// These links are severed, those to some clients are not.
    Severed(Vec<(HostId, HostId)>),
}

/// How far a coup has come.
pub(super) enum CoupStage {
    /// Nobody else leads yet; true if the next one is to be outvoted itself, and not forgotten.
    Vacant(bool),
    /// The host that leads next, until others have voted for it where the old leader has voted for something else.
    Outvoting(HostId, Ballot),
    /// Those who promised have crashed.
    Forgetting(Vec<HostId>),
}

impl PaxosScenario {
    fn until(&self, control: &Control<'_, Node>, timeouts: u32) -> u64 {
        control.cluster.now() + (timeouts * self.parameters.election_timeout).as_nanos() as u64
    }

    /// Every plot looks whether its moment has come.
    pub(super) fn look(&mut self, control: &mut Control<'_, Node>) {
        let plots = std::mem::take(&mut self.plots);
        if self.healed {
            return;
        }
        self.plots = plots.into_iter().filter_map(|plot| self.advance(plot, control)).collect();
    }

    fn advance(&mut self, plot: Plot, control: &mut Control<'_, Node>) -> Option<Plot> {
        let now = control.cluster.now();
        match plot {
            Plot::Ambush { version, until } => {
                if self.latest().version < version {
                    return (now < until).then_some(Plot::Ambush { version, until });
                }
                if let Some(leader) = self.leader(&control.cluster) {
                    control.mark("scenario.paused_the_leader_in_the_middle_of_a_change");
                    control.pause(leader, Duration::from_secs(1));
                }
                None
            }
            Plot::Coup { old, ballot, way, stage, until } => {
                self.advance_coup(old, ballot, way, stage, until, control)
            }
            Plot::Backwater { leader, leaver, comer, stays, parted, until } => {
                advance_backwater(leader, leaver, comer, stays, parted, until, control)
            }
            Plot::Blank { comer, after, since, until } => {
                let since = since.or_else(|| control.cluster.is_up(comer).then_some(now));
                if since.is_some_and(|since| now >= since + after) {
                    control.mark("scenario.lost_the_disk_of_a_host_that_joins");
                    control.lose_disk(comer, Duration::from_millis(20));
                    return None;
                }
                (now < until).then_some(Plot::Blank { comer, after, since, until })
            }
            Plot::Usurpation { version, leader, witnesses, deaf, reported, until } => {
                advance_usurpation(version, leader, witnesses, deaf, reported, until, control)
            }
        }
    }

    /// Waits for a change to be executed.
    pub(super) fn ambush(&mut self, version: u64, control: &Control<'_, Node>) {
        let until = control.cluster.now() + 2_000 * MS;
        self.plots.push(Plot::Ambush { version, until });
    }

    /// Has a machine that joins lose its disk.
    pub(super) fn blank(&mut self, comer: HostId, rng: &mut Rng, control: &Control<'_, Node>) {
        let (after, until) = (1 << rng.between(10, 28), control.cluster.now() + 3_000 * MS);
        self.plots.push(Plot::Blank { comer, after, since: None, until });
    }

    /// Removes the leader; false if nobody leads.
    pub(super) fn coup(&mut self, outvotes: bool, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let leading = leaders(&control.cluster).max_by_key(|(_, leader)| leader.leader());
        let Some((old, ballot)) = leading.and_then(|(host, leader)| Some((host, leader.leader()?))) else {
            return false;
        };
        let in_flight = self.plots.iter().any(|plot| matches!(plot, Plot::Coup { .. }));
        if in_flight {
            return false;
        }
        let until = self.until(control, 12);
        let votes = cluster_has_acceptor(&control.cluster, old);
        let way = if votes {
            let mut side: Vec<HostId> = self.layout.client_nodes().iter().map(|node| node.host()).collect();
            side.retain(|_| rng.chance(0.5));
            side.push(old);
            let others = self.layout.all_hosts().into_iter().filter(|host| *host != old);
            // One that is only not heard is asked for more, and votes for it alone.
            let hears = outvotes && rng.chance(0.75);
            side.retain(|&host| host == old || !hears);
            let back = |link: &(HostId, HostId)| !hears || link.0 == old;
            let links: Vec<(HostId, HostId)> = others
                .flat_map(|other| side.iter().flat_map(move |&host| [(host, other), (other, host)]))
                .filter(back)
                .collect();
            links.iter().for_each(|&(from, to)| control.sever(from, to));
            Removal::Severed(links)
        } else {
            control.pause(old, Duration::from_nanos(until - control.cluster.now()));
            Removal::Paused
        };
        let stage = CoupStage::Vacant(votes && outvotes);
        self.plots.push(Plot::Coup { old, ballot, way, stage, until });
        true
    }

    fn advance_coup(
        &mut self,
        old: HostId,
        ballot: Ballot,
        way: Removal,
        mut stage: CoupStage,
        until: u64,
        control: &mut Control<'_, Node>,
    ) -> Option<Plot> {
        let over = match &stage {
            &CoupStage::Vacant(outvotes) => {
                let usurper = leaders(&control.cluster)
                    .find(|(host, leader)| *host != old && leader.leader() > Some(ballot));
                if let Some((usurper, leader)) = usurper.filter(|_| outvotes) {
                    stage = CoupStage::Outvoting(usurper, leader.leader().unwrap_or(ballot));
                } else if let Some((usurper, _)) = usurper {
                    stage = CoupStage::Forgetting(self.make_forget(&[old, usurper], control));
                }
                false
            }
            &CoupStage::Outvoting(usurper, of) => {
                let is_outvoted = is_outvoted(old, usurper, of, &control.cluster);
                if is_outvoted {
                    control.mark("scenario.brought_an_outvoted_leader_back");
                    let mut rng = Rng::seeded(control.cluster.now());
                    control.crash(usurper, Loss::None, Duration::from_secs(1), &mut rng);
                }
                is_outvoted
            }
            CoupStage::Forgetting(hosts) => hosts.iter().all(|&host| control.cluster.is_up(host)),
        };
        if !over && control.cluster.now() < until {
            return Some(Plot::Coup { old, ballot, way, stage, until });
        }
        if over && matches!(stage, CoupStage::Forgetting(_)) {
            control.mark("scenario.brought_a_deposed_leader_back");
        }
        match way {
            Removal::Paused => control.resume(old),
            Removal::Severed(links) => links.iter().for_each(|&(from, to)| control.mend(from, to)),
        }
        None
    }

    /// Crashes every acceptor's host but these; they are back at once, without what was not synced.
    fn make_forget(&self, but: &[HostId], control: &mut Control<'_, Node>) -> Vec<HostId> {
        let mut hosts: Vec<HostId> =
            acceptors(&control.cluster).map(|(host, _)| host).filter(|host| !but.contains(host)).collect();
        hosts.dedup();
        for &host in &hosts {
            let mut rng = Rng::seeded(control.cluster.now() ^ u64::from(host.0));
            control.crash(host, Loss::All, Duration::from_millis(2), &mut rng);
        }
        hosts
    }

    /// Hides the votes for a change from those who will decide by it; false if this change does not allow that.
    pub(super) fn usurp(
        &mut self,
        old: &Configuration,
        new: &Configuration,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let [group] = old.acceptors.groups() else { return false };
        let Some(leader) = self.leader(&control.cluster).filter(|_| self.layout.is_colocated()) else {
            return false;
        };
        let stays = |host: &HostId| new.acceptors.nodes().any(|node| node.host() == *host);
        let mut others: Vec<HostId> =
            group.members().iter().map(|node| node.host()).filter(|host| *host != leader).collect();
        // Those who leave vote, those who stay hear nothing.
        others.sort_by_key(|host| (stays(host), *host));
        let deaf = others.split_off((group.members().len() / 2).min(others.len()));
        // Those who did not vote must be able to decide with those who come.
        let mut decide = Tally::default();
        let [decides] = new.acceptors.groups() else { return false };
        for (index, node) in decides.members().iter().enumerate() {
            if node.host() != leader && !others.contains(&node.host()) {
                decide.insert(index);
            }
        }
        if !decides.is_read_quorum(decide) {
            return false;
        }
        deaf.iter().for_each(|&host| control.sever(leader, host));
        let (version, until) = (new.version, control.cluster.now() + 6_000 * MS);
        let plot = Plot::Usurpation { version, leader, witnesses: others, deaf, reported: false, until };
        self.plots.push(plot);
        true
    }
}

impl PaxosScenario {
    /// Hides a change from the host that leaves; false if this change does not allow that.
    pub(super) fn strand(
        &mut self,
        old: &Configuration,
        new: &Configuration,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let Some(leader) = self.leader(&control.cluster).filter(|_| self.layout.is_colocated()) else {
            return false;
        };
        let (before, after) = (hosts_of(old), hosts_of(new));
        let leaver = before.iter().copied().find(|host| !after.contains(host) && *host != leader);
        let comer = after.iter().copied().find(|host| !before.contains(host));
        let (Some(leaver), Some(comer)) = (leaver, comer) else { return false };
        // The leader and the comer can do without so many.
        let mut stays: Vec<HostId> =
            after.iter().copied().filter(|host| before.contains(host) && *host != leader).collect();
        stays.truncate((after.len() - 1) / 2);
        control.sever(leader, leaver);
        let until = control.cluster.now() + 6_000 * MS;
        self.plots.push(Plot::Backwater { leader, leaver, comer, stays, parted: false, until });
        true
    }
}

fn advance_backwater(
    leader: HostId,
    leaver: HostId,
    comer: HostId,
    stays: Vec<HostId>,
    mut parted: bool,
    mut until: u64,
    control: &mut Control<'_, Node>,
) -> Option<Plot> {
    let last_vote = |of: HostId| {
        let mut votes = acceptors(&control.cluster).filter(|(host, _)| *host == of);
        votes.next().and_then(|(_, acceptor)| acceptor.votes().last()).map(|(slot, _, _)| slot)
    };
    // A read there would wait for a vote whose fate is not known.
    let idle = |host: &HostId| last_vote(*host) < executed(&control.cluster, *host);
    let now = control.cluster.now();
    if !parted && last_vote(comer).is_some() && stays.iter().all(idle) && now < until {
        control.mark("scenario.left_old_members_in_a_backwater");
        (parted, until) = (true, now + 3_000 * MS);
        // A host that restarts there knows the founders' configuration again.
        control.crash(leaver, Loss::None, Duration::from_millis(20), &mut Rng::seeded(now));
        stays.iter().for_each(|&host| sever_or_mend(&[leader, comer], host, true, control));
    }
    if now < until {
        return Some(Plot::Backwater { leader, leaver, comer, stays, parted, until });
    }
    control.mend(leader, leaver);
    if parted {
        stays.iter().for_each(|&host| sever_or_mend(&[leader, comer], host, false, control));
    }
    None
}

fn sever_or_mend(speakers: &[HostId], to: HostId, severed: bool, control: &mut Control<'_, Node>) {
    for &from in speakers {
        if severed { control.sever(from, to) } else { control.mend(from, to) }
    }
}

fn advance_usurpation(
    version: u64,
    leader: HostId,
    witnesses: Vec<HostId>,
    deaf: Vec<HostId>,
    mut reported: bool,
    until: u64,
    control: &mut Control<'_, Node>,
) -> Option<Plot> {
    let leads = leaders(&control.cluster).any(|(host, _)| host == leader);
    if leads && !reported {
        let is_change = |value: &Value| matches!(value, Value::Configure(next) if next.version == version);
        let voted = |host: &HostId| {
            acceptors(&control.cluster)
                .any(|(of, acceptor)| of == *host && acceptor.votes().any(|(_, _, value)| is_change(value)))
        };
        if witnesses.iter().all(voted) {
            reported = true;
            witnesses.iter().for_each(|&host| control.sever(leader, host));
            deaf.iter().for_each(|&host| control.mend(leader, host));
        }
    } else if leads
        && all_leaders(&control.cluster)
            .any(|(host, role)| deaf.contains(&host) && role.configurations().latest().version >= version)
    {
        control.mark("scenario.hid_the_votes_for_a_change");
        control.pause(leader, Duration::from_secs(3));
        witnesses.iter().for_each(|&host| control.mend(leader, host));
        return None;
    }
    if leads && control.cluster.now() < until {
        return Some(Plot::Usurpation { version, leader, witnesses, deaf, reported, until });
    }
    let severed = if reported { witnesses } else { deaf };
    severed.iter().for_each(|&host| control.mend(leader, host));
    None
}

fn all_leaders<'a>(cluster: &Cluster<'a, Node>) -> impl Iterator<Item = (HostId, &'a Leader)> + use<'a> {
    cluster.nodes().filter_map(|(id, node)| match node {
        Member::Leader(leader) => Some((id.host(), leader)),
        _ => None,
    })
}

/// Those who lead, as far as they know.
pub(super) fn leaders<'a>(
    cluster: &Cluster<'a, Node>,
) -> impl Iterator<Item = (HostId, &'a Leader)> + use<'a> {
    all_leaders(cluster).filter(|(_, leader)| leader.is_leading())
}

fn acceptors<'a>(cluster: &Cluster<'a, Node>) -> impl Iterator<Item = (HostId, &'a Acceptor)> + use<'a> {
    cluster.nodes().filter_map(|(id, node)| match node {
        Member::Acceptor(acceptor) => Some((id.host(), acceptor)),
        _ => None,
    })
}

/// The slot after the last one executed on `host`.
fn executed(cluster: &Cluster<'_, Node>, host: HostId) -> Option<Slot> {
    cluster.nodes_of(host).find_map(|(_, node)| match node {
        Member::Replica(replica) => Some(replica.executed()),
        _ => None,
    })
}

/// True if somebody has voted in the usurper's ballot for a slot that is executed nowhere, where the old leader's acceptor has voted for
/// something else.
fn is_outvoted(old: HostId, usurper: HostId, of: Ballot, cluster: &Cluster<'_, Node>) -> bool {
    let executed = cluster.nodes().filter_map(|(_, node)| match node {
        Member::Replica(replica) => Some(replica.executed()),
        _ => None,
    });
    let open = executed.max().unwrap_or(Slot(0));
    let mut before = acceptors(cluster).filter(|(host, _)| *host == old);
    before.any(|(_, mine)| {
        let mine: Vec<_> = mine.votes().filter(|(slot, ..)| *slot >= open).collect();
        let differs = |acceptor: &Acceptor| {
            mine.iter().any(|&(slot, ballot, value)| {
                acceptor
                    .vote(slot)
                    .is_some_and(|(voted, other)| voted == of && voted > ballot && other != value)
            })
        };
        acceptors(cluster).any(|(host, acceptor)| host != old && host != usurper && differs(acceptor))
    })
}

fn cluster_has_acceptor(cluster: &Cluster<'_, Node>, host: HostId) -> bool {
    acceptors(cluster).any(|(of, _)| of == host)
}
