//! A server that is not in the projection copies the last one of its chain, which goes on being written.
//!
//! ```text
//! learner            source               auxiliary
//!   | Compare            |                     |     what it has, position by position;
//!   |------------------->|                     |     it takes what it lacks, and drops what its chain has not
//!   |<---------- Compared|                     |
//!   | Follow             |                     |     what the source's journal has got since the first Compare,
//!   |------------------->|                     |     again and again
//!   |<---------- Followed|                     |
//!   |                    |<--------------- Seal|     the copy is close
//!   |<---------------------------------- Finish|
//!   | Follow             |                     |
//!   |------------------->|                     |
//!   |<---------- Followed|                     |     the source is sealed, and this is the rest
//!   | Whole (fsync)                            |
//!   |----------------------------------------->|
//! ```
//! A copy belongs to the epoch in which it began, whose projection has its source. In another epoch it begins anew; what it has by
//! then is compared by name, and not sent again.

use super::source::name_of;
use super::{
    Compare, Compared, Finish, Follow, Followed, Placed, Retained, StorageRecord, StorageServer, StorageTimer,
};
use crate::messages::auxiliary::{Copied, Whole};
use crate::projection::{Epoch, JournalId, LogPosition, Projection};
use kernel::{Cx, Instant, NodeId, planted};
use std::time::Duration;

/// How often a learner looks whether there is more.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a question waits before it is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(100);

/// A copy in flight.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    session: u64,
    /// Of the projection.
    epoch: Epoch,
    source: NodeId,
    /// The source's.
    journal: JournalId,
    stage: Stage,
    asked_at: Instant,
    /// Whom to notify when it is whole, for which epoch.
    finish: Option<(NodeId, Epoch)>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// From here on; the source's journal had this length when that began.
    Comparing { from: LogPosition, end: Option<u64> },
    /// All is here that the source's journal had when it had this length.
    Following { from: u64, behind: Option<u64> },
}

impl Copy {
    pub(super) fn progress(&self) -> Copied {
        let behind = match self.stage {
            Stage::Comparing { .. } => None,
            Stage::Following { behind, .. } => behind,
        };
        Copied { epoch: self.epoch, source: self.source, behind }
    }
}

impl StorageServer {
    /// Begins to copy a chain, if it is asked to.
    pub(super) fn copy_from(&mut self, projection: &Projection, chain: Option<u32>, cx: &mut Cx<'_, Self>) {
        let chain = chain.and_then(|chain| projection.chains.get(chain as usize));
        let source = chain.and_then(|chain| chain.last().copied());
        let Some((source, journal)) = source.and_then(|source| Some((source, projection.journal(source)?)))
        else {
            self.copy = None;
            return;
        };
        if self.copy.as_ref().is_some_and(|copy| copy.epoch == projection.epoch) {
            return;
        }
        cx.mark("storage.began_to_copy");
        self.copy = Some(Copy {
            session: cx.rng().bits(),
            epoch: projection.epoch,
            source,
            journal,
            stage: Stage::Comparing { from: self.first, end: None },
            asked_at: cx.now(),
            finish: None,
        });
        cx.set_timer(StorageTimer::Copy, LOOK_EVERY);
        self.ask(cx);
    }

    /// Whom it copies, while it is not in the projection and its chain has room for it.
    pub fn copies_from(&self) -> Option<NodeId> {
        self.copy.as_ref().map(|copy| copy.source)
    }

    /// True while it was asked to copy the rest of a source that is sealed, or about to be.
    pub fn is_finishing(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.finish.is_some())
    }

    fn ask(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(copy) = &mut self.copy else { return };
        copy.asked_at = cx.now();
        let Copy { session, source, journal, .. } = *copy;
        match copy.stage {
            Stage::Comparing { from, .. } => {
                let mut mine = self.entries.range(from..);
                let names: Vec<_> = mine
                    .by_ref()
                    .take(self.page)
                    .map(|(&at, retained)| name_of(at, &retained.entry))
                    .collect();
                let to = mine.next().map(|(&at, _)| at);
                // What it has need not be durable: the answer's consequences will be, together with it.
                cx.send(source, Compare { session, journal, from, to, names });
            }
            Stage::Following { from, .. } => cx.send(source, Follow { session, journal, from }),
        }
    }

    pub(super) fn look(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(copy) = &self.copy else { return };
        cx.set_timer(StorageTimer::Copy, LOOK_EVERY);
        let has_all = matches!(copy.stage, Stage::Following { behind: Some(0), .. });
        if has_all || cx.now().since(copy.asked_at) >= RESEND_AFTER {
            self.ask(cx);
        }
    }

    /// Keeps what the source has at a position, whatever was there: nobody has been shown it since this server was left out.
    fn take(&mut self, placed: Placed, cx: &mut Cx<'_, Self>) {
        let Placed { position, entry } = placed;
        let known = self.entry(position);
        if position < self.first
            || known == Some(&entry)
            || known.is_some() && planted!(returning_server_keeps_divergence)
        {
            return;
        }
        if known.is_some() {
            cx.mark("storage.dropped_what_its_chain_has_not");
        }
        let record = cx.append(&StorageRecord::Retained(position, entry.clone()));
        self.remove(position);
        self.insert(position, Retained { record, entry });
    }

    fn take_all(&mut self, first: LogPosition, entries: Vec<Placed>, cx: &mut Cx<'_, Self>) {
        if first > self.first {
            self.drop_below(first);
            self.forget(cx);
        }
        entries.into_iter().for_each(|placed| self.take(placed, cx));
        self.retain(cx);
    }

    pub(super) fn on_compared(&mut self, from: NodeId, message: Compared, cx: &mut Cx<'_, Self>) {
        let Some(copy) = self.copy.as_mut().filter(|it| it.session == message.session && it.source == from)
        else {
            return;
        };
        let end = match copy.stage {
            Stage::Comparing { from, end } if from == message.from => end,
            Stage::Comparing { .. } | Stage::Following { .. } => return,
        };
        // What the source writes from the first answer on is followed later: it may be anywhere.
        let end = end.filter(|_| !planted!(copy_follows_from_end)).unwrap_or(message.end);
        copy.stage = match message.to {
            Some(to) => Stage::Comparing { from: to, end: Some(end) },
            None => Stage::Following { from: end, behind: None },
        };
        for position in message.absent.into_iter().filter(|_| !planted!(returning_server_keeps_divergence)) {
            cx.mark("storage.dropped_what_its_chain_has_not");
            cx.append(&StorageRecord::Dropped(position));
            self.remove(position);
        }
        self.take_all(message.first, message.entries, cx);
        self.ask(cx);
    }

    pub(super) fn on_finish(&mut self, auxiliary: NodeId, message: &Finish, cx: &mut Cx<'_, Self>) {
        let Finish { epoch, journal, source } = *message;
        let Some(copy) = self.copy.as_mut().filter(|copy| {
            let follows = matches!(copy.stage, Stage::Following { .. });
            follows && copy.source == source && copy.epoch.next() == epoch && self.journal == Some(journal)
        }) else {
            return;
        };
        copy.finish = Some((auxiliary, epoch));
        self.seal(epoch, cx);
        if planted!(joining_server_admitted_early) {
            return cx.send_durable(auxiliary, Whole { epoch, journal, source });
        }
        self.ask(cx);
    }

    pub(super) fn on_followed(&mut self, from: NodeId, message: Followed, cx: &mut Cx<'_, Self>) {
        let Some(copy) = self.copy.as_mut().filter(|it| it.session == message.session && it.source == from)
        else {
            return;
        };
        let Stage::Following { from: asked, behind } = &mut copy.stage else { return };
        if *asked != message.from {
            return;
        }
        *asked = message.to;
        let left = message.end.saturating_sub(message.to);
        *behind = Some(left);
        let (source, finish) = (copy.source, copy.finish);
        let has_news = !message.entries.is_empty();
        self.take_all(message.first, message.entries, cx);
        if left > 0 {
            return self.ask(cx);
        }
        // The source is sealed and has not been asked to serve: it has no more than this.
        if let Some((auxiliary, epoch)) =
            finish.filter(|(_, epoch)| *epoch == message.epoch && !message.serves)
            && let Some(journal) = self.journal
        {
            if has_news {
                cx.mark("storage.copied_the_rest_of_a_sealed_server");
            }
            let whole = Whole { epoch, journal, source };
            if planted!(joining_server_done_before_durable) {
                cx.send(auxiliary, whole)
            } else {
                cx.send_durable(auxiliary, whole)
            }
        }
    }
}
