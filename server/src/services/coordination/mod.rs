//! The coordination service.

pub mod advertise;
pub mod arrangement;
pub mod commands;
pub mod facts;
pub mod nodes;
pub mod port;
pub mod sessions;
mod subject;
