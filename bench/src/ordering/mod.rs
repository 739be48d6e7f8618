//! Bare ordering by Mason: proxies on machines of their own, and clients that receive their numbers (the paper's sections
//! 7.1 and 7.4).

mod deployment;
mod service;

pub(crate) use deployment::{MayLead, Site, host_of};
pub use deployment::{NotReady, OrderingDeployment, Running};
pub use service::{Asks, Numbers, Seat};
