//! CRDTMap (the paper's section 4.2): an observed-remove map, whose copies converge however concurrent changes are ordered.

use super::log::MapLog;
use super::named::{self, ChangeName, ChangeNames, StoredNames};
use super::scan::{KeysFrom, KeysInOrder, MapKeys, MapScan, MapScanPoint, page_of};
use super::shard::{MapShard, MapView, ShardPlayed};
use super::stored::{StoreError, ViewLimits};
use super::{detached, entry_bytes};
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, DecodeError, Encode as _, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::fuzzylog::NumberedBy;

kernel::record! {
    /// Names a put: who made it, and the how manieth of its own.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct PutTag {
        /// Counts the puts; those that have seen another one count on from it.
        count: u64,
        /// Drawn at random by each process.
        process: u64,
    }
}

kernel::record! {
    /// A change of a key: what it subsumes, and what it puts.
    #[derive(Eq)]
    pub struct KeyChange {
        /// The key.
        key: Bytes,
        /// The puts that its process had seen, and that it takes away.
        subsumes: Vec<PutTag>,
        /// What it puts.
        put: Option<Bytes>,
        /// The name of what it puts.
        tag: PutTag,
    }
}

kernel::record! {
    /// The same as a node holds it.
    pub struct NamedChange {
        /// The change.
        change: KeyChange,
        /// Its name, if it is to be executed once.
        name: Option<ChangeName>,
    }
}

kernel::record! {
    /// The view of a map, as it is stored.
    pub struct StoredKeys {
        /// What keys hold.
        puts: StoredPuts,
        /// The names of changes.
        names: Option<Vec<StoredNames>>,
    }
}

kernel::record! {
    /// What keys hold, as it is stored. A change comes behind those that it subsumes, so nothing is remembered of what was taken away.
    pub struct StoredPuts {
        /// The largest count seen.
        count: u64,
        /// The puts of each key.
        puts: Vec<(Bytes, Vec<(PutTag, Bytes)>)>,
    }
}

/// The view: the puts of each key that nothing subsumes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ObservedPuts {
    puts: BTreeMap<Bytes, BTreeMap<PutTag, Bytes>>,
    /// The largest count seen.
    count: u64,
    /// What keys and values take in memory.
    bytes: usize,
}

/// What a put takes in memory beside its value: its tag, and its part of a tree.
const PUT_BYTES: usize = 128;

impl ObservedPuts {
    /// Takes a change in. Changes that have not seen each other may come in any order.
    pub fn apply(&mut self, change: &KeyChange) {
        self.count = self.count.max(change.tag.count);
        let is_new = !self.puts.contains_key(&change.key);
        let puts = self.puts.entry(detached(&change.key)).or_default();
        let mut bytes = self.bytes + if is_new { entry_bytes(&change.key, &[]) } else { 0 };
        for tag in &change.subsumes {
            bytes -= puts.remove(tag).map_or(0, |value| PUT_BYTES + value.len());
        }
        if planted!(delete_takes_all) && change.put.is_none() {
            bytes -= puts.values().map(|value| PUT_BYTES + value.len()).sum::<usize>();
            puts.clear();
        }
        if let Some(value) = &change.put {
            let before = puts.insert(change.tag, detached(value));
            bytes -= before.map_or(0, |value| PUT_BYTES + value.len());
            bytes += PUT_BYTES + value.len();
        }
        if puts.is_empty() {
            self.puts.remove(&change.key);
            bytes -= entry_bytes(&change.key, &[]);
        }
        self.bytes = bytes;
    }

    fn counted(puts: &BTreeMap<Bytes, BTreeMap<PutTag, Bytes>>) -> usize {
        let of = |puts: &BTreeMap<PutTag, Bytes>| puts.values().map(|it| PUT_BYTES + it.len()).sum::<usize>();
        puts.iter().map(|(key, puts)| entry_bytes(key, &[]) + of(puts)).sum()
    }

    /// What a key holds: of concurrent puts, the one that all copies choose.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.puts.get(key.as_bytes())?.last_key_value().map(|(_, value)| value.clone())
    }

    /// How many keys hold something.
    pub(super) fn entries(&self) -> usize {
        self.puts.len()
    }

    /// What keys and values take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The largest count of a change that was taken in.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All concurrent puts of a key.
    pub fn all(&self, key: &str) -> BTreeSet<Bytes> {
        self.puts.get(key.as_bytes()).into_iter().flat_map(|puts| puts.values().cloned()).collect()
    }

    /// As it is stored.
    pub(super) fn to_stored(&self) -> StoredPuts {
        let pairs =
            |puts: &BTreeMap<PutTag, Bytes>| puts.iter().map(|(tag, value)| (*tag, value.clone())).collect();
        let puts = self.puts.iter().map(|(key, puts)| (key.clone(), pairs(puts))).collect();
        StoredPuts { count: self.count, puts }
    }

    /// As it was stored.
    pub(super) fn of_stored(stored: StoredPuts) -> Self {
        let StoredPuts { count, puts } = stored;
        let puts = puts.into_iter().map(|(key, puts)| {
            let puts = puts.into_iter().map(|(tag, value)| (tag, detached(&value))).collect();
            (detached(&key), puts)
        });
        let puts = puts.collect();
        Self { bytes: Self::counted(&puts), puts, count }
    }

    /// The change that sets or removes a key, for one who has seen this much.
    pub fn change(&self, key: &str, put: Option<Bytes>, process: u64) -> KeyChange {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let subsumes = self.puts.get(&key).into_iter().flat_map(|puts| puts.keys().copied()).collect();
        KeyChange { key, subsumes, put, tag: PutTag { count: self.count + 1, process } }
    }
}

impl KeysInOrder for ObservedPuts {
    type Held = Bytes;

    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, Bytes> {
        let keys = self.puts.range::<[u8], _>((from, Bound::Unbounded));
        Box::new(keys.filter_map(|(key, puts)| Some((key, puts.last_key_value()?.1.clone()))))
    }

    fn len_of(value: &Bytes) -> usize {
        value.len()
    }
}

/// The view of a map: what keys hold, and which changes with names were executed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ObservedKeys {
    puts: ObservedPuts,
    names: ChangeNames,
}

impl ObservedKeys {
    /// What keys hold.
    pub fn puts(&self) -> &ObservedPuts {
        &self.puts
    }

    /// Which changes with names were executed.
    pub fn names(&self) -> &ChangeNames {
        &self.names
    }

    /// Takes a node's changes in, unless one of their name was taken in before.
    pub(super) fn take<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a KeyChange>,
        name: Option<ChangeName>,
        position: u64,
    ) {
        if name.is_none_or(|name| self.names.admits(&name, position)) {
            changes.into_iter().for_each(|change| self.puts.apply(change));
        }
    }
}

impl MapView for ObservedKeys {
    fn play(&mut self, node: &FuzzyNode) {
        if let Ok(NamedChange { change, name }) = NamedChange::decoded(&node.body) {
            self.take([&change], name, node.position);
        }
    }

    fn stored(&self) -> Vec<u8> {
        let mut stored = self.puts.to_stored().encoded();
        self.names.store(&mut stored);
        stored
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredKeys { puts, names } = StoredKeys::decoded(stored)?;
        let (puts, names) = (ObservedPuts::of_stored(puts), ChangeNames::of_stored(names));
        *self = Self { puts, names };
        Ok(())
    }

    fn entries(&self) -> usize {
        self.puts.entries()
    }

    fn bytes(&self) -> usize {
        self.puts.bytes() + self.names.bytes()
    }
}

/// A map over one colour. Causally consistent: reads and changes go by what this process has played, and ask nobody; a change that was
/// made without knowing of another one does not undo it. Cheap to clone; [`CrdtMap::sync`] plays on.
#[derive(Debug)]
pub struct CrdtMap<L> {
    shard: MapShard<L, ObservedKeys>,
    process: u64,
    /// Changes that were begun here.
    count: Arc<AtomicU64>,
}

impl<L: Clone> Clone for CrdtMap<L> {
    fn clone(&self) -> Self {
        Self { shard: self.shard.clone(), process: self.process, count: Arc::clone(&self.count) }
    }
}

impl<L: MapLog> CrdtMap<L> {
    /// The map `name`; `process`: 64 bits that no other process has.
    pub fn open(log: &L, name: &str, process: u64) -> Self {
        Self {
            shard: MapShard::new(log.clone(), name, ObservedKeys::default()),
            process,
            count: Arc::default(),
        }
    }

    /// Sets a key.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<(), FuzzyError> {
        self.change(None, key, Some(value.into())).await
    }

    /// Removes what this process knows the key to hold.
    pub async fn delete(&self, key: &str) -> Result<(), FuzzyError> {
        self.change(None, key, None).await
    }

    /// Sets a key, or removes what this process knows it to hold; with a number once, however often and through whichever process it is
    /// sent. A map of several regions has no numbers.
    pub async fn change(
        &self,
        by: Option<NumberedBy>,
        key: &str,
        put: Option<Bytes>,
    ) -> Result<(), FuzzyError> {
        let name = match by {
            Some(by) => {
                by.check(1)?;
                self.sync().await?;
                Some(named::name_of(by, [(key, &put)].into_iter()))
            }
            None => None,
        };
        let body = {
            let played = self.shard.view().await;
            if let Some(name) = &name
                && named::is_over(self.shard.log(), [played.view.names.past(name)])?
            {
                return Ok(());
            }
            let mut change = played.view.puts.change(key, put, self.process);
            // Two changes of one process that have seen the same have two names.
            let before = self.count.fetch_max(change.tag.count, Ordering::Relaxed);
            if before >= change.tag.count {
                change.tag.count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
            }
            named::body_of(&change, name)
        };
        self.shard.log().append(vec![(self.shard.colour().to_owned(), body)]).await?;
        // Who goes on from here has seen its own change.
        self.sync().await.map_err(FuzzyError::behind_an_append)
    }

    /// What a key holds, as far as this process has played.
    pub async fn get(&self, key: &str) -> Option<Bytes> {
        self.shard.view().await.view.puts.get(key)
    }

    /// All values of a key that were put without knowing of each other.
    pub async fn get_concurrent(&self, key: &str) -> BTreeSet<Bytes> {
        self.shard.view().await.view.puts.all(key)
    }

    /// A page of keys and what they hold, in order, as far as this process has played.
    pub async fn scan(&self, scan: &MapScan, point: Option<&MapScanPoint>) -> MapKeys<Bytes> {
        page_of(&[&self.shard.view().await.view.puts], scan, point)
    }

    /// Plays everything that was appended before.
    pub async fn sync(&self) -> Result<(), FuzzyError> {
        self.shard.follow().await
    }

    /// What this process has of it.
    pub async fn status(&self) -> Vec<ShardPlayed> {
        vec![self.shard.status().await]
    }

    /// Stores the view if it is time, and trims the log behind it. Returns how many.
    pub async fn store_views(&self, limits: &ViewLimits) -> Result<usize, StoreError> {
        Ok(usize::from(self.shard.store(limits).await?.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    /// Every order of changes that have not seen each other.
    fn orders(changes: &[KeyChange]) -> Vec<Vec<KeyChange>> {
        if changes.is_empty() {
            return vec![Vec::new()];
        }
        (0..changes.len())
            .flat_map(|first| {
                let mut rest = changes.to_vec();
                let first = rest.remove(first);
                orders(&rest).into_iter().map(move |mut order| {
                    order.insert(0, first.clone());
                    order
                })
            })
            .collect()
    }

    // A map whose changes have no names is read by no earlier version any more; or one that an earlier version has made is read by nobody.
    #[test]
    fn what_has_no_name_is_as_it_was_before_there_were_names() {
        let mut puts = ObservedPuts::default();
        let change = puts.change("a", Some(bytes("1")), 7);
        puts.apply(&change);
        let node = |body: Bytes, position| FuzzyNode {
            position,
            at: Default::default(),
            colours: vec!["m".to_owned()],
            body,
            origin: None,
        };
        let (plain, before) = (named::body_of(&change, None), puts.to_stored().encoded());
        assert_eq!(plain, change.encoded());
        let mut view = ObservedKeys::default();
        view.play(&node(plain, 0));
        assert_eq!(view.stored(), before);
        let mut loaded = ObservedKeys::default();
        loaded.load(&before.clone().into()).expect("an earlier version has stored it");
        assert_eq!(loaded, view);
        let by = NumberedBy { client: 1, number: 2, below: 2 };
        let name = named::name_of(by, [("a", &Some(bytes("2")))].into_iter());
        let other = view.puts().change("a", Some(bytes("2")), 8);
        let body = named::body_of(&other, Some(name));
        assert_eq!(NamedChange::decoded(&body), Ok(NamedChange { change: other, name: Some(name) }));
        assert!(KeyChange::decoded(&body).is_ok(), "an earlier version reads it without its name");
        view.play(&node(body.clone(), 1));
        view.play(&node(body, 2));
        assert_eq!(view.names().past(&name), named::NamePast::Done);
        let stored = view.stored();
        loaded.load(&stored.clone().into()).expect("it is stored");
        assert_eq!((&loaded, loaded.stored()), (&view, stored));
        assert!(ObservedKeys::default().load(&Bytes::from_static(b"nonsense")).is_err());
    }

    // Copies that play concurrent changes in different orders differ for good.
    #[test]
    fn copies_converge_in_every_order_of_concurrent_changes() {
        let mut seen = ObservedPuts::default();
        seen.apply(&seen.change("a", Some(bytes("0")), 1));
        let concurrent = [
            seen.change("a", Some(bytes("1")), 1),
            seen.change("a", Some(bytes("2")), 2),
            seen.change("a", None, 3),
            seen.change("b", Some(bytes("3")), 4),
        ];
        let mut ends: Vec<ObservedPuts> = orders(&concurrent)
            .into_iter()
            .map(|order| {
                let mut copy = seen.clone();
                order.iter().for_each(|change| copy.apply(change));
                copy
            })
            .collect();
        ends.dedup();
        assert_eq!(ends.len(), 1);
        assert_eq!(ends[0].all("a"), BTreeSet::from([bytes("1"), bytes("2")]), "neither knew of the other");
        assert_eq!(ends[0].get("a"), Some(bytes("2")));
    }

    // A delete that takes away what it has not seen loses a put that nobody has undone.
    #[test]
    fn a_delete_takes_away_what_it_has_seen() {
        let mut view = ObservedPuts::default();
        view.apply(&view.change("a", Some(bytes("1")), 1));
        let delete = view.change("a", None, 2);
        view.apply(&view.change("a", Some(bytes("2")), 1));
        view.apply(&delete);
        assert_eq!(view.get("a"), Some(bytes("2")));
        view.apply(&view.change("a", None, 2));
        assert_eq!(view, ObservedPuts { puts: BTreeMap::new(), count: 3, bytes: 0 });
    }
}
