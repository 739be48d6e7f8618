//! The simulator: what each fault does, clocks, disks, and shrinking, on small systems that are made for it.
#![allow(missing_docs, unreachable_pub)]

mod beacons;
mod blobs;
mod calm;
mod clocks;
mod dry_restarts;
mod effects;
mod explore;
mod faults;
mod hosts;
mod register;
mod statements;
// A family of one role without messages: the macro's conversions have nothing that could fail.
#[allow(clippy::infallible_try_from)]
mod turns;
