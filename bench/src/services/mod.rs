//! Services over Mason on machines of their own, and what the paper compares them with (Mason's paper, sections 7.2 and 7.3).
//!
//! The proxies' replicas hand over what is ordered on their own host. Where shards are on other machines, a [`Relay`] stands in
//! for them there: it is the part of the paper's service stub that sends operations on.

mod corfu_prime;
mod deployment;
mod node;
mod register;

pub use corfu_prime::{Appends, CorfuPrimeLog, RandomReads};
pub use deployment::{Operations, OrderedService, Running, ServiceDeployment};
pub use node::{Relay, Seat, ServiceMessage, Services};
pub use register::Register;
