//! Backups of all colours: a cut, scans of what was there then, and nodes that are restored.

use super::{FuzzyError, FuzzyLog, unreadable};
use kernel::Bytes;
use wire::fuzzylog::{
    ColoursCut, CutColours, FuzzyReply, NodeAt, NodePoint, NodesScanned, OpenRestored, RestoreNodes,
    ScanNodes, SeenTime,
};

/// A time of all partitions: all that was acknowledged before it was asked for is earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FuzzyCut {
    /// The time.
    pub at: SeenTime,
    /// How many partitions there are.
    pub partitions: u16,
}

/// A page of what a partition had at a cut, by colour and position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FuzzyScan {
    /// The nodes.
    pub nodes: Vec<NodeAt>,
    /// Where to go on; none: that was all.
    pub next: Option<NodePoint>,
}

impl FuzzyLog {
    /// Finds out a time of all partitions. Nodes that are earlier never change; they may be trimmed.
    pub async fn cut(&self) -> Result<FuzzyCut, FuzzyError> {
        let by = self.numbers(1).await?;
        match self.numbered(by, 1, CutColours { id: 0, by }.into()).await? {
            FuzzyReply::ColoursCut(ColoursCut { at, partitions, .. }) => Ok(FuzzyCut { at, partitions }),
            _ => Err(unreadable()),
        }
    }

    /// A page of what a partition had at a cut, from a point on: about 128 KiB, or one node that is larger.
    pub async fn scan(
        &self,
        partition: u16,
        below: SeenTime,
        from: NodePoint,
    ) -> Result<FuzzyScan, FuzzyError> {
        let NodesScanned { nodes, next, .. } = self.scanned(partition, below, (from, None), false).await?;
        Ok(FuzzyScan { nodes, next })
    }

    /// The digest of what a partition had at a cut from one point to another, or to the end; none if that is too much at once. Two equal
    /// ones are of the same nodes at the same positions.
    pub async fn scan_digest(
        &self,
        partition: u16,
        below: SeenTime,
        span: (NodePoint, Option<NodePoint>),
    ) -> Result<Option<u64>, FuzzyError> {
        let NodesScanned { digest, next, .. } = self.scanned(partition, below, span, true).await?;
        Ok(next.is_none().then_some(digest))
    }

    async fn scanned(
        &self,
        partition: u16,
        below: SeenTime,
        (from, to): (NodePoint, Option<NodePoint>),
        digests: bool,
    ) -> Result<NodesScanned, FuzzyError> {
        match self.call(ScanNodes { id: 0, partition, below, from, to, digests }).await? {
            FuzzyReply::NodesScanned(page) => Ok(page),
            _ => Err(unreadable()),
        }
    }

    /// Puts nodes of a scan into a colour that has had none, out of view. A restore has a name of its own, drawn at random and not 0. The
    /// first page `begins` the colour, wherever its first node is; the next one follows it, when this one has its answer. Appends to the
    /// colour wait from now on.
    ///
    /// # Errors
    /// [`FuzzyError::BeyondTail`]: the colour has nodes, or what was put there before ends elsewhere.
    pub async fn restore_nodes(
        &self,
        restore: u64,
        at: NodePoint,
        begins: bool,
        nodes: Vec<Bytes>,
    ) -> Result<(), FuzzyError> {
        match self.call(RestoreNodes { id: 0, restore, at, begins, nodes }).await {
            Ok(FuzzyReply::NodesRestored(_)) => Ok(()),
            Ok(_) => Err(unreadable()),
            Err(FuzzyError::Unreached(error)) => Err(FuzzyError::Unknown(error)),
            Err(error) => Err(error),
        }
    }

    /// Brings what a restore has put into colours into view, in all partitions at one time, and drops what others have put there; of restore
    /// 0 drops all. Returns how many colours came into view.
    pub async fn open_restored(&self, restore: u64) -> Result<u64, FuzzyError> {
        let by = self.numbers(1).await?;
        match self.numbered(by, 1, OpenRestored { id: 0, by, restore }.into()).await? {
            FuzzyReply::ColoursCut(ColoursCut { opened, .. }) => Ok(opened),
            _ => Err(unreadable()),
        }
    }
}
