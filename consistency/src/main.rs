//! `ordinate-check`: the checker as a program of its own.
#![forbid(unsafe_code)]

use clap::Parser;
use consistency::cli::{CheckArgs, run};
use std::process::ExitCode;

/// Decide recorded histories against consistency models, and show why.
///
/// Exit codes: 0 holds, 5 violated, 3 undecided, 2 bad input, 1 other failure.
#[derive(Parser)]
#[command(name = "ordinate-check", version)]
struct Command {
    #[command(flatten)]
    args: CheckArgs,
}

fn main() -> ExitCode {
    ExitCode::from(run(Command::parse().args))
}
