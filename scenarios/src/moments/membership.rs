//! Changes of the hosts, as a server asks for them when the cluster's log has executed one.

use super::{MasonScenario, Node};
use ::mason::proxy::arranging::Call;
use ::mason::proxy::moving::SETTLED;
use ::mason::{Deployment, Group, Members, Response};
use kernel::{Encode, HostId, RequestId, Rng};
use paxos::HostEntry;
use sim::{Cluster, Control};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often every group is asked whether it needs none but the new hosts.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// The alarm that asks.
pub(super) const ASK: u64 = 1;

/// What an operator has asked for so far.
pub(super) struct Changes {
    spares: Vec<HostEntry>,
    /// The hosts that were wanted last.
    members: Members,
    /// Those before, while some group may need them.
    former: Option<Members>,
    /// What the machines that joined have in their cluster files.
    files: BTreeMap<HostId, Vec<HostEntry>>,
    settled: BTreeSet<Group>,
    asked: BTreeMap<RequestId, (u64, Group)>,
    /// Whether a host that left is switched off at once.
    switches_off: bool,
}

impl Changes {
    pub(super) fn new(hosts: Vec<HostEntry>, spares: Vec<HostEntry>, switches_off: bool) -> Self {
        Self {
            spares,
            members: Members { version: 0, hosts },
            former: None,
            files: BTreeMap::new(),
            settled: BTreeSet::new(),
            asked: BTreeMap::new(),
            switches_off,
        }
    }

    pub(super) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.spares.iter().map(|host| HostId::named(&host.name))
    }

    /// What a machine that joined knows; none for one of the birth.
    pub(super) fn file(&self, host: HostId) -> Option<&Vec<HostEntry>> {
        self.files.get(&host)
    }

    /// The hosts that are wanted.
    pub(super) fn members(&self) -> Vec<HostId> {
        self.members.ids().collect()
    }

    /// Every list of hosts of which a majority is needed.
    pub(super) fn needed(&self) -> Vec<Vec<HostId>> {
        let former = self.former.iter().map(|former| former.ids().collect());
        former.chain([self.members()]).collect()
    }

    /// True if `host` is on its way out: nothing may depend on it.
    pub(super) fn leaves(&self, host: HostId) -> bool {
        self.former.is_some() && !self.members().contains(&host)
    }

    /// What keeps the change from being done, if these are up and a newcomer is among them.
    pub(super) fn unsettled(&self, core: &[HostId]) -> Option<String> {
        let former = self.former.as_ref()?;
        let before: Vec<HostId> = former.ids().collect();
        let all_there = self.members().iter().all(|host| before.contains(host) || core.contains(host));
        all_there.then(|| format!("members {} are settled in {:?} only", self.members.version, self.settled))
    }

    pub(super) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }
}

impl MasonScenario {
    fn groups(&self) -> Vec<Group> {
        self.deployment.topology().groups().collect()
    }

    fn change(
        &mut self,
        wanted: Vec<HostEntry>,
        boots: Option<HostId>,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) {
        let changes = &mut self.changes;
        let next = Members { version: changes.members.version + 1 + rng.below(2), hosts: wanted };
        if let Some(host) = boots {
            // What an operator writes into the file of a machine that joins: who is wanted, or the file of the birth, as long as
            // every majority has one of those that it names.
            let birth = self.deployment.hosts();
            let stay = birth.iter().filter(|host| next.hosts.contains(host)).count();
            let is_old = rng.chance(0.5) && 2 * stay > next.hosts.len();
            let listed = if is_old { birth.to_vec() } else { next.hosts.clone() };
            changes.files.insert(host, listed);
            control.boot(host);
        }
        changes.former = Some(std::mem::replace(&mut changes.members, next));
        changes.settled.clear();
        control.alarm(ASK_EVERY, ASK);
    }

    /// Tells the hosts who are wanted, each when it happens to be up, and asks whether they have followed.
    pub(super) fn ask_whether_settled(&mut self, control: &mut Control<'_, Node>) {
        if self.changes.former.is_none() {
            return;
        }
        control.alarm(ASK_EVERY, ASK);
        let members = Call::Follow(self.changes.members.clone()).encoded();
        let version = self.changes.members.version;
        for host in self.changes.members() {
            if !control.cluster.is_up(host) {
                continue;
            }
            for (group, proxy) in self.groups().into_iter().zip(self.deployment.proxies_of(host)) {
                let id = control.request(proxy, members.clone().into());
                self.changes.asked.insert(id, (version, group));
            }
        }
    }

    /// True if it was an answer to a question of ours.
    pub(super) fn on_settled(
        &mut self,
        id: RequestId,
        answer: &Response,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let Some((version, group)) = self.changes.asked.remove(&id) else { return false };
        if version == self.changes.members.version && answer.0 == SETTLED {
            self.changes.settled.insert(group);
        }
        let done = self.changes.former.is_some() && self.changes.settled.len() == self.groups().len();
        if let Some(former) = self.changes.former.take_if(|_| done) {
            control.mark("scenario.changed_the_hosts");
            let stay = self.changes.members();
            for host in former.ids().filter(|host| !stay.contains(host)) {
                if self.changes.switches_off {
                    control.stop(host);
                }
            }
        }
        true
    }

    /// True if the hosts may be changed now, with `leaver` gone: a majority of those before is sound without it.
    fn may_change(&self, leaver: Option<HostId>, cluster: &Cluster<'_, Node>) -> bool {
        let members = self.changes.members();
        let sound =
            members.iter().filter(|&&host| Some(host) != leaver && !self.is_bad(host, cluster)).count();
        self.changes.former.is_none() && self.is_born() && sound > members.len() / 2
    }

    pub(super) fn replace_or_resize(
        &mut self,
        resizes: bool,
        rng: &mut Rng,
        control: &mut Control<'_, Node>,
    ) -> bool {
        let members = self.changes.members();
        let mut hosts = self.changes.members.hosts.clone();
        let fresh = |spare: &HostEntry| {
            let host = HostId::named(&spare.name);
            !self.changes.files.contains_key(&host) && !self.is_bad(host, &control.cluster)
        };
        let spares: Vec<HostEntry> =
            self.changes.spares.iter().filter(|spare| fresh(spare)).cloned().collect();
        let spare = rng.pick(&spares).cloned();
        let bad: Vec<HostId> =
            members.iter().copied().filter(|&host| self.is_bad(host, &control.cluster)).collect();
        let leaver = rng.pick(if bad.is_empty() { &members } else { &bad }).copied();
        let grows = resizes && members.len() < 5 && (members.len() <= 3 || rng.chance(0.5));
        let leaver = leaver.filter(|_| !grows);
        let spare = spare.filter(|_| grows || !resizes);
        if !self.may_change(leaver, &control.cluster) || (spare.is_none() && (grows || !resizes)) {
            return false;
        }
        if let Some(leaver) = leaver {
            hosts.retain(|host| HostId::named(&host.name) != leaver);
        }
        let boots = spare.as_ref().map(|spare| HostId::named(&spare.name));
        hosts.extend(spare);
        self.change(hosts, boots, rng, control);
        true
    }

    /// Where calls come from: hosts of the birth, and those that join.
    pub(super) fn gateways(&self) -> Vec<kernel::NodeId> {
        self.hosts.iter().copied().chain(self.changes.spares()).map(Deployment::gateway).collect()
    }
}
