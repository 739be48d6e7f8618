//! What clients and hosts say to each other. A client needs this and no engine; the services have it from here.
#![forbid(unsafe_code)]

pub mod log;
pub mod native;
pub mod sequence;
