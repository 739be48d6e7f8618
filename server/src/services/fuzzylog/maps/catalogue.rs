//! Which maps there are: the colour `ordinate.maps` has a node for each. The first of a name counts, and it is never changed.

use super::kinds::MapKind;
use super::log::HostLog;
use kernel::{Bytes, Decode as _, Encode as _};
use ordinate_client::FuzzyError;
use ordinate_client::maps::MapLog as _;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The colour.
const COLOUR: &str = "ordinate.maps";
/// How many maps there are at most, in all: what hosts have of them has a bound, the same everywhere.
pub(super) const MAPS_MAX: usize = 1_024;

kernel::record! {
    /// A map is made.
    pub struct MapCreated {
        /// Its name.
        name: Bytes,
        /// Its kind's name.
        kind: Bytes,
        /// How many colours it has.
        shards: u16,
    }
}

/// How a map was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MapMade {
    /// None: a later version's.
    pub(super) kind: Option<MapKind>,
    pub(super) shards: u16,
}

/// The maps, as far as a host has played them.
pub(super) struct Catalogue {
    log: HostLog,
    known: Mutex<BTreeMap<String, MapMade>>,
    /// The first position that was not played.
    next: tokio::sync::Mutex<u64>,
}

/// A map was not made.
pub(super) enum NotCreated {
    /// There is one already, which is another one.
    Other(MapMade),
    /// There are as many as there can be.
    TooMany,
    /// The log's word.
    Log(FuzzyError),
}

impl From<FuzzyError> for NotCreated {
    fn from(error: FuzzyError) -> Self {
        Self::Log(error)
    }
}

impl Catalogue {
    /// Nothing was played yet.
    pub(super) fn new(log: HostLog) -> Self {
        Self { log, known: Mutex::default(), next: tokio::sync::Mutex::new(0) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, MapMade>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays what was appended before.
    async fn play(&self, next: &mut u64) -> Result<(), FuzzyError> {
        let mut end = None;
        while end.is_none_or(|end| *next < end) {
            let page = self.log.play(COLOUR, *next, end).await?;
            let mut known = self.known();
            for node in &page.nodes {
                take(&mut known, &node.body);
            }
            (*next, end) = (page.next, Some(page.tail));
        }
        Ok(())
    }

    /// The map of this name. Who is known is found without asking anybody: a map is never changed.
    pub(super) async fn find(&self, name: &str) -> Result<Option<MapMade>, FuzzyError> {
        let known = self.known().get(name).copied();
        if known.is_some() {
            return Ok(known);
        }
        self.play(&mut *self.next.lock().await).await?;
        Ok(self.known().get(name).copied())
    }

    /// All of them.
    pub(super) async fn all(&self) -> Result<BTreeMap<String, MapMade>, FuzzyError> {
        self.play(&mut *self.next.lock().await).await?;
        Ok(self.known().clone())
    }

    /// Makes a map, or finds that it is there as it is wanted; says whether it was made by this call.
    pub(super) async fn create(&self, name: &str, kind: MapKind, shards: u16) -> Result<bool, NotCreated> {
        let wanted = MapMade { kind: Some(kind), shards };
        let mut next = self.next.lock().await;
        self.play(&mut next).await?;
        let (found, count) = {
            let known = self.known();
            (known.get(name).copied(), known.len())
        };
        match found {
            Some(found) if found == wanted => return Ok(false),
            Some(found) => return Err(NotCreated::Other(found)),
            None if count >= MAPS_MAX => return Err(NotCreated::TooMany),
            None => {}
        }
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let made = MapCreated { name: bytes(name), kind: bytes(kind.name()), shards };
        self.log.append(vec![(COLOUR.to_owned(), made.encoded().into())]).await?;
        // Somebody else may have been first.
        self.play(&mut next).await.map_err(|_| FuzzyError::Failed(ordinate_client::FuzzyFailure::Unknown))?;
        match self.known().get(name).copied() {
            Some(found) if found == wanted => Ok(true),
            Some(found) => Err(NotCreated::Other(found)),
            None => Err(NotCreated::TooMany),
        }
    }
}

/// Takes a node in. What cannot be read was written by somebody else, and changes nothing.
fn take(known: &mut BTreeMap<String, MapMade>, body: &Bytes) {
    let Ok(MapCreated { name, kind, shards }) = MapCreated::decoded(body) else { return };
    let (Ok(name), Ok(kind)) = (std::str::from_utf8(&name), std::str::from_utf8(&kind)) else { return };
    let is_sound = super::check_name(name).is_ok() && (1..=super::SHARDS_MAX).contains(&usize::from(shards));
    if is_sound && known.len() < MAPS_MAX && !known.contains_key(name) {
        known.insert(name.to_owned(), MapMade { kind: kind.parse().ok(), shards });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str, kind: &str, shards: u16) -> Bytes {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        MapCreated { name: bytes(name), kind: bytes(kind), shards }.encoded().into()
    }

    // A map that is another one at another host, or after a restart, is read as what it is not.
    #[test]
    fn the_first_of_a_name_counts_and_nonsense_does_not() {
        let mut known = BTreeMap::new();
        for body in [
            Bytes::from_static(b"nonsense"),
            made("a,b", "log", 1),
            made("m", "log", 0),
            made("m", "log", 65),
            made("m", "atomic", 3),
            made("m", "log", 1),
            made("later", "cap", 1),
        ] {
            take(&mut known, &body);
        }
        let atomic = MapMade { kind: Some(MapKind::Atomic), shards: 3 };
        let later = MapMade { kind: None, shards: 1 };
        assert_eq!(known, BTreeMap::from([("m".to_owned(), atomic), ("later".to_owned(), later)]));
    }

    // A colour that somebody fills takes all memory of all hosts.
    #[test]
    fn maps_have_a_bound() {
        let mut known = BTreeMap::new();
        (0..=MAPS_MAX).for_each(|number| take(&mut known, &made(&format!("m{number}"), "log", 1)));
        assert_eq!(known.len(), MAPS_MAX);
        assert!(!known.contains_key(&format!("m{MAPS_MAX}")));
    }
}
