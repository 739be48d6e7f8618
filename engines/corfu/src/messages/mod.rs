//! The messages of CORFU', by who receives them; the ladder is in [`crate`].

pub mod auxiliary;
pub mod client;
pub mod sequencer;
pub mod storage;
