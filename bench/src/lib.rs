//! Deployments in the cost simulator: what the papers measured on clusters, at their size, with the very roles that the server
//! runs; and the least deployment that carries a load.
//!
//! A [`Profile`] says what a message costs on one kind of machine, [`multipaxos`] what a deployment is and how it is measured,
//! [`figures`] draws.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod chains;
pub mod figures;
pub mod multipaxos;
pub mod ordering;
pub mod plan;
mod profile;
pub mod services;
mod step;
pub mod transactions;

pub use profile::{Driver, Handle, Network, Profile, ProfileError};
pub use step::{PricedStep, Steps};
