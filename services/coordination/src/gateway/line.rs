//! Connections that wait, in the order in which they came to wait.

use kernel::NodeId;
use std::collections::BTreeMap;

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    by_ticket: BTreeMap<u64, NodeId>,
    tickets: BTreeMap<NodeId, u64>,
    next: u64,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Who waits already keeps its place.
    pub(crate) fn push(&mut self, node: NodeId) {
        if !self.tickets.contains_key(&node) {
            self.tickets.insert(node, self.next);
            self.by_ticket.insert(self.next, node);
            self.next += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<NodeId> {
        let (_, node) = self.by_ticket.pop_first()?;
        self.tickets.remove(&node);
        Some(node)
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        if let Some(ticket) = self.tickets.remove(&node) {
            self.by_ticket.remove(&ticket);
        }
    }

    /// The first of them first.
    pub(crate) fn in_order(&self) -> Vec<NodeId> {
        self.by_ticket.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};

    // Who loses its place because it asks again waits for ever.
    #[test]
    fn who_waits_keeps_its_place() {
        let node = |slot| NodeId::new(HostId(1), HostSlot(slot));
        let mut line = Line::default();
        [3, 1, 2, 3, 1].into_iter().for_each(|slot| line.push(node(slot)));
        assert_eq!(line.in_order(), [3, 1, 2].map(node));
        line.remove(node(1));
        assert_eq!(line.pop(), Some(node(3)));
        line.push(node(3));
        assert_eq!((line.len(), line.in_order()), (2, vec![node(2), node(3)]));
        assert_eq!([line.pop(), line.pop(), line.pop()], [Some(node(2)), Some(node(3)), None]);
        assert!(line.is_empty());
    }
}
