//! Plots: who takes part in a transaction of several shards dies between two of its steps, or all hosts lose their power then.

use super::{Node, SpannerScenario};
use crate::audit::spanner::machine_of;
use ::spanner::{Fate, PreparedTxn, ShardId};
use kernel::{HostId, Rng};
use sim::{Cluster, Control, Loss};
use std::collections::BTreeSet;
use std::time::Duration;

/// Between which two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// It has read under locks, and nothing of it is prepared.
    Locked,
    /// Some participant is prepared, and its coordinator has not decided.
    Prepared,
    /// Its coordinator has decided, and some participant does not have that in its log.
    Decided,
    /// All participants have the decision, and the coordinator does not know that.
    Concluded,
}

const MOMENTS: [Moment; 4] = [Moment::Locked, Moment::Prepared, Moment::Decided, Moment::Concluded];

impl Moment {
    fn mark(self, power: bool) -> &'static str {
        match (self, power) {
            (Moment::Locked, false) => "scenario.killed_between_lock_and_prepare",
            (Moment::Prepared, false) => "scenario.killed_between_prepare_and_decision",
            (Moment::Decided, false) => "scenario.killed_between_decision_and_conclusion",
            (Moment::Concluded, false) => "scenario.killed_between_conclusion_and_settling",
            (Moment::Locked, true) => "scenario.power_lost_between_lock_and_prepare",
            (Moment::Prepared, true) => "scenario.power_lost_between_prepare_and_decision",
            (Moment::Decided, true) => "scenario.power_lost_between_decision_and_conclusion",
            (Moment::Concluded, true) => "scenario.power_lost_between_conclusion_and_settling",
        }
    }
}

/// Who dies, of those who take part.
#[derive(Clone, Copy, Debug)]
struct Victims {
    gateway: bool,
    coordinator: bool,
    participants: bool,
    /// Everybody at once, with a part in it or without.
    power: bool,
}

/// What waits for its moment, one plot after another.
pub(super) struct Plots {
    rng: Rng,
    moment: Moment,
    victims: Victims,
    not_before: u64,
}

impl Plots {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut own = rng.fork();
        let (moment, victims) = Self::next(&mut own);
        Self { rng: own, moment, victims, not_before: 0 }
    }

    fn next(rng: &mut Rng) -> (Moment, Victims) {
        let moment = MOMENTS[rng.below(MOMENTS.len() as u64) as usize];
        let power = rng.chance(0.4);
        let who = if power { 7 } else { rng.between(1, 7) };
        let (gateway, coordinator, participants) = (who & 1 > 0, who & 2 > 0, who & 4 > 0);
        let victims = Victims { gateway, coordinator, participants, power };
        (moment, victims)
    }

    /// Kills if the moment has come.
    pub(super) fn watch(&mut self, control: &mut Control<'_, Node>) {
        let now = control.cluster.now();
        if now < self.not_before {
            return;
        }
        let hosts = self.found(&control.cluster);
        if hosts.is_empty() {
            return;
        }
        control.mark(self.moment.mark(self.victims.power));
        let second = Duration::from_secs(1);
        if self.victims.power {
            let all: Vec<HostId> = control.cluster.hosts().collect();
            control.crash_all(all, Loss::All, &mut self.rng);
        } else {
            for host in hosts {
                let down = self.rng.duration(second / 20, 3 * second);
                control.crash(host, Loss::All, down, &mut self.rng);
            }
        }
        self.not_before = now + self.rng.duration(second / 2, 5 * second).as_nanos() as u64;
        (self.moment, self.victims) = Self::next(&mut self.rng);
    }

    /// Whom to kill now.
    fn found(&self, cluster: &Cluster<'_, Node>) -> BTreeSet<HostId> {
        let prepared = || {
            cluster
                .nodes()
                .filter_map(|(_, node)| machine_of(node))
                .flat_map(|(_, machine)| machine.prepared().map(move |prepared| (machine.shard(), prepared)))
        };
        match self.moment {
            Moment::Locked => {
                if prepared().next().is_some() {
                    return BTreeSet::new();
                }
                let busy = cluster.nodes().filter_map(|(id, node)| match node {
                    Node::Gateway(gateway) if self.victims.gateway && gateway.in_progress() > 0 => {
                        Some(id.host())
                    }
                    Node::Shard(role)
                        if !self.victims.gateway && role.is_leading() && role.in_progress() > 0 =>
                    {
                        Some(id.host())
                    }
                    Node::Gateway(_) | Node::Shard(_) | Node::Log(_) => None,
                });
                busy.take(1).collect()
            }
            Moment::Prepared => {
                let open = prepared().find(|(_, prepared)| fate(prepared, cluster).is_none());
                open.map(|(shard, prepared)| self.those(prepared, shard, cluster)).unwrap_or_default()
            }
            Moment::Decided => {
                let decided = prepared().find(|(_, prepared)| {
                    fate(prepared, cluster).is_some_and(|fate| fate.committed().is_some())
                });
                decided.map(|(shard, prepared)| self.those(prepared, shard, cluster)).unwrap_or_default()
            }
            Moment::Concluded => {
                if prepared().next().is_some() {
                    return BTreeSet::new();
                }
                let unsettled = cluster.nodes().filter_map(|(_, node)| machine_of(node));
                let unsettled = unsettled.filter(|(_, machine)| machine.open_decisions() > 0);
                let shards: BTreeSet<ShardId> = unsettled.map(|(_, machine)| machine.shard()).collect();
                let leaders = shards.into_iter().filter_map(|shard| leader(shard, cluster));
                leaders.take(if self.victims.participants { usize::MAX } else { 1 }).collect()
            }
        }
    }

    fn those(&self, prepared: &PreparedTxn, shard: ShardId, cluster: &Cluster<'_, Node>) -> BTreeSet<HostId> {
        let Victims { gateway, coordinator, participants, .. } = self.victims;
        let gateway = gateway.then(|| prepared.txn.gateway.host());
        let coordinator = coordinator.then(|| leader(prepared.coordinator, cluster)).flatten();
        let participant = participants.then(|| leader(shard, cluster)).flatten();
        let all = gateway.into_iter().chain(coordinator).chain(participant);
        all.filter(|host| cluster.is_up(*host)).collect()
    }
}

/// What the log of a transaction's coordinator says of it, at any replica.
fn fate(prepared: &PreparedTxn, cluster: &Cluster<'_, Node>) -> Option<Fate> {
    let machines = cluster.nodes().filter_map(|(_, node)| machine_of(node));
    let of_coordinator = machines.filter(|(_, machine)| machine.shard() == prepared.coordinator);
    of_coordinator.filter_map(|(_, machine)| machine.ended(&prepared.txn).ok().flatten()).next()
}

fn leader(shard: ShardId, cluster: &Cluster<'_, Node>) -> Option<HostId> {
    let leads = |node: &Node| matches!(node, Node::Shard(role) if role.shard() == shard && role.is_leading());
    cluster.nodes().find(|(_, node)| leads(node)).map(|(id, _)| id.host())
}

impl SpannerScenario {
    pub(super) fn go_on_plotting(&mut self, control: &mut Control<'_, Node>) {
        if let Some(plots) = &mut self.plots {
            plots.watch(control);
        }
    }
}
