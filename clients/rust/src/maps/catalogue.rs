//! Which maps there are: the colour `ordinate.maps` says which were made and removed. The first of a name counts until it is removed.
//!
//! ```text
//! ordinate.maps     made m (1) ........ removed m (1) .................. emptied m (1) .... made m (2)
//! m.0, m.1          changes ....................... [the last node], and trimmed whole
//! m#2.0, m#2.1      (colours of the map that is made anew)
//! ```
//! A removal is done when each colour has a last node: who plays on from an old view finds it, or finds that it is trimmed, and what is
//! appended behind it counts for nothing. Who removes a map may die in between: the next process that looks ends it.
//!
//! Invariant: no two maps have a colour in common. The first map of a name has the name's colours; each later one has its own number in
//! them, so that nothing that an old user appends is ever a part of it.

use super::log::MapLog;
use super::shard::{MapShard, MapView, last_node};
use super::stored::{StoreError, ViewLimits};
use super::{detached, entry_bytes};
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use kernel::{Bytes, Decode as _, DecodeError, Encode as _};
use std::collections::{BTreeMap, VecDeque};
use wire::fuzzylog::{COLOURS_MAX, FuzzyFailure, FuzzyFault, check_colour};

/// The colour.
const COLOUR: &str = "ordinate.maps";
/// How many maps there are at most: what processes have of them has a bound, the same everywhere.
pub const MAPS_MAX: usize = 1_024;
/// Removed maps that are remembered.
const REMOVED_MAX: usize = 1_024;
/// How often a map is tried to be made; each time another one of its name was made and removed.
const ROUNDS_MAX: usize = 16;
/// Nodes of the colour of so many bytes are replaced by a stored view.
const LOG_BYTES: u64 = 64 << 10;

kernel::record! {
    /// Something happened to a map.
    pub struct MapEntry {
        /// Its name.
        name: Bytes,
        /// Its kind's name.
        kind: Bytes,
        /// How many colours it has.
        shards: u16,
        /// Which map of the name; an earlier version's has none.
        id: Option<u64>,
        /// None: it is made. 1: it is removed. 2: its colours are empty.
        stage: Option<u8>,
    }
}

const REMOVED: u8 = 1;
const EMPTIED: u8 = 2;

kernel::record! {
    /// A map, as a view is stored.
    pub struct StoredMap {
        /// Its name.
        name: Bytes,
        /// Its kind's name.
        kind: Bytes,
        /// How many colours it has.
        shards: u16,
        /// Which map of the name.
        id: u64,
        /// Its colours have its name alone.
        is_first: bool,
        /// Its colours are empty.
        is_emptied: bool,
    }
}

kernel::record! {
    /// The maps, as a view is stored.
    pub struct StoredMaps {
        /// Those that there are.
        made: Vec<StoredMap>,
        /// Those that were removed.
        removed: Vec<StoredMap>,
        /// Some that were removed are not remembered.
        has_forgotten: bool,
    }
}

/// How a map was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapMade {
    /// Its kind's name.
    pub kind: String,
    /// How many colours it has.
    pub shards: u16,
    /// Which map of the name; 0 of an earlier version's.
    pub id: u64,
    is_first: bool,
}

impl MapMade {
    /// What its colours are named after: the name under which the maps of this library open it.
    pub fn opened_as(&self, name: &str) -> String {
        if self.is_first { name.to_owned() } else { format!("{name}#{:016x}", self.id) }
    }
}

/// Whether a map can have this name: its colours must have theirs.
pub fn check_map_name(name: &str) -> Result<(), FuzzyFault> {
    check_colour(name.as_bytes())?;
    check_colour(format!("{name}.{}.view", COLOURS_MAX - 1).as_bytes())
}

/// Whether somebody may make a map of this name: its colours are no other map's.
fn may_be_made(name: &str) -> bool {
    let number = name.rsplit_once('#').map(|(_, number)| number);
    !number.is_some_and(|it| it.len() == 16 && it.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A map that was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RemovedMap {
    name: String,
    made: MapMade,
    is_emptied: bool,
}

/// The maps, as far as nodes were played.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MapNames {
    made: BTreeMap<String, MapMade>,
    /// In the order in which they were removed.
    removed: VecDeque<RemovedMap>,
    has_forgotten: bool,
    bytes: usize,
}

impl MapNames {
    fn removed(&self, name: &str, id: u64) -> Option<&RemovedMap> {
        self.removed.iter().find(|it| it.name == name && it.made.id == id)
    }

    /// The last map of a name that was removed.
    fn last_removed(&self, name: &str) -> Option<&RemovedMap> {
        self.removed.iter().rev().find(|it| it.name == name)
    }

    /// No map of this name was ever removed, as far as that is known.
    fn is_first(&self, name: &str) -> bool {
        !self.has_forgotten && self.last_removed(name).is_none()
    }

    fn take(&mut self, entry: &MapEntry) {
        let MapEntry { name, kind, shards, id, stage } = entry;
        let (Ok(name), Ok(kind)) = (std::str::from_utf8(name), std::str::from_utf8(kind)) else { return };
        let is_sound = check_map_name(name).is_ok() && (1..=COLOURS_MAX).contains(&usize::from(*shards));
        if !is_sound {
            return;
        }
        let number = id.unwrap_or(0);
        match stage {
            None => {
                let is_first = self.is_first(name);
                let made = MapMade { kind: kind.to_owned(), shards: *shards, id: number, is_first };
                let is_new = self.removed(name, number).is_none() && !self.made.contains_key(name);
                let has_room = self.made.len() < MAPS_MAX;
                let has_names = check_map_name(&made.opened_as(name)).is_ok();
                if is_new && has_room && has_names && (is_first || id.is_some()) {
                    self.bytes += entry_bytes(name.as_bytes(), kind.as_bytes());
                    self.made.insert(name.to_owned(), made);
                }
            }
            Some(REMOVED) => {
                let has_room = self.removed.iter().filter(|it| !it.is_emptied).count() < REMOVED_MAX;
                if has_room && self.made.get(name).is_some_and(|it| it.id == number) {
                    let Some(made) = self.made.remove(name) else { return };
                    self.removed.push_back(RemovedMap { name: name.to_owned(), made, is_emptied: false });
                    self.forget();
                }
            }
            Some(EMPTIED) => {
                for it in &mut self.removed {
                    it.is_emptied |= it.name == name && it.made.id == number;
                }
            }
            // A later version's.
            Some(_) => {}
        }
    }

    /// What is too much of what was removed is not remembered: from then on no map has a name's colours alone.
    fn forget(&mut self) {
        while self.removed.len() > REMOVED_MAX {
            let Some(at) = self.removed.iter().position(|it| it.is_emptied) else { return };
            if let Some(gone) = self.removed.remove(at) {
                self.bytes -= entry_bytes(gone.name.as_bytes(), gone.made.kind.as_bytes());
            }
            self.has_forgotten = true;
        }
    }

    fn counted(&self) -> usize {
        let size = |name: &str, made: &MapMade| entry_bytes(name.as_bytes(), made.kind.as_bytes());
        let made = self.made.iter().map(|(name, made)| size(name, made)).sum::<usize>();
        made + self.removed.iter().map(|it| size(&it.name, &it.made)).sum::<usize>()
    }
}

fn to_stored(name: &str, made: &MapMade, is_emptied: bool) -> StoredMap {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let MapMade { ref kind, shards, id, is_first } = *made;
    StoredMap { name: bytes(name), kind: bytes(kind), shards, id, is_first, is_emptied }
}

fn of_stored(stored: &StoredMap) -> (String, MapMade) {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let StoredMap { shards, id, is_first, .. } = *stored;
    (text(&stored.name), MapMade { kind: text(&stored.kind), shards, id, is_first })
}

impl MapView for MapNames {
    fn play(&mut self, node: &FuzzyNode) {
        if let Ok(entry) = MapEntry::decoded(&detached(&node.body)) {
            self.take(&entry);
        }
    }

    fn stored(&self) -> Vec<u8> {
        let made = self.made.iter().map(|(name, made)| to_stored(name, made, false)).collect();
        let removed = self.removed.iter().map(|it| to_stored(&it.name, &it.made, it.is_emptied)).collect();
        StoredMaps { made, removed, has_forgotten: self.has_forgotten }.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredMaps { made, removed, has_forgotten } = StoredMaps::decoded(stored)?;
        let removed = removed.iter().map(|it| {
            let (name, made) = of_stored(it);
            RemovedMap { name, made, is_emptied: it.is_emptied }
        });
        let removed = removed.collect();
        *self = Self { made: made.iter().map(of_stored).collect(), removed, has_forgotten, bytes: 0 };
        self.bytes = self.counted();
        Ok(())
    }

    fn entries(&self) -> usize {
        self.made.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A map was not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotCreated {
    /// There is one already, which is another one.
    #[error("there is a map of this name already, of the kind {} and of {} shards", .0.kind, .0.shards)]
    Other(MapMade),
    /// There are as many as there can be.
    #[error("there are {MAPS_MAX} maps, which is as many as there can be")]
    TooMany,
    /// Colours of another map could have this name's; or, where a map of the name was removed, it is too long to be used again.
    #[error("no map can be made under this name")]
    Name,
    /// The log's word.
    #[error(transparent)]
    Log(#[from] FuzzyError),
}

/// A map was not removed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotRemoved {
    /// There is none of this name, and none that was removed lately.
    #[error("there is no such map")]
    NoMap,
    /// It is another one that has the name now.
    #[error("another map has this name now: {:x}", .0.id)]
    Other(MapMade),
    /// Too many that were removed have colours that are not empty yet.
    #[error("{REMOVED_MAX} removed maps are not empty yet")]
    TooMany,
    /// The log's word. The map may be removed, and its colours not be empty yet.
    #[error(transparent)]
    Log(#[from] FuzzyError),
}

/// The maps of a cluster, which has one region alone. Cheap to clone.
#[derive(Debug)]
pub struct MapCatalogue<L> {
    shard: MapShard<L, MapNames>,
}

impl<L: Clone> Clone for MapCatalogue<L> {
    fn clone(&self) -> Self {
        Self { shard: self.shard.clone() }
    }
}

impl<L: MapLog> MapCatalogue<L> {
    /// Nothing was played yet.
    pub fn open(log: &L) -> Self {
        Self { shard: MapShard::new(log.clone(), COLOUR, MapNames::default()) }
    }

    /// The map of this name. One that is known here is found without asking anybody, and may be removed: then its colours say so.
    pub async fn find(&self, name: &str) -> Result<Option<MapMade>, FuzzyError> {
        let known = self.shard.view().await.view.made.get(name).cloned();
        if known.is_some() { Ok(known) } else { self.find_now(name).await }
    }

    /// The map that has this name now.
    pub async fn find_now(&self, name: &str) -> Result<Option<MapMade>, FuzzyError> {
        Ok(self.shard.synced().await?.view.made.get(name).cloned())
    }

    /// All of them.
    pub async fn all(&self) -> Result<BTreeMap<String, MapMade>, FuzzyError> {
        Ok(self.shard.synced().await?.view.made.clone())
    }

    /// How many removed maps have colours that are not empty yet.
    pub async fn unfinished(&self) -> Result<usize, FuzzyError> {
        Ok(self.shard.synced().await?.view.removed.iter().filter(|it| !it.is_emptied).count())
    }

    /// Which of two is the first of a name, or the last, is not the same in all regions.
    fn check_regions(&self) -> Result<(), FuzzyError> {
        let is_among_regions = self.shard.log().is_among_regions();
        if is_among_regions { Err(FuzzyError::Failed(FuzzyFailure::OtherRegion)) } else { Ok(()) }
    }

    async fn append(&self, name: &str, made: &MapMade, stage: Option<u8>) -> Result<(), FuzzyError> {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let (kind, shards, id) = (bytes(&made.kind), made.shards, Some(made.id));
        let body = MapEntry { name: bytes(name), kind, shards, id, stage }.encoded().into();
        self.shard.log().append(vec![(COLOUR.to_owned(), body)]).await.map(|_| ())
    }

    /// Makes a map, or finds that it is there as it is wanted; says whether it was made by this call. `id`: 64 bits that no other map has.
    pub async fn create(
        &self,
        name: &str,
        kind: &str,
        shards: u16,
        id: u64,
    ) -> Result<(MapMade, bool), NotCreated> {
        let is_wanted = |made: &MapMade| made.kind == kind && made.shards == shards;
        let judged = |found: MapMade| match is_wanted(&found) {
            true => Ok((found, false)),
            false => Err(NotCreated::Other(found)),
        };
        let made = MapMade { kind: kind.to_owned(), shards, id, is_first: false };
        for round in 0..ROUNDS_MAX {
            let (found, has_room, is_first) = {
                let played = self.shard.synced().await.map_err(|error| match round {
                    0 => error,
                    _ => error.behind_an_append(),
                })?;
                let view = &played.view;
                self.check_regions()?;
                if let Some(removed) = view.removed(name, id) {
                    // It was made, and is removed by now.
                    return Ok((removed.made.clone(), true));
                }
                (view.made.get(name).cloned(), view.made.len() < MAPS_MAX, view.is_first(name))
            };
            match found {
                Some(found) if found.id == id => return Ok((found, true)),
                Some(found) => return judged(found),
                None if !has_room => return Err(NotCreated::TooMany),
                None => {}
            }
            let has_names = is_first || check_map_name(&made.opened_as(name)).is_ok();
            if check_map_name(name).is_err() || !may_be_made(name) || !has_names {
                return Err(NotCreated::Name);
            }
            // Somebody else may be first, and be removed at once: then it is to be made again.
            self.append(name, &made, None).await?;
        }
        Err(FuzzyError::Failed(FuzzyFailure::Busy).behind_an_append().into())
    }

    /// Removes the map of this name, with all that it has in the log; of this `id` alone, if there is one. Returns which, and false if it was
    /// removed before. When this ends well, each process that plays the map learns that it is gone.
    pub async fn remove(&self, name: &str, id: Option<u64>) -> Result<(MapMade, bool), NotRemoved> {
        let (found, before) = {
            let played = self.shard.synced().await?;
            self.check_regions()?;
            let before = match id {
                Some(id) => played.view.removed(name, id),
                None => played.view.last_removed(name),
            };
            (played.view.made.get(name).cloned(), before.cloned())
        };
        let made = match (found, before) {
            (Some(found), _) if id.is_none_or(|id| found.id == id) => found,
            (_, Some(before)) => {
                self.empty(name, &before.made).await?;
                return Ok((before.made, false));
            }
            (Some(found), None) => return Err(NotRemoved::Other(found)),
            (None, None) => return Err(NotRemoved::NoMap),
        };
        self.append(name, &made, Some(REMOVED)).await?;
        {
            let played = self.shard.synced().await.map_err(FuzzyError::behind_an_append)?;
            if played.view.made.get(name).is_some_and(|it| it.id == made.id) {
                return Err(NotRemoved::TooMany);
            }
        }
        self.empty(name, &made).await.map_err(FuzzyError::behind_an_append)?;
        Ok((made, true))
    }

    /// Ends the removals that others have begun. Returns how many.
    pub async fn end_removals(&self) -> Result<usize, FuzzyError> {
        let unfinished: Vec<RemovedMap> = {
            let played = self.shard.synced().await?;
            played.view.removed.iter().filter(|it| !it.is_emptied).cloned().collect()
        };
        for RemovedMap { name, made, .. } in &unfinished {
            self.empty(name, made).await?;
        }
        Ok(unfinished.len())
    }

    /// Gives each colour of a removed map its last node, and trims all colours, with the views that were stored. Twice is as once.
    async fn empty(&self, name: &str, made: &MapMade) -> Result<(), FuzzyError> {
        let (log, name_of_colours) = (self.shard.log(), made.opened_as(name));
        let colours: Vec<String> = (0..made.shards).map(|at| format!("{name_of_colours}.{at}")).collect();
        let last = colours.iter().map(|colour| (colour.clone(), last_node())).collect();
        log.append(last).await?;
        for colour in &colours {
            for colour in [colour.clone(), format!("{colour}.view")] {
                let tail = match log.play(&colour, u64::MAX, None).await {
                    Ok(page) => page.tail,
                    Err(FuzzyError::BeyondTail { tail }) => tail,
                    Err(error) => return Err(error),
                };
                if tail > 0 {
                    log.trim(&colour, tail).await?;
                }
            }
        }
        self.append(name, made, Some(EMPTIED)).await
    }

    /// Trims again what somebody who did not know of the removal has appended to a removed map's colours, or stored of its views.
    pub async fn trim_again(&self, name: &str, made: &MapMade) -> Result<(), FuzzyError> {
        let is_removed = self.shard.synced().await?.view.made.get(name).is_none_or(|it| it.id != made.id);
        if is_removed {
            self.empty(name, made).await
        } else {
            Err(FuzzyError::Failed(FuzzyFailure::Malformed))
        }
    }

    /// Stores the view if it is time, and trims the log behind it. Returns how many.
    pub async fn store_views(&self) -> Result<usize, StoreError> {
        let limits = ViewLimits { log_bytes: LOG_BYTES, ..ViewLimits::default() };
        Ok(usize::from(self.shard.store(&limits).await?.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuzzylog::SeenTime;

    fn play(view: &mut MapNames, position: u64, body: Vec<u8>) {
        let colours = vec![COLOUR.to_owned()];
        view.play(&FuzzyNode { position, at: SeenTime::default(), colours, body: body.into(), origin: None });
    }

    fn entry(name: &str, kind: &str, shards: u16, id: Option<u64>, stage: Option<u8>) -> Vec<u8> {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        MapEntry { name: bytes(name), kind: bytes(kind), shards, id, stage }.encoded()
    }

    fn made(kind: &str, shards: u16, id: u64, is_first: bool) -> MapMade {
        MapMade { kind: kind.to_owned(), shards, id, is_first }
    }

    /// A view that is stored and loaded behind any node goes on as the one that was played.
    fn played(bodies: &[Vec<u8>]) -> MapNames {
        let mut view = MapNames::default();
        for (position, body) in (0..).zip(bodies) {
            let mut loaded = MapNames::default();
            loaded.load(&view.stored().into()).expect("it is stored");
            assert_eq!(loaded, view);
            play(&mut view, position, body.clone());
            play(&mut loaded, position, body.clone());
            assert_eq!(loaded, view);
            assert_eq!(view.bytes, view.counted());
        }
        view
    }

    // A map that is another one at another host, or after a restart, is read as what it is not.
    #[test]
    fn the_first_of_a_name_counts_and_nonsense_does_not() {
        let view = played(&[
            b"nonsense".to_vec(),
            entry("a,b", "log", 1, Some(1), None),
            entry("m", "log", 0, Some(2), None),
            entry("m", "log", 65, Some(3), None),
            entry("m", "atomic", 3, Some(4), None),
            entry("m", "log", 1, Some(5), None),
            entry("later", "cap", 1, None, None),
            entry("m", "atomic", 3, Some(5), Some(REMOVED)),
            entry("later", "cap", 1, Some(0), Some(9)),
        ]);
        let expected = [("later", made("cap", 1, 0, true)), ("m", made("atomic", 3, 4, true))];
        assert_eq!(view.made, expected.map(|(name, made)| (name.to_owned(), made)).into());
    }

    // What an earlier version has written is not read any more; or it reads what this one has written as something else.
    #[test]
    fn earlier_versions_have_no_numbers() {
        kernel::record! {
            /// As it was.
            struct Earlier {
                /// The name.
                name: Bytes,
                /// The kind's.
                kind: Bytes,
                /// The colours.
                shards: u16,
            }
        }
        let before = Earlier { name: "m".into(), kind: "log".into(), shards: 1 };
        let view = played(&[before.encoded()]);
        assert_eq!(view.made["m"], made("log", 1, 0, true));
        for stage in [None, Some(REMOVED), Some(EMPTIED)] {
            let body = Bytes::from(entry("m", "log", 1, Some(7), stage));
            assert_eq!(Earlier::decoded(&body), Ok(before.clone()), "it is there already, for them");
        }
    }

    // A map that is made anew has the colours of the one before, and what was in them.
    #[test]
    fn a_name_has_its_own_colours_once() {
        let bodies = [
            entry("m", "log", 1, Some(1), None),
            entry("m", "log", 1, Some(1), Some(REMOVED)),
            // Sent by somebody who has not seen the removal.
            entry("m", "log", 1, Some(1), None),
            entry("m", "log", 1, None, None),
            entry("m", "tx", 2, Some(2), None),
            entry("m", "log", 1, Some(1), Some(EMPTIED)),
            entry("m", "log", 1, Some(1), Some(REMOVED)),
            entry("n", "log", 1, Some(3), None),
        ];
        let view = played(&bodies);
        assert_eq!(view.made["m"], made("tx", 2, 2, false));
        assert_eq!(view.made["m"].opened_as("m"), "m#0000000000000002");
        assert_eq!(view.made["n"].opened_as("n"), "n");
        assert_eq!(view.removed.len(), 1);
        assert!(view.removed[0].is_emptied);
        assert!(!may_be_made("m#0000000000000002") && may_be_made("m#2") && may_be_made("m"));
    }

    // A colour that somebody fills takes all memory of all hosts; or what is not remembered any more is used again.
    #[test]
    fn maps_have_a_bound_and_so_have_those_that_were_removed() {
        let mut view = MapNames::default();
        for number in 0..=MAPS_MAX as u64 {
            play(&mut view, number, entry(&format!("m{number}"), "log", 1, Some(number), None));
        }
        assert_eq!(view.made.len(), MAPS_MAX);
        assert!(!view.made.contains_key(&format!("m{MAPS_MAX}")));
        let mut cycle = |name: &str, id: u64, is_emptied: bool| {
            play(&mut view, 0, entry(name, "log", 1, Some(id), Some(REMOVED)));
            if is_emptied {
                play(&mut view, 0, entry(name, "log", 1, Some(id), Some(EMPTIED)));
            }
            play(&mut view, 0, entry(name, "log", 1, Some(id + 10_000), None));
            (view.removed.len(), view.has_forgotten, view.made[name].id)
        };
        for number in 0..REMOVED_MAX as u64 {
            let is_emptied = number == 0;
            let removed = cycle(&format!("m{number}"), number, is_emptied);
            assert_eq!(removed, (number as usize + 1, false, number + 10_000));
        }
        assert_eq!(cycle("m1", 10_001, false), (REMOVED_MAX, true, 20_001), "one that is empty is forgotten");
        assert_eq!(cycle("m2", 10_002, false), (REMOVED_MAX, true, 10_002), "it is not removed");
        play(&mut view, 0, entry("m3", "log", 1, Some(3), Some(EMPTIED)));
        play(&mut view, 0, entry("m2", "log", 1, Some(10_002), Some(REMOVED)));
        play(&mut view, 0, entry("new", "log", 1, Some(77), None));
        assert_eq!(view.made["new"].opened_as("new"), "new#000000000000004d", "it may have been there");
    }
}
