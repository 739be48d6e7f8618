//! A shard of a map: one colour, and the view that its nodes make.

use super::log::MapLog;
use super::stored::{StoreError, StoredView, StoredViews, ViewLimits, ViewStore};
use crate::CallError;
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, DecodeError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};
use wire::fuzzylog::FuzzyFailure;

/// Points of the order that are asked for, one after the other, while views go beyond them.
const POINTS_MAX: usize = 16;

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
    /// The last sync that has ended well.
    ended: u64,
    /// Up to where the last stored view covers, as far as it is known, and about how many bytes of nodes were played behind that.
    covered: u64,
    uncovered_bytes: u64,
    pub(super) view: V,
}

impl<V> Played<V> {
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
        let played = Played { next: 0, ended: 0, covered: 0, uncovered_bytes: 0, view };
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
        while end.is_none_or(|end| played.next < end) {
            match self.log.play(&self.colour, played.next, end).await {
                Ok(page) => {
                    for node in &page.nodes {
                        played.uncovered_bytes += node.body.len() as u64;
                        played.view.play(node);
                    }
                    (played.next, end) = (page.next, Some(page.tail));
                }
                Err(FuzzyError::AlreadyTrimmed { resume_from }) if played.next < resume_from => {
                    self.load(played, resume_from).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn load(&self, played: &mut Played<V>, first: u64) -> Result<(), FuzzyError> {
        let (stored, bytes) = self.store.load(first).await?;
        let unreadable = |error: DecodeError| {
            FuzzyError::Unreached(CallError::Unreadable(format!(
                "the stored view of {}: {error}",
                self.colour
            )))
        };
        played.view.load(&bytes).map_err(unreadable)?;
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
        if !is_due(&*self.view().await) {
            return Ok(None);
        }
        if self.log.is_among_regions() {
            return Err(StoreError::AmongRegions);
        }
        let mut known = self.stored.lock().await;
        self.store.read(&mut known).await?;
        // Who has stored the last one may be gone before it has trimmed.
        self.store.trim(&known).await?;
        let (covers, view) = {
            let mut played = self.view().await;
            played.covered(known.last().map_or(0, |last| last.covers));
            if !is_due(&played) {
                return Ok(None);
            }
            (played.next, played.view.stored())
        };
        if view.len() > limits.view_bytes {
            return Err(StoreError::TooLarge { bytes: view.len(), limit: limits.view_bytes });
        }
        let stored = self.store.write(&mut known, covers, &view, limits.chunk_bytes).await?;
        self.store.trim(&known).await?;
        self.view().await.covered(known.last().map_or(0, |last| last.covers));
        Ok(stored)
    }
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
