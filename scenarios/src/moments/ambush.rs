//! Strikes that wait for their moment, because chance does not meet it.

use super::{Seated, leaders, members, replicas, sequencer, servers};
use kernel::{HostId, NodeId, Rng};
use mason::{Group, MasonMember, Number, Space};
use parts::Slot;
use sim::{Cluster, Control, Hindrance, Loss};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a strike may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A server takes a peer's snapshot: it dies before it has written its own, and with it a group's leader of then.
    Installed,
    /// A group retires: the sequencer dies with answers on their way.
    Retired,
    /// The logs have forgotten what a server lacks whose process stands still: it goes on then.
    Forgotten,
    /// A shard's server stands behind where the others of its host do not, because one log comes late there.
    Behind,
    /// A host's gateway misses answers, one by one and then all: its replica of one log loses every other message, then all, until it
    /// has to take a snapshot.
    Unanswered,
    /// A standby seals the groups: it starts again before their logs have that, and is asked again by another group.
    Recovering,
}

/// Strikes that wait, one of each kind at most.
#[derive(Default)]
pub(crate) struct Ambushes {
    waiting: Vec<Ambush>,
}

struct Ambush {
    moment: Moment,
    until: u64,
    /// Moments that last are looked for now and then.
    look_at: u64,
    rng: Rng,
}

enum Moment {
    Installed(BTreeMap<NodeId, u64>),
    Retired(BTreeSet<NodeId>),
    Forgotten(HostId),
    Behind(HostId),
    Unanswered { replica: NodeId, all_from: u64, missed: Option<Slot> },
    Recovering,
}

const WAITS: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(3);

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn skips<N: Seated>(cluster: &Cluster<'_, N>) -> BTreeMap<NodeId, u64> {
    servers(cluster).map(|(id, server)| (id, server.skips())).collect()
}

fn retired<N: Seated>(cluster: &Cluster<'_, N>) -> BTreeSet<NodeId> {
    replicas(cluster).filter(|(_, replica)| replica.machine().is_retired()).map(|(id, _)| id).collect()
}

/// The highest low watermark of each space.
fn low_watermarks<N: Seated>(cluster: &Cluster<'_, N>) -> BTreeMap<Space, Number> {
    let mut low_watermarks = BTreeMap::new();
    for low_watermark in replicas(cluster).flat_map(|(_, replica)| replica.machine().low_watermarks()) {
        let known = low_watermarks.entry(low_watermark.space).or_insert(low_watermark.number);
        *known = low_watermark.number.max(*known);
    }
    low_watermarks
}

/// True if some server of the host lacks what the logs do not keep any more.
fn lacks_what_is_forgotten<N: Seated>(host: HostId, cluster: &Cluster<'_, N>) -> bool {
    let low_watermarks = low_watermarks(cluster);
    let mut here = servers(cluster).filter(|(id, _)| id.host() == host);
    here.any(|(_, server)| {
        low_watermarks.get(&server.space()).is_some_and(|low_watermark| server.next() < *low_watermark)
    })
}

/// True if one shard's server of the host is behind the others of its shard, and another one is not.
fn is_partly_behind<N: Seated>(host: HostId, cluster: &Cluster<'_, N>) -> bool {
    let mut furthest: BTreeMap<Space, Number> = BTreeMap::new();
    for (_, server) in servers(cluster) {
        let known = furthest.entry(server.space()).or_insert(server.next());
        *known = server.next().max(*known);
    }
    let here = servers(cluster).filter(|(id, server)| id.host() == host && server.next() > Number(1));
    let behind: Vec<bool> = here
        .map(|(_, server)| furthest.get(&server.space()).is_some_and(|end| server.next() < *end))
        .collect();
    behind.contains(&true) && behind.contains(&false)
}

/// A replica of a group that is led elsewhere, on `host` if there is one.
fn led_elsewhere<N: Seated>(host: Option<HostId>, rng: &mut Rng, cluster: &Cluster<'_, N>) -> Option<NodeId> {
    let leaders = leaders(cluster);
    let is_led_elsewhere =
        |group: Group, at: HostId| leaders.iter().any(|&(led, by)| led == group && by != at);
    let mut found: Vec<(Slot, NodeId)> = replicas(cluster)
        .filter(|(id, replica)| is_led_elsewhere(replica.machine().group(), id.host()))
        .map(|(id, replica)| (replica.executed(), id))
        .collect();
    if host.is_some_and(|host| found.iter().any(|(_, id)| id.host() == host)) {
        found.retain(|(_, id)| Some(id.host()) == host);
    }
    // The longest log is the busiest.
    let busiest = found.iter().max().copied().filter(|_| rng.chance(0.7));
    busiest.or_else(|| rng.pick(&found).copied()).map(|(_, id)| id)
}

impl Ambushes {
    /// True if some strike waits.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lets a strike wait, on `host` if it needs one and that is given; false if the moment allows none.
    pub(crate) fn lay<N: Seated>(
        &mut self,
        kind: Kind,
        host: Option<HostId>,
        rng: &mut Rng,
        control: &mut Control<'_, N>,
    ) -> bool {
        let cluster = &control.cluster;
        let now = cluster.now();
        let moment = match kind {
            Kind::Installed => Moment::Installed(skips(cluster)),
            Kind::Retired => Moment::Retired(retired(cluster)),
            Kind::Forgotten => {
                let hosts: BTreeSet<HostId> = servers(cluster).map(|(id, _)| id.host()).collect();
                let hosts: Vec<HostId> = hosts.into_iter().collect();
                let Some(host) = host.or_else(|| rng.pick(&hosts).copied()) else { return false };
                control.pause(host, WAITS);
                Moment::Forgotten(host)
            }
            Kind::Behind => {
                let Some(replica) = led_elsewhere(host, rng, cluster) else { return false };
                let how = if rng.chance(0.5) { Hindrance::Held } else { Hindrance::Lost };
                let lasts = rng.duration(Duration::from_millis(300), Duration::from_secs(4));
                control.hinder(replica, how, lasts);
                Moment::Behind(replica.host())
            }
            Kind::Unanswered => {
                let Some(replica) = led_elsewhere(host, rng, cluster) else { return false };
                let some = rng.duration(Duration::from_millis(200), Duration::from_millis(1_500));
                control.hinder(replica, Hindrance::Halved, some);
                Moment::Unanswered { replica, all_from: now + nanos(some), missed: None }
            }
            Kind::Recovering => {
                let Some(host) = sequencer(cluster).filter(|_| leaders(cluster).len() > 1) else {
                    return false;
                };
                let down = rng.duration(Duration::from_secs(1), Duration::from_secs(3));
                control.crash(host, Loss::All, down, rng);
                Moment::Recovering
            }
        };
        self.waiting.retain(|waiting| waiting.moment.kind() != kind);
        self.waiting.push(Ambush { moment, until: now + nanos(WAITS), look_at: now, rng: rng.fork() });
        true
    }

    /// Strikes where the moment has come.
    pub(crate) fn look<N: Seated>(&mut self, control: &mut Control<'_, N>) {
        let now = control.cluster.now();
        self.waiting.retain_mut(|ambush| {
            if now < ambush.look_at {
                return true;
            }
            let is_over = ambush.look(control);
            !is_over && now < ambush.until
        });
    }
}

impl Moment {
    fn kind(&self) -> Kind {
        match self {
            Self::Installed(_) => Kind::Installed,
            Self::Retired(_) => Kind::Retired,
            Self::Forgotten(_) => Kind::Forgotten,
            Self::Behind(_) => Kind::Behind,
            Self::Unanswered { .. } => Kind::Unanswered,
            Self::Recovering => Kind::Recovering,
        }
    }
}

impl Ambush {
    /// True if nothing is left to wait for.
    fn look<N: Seated>(&mut self, control: &mut Control<'_, N>) -> bool {
        let now = control.cluster.now();
        match &self.moment {
            Moment::Installed(before) => {
                let skipped = skips(&control.cluster);
                let took = skipped
                    .iter()
                    .find(|(id, skips)| before.get(*id).is_some_and(|before| *before < **skips));
                let took = took.map(|(id, _)| id.host());
                self.moment = Moment::Installed(skipped);
                took.is_some_and(|host| self.kill_who_took_a_snapshot(host, control))
            }
            Moment::Retired(before) => {
                let retired = retired(&control.cluster);
                let is_new = !retired.is_subset(before);
                self.moment = Moment::Retired(retired);
                is_new && self.kill_the_sequencer(control)
            }
            Moment::Forgotten(host) => {
                self.look_at = now + nanos(LOOK_EVERY);
                let lacks = lacks_what_is_forgotten(*host, &control.cluster);
                if lacks {
                    control.mark("scenario.paused_until_the_logs_had_forgotten");
                    control.resume(*host);
                }
                lacks
            }
            Moment::Behind(host) => {
                self.look_at = now + nanos(LOOK_EVERY);
                let is_behind = is_partly_behind(*host, &control.cluster);
                if is_behind {
                    control.mark("scenario.held_one_shard_back");
                }
                is_behind
            }
            &Moment::Unanswered { replica, all_from, missed } => {
                self.look_at = now + nanos(LOOK_EVERY);
                self.lose_answers(replica, all_from, missed, control)
            }
            Moment::Recovering => self.restart_who_recovers(control),
        }
    }

    /// No log has the first seal when the second one is asked for.
    fn restart_who_recovers<N: Seated>(&mut self, control: &mut Control<'_, N>) -> bool {
        let ms = Duration::from_millis;
        let recovering = members(control.cluster.nodes()).find_map(|(id, member)| match member {
            MasonMember::Sequencer(sequencer) => sequencer.recovering_epoch().map(|_| id.host()),
            _ => None,
        });
        let Some(host) = recovering else { return false };
        control.mark("scenario.restarted_a_standby_that_was_sealing");
        let held = self.rng.duration(ms(60), ms(300));
        let acceptors = members(control.cluster.nodes()).filter(|(_, member)| match member {
            MasonMember::Log(embedded) => matches!(embedded.node(), paxos::Member::Acceptor(_)),
            _ => false,
        });
        for (acceptor, _) in acceptors.collect::<Vec<_>>() {
            control.hinder(acceptor, Hindrance::Held, held);
        }
        let down = self.rng.duration(ms(1), ms(4));
        control.crash(host, Loss::None, down, &mut self.rng);
        true
    }

    fn kill_who_took_a_snapshot<N: Seated>(&mut self, host: HostId, control: &mut Control<'_, N>) -> bool {
        let ms = Duration::from_millis;
        control.mark("scenario.killed_who_took_a_snapshot");
        let leaders = leaders(&control.cluster);
        let leader = self.rng.pick(&leaders).map(|(_, host)| *host);
        let victims: BTreeSet<HostId> = leader.into_iter().chain([host]).collect();
        for victim in victims {
            let down = self.rng.duration(ms(50), ms(800));
            control.crash(victim, Loss::All, down, &mut self.rng);
        }
        true
    }

    fn kill_the_sequencer<N: Seated>(&mut self, control: &mut Control<'_, N>) -> bool {
        let ms = Duration::from_millis;
        let Some(host) = sequencer(&control.cluster) else { return false };
        control.mark("scenario.killed_the_sequencer_when_a_group_retired");
        let down = self.rng.duration(ms(50), ms(2_000));
        control.crash(host, Loss::All, down, &mut self.rng);
        true
    }

    /// First some, then all, until a peer does not keep what it lacks; then it hears them again, and takes a snapshot.
    fn lose_answers<N: Seated>(
        &mut self,
        replica: NodeId,
        all_from: u64,
        missed: Option<Slot>,
        control: &mut Control<'_, N>,
    ) -> bool {
        let now = control.cluster.now();
        if now < all_from {
            return false;
        }
        let all: Vec<_> = replicas(&control.cluster).collect();
        let Some(&(_, here)) = all.iter().find(|(id, _)| *id == replica) else { return true };
        if let Some(missed) = missed {
            let skipped = here.executed() >= missed;
            if skipped {
                control.mark("scenario.lost_answers_one_by_one_and_then_all");
            }
            return skipped;
        }
        let group = here.machine().group();
        let peers = all.iter().filter(|(id, peer)| *id != replica && peer.machine().group() == group);
        // One of those that it will ask is enough.
        let retained_from = peers.filter_map(|(_, peer)| peer.retained().next().map(|(slot, _)| slot)).max();
        let missed = retained_from.filter(|from| *from > here.executed());
        if missed.is_some() {
            control.unhinder(replica);
        } else {
            control.hinder(replica, Hindrance::Lost, WAITS);
        }
        self.moment = Moment::Unanswered { replica, all_from, missed };
        false
    }
}
