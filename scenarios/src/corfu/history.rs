//! What clients asked for and were answered, and what must be true of it.

use ::corfu::{LogPosition, Request, Response};
use kernel::{Bytes, NodeId, RequestId, invariant};
use std::collections::BTreeMap;
use std::fmt::Write as _;

struct Asked {
    node: NodeId,
    request: Request,
    at: u64,
    /// Above every position that was acknowledged before this was asked.
    above: LogPosition,
    /// A read's position was known to hold something when this was asked.
    was_known: bool,
    answered: Option<(u64, Response)>,
}

/// All calls of one run, and what is in the log as far as they have told.
#[derive(Default)]
pub(super) struct History {
    calls: BTreeMap<RequestId, Asked>,
    /// By position; none is junk.
    known: BTreeMap<LogPosition, Option<Bytes>>,
    places: BTreeMap<Bytes, LogPosition>,
    acknowledged: LogPosition,
    /// Positions below were given away by some sequencer.
    given: LogPosition,
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

    pub(super) fn asked(&mut self, id: RequestId, node: NodeId, request: Request, at: u64) {
        let was_known = match &request {
            Request::Read(position) => self.known.contains_key(position),
            Request::Append(_) => false,
        };
        let asked = Asked { node, request, at, above: self.acknowledged, was_known, answered: None };
        self.calls.insert(id, asked);
    }

    fn holds(&mut self, id: RequestId, position: LogPosition, entry: Option<Bytes>) {
        let known = self.known.entry(position).or_insert_with(|| entry.clone());
        invariant!(UNIQ, *known == entry, "{}: {position} holds {known:?} and {entry:?}", id.0);
        if let Some(body) = entry {
            let place = *self.places.entry(body.clone()).or_insert(position);
            invariant!(UNIQ, place == position, "{}: {body:?} is at {place} and at {position}", id.0);
        }
    }

    /// Returns the position of which something was learnt.
    pub(super) fn answered(&mut self, id: RequestId, response: &Response, now: u64) -> Option<LogPosition> {
        let asked = self.calls.get_mut(&id)?;
        asked.answered = Some((now, response.clone()));
        let (above, was_known) = (asked.above, asked.was_known);
        match (asked.request.clone(), response.clone()) {
            (Request::Append(body), Response::Appended(position)) => {
                invariant!(RT, position >= above, "{}: {position} is below {above}", id.0);
                self.acknowledged = self.acknowledged.max(position.next());
                self.holds(id, position, Some(body));
                Some(position)
            }
            (Request::Read(position), Response::Entry(body)) => {
                self.holds(id, position, Some(body));
                Some(position)
            }
            (Request::Read(position), Response::Junk) => {
                invariant!(TAIL, position < self.given, "{}: a hole at {position}, beyond the tail", id.0);
                self.holds(id, position, None);
                Some(position)
            }
            (Request::Read(position), Response::Unwritten) => {
                invariant!(LIN, !was_known, "{}: nothing is at {position} any more", id.0);
                None
            }
            (request, response) => panic!("LIN: {request:?} is answered {response:?}"),
        }
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
