//! A server whose chain has room for another hands over what it has.

use super::{Compare, Compared, Follow, Followed, Name, Named, Placed, StorageServer};
use crate::projection::{Entry, LogPosition};
use kernel::{Cx, NodeId};

/// Bytes of the entries of one answer, unless the first one is larger.
const PAGE_BYTES: u64 = 128 << 10;

/// The name of an entry.
pub(super) fn name_of(position: LogPosition, entry: &Entry) -> Named {
    let name = match entry {
        Entry::Junk => None,
        Entry::Data(data) => Some(Name { writer: data.writer, tag: data.tag }),
    };
    Named { position, name }
}

impl StorageServer {
    pub(super) fn on_compare(&mut self, learner: NodeId, message: &Compare, cx: &mut Cx<'_, Self>) {
        let Compare { session, journal, from, to, names } = message;
        if self.journal != Some(*journal) {
            return;
        }
        let (mut absent, mut entries, mut bytes, mut seen) = (Vec::new(), Vec::new(), 0, 0);
        let mut names = names.iter().peekable();
        // As far as the learner has reported, unless the answer is full before.
        let mut reached = *to;
        for (&position, retained) in
            self.entries.range(from..).take_while(|(at, _)| to.is_none_or(|to| **at < to))
        {
            if seen == self.page || bytes > 0 && bytes + retained.bytes() > PAGE_BYTES {
                let skips = kernel::planted!(compare_skips_start_of_page);
                reached = Some(if skips { position.next() } else { position });
                break;
            }
            seen += 1;
            absent.extend(
                std::iter::from_fn(|| names.next_if(|it| it.position < position)).map(|it| it.position),
            );
            let theirs = names.next_if(|theirs| theirs.position == position);
            if theirs != Some(&name_of(position, &retained.entry)) {
                bytes += retained.bytes();
                entries.push(Placed { position, entry: retained.entry.clone() });
            }
        }
        let is_reported = |at: LogPosition| reached.is_none_or(|reached| at < reached);
        absent.extend(names.map(|theirs| theirs.position).filter(|&at| is_reported(at)));
        // What it has trimmed the learner trims, too.
        absent.retain(|&at| at >= self.first);
        let (session, from, first) = (*session, *from, self.first);
        let end = cx.cursor().0;
        // What is not durable yet may be taken back.
        cx.send_durable(learner, Compared { session, from, to: reached, first, end, absent, entries });
    }

    pub(super) fn on_follow(&mut self, learner: NodeId, message: &Follow, cx: &mut Cx<'_, Self>) {
        let Follow { session, journal, from } = *message;
        if self.journal != Some(journal) {
            return;
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let end = cx.cursor().0;
        let mut to = end.max(from);
        let begin = self.order.partition_point(|(record, _)| record.0 < from);
        for (record, position) in self.order.range(begin..) {
            let Some(retained) = self.entries.get(position).filter(|retained| retained.record == *record)
            else {
                continue;
            };
            if entries.len() == self.page || bytes > 0 && bytes + retained.bytes() > PAGE_BYTES {
                to = record.0;
                break;
            }
            bytes += retained.bytes();
            entries.push(Placed { position: *position, entry: retained.entry.clone() });
        }
        let (first, epoch, serves) = (self.first, self.epoch, self.serves());
        cx.send_durable(learner, Followed { session, from, to, end, first, epoch, serves, entries });
    }
}
