//! `ordinate`: one binary for servers, clients, simulations and checks.
#![forbid(unsafe_code)]

mod admin;
mod bench;
mod cluster;
mod commands;
mod failure;
mod host;
mod native;
mod status;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Longer than the log's truncations are apart under load, and far below what an idle host should hold on to.
const FREED_MEMORY_KEPT: std::time::Duration = std::time::Duration::from_secs(1);

fn main() -> std::process::ExitCode {
    runtime::memory::keep_freed(FREED_MEMORY_KEPT);
    commands::run()
}
