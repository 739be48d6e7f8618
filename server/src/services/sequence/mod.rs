//! The sequence.

pub mod http;
pub mod nodes;
