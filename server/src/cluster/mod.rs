//! The cluster file: one description of hosts, services and placement for every verb, checked as a whole.

mod agreement;
mod bounds;
pub mod file;
pub mod keys;
pub mod limits;
pub mod placement;

pub use crate::services::log::settings::{ArchivePlace, LogEngine, Logs};
pub use file::{ClusterFile, Coordination, Durability, HostLine, Sequence};
pub use placement::RoleName;
