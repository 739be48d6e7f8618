//! What became of the HTTP ports' connections and requests, and the room that their requests share.

use crate::cluster::description::LargeReads;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Bodies of all requests together, in KiB.
const BODIES_KIB_MAX: usize = 32 << 10;

/// What became of connections and requests.
#[derive(Debug)]
pub struct Counts {
    pub(super) open: AtomicU64,
    by_reason: Mutex<BTreeMap<&'static str, u64>>,
    pub(super) bodies: Arc<Semaphore>,
    /// Of the services that have large reads, in the order of the list.
    pub(super) reads: Vec<(&'static LargeReads, Arc<Semaphore>)>,
}

impl Counts {
    /// Of ports whose services have these large reads.
    pub fn of(reads: impl Iterator<Item = &'static LargeReads>) -> Self {
        let room = |permits| Arc::new(Semaphore::new(permits));
        Self {
            open: AtomicU64::new(0),
            by_reason: Mutex::default(),
            bodies: room(BODIES_KIB_MAX),
            reads: reads.map(|reads| (reads, room(reads.max))).collect(),
        }
    }

    /// Connections now open.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Connections and requests that were turned away or disconnected, by reason.
    pub fn by_reason(&self) -> BTreeMap<&'static str, u64> {
        self.by_reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self, reason: &'static str) {
        *self.by_reason.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_insert(0) += 1;
    }
}
