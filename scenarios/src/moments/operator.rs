//! An operator who replaces, adds and removes hosts, one change at a time. What follows (a log's groups, shards, chains) is asked until
//! it needs none but the new hosts.

use kernel::{HostId, Node, RequestId, Rng};
use paxos::{HostEntry, Members};
use sim::Control;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

/// How often everybody is asked.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The host of that number.
pub(crate) fn entry(number: usize) -> HostEntry {
    HostEntry { name: format!("h{number}"), address: format!("h{number}:1") }
}

/// What the operator has at hand.
pub(crate) struct Terms<P> {
    /// Those of the bootstrap.
    pub(crate) hosts: Vec<HostEntry>,
    /// Machines that may join.
    pub(crate) spares: usize,
    /// No more hosts than that.
    pub(crate) hosts_max: usize,
    /// What follows, each by itself.
    pub(crate) parts: Vec<P>,
    /// The alarm that asks.
    pub(crate) token: u64,
    /// Whether a host that left is switched off at once.
    pub(crate) switches_off: bool,
}

/// What has been asked for so far.
pub(crate) struct Operator<P> {
    terms: Terms<P>,
    spares: Vec<HostEntry>,
    /// The hosts that were wanted last.
    members: Members,
    /// Those before, while they may be needed.
    former: Option<Members>,
    /// What the machines that joined have in their cluster files.
    files: BTreeMap<HostId, Vec<HostEntry>>,
    settled: BTreeSet<P>,
    asked: BTreeMap<RequestId, (u64, P)>,
}

/// A change that could be made.
pub(crate) struct Drawn {
    pub(crate) leaver: Option<HostId>,
    spare: Option<HostEntry>,
}

/// What an answer was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// One to somebody else.
    NotOurs,
    /// One that ends nothing.
    Ours,
    /// The last that was missing: the change is made.
    Done,
}

impl<P: Ord + Copy + Debug> Operator<P> {
    /// No change so far.
    pub(crate) fn new(terms: Terms<P>) -> Self {
        let count = terms.hosts.len();
        Self {
            spares: (count..count + terms.spares).map(entry).collect(),
            members: Members { version: 0, hosts: terms.hosts.clone() },
            terms,
            former: None,
            files: BTreeMap::new(),
            settled: BTreeSet::new(),
            asked: BTreeMap::new(),
        }
    }

    /// The machines that may join.
    pub(crate) fn spares(&self) -> impl Iterator<Item = HostId> + '_ {
        self.spares.iter().map(|host| HostId::named(&host.name))
    }

    /// What a machine that joined has in its cluster file.
    pub(crate) fn file_of(&self, host: HostId) -> Option<&Vec<HostEntry>> {
        self.files.get(&host)
    }

    /// The hosts that are wanted.
    pub(crate) fn members(&self) -> Vec<HostId> {
        self.members.ids().collect()
    }

    /// The list of them.
    pub(crate) fn list(&self) -> &Members {
        &self.members
    }

    /// Those before, while they may be needed.
    pub(crate) fn former(&self) -> Option<&Members> {
        self.former.as_ref()
    }

    /// Every host that has ever been wanted.
    pub(crate) fn ever(&self) -> Vec<HostId> {
        let bootstrap = self.terms.hosts.iter().map(|host| HostId::named(&host.name));
        bootstrap.chain(self.files.keys().copied()).collect()
    }

    /// The hosts that are wanted or may be needed.
    pub(crate) fn needed(&self) -> BTreeSet<HostId> {
        self.former.iter().flat_map(Members::ids).chain(self.members.ids()).collect()
    }

    /// What keeps the change from being done.
    pub(crate) fn unsettled(&self) -> Option<String> {
        self.former.as_ref()?;
        let missing: Vec<&P> = self.terms.parts.iter().filter(|part| !self.settled.contains(part)).collect();
        Some(format!("members {} are not settled in {missing:?}", self.members.version))
    }

    pub(crate) fn lost(&mut self, id: RequestId) {
        self.asked.remove(&id);
    }

    /// Who comes and who goes, to replace a host, or to add or remove one; none if the moment allows none.
    pub(crate) fn draw(
        &self,
        resizes: bool,
        may_leave: &[HostId],
        may_come: impl Fn(HostId) -> bool,
        rng: &mut Rng,
    ) -> Option<Drawn> {
        let is_fresh = |spare: &&HostEntry| {
            let host = HostId::named(&spare.name);
            !self.files.contains_key(&host) && may_come(host)
        };
        let spares: Vec<HostEntry> = self.spares.iter().filter(is_fresh).cloned().collect();
        let spare = rng.pick(&spares).cloned();
        let leaver = rng.pick(may_leave).copied();
        let count = self.members.hosts.len();
        let grows = resizes && count < self.terms.hosts_max && (count <= 3 || rng.chance(0.5));
        let leaver = leaver.filter(|_| !grows);
        let spare = spare.filter(|_| grows || !resizes);
        let may_change = self.former.is_none() && (spare.is_some() || resizes && !grows);
        may_change.then_some(Drawn { leaver, spare })
    }

    /// Makes a change. The machine that joins has a file that names who are wanted, or, where that may be, those of the bootstrap.
    pub(crate) fn change<N: Node>(
        &mut self,
        Drawn { leaver, spare }: Drawn,
        names_the_first: impl FnOnce(&[HostEntry]) -> bool,
        rng: &mut Rng,
        control: &mut Control<'_, N>,
    ) {
        let mut hosts = self.members.hosts.clone();
        hosts.retain(|host| Some(HostId::named(&host.name)) != leaver);
        let boots = spare.as_ref().map(|spare| HostId::named(&spare.name));
        hosts.extend(spare);
        let next = Members { version: self.members.version + 1 + rng.below(2), hosts };
        if let Some(host) = boots {
            let is_old = rng.chance(0.5) && names_the_first(&next.hosts);
            let listed = if is_old { self.terms.hosts.clone() } else { next.hosts.clone() };
            self.files.insert(host, listed);
            control.boot(host);
        }
        self.begin(next, control);
    }

    /// What is under change is changed back: who leaves may be needed until then, and stays.
    pub(crate) fn change_back<N: Node>(&mut self, control: &mut Control<'_, N>) {
        let Some(former) = self.former.take() else { return };
        let mut hosts = self.members.hosts.clone();
        hosts.extend(former.hosts.iter().filter(|host| !self.members.hosts.contains(host)).cloned());
        self.begin(Members { version: self.members.version + 1, hosts }, control);
    }

    fn begin<N: Node>(&mut self, next: Members, control: &mut Control<'_, N>) {
        self.former = Some(std::mem::replace(&mut self.members, next));
        self.settled.clear();
        control.alarm(ASK_EVERY, self.terms.token);
    }

    /// Hands the list of who are wanted on to the hosts that happen to be up, and asks whether all have followed. `ask` asks one host of
    /// one part.
    pub(crate) fn ask_whether_settled<N: Node>(
        &mut self,
        control: &mut Control<'_, N>,
        mut ask: impl FnMut(HostId, P, &Members, &mut Control<'_, N>) -> RequestId,
    ) {
        if self.former.is_none() {
            return;
        }
        control.alarm(ASK_EVERY, self.terms.token);
        for host in self.members.ids().filter(|host| control.cluster.is_up(*host)).collect::<Vec<_>>() {
            for part in &self.terms.parts {
                let id = ask(host, *part, &self.members, control);
                self.asked.insert(id, (self.members.version, *part));
            }
        }
    }

    /// An answer, and whether it says that its part has followed.
    pub(crate) fn on_answer<N: Node>(
        &mut self,
        id: RequestId,
        is_settled: bool,
        control: &mut Control<'_, N>,
    ) -> Answered {
        let Some((version, part)) = self.asked.remove(&id) else { return Answered::NotOurs };
        if is_settled && version == self.members.version {
            self.settled.insert(part);
        }
        let done = self.settled.len() == self.terms.parts.len();
        let Some(former) = self.former.take_if(|_| done) else { return Answered::Ours };
        control.mark("scenario.changed_the_hosts");
        let stay = self.members();
        for host in former.ids().filter(|host| self.terms.switches_off && !stay.contains(host)) {
            control.stop(host);
        }
        Answered::Done
    }
}
