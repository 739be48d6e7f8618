//! Whole hosts on loopback. One program, because what takes the time to compile is the host, once for each.
#![allow(missing_docs, unreachable_pub)]

mod clients;
mod clocks;
mod disks;
mod links;
mod old_copies;
mod support;
mod talking;
mod tls;
