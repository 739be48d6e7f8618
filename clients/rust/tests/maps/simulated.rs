//! A partially ordered log in memory that promises what the real one does, and no more: an append of several colours is in one of them
//! before it is in the next, unless somebody looks who has seen it.

use kernel::{Bytes, Rng};
use ordinate_client::maps::{MapLog, MapPage};
use ordinate_client::{FuzzyAppended, FuzzyError, FuzzyFailure, FuzzyNode, NumberedBy, SeenTime, SnapshotId};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nodes of a page.
const PAGE: usize = 3;
/// The longest that a message takes, in turns of the runtime.
const DELAY_MAX: usize = 6;

#[derive(Default)]
struct Colour {
    nodes: Vec<FuzzyNode>,
    /// Nodes that are ordered and not to be seen by everybody yet.
    hidden: usize,
    /// The position of the first node that was not trimmed.
    first: u64,
}

impl Colour {
    fn shown(&self) -> usize {
        self.nodes.len() - self.hidden
    }
}

/// What was appended under a number, and where it is.
type Numbered = (Vec<(String, Bytes)>, FuzzyAppended);

struct World {
    rng: Rng,
    clock: u64,
    /// By clients and their numbers.
    numbered: BTreeMap<(u64, u64), Numbered>,
    colours: BTreeMap<String, Colour>,
}

/// A session of it.
#[derive(Clone)]
pub(crate) struct SimulatedLog {
    world: Arc<Mutex<World>>,
    seen: Arc<Mutex<Cell<u64>>>,
}

impl SimulatedLog {
    /// An empty one.
    pub(crate) fn seeded(seed: u64) -> Self {
        let world =
            World { rng: Rng::seeded(seed), clock: 0, numbered: BTreeMap::new(), colours: BTreeMap::new() };
        Self { world: Arc::new(Mutex::new(world)), seen: Arc::default() }
    }

    /// Another session, which has seen nothing.
    pub(crate) fn session(&self) -> Self {
        Self { world: Arc::clone(&self.world), seen: Arc::default() }
    }

    /// How many nodes colours have lost to trims, whose names begin like this.
    pub(crate) fn trimmed(&self, name: &str) -> u64 {
        let world = self.world();
        world.colours.iter().filter(|it| it.0.starts_with(name)).map(|it| it.1.first).sum()
    }

    /// How many nodes a colour has lost to trims.
    pub(crate) fn trimmed_of(&self, name: &str) -> u64 {
        self.world().colours.get(name).map_or(0, |colour| colour.first)
    }

    /// All nodes that a colour has ever had.
    pub(crate) fn all(&self, name: &str) -> Vec<FuzzyNode> {
        self.world().colours.get(name).map(|colour| colour.nodes.clone()).unwrap_or_default()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, clock: u64) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.set(seen.get().max(clock));
    }

    fn seen(&self) -> u64 {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get()
    }

    /// A message on its way.
    async fn delay(&self) {
        let turns = self.world().rng.index(DELAY_MAX + 1);
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// What is hidden is shown to one who has seen it, or something later.
    fn show(colour: &mut Colour, seen: u64) {
        let later = colour.nodes.iter().rev().take(colour.hidden).take_while(|node| node.at.clock > seen);
        colour.hidden = later.count();
    }
}

fn at(clock: u64) -> SeenTime {
    SeenTime { clock, partition: 0, ahead: 0 }
}

impl SimulatedLog {
    async fn append_once(
        &self,
        by: Option<NumberedBy>,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.delay().await;
        let names: Vec<String> = bodies.iter().map(|(name, _)| name.clone()).collect();
        let past = by.and_then(|by| self.world().numbered.get(&(by.client, by.number)).cloned());
        if let Some((held, appended)) = past {
            if held != bodies {
                return Err(FuzzyError::Failed(FuzzyFailure::NumberUsed));
            }
            self.see(appended.at.clock);
            return Ok(appended);
        }
        let (clock, positions) = {
            let mut world = self.world();
            world.clock += 1;
            let clock = world.clock;
            let (mut positions, held) = (BTreeMap::new(), bodies.clone());
            for (name, body) in bodies {
                let colour = world.colours.entry(name.clone()).or_default();
                let position = colour.nodes.len() as u64;
                colour.nodes.push(FuzzyNode {
                    position,
                    at: at(clock),
                    colours: names.clone(),
                    body,
                    origin: None,
                });
                colour.hidden += 1;
                positions.insert(name, position);
            }
            if let Some(by) = by {
                let appended = FuzzyAppended { at: at(clock), positions: positions.clone() };
                world.numbered.insert((by.client, by.number), (held, appended));
            }
            (clock, positions)
        };
        // It arrives in one colour after the other.
        let mut ahead = names.clone();
        while !ahead.is_empty() {
            self.delay().await;
            let mut world = self.world();
            let which = world.rng.index(ahead.len());
            let name = ahead.swap_remove(which);
            if let Some(colour) = world.colours.get_mut(&name) {
                Self::show(colour, clock);
            }
        }
        self.delay().await;
        self.see(clock);
        Ok(FuzzyAppended { at: at(clock), positions })
    }
}

impl MapLog for SimulatedLog {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        self.append_once(None, bodies).await
    }

    async fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.append_once(Some(by), bodies).await
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        self.delay().await;
        let (clock, tails) = {
            let mut world = self.world();
            world.clock += 1;
            let clock = world.clock;
            let mut tails = BTreeMap::new();
            for name in colours {
                let colour = world.colours.entry(name.clone()).or_default();
                // What is ordered before is inside.
                colour.hidden = 0;
                tails.insert(name.clone(), colour.nodes.len() as u64);
            }
            (clock, tails)
        };
        self.delay().await;
        self.see(clock);
        Ok(SnapshotId { seen: at(clock), tails, across: None })
    }

    async fn play(&self, name: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        self.delay().await;
        let seen = self.seen();
        let page = {
            let mut world = self.world();
            let colour = world.colours.entry(name.to_owned()).or_default();
            Self::show(colour, seen);
            if from < colour.first {
                return Err(FuzzyError::AlreadyTrimmed { resume_from: colour.first });
            }
            let tail = to.unwrap_or(colour.shown() as u64);
            let wanted = (tail.saturating_sub(from) as usize).min(PAGE);
            let nodes: Vec<FuzzyNode> =
                colour.nodes.iter().skip(from as usize).take(wanted).cloned().collect();
            MapPage { next: from + nodes.len() as u64, nodes, tail }
        };
        if let Some(last) = page.nodes.last() {
            self.see(last.at.clock);
        }
        self.delay().await;
        Ok(page)
    }

    async fn trim(&self, name: &str, before: u64) -> Result<(), FuzzyError> {
        self.delay().await;
        {
            let mut world = self.world();
            let colour = world.colours.entry(name.to_owned()).or_default();
            assert!(before <= colour.nodes.len() as u64, "{name} is trimmed beyond its end");
            colour.first = colour.first.max(before);
        }
        self.delay().await;
        Ok(())
    }

    fn is_among_regions(&self) -> bool {
        false
    }
}
