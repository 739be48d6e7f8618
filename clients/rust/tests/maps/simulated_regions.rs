//! A partially ordered log of two regions in memory, which can be cut from each other: colours are copied one without regard to the other,
//! each region's log in its order, and a node behind all that its session had played.

use kernel::{Bytes, Rng};
use ordinate_client::maps::{MapLog, MapPage, RegionLog};
use ordinate_client::{
    CallError, FuzzyAppended, FuzzyError, FuzzyFailure, FuzzyNode, LogCount, NodeOrigin, NumberedBy,
    SeenTime, SnapshotId,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::fuzzylog::SnapshotAcross;

/// The regions.
pub(crate) const REGIONS: [&str; 2] = ["ohio", "tokyo"];
/// Nodes of a page.
const PAGE: usize = 3;
/// The longest that a message takes, in turns of the runtime; and that a region waits for another one, or for a node.
const DELAY_MAX: usize = 6;
const WAIT: usize = 6_000;

/// How many nodes of each region's log.
type Counts = [u64; 2];

#[derive(Clone)]
struct Logged {
    body: Bytes,
    /// What comes before it of each region's log.
    past: Counts,
}

/// One colour in one region.
#[derive(Clone, Default)]
struct Chain {
    /// The region of each node, and its number.
    nodes: Vec<(usize, u64)>,
    /// How many nodes of each region's log there are.
    counts: Counts,
    /// What was to be trimmed; what the other region has not stays.
    wanted: u64,
}

impl Chain {
    fn push(&mut self, region: usize) {
        self.nodes.push((region, self.counts[region]));
        self.counts[region] += 1;
    }

    /// How many nodes of each region's log are below a position.
    fn counts(&self, below: u64) -> Counts {
        let mut counts = [0; 2];
        self.nodes.iter().take(below as usize).for_each(|it| counts[it.0] += 1);
        counts
    }

    fn has(&self, wanted: Counts) -> bool {
        self.counts.iter().zip(wanted).all(|(own, wanted)| *own >= wanted)
    }

    /// The position below which so many are; none: they are not there.
    fn below(&self, wanted: Counts) -> Option<u64> {
        let last = |region: usize| {
            let number = wanted[region].checked_sub(1);
            number.map_or(Some(0), |number| {
                self.nodes.iter().position(|it| *it == (region, number)).map(|at| at as u64 + 1)
            })
        };
        Some(last(0)?.max(last(1)?))
    }
}

#[derive(Default)]
struct Colour {
    logs: [Vec<Logged>; 2],
    chains: [Chain; 2],
}

impl Colour {
    /// The first position that a region has not trimmed.
    fn first(&self, region: usize) -> u64 {
        let (own, other) = (&self.chains[region], &self.chains[1 - region]);
        let is_copied = |(of, number): &(usize, u64)| *number < other.counts[*of];
        let copied = own.nodes.iter().take_while(|node| is_copied(node)).count() as u64;
        copied.min(own.wanted)
    }
}

struct World {
    rng: Rng,
    is_cut: bool,
    /// How fast nodes come from one region to the other: how likely in a turn.
    copies: f64,
    colours: BTreeMap<String, Colour>,
}

impl World {
    fn colour(&mut self, name: &str) -> &mut Colour {
        self.colours.entry(name.to_owned()).or_default()
    }

    /// Copies a node of some colour, if it may be placed there.
    fn copy_some(&mut self) {
        if self.is_cut || self.colours.is_empty() || !self.rng.chance(self.copies) {
            return;
        }
        let (which, to) = (self.rng.index(self.colours.len()), self.rng.index(2));
        let from = 1 - to;
        let Some(colour) = self.colours.values_mut().nth(which) else { return };
        let chain = &mut colour.chains[to];
        let number = chain.counts[from];
        if colour.logs[from].get(number as usize).is_some_and(|next| chain.has(next.past)) {
            chain.push(from);
        }
    }
}

/// A session of one region, used by somebody of one.
#[derive(Clone)]
pub(crate) struct RegionSession {
    world: Arc<Mutex<World>>,
    region: usize,
    user: usize,
    played: Arc<Mutex<BTreeMap<String, u64>>>,
}

fn timed_out() -> CallError {
    CallError::TimedOut(Duration::from_secs(1))
}

impl RegionSession {
    /// A session of the first region, of an empty log.
    pub(crate) fn seeded(seed: u64) -> Self {
        let copies = [1.0, 0.3, 0.1, 0.03][seed as usize % 4];
        let world = World { rng: Rng::seeded(seed), is_cut: false, copies, colours: BTreeMap::new() };
        Self { world: Arc::new(Mutex::new(world)), region: 0, user: 0, played: Arc::default() }
    }

    /// Another session of a region, used by somebody of this one or another one.
    pub(crate) fn session(&self, region: usize, user: usize) -> Self {
        Self { world: Arc::clone(&self.world), region, user, played: Arc::default() }
    }

    /// Cuts the regions from each other, or joins them.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.world().is_cut = is_cut;
    }

    /// Everything of a colour, as a region plays it.
    pub(crate) fn all(&self, name: &str, region: usize) -> Vec<FuzzyNode> {
        let mut world = self.world();
        let colour = world.colour(name);
        (0..colour.chains[region].nodes.len()).map(|at| node_at(colour, name, region, at)).collect()
    }

    /// How many nodes colours have lost to trims in a region, whose names begin like this; and how many trims wait there for the other one.
    pub(crate) fn trimmed(&self, name: &str, region: usize) -> (u64, usize) {
        let world = self.world();
        let all = world.colours.iter().filter(|it| it.0.starts_with(name)).map(|it| it.1);
        let waits = all.clone().filter(|it| it.first(region) < it.chains[region].wanted).count();
        (all.map(|it| it.first(region)).sum(), waits)
    }

    /// Copies until both regions have everything.
    pub(crate) fn settle(&self) {
        let is_whole = |world: &World| {
            let same = |it: &Colour| {
                it.chains.iter().all(|chain| chain.has(it.logs.each_ref().map(|log| log.len() as u64)))
            };
            world.colours.values().all(same)
        };
        while !is_whole(&self.world()) {
            self.world().copy_some();
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message on its way, while others are.
    async fn delay(&self) {
        let turns = self.world().rng.index(DELAY_MAX + 1);
        for _ in 0..turns {
            self.world().copy_some();
            tokio::task::yield_now().await;
        }
    }

    /// A question to the region.
    async fn ask(&self) -> Result<(), FuzzyError> {
        self.delay().await;
        let is_lost = self.region != self.user && self.world().is_cut;
        if is_lost { Err(FuzzyError::Unreached(timed_out())) } else { Ok(()) }
    }

    fn has_played(&self, colour: &str, next: u64) {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let known = played.entry(colour.to_owned()).or_default();
        *known = next.max(*known);
    }

    fn page(&self, name: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        let page = {
            let mut world = self.world();
            let colour = world.colour(name);
            let first = colour.first(self.region);
            if from < first {
                return Err(FuzzyError::AlreadyTrimmed { resume_from: first });
            }
            let tail = to.unwrap_or(colour.chains[self.region].nodes.len() as u64);
            let end = tail.min(from + PAGE as u64).max(from);
            let node = |at| node_at(colour, name, self.region, at as usize);
            MapPage { nodes: (from..end).map(node).collect(), next: end, tail }
        };
        self.has_played(name, page.next);
        Ok(page)
    }
}

/// A node, as it is played: what comes before it is said beyond what was said before in its log.
fn node_at(colour: &Colour, name: &str, region: usize, at: usize) -> FuzzyNode {
    let (of, number) = colour.chains[region].nodes[at];
    let logged = &colour.logs[of][number as usize];
    let other = 1 - of;
    let before = number.checked_sub(1).map_or(0, |before| colour.logs[of][before as usize].past[other]);
    let edge = LogCount { region: Bytes::from_static(REGIONS[other].as_bytes()), count: logged.past[other] };
    let edges = if logged.past[other] > before { vec![edge] } else { Vec::new() };
    let region = Bytes::from_static(REGIONS[of].as_bytes());
    let (origin, colours) = (Some(NodeOrigin { region, number, edges }), vec![name.to_owned()]);
    FuzzyNode { position: at as u64, at: SeenTime::default(), colours, body: logged.body.clone(), origin }
}

impl MapLog for RegionSession {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        self.delay().await;
        let is_elsewhere = self.region != self.user;
        {
            let mut world = self.world();
            // It may have arrived before the cut.
            if is_elsewhere && world.is_cut && world.rng.chance(0.5) {
                return Err(FuzzyError::Unknown(timed_out()));
            }
        }
        let mut positions = BTreeMap::new();
        for (name, body) in bodies {
            let played = self.played.lock().unwrap_or_else(PoisonError::into_inner).get(&name).copied();
            let mut world = self.world();
            let colour = world.colour(&name);
            let mut past = colour.chains[self.region].counts(played.unwrap_or(0));
            if let Some(last) = colour.logs[self.region].last() {
                past[1 - self.region] = past[1 - self.region].max(last.past[1 - self.region]);
            }
            let number = colour.logs[self.region].len() as u64;
            past[self.region] = number;
            colour.logs[self.region].push(Logged { body, past });
            colour.chains[self.region].push(self.region);
            positions.insert(name, colour.chains[self.region].nodes.len() as u64 - 1);
        }
        self.delay().await;
        if is_elsewhere && self.world().is_cut {
            return Err(FuzzyError::Unknown(timed_out()));
        }
        Ok(FuzzyAppended { at: SeenTime::default(), positions })
    }

    async fn append_numbered(
        &self,
        _: NumberedBy,
        _: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        Err(FuzzyError::Failed(FuzzyFailure::OtherRegion))
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        self.ask().await?;
        let tail = |name: &String| self.world().colour(name).chains[self.region].nodes.len() as u64;
        let tails = colours.iter().map(|name| (name.clone(), tail(name))).collect();
        self.ask().await?;
        Ok(SnapshotId { seen: SeenTime::default(), tails, across: None })
    }

    async fn play(&self, name: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        self.ask().await?;
        let page = self.page(name, from, to);
        self.delay().await;
        page
    }

    async fn trim(&self, name: &str, before: u64) -> Result<(), FuzzyError> {
        self.ask().await?;
        {
            let mut world = self.world();
            let chain = &mut world.colour(name).chains[self.region];
            assert!(before <= chain.nodes.len() as u64, "{name} is trimmed beyond its end");
            chain.wanted = chain.wanted.max(before);
        }
        self.ask().await
    }

    fn is_among_regions(&self) -> bool {
        true
    }

    fn region(&self) -> Option<Bytes> {
        Some(Bytes::from_static(REGIONS[self.region].as_bytes()))
    }
}

impl RegionLog for RegionSession {
    async fn play_next(&self, name: &str, from: u64, _: Duration) -> Result<MapPage, FuzzyError> {
        self.ask().await?;
        for _ in 0..WAIT {
            let is_there = self.world().colour(name).chains[self.region].nodes.len() as u64 > from;
            if is_there {
                break;
            }
            self.world().copy_some();
            tokio::task::yield_now().await;
        }
        self.page(name, from, None)
    }

    async fn named(&self, name: &str, below: u64) -> Result<SnapshotId, FuzzyError> {
        self.ask().await?;
        let counts = {
            let mut world = self.world();
            let colour = world.colour(name);
            let first = colour.first(self.region);
            if below < first {
                return Err(FuzzyError::AlreadyTrimmed { resume_from: first });
            }
            colour.chains[self.region].counts(below)
        };
        let logs = REGIONS.iter().map(|region| (*region).to_owned()).zip(counts).collect();
        let logs = [(name.to_owned(), logs)].into_iter().collect();
        let across = SnapshotAcross { cluster: 1, region: REGIONS[self.region].to_owned(), logs };
        Ok(SnapshotId { across: Some(across), ..SnapshotId::of(name, below, SeenTime::default()) })
    }

    async fn await_named(&self, snapshot: &SnapshotId, _: Duration) -> Result<SnapshotId, FuzzyError> {
        self.ask().await?;
        let across = snapshot.across.as_ref().expect("it was named");
        let mut here = SnapshotId::default();
        for (name, logs) in &across.logs {
            let counts = REGIONS.map(|region| logs[region]);
            let mut turns = 0;
            loop {
                let below = {
                    let mut world = self.world();
                    world.copy_some();
                    world.colour(name).chains[self.region].below(counts)
                };
                if let Some(below) = below {
                    here.tails.insert(name.clone(), below);
                    self.has_played(name, below);
                    break;
                }
                turns += 1;
                if turns > WAIT {
                    return Err(FuzzyError::Failed(FuzzyFailure::NotHere));
                }
                tokio::task::yield_now().await;
            }
        }
        self.ask().await?;
        Ok(here)
    }
}
