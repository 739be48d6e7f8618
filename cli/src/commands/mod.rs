//! The command line: nouns, then verbs. Exit codes are the same everywhere: 0 done, 1 failed, 2 bad input, 3 undecided,
//! 4 unreachable, 5 consistency violated.

mod access;
mod admin;
mod arrangement;
mod backup;
mod calibrate;
mod clock;
mod cluster;
mod config;
mod demo;
mod example;
mod figures;
mod files;
mod frame_file;
mod fuzzylog;
mod inspect;
mod kv;
mod log;
mod manual;
mod map;
mod output;
mod plan;
mod profile;
mod reached;
mod recover;
mod sequence;
mod serve;
mod served;
mod sim;
mod tls;
mod txn;
mod zk;

pub use admin::{GivenToken, fetch, parse};

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;

/// Scalable ordering for strongly consistent services.
#[derive(Parser)]
#[command(name = "ordinate", version = env!("CARGO_PKG_VERSION"), propagate_version = true)]
struct Arguments {
    /// A token that shows hosts with access control who you are (ordinate access token)
    #[arg(long, global = true, env = "ORDINATE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// What a cluster's calls have in common, from the file of profiles (ordinate config profiles)
    #[arg(long, global = true, env = "ORDINATE_PROFILE", value_name = "NAME")]
    profile: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start a three-host cluster in this process, with a prompt to break it
    Demo(demo::Demo),
    /// Run one host of a cluster
    Serve(serve::Serve),
    /// What a host knows of itself and its cluster
    Status(cluster::ShowStatus),
    /// Read a host's data directory while nobody serves it, and report what is damaged
    Inspect(inspect::Inspect),
    /// How well this machine knows the time
    Clock(clock::ShowClock),
    /// The cluster's members
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    /// The key-value service
    #[command(subcommand)]
    Kv(kv::Kv),
    /// Transactions over many keys, each read at a consistency level of its own
    #[command(subcommand)]
    Txn(txn::Txn),
    /// The sequence: contiguous numbers, in one order over all spaces
    #[command(subcommand)]
    Sequence(sequence::Sequence),
    /// The shared log: named logs without holes
    #[command(subcommand)]
    Log(log::Log),
    /// The partially ordered log: colours that scale apart, and appends to several of them at once
    #[command(subcommand)]
    Fuzzylog(fuzzylog::Fuzzylog),
    /// Maps over the partially ordered log: of several kinds, each with a consistency of its own
    #[command(subcommand)]
    Map(map::MapVerb),
    /// The coordination service, by ZooKeeper's protocol
    Zk(zk::Zk),
    /// Back up all services while they run
    Backup(backup::Backup),
    /// Write a backup into a new cluster
    Restore(backup::RestoreBackup),
    /// Make a cluster of what is left when a majority of its hosts is lost for good
    Recover(recover::Recover),
    /// The cluster file
    #[command(subcommand)]
    Config(config::Config),
    /// Certificates
    #[command(subcommand)]
    Tls(tls::Tls),
    /// Who may do what
    Access(access::Access),
    /// Measure a service
    #[command(subcommand)]
    Bench(Bench),
    /// The papers' figures, from the cost simulator
    #[command(subcommand)]
    Figures(figures::Figures),
    /// The least deployment that carries a load
    Plan(plan::Plan),
    /// Measure this machine for ordinate plan
    Calibrate(calibrate::Calibrate),
    /// The fault simulator
    #[command(subcommand)]
    Sim(sim::Sim),
    /// Version and commit
    Version(manual::Version),
    /// Completions for a shell, to standard output
    Completions(manual::Completions),
    /// Manual pages, a file for each verb
    Man(manual::Man),
    /// Decide a recorded history against consistency models
    Check(consistency::cli::CheckArgs),
}

#[derive(Subcommand)]
enum Bench {
    /// The key-value service
    Kv(crate::bench::Kv),
    /// The partially ordered log
    Fuzzylog(crate::bench::Fuzzylog),
    /// The shared log
    Log(crate::bench::Log),
    /// Transactions
    Txn(crate::bench::Txn),
    /// A service that speaks ZooKeeper's protocol
    Zk(crate::bench::Zk),
}

/// A span of time as a flag gives it: any number of seconds (or minutes) a machine can wait for.
pub fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if !(0.001..=1e6).contains(&number) {
        return Err("wanted: 0.001 to 1000000".to_owned());
    }
    Ok(std::time::Duration::from_secs_f64(number))
}

/// All verbs and their flags.
pub fn command() -> Command {
    output::with_output(Arguments::command())
}

/// Runs the verb on the command line.
pub fn run() -> ExitCode {
    let mut command = match profile::applied(command()) {
        Ok(command) => command,
        Err(failure) => return failure.report(),
    };
    let matches = command.get_matches_mut();
    let arguments = Arguments::from_arg_matches(&matches);
    let outcome = match arguments.unwrap_or_else(|error| error.format(&mut command).exit()).verb {
        Verb::Demo(demo) => demo.run(),
        Verb::Serve(serve) => serve.run(),
        Verb::Status(status) => status.run(),
        Verb::Inspect(inspect) => inspect.run(),
        Verb::Clock(clock) => clock.run(),
        Verb::Backup(backup) => backup.run(),
        Verb::Recover(recover) => recover.run(),
        Verb::Restore(restore) => restore.run(),
        Verb::Cluster(cluster) => cluster.run(),
        Verb::Kv(kv) => kv.run(),
        Verb::Txn(txn) => txn.run(),
        Verb::Sequence(sequence) => sequence.run(),
        Verb::Log(log) => log.run(),
        Verb::Fuzzylog(fuzzylog) => fuzzylog.run(),
        Verb::Map(map) => map.run(),
        Verb::Zk(zk) => zk.run(),
        Verb::Config(config) => config.run(),
        Verb::Tls(tls) => tls.run(),
        Verb::Access(access) => access.run(),
        Verb::Bench(Bench::Kv(bench)) => return bench.run(),
        Verb::Bench(Bench::Fuzzylog(bench)) => return bench.run(),
        Verb::Bench(Bench::Log(bench)) => return bench.run(),
        Verb::Bench(Bench::Txn(bench)) => return bench.run(),
        Verb::Bench(Bench::Zk(bench)) => return bench.run(),
        Verb::Figures(figures) => figures.run(),
        Verb::Plan(plan) => plan.run(),
        Verb::Calibrate(calibrate) => calibrate.run(),
        Verb::Version(version) => version.run(),
        Verb::Completions(completions) => completions.run(),
        Verb::Man(man) => man.run(),
        Verb::Sim(sim) => return sim.run(),
        Verb::Check(check) => return ExitCode::from(consistency::cli::run(check)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::command;

    // A flag that is defined twice ends the program when its verb is used, and only then.
    #[test]
    fn every_verb_and_flag_is_sound() {
        command().debug_assert();
    }
}
