//! The partially ordered log as its users have it: colours have names, calls come from connections and local applications.
//!
//! The engine knows a colour by a digest of its name, and a node by what its user appended. [`names`] is between the two;
//! [`ColourGateway`] has the engine's client in it, and serves the users of a host.
#![forbid(unsafe_code)]

mod family;
mod following;
mod gateway;
pub mod names;
mod node;
mod outcomes;
mod regions;

pub use family::{Colours, ColoursMessage};
pub use gateway::{ColourGateway, ColourTimer};
pub use node::ColourGatewayNode;
pub use regions::RegionNames;
