//! Who watches what the nodes of a host are sent and send, for traces of requests.

use kernel::NodeId;

/// Watches the messages of a host's nodes and changes nothing. It runs on the reactor's thread: what it does is short and waits for
/// nothing.
///
/// **Contract with the driver.** A message between nodes of the host is sent first and received later; one to another host is sent
/// here and received there. What waits for the journal is sent when that is durable.
pub trait Observer<M>: Send {
    /// A message leaves `from`.
    fn on_sent(&mut self, from: NodeId, to: NodeId, message: &M);
    /// A message is about to be handed to `to`, a node or a user's connection.
    fn on_received(&mut self, from: NodeId, to: NodeId, message: &M);
}

/// What a host is started with; none: nothing is watched.
pub type ObservedBy<M> = Option<Box<dyn Observer<M>>>;
