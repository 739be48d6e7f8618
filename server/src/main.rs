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

fn main() -> std::process::ExitCode {
    commands::run()
}
