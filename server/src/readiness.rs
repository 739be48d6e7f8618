//! Why a host cannot serve: a reason for programs, and words for people.

use runtime::Shortage;
use serde::Serialize;

/// Why a host cannot serve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Unready {
    /// It lost its votes and must be replaced.
    VotesLost,
    /// Its disk is full.
    DiskFull,
    /// Its journal waits for something else of the system.
    ShortOf {
        /// `files`, `files_of_system` or `memory`.
        what: &'static str,
    },
    /// Another host refuses it.
    Refused {
        /// That host.
        by: String,
        /// What it says.
        why: String,
    },
    /// No leader is known.
    NoLeader,
    /// Its acceptor does not vote yet.
    NoVotes,
    /// Its replica has no state yet.
    NoState,
}

/// A shortage, as status pages name it.
pub fn name_of(shortage: Shortage) -> &'static str {
    match shortage {
        Shortage::Space => "space",
        Shortage::Files => "files",
        Shortage::FilesOfSystem => "files_of_system",
        Shortage::Memory => "memory",
    }
}

fn named(name: &str) -> Option<Shortage> {
    [Shortage::Space, Shortage::Files, Shortage::FilesOfSystem, Shortage::Memory]
        .into_iter()
        .find(|shortage| name_of(*shortage) == name)
}

impl Unready {
    /// One line for the operator of `host`.
    pub fn words(&self, host: &str) -> String {
        let not_begun = "a cluster begins when all its hosts have been started once";
        match self {
            Self::VotesLost => format!(
                "this host lost its votes; replace it: ordinate cluster members replace {host} NEW=ADDRESS"
            ),
            Self::DiskFull => "the disk is full".to_owned(),
            Self::ShortOf { what } => {
                named(what).map_or_else(|| (*what).to_owned(), |shortage| shortage.to_string())
            }
            Self::Refused { by, why } => {
                let remedy = "if its disk was lost, replace it: ordinate cluster members replace";
                format!("{by} refuses this host: {why}; {remedy} {host} NEW=ADDRESS")
            }
            Self::NoLeader => format!("no leader is known; {not_begun}"),
            Self::NoVotes => format!("the acceptor does not vote yet; {not_begun}"),
            Self::NoState => "the replica has no state yet".to_owned(),
        }
    }
}
