//! What maps need of a partially ordered log: a client's session, or one that a test simulates.

use super::memory::MapMemory;
use crate::fuzzylog::{FuzzyAppended, FuzzyError, FuzzyLog, FuzzyNode};
use kernel::Bytes;
use std::future::Future;
use wire::fuzzylog::{NumberedBy, SnapshotId};

/// A partially ordered log.
///
/// **Contract.** An append is in all its colours or in none, and is executed once. [`MapLog::play`] is linearizable where it is asked
/// without an end. Whatever one session does is ordered behind what it has seen.
pub trait MapLog: Clone + Send + Sync + 'static {
    /// Appends a node that holds a body for each of its colours.
    fn append(
        &self,
        bodies: Vec<(String, Bytes)>,
    ) -> impl Future<Output = Result<FuzzyAppended, FuzzyError>> + Send;

    /// The same under a caller's number: sent again under it, through whichever session, it is executed once.
    fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> impl Future<Output = Result<FuzzyAppended, FuzzyError>> + Send;

    /// The same, under a number if there is one.
    fn append_by(
        &self,
        by: Option<NumberedBy>,
        bodies: Vec<(String, Bytes)>,
    ) -> impl Future<Output = Result<FuzzyAppended, FuzzyError>> + Send {
        async move {
            match by {
                Some(by) => self.append_numbered(by, bodies).await,
                None => self.append(bodies).await,
            }
        }
    }

    /// How far colours go, at one point of the order.
    fn snapshot(&self, colours: &[String]) -> impl Future<Output = Result<SnapshotId, FuzzyError>> + Send;

    /// A page of a colour from a position on, and the position after the last node: that of the colour now, or `to`.
    fn play(
        &self,
        colour: &str,
        from: u64,
        to: Option<u64>,
    ) -> impl Future<Output = Result<MapPage, FuzzyError>> + Send;

    /// Drops the nodes of a colour below a position.
    fn trim(&self, colour: &str, before: u64) -> impl Future<Output = Result<(), FuzzyError>> + Send;

    /// True if the session has found that its positions are of one region among several.
    fn is_among_regions(&self) -> bool;

    /// Among several regions, the one whose positions these are: the one that the session has played in; none before.
    fn region(&self) -> Option<Bytes> {
        None
    }

    /// What the views of maps over it may take together in this process; without a bound, unless it says one.
    fn memory(&self) -> MapMemory {
        MapMemory::default()
    }
}

/// A page of a colour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapPage {
    /// Its nodes, in order.
    pub nodes: Vec<FuzzyNode>,
    /// The position after its last node.
    pub next: u64,
    /// The position after the colour's last node.
    pub tail: u64,
}

impl MapLog for FuzzyLog {
    async fn append(&self, bodies: Vec<(String, Bytes)>) -> Result<FuzzyAppended, FuzzyError> {
        self.append_each(bodies).await
    }

    async fn append_numbered(
        &self,
        by: NumberedBy,
        bodies: Vec<(String, Bytes)>,
    ) -> Result<FuzzyAppended, FuzzyError> {
        self.append_numbered(by, bodies).await
    }

    async fn snapshot(&self, colours: &[String]) -> Result<SnapshotId, FuzzyError> {
        self.snapshot(colours).await
    }

    async fn play(&self, colour: &str, from: u64, to: Option<u64>) -> Result<MapPage, FuzzyError> {
        let snapshot = SnapshotId::of(colour, from, self.seen());
        let mut instance = self.new_instance(colour, Some(&snapshot))?;
        let (nodes, tail) = instance.page_to(to).await?;
        Ok(MapPage { nodes, next: instance.position(), tail })
    }

    async fn trim(&self, colour: &str, before: u64) -> Result<(), FuzzyError> {
        self.trim(&SnapshotId::of(colour, before, self.seen())).await
    }

    fn is_among_regions(&self) -> bool {
        self.knows_regions()
    }

    fn region(&self) -> Option<Bytes> {
        self.region()
    }
}
