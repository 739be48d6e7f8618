//! An instance plays one colour (the paper's Figure 2).

use super::{FuzzyAppended, FuzzyError, FuzzyLog, FuzzyNode, unreadable};
use kernel::Bytes;
use std::time::Duration;
use wire::fuzzylog::{
    FuzzyCall, FuzzyFailure, FuzzyReply, NodeOrigin, PlayColour, PlayedAcross, PlayedNode, PlayedNodes,
    SnapshotId, SyncColour, WAIT_MS_MAX,
};

/// Nodes from a position on.
struct Page {
    from: u64,
    /// The position after the last node that is known to be there.
    tail: u64,
    nodes: Vec<PlayedNode>,
    /// Among several regions, where each is from; else none.
    origins: Vec<NodeOrigin>,
}

/// Plays one colour: every node once, in order.
#[derive(Clone, Debug)]
pub struct FuzzyInstance {
    log: FuzzyLog,
    colour: String,
    /// The first position that was not played.
    next: u64,
}

impl FuzzyInstance {
    pub(super) fn new(log: FuzzyLog, colour: &str, next: u64) -> Self {
        Self { log, colour: colour.to_owned(), next }
    }

    /// The colour.
    pub fn colour(&self) -> &str {
        &self.colour
    }

    /// The first position that was not played.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next page: up to the colour's end, or to a position that is known to be there. With the end of that.
    pub(crate) async fn page_to(&mut self, to: Option<u64>) -> Result<(Vec<FuzzyNode>, u64), FuzzyError> {
        let page = match to {
            Some(to) => {
                let (colour, from) = (self.name(), self.next);
                self.page(PlayColour { id: 0, colour, from, to }.into()).await?
            }
            None => self.first_page(Duration::ZERO).await?,
        };
        let tail = page.tail;
        if page.nodes.is_empty() && self.next < tail {
            return Err(unreadable());
        }
        Ok((self.take(page)?, tail))
    }

    /// The next page; at the end, waits for a node as long as `wait` says (30 s at most). With the colour's end.
    pub(crate) async fn page_within(&mut self, wait: Duration) -> Result<(Vec<FuzzyNode>, u64), FuzzyError> {
        let page = self.first_page(wait).await?;
        let tail = page.tail;
        Ok((self.take(page)?, tail))
    }

    /// The session.
    pub fn log(&self) -> &FuzzyLog {
        &self.log
    }

    /// What was played so far.
    pub fn snapshot(&self) -> SnapshotId {
        SnapshotId::of(&self.colour, self.next, self.log.seen())
    }

    /// Goes on behind a snapshot of this region, of a state that was loaded from elsewhere. Never backwards.
    pub fn skip_to(&mut self, snapshot: &SnapshotId) {
        self.log.absorb(snapshot.seen);
        self.next = self.next.max(snapshot.tail(&self.colour));
    }

    /// Appends a node to the colour.
    pub async fn append(&self, body: impl Into<Bytes>) -> Result<FuzzyAppended, FuzzyError> {
        self.log.append(&[&self.colour], body).await
    }

    /// Plays all nodes that were appended before, and were not played yet. Linearizable: what was acknowledged before the call is played.
    ///
    /// # Errors
    /// [`FuzzyError::AlreadyTrimmed`]: somebody trimmed what was not played here; nothing is played behind it. After any error, what was
    /// played was played, and the next call goes on behind it.
    pub async fn sync(&mut self, mut play: impl FnMut(&FuzzyNode)) -> Result<SnapshotId, FuzzyError> {
        let (nodes, tail) = self.page_to(None).await?;
        nodes.iter().for_each(&mut play);
        self.play_to(tail, play).await
    }

    /// Plays nodes up to what a snapshot has, for example one of several colours.
    pub async fn sync_to(
        &mut self,
        snapshot: &SnapshotId,
        play: impl FnMut(&FuzzyNode),
    ) -> Result<SnapshotId, FuzzyError> {
        self.log.absorb(snapshot.seen);
        self.play_to(snapshot.tail(&self.colour), play).await
    }

    /// The next page of nodes, about 128 KiB; at the end, waits for one as long as `wait` says (30 s at most).
    pub async fn play(&mut self, wait: Duration) -> Result<Vec<FuzzyNode>, FuzzyError> {
        self.page_within(wait).await.map(|(nodes, _)| nodes)
    }

    /// Drops the nodes that a snapshot has from this colour. They stay in their other colours.
    pub async fn trim(&self, snapshot: &SnapshotId) -> Result<(), FuzzyError> {
        self.log.trim_colour(&self.colour, snapshot.tail(&self.colour), snapshot.seen).await
    }

    fn name(&self) -> Bytes {
        Bytes::copy_from_slice(self.colour.as_bytes())
    }

    async fn first_page(&self, wait: Duration) -> Result<Page, FuzzyError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).min(WAIT_MS_MAX);
        let (seen, colour) = (self.log.seen(), self.name());
        self.page(SyncColour { id: 0, seen, colour, from: self.next, wait_ms }.into()).await
    }

    async fn page(&self, call: FuzzyCall) -> Result<Page, FuzzyError> {
        match self.log.call(call).await? {
            FuzzyReply::PlayedNodes(page) if page.from == self.next => {
                let PlayedNodes { from, tail, nodes, .. } = page;
                Ok(Page { from, tail, nodes, origins: Vec::new() })
            }
            FuzzyReply::PlayedAcross(page) if page.from == self.next => {
                let PlayedAcross { from, tail, nodes, region, origins, .. } = page;
                if !self.log.session.plays_in(&region) {
                    return Err(FuzzyError::Failed(FuzzyFailure::OtherRegion));
                }
                if origins.len() != nodes.len() {
                    return Err(unreadable());
                }
                Ok(Page { from, tail, nodes, origins })
            }
            _ => Err(unreadable()),
        }
    }

    async fn play_to(
        &mut self,
        tail: u64,
        mut play: impl FnMut(&FuzzyNode),
    ) -> Result<SnapshotId, FuzzyError> {
        while self.next < tail {
            let (nodes, _) = self.page_to(Some(tail)).await?;
            nodes.iter().for_each(&mut play);
        }
        Ok(self.snapshot())
    }

    /// The nodes of a page that are of this colour: one with the same digest has others at positions of its own.
    fn take(&mut self, page: Page) -> Result<Vec<FuzzyNode>, FuzzyError> {
        let text = |name: &Bytes| String::from_utf8(name.to_vec()).map_err(|_| unreadable());
        let mut nodes = Vec::with_capacity(page.nodes.len());
        let origins = page.origins.into_iter().map(Some).chain(std::iter::repeat(None));
        for ((position, node), origin) in (page.from..).zip(page.nodes).zip(origins) {
            if !node.colours.is_empty() {
                let colours = node.colours.iter().map(text).collect::<Result<_, _>>()?;
                nodes.push(FuzzyNode { position, at: node.at, colours, body: node.body, origin });
            }
            self.next = position + 1;
        }
        if self.log.session.is_among_regions() {
            self.log.session.has_played(&self.colour, self.next);
        }
        Ok(nodes)
    }
}
