//! The cluster file: one description of hosts, services and placement for every verb, checked as a whole.

pub mod agreement;
mod bounds;
mod clock;
pub mod file;
pub mod keys;
pub mod limits;
pub mod placement;

pub use clock::ClockKeys;
pub use file::{ClusterFile, Durability, HostLine};
pub use limits::Limits;
pub use placement::RoleName;
