//! Process order and messages.

use super::{Edges, Levels, answered};
use crate::hash::FixedState;
use crate::history::{History, MessageEvent, OpIndex, Symbol};
use crate::model::EdgeKind;
use crate::order::{NONE, Resolved};
use crate::rules::Rules;
use crate::terms::{Fate, Time};
use std::collections::HashMap;

/// What a process has behind it as it goes along.
#[derive(Default)]
struct Past {
    /// Its last answered operation.
    last: Option<u32>,
    /// Messages received, each with the answer of the operation that took it up, if one did.
    received: Vec<(u32, Option<Time>)>,
    /// Answered operations that a later message may carry, by invocation.
    answers: Vec<(Time, u32)>,
}

/// Adds SO and MP. After an operation of unknown fate a process is a new one, with nothing behind it.
pub(super) fn add(history: &History, resolved: &Resolved, levels: Levels, rules: &Rules, edges: &mut Edges) {
    let operations = history.by_process();
    let mut messages: Vec<&MessageEvent> =
        if rules.messages_ignored { Vec::new() } else { history.messages().iter().collect() };
    // A receipt and a sending at one time are concurrent: nothing is forwarded, so the sending goes first.
    messages.sort_by_key(|event| (event.process, event.at, !event.sent));
    let mut vertex_of: HashMap<Symbol, u32, FixedState> = HashMap::with_hasher(FixedState);
    for event in messages.iter().filter(|event| event.sent) {
        vertex_of.insert(event.message, edges.vertex());
    }
    let mut next_message = 0;
    let mut at = 0;
    while at < operations.len() || next_message < messages.len() {
        let by_operation = operations.get(at).map(|op| history.operations()[op.at()].process);
        let by_message = messages.get(next_message).map(|event| event.process);
        let Some(process) = [by_operation, by_message].into_iter().flatten().min() else { return };
        let until = operations[at..].partition_point(|op| history.operations()[op.at()].process <= process);
        let messages_until = messages[next_message..].partition_point(|event| event.process <= process);
        let own = &operations[at..at + until];
        let events = &messages[next_message..next_message + messages_until];
        one_process(history, resolved, levels, own, events, &vertex_of, edges);
        at += until;
        next_message += messages_until;
    }
}

fn one_process(
    history: &History,
    resolved: &Resolved,
    levels: Levels,
    operations: &[OpIndex],
    events: &[&MessageEvent],
    vertex_of: &HashMap<Symbol, u32, FixedState>,
    edges: &mut Edges,
) {
    let mut past = Past::default();
    let mut events = events.iter().peekable();
    for op in operations {
        let operation = &history.operations()[op.at()];
        while let Some(event) = events.next_if(|event| event.at < operation.invoke) {
            past.on_message(event, vertex_of, edges);
        }
        // What keeps no order is passed by, as if its process had not run it.
        let vertex = match levels.of(operation).is_causal() {
            true => resolved.vertex_of[op.at()],
            false => NONE,
        };
        if vertex != NONE {
            if let Some(last) = past.last {
                edges.add(last, vertex, EdgeKind::SessionOrder);
            }
            for (message, taken) in past.received.iter_mut().filter(|(_, taken)| taken.is_none()) {
                edges.add(*message, vertex, EdgeKind::Message);
                *taken = Some(operation.complete);
            }
        }
        if operation.fate == Fate::Unknown {
            past = Past::default();
        } else if vertex != NONE && answered(history, *op) {
            past.last = Some(vertex);
            if events.peek().is_some() {
                past.answers.push((operation.complete, vertex));
            }
        }
    }
    for event in events {
        past.on_message(event, vertex_of, edges);
    }
}

impl Past {
    fn on_message(
        &mut self,
        event: &MessageEvent,
        vertex_of: &HashMap<Symbol, u32, FixedState>,
        edges: &mut Edges,
    ) {
        let Some(message) = vertex_of.get(&event.message).copied() else { return };
        if !event.sent {
            self.received.push((message, None));
            return;
        }
        // The last invoked of those that had answered; process order puts the earlier ones behind it.
        if let Some(at) = self.answers.iter().rposition(|(complete, _)| *complete < event.at) {
            edges.add(self.answers[at].1, message, EdgeKind::Message);
            self.answers.drain(..at);
        }
        self.received.retain(|(_, taken)| taken.is_none_or(|complete| complete >= event.at));
        for (received, _) in &self.received {
            edges.add(*received, message, EdgeKind::Message);
        }
    }
}
