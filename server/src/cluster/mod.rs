//! The cluster file: one description of hosts, services and placement for every verb, checked as a whole.

pub mod agreement;
mod bounds;
mod clock;
pub mod description;
pub mod engine;
pub mod file;
pub mod key_table;
pub mod keys;
pub mod limits;
pub mod placement;
pub mod regions;
pub mod removed;
pub mod values;

pub use clock::ClockKeys;
pub use description::{ClusterFile, Durability};
pub use limits::Limits;
pub use placement::RoleName;
pub use values::HostLine;
