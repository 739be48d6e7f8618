//! Single roles, driven by hand.

mod partition;
mod server;
