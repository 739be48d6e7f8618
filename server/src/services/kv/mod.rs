//! The key-value service.

pub mod http;
