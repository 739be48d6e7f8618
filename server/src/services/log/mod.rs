//! The shared log.

pub mod archive;
pub mod http;
pub mod kafka;
pub mod nodes;
pub mod settings;
pub mod tail;
