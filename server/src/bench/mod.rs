//! Load generators: what a service does under a given load, with its durability level beside every figure.

mod fanout;
mod kv;
mod load;
pub mod local;
mod zk;

pub use kv::Kv;
pub use zk::Zk;
