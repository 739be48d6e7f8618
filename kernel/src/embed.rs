//! A node of one family hosted as a node of another: an engine that embeds a replicated log hosts the log's roles this way.

use crate::effects::Effects;
use crate::role::{Family, Node, Position};

/// A node whose effects become those of the family around it.
#[derive(Debug)]
pub struct Embedded<N: Node> {
    node: N,
    effects: Effects<N::Family>,
}

impl<N: Node + Clone> Clone for Embedded<N> {
    fn clone(&self) -> Self {
        Self::new(self.node.clone())
    }
}

impl<N: Node> Embedded<N> {
    /// Embeds a node.
    pub fn new(node: N) -> Self {
        Self { node, effects: Effects::new(Position(0), false) }
    }

    /// The node itself, for inspection.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// The node itself, to restore it.
    pub fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// Calls the node and hands what it asks for to `outer`.
    pub fn call<F: Family>(
        &mut self,
        outer: &mut Effects<F>,
        call: impl FnOnce(&mut N, &mut Effects<N::Family>),
    ) where
        F::Message: From<<N::Family as Family>::Message>,
        F::Response: From<<N::Family as Family>::Response>,
    {
        self.effects.follow(outer);
        call(&mut self.node, &mut self.effects);
        outer.absorb(&mut self.effects);
    }
}
