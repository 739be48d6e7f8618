//! COPSMap (the paper's section 4.4): causal over all keys, though each is of one colour of several, and in all regions.
//!
//! Each user carries a context, and each change says what its user's context was.

use super::cops_view::{CopsChange, CopsContext, CopsView, is_shown, lacking, show};
use super::key_hash;
use super::regions::RegionLog;
use super::scan::{MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{LockedView, MapShard, ShardPlayed, status_of, store_each, sync_each};
use super::stored::{StoreError, ViewLimits};
use crate::fuzzylog::FuzzyError;
use kernel::{Bytes, Encode as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::fuzzylog::{COLOURS_MAX, FuzzyFailure};

/// A map over several colours, in one region or several. Causally consistent over all keys, for each context: reads go by what this process
/// has played, and send no message if that includes the context; of concurrent changes all copies choose the same one. Cheap to clone;
/// [`CopsMap::sync`] plays on.
#[derive(Debug)]
pub struct CopsMap<L> {
    shards: Vec<MapShard<L, CopsView>>,
    process: u64,
    /// The count of the last change that was begun here; changed while all views are locked.
    count: Arc<AtomicU64>,
    wait: Duration,
}

impl<L: Clone> Clone for CopsMap<L> {
    fn clone(&self) -> Self {
        let (shards, count) = (self.shards.clone(), Arc::clone(&self.count));
        Self { shards, process: self.process, count, wait: self.wait }
    }
}

impl<L: RegionLog> CopsMap<L> {
    /// The map `name`, of so many shards, at most 64; every process must say the same. `process`: 64 bits that no other process has. A call
    /// whose context is not here yet waits for it so long.
    pub fn open(log: &L, name: &str, shards: usize, process: u64, wait: Duration) -> Self {
        let shard = |at| MapShard::new(log.clone(), &format!("{name}.{at}"), CopsView::default());
        let shards = (0..shards.clamp(1, COLOURS_MAX)).map(shard).collect();
        Self { shards, process, count: Arc::default(), wait }
    }

    fn shard_of(&self, key: &str) -> usize {
        key_hash(key) as usize % self.shards.len()
    }

    /// All views: nobody plays on meanwhile. Everybody locks in one order.
    async fn views(&self) -> Vec<LockedView<'_, L, CopsView>> {
        let mut views = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            views.push(shard.locked().await);
        }
        views
    }

    /// Sets a key, behind all that the context has. The context has it then.
    ///
    /// # Errors
    /// [`FuzzyFailure::NotHere`]: this region has not all of the context in time, and nothing was done; [`FuzzyFailure::NoSnapshot`]: it is of
    /// a map with more shards.
    pub async fn put(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        context: &mut CopsContext,
    ) -> Result<(), FuzzyError> {
        self.change(key, Some(value.into()), context).await
    }

    /// Removes what this process knows the key to hold, behind all that the context has.
    pub async fn delete(&self, key: &str, context: &mut CopsContext) -> Result<(), FuzzyError> {
        self.change(key, None, context).await
    }

    async fn change(
        &self,
        key: &str,
        put: Option<Bytes>,
        context: &mut CopsContext,
    ) -> Result<(), FuzzyError> {
        self.until_shown(context).await?;
        let at = self.shard_of(key);
        let body = {
            let views = self.views().await;
            // Later than all that was seen in any shard, so that all shards choose alike.
            let seen = views.iter().map(|it| it.played.view.puts.count()).max().unwrap_or(0);
            let count = self.count.load(Ordering::Relaxed).max(seen) + 1;
            self.count.store(count, Ordering::Relaxed);
            let view = &views[at].played.view;
            let mut change = view.puts.change(key, put, self.process);
            change.tag.count = count;
            let mut past = context.clone();
            // It takes away what is shown here.
            past.see(at as u32, &view.shown);
            CopsChange { change, past: past.past() }.encoded().into()
        };
        let shard = &self.shards[at];
        let appended = shard.log().append(vec![(shard.colour().to_owned(), body)]).await?;
        let position = appended.positions.values().max().copied().unwrap_or(0);
        self.sync().await.map_err(FuzzyError::behind_an_append)?;
        let played = shard.view().await;
        if !played.view.shows_at(position) {
            // Somebody else's node of this log says that its user has seen what nobody has.
            return Err(FuzzyError::Failed(FuzzyFailure::Unknown));
        }
        context.see(at as u32, &played.view.shown);
        Ok(())
    }

    /// What a key holds, with all that the context has; the context has it then.
    ///
    /// # Errors
    /// As [`CopsMap::put`].
    pub async fn get(&self, key: &str, context: &mut CopsContext) -> Result<Option<Bytes>, FuzzyError> {
        self.until_shown(context).await?;
        let at = self.shard_of(key);
        let played = self.shards[at].view().await;
        context.see(at as u32, &played.view.shown);
        Ok(played.view.puts.get(key))
    }

    /// A page of keys and what they hold, in order, with all that the context has; the context has all shards as they are here then.
    ///
    /// # Errors
    /// As [`CopsMap::put`].
    pub async fn scan(
        &self,
        scan: &MapScan,
        point: Option<&MapScanPoint>,
        context: &mut CopsContext,
    ) -> Result<MapKeys<Bytes>, FuzzyError> {
        self.until_shown(context).await?;
        let views = self.views().await;
        (0..).zip(&views).for_each(|(at, it)| context.see(at, &it.played.view.shown));
        let views: Vec<_> = views.iter().map(|it| &it.played.view.puts).collect();
        Ok(page_of(&views, scan, point))
    }

    /// Waits until all that a context has is shown here.
    async fn until_shown(&self, context: &CopsContext) -> Result<(), FuzzyError> {
        let past = context.past();
        if past.iter().any(|it| it.shard as usize >= self.shards.len()) {
            return Err(FuzzyError::Failed(FuzzyFailure::NoSnapshot));
        }
        let (begun, mut has_synced, mut is_whole) = (Instant::now(), false, false);
        loop {
            let lacks = {
                let mut views = self.views().await;
                let views = plain(&mut views);
                if is_shown(&views, &past) {
                    return Ok(());
                }
                lacking(&views, &past)
            };
            match lacks {
                Some(at) if has_synced => {
                    let shard = &self.shards[at];
                    let (from, left) = (shard.view().await.next, self.wait.saturating_sub(begun.elapsed()));
                    let page = shard.log().play_next(shard.colour(), from, left).await?;
                    if page.nodes.is_empty() || left.is_zero() {
                        return Err(FuzzyError::Failed(FuzzyFailure::NotHere));
                    }
                }
                // All of it was played, and still it is not shown: it says that somebody has seen what nobody has.
                None if is_whole => return Err(FuzzyError::Failed(FuzzyFailure::NotHere)),
                lacks => is_whole = lacks.is_none(),
            }
            self.sync().await?;
            has_synced = true;
        }
    }

    /// Plays everything that is in this region, and shows what may be shown.
    pub async fn sync(&self) -> Result<(), FuzzyError> {
        loop {
            let loads = self.loads().await;
            sync_each(&self.shards).await?;
            // A stored view shows what is behind what the others have played.
            if self.loads().await == loads {
                break;
            }
        }
        show(&mut plain(&mut self.views().await));
        Ok(())
    }

    async fn loads(&self) -> u64 {
        self.views().await.iter().map(|it| it.played.view.loads).sum()
    }

    /// What this process has of each shard.
    pub async fn status(&self) -> Vec<ShardPlayed> {
        status_of(&self.shards).await
    }

    /// Stores views where it is time, and trims the log behind them, in this region. Returns how many.
    pub async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        store_each(&self.shards, limits).await
    }
}

fn plain<'a, L>(views: &'a mut [LockedView<'_, L, CopsView>]) -> Vec<&'a mut CopsView> {
    views.iter_mut().map(|it| &mut it.played.view).collect()
}
