//! Changes of the hosts, as servers hand them on when the cluster's log has executed one. Chains and directors follow while users append.

use super::{FuzzyScenario, Node};
use crate::moments::operator::{Answered, Operator, Terms};
use ::fuzzylog::{FuzzyDeployment, FuzzyRequest, FuzzyResponse, PartitionId};
use kernel::{HostId, RequestId, Rng, invariant};
use paxos::HostEntry;
use sim::{Cluster, Control};
use std::collections::BTreeSet;

/// The alarm by which directors are asked whether everything has followed.
pub(super) const ASK: u64 = 3;
/// Machines that may join.
const SPARES: usize = 3;
/// No more hosts than that.
const HOSTS_MAX: usize = 6;

/// When an operator changes the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// While a partition's servers are sealed.
    Seal,
    /// While a server copies.
    Copy,
}

/// What an operator has asked for so far.
pub(super) struct Changes {
    deployment: FuzzyDeployment,
    /// A director answers for all of its host.
    operator: Operator<()>,
    /// A change that waits for its moment.
    waits_for: Option<Moment>,
}

impl Changes {
    /// No change so far.
    pub(super) fn new(deployment: FuzzyDeployment, hosts: Vec<HostEntry>, switches_off: bool) -> Self {
        let (spares, hosts_max, parts) = (SPARES, HOSTS_MAX, vec![()]);
        let operator = Operator::new(Terms { hosts, spares, hosts_max, parts, token: ASK, switches_off });
        Self { deployment, operator, waits_for: None }
    }

    /// The machines that may join.
    pub(super) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.operator.spares()
    }

    /// The deployment as a host knows it when it starts: one that joined knows what its file says.
    pub(super) fn deployment_of(&self, host: HostId) -> FuzzyDeployment {
        match self.operator.file_of(host) {
            Some(known) => self.deployment.joining(known),
            None => self.deployment.clone(),
        }
    }

    /// The hosts that are wanted.
    pub(super) fn members(&self) -> Vec<HostId> {
        self.operator.members()
    }

    /// The hosts that are wanted or may be needed.
    pub(super) fn needed(&self) -> BTreeSet<HostId> {
        self.operator.needed()
    }

    /// What keeps the change from being done.
    pub(super) fn unsettled(&self) -> Option<String> {
        self.operator.unsettled()
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.operator.lost(id);
    }

    pub(super) fn wait_for(&mut self, moment: Moment) -> bool {
        let may_wait = self.operator.former().is_none() && self.waits_for.is_none();
        if may_wait {
            self.waits_for = Some(moment);
        }
        may_wait
    }

    pub(super) fn waits(&self) -> bool {
        self.waits_for.is_some()
    }

    /// Hands the list of who are wanted on to directors, and asks whether chains and directors have followed.
    pub(super) fn ask_whether_settled(&mut self, control: &mut Control<'_, Node>) {
        self.operator.ask_whether_settled(control, |host, (), members, control| {
            let call = FuzzyRequest::Follow(members.clone());
            control.request(self.deployment.director_of(host), call)
        });
    }

    /// Replaces a host, or adds or removes one; false if the moment allows none.
    fn change(&mut self, resizes: bool, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let members = self.members();
        // Clients elsewhere have a list of who directs at first: one of those stays.
        let first: Vec<HostId> = self.deployment.director_hosts().filter(|it| members.contains(it)).collect();
        let may_leave: Vec<HostId> =
            members.iter().copied().filter(|host| first.len() > 1 || !first.contains(host)).collect();
        let drawn = self.operator.draw(resizes, &may_leave, |_| true, rng);
        drawn.map(|drawn| self.operator.change(drawn, |_| true, rng, control)).is_some()
    }
}

impl FuzzyScenario {
    fn is_bootstrapped(&self) -> bool {
        self.chains.partitions().all(|partition| self.chains.latest(partition).is_bootstrapped())
    }

    /// An operator changes the hosts.
    pub(super) fn change_hosts(
        &mut self,
        resizes: bool,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) -> bool {
        self.is_bootstrapped() && self.changes.change(resizes, rng, control)
    }

    /// The same, in the moment that was waited for.
    pub(super) fn change_hosts_in_a_moment(&mut self, control: &mut Control<'_, Node>) {
        let Some(moment) = self.changes.waits_for else { return };
        let has_come = control.cluster.nodes().any(|(_, node)| match (moment, node) {
            (Moment::Seal, Node::Director(director)) => director.is_changing(),
            (Moment::Copy, Node::ChainServer(server)) => server.is_copying(),
            (_, Node::Director(_) | Node::ChainServer(_) | Node::Client(_) | Node::Log(_)) => false,
        });
        let mut rng = Rng::seeded(control.cluster.now());
        if has_come && self.change_hosts(false, &mut rng, control) {
            self.changes.waits_for = None;
            control.mark(match moment {
                Moment::Seal => "scenario.changed_the_hosts_during_a_seal",
                Moment::Copy => "scenario.changed_the_hosts_during_a_copy",
            });
        }
    }

    /// True if it was an answer to an operator's question. What has settled needs no host but the members.
    pub(super) fn on_followed(
        &mut self,
        id: RequestId,
        response: &FuzzyResponse,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let is_settled = matches!(response, FuzzyResponse::Followed { is_settled: true });
        let answered = self.changes.operator.on_answer(id, is_settled, control);
        if answered == Answered::Done {
            let stay = self.changes.members();
            for partition in self.chains.partitions() {
                let chain = self.chains.latest(partition);
                let needed = chain.nodes().find(|node| !stay.contains(&node.host()));
                invariant!(FENCE, needed.is_none(), "{needed:?} has left, and is in {chain:?}");
            }
        }
        answered != Answered::NotOurs
    }

    /// How many servers a partition's chain is to have now.
    pub(super) fn width(&self) -> usize {
        self.replicas.min(self.changes.members().len())
    }

    /// A host whose director may be needed, or may be counted among the next ones: any member, while the last known ones are to change.
    pub(super) fn may_direct(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        let directors = || {
            cluster.nodes().filter_map(|(_, node)| match node {
                Node::Director(director) => Some(director),
                Node::ChainServer(_) | Node::Client(_) | Node::Log(_) => None,
            })
        };
        let members = self.changes.members();
        let latest =
            directors().filter_map(|director| director.directors_in()).max_by_key(|(version, _)| *version);
        let is_changing = latest.is_some_and(|(_, hosts)| {
            hosts.len() < self.deployment.director_hosts().count().min(members.len())
                || hosts.iter().any(|it| !members.contains(it))
        });
        is_changing && members.contains(&host) || directors().any(|it| it.directors().contains(&host))
    }

    /// Directors change one host at a time: who comes takes everything over from those who stay.
    pub(super) fn check_directors(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.called_nodes_of(host) {
            let Node::Director(director) = node else { continue };
            let Some((version, hosts)) = director.directors_in() else { continue };
            let known = self.directors.entry(version).or_insert_with(|| hosts.to_vec());
            invariant!(AGREE, known == hosts, "{id} has directors {hosts:?} in {version}, another {known:?}");
        }
        for pair in self.directors.iter().collect::<Vec<_>>().windows(2) {
            let ((version, before), (next, after)) = (pair[0], pair[1]);
            let comers = after.iter().filter(|host| !before.contains(host)).count();
            let leavers = before.iter().filter(|host| !after.contains(host)).count();
            invariant!(
                AGREE,
                *next > version + 1 || comers <= 1 && leavers <= 1,
                "directors of {version} are {before:?}, and of {next} {after:?}"
            );
        }
    }

    /// Is there a partition whose chain has servers of hosts that leave?
    pub(super) fn has_leavers(&self, partition: PartitionId) -> bool {
        let stay = self.changes.members();
        self.chains.latest(partition).nodes().any(|node| !stay.contains(&node.host()))
    }
}
