//! A host of a cluster: the cluster file, the services, the ports, the admin port. The command line is built on it: nothing here knows of
//! flags, of load generators, or of simulators.
#![forbid(unsafe_code)]

pub mod access;
pub mod admin;
pub mod cluster;
pub mod cut;
pub mod events;
pub mod family;
pub mod gate;
pub mod health;
pub mod host;
pub mod http_client;
pub mod latency;
pub mod members;
pub mod native;
pub mod owed;
pub mod process;
pub mod readiness;
pub mod secure;
pub mod services;
pub mod status;
pub mod trace;
pub mod unique;
