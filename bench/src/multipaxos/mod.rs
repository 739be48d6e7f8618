//! The key-value store over MultiPaxos: deployments, clients, and what each machine spends on a command.

mod deployment;
mod model;
mod node;
mod workload;

pub use deployment::{Acceptors, Batching, Clients, Deployment, Running, Shape};
pub use model::{Demand, Model};
pub use node::{Seat, Unreplicated};
pub use workload::{READS, WRITES, Workload};
