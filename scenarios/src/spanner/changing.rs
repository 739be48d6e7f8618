//! Changes of the hosts, as a server asks for them when the cluster's log has executed one. Shards follow while transactions run.

use super::{Node, SpannerScenario};
use crate::moments::membership::entry;
use ::spanner::{ShardId, SpannerDeployment, placement};
use kernel::client::Response;
use kernel::{Encode as _, HostId, RequestId, Rng};
use paxos::{HostEntry, Members};
use sim::{Cluster, Control};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The alarm by which shards are asked whether they have followed.
pub(super) const ASK: u64 = 1;
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Machines that may join.
const SPARES: usize = 2;
/// No more hosts than that.
const HOSTS_MAX: usize = 6;

/// What an operator has asked for so far.
pub(super) struct Changes {
    deployment: SpannerDeployment,
    replicas: usize,
    spares: Vec<HostEntry>,
    /// The hosts that were wanted last.
    members: Members,
    /// Those before, while some shard may need them.
    former: Option<Members>,
    /// What the machines that joined have in their cluster files.
    files: BTreeMap<HostId, Vec<HostEntry>>,
    settled: BTreeSet<ShardId>,
    asked: BTreeMap<RequestId, (u64, ShardId)>,
    /// Whether a host that left is switched off at once.
    switches_off: bool,
}

impl Changes {
    /// No change so far. With `fixed` there will be none.
    pub(super) fn new(
        deployment: SpannerDeployment,
        replicas: usize,
        fixed: bool,
        switches_off: bool,
    ) -> Self {
        let count = deployment.hosts().len();
        let spares = if fixed { 0 } else { SPARES };
        Self {
            replicas,
            spares: (count..count + spares).map(entry).collect(),
            members: Members { version: 0, hosts: deployment.hosts().to_vec() },
            deployment,
            former: None,
            files: BTreeMap::new(),
            settled: BTreeSet::new(),
            asked: BTreeMap::new(),
            switches_off,
        }
    }

    /// The machines that may join.
    pub(super) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.spares.iter().map(|host| HostId::named(&host.name))
    }

    /// The deployment as a host knows it when it starts: one that joined knows what its file says.
    pub(super) fn deployment_of(&self, host: HostId) -> SpannerDeployment {
        match self.files.get(&host) {
            Some(known) => self.deployment.joining(known.clone()),
            None => self.deployment.clone(),
        }
    }

    /// The hosts that are wanted.
    pub(super) fn members(&self) -> Vec<HostId> {
        self.members.ids().collect()
    }

    /// What is under change is changed back: who leaves may be needed until then, and stays.
    pub(super) fn change_back(&mut self, control: &mut Control<'_, Node>) {
        let Some(former) = self.former.take() else { return };
        let mut hosts = self.members.hosts.clone();
        hosts.extend(former.hosts.iter().filter(|host| !self.members.hosts.contains(host)).cloned());
        let next = Members { version: self.members.version + 1, hosts };
        self.former = Some(std::mem::replace(&mut self.members, next));
        self.settled.clear();
        control.alarm(ASK_EVERY, ASK);
    }

    pub(super) fn unsettled(&self) -> Option<String> {
        let all: Vec<ShardId> = self.deployment.directory().all().collect();
        let missing: Vec<&ShardId> = all.iter().filter(|shard| !self.settled.contains(shard)).collect();
        let version = self.members.version;
        self.former.as_ref().map(|_| format!("members {version} are not settled in {missing:?}"))
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    /// Sends the hosts the list of who are wanted, each when it happens to be up, and asks whether the shards have followed.
    pub(super) fn ask_whether_settled(&mut self, control: &mut Control<'_, Node>) {
        if self.former.is_none() {
            return;
        }
        control.alarm(ASK_EVERY, ASK);
        let members = self.members.encoded();
        for host in self.members() {
            if !control.cluster.is_up(host) {
                continue;
            }
            for shard in self.deployment.directory().all() {
                let id = control.request(self.deployment.shard_on(host, shard), members.clone().into());
                self.asked.insert(id, (self.members.version, shard));
            }
        }
    }

    /// True if it was an answer to a question of ours.
    pub(super) fn on_answer(
        &mut self,
        id: RequestId,
        answer: &Response,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let Some((version, shard)) = self.asked.remove(&id) else { return false };
        if version == self.members.version && answer.0 == b"settled"[..] {
            self.settled.insert(shard);
        }
        let done = self.settled.len() == usize::from(self.deployment.directory().count());
        if let Some(former) = self.former.take_if(|_| done) {
            control.mark("scenario.changed_the_hosts");
            let stay = self.members();
            for host in former.ids().filter(|host| !stay.contains(host)) {
                if self.switches_off {
                    control.stop(host);
                }
            }
        }
        true
    }

    /// Replaces a host, or adds or removes one; false if the moment allows none.
    fn change(&mut self, resizes: bool, rng: &mut Rng, control: &mut Control<'_, Node>) -> bool {
        let members = self.members();
        let fresh = |spare: &&HostEntry| !self.files.contains_key(&HostId::named(&spare.name));
        let spares: Vec<HostEntry> = self.spares.iter().filter(fresh).cloned().collect();
        let spare = rng.pick(&spares).cloned();
        let leaver = rng.pick(&members).copied();
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
            let listed = if rng.chance(0.5) { self.deployment.hosts().to_vec() } else { next.hosts.clone() };
            self.files.insert(host, listed);
            control.boot(host);
        }
        self.former = Some(std::mem::replace(&mut self.members, next));
        self.settled.clear();
        control.alarm(ASK_EVERY, ASK);
        true
    }

    /// A random core in which every shard has a majority. While shards move, all that may be needed.
    pub(super) fn core(
        &self,
        is_bootstrapped: bool,
        cluster: &Cluster<'_, Node>,
        rng: &mut Rng,
    ) -> Vec<HostId> {
        let former = self.former.iter().flat_map(|former| former.ids());
        let core: BTreeSet<HostId> = former.chain(self.members.ids()).collect();
        let mut core: Vec<HostId> = core.into_iter().collect();
        let is_moving = self.former.is_some()
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
            let placed = placement::placed(shard, &self.members, self.replicas);
            2 * placed.iter().filter(|host| hosts.contains(host)).count() > placed.len()
        })
    }

    /// The host that is to lead a shard.
    pub(super) fn preferred(&self, shard: ShardId) -> Option<HostId> {
        placement::placed(shard, &self.members, self.replicas).first().copied()
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
