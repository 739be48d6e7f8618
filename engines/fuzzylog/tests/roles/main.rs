//! Single roles, driven by hand.

mod changing_regions;
mod client;
mod director;
mod joining;
mod moving;
mod moving_clients;
mod partition;
mod regions;
mod replication;
mod restoring;
mod segments;
mod server;
mod strict;
