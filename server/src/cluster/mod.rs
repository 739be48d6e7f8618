//! The cluster file: one description of hosts, services and placement for every verb, checked as a whole.

mod agreement;
mod bounds;
pub mod file;
pub mod keys;
pub mod limits;
pub mod logs;
pub mod placement;

pub use file::{ClusterFile, Coordination, Durability, HostLine, Sequence};
pub use logs::{ArchivePlace, LogEngine, Logs};
pub use placement::RoleName;
