//! Load generators: what a service does under a given load, with its durability level beside every figure.

mod closed_loop;
mod fanout;
mod fuzzylog;
mod kv;
mod load;
pub mod local;
mod log;
mod session;
mod summary;
mod txn;
mod zk;

pub use fuzzylog::Fuzzylog;
pub use kv::Kv;
pub use log::Log;
pub use txn::Txn;
pub use zk::Zk;

use crate::failure::Failure;
use std::io;
use std::process::ExitCode;

/// Says why a load was not measured.
fn unmeasured(error: &io::Error, load: &str) -> ExitCode {
    let remedy = format!("ordinate status, or ordinate bench {load} without --endpoints");
    Failure::failed("O7001", "nothing could be measured", error.to_string(), remedy).report()
}
