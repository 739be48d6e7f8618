//! A shard of a map: one colour, and the view that its nodes make.

use super::log::MapLog;
use super::memory::MapMemory;
use super::stored::{StoreError, StoredView, StoredViews, ViewLimits, ViewStore};
use crate::CallError;
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, DecodeError, planted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};
use wire::fuzzylog::FuzzyFailure;

/// Points of the order that are asked for, one after the other, while views go beyond them.
const POINTS_MAX: usize = 16;

/// The last node of a colour whose map is removed. No kind of map reads it as a change.
const LAST_NODE: &[u8] = b"\xff\xff\xff\xffordinate: this map is removed";

/// The same.
pub(super) fn last_node() -> Bytes {
    Bytes::from_static(LAST_NODE)
}

/// What nodes of a colour make: a function of them and their order, the same in every process.
///
/// **Contract.** A view that was loaded goes on as the one that was stored: after the same nodes both store the same bytes.
pub trait MapView: Send + 'static {
    /// Takes the next node in. What cannot be read was written by somebody else, and changes nothing.
    fn play(&mut self, node: &FuzzyNode);

    /// Everything that the nodes have made.
    fn stored(&self) -> Vec<u8>;

    /// Becomes what was stored of more nodes than were played here. What only this process knows stays.
    ///
    /// # Errors
    /// It is no view of this kind; nothing has changed.
    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError>;

    /// How many keys hold something.
    fn entries(&self) -> usize;

    /// What it takes in memory, about, in bytes: the same whether its entries were played or loaded.
    fn bytes(&self) -> usize;
}

/// What a process has of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardPlayed {
    /// The shard's colour.
    pub colour: String,
    /// The position up to which it was played here.
    pub played: u64,
    /// The position up to which the last stored view covers it, as far as it is known here; 0 for none.
    pub covered: u64,
    /// Bytes of nodes that were played since that, about.
    pub uncovered_bytes: u64,
    /// Keys that hold something.
    pub entries: usize,
    /// What the view takes in memory, about, in bytes.
    pub bytes: usize,
}

/// One colour of a map in one process. Cheap to clone.
#[derive(Debug)]
pub struct MapShard<L, V> {
    log: L,
    colour: Arc<str>,
    played: Arc<Mutex<Played<V>>>,
    /// Syncs that were begun.
    begun: Arc<AtomicU64>,
    store: Arc<ViewStore<L>>,
    /// The views that are stored, as far as it is known; locked before `played`, by the one who stores the next.
    stored: Arc<Mutex<StoredViews>>,
}

impl<L: Clone, V> Clone for MapShard<L, V> {
    fn clone(&self) -> Self {
        Self {
            log: self.log.clone(),
            colour: Arc::clone(&self.colour),
            played: Arc::clone(&self.played),
            begun: Arc::clone(&self.begun),
            store: Arc::clone(&self.store),
            stored: Arc::clone(&self.stored),
        }
    }
}

/// What was played of a colour.
#[derive(Debug)]
pub(super) struct Played<V> {
    /// The position after the last node.
    pub(super) next: u64,
    /// The last node was played: the map is removed, and what follows counts for nothing.
    is_removed: bool,
    /// The last sync that has ended well.
    ended: u64,
    /// Up to where the last stored view covers, as far as it is known, and about how many bytes of nodes were played behind that.
    covered: u64,
    uncovered_bytes: u64,
    /// Of which the view has taken so much.
    memory: MapMemory,
    bytes: usize,
    pub(super) view: V,
}

impl<V> Drop for Played<V> {
    fn drop(&mut self) {
        self.memory.changed(self.bytes, 0);
    }
}

impl<V: MapView> Played<V> {
    /// Plays nodes that were not played yet, up to a position. What has no room in memory is not played.
    pub(super) fn take(&mut self, nodes: &[FuzzyNode], next: u64) -> Result<(), FuzzyError> {
        let from = self.next;
        for node in nodes.iter().filter(|node| node.position >= from) {
            self.memory.check(0)?;
            self.play(node);
        }
        self.next = self.next.max(next);
        self.check()
    }

    /// The same of nodes for which there is room.
    fn take_all(&mut self, ahead: &Ahead) {
        let from = self.next;
        ahead.nodes.iter().filter(|node| node.position >= from).for_each(|node| self.play(node));
        self.next = self.next.max(ahead.next);
    }

    fn play(&mut self, node: &FuzzyNode) {
        self.is_removed |= node.body == LAST_NODE;
        if self.is_removed {
            return;
        }
        self.uncovered_bytes += node.body.len() as u64;
        self.view.play(node);
        self.next = node.position + 1;
        self.count();
    }

    /// The view has changed.
    fn count(&mut self) {
        let bytes = self.view.bytes();
        self.memory.changed(self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl<V> Played<V> {
    /// Fails if the map is removed.
    fn check(&self) -> Result<(), FuzzyError> {
        if self.is_removed { Err(FuzzyError::MapRemoved) } else { Ok(()) }
    }

    /// A stored view covers so much. Bytes are shared out evenly among the nodes behind the one before it.
    fn covered(&mut self, covers: u64) {
        let behind = |from: u64| self.next.saturating_sub(from);
        if covers > self.covered {
            let share = u128::from(self.uncovered_bytes) * u128::from(behind(covers));
            let bytes = share / u128::from(behind(self.covered).max(1));
            (self.covered, self.uncovered_bytes) = (covers, u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }
}

impl<L: MapLog, V: MapView> MapShard<L, V> {
    /// Nothing of a colour was played yet: this is the view then.
    pub fn new(log: L, colour: &str, view: V) -> Self {
        let (memory, bytes) = (log.memory(), 0);
        let is_removed = false;
        let played =
            Played { next: 0, is_removed, ended: 0, covered: 0, uncovered_bytes: 0, memory, bytes, view };
        Self {
            store: Arc::new(ViewStore::of(log.clone(), colour)),
            log,
            colour: colour.into(),
            played: Arc::new(Mutex::new(played)),
            begun: Arc::new(AtomicU64::new(0)),
            stored: Arc::default(),
        }
    }

    /// The colour.
    pub fn colour(&self) -> &str {
        &self.colour
    }

    pub(super) fn log(&self) -> &L {
        &self.log
    }

    /// The view as it is here, which may be behind.
    pub(super) async fn view(&self) -> MutexGuard<'_, Played<V>> {
        self.played.lock().await
    }

    /// What this process has of it.
    pub(super) async fn status(&self) -> ShardPlayed {
        let played = self.view().await;
        ShardPlayed {
            colour: self.colour().to_owned(),
            played: played.next,
            covered: played.covered,
            uncovered_bytes: played.uncovered_bytes,
            entries: played.view.entries(),
            bytes: played.bytes,
        }
    }

    /// The same, with the shard.
    pub(super) async fn locked(&self) -> LockedView<'_, L, V> {
        LockedView { shard: self, played: self.view().await }
    }

    /// The view, with everything that was appended before the call. Calls that wait share the next sync.
    pub(super) async fn synced(&self) -> Result<MutexGuard<'_, Played<V>>, FuzzyError> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut played = self.played.lock().await;
        if played.ended <= before {
            let this = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            self.catch_up(&mut played, None).await?;
            played.ended = this;
        }
        Ok(played)
    }

    /// Plays up to a position, or as far as the colour goes. What was trimmed comes from a stored view, which may go beyond the position.
    async fn catch_up(&self, played: &mut Played<V>, to: Option<u64>) -> Result<(), FuzzyError> {
        let mut end = to;
        played.check()?;
        while end.is_none_or(|end| played.next < end) {
            match self.log.play(&self.colour, played.next, end).await {
                Ok(page) => {
                    end = Some(page.tail);
                    played.take(&page.nodes, page.next)?;
                }
                Err(FuzzyError::AlreadyTrimmed { resume_from }) if played.next < resume_from => {
                    self.load(played, resume_from).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what the view has not, up to a position or as far as the colour goes, while others use the view. None: it is too much at once, or
    /// was trimmed.
    async fn read_ahead(&self, to: Option<u64>, room: &mut usize) -> Result<Option<Ahead>, FuzzyError> {
        let mut next = self.view().await.next;
        let (mut end, mut nodes) = (to, Vec::new());
        while end.is_none_or(|end| next < end) {
            let page = match self.log.play(&self.colour, next, end).await {
                Ok(page) => page,
                Err(FuzzyError::AlreadyTrimmed { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let bytes = page.nodes.iter().map(|node| NODE_BYTES + node.body.len()).sum::<usize>();
            match room.checked_sub(bytes) {
                Some(left) => *room = left,
                None => return Ok(None),
            }
            nodes.extend(page.nodes);
            (next, end) = (page.next, Some(page.tail));
        }
        Ok(Some(Ahead { nodes, next }))
    }

    /// Plays everything that was appended before, and keeps nobody from the view while it asks, unless there is much to play.
    pub(super) async fn follow(&self) -> Result<(), FuzzyError> {
        let mut room = AHEAD_BYTES_MAX;
        match self.read_ahead(None, &mut room).await? {
            Some(ahead) => self.view().await.take(&ahead.nodes, ahead.next),
            None => self.synced().await.map(|_| ()),
        }
    }

    async fn load(&self, played: &mut Played<V>, first: u64) -> Result<(), FuzzyError> {
        let has_room = |len: u64| played.memory.check(usize::try_from(len).unwrap_or(usize::MAX));
        let (stored, bytes) = self.store.load(first, has_room).await?;
        let unreadable = |error: DecodeError| {
            FuzzyError::Unreached(CallError::Unreadable(format!(
                "the stored view of {}: {error}",
                self.colour
            )))
        };
        played.view.load(&bytes).map_err(unreadable)?;
        played.count();
        (played.next, played.covered, played.uncovered_bytes) = (stored.covers, stored.covers, 0);
        Ok(())
    }

    /// Stores the view as it was played here, if it is time, and trims the log behind the one before it. Others may do so at once: one view
    /// counts. Returns it if it is this one.
    ///
    /// # Errors
    /// Nothing that is needed was dropped; it may be tried again.
    pub async fn store(&self, limits: &ViewLimits) -> Result<Option<StoredView>, StoreError> {
        let is_due = |played: &Played<V>| played.uncovered_bytes >= limits.log_bytes.max(1);
        {
            let played = self.view().await;
            played.check()?;
            if !is_due(&played) {
                return Ok(None);
            }
        }
        let mut known = self.stored.lock().await;
        self.store.read(&mut known).await?;
        // Who has stored the last one may be gone before it has trimmed.
        self.store.trim(&known).await?;
        let (covers, view, takes) = {
            let mut played = self.view().await;
            played.covered(known.last().map_or(0, |last| last.covers));
            if !is_due(&played) {
                return Ok(None);
            }
            (played.next, played.view.stored(), played.bytes)
        };
        let covers = match planted!(view_covers_too_much) {
            true => self.synced().await?.next,
            false => covers,
        };
        if view.len() > limits.view_bytes {
            return Err(StoreError::TooLarge { bytes: view.len(), limit: limits.view_bytes });
        }
        let stored = self.store.write(&mut known, covers, (&view, takes), limits.chunk_bytes).await?;
        self.store.trim(&known).await?;
        self.view().await.covered(known.last().map_or(0, |last| last.covers));
        Ok(stored)
    }
}

/// Plays everything that was appended before, a shard after the other.
pub(super) async fn sync_each<L: MapLog, V: MapView>(shards: &[MapShard<L, V>]) -> Result<(), FuzzyError> {
    for shard in shards {
        drop(shard.synced().await?);
    }
    Ok(())
}

/// What this process has of shards.
pub(super) async fn status_of<L: MapLog, V: MapView>(shards: &[MapShard<L, V>]) -> Vec<ShardPlayed> {
    let mut all = Vec::with_capacity(shards.len());
    for shard in shards {
        all.push(shard.status().await);
    }
    all
}

/// Stores the views of those shards where it is time, and returns how many.
pub(super) async fn store_each<L: MapLog, V: MapView>(
    shards: &[MapShard<L, V>],
    limits: &ViewLimits,
) -> Result<usize, StoreError> {
    let mut count = 0;
    for shard in shards {
        count += usize::from(shard.store(limits).await?.is_some());
    }
    Ok(count)
}

/// Nodes that were read and not played yet, and the position after them.
struct Ahead {
    nodes: Vec<FuzzyNode>,
    next: u64,
}

/// Bytes of nodes that are read ahead of the views of one map, and what each node takes beside its body, about.
const AHEAD_BYTES_MAX: usize = 4 << 20;
const NODE_BYTES: usize = 256;

/// Plays all views to one point of the order of their colours, and keeps nobody from them while it asks, unless there is much to play. All
/// who play on these views do so by this.
pub(super) async fn follow_to_one_point<L: MapLog, V: MapView>(
    log: &L,
    shards: &[MapShard<L, V>],
) -> Result<(), FuzzyError> {
    let colours: Vec<String> = shards.iter().map(|shard| shard.colour().to_owned()).collect();
    let snapshot = log.snapshot(&colours).await?;
    let (mut all, mut room) = (Vec::with_capacity(shards.len()), AHEAD_BYTES_MAX);
    for shard in shards {
        all.push(shard.read_ahead(Some(snapshot.tail(shard.colour())), &mut room).await?);
    }
    // Everybody locks in one order.
    let mut views = Vec::with_capacity(shards.len());
    for shard in shards {
        views.push(shard.locked().await);
    }
    let Some(all) = all.into_iter().collect::<Option<Vec<Ahead>>>() else {
        return play_to_one_point(log, &mut views).await;
    };
    // All of it or nothing: a change is seen as a whole.
    log.memory().check(AHEAD_BYTES_MAX - room)?;
    // Who was faster has brought all of them to a later point.
    views.iter_mut().zip(&all).for_each(|(view, ahead)| view.played.take_all(ahead));
    views.iter().try_for_each(|view| view.played.check())
}

/// A shard, and its view, on which nobody plays meanwhile.
pub(super) struct LockedView<'a, L, V> {
    shard: &'a MapShard<L, V>,
    pub(super) played: MutexGuard<'a, Played<V>>,
}

impl<L: MapLog, V: MapView> LockedView<'_, L, V> {
    /// Plays as far as the colour goes.
    pub(super) async fn catch_up(&mut self) -> Result<(), FuzzyError> {
        self.shard.catch_up(&mut self.played, None).await
    }
}

/// Plays views to one point of the order of their colours.
pub(super) async fn play_to_one_point<L: MapLog, V: MapView>(
    log: &L,
    views: &mut [LockedView<'_, L, V>],
) -> Result<(), FuzzyError> {
    let colours: Vec<String> = views.iter().map(|it| it.shard.colour().to_owned()).collect();
    for _ in 0..POINTS_MAX {
        let snapshot = log.snapshot(&colours).await?;
        for LockedView { shard, played } in views.iter_mut() {
            shard.catch_up(played, Some(snapshot.tail(shard.colour()))).await?;
        }
        // A view that was loaded may be of a later point.
        if views.iter().all(|it| it.played.next <= snapshot.tail(it.shard.colour())) {
            return Ok(());
        }
    }
    Err(FuzzyError::Failed(FuzzyFailure::Busy))
}
