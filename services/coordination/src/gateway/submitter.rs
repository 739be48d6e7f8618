//! The operations on their way to one group: tags without gaps, and what was not answered is sent again.

use crate::gateway::connection::EntrySeq;
use kernel::{Bytes, Instant, NodeId};
use mason::Operation;
use std::collections::VecDeque;
use std::time::Duration;

/// Whose operation it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A request of a connection.
    Request(NodeId, EntrySeq),
    /// The gateway itself; nobody waits for the answer.
    Upkeep,
}

#[derive(Debug)]
struct Pending {
    body: Bytes,
    asker: Asker,
    answered: bool,
}

/// At most so many operations in a message.
const BATCH_MAX: usize = 512;
/// Or so many bytes of bodies, unless one is longer.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Without any answer for this long, what is not answered is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(150);

#[derive(Debug)]
pub(crate) struct Submitter {
    pub(crate) proxy: NodeId,
    pending: VecDeque<Pending>,
    /// The tag of the first pending one.
    first: u64,
    /// The first tag that was never sent.
    unsent: u64,
    heard: Instant,
}

impl Submitter {
    pub(crate) fn new(proxy: NodeId) -> Self {
        Self { proxy, pending: VecDeque::new(), first: 1, unsent: 1, heard: Instant::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn push(&mut self, body: Bytes, asker: Asker, now: Instant) {
        if self.pending.is_empty() {
            self.heard = now;
        }
        self.pending.push_back(Pending { body, asker, answered: false });
    }

    /// The next message's operations; empty if all was sent.
    pub(crate) fn batch(&mut self, origin: NodeId, incarnation: u64) -> Vec<Operation> {
        let batch = self.from(self.unsent, origin, incarnation);
        self.unsent += batch.len() as u64;
        batch
    }

    fn from(&self, tag: u64, origin: NodeId, incarnation: u64) -> Vec<Operation> {
        let skip = tag.saturating_sub(self.first) as usize;
        let mut bytes = 0;
        let fits = |(at, pending): &(usize, &Pending)| {
            bytes += pending.body.len();
            *at == 0 || bytes <= BATCH_BYTES_MAX
        };
        let sent = self.pending.iter().skip(skip).take(BATCH_MAX).enumerate().take_while(fits);
        sent.map(|(at, pending)| Operation {
            origin,
            incarnation,
            tag: tag + at as u64,
            body: pending.body.clone(),
        })
        .collect()
    }

    /// What to send again, if the group has been silent for too long.
    pub(crate) fn overdue(&mut self, origin: NodeId, incarnation: u64, now: Instant) -> Vec<Operation> {
        if self.first >= self.unsent || now.since(self.heard) < RESEND_AFTER {
            return Vec::new();
        }
        self.heard = now;
        let mut again = self.from(self.first, origin, incarnation);
        again.truncate((self.unsent - self.first) as usize);
        again
    }

    /// Whose operation was answered; `None` for one that was answered before.
    pub(crate) fn answer(&mut self, tag: u64, now: Instant) -> Option<Asker> {
        let at = usize::try_from(tag.checked_sub(self.first)?).ok()?;
        let pending = self.pending.get_mut(at).filter(|pending| !pending.answered)?;
        pending.answered = true;
        self.heard = now;
        let asker = pending.asker;
        while self.pending.front().is_some_and(|pending| pending.answered) {
            self.pending.pop_front();
            self.first += 1;
        }
        Some(asker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(operations: &[Operation]) -> Vec<u64> {
        operations.iter().map(|operation| operation.tag).collect()
    }

    // A tag that is skipped or sent twice under another body blocks the origin at its proxy for ever.
    #[test]
    fn tags_have_no_gaps_and_silence_makes_it_send_again() {
        let (node, mut now) = (NodeId::from_u64(1), Instant(0));
        let mut submitter = Submitter::new(node);
        (0..5u8).for_each(|n| submitter.push(Bytes::from(vec![n]), Asker::Upkeep, now));
        assert_eq!(tags(&submitter.batch(node, 9)), [1, 2, 3, 4, 5]);
        assert!(submitter.batch(node, 9).is_empty());
        assert_eq!(submitter.answer(2, now), Some(Asker::Upkeep));
        assert_eq!(submitter.answer(2, now), None, "answered twice");
        assert!(submitter.overdue(node, 9, now).is_empty());
        now = now + RESEND_AFTER;
        assert_eq!(tags(&submitter.overdue(node, 9, now)), [1, 2, 3, 4, 5]);
        assert_eq!(submitter.answer(1, now), Some(Asker::Upkeep));
        submitter.push(Bytes::new(), Asker::Upkeep, now);
        assert_eq!(
            tags(&submitter.overdue(node, 9, now + RESEND_AFTER)),
            [3, 4, 5],
            "not the one never sent"
        );
        assert_eq!(tags(&submitter.batch(node, 9)), [6]);
    }
}
