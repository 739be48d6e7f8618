//! A region that comes later, and one that goes: their lines come into the cluster files of hosts, and leave them, and the hosts are
//! started again one after the other.

use super::super::Node;
use super::RegionsScenario;
use ::fuzzylog::{FuzzyDeployment, OtherRegion, RegionId};
use kernel::{HostId, Rng};
use sim::{Control, Loss};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The alarm of the next step.
pub(super) const STEP: u64 = 1;

/// What an operator does next.
enum Step {
    /// A host is started again with a file that has these regions.
    File(HostId, Vec<RegionId>),
    /// A host is started for the first time.
    Begin(HostId),
}

/// What the files of hosts have, and what comes of them.
#[derive(Default)]
pub(super) struct Changes {
    /// It has no host at the beginning.
    comes: Option<RegionId>,
    /// It leaves the files of the others. Its own hosts go on, and nobody else has anything to do with them.
    goes: Option<RegionId>,
    steps: VecDeque<Step>,
    files: BTreeMap<HostId, Vec<RegionId>>,
    /// All that a host was ever started with.
    started_with: BTreeMap<HostId, BTreeSet<RegionId>>,
    all: Vec<OtherRegion>,
    is_healed: bool,
}

impl Changes {
    /// Of these regions the last one comes later, or one of them goes, or both, or neither.
    pub(super) fn draw(all: Vec<OtherRegion>, rng: &mut Rng) -> Self {
        let ids: Vec<RegionId> = all.iter().map(|it| it.region).collect();
        let comes = ids.last().copied().filter(|_| rng.chance(0.25));
        let goes = rng.pick(&ids).copied().filter(|_| rng.chance(0.25));
        let first: Vec<RegionId> = ids.iter().copied().filter(|id| Some(*id) != comes).collect();
        let (mut files, mut steps) = (BTreeMap::new(), VecDeque::new());
        let mut in_any_order = |of: &dyn Fn(RegionId) -> bool| {
            let chosen = all.iter().filter(|it| of(it.region)).flat_map(|it| it.hosts.iter().copied());
            let mut hosts: Vec<HostId> = chosen.collect();
            rng.shuffle(&mut hosts);
            hosts
        };
        for region in &all {
            let known = if comes == Some(region.region) { &ids } else { &first };
            files.extend(region.hosts.iter().map(|host| (*host, known.clone())));
        }
        if comes.is_some() {
            let stay = in_any_order(&|id| Some(id) != comes);
            steps.extend(stay.into_iter().map(|host| Step::File(host, ids.clone())));
            let new = in_any_order(&|id| Some(id) == comes);
            steps.extend(new.into_iter().map(Step::Begin));
        }
        if goes.is_some() {
            let last: Vec<RegionId> = ids.iter().copied().filter(|id| Some(*id) != goes).collect();
            let stay = in_any_order(&|id| Some(id) != goes);
            steps.extend(stay.into_iter().map(|host| Step::File(host, last.clone())));
        }
        Self { comes, goes, steps, files, started_with: BTreeMap::new(), all, is_healed: false }
    }

    /// True of a region whose hosts were not started yet, perhaps.
    pub(super) fn comes_later(&self, region: RegionId) -> bool {
        self.comes == Some(region)
    }

    /// The region that the others leave.
    pub(super) fn goes(&self) -> Option<RegionId> {
        self.goes
    }

    /// A region's deployment, as one of its hosts has it that is started now.
    pub(super) fn deployment_of(
        &self,
        host: HostId,
        region: RegionId,
        of: &FuzzyDeployment,
    ) -> FuzzyDeployment {
        let file = self.files.get(&host).map_or(&[][..], Vec::as_slice);
        let others = self.all.iter().filter(|it| it.region != region && file.contains(&it.region));
        let before = self.started_with.get(&host).into_iter().flatten();
        let removed = before.filter(|it| !file.contains(it)).copied().collect();
        of.clone().among(region, others.cloned().collect(), removed)
    }

    /// A host is started.
    pub(super) fn starts(&mut self, host: HostId) {
        let file = self.files.get(&host).into_iter().flatten().copied();
        self.started_with.entry(host).or_default().extend(file);
    }

    /// When the first step is, or the next one.
    pub(super) fn wait(&self, rng: &mut Rng, control: &mut Control<'_, Node>) {
        if !self.steps.is_empty() {
            let second = Duration::from_secs(1);
            control.alarm(rng.duration(second / 10, 2 * second), STEP);
        }
    }

    /// Nobody is killed any more.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
    }

    /// What an operator has still to do.
    pub(super) fn left(&self) -> usize {
        self.steps.len()
    }
}

impl RegionsScenario {
    /// An operator does the next thing.
    pub(super) fn step(&mut self, control: &mut Control<'_, Node>) {
        let mut rng = Rng::seeded(control.cluster.now());
        match self.changes.steps.pop_front() {
            // It is started again when it has served with the file that it has now.
            Some(Step::File(host, file)) if !control.cluster.is_up(host) => {
                self.changes.steps.push_front(Step::File(host, file));
            }
            Some(Step::File(host, file)) => {
                self.changes.files.insert(host, file);
                if self.changes.is_healed {
                    control.stop(host);
                    control.boot(host);
                } else {
                    let down = rng.duration(Duration::from_millis(50), Duration::from_secs(1));
                    control.crash(host, Loss::All, down, &mut rng);
                }
            }
            Some(Step::Begin(host)) => {
                control.mark("scenario.began_a_region");
                control.boot(host);
            }
            None => {}
        }
        self.changes.wait(&mut rng, control);
    }
}
