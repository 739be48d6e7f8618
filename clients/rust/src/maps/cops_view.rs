//! The view of a COPSMap's shard: what is shown, and what is held back until what its writer had seen is shown.
//!
//! A change says what its user's context was: how many nodes of each region's log of each colour. It is shown where all of that is shown, and
//! held back until then; so is what comes behind it in its log.
//!
//! Invariant: what is shown of all shards is closed: with each change all that its user had seen. And it has what this region's processes
//! have shown before, once as much of all colours is played.

use super::crdt_map::{KeyChange, ObservedPuts, StoredPuts};
use super::regions::{LogCounts, Origin};
use super::shard::MapView;
use crate::fuzzylog::FuzzyNode;
use kernel::{Bytes, Decode as _, DecodeError, Encode as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::fuzzylog::LogCount;

kernel::record! {
    /// So much of a shard.
    #[derive(Eq)]
    pub struct ShardPast {
        /// The shard.
        shard: u32,
        /// How many nodes of each region's log.
        logs: Vec<LogCount>,
    }
}

kernel::record! {
    /// A change, and what its user had seen.
    #[derive(Eq)]
    pub struct CopsChange {
        /// What it does.
        change: KeyChange,
        /// What is shown before it.
        past: Vec<ShardPast>,
    }
}

kernel::record! {
    /// A change that is held back, as it is stored.
    pub struct HeldChange {
        /// The region that it is of.
        region: Bytes,
        /// Which node of its region's log.
        number: u64,
        /// Its position here.
        position: u64,
        /// What it is; none: nothing that could be read.
        change: Option<CopsChange>,
    }
}

kernel::record! {
    /// The view of a shard, as it is stored.
    pub struct StoredCops {
        /// What is shown.
        puts: StoredPuts,
        /// How many nodes of each region's log that is.
        shown: Vec<LogCount>,
        /// How many were played.
        logs: Vec<LogCount>,
        /// The others.
        held: Vec<HeldChange>,
    }
}

/// What a user has seen of a map, in whichever region. It goes with the user from process to process, and from region to region.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CopsContext(BTreeMap<u32, LogCounts>);

impl CopsContext {
    pub(super) fn see(&mut self, shard: u32, seen: &LogCounts) {
        let known = self.0.entry(shard).or_default();
        seen.counts().for_each(|(region, count)| known.raise(region, count));
    }

    /// Takes in what another user has seen, who said so.
    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(shard, seen)| self.see(*shard, seen));
    }

    pub(super) fn past(&self) -> Vec<ShardPast> {
        self.0.iter().map(|(shard, seen)| ShardPast { shard: *shard, logs: seen.stored() }).collect()
    }

    /// As it is carried: 8 bytes for each shard, and 12 bytes and the name for each region of it.
    pub fn to_bytes(&self) -> Bytes {
        self.past().encoded().into()
    }

    /// As it was carried.
    ///
    /// # Errors
    /// It is none.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, DecodeError> {
        let past = Vec::<ShardPast>::decoded(bytes)?;
        Ok(Self(past.iter().map(|it| (it.shard, LogCounts::loaded(&it.logs))).collect()))
    }
}

/// The region of all nodes where there are no regions.
const ONLY: Bytes = Bytes::from_static(b"here");

/// What a change that is held back takes in memory beside its bytes.
const HELD_BYTES: usize = 256;

/// A change that is held back.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    number: u64,
    position: u64,
    change: Option<CopsChange>,
    bytes: usize,
}

/// The view of a shard: what is shown, and what is held back.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CopsView {
    pub(super) puts: ObservedPuts,
    pub(super) shown: LogCounts,
    logs: LogCounts,
    /// By region, in the order of its log.
    held: BTreeMap<Bytes, VecDeque<Held>>,
    held_bytes: usize,
    /// How often a stored view was loaded.
    pub(super) loads: u64,
}

impl CopsView {
    fn hold(&mut self, region: Bytes, number: u64, position: u64, change: Option<(CopsChange, usize)>) {
        let (change, len) = change.unzip();
        let bytes = HELD_BYTES + len.unwrap_or(0);
        self.held_bytes += bytes;
        self.held.entry(region).or_default().push_back(Held { number, position, change, bytes });
    }

    /// The next change of a region's log that is not shown.
    fn next_of(&self, region: &Bytes) -> Option<&Held> {
        self.held.get(region)?.front()
    }

    /// Shows the next change of a region's log.
    fn show_next(&mut self, region: &Bytes) {
        let Some(log) = self.held.get_mut(region) else { return };
        if let Some(Held { number, change, bytes, .. }) = log.pop_front() {
            self.held_bytes -= bytes;
            self.shown.raise(region, number + 1);
            if let Some(change) = change {
                self.puts.apply(&change.change);
            }
        }
        if log.is_empty() {
            self.held.remove(region);
        }
    }

    /// True if what was played at a position is not held back.
    pub(super) fn shows_at(&self, position: u64) -> bool {
        !self.held.values().flatten().any(|held| held.position == position)
    }
}

impl MapView for CopsView {
    fn play(&mut self, node: &FuzzyNode) {
        let origin = Origin::of(node, &ONLY);
        if self.logs.take(&origin) {
            // Without the page that it came with.
            let change = CopsChange::decoded(&Bytes::copy_from_slice(&node.body)).ok();
            let change = change.map(|change| (change, node.body.len()));
            self.hold(origin.region, origin.number, node.position, change);
        }
    }

    fn stored(&self) -> Vec<u8> {
        let held = |(region, log): (&Bytes, &VecDeque<Held>)| {
            let stored = |it: &Held| HeldChange {
                region: region.clone(),
                number: it.number,
                position: it.position,
                change: it.change.clone(),
            };
            log.iter().map(stored).collect::<Vec<_>>()
        };
        let (puts, held) = (self.puts.to_stored(), self.held.iter().flat_map(held).collect());
        StoredCops { puts, shown: self.shown.stored(), logs: self.logs.stored(), held }.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredCops { puts, shown, logs, held } = StoredCops::decoded(stored)?;
        *self = Self {
            puts: ObservedPuts::of_stored(puts),
            shown: LogCounts::loaded(&shown),
            logs: LogCounts::loaded(&logs),
            loads: self.loads + 1,
            ..Self::default()
        };
        for HeldChange { region, number, position, change } in held {
            // Without what it was stored with.
            let encoded = change.map(|change| Bytes::from(change.encoded()));
            let change = encoded.map(|it| Ok((CopsChange::decoded(&it)?, it.len()))).transpose()?;
            self.hold(Bytes::copy_from_slice(&region), number, position, change);
        }
        Ok(())
    }

    fn entries(&self) -> usize {
        self.puts.entries()
    }

    fn bytes(&self) -> usize {
        self.puts.bytes() + self.held_bytes
    }
}

/// True if all of this is shown.
pub(super) fn is_shown(views: &[&mut CopsView], past: &[ShardPast]) -> bool {
    past.iter().all(|it| {
        let view = views.get(it.shard as usize);
        view.is_some_and(|view| it.logs.iter().all(|log| view.shown.of(&log.region) >= log.count))
    })
}

/// Shows of all shards what may be shown.
pub(super) fn show(views: &mut [&mut CopsView]) {
    let mut is_done = false;
    while !is_done {
        is_done = true;
        for at in 0..views.len() {
            let regions: Vec<Bytes> = views[at].held.keys().cloned().collect();
            for region in regions {
                while let Some(next) = views[at].next_of(&region) {
                    if next.change.as_ref().is_some_and(|it| !is_shown(views, &it.past)) {
                        break;
                    }
                    views[at].show_next(&region);
                    is_done = false;
                }
            }
        }
    }
}

/// A shard of which more has to be played before all of this is shown; none: it is shown, or no shard has it.
pub(super) fn lacking(views: &[&mut CopsView], past: &[ShardPast]) -> Option<usize> {
    let (mut ahead, mut asked) = (past.to_vec(), BTreeSet::new());
    while let Some(ShardPast { shard, logs }) = ahead.pop() {
        let Some(view) = views.get(shard as usize) else { continue };
        for log in logs.iter().filter(|log| view.shown.of(&log.region) < log.count) {
            if view.logs.of(&log.region) < log.count {
                return Some(shard as usize);
            }
            // It was played, and is held back by what the first one waits for.
            if asked.insert((shard, log.region.clone())) {
                let next = view.next_of(&log.region).and_then(|held| held.change.as_ref());
                ahead.extend(next.into_iter().flat_map(|change| change.past.iter().cloned()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::regions::orders::{all, node};
    use super::*;

    /// A change of a key, by one who has seen so much of each shard.
    fn change(process: u64, key: &str, value: &'static str, past: &[(u32, &'static str, u64)]) -> CopsChange {
        let view = ObservedPuts::default();
        let mut context = CopsContext::default();
        for &(shard, region, count) in past {
            let mut seen = LogCounts::default();
            seen.raise(&Bytes::from_static(region.as_bytes()), count);
            context.see(shard, &seen);
        }
        CopsChange { change: view.change(key, Some(value.into()), process), past: context.past() }
    }

    /// Shard 0 has a photo of tokyo's, and one of ohio's; shard 1 has what names them, and what was said without having seen any.
    fn shards() -> [Vec<FuzzyNode>; 2] {
        let photos = vec![
            node("tokyo", 0, &[], change(2, "photo", "tokyo's", &[]).encoded()),
            node("ohio", 0, &[], change(1, "photo", "ohio's", &[]).encoded()),
        ];
        let albums = vec![
            node("tokyo", 0, &[], change(1, "album", "new", &[(0, "tokyo", 1)]).encoded()),
            node("tokyo", 1, &[], change(1, "other", "behind it", &[]).encoded()),
            node("ohio", 0, &[], change(1, "alone", "it", &[]).encoded()),
        ];
        [photos, albums]
    }

    // A change that is shown before what its user had seen; one that is held back though all of that is shown; copies that differ.
    #[test]
    fn changes_are_shown_behind_what_their_users_had_seen() {
        let [photos, albums] = shards().map(|nodes| all(&nodes));
        let mut ends = BTreeSet::new();
        for (photos, albums) in photos.iter().flat_map(|one| albums.iter().map(move |other| (one, other))) {
            // Shard 1 is played as a whole before any of shard 0, or behind it.
            for first in [0, photos.len()] {
                let mut views = [CopsView::default(), CopsView::default()];
                photos[..first].iter().for_each(|node| views[0].play(node));
                albums.iter().for_each(|node| views[1].play(node));
                show(&mut views.each_mut()[..]);
                assert_eq!(views[1].puts.get("alone"), Some("it".into()), "it waits for nobody");
                for node in &photos[first..] {
                    let has_photo = views[0].shown.of(&Bytes::from_static(b"tokyo")) > 0;
                    let shown = ["album", "other"].map(|key| views[1].puts.get(key).is_some());
                    assert_eq!(shown, [has_photo; 2]);
                    views[0].play(node);
                    show(&mut views.each_mut()[..]);
                }
                assert_eq!(views[1].puts.get("other"), Some("behind it".into()));
                let held = views[1].held.len() + views[1].held_bytes;
                assert_eq!(held, 0, "nothing is held back for good");
                let again = views.clone();
                photos.iter().for_each(|node| views[0].play(node));
                albums.iter().for_each(|node| views[1].play(node));
                show(&mut views.each_mut()[..]);
                assert_eq!(views, again, "a node that comes again changes nothing");
                ends.insert(views.each_ref().map(MapView::stored));
            }
        }
        assert_eq!(ends.len(), 1, "copies converge");
    }

    // Who waits for the wrong shard waits for good.
    #[test]
    fn what_is_lacking_is_found_through_what_is_held_back() {
        let [photos, albums] = shards();
        let mut views = [CopsView::default(), CopsView::default()];
        let wanted = change(1, "x", "y", &[(1, "tokyo", 2)]).past;
        assert_eq!(lacking(&views.each_mut()[..], &wanted), Some(1));
        albums.iter().for_each(|node| views[1].play(node));
        show(&mut views.each_mut()[..]);
        assert_eq!(lacking(&views.each_mut()[..], &wanted), Some(0), "the album waits for the photo");
        let mut loaded = CopsView::default();
        loaded.load(&views[1].stored().into()).expect("it was stored");
        assert_eq!((loaded.stored(), loaded.bytes()), (views[1].stored(), views[1].bytes()));
        views[0].play(&photos[0]);
        show(&mut views.each_mut()[..]);
        assert!(is_shown(&views.each_mut()[..], &wanted));
        assert_eq!(lacking(&views.each_mut()[..], &wanted), None);
        // One that nobody can have seen is of no shard here.
        let foreign = change(1, "x", "y", &[(9, "tokyo", 1)]).past;
        assert!(
            !is_shown(&views.each_mut()[..], &foreign) && lacking(&views.each_mut()[..], &foreign).is_none()
        );
    }

    // A context that loses something on its way shows its user less than it has seen.
    #[test]
    fn contexts_are_carried() {
        let mut context = CopsContext::default();
        let mut seen = LogCounts::default();
        seen.raise(&Bytes::from_static(b"tokyo"), 7);
        context.see(3, &seen);
        seen.raise(&Bytes::from_static(b"tokyo"), 2);
        seen.raise(&Bytes::from_static(b"ohio"), 1);
        context.see(3, &seen);
        assert_eq!(CopsContext::from_bytes(&context.to_bytes()), Ok(context.clone()));
        let mut other = CopsContext::default();
        other.join(&context);
        assert_eq!((other, context.0[&3].of(&Bytes::from_static(b"tokyo"))), (context.clone(), 7));
        let bytes = context.to_bytes();
        for end in 0..bytes.len() {
            assert!(CopsContext::from_bytes(&bytes.slice(..end)).is_err(), "cut at {end}");
        }
    }
}
