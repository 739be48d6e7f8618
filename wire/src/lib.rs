//! What clients and hosts say to each other, and the role that a client plays. A client needs this and no engine.
#![forbid(unsafe_code)]

pub mod commands;
pub mod fuzzylog;
pub mod kv;
pub mod log;
pub mod native;
pub mod planted;
pub mod rss;
pub mod sequence;
pub mod txn;
