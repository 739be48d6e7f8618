//! What clients asked for and were answered, and what must be true of it.

use ::corfu::{CorfuRequest, CorfuResponse, Extent, LogPosition};
use kernel::{Bytes, NodeId, RequestId, invariant};
use std::collections::BTreeMap;
use std::fmt::Write as _;

struct Asked {
    node: NodeId,
    request: CorfuRequest,
    at: u64,
    /// Above every position that was acknowledged before this was asked.
    above: LogPosition,
    /// A read's position was known to hold something when this was asked.
    was_known: bool,
    answered: Option<(u64, CorfuResponse)>,
}

/// All calls of one run, and what is in the log as far as they have reported.
#[derive(Default)]
pub(super) struct History {
    calls: BTreeMap<RequestId, Asked>,
    /// By position; none is junk.
    known: BTreeMap<LogPosition, Option<Bytes>>,
    positions: BTreeMap<Bytes, LogPosition>,
    acknowledged: LogPosition,
    /// Positions below were given away by some sequencer.
    given: LogPosition,
    /// Positions below may have been trimmed by a client.
    trimmed: LogPosition,
}

impl History {
    /// The position after the last one that is known to hold something.
    pub(super) fn end(&self) -> LogPosition {
        self.known.last_key_value().map_or(LogPosition(0), |(last, _)| last.next())
    }

    /// What a position holds, if that is known; none inside is junk.
    pub(super) fn known(&self, position: LogPosition) -> Option<Option<&Bytes>> {
        self.known.get(&position).map(Option::as_ref)
    }

    /// The positions of which it is known what they hold.
    pub(super) fn positions(&self) -> Vec<LogPosition> {
        self.known.keys().copied().collect()
    }

    pub(super) fn given_away(&mut self, next: LogPosition) {
        self.given = self.given.max(next);
    }

    pub(super) fn asked(&mut self, id: RequestId, node: NodeId, request: CorfuRequest, at: u64) {
        let was_known = match &request {
            CorfuRequest::Read(position) => self.known.contains_key(position),
            CorfuRequest::Append(_) | CorfuRequest::AppendAll(_) | CorfuRequest::Stat => false,
            CorfuRequest::Trim(before) => {
                self.trimmed = self.trimmed.max(*before);
                false
            }
        };
        let asked = Asked { node, request, at, above: self.acknowledged, was_known, answered: None };
        self.calls.insert(id, asked);
    }

    fn holds(&mut self, id: RequestId, position: LogPosition, entry: Option<Bytes>, may_go: bool) {
        let known = self.known.entry(position).or_insert_with(|| entry.clone());
        invariant!(UNIQ, *known == entry, "{}: {position} holds {known:?} and {entry:?}", id.0);
        if let Some(body) = entry {
            let known = *self.positions.entry(body.clone()).or_insert(position);
            // A client that learns that its first position is gone cannot know that its entry was there.
            invariant!(
                UNIQ,
                known == position || may_go || known.min(position) < self.trimmed,
                "{}: {body:?} is at {known} and at {position}",
                id.0
            );
        }
    }

    /// Returns the positions of which something was learnt. `may_go`: servers drop their oldest entries by themselves.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        response: &CorfuResponse,
        may_go: bool,
        now: u64,
    ) -> Vec<LogPosition> {
        let Some(asked) = self.calls.get_mut(&id) else { return Vec::new() };
        asked.answered = Some((now, response.clone()));
        let (above, was_known) = (asked.above, asked.was_known);
        match (asked.request.clone(), response.clone()) {
            (CorfuRequest::Append(body), CorfuResponse::Appended(position)) => {
                self.appended(id, position, above, body, may_go);
                vec![position]
            }
            (CorfuRequest::AppendAll(bodies), CorfuResponse::AllAppended(positions)) => {
                invariant!(UNIQ, bodies.len() == positions.len(), "{}: {positions:?}", id.0);
                for (&position, body) in positions.iter().zip(bodies) {
                    self.appended(id, position, above, body, may_go);
                }
                positions
            }
            (CorfuRequest::Read(position), CorfuResponse::Entry(body)) => {
                self.holds(id, position, Some(body), may_go);
                vec![position]
            }
            (CorfuRequest::Read(position), CorfuResponse::Junk) => {
                invariant!(TAIL, position < self.given, "{}: a hole at {position}, beyond the tail", id.0);
                self.holds(id, position, None, may_go);
                vec![position]
            }
            (CorfuRequest::Read(position), CorfuResponse::Unwritten) => {
                invariant!(LIN, !was_known, "{}: nothing is at {position} any more", id.0);
                Vec::new()
            }
            (CorfuRequest::Read(position), CorfuResponse::Gone(first)) => {
                let gone = position < first && (may_go || position < self.trimmed);
                invariant!(DUR, gone, "{}: {position} is gone, {first} is left, {}", id.0, self.trimmed);
                Vec::new()
            }
            (CorfuRequest::Trim(_), CorfuResponse::Trimmed) => Vec::new(),
            (CorfuRequest::Stat, CorfuResponse::Stat(Extent { first, next, .. })) => {
                invariant!(LIN, next >= above, "{}: the tail is {next}, below {above}", id.0);
                invariant!(TAIL, next <= self.given, "{}: the tail {next} was never given", id.0);
                let sound = first <= next && (may_go || first <= self.trimmed);
                invariant!(DUR, sound, "{}: {first} is the first of {next}, {}", id.0, self.trimmed);
                Vec::new()
            }
            (request, response) => panic!("LIN: {request:?} is answered {response:?}"),
        }
    }

    fn appended(
        &mut self,
        id: RequestId,
        position: LogPosition,
        above: LogPosition,
        body: Bytes,
        may_go: bool,
    ) {
        invariant!(RT, position >= above, "{}: {position} is below {above}", id.0);
        self.acknowledged = self.acknowledged.max(position.next());
        self.holds(id, position, Some(body), may_go);
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (id, Asked { node, request, at, answered, .. }) in &self.calls {
            let answer =
                answered.as_ref().map_or("no answer".to_owned(), |(at, it)| format!("{it:?} at {at}"));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {node} at {at}: {request:?}: {answer}", id.0);
        }
        text
    }
}
