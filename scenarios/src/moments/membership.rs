//! Changes of the hosts, as a server asks for them when the cluster's log has executed one.

use kernel::client::Response;
use kernel::{Bytes, Encode, Family, HostId, Node, RequestId, Rng};
use mason::proxy::arranging::ProxyCall;
use mason::proxy::moving::SETTLED;
use mason::{Deployment, Group, Members};
use paxos::HostEntry;
use sim::{Cluster, Control};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often every group is asked whether it needs none but the new hosts.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Machines that may join.
const SPARES: usize = 3;
/// No more hosts than that.
const HOSTS_MAX: usize = 5;

/// The host of that number.
pub(crate) fn entry(number: usize) -> HostEntry {
    HostEntry { name: format!("h{number}"), address: format!("h{number}:1") }
}

/// What an operator has asked for so far.
pub(crate) struct Changes {
    deployment: Deployment,
    /// The alarm that asks.
    token: u64,
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
    /// No change so far. `token` is that of the alarm by which it is asked whether one has been made.
    pub(crate) fn new(deployment: Deployment, token: u64, switches_off: bool) -> Self {
        let count = deployment.hosts().len();
        Self {
            token,
            spares: (count..count + SPARES).map(entry).collect(),
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
    pub(crate) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.spares.iter().map(|host| HostId::named(&host.name))
    }

    /// The deployment as a host knows it when it starts: one that joined knows what its file says.
    pub(crate) fn deployment_of(&self, host: HostId) -> Deployment {
        match self.files.get(&host) {
            Some(known) => self.deployment.joining(known.clone()),
            None => self.deployment.clone(),
        }
    }

    /// The hosts that are wanted.
    pub(crate) fn members(&self) -> Vec<HostId> {
        self.members.ids().collect()
    }

    /// Every host that has ever been wanted.
    pub(crate) fn ever(&self) -> Vec<HostId> {
        let bootstrap = self.deployment.hosts().iter().map(|host| HostId::named(&host.name));
        bootstrap.chain(self.files.keys().copied()).collect()
    }

    /// Every list of hosts of which a majority is needed.
    pub(crate) fn needed(&self) -> Vec<Vec<HostId>> {
        let former = self.former.iter().map(|former| former.ids().collect());
        former.chain([self.members()]).collect()
    }

    /// True if a majority of every list is left where these are bad.
    pub(crate) fn bears(&self, is_bad: impl Fn(HostId) -> bool) -> bool {
        self.needed().iter().all(|list| list.iter().filter(|&&host| !is_bad(host)).count() > list.len() / 2)
    }

    /// True if `host` is on its way out: nothing may depend on it.
    pub(crate) fn leaves(&self, host: HostId) -> bool {
        self.former.is_some() && !self.members().contains(&host)
    }

    /// What keeps the change from being done, if these are up and a learner is among them.
    pub(crate) fn unsettled(&self, core: &[HostId]) -> Option<String> {
        let former = self.former.as_ref()?;
        let before: Vec<HostId> = former.ids().collect();
        let all_there = self.members().iter().all(|host| before.contains(host) || core.contains(host));
        all_there.then(|| format!("members {} are settled in {:?} only", self.members.version, self.settled))
    }

    pub(crate) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    /// A random core of sound members: every list keeps a majority. None if too few are sound. A bootstrap needs every host.
    pub(crate) fn core(
        &self,
        is_bootstrapped: bool,
        is_bad: impl Fn(HostId) -> bool,
        rng: &mut Rng,
    ) -> Option<Vec<HostId>> {
        let is_core = |hosts: &[HostId]| self.bears(|host| !hosts.contains(&host));
        let mut sound: Vec<HostId> = self.members().into_iter().filter(|&host| !is_bad(host)).collect();
        if !is_core(&sound) {
            return None;
        }
        while is_bootstrapped && rng.chance(0.7) {
            let mut fewer = sound.clone();
            fewer.remove(rng.index(fewer.len()));
            if !is_core(&fewer) {
                break;
            }
            sound = fewer;
        }
        Some(sound)
    }

    fn groups(&self) -> Vec<Group> {
        self.deployment.topology().groups().collect()
    }
}

/// Asking for changes.
impl Changes {
    fn change<N: Node>(
        &mut self,
        wanted: Vec<HostEntry>,
        boots: Option<HostId>,
        rng: &mut Rng,
        control: &mut Control<'_, N>,
    ) {
        let next = Members { version: self.members.version + 1 + rng.below(2), hosts: wanted };
        if let Some(host) = boots {
            // What an operator writes into the file of a machine that joins: who is wanted, or the file of the bootstrap, as long as
            // every majority has one of those that it names.
            let bootstrap = self.deployment.hosts();
            let stay = bootstrap.iter().filter(|host| next.hosts.contains(host)).count();
            let is_old = rng.chance(0.5) && 2 * stay > next.hosts.len();
            let listed = if is_old { bootstrap.to_vec() } else { next.hosts.clone() };
            self.files.insert(host, listed);
            control.boot(host);
        }
        self.former = Some(std::mem::replace(&mut self.members, next));
        self.settled.clear();
        control.alarm(ASK_EVERY, self.token);
    }

    /// Sends the hosts the list of who are wanted, each when it happens to be up, and asks whether they have followed.
    pub(crate) fn ask_whether_settled<N>(&mut self, control: &mut Control<'_, N>)
    where
        N: Node,
        N::Family: Family<Request = Bytes>,
    {
        if self.former.is_none() {
            return;
        }
        control.alarm(ASK_EVERY, self.token);
        let members = ProxyCall::Follow(self.members.clone()).encoded();
        let version = self.members.version;
        for host in self.members() {
            if !control.cluster.is_up(host) {
                continue;
            }
            for (group, proxy) in self.groups().into_iter().zip(self.deployment.proxies_of(host)) {
                let id = control.request(proxy, members.clone().into());
                self.asked.insert(id, (version, group));
            }
        }
    }

    /// True if it was an answer to a question of ours.
    pub(crate) fn on_answer<N: Node>(
        &mut self,
        id: RequestId,
        answer: &Response,
        control: &mut Control<'_, N>,
    ) -> bool {
        let Some((version, group)) = self.asked.remove(&id) else { return false };
        if version == self.members.version && answer.0 == SETTLED {
            self.settled.insert(group);
        }
        let done = self.former.is_some() && self.settled.len() == self.groups().len();
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

    /// Replaces a host, or adds or removes one; false if the moment allows none: the last change is in flight, or without the leaver no
    /// majority of those before would be sound. The bootstrap must be over.
    pub(crate) fn replace_or_resize<N: Node>(
        &mut self,
        resizes: bool,
        is_bad: impl Fn(HostId, &Cluster<'_, N>) -> bool,
        rng: &mut Rng,
        control: &mut Control<'_, N>,
    ) -> bool {
        let members = self.members();
        let mut hosts = self.members.hosts.clone();
        let bad_hosts: BTreeSet<HostId> = members
            .iter()
            .copied()
            .chain(self.spares())
            .filter(|&host| is_bad(host, &control.cluster))
            .collect();
        let fresh = |spare: &HostEntry| {
            let host = HostId::named(&spare.name);
            !self.files.contains_key(&host) && !bad_hosts.contains(&host)
        };
        let spares: Vec<HostEntry> = self.spares.iter().filter(|spare| fresh(spare)).cloned().collect();
        let spare = rng.pick(&spares).cloned();
        let bad: Vec<HostId> = members.iter().copied().filter(|host| bad_hosts.contains(host)).collect();
        let leaver = rng.pick(if bad.is_empty() { &members } else { &bad }).copied();
        let grows = resizes && members.len() < HOSTS_MAX && (members.len() <= 3 || rng.chance(0.5));
        let leaver = leaver.filter(|_| !grows);
        let spare = spare.filter(|_| grows || !resizes);
        let sound =
            members.iter().filter(|&&host| Some(host) != leaver && !bad_hosts.contains(&host)).count();
        let may_change = self.former.is_none() && sound > members.len() / 2;
        if !may_change || (spare.is_none() && (grows || !resizes)) {
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
}
