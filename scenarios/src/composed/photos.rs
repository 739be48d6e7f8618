//! What fences between services are for, as a plot. A commit of two shards from afar is visible at one of them, and held back at the
//! other, before its user's earliest end. One session sees it, and writes to another service; another session finds that there, and
//! looks at what is held back. Without fences it reads the state before the commit.

use super::history::{Asked, Call, Outcome};
use super::session::{Service, Session, Step};
use super::{ComposedScenario, Node, STOCK_FROM, text_of};
use crate::audit::spanner::machine_of;
use ::spanner::{Fate, SpannerDeployment, SpannerMember, SpannerSlot, TxnId};
use kernel::{Bytes, Encode as _, HostId, NodeId, RequestId};
use sim::{Cluster, Control, Hindrance};
use std::time::Duration;
use wire::txn::{Fence, KeyWrite, OneShot, ReadOnly, TxnCall, TxnLevel};

/// For how long the participant hears nobody.
const HELD_FOR: Duration = Duration::from_millis(250);
/// A plot that gets no further is given up.
const PLOTTED_FOR: Duration = Duration::from_secs(4);
/// The sessions of plots follow those of clients.
const CLIENTS_FROM: u16 = 1_000;

/// How far a plot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The commit is not visible yet.
    Committing,
    /// The first session looks at what is visible.
    Sees,
    /// It writes to the other service.
    Writes,
    /// The second session looks there.
    Finds,
    /// It looks at what is held back.
    Looks,
}

/// One commit and the sessions around it.
#[derive(Clone, Debug)]
struct Plot {
    txn: TxnId,
    service: Service,
    /// The host of the coordinator's leader, and of the participant's.
    coordinator: (NodeId, HostId),
    participant: HostId,
    visible: String,
    held_back: String,
    value: String,
    stage: Stage,
    waits_for: Option<RequestId>,
    first: u16,
    until: u64,
}

/// All plots of a run, one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Photos {
    plot: Option<Plot>,
    laid: u16,
    not_before: u64,
}

impl Plot {
    fn other(&self) -> Service {
        if self.service == Service::Bank { Service::Stock } else { Service::Bank }
    }

    fn other_key(&self) -> String {
        format!("seen{}/x", self.first)
    }

    /// Who acts now, where, at which service.
    fn acts(&self) -> (u16, HostId, Service) {
        match self.stage {
            Stage::Committing | Stage::Sees => (self.first, self.coordinator.1, self.service),
            Stage::Writes => (self.first, self.coordinator.1, self.other()),
            Stage::Finds => (self.first + 1, self.participant, self.other()),
            Stage::Looks => (self.first + 1, self.participant, self.service),
        }
    }
}

fn members<'a>(cluster: &Cluster<'a, Node>, service: Service) -> Vec<(NodeId, &'a SpannerMember)> {
    let of_service = |id: NodeId| (id.host_slot().0 < STOCK_FROM) == (service == Service::Bank);
    let all = cluster.nodes().filter(|(id, _)| of_service(*id));
    all.filter_map(|(id, node)| match node {
        Node::Txn(member) => Some((id, member.node())),
        Node::Log(_) | Node::Znodes(_) => None,
    })
    .collect()
}

/// The other key of a pair.
fn twin(key: &str) -> Option<String> {
    match key.split_at_checked(1)? {
        ("a", rest) => Some(format!("b{rest}")),
        ("b", rest) => Some(format!("a{rest}")),
        _ => None,
    }
}

impl ComposedScenario {
    /// Looks for a commit to plot around, or goes on with the one at hand.
    pub(super) fn plot(&mut self, control: &mut Control<'_, Node>) {
        let now = control.cluster.now();
        if let Some(plot) = self.photos.plot.take_if(|plot| now > plot.until) {
            self.photos.not_before = now + HELD_FOR.as_nanos() as u64;
            drop(plot);
        }
        match self.photos.plot.clone() {
            None if now >= self.photos.not_before => self.lay(control),
            Some(plot) if plot.stage == Stage::Committing && is_visible(&plot, &control.cluster) => {
                self.act(Stage::Sees, control);
            }
            None | Some(_) => {}
        }
    }

    fn lay(&mut self, control: &mut Control<'_, Node>) {
        let Some(away) = self.away else { return };
        for service in [Service::Bank, Service::Stock] {
            let members = members(&control.cluster, service);
            let deployment = if service == Service::Bank { &self.bank } else { &self.stock };
            let Some(mut plot) = find(&members, deployment, service, away) else { continue };
            plot.first = CLIENTS_FROM + 2 * self.photos.laid;
            plot.until = control.cluster.now() + PLOTTED_FOR.as_nanos() as u64;
            let held = members.iter().find_map(|(id, member)| match member {
                SpannerMember::Shard(role) if id.host() == plot.participant && role.is_leading() => {
                    let at = SpannerSlot::at(id.host_slot().0 - deployment.first())?;
                    (at == SpannerSlot::Shard(deployment.directory().shard_of(plot.held_back.as_bytes())))
                        .then_some(*id)
                }
                _ => None,
            });
            let Some(held) = held else { continue };
            control.hinder(held, Hindrance::Held, HELD_FOR);
            control.mark("scenario.held_a_decision");
            self.photos.laid += 1;
            self.photos.plot = Some(plot);
            return;
        }
    }

    /// The next step, or the fence that must come before it.
    fn act(&mut self, stage: Stage, control: &mut Control<'_, Node>) {
        let Some(mut plot) = self.photos.plot.take() else { return };
        plot.stage = stage;
        let (client, host, service) = plot.acts();
        let session: &mut Session = self.sessions.entry(client).or_default();
        let (step, incarnation) = (session.step_to(service), session.incarnation);
        let id = u64::from(client) << 32 | u64::from(self.photos.laid) << 8 | stage as u64;
        let read = |key: &str, token| {
            let keys = vec![Bytes::from(key.to_owned())];
            ReadOnly { id, token, level: TxnLevel::Rss, keys, scans: Vec::new() }
        };
        let (service, call, asked): (Service, TxnCall, Call) = match step {
            Step::Fence(fenced) => {
                control.mark("scenario.fenced_before_another_service");
                (fenced, Fence { id, token: session.token(fenced) }.into(), Call::Fence)
            }
            Step::Operation(service) => {
                let token = session.token(service);
                match stage {
                    Stage::Committing | Stage::Sees => {
                        (service, read(&plot.visible, token).into(), Call::Read)
                    }
                    Stage::Finds => (service, read(&plot.other_key(), token).into(), Call::Read),
                    Stage::Looks => (service, read(&plot.held_back, token).into(), Call::Read),
                    Stage::Writes => {
                        let (key, value) = (plot.other_key(), format!("{client}.seen"));
                        let write = KeyWrite { key: key.clone().into(), value: Some(value.clone().into()) };
                        let call = OneShot {
                            id,
                            token,
                            key: None,
                            acknowledged: 0,
                            conditions: Vec::new(),
                            writes: vec![write],
                            reads: Vec::new(),
                            otherwise: Vec::new(),
                        };
                        (service, call.into(), Call::Write(vec![(key, value)]))
                    }
                }
            }
        };
        let at = control.cluster.now();
        let request = control.request(self.gateway(service, host), call.encoded().into());
        self.history.asked(request, Asked { client, incarnation, service, call: asked, at });
        plot.waits_for = Some(request);
        self.photos.plot = Some(plot);
    }

    /// An answer to a step of the plot, if it is one.
    pub(super) fn go_on_plotting(
        &mut self,
        id: RequestId,
        outcome: &Outcome,
        control: &mut Control<'_, Node>,
    ) {
        let Some(plot) = self.photos.plot.take_if(|plot| plot.waits_for == Some(id)) else { return };
        let sees = |wanted: &str| match outcome {
            Outcome::Rows(rows) => {
                rows.iter().any(|row| row.value.as_ref().is_some_and(|value| text_of(value) == wanted))
            }
            _ => false,
        };
        let next = match (outcome, plot.stage) {
            (Outcome::Fenced, stage) => Some(stage),
            (Outcome::Rows(_), Stage::Sees) if sees(&plot.value) => Some(Stage::Writes),
            (Outcome::Committed(_), Stage::Writes) => Some(Stage::Finds),
            (Outcome::Rows(_), Stage::Finds) if sees(&format!("{}.seen", plot.first)) => Some(Stage::Looks),
            (Outcome::Rows(_), Stage::Looks) => {
                control.mark("scenario.looked_at_what_was_held_back");
                None
            }
            _ => None,
        };
        match next {
            Some(stage) => {
                self.photos.plot = Some(plot);
                self.act(stage, control);
            }
            None => self.photos.not_before = control.cluster.now() + HELD_FOR.as_nanos() as u64,
        }
    }
}

/// A transaction from afar that is prepared at one near host and coordinated at another.
fn find(
    members: &[(NodeId, &SpannerMember)],
    deployment: &SpannerDeployment,
    service: Service,
    away: HostId,
) -> Option<Plot> {
    let leader = |shard| {
        members.iter().find_map(|(id, member)| match member {
            SpannerMember::Shard(role) if role.shard() == shard && role.is_leading() => Some(*id),
            _ => None,
        })
    };
    for (_, member) in members {
        let Some((_, machine)) = machine_of(member) else { continue };
        for prepared in machine.prepared().filter(|prepared| prepared.txn.gateway.host() == away) {
            let (Some(participant), Some(coordinator)) =
                (leader(machine.shard()), leader(prepared.coordinator))
            else {
                continue;
            };
            let hosts = [participant.host(), coordinator.host()];
            let Some(write) = prepared.writes.first() else { continue };
            let (held_back, value) = (text_of(&write.key), text_of(write.value.as_ref()?));
            let Some(visible) = twin(&held_back) else { continue };
            let is_there = deployment.directory().shard_of(visible.as_bytes()) == prepared.coordinator;
            if hosts.contains(&away) || hosts[0] == hosts[1] || !is_there {
                continue;
            }
            return Some(Plot {
                txn: prepared.txn,
                service,
                coordinator: (coordinator, coordinator.host()),
                participant: participant.host(),
                value: value.replace(&held_back, &visible),
                visible,
                held_back,
                stage: Stage::Committing,
                waits_for: None,
                first: 0,
                until: 0,
            });
        }
    }
    None
}

/// True once a reader at the coordinator finds the commit: its timestamp has passed there.
fn is_visible(plot: &Plot, cluster: &Cluster<'_, Node>) -> bool {
    let members = members(cluster, plot.service);
    let has_ended = members.iter().filter(|(id, _)| id.host() == plot.coordinator.1).any(|(_, member)| {
        machine_of(member).is_some_and(|(_, machine)| {
            matches!(machine.ended(&plot.txn), Ok(Some(Fate::Committed(_))))
                && !machine.is_prepared(&plot.txn)
        })
    });
    let has_left = members.iter().any(|(id, member)| {
        let SpannerMember::Shard(role) = member else { return false };
        *id == plot.coordinator.0 && role.transactions(usize::MAX).iter().all(|it| it.txn != plot.txn)
    });
    has_ended && has_left
}
