//! The gateway as a node of a host.

use crate::family::Colours;
use crate::gateway::ColourGateway;

kernel::nodes! {
    /// The gateway as a node.
    #[derive(Debug)]
    pub enum ColourGatewayNode of Colours {
        /// The gateway.
        role Gateway(Box<ColourGateway>) "gateway",
    }
}
