//! The spans that are open on a host, and those that are over and wait to be sent.

use super::TraceCounts;
use super::request::{RequestTrace, SpanNumber};
use kernel::NodeId;
use parts::Slot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime};

/// Spans that are open at once; more are dropped, and counted.
const OPEN_MAX: usize = 8_192;
/// A span that nothing has ended for so long is sent as it is, when the next one opens.
const UNENDED_FOR: Duration = Duration::from_secs(60);
/// Spans that have ended of late: what opens one of them again is a repetition.
const ENDED_MAX: usize = 8_192;
/// Slots of logs that were chosen before the value was there.
const CHOSEN_MAX: usize = 1_024;

/// What a node does for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The request.
    pub trace: RequestTrace,
    /// Itself.
    pub number: SpanNumber,
    /// What caused it; none of the first one of a request.
    pub parent: Option<SpanNumber>,
    /// What caused it is on another host.
    pub is_remote: bool,
    /// Whose request it is.
    pub service: &'static str,
    /// What the node is.
    pub role: &'static str,
    /// When the request came to the node.
    pub began: SystemTime,
    /// When it left it.
    pub ended: SystemTime,
    /// The slot of the log that it has, if that is known.
    pub slot: Option<Slot>,
    /// Nothing has ended it.
    pub is_open: bool,
}

/// A span's beginning.
pub struct Opening {
    /// The request.
    pub trace: RequestTrace,
    /// Where.
    pub node: NodeId,
    /// Who sent it; none: it begins here.
    pub from: Option<NodeId>,
    /// Whose request it is.
    pub service: &'static str,
    /// What the node is.
    pub role: &'static str,
    /// The slot of the log.
    pub slot: Option<Slot>,
}

/// The open spans of a host.
pub struct OpenSpans {
    open: BTreeMap<(NodeId, RequestTrace), Span>,
    by_slot: BTreeMap<(NodeId, Slot), Vec<RequestTrace>>,
    order: VecDeque<(Instant, NodeId, RequestTrace)>,
    ended: BTreeSet<(NodeId, RequestTrace)>,
    ended_order: VecDeque<(NodeId, RequestTrace)>,
    chosen: VecDeque<(NodeId, Slot)>,
    queue: SyncSender<Span>,
    counts: Arc<TraceCounts>,
}

impl OpenSpans {
    /// None is open; those that are over go into the queue.
    pub fn new(queue: SyncSender<Span>, counts: Arc<TraceCounts>) -> Self {
        Self {
            open: BTreeMap::new(),
            by_slot: BTreeMap::new(),
            order: VecDeque::new(),
            ended: BTreeSet::new(),
            ended_order: VecDeque::new(),
            chosen: VecDeque::new(),
            queue,
            counts,
        }
    }

    /// A request has come to a node. One that has come before is a repetition, and changes nothing.
    pub fn open(&mut self, Opening { trace, node, from, service, role, slot }: Opening) {
        self.end_old_ones();
        if self.open.contains_key(&(node, trace)) || self.ended.contains(&(node, trace)) {
            return;
        }
        if self.open.len() >= OPEN_MAX {
            return self.counts.drop_span("open");
        }
        let began = SystemTime::now();
        let (number, parent) = (trace.span_at(node), from.map(|from| trace.span_at(from)));
        let is_remote = from.is_some_and(|from| from.host() != node.host());
        let span = Span {
            trace,
            number,
            parent,
            is_remote,
            service,
            role,
            began,
            ended: began,
            slot,
            is_open: true,
        };
        self.open.insert((node, trace), span);
        // One that stays open holds those behind it.
        if self.order.len() >= 2 * OPEN_MAX {
            self.order.retain(|(_, node, trace)| self.open.contains_key(&(*node, *trace)));
        }
        self.order.push_back((Instant::now(), node, trace));
        if let Some(slot) = slot {
            self.by_slot.entry((node, slot)).or_default().push(trace);
        }
    }

    /// The request has left the node.
    pub fn end(&mut self, node: NodeId, trace: RequestTrace) {
        if let Some(span) = self.open.remove(&(node, trace)) {
            self.finish(node, Span { ended: SystemTime::now(), is_open: false, ..span });
        }
    }

    /// What the node had for this slot has left it; false if there was nothing.
    pub fn end_slot(&mut self, node: NodeId, slot: Slot) -> bool {
        if self.by_slot.is_empty() {
            return false;
        }
        let Some(traces) = self.by_slot.get(&(node, slot)) else { return false };
        for trace in traces.clone() {
            self.end(node, trace);
        }
        true
    }

    /// A replica has heard that a slot is chosen, and does not have the value yet.
    pub fn chosen_early(&mut self, node: NodeId, slot: Slot) {
        if self.chosen.len() >= CHOSEN_MAX {
            self.chosen.pop_front();
        }
        self.chosen.push_back((node, slot));
    }

    /// True if that was heard.
    pub fn was_chosen(&self, node: NodeId, slot: Slot) -> bool {
        self.chosen.contains(&(node, slot))
    }

    fn end_old_ones(&mut self) {
        while let Some((at, node, trace)) = self.order.front().copied()
            && (at.elapsed() >= UNENDED_FOR || !self.open.contains_key(&(node, trace)))
        {
            self.order.pop_front();
            if let Some(span) = self.open.remove(&(node, trace)) {
                self.finish(node, Span { ended: SystemTime::now(), ..span });
            }
        }
    }

    fn finish(&mut self, node: NodeId, span: Span) {
        if let Some(slot) = span.slot
            && let Some(traces) = self.by_slot.get_mut(&(node, slot))
        {
            traces.retain(|trace| *trace != span.trace);
            if traces.is_empty() {
                self.by_slot.remove(&(node, slot));
            }
        }
        if self.ended_order.len() >= ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        self.ended.insert((node, span.trace));
        self.ended_order.push_back((node, span.trace));
        if self.queue.try_send(span).is_err() {
            self.counts.drop_span("queue");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::request::Sampling;
    use kernel::{HostId, HostSlot};
    use parts::{Sequence, SessionId};
    use std::sync::mpsc::sync_channel;

    fn at(slot: u32) -> NodeId {
        NodeId::new(HostId(1), HostSlot(slot))
    }

    fn opening(request: u64, node: u32, slot: Option<u64>) -> Opening {
        let trace = Sampling { one_in: 1 }.of_command(SessionId(1), Sequence(request)).expect("all are");
        Opening { trace, node: at(node), from: None, service: "kv", role: "acceptor", slot: slot.map(Slot) }
    }

    // A message that is sent again would be shown as another one, with the number of the first.
    #[test]
    fn a_span_is_sent_once_whatever_is_repeated() {
        let (queue, sent) = sync_channel(8);
        let mut spans = OpenSpans::new(queue, Arc::default());
        spans.open(opening(1, 4, Some(7)));
        spans.open(opening(2, 4, Some(7)));
        spans.open(opening(1, 4, Some(7)));
        assert!(!spans.end_slot(at(4), Slot(8)) && !spans.end_slot(at(5), Slot(7)), "nothing is there");
        assert!(spans.end_slot(at(4), Slot(7)));
        spans.open(opening(1, 4, Some(9)));
        assert!(!spans.end_slot(at(4), Slot(9)), "it has ended before");
        let sent: Vec<Span> = sent.try_iter().collect();
        assert_eq!(sent.len(), 2);
        assert!(sent.iter().all(|span| !span.is_open && span.ended >= span.began));
        assert!(spans.by_slot.is_empty(), "slots are forgotten with their spans");
    }

    // Without a bound, a collector that is away would fill the memory of the host; uncounted, nobody would know why traces have holes.
    #[test]
    fn what_has_no_room_is_dropped_and_counted() {
        let (queue, sent) = sync_channel(3);
        let counts = Arc::new(TraceCounts::default());
        let mut spans = OpenSpans::new(queue, Arc::clone(&counts));
        for request in 0..OPEN_MAX as u64 + 5 {
            spans.open(opening(request, 4, None));
        }
        assert_eq!(counts.dropped("open"), 5);
        for request in 0..10 {
            spans.end(at(4), opening(request, 4, None).trace);
        }
        assert_eq!(counts.dropped("queue"), 7);
        assert_eq!(sent.try_iter().count(), 3);
        for request in 0..2 * ENDED_MAX as u64 {
            spans.open(opening(1 << 32 | request, 4, Some(request)));
            spans.end(at(4), opening(1 << 32 | request, 4, None).trace);
        }
        assert!(
            spans.ended.len() <= ENDED_MAX && spans.order.len() <= 2 * OPEN_MAX,
            "what has ended is forgotten"
        );
    }
}
