//! Users' connections to the cluster, as a socket's owner has them.

use super::Cluster;
use kernel::client::{Connected, Disconnected, Input, Taken};
use kernel::{HostId, HostSlot, NodeId, Role};

impl Cluster {
    pub(crate) fn connect(&mut self, host: usize) -> NodeId {
        let node = NodeId::new(HostId(host as u32 + 1), HostSlot(self.next_slot));
        self.next_slot += 1;
        let message = Connected { address: "10.1.2.3".to_owned(), certificate: None, port: Some(40_000) };
        self.call(host, |gateway, cx| gateway.on_message(node, message.into(), cx));
        node
    }

    pub(crate) fn input(&mut self, node: NodeId, bytes: Vec<u8>) {
        let host = node.host().0 as usize - 1;
        let message = Input { bytes: bytes.into() };
        self.call(host, |gateway, cx| gateway.on_message(node, message.into(), cx));
    }

    pub(crate) fn disconnect(&mut self, node: NodeId) {
        let host = node.host().0 as usize - 1;
        self.call(host, |gateway, cx| gateway.on_message(node, Disconnected {}.into(), cx));
    }

    /// A connection's user has taken so much since it came.
    pub(crate) fn taken(&mut self, node: NodeId, bytes: u64) {
        let host = node.host().0 as usize - 1;
        self.call(host, |gateway, cx| gateway.on_message(node, Taken { bytes }.into(), cx));
    }

    /// See [`Gateway::answers_held`].
    pub(crate) fn answers_held(&self, node: NodeId) -> (usize, usize) {
        let gateway = &self.hosts[node.host().0 as usize - 1].gateway;
        let held = gateway.answers_held().find(|(of, ..)| *of == node);
        held.map_or((0, 0), |(_, bytes, largest)| (bytes, largest))
    }

    /// How much was written to a connection since it came.
    pub(crate) fn written(&self, node: NodeId) -> u64 {
        self.written.get(&node).copied().unwrap_or(0)
    }

    /// How much of it was not heard.
    pub(crate) fn unheard(&self, node: NodeId) -> usize {
        self.outputs.get(&node).map_or(0, Vec::len)
    }

    /// Takes what was written to a connection.
    pub(crate) fn output(&mut self, node: NodeId) -> Vec<u8> {
        self.outputs.remove(&node).unwrap_or_default()
    }
}
