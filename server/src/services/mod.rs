//! The services: what each of them is on a host, and at its ports.

pub mod coordination;
pub mod kv;
pub mod log;
pub mod sequence;
