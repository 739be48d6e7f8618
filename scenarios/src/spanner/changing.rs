//! Changes of the hosts, as a server asks for them when the cluster's log has executed one. Shards follow while transactions run.

use super::{Node, SpannerScenario};
use crate::moments::operator::{Answered, Operator, Terms};
use ::spanner::{ShardId, SpannerDeployment, placement};
use kernel::client::Response;
use kernel::{Encode as _, HostId, RequestId, Rng};
use sim::{Cluster, Control};
use std::collections::BTreeSet;

/// The alarm by which shards are asked whether they have followed.
pub(super) const ASK: u64 = 1;
/// Machines that may join.
const SPARES: usize = 2;
/// No more hosts than that.
const HOSTS_MAX: usize = 6;

/// What an operator has asked for so far.
pub(super) struct Changes {
    deployment: SpannerDeployment,
    replicas: usize,
    operator: Operator<ShardId>,
}

impl Changes {
    /// No change so far. With `fixed` there will be none.
    pub(super) fn new(
        deployment: SpannerDeployment,
        replicas: usize,
        fixed: bool,
        switches_off: bool,
    ) -> Self {
        let spares = if fixed { 0 } else { SPARES };
        let (hosts, parts) = (deployment.hosts().to_vec(), deployment.directory().all().collect());
        let terms = Terms { hosts, spares, hosts_max: HOSTS_MAX, parts, token: ASK, switches_off };
        Self { deployment, replicas, operator: Operator::new(terms) }
    }

    /// The machines that may join.
    pub(super) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.operator.spares()
    }

    /// The deployment as a host knows it when it starts: one that joined knows what its file says.
    pub(super) fn deployment_of(&self, host: HostId) -> SpannerDeployment {
        match self.operator.file_of(host) {
            Some(known) => self.deployment.joining(known.clone()),
            None => self.deployment.clone(),
        }
    }

    /// What is under change is changed back.
    pub(super) fn change_back(&mut self, control: &mut Control<'_, Node>) {
        self.operator.change_back(control);
    }

    pub(super) fn unsettled(&self) -> Option<String> {
        self.operator.unsettled()
    }

    /// The hosts that are wanted or may be needed.
    pub(super) fn needed(&self) -> BTreeSet<HostId> {
        self.operator.needed()
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.operator.lost(id);
    }

    /// Sends the hosts the list of who are wanted, and asks whether the shards have followed.
    pub(super) fn ask_whether_settled(&mut self, control: &mut Control<'_, Node>) {
        self.operator.ask_whether_settled(control, |host, shard, members, control| {
            control.request(self.deployment.shard_on(host, shard), members.encoded().into())
        });
    }

    /// True if it was an answer to a question of ours.
    pub(super) fn on_answer(
        &mut self,
        id: RequestId,
        answer: &Response,
        control: &mut Control<'_, Node>,
    ) -> bool {
        self.operator.on_answer(id, answer.0 == b"settled"[..], control) != Answered::NotOurs
    }

    /// Replaces a host, or adds or removes one; false if the moment allows none.
    fn change(&mut self, resizes: bool, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let drawn = self.operator.draw(resizes, &self.operator.members(), |_| true, rng);
        drawn.map(|drawn| self.operator.change(drawn, |_| true, rng, control)).is_some()
    }

    /// A random core in which every shard has a majority. While shards move, all that may be needed.
    pub(super) fn core(
        &self,
        is_bootstrapped: bool,
        cluster: &Cluster<'_, Node>,
        rng: &mut Rng,
    ) -> Vec<HostId> {
        let mut core: Vec<HostId> = self.needed().into_iter().collect();
        let is_moving = self.operator.former().is_some()
            || cluster.nodes().any(|(_, node)| match node {
                Node::Shard(role) if role.is_leading() => !role.placement().is_settled,
                Node::Shard(_) | Node::Gateway(_) | Node::Log(_) => false,
            });
        let leads =
            cluster.nodes().filter(|(_, node)| matches!(node, Node::Shard(role) if role.is_leading()));
        let leads = leads.count() >= usize::from(self.deployment.directory().count());
        while is_bootstrapped && !is_moving && leads && rng.chance(0.5) {
            let mut fewer = core.clone();
            fewer.remove(rng.index(fewer.len()));
            if !self.bears(&fewer) {
                break;
            }
            core = fewer;
        }
        core
    }

    /// True if every shard has a majority of its replicas on these hosts.
    fn bears(&self, hosts: &[HostId]) -> bool {
        self.deployment.directory().all().all(|shard| {
            let placed = placement::placed(shard, self.operator.list(), self.replicas);
            2 * placed.iter().filter(|host| hosts.contains(host)).count() > placed.len()
        })
    }

    /// The host that is to lead a shard.
    pub(super) fn preferred(&self, shard: ShardId) -> Option<HostId> {
        placement::placed(shard, self.operator.list(), self.replicas).first().copied()
    }
}

impl SpannerScenario {
    /// An operator changes the hosts.
    pub(super) fn change_hosts(
        &mut self,
        resizes: bool,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) -> bool {
        self.is_bootstrapped() && self.changes.change(resizes, rng, control)
    }
}
