//! The command line.

mod serve;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Scalable ordering for strongly consistent services.
#[derive(Parser)]
#[command(name = "ordinate", version, about)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run one host of a cluster
    Serve(serve::Serve),
    /// Measure a service
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// The key-value service
    Kv(crate::bench::Kv),
}

/// Runs the verb on the command line.
pub fn run() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Serve(serve) => serve.run(),
        Verb::Bench(Bench::Kv(bench)) => bench.run(),
    }
}
