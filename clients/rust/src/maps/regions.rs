//! What maps of several regions need: a log that says where nodes are from, and the way to the region that orders.

use super::log::{MapLog, MapPage};
use super::shard::{MapShard, MapView, Played};
use crate::CallError;
use crate::fuzzylog::{FuzzyAppended, FuzzyError, FuzzyLog, FuzzyNode};
use kernel::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::fuzzylog::{FuzzyFailure, LogCount, SnapshotId};

/// The partially ordered log, as one of several regions has it.
///
/// **Contract.** A node says where it is from. Among the nodes of a colour, each comes behind those of its region's log before it, and behind
/// those of other regions that its session had played or awaited: in every region.
pub trait RegionLog: MapLog {
    /// A page of a colour from a position on, as far as the colour goes; where there is nothing yet, waits for a node.
    fn play_next(
        &self,
        colour: &str,
        from: u64,
        wait: Duration,
    ) -> impl Future<Output = Result<MapPage, FuzzyError>> + Send;

    /// What is below a position of a colour here, so that other regions can have it.
    fn named(&self, colour: &str, below: u64) -> impl Future<Output = Result<SnapshotId, FuzzyError>> + Send;

    /// Waits until all of what was named is here, and returns how far it goes here. What the session appends from now on comes behind it.
    ///
    /// # Errors
    /// [`FuzzyFailure::NotHere`]: it is not here in time; nothing was done.
    fn await_named(
        &self,
        snapshot: &SnapshotId,
        wait: Duration,
    ) -> impl Future<Output = Result<SnapshotId, FuzzyError>> + Send;
}

impl RegionLog for FuzzyLog {
    async fn play_next(&self, colour: &str, from: u64, wait: Duration) -> Result<MapPage, FuzzyError> {
        let snapshot = SnapshotId::of(colour, from, self.seen());
        let mut instance = self.new_instance(colour, Some(&snapshot))?;
        let (nodes, tail) = instance.page_within(wait).await?;
        Ok(MapPage { nodes, next: instance.position(), tail })
    }

    async fn named(&self, colour: &str, below: u64) -> Result<SnapshotId, FuzzyError> {
        self.named(&SnapshotId::of(colour, below, self.seen())).await
    }

    async fn await_named(&self, snapshot: &SnapshotId, wait: Duration) -> Result<SnapshotId, FuzzyError> {
        self.await_snapshot(snapshot, wait).await
    }
}

/// How many nodes of each region's log of a colour.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct LogCounts(BTreeMap<Bytes, u64>);

impl LogCounts {
    /// How many of a region's.
    pub(super) fn of(&self, region: &Bytes) -> u64 {
        self.0.get(region).copied().unwrap_or(0)
    }

    /// At least so many.
    pub(super) fn raise(&mut self, region: &Bytes, count: u64) {
        match self.0.get_mut(region) {
            Some(known) => *known = count.max(*known),
            None => drop(self.0.insert(Bytes::copy_from_slice(region), count)),
        }
    }

    /// A node comes. False if it has come before.
    pub(super) fn take(&mut self, node: &Origin) -> bool {
        let is_new = node.number >= self.of(&node.region);
        self.raise(&node.region, node.number + 1);
        is_new
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&Bytes, u64)> {
        self.0.iter().map(|(region, count)| (region, *count))
    }

    /// As it is stored.
    pub(super) fn stored(&self) -> Vec<LogCount> {
        self.counts().map(|(region, count)| LogCount { region: region.clone(), count }).collect()
    }

    /// As it was stored.
    pub(super) fn loaded(stored: &[LogCount]) -> Self {
        let mut counts = Self::default();
        stored.iter().for_each(|it| counts.raise(&it.region, it.count));
        counts
    }
}

/// Where a node is from. Where there are no regions, there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Origin {
    pub(super) region: Bytes,
    pub(super) number: u64,
    pub(super) edges: Vec<LogCount>,
}

impl Origin {
    /// Of a node; `only`: the region that there is where there are no regions.
    pub(super) fn of(node: &FuzzyNode, only: &Bytes) -> Self {
        match &node.origin {
            Some(it) => {
                let owned = |edge: &LogCount| LogCount {
                    region: Bytes::copy_from_slice(&edge.region),
                    count: edge.count,
                };
                let region = Bytes::copy_from_slice(&it.region);
                Self { region, number: it.number, edges: it.edges.iter().map(owned).collect() }
            }
            None => Self { region: only.clone(), number: node.position, edges: Vec::new() },
        }
    }
}

/// The region whose log orders what has to be ordered, and how it is reached. Every process must name the same.
#[derive(Clone, Debug)]
pub struct PrimaryRegion<L> {
    name: Bytes,
    log: Option<L>,
    wait: Duration,
    known: Arc<Mutex<Known>>,
}

/// How far a colour goes there, as far as it is known: a position there, and how many nodes of the region's own log are below it.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    next: u64,
    count: u64,
}

/// A view that knows how many nodes of each region's log it has played.
pub(super) trait RegionView: MapView {
    fn logs(&self) -> &LogCounts;
}

impl<L> PrimaryRegion<L> {
    /// This process is in it. Where there are no regions, any name will do.
    pub fn here(name: &str) -> Self {
        Self { name: Bytes::copy_from_slice(name.as_bytes()), log: None, wait: WAIT, known: Arc::default() }
    }

    /// It is another region, with this session of its hosts. The session's time limit is how long it may take to answer.
    pub fn reached_by(name: &str, log: L) -> Self {
        Self {
            name: Bytes::copy_from_slice(name.as_bytes()),
            log: Some(log),
            wait: WAIT,
            known: Arc::default(),
        }
    }

    /// How long one region may take to have what the other one has; 2 s unless said.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

const WAIT: Duration = Duration::from_secs(2);

impl<L: RegionLog> PrimaryRegion<L> {
    /// The same for a map of its own: nothing is known of its colour yet.
    pub(super) fn of_a_map(self) -> Self {
        Self { known: Arc::default(), ..self }
    }

    pub(super) fn name(&self) -> &Bytes {
        &self.name
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// True if this process is in it.
    pub(super) fn is_here(&self) -> bool {
        self.log.is_none()
    }

    /// Refuses to go on in a region that is not the one that was named. To be asked when the view's session has played.
    pub(super) fn check<V: MapView>(&self, shard: &MapShard<L, V>) -> Result<(), FuzzyError> {
        let is_named = |log: &L| log.region().is_none_or(|region| region == self.name);
        let is_sound = match &self.log {
            None => is_named(shard.log()),
            Some(there) => is_named(there) && shard.log().region().is_none_or(|region| region != self.name),
        };
        if is_sound { Ok(()) } else { Err(FuzzyError::Failed(FuzzyFailure::OtherRegion)) }
    }

    /// Waits until the region has all of a shard's colour that is below a position here.
    pub(super) async fn has_all<V: MapView>(
        &self,
        shard: &MapShard<L, V>,
        below: u64,
    ) -> Result<(), FuzzyError> {
        if let Some(there) = &self.log {
            let named = named_below(shard, below).await?;
            there.await_named(&named, self.wait).await?;
        }
        self.check(shard)
    }

    /// Appends a node there, behind all that is below a position here.
    pub(super) async fn append<V: MapView>(
        &self,
        shard: &MapShard<L, V>,
        below: u64,
        body: Bytes,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.has_all(shard, below).await?;
        let log = self.log.as_ref().unwrap_or(shard.log());
        log.append(vec![(shard.colour().to_owned(), body)]).await
    }

    /// Plays everything that the region's own log had when it was asked: one question there, which leaves nothing behind.
    pub(super) async fn catch_up<V: RegionView>(&self, shard: &MapShard<L, V>) -> Result<(), FuzzyError> {
        if let Some(there) = &self.log {
            let count = self.count_there(there, shard).await?;
            let has_all = |played: &mut Played<V>| (played.view.logs().of(&self.name) >= count).then_some(());
            let found = play_until(shard, self.wait, has_all).await?;
            found.ok_or(FuzzyError::Failed(FuzzyFailure::NotHere))?;
        } else {
            drop(shard.synced().await?);
        }
        self.check(shard)
    }

    /// How many nodes the region's own log has.
    async fn count_there<V: RegionView>(&self, there: &L, shard: &MapShard<L, V>) -> Result<u64, FuzzyError> {
        let Known { next, count } = *self.known();
        let (page, is_trimmed) = play_what_is_left(there, shard.colour(), next).await?;
        let own = page.nodes.iter().filter_map(|node| node.origin.as_ref());
        let own = own.filter(|it| it.region == self.name).map(|it| it.number + 1);
        let mut found = Known { next: page.next, count: own.max().unwrap_or(0).max(count) };
        if page.next < page.tail || is_trimmed {
            // It is more than a page, or nobody says any more what it was: so much is better copied once, by this region's hosts.
            let named = there.named(shard.colour(), page.tail).await?;
            shard.log().await_named(&named, self.wait).await?;
            let here = shard.synced().await?.view.logs().of(&self.name);
            found = Known { next: page.tail, count: here.max(found.count) };
        }
        let mut known = self.known();
        if found.next >= known.next {
            *known = found;
        }
        Ok(found.count)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A page of a colour from a position on, or from the first one that is left; true: it is that.
async fn play_what_is_left<L: MapLog>(
    log: &L,
    colour: &str,
    from: u64,
) -> Result<(MapPage, bool), FuzzyError> {
    let (mut next, mut rounds) = (from, 0);
    loop {
        match log.play(colour, next, None).await {
            Ok(page) => return Ok((page, next > from)),
            // Each time, somebody has trimmed more meanwhile.
            Err(FuzzyError::AlreadyTrimmed { resume_from }) if rounds < TRIMS_MAX => {
                (next, rounds) = (resume_from, rounds + 1);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What is below a position of a shard's colour; below the first one that is left, if that is further.
async fn named_below<L: RegionLog, V: MapView>(
    shard: &MapShard<L, V>,
    below: u64,
) -> Result<SnapshotId, FuzzyError> {
    let (mut below, mut rounds) = (below, 0);
    loop {
        match shard.log().named(shard.colour(), below).await {
            Err(FuzzyError::AlreadyTrimmed { resume_from }) if rounds < TRIMS_MAX => {
                (below, rounds) = (resume_from, rounds + 1);
            }
            named => return named,
        }
    }
}

/// How often a page is asked for whose first nodes are trimmed meanwhile.
const TRIMS_MAX: usize = 16;

/// Plays what comes until something is found in the view, as long as `wait` says. None: it was not.
pub(super) async fn play_until<L: RegionLog, V: MapView, T>(
    shard: &MapShard<L, V>,
    wait: Duration,
    mut look: impl FnMut(&mut Played<V>) -> Option<T>,
) -> Result<Option<T>, FuzzyError> {
    let (begun, mut is_last) = (Instant::now(), false);
    loop {
        let from = {
            let mut played = shard.view().await;
            if let Some(found) = look(&mut played) {
                return Ok(Some(found));
            }
            played.next
        };
        if is_last {
            return Ok(None);
        }
        let left = wait.saturating_sub(begun.elapsed());
        is_last = left.is_zero();
        match shard.log().play_next(shard.colour(), from, left).await {
            Ok(page) if page.nodes.is_empty() && page.next == from => return Ok(None),
            Ok(page) => shard.view().await.take(&page.nodes, page.next)?,
            // A stored view has it.
            Err(FuzzyError::AlreadyTrimmed { .. }) => drop(shard.synced().await?),
            Err(error) => return Err(error),
        }
    }
}

/// What an append, after which nothing was heard in time, may have come to.
pub(super) fn not_seen_in_time(wait: Duration) -> FuzzyError {
    FuzzyError::Unknown(CallError::TimedOut(wait))
}

/// Nodes of several regions, in every order in which a region may play them.
#[cfg(test)]
pub(super) mod orders {
    use super::*;
    use wire::fuzzylog::{NodeOrigin, SeenTime};

    fn region(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    /// A node of a region's log, behind so many of other regions'.
    pub(in crate::maps) fn node(
        of: &'static str,
        number: u64,
        edges: &[(&'static str, u64)],
        body: Vec<u8>,
    ) -> FuzzyNode {
        let edges = edges.iter().map(|&(name, count)| LogCount { region: region(name), count }).collect();
        let origin = Some(NodeOrigin { region: region(of), number, edges });
        FuzzyNode {
            position: 0,
            at: SeenTime::default(),
            colours: vec!["m".to_owned()],
            body: body.into(),
            origin,
        }
    }

    /// All of them in every order, each behind those of its log before it, and behind what its edges name.
    pub(in crate::maps) fn all(nodes: &[FuzzyNode]) -> Vec<Vec<FuzzyNode>> {
        let (mut found, mut ahead) = (Vec::new(), vec![Vec::<usize>::new()]);
        while let Some(order) = ahead.pop() {
            let has = |name: &Bytes, count: u64| {
                let of = |at: &&usize| nodes[**at].origin.as_ref().is_some_and(|it| it.region == *name);
                order.iter().filter(of).count() as u64 >= count
            };
            let may_be_next = |node: &FuzzyNode| {
                let origin = node.origin.as_ref().expect("it has one");
                has(&origin.region, origin.number) && origin.edges.iter().all(|it| has(&it.region, it.count))
            };
            let next = (0..nodes.len()).filter(|at| !order.contains(at) && may_be_next(&nodes[*at]));
            ahead.extend(next.map(|at| [&order[..], &[at]].concat()));
            if order.len() == nodes.len() {
                let placed = |(position, &at): (u64, &usize)| FuzzyNode { position, ..nodes[at].clone() };
                found.push((0..).zip(&order).map(placed).collect());
            }
        }
        found
    }
}
