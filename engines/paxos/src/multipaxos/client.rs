//! The client's role, which needs no engine: see [`wire::commands`].

pub use super::messages::client::*;
pub use wire::commands::client::*;
