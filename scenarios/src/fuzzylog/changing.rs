//! Changes of the hosts, as servers hand them on when the cluster's log has executed one. Chains and directors follow while users append.

use super::{FuzzyScenario, Node};
use crate::moments::membership::entry;
use ::fuzzylog::{FuzzyDeployment, FuzzyRequest, FuzzyResponse, PartitionId};
use kernel::{HostId, RequestId, Rng, invariant};
use paxos::{HostEntry, Members};
use sim::{Cluster, Control};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The alarm by which directors are asked whether everything has followed.
pub(super) const ASK: u64 = 3;
const ASK_EVERY: Duration = Duration::from_millis(200);
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
    spares: Vec<HostEntry>,
    /// The hosts that were wanted last.
    members: Members,
    /// Those before, while they may be needed.
    former: Option<Members>,
    /// What the machines that joined have in their cluster files.
    files: BTreeMap<HostId, Vec<HostEntry>>,
    /// The hosts of the bootstrap.
    first: Vec<HostEntry>,
    asked: BTreeMap<RequestId, u64>,
    /// Whether a host that left is switched off at once.
    switches_off: bool,
    /// A change that waits for its moment.
    waits_for: Option<Moment>,
}

impl Changes {
    /// No change so far.
    pub(super) fn new(deployment: FuzzyDeployment, hosts: Vec<HostEntry>, switches_off: bool) -> Self {
        let count = hosts.len();
        Self {
            deployment,
            spares: (count..count + SPARES).map(entry).collect(),
            members: Members { version: 0, hosts: hosts.clone() },
            first: hosts,
            former: None,
            files: BTreeMap::new(),
            asked: BTreeMap::new(),
            switches_off,
            waits_for: None,
        }
    }

    /// The machines that may join.
    pub(super) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.spares.iter().map(|host| HostId::named(&host.name))
    }

    /// The deployment as a host knows it when it starts: one that joined knows what its file says.
    pub(super) fn deployment_of(&self, host: HostId) -> FuzzyDeployment {
        match self.files.get(&host) {
            Some(known) => self.deployment.joining(known),
            None => self.deployment.clone(),
        }
    }

    /// The hosts that are wanted.
    pub(super) fn members(&self) -> Vec<HostId> {
        self.members.ids().collect()
    }

    /// The hosts that are wanted or may be needed.
    pub(super) fn needed(&self) -> BTreeSet<HostId> {
        self.former.iter().flat_map(Members::ids).chain(self.members.ids()).collect()
    }

    /// What keeps the change from being done.
    pub(super) fn unsettled(&self) -> Option<String> {
        self.former.as_ref().map(|_| format!("members {} are not settled", self.members.version))
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    pub(super) fn wait_for(&mut self, moment: Moment) -> bool {
        let may_wait = self.former.is_none() && self.waits_for.is_none();
        if may_wait {
            self.waits_for = Some(moment);
        }
        may_wait
    }

    pub(super) fn waits(&self) -> bool {
        self.waits_for.is_some()
    }

    /// Hands the list of who are wanted on to the hosts that happen to be up, and asks whether chains and directors have followed.
    pub(super) fn ask_whether_settled(&mut self, control: &mut Control<'_, Node>) {
        if self.former.is_none() {
            return;
        }
        control.alarm(ASK_EVERY, ASK);
        for host in self.members() {
            if !control.cluster.is_up(host) {
                continue;
            }
            let call = FuzzyRequest::Follow(self.members.clone());
            let id = control.request(self.deployment.director_of(host), call);
            self.asked.insert(id, self.members.version);
        }
    }

    /// Replaces a host, or adds or removes one; false if the moment allows none.
    fn change(&mut self, resizes: bool, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let members = self.members();
        let fresh = |spare: &&HostEntry| !self.files.contains_key(&HostId::named(&spare.name));
        let spares: Vec<HostEntry> = self.spares.iter().filter(fresh).cloned().collect();
        let spare = rng.pick(&spares).cloned();
        // Clients elsewhere have a list of who directs at first: one of those stays.
        let first: Vec<HostId> = self.deployment.director_hosts().filter(|it| members.contains(it)).collect();
        let may_leave: Vec<HostId> =
            members.iter().copied().filter(|host| first.len() > 1 || !first.contains(host)).collect();
        let leaver = rng.pick(&may_leave).copied();
        let grows = resizes && members.len() < HOSTS_MAX && (members.len() <= 3 || rng.chance(0.5));
        let leaver = leaver.filter(|_| !grows);
        let spare = spare.filter(|_| grows || !resizes);
        if self.former.is_some() || (spare.is_none() && (grows || !resizes)) {
            return false;
        }
        let mut hosts = self.members.hosts.clone();
        hosts.retain(|host| Some(HostId::named(&host.name)) != leaver);
        let boots = spare.as_ref().map(|spare| HostId::named(&spare.name));
        hosts.extend(spare);
        let next = Members { version: self.members.version + 1 + rng.below(2), hosts };
        if let Some(host) = boots {
            // What an operator writes into the file of a machine that joins: who is wanted, or the file of the bootstrap.
            let listed = if rng.chance(0.5) { self.first.clone() } else { next.hosts.clone() };
            self.files.insert(host, listed);
            control.boot(host);
        }
        self.former = Some(std::mem::replace(&mut self.members, next));
        control.alarm(ASK_EVERY, ASK);
        true
    }
}

impl FuzzyScenario {
    fn is_bootstrapped(&self) -> bool {
        self.partitions().all(|partition| self.latest(partition).is_bootstrapped())
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
        let Some(version) = self.changes.asked.remove(&id) else { return false };
        let is_settled = matches!(response, FuzzyResponse::Followed { is_settled: true });
        if !is_settled || version != self.changes.members.version {
            return true;
        }
        let Some(former) = self.changes.former.take() else { return true };
        let stay = self.changes.members();
        for partition in self.partitions() {
            let chain = self.latest(partition);
            let needed = chain.nodes().find(|node| !stay.contains(&node.host()));
            invariant!(FENCE, needed.is_none(), "{needed:?} has left, and is in {chain:?}");
        }
        control.mark("scenario.changed_the_hosts");
        for host in former.ids().filter(|host| !stay.contains(host)) {
            if self.changes.switches_off {
                control.stop(host);
            }
        }
        true
    }

    /// How many servers a partition's chain is to have now.
    pub(super) fn width(&self) -> usize {
        self.replicas.min(self.changes.members().len())
    }

    /// A host whose director may be needed.
    pub(super) fn may_direct(&self, host: HostId, cluster: &Cluster<'_, Node>) -> bool {
        cluster.nodes().any(|(_, node)| matches!(node, Node::Director(it) if it.directors().contains(&host)))
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
        self.latest(partition).nodes().any(|node| !stay.contains(&node.host()))
    }
}
