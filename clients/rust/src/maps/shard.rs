//! A shard of a map: one colour, and the view that its nodes make.

use super::log::MapLog;
use crate::fuzzylog::{FuzzyError, FuzzyNode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};

/// What nodes of a colour make: a function of them and their order, the same in every process.
pub trait MapView: Send + 'static {
    /// Takes the next node in. What cannot be read was written by somebody else, and changes nothing.
    fn play(&mut self, node: &FuzzyNode);
}

/// One colour of a map in one process. Cheap to clone.
#[derive(Debug)]
pub struct MapShard<L, V> {
    log: L,
    colour: Arc<str>,
    played: Arc<Mutex<Played<V>>>,
    /// Syncs that were begun.
    begun: Arc<AtomicU64>,
}

impl<L: Clone, V> Clone for MapShard<L, V> {
    fn clone(&self) -> Self {
        let (log, colour) = (self.log.clone(), Arc::clone(&self.colour));
        Self { log, colour, played: Arc::clone(&self.played), begun: Arc::clone(&self.begun) }
    }
}

/// What was played of a colour.
#[derive(Debug)]
pub(super) struct Played<V> {
    /// The position after the last node.
    pub(super) next: u64,
    /// The last sync that has ended well.
    ended: u64,
    pub(super) view: V,
}

impl<L: MapLog, V: MapView> MapShard<L, V> {
    /// Nothing of a colour was played yet: this is the view then.
    pub fn new(log: L, colour: &str, view: V) -> Self {
        let played = Played { next: 0, ended: 0, view };
        Self {
            log,
            colour: colour.into(),
            played: Arc::new(Mutex::new(played)),
            begun: Arc::new(AtomicU64::new(0)),
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

    /// Plays up to a position, or as far as the colour goes.
    pub(super) async fn catch_up(&self, played: &mut Played<V>, to: Option<u64>) -> Result<(), FuzzyError> {
        let mut end = to;
        loop {
            if end.is_some_and(|end| played.next >= end) {
                return Ok(());
            }
            let page = self.log.play(&self.colour, played.next, end).await?;
            page.nodes.iter().for_each(|node| played.view.play(node));
            played.next = page.next;
            end = Some(page.tail);
        }
    }
}
