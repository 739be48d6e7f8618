//! RedBlueMap (the paper's section 4.4): balances that are in no region below 0.
//!
//! Adding commutes with everything: it is *blue*, and done in the caller's region. Taking does not: it is *red*, a node of the primary
//! region's log, and so all regions have all takings in one order.
//!
//! A node that takes says which taking of its key its process had seen last, and counts if that is still the last one before it. So it counts
//! everywhere or nowhere. Its process had found enough in what it had seen, and all of that comes before the node in every region.
//!
//! Invariant: wherever a taking that counts is played, its key has as much as it takes.

use super::crdt_map::PutTag;
use super::regions::{LogCounts, Origin, PrimaryRegion, RegionLog, RegionView, not_seen_in_time, play_until};
use super::scan::{KeysFrom, KeysInOrder, MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{MapShard, MapView, ShardPlayed};
use super::stored::{StoreError, ViewLimits};
use super::{detached, entry_bytes};
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, DecodeError, Encode as _};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::fuzzylog::{FuzzyFailure, LogCount};

/// How often a taking is tried again that another one of its key came before; each time one has counted.
const ROUNDS_MAX: usize = 64;
/// Outcomes of this process's own takings that are remembered: as many as a session may have without an answer.
const OUTCOMES_MAX: usize = 1_024;

kernel::messages! {
    /// What a node of the colour does.
    pub enum BalanceNode {
        /// Blue: a key has so much more.
        1 => AddAmount {
            /// The key.
            key: Bytes,
            /// How much.
            amount: u64,
        },
        /// Red: a key has so much less, and another one perhaps so much more.
        2 => TakeAmount {
            /// Names it.
            tag: PutTag,
            /// The key.
            key: Bytes,
            /// How much.
            amount: u64,
            /// The last taking of the key that its process had seen: how many nodes of the primary region's log it was the last of.
            after: u64,
            /// Which key has it then; none: none.
            to: Option<Bytes>,
        },
    }
}

kernel::record! {
    /// What a key has, as it is stored.
    pub struct StoredBalance {
        /// The key.
        key: Bytes,
        /// How much: the upper half of 128 bits, and the lower one.
        amount: (u64, u64),
        /// The last taking that has counted: how many nodes of the primary region's log it was the last of; 0: none.
        last_taking: u64,
    }
}

kernel::record! {
    /// The view, as it is stored.
    pub struct StoredBalances {
        /// What each key has.
        balances: Vec<StoredBalance>,
        /// How many nodes of each region's log were played.
        logs: Vec<LogCount>,
    }
}

/// What a key has: a sum of fewer than 2^63 amounts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Balance {
    amount: i128,
    last_taking: u64,
}

/// The view: what was added to each key, and what was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Balances {
    primary: Bytes,
    balances: BTreeMap<Bytes, Balance>,
    logs: LogCounts,
    bytes: usize,
    /// This process, and whether its last takings have counted.
    process: u64,
    outcomes: VecDeque<(PutTag, bool)>,
}

impl Balances {
    fn new(primary: Bytes, process: u64) -> Self {
        let (balances, logs, outcomes) = (BTreeMap::new(), LogCounts::default(), VecDeque::new());
        Self { primary, balances, logs, bytes: 0, process, outcomes }
    }

    fn balance(&self, key: &str) -> Balance {
        self.balances.get(key.as_bytes()).copied().unwrap_or_default()
    }

    fn entry(&mut self, key: &Bytes) -> &mut Balance {
        if !self.balances.contains_key(key) {
            self.bytes += entry_bytes(key, &[0; size_of::<Balance>()]);
        }
        self.balances.entry(detached(key)).or_default()
    }

    /// The node that takes so much, for one who has seen this much; none: there is not enough.
    fn taking(&self, key: &str, amount: u64, to: Option<&str>, tag: PutTag) -> Option<TakeAmount> {
        let balance = self.balance(key);
        let bytes = |key: &str| Bytes::copy_from_slice(key.as_bytes());
        let (after, to) = (balance.last_taking, to.map(bytes));
        (balance.amount >= amount.into()).then(|| TakeAmount { tag, key: bytes(key), amount, after, to })
    }

    fn take(&mut self, taking: &TakeAmount, origin: &Origin) {
        let TakeAmount { tag, key, amount, after, to } = taking;
        let last = self.balances.get(key).map_or(0, |it| it.last_taking);
        // Who was not in the primary region has no place in its order.
        let counts = origin.region == self.primary && last == *after;
        if counts {
            let balance = self.entry(key);
            balance.amount -= i128::from(*amount);
            balance.last_taking = origin.number + 1;
            if let Some(to) = to {
                self.entry(to).amount += i128::from(*amount);
            }
        }
        if tag.process == self.process {
            self.outcomes.push_back((*tag, counts));
            self.outcomes.drain(..self.outcomes.len().saturating_sub(OUTCOMES_MAX));
        }
    }

    fn outcome(&self, tag: PutTag) -> Option<bool> {
        self.outcomes.iter().rev().find(|(known, _)| *known == tag).map(|(_, counts)| *counts)
    }
}

fn halves(amount: i128) -> (u64, u64) {
    ((amount >> 64) as u64, amount as u64)
}

fn whole((upper, lower): (u64, u64)) -> i128 {
    i128::from(upper as i64) << 64 | i128::from(lower)
}

impl KeysInOrder for Balances {
    type Held = i128;

    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, i128> {
        let keys = self.balances.range::<[u8], _>((from, Bound::Unbounded));
        Box::new(keys.map(|(key, balance)| (key, balance.amount)))
    }

    fn len_of(_: &i128) -> usize {
        size_of::<i128>()
    }
}

impl RegionView for Balances {
    fn logs(&self) -> &LogCounts {
        &self.logs
    }
}

impl MapView for Balances {
    fn play(&mut self, node: &FuzzyNode) {
        let origin = Origin::of(node, &self.primary);
        if !self.logs.take(&origin) {
            return;
        }
        match BalanceNode::decoded(&node.body) {
            Ok(BalanceNode::AddAmount(add)) => self.entry(&add.key).amount += i128::from(add.amount),
            Ok(BalanceNode::TakeAmount(taking)) => self.take(&taking, &origin),
            Err(_) => {}
        }
    }

    fn stored(&self) -> Vec<u8> {
        let stored = |(key, balance): (&Bytes, &Balance)| StoredBalance {
            key: key.clone(),
            amount: halves(balance.amount),
            last_taking: balance.last_taking,
        };
        let balances = self.balances.iter().map(stored).collect();
        StoredBalances { balances, logs: self.logs.stored() }.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredBalances { balances, logs } = StoredBalances::decoded(stored)?;
        let loaded = |it: &StoredBalance| {
            let balance = Balance { amount: whole(it.amount), last_taking: it.last_taking };
            (detached(&it.key), balance)
        };
        self.balances = balances.iter().map(loaded).collect();
        self.bytes = self.balances.keys().map(|key| entry_bytes(key, &[0; size_of::<Balance>()])).sum();
        self.logs = LogCounts::loaded(&logs);
        Ok(())
    }

    fn entries(&self) -> usize {
        self.balances.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Balances by key, over one colour. Adding is causal, and needs the caller's region alone; takings are in one order, which the primary region
/// makes, and a key never has less than 0 in any process. Cheap to clone; [`RedBlueMap::sync`] plays on.
#[derive(Debug)]
pub struct RedBlueMap<L> {
    shard: MapShard<L, Balances>,
    primary: PrimaryRegion<L>,
    process: u64,
    count: Arc<AtomicU64>,
}

impl<L: Clone> Clone for RedBlueMap<L> {
    fn clone(&self) -> Self {
        let (shard, primary) = (self.shard.clone(), self.primary.clone());
        Self { shard, primary, process: self.process, count: Arc::clone(&self.count) }
    }
}

impl<L: RegionLog> RedBlueMap<L> {
    /// The map `name`, in the region of `log`. Every process must name the same primary region. `process`: 64 bits that no other process
    /// has.
    pub fn open(log: &L, name: &str, primary: PrimaryRegion<L>, process: u64) -> Self {
        let view = Balances::new(primary.name().clone(), process);
        let shard = MapShard::new(log.clone(), name, view);
        Self { shard, primary: primary.of_a_map(), process, count: Arc::default() }
    }

    /// Blue: a key has so much more. It is done in this region, and will be in all others.
    pub async fn add(&self, key: &str, amount: u64) -> Result<(), FuzzyError> {
        let add = AddAmount { key: Bytes::copy_from_slice(key.as_bytes()), amount };
        let body = BalanceNode::from(add).encoded().into();
        self.shard.log().append(vec![(self.shard.colour().to_owned(), body)]).await?;
        // Who goes on from here has seen its own change.
        self.sync().await.map_err(FuzzyError::behind_an_append)
    }

    /// Red: a key has so much less. False: it had less than that, at a point of the primary region's order during the call, and nothing
    /// was done. Returns when this process has seen it.
    ///
    /// # Errors
    /// [`FuzzyError::is_surely_void`]: the primary region was not reached, or has not all that was seen here, and nothing was done. Else it
    /// may have been taken, or may still be.
    pub async fn take(&self, key: &str, amount: u64) -> Result<bool, FuzzyError> {
        self.taken(key, amount, None).await
    }

    /// Red: the same, and another key has so much more.
    pub async fn transfer(&self, key: &str, to: &str, amount: u64) -> Result<bool, FuzzyError> {
        self.taken(key, amount, Some(to)).await
    }

    async fn taken(&self, key: &str, amount: u64, to: Option<&str>) -> Result<bool, FuzzyError> {
        let mut is_fresh = false;
        for _ in 0..ROUNDS_MAX {
            let tag = PutTag { count: self.count.fetch_add(1, Ordering::Relaxed), process: self.process };
            let (taking, seen) = {
                let played = self.shard.view().await;
                (played.view.taking(key, amount, to, tag), played.next)
            };
            let Some(taking) = taking else {
                if is_fresh {
                    return Ok(false);
                }
                self.primary.catch_up(&self.shard).await?;
                is_fresh = true;
                continue;
            };
            let body = BalanceNode::from(taking).encoded().into();
            self.primary.append(&self.shard, seen, body).await?;
            let wait = self.primary.wait();
            let outcome = play_until(&self.shard, wait, |played| played.view.outcome(tag)).await;
            match outcome.map_err(FuzzyError::behind_an_append)? {
                Some(true) => return Ok(true),
                // Another one of the key came before, which is seen by now.
                Some(false) => {}
                None => return Err(not_seen_in_time(wait)),
            }
        }
        Err(FuzzyError::Failed(FuzzyFailure::Busy))
    }

    /// What a key has, as far as this process has played. Never below 0.
    pub async fn balance(&self, key: &str) -> i128 {
        self.shard.view().await.view.balance(key).amount
    }

    /// A page of keys and what they have, in order, as far as this process has played.
    pub async fn scan(&self, scan: &MapScan, point: Option<&MapScanPoint>) -> MapKeys<i128> {
        page_of(&[&self.shard.view().await.view], scan, point)
    }

    /// Plays everything that is in this region.
    pub async fn sync(&self) -> Result<(), FuzzyError> {
        self.shard.follow().await?;
        self.primary.check(&self.shard)
    }

    /// What this process has of it.
    pub async fn status(&self) -> Vec<ShardPlayed> {
        vec![self.shard.status().await]
    }

    /// Stores the view if it is time, and trims the log behind it, in this region. Returns how many.
    pub async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        Ok(usize::from(self.shard.store(limits).await?.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::regions::orders::{all, node};
    use super::*;

    fn add(key: &'static str, amount: u64) -> Vec<u8> {
        BalanceNode::from(AddAmount { key: Bytes::from_static(key.as_bytes()), amount }).encoded()
    }

    fn take(count: u64, amount: u64, after: u64, to: Option<&'static str>) -> Vec<u8> {
        let (tag, to) = (PutTag { count, process: 1 }, to.map(|key| Bytes::from_static(key.as_bytes())));
        BalanceNode::from(TakeAmount { tag, key: Bytes::from_static(b"a"), amount, after, to }).encoded()
    }

    fn view() -> Balances {
        Balances::new(Bytes::from_static(b"ohio"), 1)
    }

    /// What was added in two regions, and taken by those who had seen enough of it, or had not seen each other.
    fn nodes() -> Vec<FuzzyNode> {
        vec![
            node("ohio", 0, &[], add("a", 5)),
            node("ohio", 1, &[("tokyo", 1)], take(1, 8, 0, None)),
            // Has not seen the one before it: in ohio there is enough for both, where tokyo's second one was played.
            node("ohio", 2, &[], take(2, 5, 0, None)),
            node("ohio", 3, &[("tokyo", 2)], take(3, 6, 2, Some("b"))),
            node("tokyo", 0, &[], add("a", 4)),
            node("tokyo", 1, &[], add("a", 6)),
            // No place in the primary region's order.
            node("tokyo", 2, &[], take(4, 1, 0, None)),
            node("tokyo", 3, &[("ohio", 4)], add("b", 1)),
        ]
    }

    // A taking that counts in one region and not in another; or one that a region plays before what it takes.
    #[test]
    fn takings_count_everywhere_or_nowhere_and_there_is_always_enough() {
        let orders = all(&nodes());
        assert!(orders.len() > 20, "{} orders", orders.len());
        for order in orders {
            let mut played = view();
            for node in &order {
                played.play(node);
                let again = played.clone();
                order.iter().take(node.position as usize + 1).for_each(|node| played.play(node));
                assert_eq!(played, again, "a node that comes again changes nothing");
                assert!(played.balances.values().all(|it| it.amount >= 0), "{played:?} after {node:?}");
            }
            let left = ["a", "b"].map(|key| played.balance(key));
            assert_eq!(left, [Balance { amount: 1, last_taking: 4 }, Balance { amount: 7, last_taking: 0 }]);
            let outcomes = [1, 2, 3, 4].map(|count| played.outcome(PutTag { count, process: 1 }));
            assert_eq!(outcomes, [Some(true), Some(false), Some(true), Some(false)]);
            let mut loaded = view();
            loaded.load(&played.stored().into()).expect("it was stored");
            assert_eq!((loaded.stored(), loaded.bytes()), (played.stored(), played.bytes()));
        }
    }

    // A taking that is made although there is not enough.
    #[test]
    fn what_is_not_there_is_not_taken() {
        let (mut view, tag) = (view(), PutTag { count: 1, process: 1 });
        assert_eq!(view.taking("a", 1, None, tag), None);
        view.play(&nodes()[0]);
        assert!(view.taking("a", 5, None, tag).is_some() && view.taking("a", 6, None, tag).is_none());
    }

    // A sum that is read as another one.
    #[test]
    fn sums_of_more_than_64_bits_are_stored() {
        for amount in [0, 1, -1, i128::from(u64::MAX) * 3, i128::MIN] {
            assert_eq!(whole(halves(amount)), amount);
        }
    }
}
