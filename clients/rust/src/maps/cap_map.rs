//! CAPMap (the paper's section 4.3): linearizable while its regions hear each other, and causal while they do not.
//!
//! ```text
//! put, in another region     append a node here; join: append a node to the primary region's log, behind it; see the join here
//! get, there                 how far is the primary region's log? play that here, and show what is in order
//! no answer from there       the process forks: what it appends is enough, and it shows the fork, too
//! answers again              one join, behind all that the process has shown; then as before
//! ```
//! The paper appends a change to the primary region's log, and once more here when no answer comes; who plays ignores the second one. Here a
//! change is one node, in the log of its own region, and what goes to the primary region is only its place in the order. So no change comes
//! twice, and a join that comes late, or twice, changes nothing.

use super::cap_view::{CapJoin, CapNode, CapPut, CapView, Ordered, WithFork};
use super::regions::{PrimaryRegion, RegionLog, not_seen_in_time, play_until};
use super::scan::{MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{MapShard, ShardPlayed};
use super::stored::{StoreError, ViewLimits};
use crate::CallError;
use crate::fuzzylog::FuzzyError;
use kernel::{Bytes, Encode as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use wire::fuzzylog::FuzzyFailure;

/// What a CAPMap is now, in one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CapOrder {
    /// Linearizable, as far as all processes are.
    Linearizable,
    /// Causal: the primary region does not answer, or has not all that is here.
    Causal,
}

/// What a process has of a CAPMap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapStatus {
    /// What it is now.
    pub order: CapOrder,
    /// Since when.
    pub since: SystemTime,
    /// Nodes that the primary region's log does not order yet, as far as they were played here.
    pub fork_nodes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Ordered,
    /// A join is on its way, behind all of the fork that was shown: nothing of it is shown meanwhile.
    Joining,
    Forked,
}

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    since: SystemTime,
}

/// What all clones share.
#[derive(Debug)]
struct Shared<L> {
    shard: MapShard<L, CapView>,
    primary: PrimaryRegion<L>,
    process: u64,
    count: AtomicU64,
    state: StdMutex<State>,
    /// One join at a time: it is for all who wait.
    joins: Mutex<()>,
    retry_every: Option<Duration>,
}

/// A map over one colour in several regions, one of which is its primary region. Linearizable while all processes reach that one. A process of
/// another region that is not answered in time goes on alone: causally consistent, behind all that it had seen. When it is answered again,
/// what it has done is put in order with the rest, the same everywhere. Processes of the primary region never wait for the others; they see
/// what the others did when it is in order. Cheap to clone.
#[derive(Debug)]
pub struct CapMap<L>(Arc<Shared<L>>);

impl<L> Clone for CapMap<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// True if a region did not answer, or has not in time what it is to have.
fn is_cut(error: &FuzzyError) -> bool {
    match error {
        FuzzyError::Unreached(error) | FuzzyError::Unknown(error) => matches!(
            error,
            CallError::TimedOut(_)
                | CallError::NotSent(_)
                | CallError::TurnedAway { .. }
                | CallError::MaybeExecuted
                | CallError::Busy
        ),
        FuzzyError::Failed(why) => {
            matches!(why, FuzzyFailure::NotHere | FuzzyFailure::Busy | FuzzyFailure::Unknown)
        }
        FuzzyError::AlreadyTrimmed { .. }
        | FuzzyError::BeyondTail { .. }
        | FuzzyError::Fault(_)
        | FuzzyError::NoMemory { .. }
        | FuzzyError::MapRemoved => false,
    }
}

impl<L: RegionLog> CapMap<L> {
    /// The map `name`, in the region of `log`. Every process must name the same primary region. `process`: 64 bits that no other process
    /// has. A process that is alone looks every so often whether the primary region answers; none: only when it is asked to ([`Self::join`]).
    pub fn open(
        log: &L,
        name: &str,
        primary: PrimaryRegion<L>,
        process: u64,
        retry_every: Option<Duration>,
    ) -> Self {
        let view = CapView::new(primary.name().clone(), process);
        let shard = MapShard::new(log.clone(), name, view);
        let state = State { mode: Mode::Ordered, since: SystemTime::now() };
        let (count, state, joins) = (AtomicU64::new(0), StdMutex::new(state), Mutex::new(()));
        let primary = primary.of_a_map();
        Self(Arc::new(Shared { shard, primary, process, count, state, joins, retry_every }))
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<(), FuzzyError> {
        self.change(key, Some(value.into())).await
    }

    /// Removes a key.
    pub async fn delete(&self, key: &str) -> Result<(), FuzzyError> {
        self.change(key, None).await
    }

    async fn change(&self, key: &str, value: Option<Bytes>) -> Result<(), FuzzyError> {
        let Shared { shard, primary, .. } = &*self.0;
        let put = CapPut { key: Bytes::copy_from_slice(key.as_bytes()), value };
        let body = CapNode::from(put).encoded().into();
        let appended = shard.log().append(vec![(shard.colour().to_owned(), body)]).await?;
        let below = appended.positions.values().max().map_or(0, |position| position + 1);
        if primary.is_here() {
            return Ok(());
        }
        self.placed(below).await.map_err(FuzzyError::behind_an_append)
    }

    /// What is below a position here is in order, or this process is alone and shows it.
    async fn placed(&self, below: u64) -> Result<(), FuzzyError> {
        loop {
            if self.0.state().mode != Mode::Forked {
                let _turn = self.0.joins.lock().await;
                let is_ordered = self.0.shard.synced().await?.view.is_ordered_below(below);
                if is_ordered {
                    return Ok(());
                }
                if self.0.state().mode != Mode::Forked {
                    match self.0.join_once().await {
                        Ok(()) => return Ok(()),
                        Err(error) if is_cut(&error) => self.fork(),
                        Err(error) => return Err(error),
                    }
                }
            }
            if self.0.show_fork(|_| ()).await?.is_some() {
                return Ok(());
            }
        }
    }

    /// What a key holds.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, FuzzyError> {
        self.shown(|view| view.ordered(key), |view| view.forked(key)).await
    }

    /// A page of keys and what they hold, in order, at one moment of the call.
    pub async fn scan(
        &self,
        scan: &MapScan,
        point: Option<&MapScanPoint>,
    ) -> Result<MapKeys<Bytes>, FuzzyError> {
        let ordered = |view: &CapView| page_of(&[&Ordered(view)], scan, point);
        self.shown(ordered, |view| page_of(&[&WithFork(view)], scan, point)).await
    }

    /// Looks at what is shown: what is in order, or, of a process that is alone, the fork as well.
    async fn shown<T>(
        &self,
        ordered: impl Fn(&CapView) -> T,
        forked: impl Fn(&CapView) -> T,
    ) -> Result<T, FuzzyError> {
        let Shared { shard, primary, joins, .. } = &*self.0;
        if primary.is_here() {
            return Ok(ordered(&shard.synced().await?.view));
        }
        loop {
            let mode = self.0.state().mode;
            match mode {
                Mode::Ordered => match primary.catch_up(shard).await {
                    Ok(()) => {
                        let played = shard.view().await;
                        // Else somebody may have been shown more meanwhile.
                        if self.0.state().mode == Mode::Ordered {
                            return Ok(ordered(&played.view));
                        }
                    }
                    Err(error) if is_cut(&error) => self.fork(),
                    Err(error) => return Err(error),
                },
                Mode::Joining => drop(joins.lock().await),
                Mode::Forked => {
                    if let Some(found) = self.0.show_fork(&forked).await? {
                        return Ok(found);
                    }
                }
            }
        }
    }

    /// The primary region does not answer: this process goes on alone.
    fn fork(&self) {
        {
            let mut state = self.0.state();
            if state.mode == Mode::Forked {
                return;
            }
            (state.mode, state.since) = (Mode::Forked, SystemTime::now());
        }
        if let Some(every) = self.0.retry_every {
            tokio::spawn(retry(Arc::downgrade(&self.0), every));
        }
    }

    /// Looks whether the primary region answers again, and puts what was done without it in order. In the primary region: what others have
    /// done and have not put in order themselves.
    ///
    /// # Errors
    /// It does not, or what was done here is not there yet: nothing has changed.
    pub async fn join(&self) -> Result<CapStatus, FuzzyError> {
        self.0.rejoin().await?;
        Ok(self.status().await)
    }

    /// What this process has of it.
    pub async fn status(&self) -> CapStatus {
        let played = self.0.shard.view().await;
        let State { mode, since } = *self.0.state();
        let order = if mode == Mode::Ordered { CapOrder::Linearizable } else { CapOrder::Causal };
        CapStatus { order, since, fork_nodes: played.view.fork_len() }
    }

    /// How far this process has played it.
    pub async fn played(&self) -> Vec<ShardPlayed> {
        vec![self.0.shard.status().await]
    }

    /// Stores the view if it is time, and trims the log behind it, in this region. Returns how many.
    pub async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        Ok(usize::from(self.0.shard.store(limits).await?.is_some()))
    }
}

/// Looks whether the primary region answers again, until it does or nobody has the map open.
async fn retry<L: RegionLog>(shared: Weak<Shared<L>>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.state().mode == Mode::Ordered || shared.rejoin().await.is_ok() {
            return;
        }
    }
}

/// A process that joins, and is alone again if that ends early.
struct Joining<'a, L>(&'a Shared<L>);

impl<L> Drop for Joining<'_, L> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.mode == Mode::Joining {
            state.mode = Mode::Forked;
        }
    }
}

impl<L> Shared<L> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: RegionLog> Shared<L> {
    /// Shows what is here, in order or not. None: this process is not alone any more.
    async fn show_fork<T>(&self, look: impl FnOnce(&CapView) -> T) -> Result<Option<T>, FuzzyError> {
        let played = self.shard.synced().await?;
        let is_alone = self.state().mode == Mode::Forked;
        Ok(is_alone.then(|| look(&played.view)))
    }

    /// Puts all that was played here in order, and returns when that is seen.
    async fn join_once(&self) -> Result<(), FuzzyError> {
        let played = self.shard.synced().await?.next;
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let body = CapNode::from(CapJoin { process: self.process, count }).encoded().into();
        self.primary.append(&self.shard, played, body).await?;
        let wait = self.primary.wait();
        let seen = play_until(&self.shard, wait, |played| (played.view.joined() >= count).then_some(()));
        seen.await?.ok_or_else(|| not_seen_in_time(wait))
    }

    async fn rejoin(&self) -> Result<(), FuzzyError> {
        if self.primary.is_here() {
            let has_fork = self.shard.synced().await?.view.fork_len() > 0;
            return if has_fork { self.join_once().await } else { Ok(()) };
        }
        // Nobody waits for one that does not answer.
        let played = self.shard.synced().await?.next;
        self.primary.has_all(&self.shard, played).await?;
        let _turn = self.joins.lock().await;
        {
            let mut state = self.state();
            if state.mode != Mode::Forked {
                return Ok(());
            }
            state.mode = Mode::Joining;
        }
        let joining = Joining(self);
        // It plays on first, so it comes behind all that was shown.
        self.join_once().await?;
        *self.state() = State { mode: Mode::Ordered, since: SystemTime::now() };
        drop(joining);
        Ok(())
    }
}
