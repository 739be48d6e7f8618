//! `ordinate`: one binary for servers, clients, simulations and checks.
#![forbid(unsafe_code)]

mod bench;
mod cluster;
mod commands;
mod host;
mod native;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    commands::run()
}
