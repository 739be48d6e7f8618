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
