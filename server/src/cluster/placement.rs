//! Who plays which role: a sound default for 1, 3, 5, ... hosts, or as the file says.

use super::keys;
use super::values::{FileError, HostLine};
use kernel::{HostId, NodeId};
use parts::{AcceptorGroup, Acceptors, Slot};
use paxos::{Configuration, HostEntry};
use std::fmt;

/// A role of the placement; its number is its slot on a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RoleName {
    /// Takes clients' commands and reads.
    Batcher = 1,
    /// Orders.
    Leader = 2,
    /// Broadcasts.
    ProxyLeader = 3,
    /// Votes.
    Acceptor = 4,
    /// Executes.
    Replica = 5,
    /// Answers clients.
    Unbatcher = 6,
}

impl RoleName {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Batcher, Self::Leader, Self::ProxyLeader, Self::Acceptor, Self::Replica, Self::Unbatcher];

    /// The node of this role on a host.
    pub fn on(self, host: &str) -> NodeId {
        NodeId::new(HostId::named(host), kernel::HostSlot(self as u32))
    }

    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batcher => "paxos.batcher",
            Self::Leader => "paxos.leader",
            Self::ProxyLeader => "paxos.proxy_leader",
            Self::Acceptor => "paxos.acceptor",
            Self::Replica => "paxos.replica",
            Self::Unbatcher => "paxos.unbatcher",
        }
    }
}

impl fmt::Display for RoleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One `[[place]]` of the file.
#[derive(Clone, Debug)]
pub struct PlacedRole {
    role: RoleName,
    on: Vec<String>,
    /// Acceptors only: how many per row of the grid; none for majorities.
    columns: Option<usize>,
    line: usize,
}

impl PlacedRole {
    pub(super) fn read(
        section: &toml::Spanned<toml::de::DeValue<'_>>,
        line_of: &impl Fn(usize) -> usize,
    ) -> Result<Self, FileError> {
        let line = line_of(section.span().start);
        let toml::de::DeValue::Table(table) = section.get_ref() else {
            return Err(FileError::new(line, "place is not a table", "write [[place]] and lines below it"));
        };
        let mut read = Self { role: RoleName::Batcher, on: Vec::new(), columns: None, line };
        let mut has_role = false;
        for (key, value) in table {
            let line = line_of(key.span().start);
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("role", toml::de::DeValue::String(name)) => {
                    read.role = role_named(name, line)?;
                    has_role = true;
                }
                ("on", toml::de::DeValue::Array(hosts)) => {
                    for host in hosts {
                        let toml::de::DeValue::String(host) = host.get_ref() else {
                            return Err(FileError::new(
                                line,
                                "place.on wants names of hosts",
                                "on = [\"a\", \"b\"]",
                            ));
                        };
                        read.on.push(host.to_string());
                    }
                }
                ("columns", toml::de::DeValue::Integer(columns)) => {
                    let columns = columns.to_string().parse().ok().filter(|&columns: &usize| columns > 0);
                    read.columns = Some(columns.ok_or_else(|| {
                        FileError::new(line, "place.columns wants a positive number", "columns = 3")
                    })?);
                }
                (name @ ("role" | "on" | "columns"), _) => {
                    let help = "role = \"paxos.acceptor\", on = [\"a\", \"b\"], columns = 2";
                    return Err(FileError::new(
                        line,
                        format!("place.{name} has a value of the wrong kind"),
                        help,
                    ));
                }
                (name, _) => {
                    let help = keys::nearest(name, ["role", "on", "columns"]).map_or_else(
                        || "known: role, on, columns".to_owned(),
                        |near| format!("did you mean {near}?"),
                    );
                    return Err(FileError::new(line, format!("unknown key place.{name}"), help));
                }
            }
        }
        if !has_role || read.on.is_empty() {
            return Err(FileError::new(
                line,
                "[[place]] needs a role and hosts",
                "role = \"paxos.acceptor\", on = [\"a\"]",
            ));
        }
        Ok(read)
    }
}

fn role_named(name: &str, line: usize) -> Result<RoleName, FileError> {
    let found = RoleName::ALL.into_iter().find(|role| role.name() == name);
    found.ok_or_else(|| {
        let names = RoleName::ALL.map(RoleName::name);
        let help = keys::nearest(name, names)
            .map_or_else(|| format!("known: {}", names.join(", ")), |near| format!("did you mean {near}?"));
        FileError::new(line, format!("unknown role {name}"), help)
    })
}

/// The hosts that play a role, and the line that says so; every host without one.
fn placed<'a>(
    hosts: &[HostLine],
    sections: &'a [PlacedRole],
    role: RoleName,
) -> Result<(Vec<String>, Option<&'a PlacedRole>), FileError> {
    let mut placed = sections.iter().filter(|section| section.role == role);
    let Some(section) = placed.next() else {
        return Ok((hosts.iter().map(|host| host.name.clone()).collect(), None));
    };
    if let Some(second) = placed.next() {
        return Err(FileError::new(
            second.line,
            format!("{role} is placed twice"),
            "join the two sections [[place]]",
        ));
    }
    for name in &section.on {
        if !hosts.iter().any(|host| host.name == *name) {
            let known = hosts.iter().map(|host| host.name.as_str());
            let help = keys::nearest(name, known)
                .map_or_else(|| "add it to [hosts]".to_owned(), |near| format!("did you mean {near}?"));
            return Err(FileError::new(
                section.line,
                format!("{role} is placed on unknown host {name}"),
                help,
            ));
        }
    }
    Ok((section.on.clone(), Some(section)))
}

/// Who plays which role at the cluster's bootstrap.
#[derive(Clone, Debug)]
pub struct BootstrapPlacement {
    configuration: Configuration,
}

impl BootstrapPlacement {
    /// Without sections, every host plays every role, and any majority of an odd number of them decides.
    pub fn new(hosts: &[HostLine], sections: &[PlacedRole], faults: Option<u64>) -> Result<Self, FileError> {
        let of = |role| placed(hosts, sections, role);
        let nodes = |role: RoleName| -> Result<Vec<NodeId>, FileError> {
            Ok(of(role)?.0.iter().map(|host| role.on(host)).collect())
        };
        let (acceptor_hosts, section) = of(RoleName::Acceptor)?;
        let acceptors: Vec<NodeId> = acceptor_hosts.iter().map(|host| RoleName::Acceptor.on(host)).collect();
        let (count, line) = (acceptors.len(), section.map(|section| section.line));
        let group = match section.and_then(|section| section.columns) {
            Some(columns) => AcceptorGroup::grid(acceptors, columns).ok_or_else(|| {
                let what = format!("{count} acceptors do not fill rows of {columns}");
                FileError::new(line, what, "a grid needs rows x columns different hosts, at most 64")
            })?,
            None => AcceptorGroup::majority(acceptors).ok_or_else(|| {
                FileError::new(line, format!("{count} acceptors are no group"), "1 to 64 different hosts")
            })?,
        };
        if let Some(wanted) = faults
            && (group.faults() as u64) < wanted
        {
            let what =
                format!("paxos with faults = {wanted} needs {} acceptors, found {count}", 2 * wanted + 1);
            return Err(FileError::new(line, what, "add hosts, or lower paxos.faults"));
        }
        let acceptors =
            Acceptors::new(vec![group]).ok_or_else(|| FileError::new(line, "no acceptors", "add hosts"))?;
        Ok(Self {
            configuration: Configuration {
                version: 0,
                first_slot: Slot(0),
                acceptors,
                leaders: nodes(RoleName::Leader)?,
                proxy_leaders: nodes(RoleName::ProxyLeader)?,
                replicas: nodes(RoleName::Replica)?,
                batchers: nodes(RoleName::Batcher)?,
                unbatchers: nodes(RoleName::Batcher)?
                    .iter()
                    .map(|batcher| NodeId::new(batcher.host(), kernel::HostSlot(RoleName::Unbatcher as u32)))
                    .collect(),
                hosts: hosts
                    .iter()
                    .map(|host| HostEntry { name: host.name.clone(), address: host.address.clone() })
                    .collect(),
                joined: Vec::new(),
            },
        })
    }

    /// The configuration at the cluster's bootstrap.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }
}
