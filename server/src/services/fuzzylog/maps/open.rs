//! The maps of a host that are in use: their memory, and who tends them.

use super::super::{FuzzyService, nodes};
use super::kinds::MapKind;
use super::log::{HostGateway, HostLog};
use super::served::ServedMap;
use super::status::{MapLimits, MapsStatus};
use crate::admin::state::Admin;
use kernel::HostId;
use ordinate_client::FuzzyError;
use ordinate_client::maps::{MapCatalogue, MapMade, MapMemory, StoreError, ViewLimits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// A map that is used is played on so often, and its views are stored if it is time.
const TEND_EVERY: Duration = Duration::from_millis(250);
/// A map that nobody has used for so long is closed, and takes no memory.
const CLOSE_AFTER: Duration = Duration::from_secs(60);
/// Of `fuzzylog.map_bytes`, a part is for what other hosts have put before they have seen that there is no room.
const RESERVE_PART: usize = 8;

/// Maps of the hosts that run in this process, each since its last start.
#[derive(Default)]
pub(in crate::services::fuzzylog) struct MapsOfHosts(Mutex<BTreeMap<HostId, (Instant, Arc<Maps>)>>);

impl std::fmt::Debug for MapsOfHosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MapsOfHosts")
    }
}

impl MapsOfHosts {
    fn all(&self) -> MutexGuard<'_, BTreeMap<HostId, (Instant, Arc<Maps>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a host.
    pub(super) fn of(&self, admin: &Admin, service: &FuzzyService) -> Arc<Maps> {
        let mut all = self.all();
        let host = HostId::named(&admin.host);
        match all.get(&host) {
            Some((started, maps)) if *started == admin.started => Arc::clone(maps),
            _ => {
                let maps = Arc::new(Maps::new(admin, service));
                all.insert(host, (admin.started, Arc::clone(&maps)));
                maps
            }
        }
    }

    /// What a host has of maps; nothing if it was not asked for any.
    pub(in crate::services::fuzzylog) fn status(
        &self,
        host: Option<HostId>,
        limits: MapLimits,
    ) -> MapsStatus {
        let all = self.all();
        let maps = host.and_then(|host| all.get(&host));
        maps.map_or_else(|| MapsStatus::nothing(limits), |(_, maps)| maps.status())
    }
}

/// The maps of a host.
pub(super) struct Maps {
    pub(super) catalogue: MapCatalogue<HostLog>,
    /// When the catalogue was looked at, and how many removals were not finished then.
    looked: Mutex<Option<Instant>>,
    unfinished: AtomicUsize,
    removed: AtomicU64,
    host: HostGateway,
    limits: MapLimits,
    /// Bytes that were put here and not played yet, of all maps.
    ahead: Arc<AtomicUsize>,
    open: Mutex<BTreeMap<String, Arc<OpenMap>>>,
    /// One view is stored at a time: it is in memory twice meanwhile.
    storing: tokio::sync::Mutex<()>,
    views_stored: AtomicU64,
    views_failed: AtomicU64,
    refused: AtomicU64,
    pages_scanned: AtomicU64,
    keys_scanned: AtomicU64,
    views: ViewLimits,
}

/// A map in use.
pub(super) struct OpenMap {
    pub(super) name: String,
    pub(super) kind: MapKind,
    pub(super) made: MapMade,
    pub(super) map: ServedMap,
    pub(super) log: HostLog,
    /// It was played once.
    begun: OnceCell<()>,
    used: Mutex<Instant>,
    /// It was used since it was played last.
    is_touched: AtomicBool,
    /// A view of it was too large to be stored: its log is not trimmed.
    is_too_large: AtomicBool,
    /// It is known here that it is removed.
    is_gone: AtomicBool,
    ahead: Ahead,
}

/// Bytes that were put into a map and not played yet, which count for all maps, too.
struct Ahead {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl Ahead {
    fn add(&self, bytes: usize) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    fn now(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// So many were played; somebody else may have said the same.
    fn played(&self, bytes: usize) {
        let less = |own: usize| Some(own.saturating_sub(bytes));
        let own = self.own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or_default();
        self.all.fetch_sub(own.min(bytes), Ordering::Relaxed);
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.played(usize::MAX);
    }
}

impl OpenMap {
    /// A colour of it.
    pub(super) fn colour(&self) -> String {
        format!("{}.0", self.made.opened_as(&self.name))
    }

    /// It is removed; true for the first who says so.
    pub(super) fn is_learned_gone(&self) -> bool {
        !self.is_gone.swap(true, Ordering::Relaxed)
    }

    fn is_known_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.is_touched.store(true, Ordering::Relaxed);
    }

    fn unused_for(&self) -> Duration {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

impl Maps {
    fn new(admin: &Admin, service: &FuzzyService) -> Self {
        let limits = service.map_limits;
        let host = HostGateway {
            handle: admin.handle.clone(),
            gateway: nodes::gateway(&admin.file, service, &admin.host).host_slot(),
            numbers: Arc::clone(&service.numbers),
            memory: MapMemory::of(limits.bytes.saturating_add(limits.bytes / RESERVE_PART)),
        };
        // Which maps there are is known also where their views have no room.
        let catalogued = HostGateway { memory: MapMemory::default(), ..host.clone() };
        // The first host of the file is the first to store a view; the next ones if that one has not.
        let rank = admin.file.hosts.iter().position(|it| it.name == admin.host).unwrap_or_default() as u64;
        let log_bytes = limits.log_bytes.saturating_add(limits.log_bytes / 4 * rank.min(8));
        let all = ViewLimits::default();
        Self {
            catalogue: MapCatalogue::open(&HostLog::new(catalogued)),
            looked: Mutex::default(),
            unfinished: AtomicUsize::new(0),
            removed: AtomicU64::new(0),
            host,
            limits,
            ahead: Arc::default(),
            open: Mutex::default(),
            storing: tokio::sync::Mutex::default(),
            views_stored: AtomicU64::new(0),
            views_failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            pages_scanned: AtomicU64::new(0),
            keys_scanned: AtomicU64::new(0),
            views: ViewLimits { log_bytes, view_bytes: limits.bytes.min(all.view_bytes), ..all },
        }
    }

    fn open_maps(&self) -> MutexGuard<'_, BTreeMap<String, Arc<OpenMap>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> MapsStatus {
        let open = self.open_maps();
        let too_large = open.values().filter(|map| map.is_too_large.load(Ordering::Relaxed));
        MapsStatus {
            open: open.len(),
            too_large: too_large.map(|map| map.name.clone()).collect(),
            bytes: self.host.memory.used(),
            bytes_max: self.limits.bytes,
            views_stored: self.views_stored.load(Ordering::Relaxed),
            views_failed: self.views_failed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            removed: self.removed.load(Ordering::Relaxed),
            removals_unfinished: self.unfinished.load(Ordering::Relaxed),
            pages_scanned: self.pages_scanned.load(Ordering::Relaxed),
            keys_scanned: self.keys_scanned.load(Ordering::Relaxed),
        }
    }

    /// The map of this name if it is in use.
    pub(super) fn in_use(&self, name: &str) -> Option<Arc<OpenMap>> {
        self.open_maps().get(name).cloned()
    }

    /// A map, which is in use from now on.
    pub(super) fn use_map(self: &Arc<Self>, name: &str, kind: MapKind, made: &MapMade) -> Arc<OpenMap> {
        let map = {
            let mut open = self.open_maps();
            match open.get(name) {
                Some(map) => Arc::clone(map),
                None => {
                    let map = Arc::new(self.opened(name, kind, made));
                    open.insert(name.to_owned(), Arc::clone(&map));
                    tokio::spawn(Arc::clone(self).tend(Arc::clone(&map)));
                    map
                }
            }
        };
        map.touch();
        map
    }

    /// It was played at least once.
    pub(super) async fn begun(&self, map: &Arc<OpenMap>) -> Result<(), FuzzyError> {
        match map.begun.get_or_try_init(|| map.map.sync()).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // What has no room here must not take that of others.
                if matches!(error, FuzzyError::NoMemory { .. }) {
                    self.close(map);
                }
                Err(error)
            }
        }
    }

    fn opened(&self, name: &str, kind: MapKind, made: &MapMade) -> OpenMap {
        let log = HostLog::new(self.host.clone());
        OpenMap {
            name: name.to_owned(),
            kind,
            made: made.clone(),
            map: ServedMap::open(&log, &made.opened_as(name), kind, usize::from(made.shards)),
            log,
            begun: OnceCell::new(),
            used: Mutex::new(Instant::now()),
            is_touched: AtomicBool::new(true),
            is_too_large: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            ahead: Ahead { own: AtomicUsize::new(0), all: Arc::clone(&self.ahead) },
        }
    }

    /// Whether so many bytes may be put into a map, which takes them into account until they are played.
    pub(super) async fn admit(&self, map: &OpenMap, bytes: usize) -> Result<(), FuzzyError> {
        if !self.has_room(bytes) {
            Self::play(map).await?;
        }
        if !self.has_room(bytes) {
            return Err(FuzzyError::NoMemory { used: self.host.memory.used(), max: self.limits.bytes });
        }
        map.ahead.add(bytes);
        Ok(())
    }

    fn has_room(&self, bytes: usize) -> bool {
        let ahead = self.ahead.load(Ordering::Relaxed).saturating_add(bytes);
        self.host.memory.used().saturating_add(ahead) <= self.limits.bytes
    }

    /// A map is removed.
    pub(super) fn count_removed(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_unfinished(&self, removals: usize) {
        self.unfinished.store(removals, Ordering::Relaxed);
    }

    /// True for one who asks, each time so much has passed.
    pub(super) fn is_time_to_look(&self, every: Duration) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = looked.is_none_or(|looked| looked.elapsed() >= every);
        if is_time {
            *looked = Some(Instant::now());
        }
        is_time
    }

    /// A call was refused because there is no room in memory.
    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A page of so many keys is answered.
    pub(super) fn count_scanned(&self, keys: usize) {
        self.pages_scanned.fetch_add(1, Ordering::Relaxed);
        self.keys_scanned.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Plays what was put before.
    async fn play(map: &OpenMap) -> Result<(), FuzzyError> {
        let before = map.ahead.now();
        map.map.sync().await?;
        map.ahead.played(before);
        Ok(())
    }

    /// Plays a map on and stores its views, until nobody has used it for a while.
    async fn tend(self: Arc<Self>, map: Arc<OpenMap>) {
        loop {
            tokio::time::sleep(TEND_EVERY).await;
            if map.unused_for() >= CLOSE_AFTER {
                return self.close(&map);
            }
            if map.is_known_gone() {
                // If this fails, who is asked to remove the map again does it.
                let _ = self.catalogue.trim_again(&map.name, &map.made).await;
                return self.close(&map);
            }
            self.look_around().await;
            // Who asks for it plays; this is for what is only put, and for what is read as it was played.
            if (map.is_touched.swap(false, Ordering::Relaxed) || map.map.asks_nobody())
                && let Err(error) = Self::play(&map).await
            {
                if matches!(error, FuzzyError::NoMemory { .. }) {
                    return self.close(&map);
                }
                self.is_gone(&map, &error).await;
                // It may succeed the next time; who uses it learns why not.
                map.is_touched.store(true, Ordering::Relaxed);
                continue;
            }
            let Ok(_one) = self.storing.try_lock() else { continue };
            match map.map.store_views(&self.views).await {
                Ok(stored) => {
                    self.views_stored.fetch_add(stored as u64, Ordering::Relaxed);
                    map.is_too_large.store(false, Ordering::Relaxed);
                }
                // Else it is tried again, and may succeed.
                Err(StoreError::Log(error)) if self.is_gone(&map, &error).await => {}
                Err(error) => {
                    self.views_failed.fetch_add(1, Ordering::Relaxed);
                    let is_too_large = matches!(error, StoreError::TooLarge { .. });
                    map.is_too_large.store(is_too_large, Ordering::Relaxed);
                }
            }
        }
    }

    pub(super) fn close(&self, map: &Arc<OpenMap>) {
        let mut open = self.open_maps();
        if open.get(&map.name).is_some_and(|it| Arc::ptr_eq(it, map)) {
            open.remove(&map.name);
        }
    }
}
