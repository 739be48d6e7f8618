//! Whether a host serves, in total and by service; and why it cannot: a reason for programs, and words for people.

use crate::cluster::ClusterFile;
use runtime::Shortage;
use serde::Serialize;
use std::collections::BTreeMap;

/// Why a host cannot serve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Unready {
    /// It has just begun.
    Begins,
    /// Its reactor does not answer.
    Hangs,
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
    /// It does not hear enough of the other hosts.
    NoQuorum {
        /// The members that it does not hear.
        unheard: Vec<String>,
    },
    /// No leader is heard.
    NoLeader,
    /// Its acceptor does not vote yet.
    NoVotes,
    /// Its replica has no state yet.
    NoState,
    /// Users of services would wait.
    Services {
        /// Why, by the services' names.
        services: BTreeMap<&'static str, String>,
        /// The members that this host does not hear.
        unheard: Vec<String>,
    },
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
            Self::Begins => "the host has just begun".to_owned(),
            Self::Hangs => "the reactor does not answer".to_owned(),
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
            Self::NoQuorum { unheard } => {
                format!("no quorum: this host does not hear {}", unheard.join(", "))
            }
            Self::NoLeader => format!("no leader is heard; {not_begun}"),
            Self::NoVotes => format!("the acceptor does not vote yet; {not_begun}"),
            Self::NoState => {
                let remedy = "a host that joins waits to be made a member: ordinate cluster members add";
                format!("the replica has no state yet; {remedy} {host}=ADDRESS")
            }
            Self::Services { services, unheard } => {
                let reasons: Vec<String> =
                    services.iter().map(|(service, why)| format!("{service}: {why}")).collect();
                let unheard = match unheard.as_slice() {
                    [] => String::new(),
                    some => format!("; this host does not hear {}", some.join(", ")),
                };
                format!("{}{unheard}", reasons.join("; "))
            }
        }
    }
}

/// What was seen.
#[derive(Clone, Default, Debug)]
pub struct Health {
    /// Why no service is served; none if that is left to each.
    pub host: Option<Unready>,
    /// Why users of a service would not be served; none if they would. Every service that is on is here.
    pub services: BTreeMap<&'static str, Option<String>>,
    /// Members that are not heard.
    pub unheard: Vec<String>,
}

impl Health {
    /// Nobody is served.
    pub(crate) fn of_none(file: &ClusterFile, why: Unready) -> Self {
        let services = file.services().iter().map(|service| (service.listed().name, None)).collect();
        Self { host: Some(why), services, unheard: Vec::new() }
    }

    /// Why not all services are served here; none if they are.
    pub fn unready(&self) -> Option<Unready> {
        if self.host.is_some() {
            return self.host.clone();
        }
        let failing = self.services.iter().filter_map(|(service, why)| Some((*service, why.clone()?)));
        let services: BTreeMap<&'static str, String> = failing.collect();
        (!services.is_empty()).then(|| Unready::Services { services, unheard: self.unheard.clone() })
    }

    /// The same in words; none if all are served.
    pub fn words(&self, host: &str) -> Option<String> {
        self.unready().map(|unready| unready.words(host))
    }

    /// Whether users of this service are served.
    pub fn serves(&self, service: &str) -> bool {
        self.host.is_none() && self.services.get(service).is_some_and(Option::is_none)
    }

    /// Whether all services are served.
    pub fn is_ready(&self) -> bool {
        self.unready().is_none()
    }
}
