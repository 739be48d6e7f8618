//! Changes of the hosts of a deployment over Mason: its groups follow.

use super::operator::{Answered, Operator, Terms};
use kernel::client::Response;
use kernel::{Bytes, Encode, Family, HostId, Node, RequestId, Rng};
use mason::proxy::arranging::ProxyCall;
use mason::proxy::moving::SETTLED;
use mason::{Deployment, Group};
use paxos::HostEntry;
use sim::{Cluster, Control};
use std::collections::BTreeSet;

/// Machines that may join.
const SPARES: usize = 3;
/// No more hosts than that.
const HOSTS_MAX: usize = 5;

/// What an operator has asked for so far.
pub(crate) struct Changes {
    deployment: Deployment,
    operator: Operator<Group>,
}

impl Changes {
    /// No change so far. `token` is that of the alarm by which it is asked whether one has been made.
    pub(crate) fn new(deployment: Deployment, token: u64, switches_off: bool) -> Self {
        let (hosts, parts) = (deployment.hosts().to_vec(), deployment.topology().groups().collect());
        let terms = Terms { hosts, spares: SPARES, hosts_max: HOSTS_MAX, parts, token, switches_off };
        Self { deployment, operator: Operator::new(terms) }
    }

    /// The machines that may join.
    pub(crate) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.operator.spares()
    }

    /// The deployment as a host knows it when it starts: one that joined knows what its file says.
    pub(crate) fn deployment_of(&self, host: HostId) -> Deployment {
        match self.operator.file_of(host) {
            Some(known) => self.deployment.joining(known.clone()),
            None => self.deployment.clone(),
        }
    }

    /// The hosts that are wanted.
    pub(crate) fn members(&self) -> Vec<HostId> {
        self.operator.members()
    }

    /// Every host that has ever been wanted.
    pub(crate) fn ever(&self) -> Vec<HostId> {
        self.operator.ever()
    }

    /// Every list of hosts of which a majority is needed.
    pub(crate) fn needed(&self) -> Vec<Vec<HostId>> {
        let former = self.operator.former().map(|former| former.ids().collect());
        former.into_iter().chain([self.members()]).collect()
    }

    /// True if a majority of every list is left where these are bad.
    pub(crate) fn bears(&self, is_bad: impl Fn(HostId) -> bool) -> bool {
        self.needed().iter().all(|list| list.iter().filter(|&&host| !is_bad(host)).count() > list.len() / 2)
    }

    /// True if `host` is on its way out: nothing may depend on it.
    pub(crate) fn leaves(&self, host: HostId) -> bool {
        self.operator.former().is_some() && !self.members().contains(&host)
    }

    /// What keeps the change from being done, if these are up and a learner is among them.
    pub(crate) fn unsettled(&self, core: &[HostId]) -> Option<String> {
        let before: Vec<HostId> = self.operator.former()?.ids().collect();
        let all_there = self.members().iter().all(|host| before.contains(host) || core.contains(host));
        self.operator.unsettled().filter(|_| all_there)
    }

    pub(crate) fn lost(&mut self, id: RequestId) {
        self.operator.lost(id);
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
}

/// Asking for changes.
impl Changes {
    /// Sends the hosts the list of who are wanted, each when it happens to be up, and asks whether they have followed.
    pub(crate) fn ask_whether_settled<N>(&mut self, control: &mut Control<'_, N>)
    where
        N: Node,
        N::Family: Family<Request = Bytes>,
    {
        let proxies = |host| self.deployment.topology().groups().zip(self.deployment.proxies_of(host));
        self.operator.ask_whether_settled(control, |host, group, members, control| {
            let proxy = proxies(host).find_map(|(of, proxy)| (of == group).then_some(proxy));
            let proxy = proxy.expect("every host has a proxy of every group");
            control.request(proxy, ProxyCall::Follow(members.clone()).encoded().into())
        });
    }

    /// True if it was an answer to a question of ours.
    pub(crate) fn on_answer<N: Node>(
        &mut self,
        id: RequestId,
        answer: &Response,
        control: &mut Control<'_, N>,
    ) -> bool {
        self.operator.on_answer(id, answer.0 == SETTLED, control) != Answered::NotOurs
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
        let bad_hosts: BTreeSet<HostId> = members
            .iter()
            .copied()
            .chain(self.spares())
            .filter(|&host| is_bad(host, &control.cluster))
            .collect();
        let bad: Vec<HostId> = members.iter().copied().filter(|host| bad_hosts.contains(host)).collect();
        let may_leave = if bad.is_empty() { &members } else { &bad };
        let Some(drawn) = self.operator.draw(resizes, may_leave, |host| !bad_hosts.contains(&host), rng)
        else {
            return false;
        };
        let is_sound = |host: &&HostId| Some(**host) != drawn.leaver && !bad_hosts.contains(*host);
        if members.iter().filter(is_sound).count() <= members.len() / 2 {
            return false;
        }
        // The file of the bootstrap does as long as every majority has one of those that it names.
        let bootstrap = self.deployment.hosts();
        let names_the_first =
            |next: &[HostEntry]| 2 * bootstrap.iter().filter(|host| next.contains(host)).count() > next.len();
        self.operator.change(drawn, names_the_first, rng, control);
        true
    }
}
