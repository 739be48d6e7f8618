//! Plots of early readers. A commit of two shards is visible at one of them, or its user is answered, while the decision is held back at
//! the other. Who has seen it, who comes behind a fence of who has seen it, and who comes behind the user's answer must find it at the
//! other shard, too: t_min, the wait of a fence, and the wait for the earliest end see to that.
//!
//! In half of these seeds it is also the participant that shows a commit first: its clock is ahead, and its coordinator's behind.

use super::workload::{self, Planned};
use super::{Node, SpannerScenario};
use crate::audit::spanner::machine_of;
use ::spanner::{Fate, ShardId, TxnId};
use kernel::{Bytes, HostId, NodeId, RequestId, Rng};
use sim::{Blow, Cluster, Control, Hindrance, HostIndex};
use std::time::Duration;
use wire::txn::{Fence, KeyWrite, ReadOnly, Timestamp, TxnCall, TxnLevel, TxnReply};

/// For how long the participant hears nobody, at most.
const HELD_FOR: Duration = Duration::from_millis(500);
/// A plot that gets no further is given up.
const PLOTTED_FOR: Duration = Duration::from_secs(3);
/// The sessions of plots follow those of clients.
const CLIENTS_FROM: u16 = 1_000;
/// Who writes from afar for a plot, so often.
const WRITERS_FROM: u16 = 40_000;
const WRITES_EVERY: Duration = Duration::from_millis(300);

/// What the early reader comes behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// What it has seen itself.
    OwnRead,
    /// What it has seen itself at the participant. The coordinator has decided that, and its timestamp has not passed there.
    OwnReadFirst,
    /// A fence of somebody who has seen it.
    Fence,
    /// The answer to the commit.
    Answer,
}

/// Who waits for the answer has the least time left.
const WAYS: [Behind; 4] = [Behind::Answer, Behind::OwnRead, Behind::Answer, Behind::Fence];

impl Behind {
    fn mark(self) -> &'static str {
        match self {
            Self::OwnRead => "scenario.read_what_is_held_back_behind_an_own_read",
            Self::OwnReadFirst => "scenario.read_at_a_coordinator_behind_an_own_read",
            Self::Fence => "scenario.read_what_is_held_back_behind_a_fence",
            Self::Answer => "scenario.read_what_is_held_back_behind_an_answer",
        }
    }
}

/// How far a plot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The commit is not visible yet, or not answered.
    Committing,
    /// Somebody looks at what is visible.
    Sees,
    /// It runs a fence.
    Fences,
    /// The early reader looks at what is held back.
    Looks,
}

/// One commit and its early reader.
#[derive(Clone, Debug)]
struct Plot {
    txn: TxnId,
    behind: Behind,
    /// The role that leads the coordinator, and the one that leads the participant.
    coordinator: NodeId,
    participant: NodeId,
    visible: Bytes,
    held_back: KeyWrite,
    stage: Stage,
    waits_for: Option<RequestId>,
    client: u16,
    until: u64,
}

impl Plot {
    /// The leader where it is visible first.
    fn shown_at(&self) -> NodeId {
        if self.behind == Behind::OwnReadFirst { self.participant } else { self.coordinator }
    }
}

/// All plots of a run, one after another.
pub(super) struct EarlyReaders {
    rng: Rng,
    /// The host that is far from the others: who writes from there learns late that others see it already.
    away: Option<HostId>,
    plot: Option<Plot>,
    /// Two of three plots are about a commit that its participant shows first.
    participants_first: bool,
    /// Which of the ways is the first.
    first: u64,
    laid: u16,
    not_before: u64,
    /// When somebody writes from afar next, and how many have.
    writes_at: u64,
    written: u16,
}

impl EarlyReaders {
    pub(super) fn new(away: Option<HostId>, rng: &mut Rng) -> Self {
        let mut rng = rng.fork();
        let first = rng.below(WAYS.len() as u64);
        let participants_first = false;
        let (not_before, writes_at) = (0, 0);
        Self { rng, away, plot: None, participants_first, first, laid: 0, not_before, writes_at, written: 0 }
    }

    /// How far clocks may be off. Where they are much worse than links, an earliest end has passed when its commit has.
    pub(super) fn clock_error(&self) -> (Duration, Duration) {
        let (least, most) = if self.participants_first { (5, 20) } else { (1, 10) };
        (Duration::from_millis(least), Duration::from_millis(most))
    }

    pub(super) fn with_participants_first(self, participants_first: bool) -> Self {
        Self { participants_first, ..self }
    }

    fn give_up(&mut self, control: &mut Control<'_, Node>) {
        if let Some(plot) = self.plot.take() {
            control.unhinder(plot.participant);
            let pause = self.rng.duration(Duration::from_millis(50), Duration::from_secs(1));
            self.not_before = control.cluster.now() + pause.as_nanos() as u64;
        }
    }
}

fn leader(shard: ShardId, cluster: &Cluster<'_, Node>) -> Option<NodeId> {
    let leads = |node: &Node| matches!(node, Node::Shard(role) if role.shard() == shard && role.is_leading());
    cluster.nodes().find(|(_, node)| leads(node)).map(|(id, _)| id)
}

/// A transaction that is prepared at one host and coordinated at another, which has not decided: with a key that it writes at each.
fn find(away: Option<HostId>, behind: Behind, cluster: &Cluster<'_, Node>) -> Option<Plot> {
    for (_, machine) in cluster.nodes().filter_map(|(_, node)| machine_of(node)) {
        for prepared in machine.prepared() {
            let (txn, from) = (prepared.txn, prepared.txn.gateway.host());
            let Some(held_back) = prepared.writes.first() else { continue };
            let (Some(participant), Some(coordinator)) =
                (leader(machine.shard(), cluster), leader(prepared.coordinator, cluster))
            else {
                continue;
            };
            let Some(Node::Shard(role)) = cluster.node(coordinator) else { continue };
            let known = role.transactions(usize::MAX).into_iter().find(|it| it.txn == txn);
            let Some(visible) = known.and_then(|it| it.writes.first().cloned()) else { continue };
            let is_from_afar = away.is_none_or(|away| from == away && coordinator.host() != away);
            if participant.host() == coordinator.host() || !is_from_afar || participant.host() == from {
                continue;
            }
            return Some(Plot {
                txn,
                behind,
                coordinator,
                participant,
                visible,
                held_back: held_back.clone(),
                stage: Stage::Committing,
                waits_for: None,
                client: 0,
                until: 0,
            });
        }
    }
    None
}

/// True once a reader at a shard's leader finds the commit: its timestamp has passed there.
fn is_visible(txn: &TxnId, at: NodeId, cluster: &Cluster<'_, Node>) -> bool {
    let Some(Node::Shard(role)) = cluster.node(at) else { return false };
    let has_committed =
        cluster.nodes_of(at.host()).filter_map(|(_, node)| machine_of(node)).any(|(_, machine)| {
            machine.shard() == role.shard()
                && matches!(machine.ended(txn), Ok(Some(Fate::Committed(_))))
                && !machine.is_prepared(txn)
        });
    has_committed && stage_at(txn, at, cluster).is_none()
}

/// How far a transaction is at a shard's leader, and its timestamp there; none if it is not in progress.
fn stage_at(
    txn: &TxnId,
    at: NodeId,
    cluster: &Cluster<'_, Node>,
) -> Option<(&'static str, Option<Timestamp>)> {
    let Some(Node::Shard(role)) = cluster.node(at) else { return None };
    let found = role.transactions(usize::MAX).into_iter().find(|it| it.txn == *txn);
    found.map(|it| (it.stage, it.t_p))
}

/// The clock of the participant's host is as far ahead as it may be, and that of its coordinator's as far behind.
fn part_clocks(plot: &Plot, control: &mut Control<'_, Node>) {
    for (role, millionths) in [(plot.participant, 1_000_000), (plot.coordinator, -1_000_000)] {
        let index = control.cluster.hosts().position(|host| host == role.host());
        if let Some(host) = index.and_then(|index| HostIndex::try_from(index).ok()) {
            control.inflict(Blow::ClockJump { host, millionths }, Duration::ZERO);
        }
    }
}

impl SpannerScenario {
    /// Looks for a commit to plot around, or goes on with the one at hand.
    pub(super) fn send_early_readers(&mut self, control: &mut Control<'_, Node>) {
        let now = control.cluster.now();
        let Some(early) = &mut self.early else { return };
        match &early.plot {
            Some(plot) if now > plot.until => early.give_up(control),
            None if now >= early.not_before => {
                let mut behind = WAYS[(early.first as usize + usize::from(early.laid)) % WAYS.len()];
                if early.participants_first && early.laid % 3 < 2 {
                    behind = Behind::OwnReadFirst;
                }
                let Some(mut plot) = find(early.away, behind, &control.cluster) else {
                    return self.write_from_afar(control);
                };
                if behind != Behind::OwnReadFirst {
                    control.hinder(plot.participant, Hindrance::Held, HELD_FOR);
                    control.mark("scenario.held_a_decision");
                }
                plot.client = CLIENTS_FROM + 2 * early.laid;
                plot.until = now + PLOTTED_FOR.as_nanos() as u64;
                early.laid += 1;
                if behind == Behind::OwnReadFirst {
                    part_clocks(&plot, control);
                }
                early.plot = Some(plot);
                if behind == Behind::OwnReadFirst {
                    // A read that waits for the horizon comes too late.
                    self.act_early(Stage::Committing, control);
                }
            }
            Some(plot)
                if plot.stage == Stage::Committing
                    && plot.behind != Behind::Answer
                    && is_visible(&plot.txn, plot.shown_at(), &control.cluster) =>
            {
                self.act_early(Stage::Sees, control);
            }
            None | Some(_) => {}
        }
    }

    /// While there is no commit to plot around, somebody writes from afar to two shards that other hosts lead.
    fn write_from_afar(&mut self, control: &mut Control<'_, Node>) {
        let now = control.cluster.now();
        let Some(early) = &mut self.early else { return };
        let Some(away) = early.away.filter(|_| now >= early.writes_at) else { return };
        early.writes_at = now + WRITES_EVERY.as_nanos() as u64;
        let directory = self.deployment.directory();
        let led = directory.all().filter_map(|shard| leader(shard, &control.cluster).map(|at| (shard, at)));
        let led: Vec<(ShardId, HostId)> =
            led.map(|(shard, at)| (shard, at.host())).filter(|(_, host)| *host != away).collect();
        let both = led.iter().find_map(|one| {
            let other = led.iter().find(|other| other.1 != one.1)?;
            Some([one.0, other.0])
        });
        let Some(both) = both else { return };
        let client = WRITERS_FROM + early.written;
        early.written += 1;
        let keys = workload::keys_of(&both, |key| directory.shard_of(key));
        let planned = workload::writes_each(u64::from(client) << 32, &keys, &format!("{client}.afar"));
        let node = self.deployment.gateway_of(away);
        let id = self.ask(node, &planned.call, control);
        self.history.asked(id, (client, 0), node, &planned, now);
    }

    fn act_early(&mut self, stage: Stage, control: &mut Control<'_, Node>) {
        let Some(mut plot) = self.early.as_mut().and_then(|early| early.plot.take()) else { return };
        plot.stage = stage;
        // Behind a fence, or an answer, anybody finds it.
        let is_another = match plot.behind {
            Behind::OwnRead => false,
            Behind::OwnReadFirst => stage == Stage::Committing,
            Behind::Fence | Behind::Answer => stage == Stage::Looks,
        };
        let client = plot.client + u16::from(is_another);
        let (token, incarnation) = {
            let session = self.sessions.of(client);
            (session.token, session.incarnation)
        };
        let id = u64::from(client) << 32 | stage as u64;
        let read = |key: &Bytes| -> TxnCall {
            ReadOnly { id, token, level: TxnLevel::Rss, keys: vec![key.clone()], scans: Vec::new() }.into()
        };
        let (at, call) = match stage {
            Stage::Sees if plot.behind == Behind::OwnReadFirst => {
                (plot.participant, read(&plot.held_back.key))
            }
            Stage::Looks if plot.behind == Behind::OwnReadFirst => (plot.participant, read(&plot.visible)),
            Stage::Committing | Stage::Sees => (plot.coordinator, read(&plot.visible)),
            Stage::Fences => (plot.coordinator, Fence { id, token }.into()),
            Stage::Looks => (plot.participant, read(&plot.held_back.key)),
        };
        // The session has seen the commit by this timestamp, and its coordinator does not show it.
        let is_not_shown =
            stage_at(&plot.txn, plot.coordinator, &control.cluster).map(|(_, at)| at) == Some(Some(token));
        if stage == Stage::Looks && (plot.behind != Behind::OwnReadFirst || is_not_shown) {
            control.mark(plot.behind.mark());
        }
        let node = self.deployment.gateway_of(at.host());
        let planned = Planned { call, interactive: None };
        let request = self.ask(node, &planned.call, control);
        self.history.asked(request, (client, incarnation), node, &planned, control.cluster.now());
        plot.waits_for = Some(request).filter(|_| stage != Stage::Committing);
        if let Some(early) = &mut self.early {
            early.plot = Some(plot);
        }
    }

    /// An answer to a step of the plot, or to the commit that it is about, if it is one.
    pub(super) fn go_on_early(&mut self, id: RequestId, reply: &TxnReply, control: &mut Control<'_, Node>) {
        let Some(early) = &mut self.early else { return };
        let Some(plot) = &early.plot else { return };
        let next = match (plot.stage, reply) {
            (Stage::Committing, TxnReply::Committed(_)) if plot.behind == Behind::Answer => {
                if !self.history.writes(id, &plot.held_back) {
                    return;
                }
                Some(Stage::Looks)
            }
            _ if plot.waits_for != Some(id) => return,
            (Stage::Sees, TxnReply::ReadRows(_)) if plot.behind == Behind::Fence => Some(Stage::Fences),
            (Stage::Sees, TxnReply::ReadRows(_)) | (Stage::Fences, TxnReply::Fenced(_)) => Some(Stage::Looks),
            _ => None,
        };
        match next {
            Some(stage) => self.act_early(stage, control),
            None => early.give_up(control),
        }
    }
}
