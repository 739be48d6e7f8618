//! Single roles, driven by hand.

mod changing_regions;
mod client;
mod director;
mod joining;
mod moving;
mod partition;
mod regions;
mod replication;
mod restoring;
mod server;
mod strict;
