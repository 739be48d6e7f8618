//! A node of one family hosted as a node of another: an engine that embeds a replicated log hosts the log's roles this way.

use crate::blob::BlobNotice;
use crate::codec::DecodeError;

use crate::id::{NodeId, RequestId};
use crate::role::{AwaitedTimers, Effects, Embeds, Node, Position, Situation, TimerIndex};
use crate::statement::Statement;
use bytes::Bytes;
use std::marker::PhantomData;

/// A node whose effects become those of the family around it.
#[derive(Debug)]
pub struct Embedded<N: Node, F> {
    node: N,
    effects: Effects<N::Family>,
    family: PhantomData<fn() -> F>,
}

impl<N: Node + Clone, F> Clone for Embedded<N, F> {
    fn clone(&self) -> Self {
        Self::new(self.node.clone())
    }
}

impl<N: Node, F> Embedded<N, F> {
    /// Embeds a node.
    pub fn new(node: N) -> Self {
        Self { node, effects: Effects::new(Position(0), false), family: PhantomData }
    }

    /// The node itself, for inspection.
    pub fn node(&self) -> &N {
        &self.node
    }
}

impl<N: Node, F: Embeds<N::Family>> Embedded<N, F> {
    /// Calls the node and hands what it asks for to `outer`.
    #[inline]
    fn call(&mut self, outer: &mut Effects<F>, call: impl FnOnce(&mut N, &mut Effects<N::Family>)) {
        self.effects.follow(outer);
        call(&mut self.node, &mut self.effects);
        outer.absorb(&mut self.effects);
    }
}

impl<N: Node, F: Embeds<N::Family>> Node for Embedded<N, F> {
    type Family = F;

    fn restore(&mut self, position: Position, record: Bytes) -> Result<(), DecodeError> {
        self.node.restore(position, record)
    }

    fn on_start(&mut self, situation: Situation<'_>, effects: &mut Effects<F>) {
        self.call(effects, |node, inner| node.on_start(situation, inner));
    }

    #[inline]
    fn on_message(
        &mut self,
        from: NodeId,
        message: F::Message,
        situation: Situation<'_>,
        effects: &mut Effects<F>,
    ) {
        match F::inner_message(message) {
            Some(message) => {
                self.call(effects, |node, inner| node.on_message(from, message, situation, inner));
            }
            None => effects.reject("message for another role"),
        }
    }

    #[inline]
    fn on_timer(&mut self, timer: TimerIndex, situation: Situation<'_>, effects: &mut Effects<F>) {
        self.call(effects, |node, inner| node.on_timer(timer, situation, inner));
    }

    fn on_request(
        &mut self,
        id: RequestId,
        request: F::Request,
        situation: Situation<'_>,
        effects: &mut Effects<F>,
    ) {
        match F::inner_request(request) {
            Some(request) => self.call(effects, |node, inner| node.on_request(id, request, situation, inner)),
            None => effects.reject("request to a role that serves none"),
        }
    }

    fn on_blob(&mut self, notice: BlobNotice, situation: Situation<'_>, effects: &mut Effects<F>) {
        self.call(effects, |node, inner| node.on_blob(notice, situation, inner));
    }

    #[inline]
    fn on_burst_end(&mut self, situation: Situation<'_>, effects: &mut Effects<F>) {
        self.call(effects, |node, inner| node.on_burst_end(situation, inner));
    }

    fn role_name(&self) -> &'static str {
        self.node.role_name()
    }

    fn awaited_timers(&self, me: NodeId) -> AwaitedTimers {
        self.node.awaited_timers(me)
    }

    fn statement(&self) -> Statement {
        self.node.statement()
    }
}
