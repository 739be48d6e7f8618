//! What a scenario is made of: its family's types, its hosts, its structural events.

use crate::class::Class;
use kernel::{Family, HostId, Node};

/// A request of the scenario's family.
pub type RequestOf<N> = <<N as Node>::Family as Family>::Request;
/// A response of the scenario's family.
pub type ResponseOf<N> = <<N as Node>::Family as Family>::Response;

/// A message of the scenario's family.
pub type MessageOf<N> = <<N as Node>::Family as Family>::Message;

/// What a host is for: faults prefer servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
    /// Serves.
    Server,
    /// Runs client roles.
    Client,
}

/// A host of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostSpec {
    /// Its identity.
    pub id: HostId,
    /// What it is for.
    pub kind: HostKind,
    /// Whether it runs from the start; a spare waits for [`crate::Control::boot`].
    pub runs: bool,
}

impl HostSpec {
    /// A server that runs from the start.
    pub fn server(id: HostId) -> Self {
        Self { id, kind: HostKind::Server, runs: true }
    }

    /// A client's host that runs from the start.
    pub fn client(id: HostId) -> Self {
        Self { id, kind: HostKind::Client, runs: true }
    }

    /// A server that waits to be booted.
    pub fn spare(id: HostId) -> Self {
        Self { id, kind: HostKind::Server, runs: false }
    }
}

/// One incarnation of a host, from start to crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incarnation {
    /// Whose.
    pub host: HostId,
    /// How many incarnations it had before.
    pub number: u32,
    /// Whether its disk is empty because an earlier one was lost.
    pub wiped: bool,
}

/// A structural event of the scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StrikeKind {
    /// What it does, for reports.
    pub name: &'static str,
    /// [`Class::Membership`], [`Class::Upgrade`] or [`Class::Strike`].
    pub class: Class,
}
