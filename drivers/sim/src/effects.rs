//! What a node asks for, carried out in one way by every simulator: of faults, of costs, and of all states.

use kernel::{
    BlobEffect, BlobId, Effect, Effects, Family, Journaled, NodeId, Position, RequestId, Silence, TimerIndex,
};
use std::collections::VecDeque;
use std::time::Duration;

/// What takes effect only when every record that its node appended before is durable.
#[derive(Clone, Debug)]
pub(crate) enum Deferred<M> {
    Send { to: NodeId, message: M },
    Trim { before: Position },
    DropBlob { id: BlobId },
}

/// Where the effects of one node go.
///
/// **Contract.** [`Sink::carry_out`] appends the records first and then takes the effects in their order. What is deferred is held while
/// the node's records are not durable; a driver that holds it hands it to [`Sink::take_effect`] when they are.
pub(crate) trait Sink<F: Family> {
    fn append(&mut self, record: Journaled<'_>);

    /// Whether every record of the node is durable.
    fn is_durable(&self) -> bool;

    fn hold(&mut self, deferred: Deferred<F::Message>);

    fn send(&mut self, to: NodeId, message: F::Message);

    fn set_beacon(&mut self, to: NodeId, message: F::Message);

    fn stop_beacon(&mut self, to: NodeId);

    fn trim(&mut self, before: Position);

    fn blob(&mut self, effect: BlobEffect);

    fn set_timer(&mut self, timer: TimerIndex, after: Duration, silence: Option<Silence>);

    fn stop_timer(&mut self, timer: TimerIndex);

    fn respond(&mut self, id: RequestId, response: F::Response);

    fn reject(&mut self, reason: &'static str);

    fn mark(&mut self, name: &'static str);

    fn note(&mut self, text: String);

    /// What was held, or need not be.
    fn take_effect(&mut self, deferred: Deferred<F::Message>) {
        match deferred {
            Deferred::Send { to, message } => self.send(to, message),
            Deferred::Trim { before } => self.trim(before),
            Deferred::DropBlob { id } => self.blob(BlobEffect::Drop { id }),
        }
    }

    /// Empties a node's buffer.
    fn carry_out(&mut self, effects: &mut Effects<F>) {
        for record in effects.records() {
            self.append(record);
        }
        effects.clear_records();
        let durable = self.is_durable();
        for effect in effects.drain() {
            match effect {
                Effect::SendDurable { to, message, .. } | Effect::Repeat { to, message, after: Some(_) } => {
                    self.defer(durable, Deferred::Send { to, message });
                }
                Effect::Trim { before } => self.defer(durable, Deferred::Trim { before }),
                Effect::Blob(BlobEffect::Drop { id }) => self.defer(durable, Deferred::DropBlob { id }),
                Effect::Blob(blob) => self.blob(blob),
                Effect::Send { to, message } | Effect::Repeat { to, message, after: None } => {
                    self.send(to, message);
                }
                Effect::SetBeacon { to, message } => self.set_beacon(to, message),
                Effect::StopBeacon { to } => self.stop_beacon(to),
                Effect::SetTimer { timer, after, silence } => self.set_timer(timer, after, silence),
                Effect::StopTimer { timer } => self.stop_timer(timer),
                Effect::Respond { id, response } => self.respond(id, response),
                Effect::Reject { reason } => self.reject(reason),
                Effect::Mark { name } => self.mark(name),
                Effect::Note { text } => self.note(text),
            }
        }
    }

    /// Holds it, unless it need not wait.
    fn defer(&mut self, durable: bool, deferred: Deferred<F::Message>) {
        if durable {
            self.take_effect(deferred);
        } else {
            self.hold(deferred);
        }
    }
}

/// What waits for the journal of one host.
#[derive(Clone, Debug)]
pub(crate) struct Held<M>(VecDeque<Waiting<M>>);

#[derive(Clone, Debug)]
pub(crate) struct Waiting<M> {
    pub(crate) node: NodeId,
    pub(crate) deferred: Deferred<M>,
    /// How far the journal must be durable.
    pub(crate) target: u64,
}

impl<M> Default for Held<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M> Held<M> {
    pub(crate) fn push(&mut self, waiting: Waiting<M>) {
        self.0.push_back(waiting);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting<M>> {
        self.0.iter()
    }

    /// Hands over, in order, what waits for no more than is `durable`.
    pub(crate) fn release(&mut self, durable: u64, mut take: impl FnMut(NodeId, Deferred<M>)) {
        for _ in 0..self.0.len() {
            let Some(waiting) = self.0.pop_front() else { return };
            if waiting.target > durable {
                self.0.push_back(waiting);
            } else {
                take(waiting.node, waiting.deferred);
            }
        }
    }
}
