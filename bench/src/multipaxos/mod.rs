//! The key-value store over MultiPaxos: deployments, clients, and what each machine spends on a command.

mod deployment;
mod model;
mod node;
mod workload;

pub use deployment::{AcceptorLayout, Batching, Clients, MachineLayout, Running, StoreDeployment};
pub use model::{Demand, Model};
pub use node::{Seat, Unreplicated};
pub use workload::{READS, WRITES, Workload};
