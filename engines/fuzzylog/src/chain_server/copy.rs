//! How a server that is not in its chain gets the row: from the chain's last server, page by page, while the chain goes on; from one
//! before if that one is silent, which may be why the chain is to be changed.
//!
//! What such a server has applied is what every chain has. What is behind that may be what no chain has any more, and goes before it
//! begins. A copy belongs to an epoch and a source; in another epoch it begins anew. While the server is sealed for a later epoch it
//! takes nothing, so that the director's choice of the head rests on rows that do not change. What its source does not have as
//! commands any more it takes as a snapshot.

use super::{ChainServer, Copies, CutBack, PullRow, Pulled};
use crate::messages::director::CopyProgress;
use crate::terms::{ChainEpoch, ChainJournal, RowIndex};
use kernel::{Cx, Instant, NodeId, PageBudget};

/// A copy in flight.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    session: u64,
    epoch: ChainEpoch,
    source: NodeId,
    /// The source's.
    journal: ChainJournal,
    asked_at: Instant,
    /// When its source was heard last.
    heard_at: Instant,
    /// Commands that the source had beyond.
    lacks: Option<u64>,
}

/// A source that was not heard for so many times as long as until it is asked again is given up.
const SILENT_TIMES: u32 = 8;

impl ChainServer {
    /// What it copies, or has copied until it was sealed and started again.
    pub(super) fn copy_progress(&self) -> Option<CopyProgress> {
        let of_earlier_run = || {
            let epoch = self.copied.filter(|epoch| self.sealed > *epoch)?;
            Some(CopyProgress { epoch, lacks: None })
        };
        self.copy.as_ref().map(Copy::progress).or_else(of_earlier_run)
    }
}

impl Copy {
    pub(super) fn epoch(&self) -> ChainEpoch {
        self.epoch
    }

    pub(super) fn source(&self) -> NodeId {
        self.source
    }

    /// The source's.
    pub(super) fn journal(&self) -> ChainJournal {
        self.journal
    }

    pub(super) fn progress(&self) -> CopyProgress {
        CopyProgress { epoch: self.epoch, lacks: self.lacks }
    }
}

impl ChainServer {
    /// Begins to copy the chain whose projection it was notified of.
    pub(super) fn begin_copy(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(projection) = &self.projection else { return };
        if self.copy.as_ref().is_some_and(|copy| copy.epoch == projection.epoch) {
            return;
        }
        self.copy_from(projection.members.len().saturating_sub(1), cx);
    }

    /// Copies the chain's server at this place of it.
    fn copy_from(&mut self, place: usize, cx: &mut Cx<'_, Self>) {
        let Some(projection) = &self.projection else { return };
        let source = projection.members.get(place).and_then(|it| Some((it.node, it.journal?)));
        let (epoch, Some((source, journal))) = (projection.epoch, source) else { return };
        self.drop_what_is_damaged(cx);
        let applied = self.state.applied();
        if self.length() > applied {
            cx.mark("chain.dropped_what_its_chain_may_not_have");
            self.row.truncate(applied);
            self.window = 0;
            cx.append(&CutBack { length: applied }.into());
        }
        cx.mark("chain.began_to_copy");
        self.saved.stop_taking();
        self.copied = Some(epoch);
        cx.append(&Copies { epoch }.into());
        let session = cx.rng().bits();
        let (asked_at, heard_at) = (cx.now(), cx.now());
        self.copy = Some(Copy { session, epoch, source, journal, asked_at, heard_at, lacks: None });
        self.pull(cx);
    }

    pub(super) fn pull(&mut self, cx: &mut Cx<'_, Self>) {
        let from = self.length();
        let sealed = self.sealed;
        let Some(copy) = self.copy.as_mut().filter(|copy| copy.epoch == sealed) else { return };
        copy.asked_at = cx.now();
        let Copy { session, epoch, source, journal, .. } = *copy;
        cx.send(source, PullRow { session, epoch, journal, from });
    }

    pub(super) fn on_pull(&mut self, from: NodeId, message: &PullRow, cx: &mut Cx<'_, Self>) {
        let PullRow { session, epoch, journal, from: first } = *message;
        // Sealed for what follows, it has the row of that epoch all the same.
        if self.journal != Some(journal) || self.opened != epoch || first > self.length() {
            return;
        }
        self.retained.on_pull(from, first, cx.now());
        let mut page = PageBudget::new(self.parameters.page_bytes);
        let entries = self.row.from(first);
        let entries =
            entries.take_while(|entry| page.admits(super::row::entry_bytes(entry))).cloned().collect();
        let (length, stable, base) = (self.length(), self.state.applied(), Some(self.row.base()));
        // What a tail has applied may not be on its own disk.
        cx.send_durable(from, Pulled { session, first, entries, length, stable, base });
    }

    pub(super) fn on_pulled(&mut self, from: NodeId, message: Pulled, cx: &mut Cx<'_, Self>) {
        let Pulled { session, first, entries, length, stable, base } = message;
        let (own, sealed) = (self.length(), self.sealed);
        let Some(copy) = self
            .copy
            .as_mut()
            .filter(|copy| copy.session == session && copy.source == from && copy.epoch == sealed)
        else {
            return;
        };
        copy.heard_at = cx.now();
        if first != own || self.saved.is_taking() {
            return;
        }
        if base.is_some_and(|base| base > first) {
            // How far it is behind is not known before it has the rest.
            copy.lacks = None;
            return self.take_snapshot(from, cx);
        }
        let end = first.plus(entries.len() as u64);
        let lacks = length.0.saturating_sub(end.0);
        let has_news = !entries.is_empty();
        copy.lacks = Some(lacks);
        for entry in entries {
            self.push(entry, cx);
        }
        self.apply_through(RowIndex(stable.0.min(self.length().0)), cx);
        if has_news && lacks > 0 {
            self.pull(cx);
        }
    }

    /// Returns whether there was one.
    pub(super) fn end_copy(&mut self) -> bool {
        self.saved.stop_taking();
        self.copy.take().is_some()
    }

    pub(super) fn look_after_copy(&mut self, cx: &mut Cx<'_, Self>) {
        let (now, takes) = (cx.now(), self.saved.is_taking());
        let Some(copy) = self.copy.as_mut() else { return };
        if takes {
            // Its source is looked after there.
            copy.heard_at = now;
            if now.since(copy.asked_at) >= self.parameters.resend_after
                && let Some(wanted) = self.saved.installing()
            {
                // It is to retain what comes until this is written.
                copy.asked_at = now;
                self.ask_for_page(wanted, cx);
            }
            return;
        }
        let wait = if copy.lacks == Some(0) { self.parameters.tick } else { self.parameters.resend_after };
        if now.since(copy.asked_at) < wait {
            return;
        }
        if now.since(copy.heard_at) >= SILENT_TIMES * self.parameters.resend_after {
            cx.mark("chain.gave_up_who_it_copied");
            return self.copy_another(cx);
        }
        self.pull(cx);
    }

    /// Copies the server before the one that is silent; behind the first one, the last one again.
    fn copy_another(&mut self, cx: &mut Cx<'_, Self>) {
        let (Some(copy), Some(projection)) = (&self.copy, &self.projection) else { return };
        if copy.epoch == self.sealed && copy.epoch == projection.epoch {
            let count = projection.members.len();
            let place = projection.nodes().position(|node| node == copy.source).unwrap_or(0);
            self.copy_from((place + count - 1) % count, cx);
        }
    }
}
