//! Who gets how many of the files and sockets that this process may have open.

use crate::failure::Failure;
use runtime::Descriptors;
use server::admin::CONNECTIONS_MAX as ADMIN_CONNECTIONS_MAX;
use server::cluster::ClusterFile;

/// What clients get. The rest is the host's own: its journal, segments, links and those who call it.
pub struct Files {
    /// Of the native, ZooKeeper's and Kafka's ports together.
    pub clients: Descriptors,
    /// Of the admin port: it is reached though clients have all of theirs.
    pub admin: Descriptors,
}

/// What a host needs for itself, at least and at most: a quarter of what there is. A segment of the journal takes two, for as long as
/// something in it is needed.
const OWN_MIN: u64 = 192;
const OWN_MAX: u64 = 4_096;
/// Of each other host: one that calls and one that is called, with one more of each while they are dialled anew.
const PER_HOST: u64 = 4;
/// With fewer for clients it is no use to start.
const CLIENTS_MIN: u64 = 32;

impl Files {
    /// Opens as many files as the system lets this process, shares them out, and lowers the limits of connections to what there is:
    /// a client beyond it is refused, one without a descriptor waits for ever.
    pub fn fit(file: &mut ClusterFile) -> Result<Self, Failure> {
        let files = runtime::descriptors::raise_limit().unwrap_or(1_024);
        let shared = share(files, (file.hosts.len() + file.elsewhere.len()) as u64).map_err(|needed| {
            Failure::input(
                "O2113",
                "the system allows this process too few open files",
                format!("{files} are allowed, {needed} are needed at least"),
                "ulimit -n 65536, or LimitNOFILE=65536 in the service",
            )
        })?;
        let carried = shared.clients as usize;
        if file.limits.connections_max > carried {
            eprintln!(
                "limits.connections_max is {carried} instead of {}: the system allows this process {files} open files \
                 (ulimit -Hn, or LimitNOFILE of the service), of which clients of all ports get {carried}",
                file.limits.connections_max
            );
            file.limits.connections_max = carried;
        }
        let own = file.services().iter().filter_map(|service| service.own_connections_max());
        for (key, max) in own.filter(|(_, max)| *max > carried) {
            eprintln!("{key} is {carried} instead of {max}, for the same reason");
        }
        file.limits.descriptors = carried;
        Ok(Self { clients: Descriptors::new(carried), admin: Descriptors::new(shared.admin as usize) })
    }
}

#[derive(PartialEq, Eq, Debug)]
struct Shared {
    clients: u64,
    admin: u64,
}

/// Shares `files` out for a host of a cluster of `hosts`; `Err` with how many are needed.
fn share(files: u64, hosts: u64) -> Result<Shared, u64> {
    let own = (files / 4).clamp(OWN_MIN, OWN_MAX) + PER_HOST * hosts;
    let admin = (files / 8).clamp(16, ADMIN_CONNECTIONS_MAX as u64);
    match files.checked_sub(own + admin).filter(|clients| *clients >= CLIENTS_MIN) {
        Some(clients) => Ok(Shared { clients, admin }),
        // An eighth of them is the admin port's.
        None => Err(((OWN_MIN + PER_HOST * hosts + CLIENTS_MIN) * 8).div_ceil(7)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ports that are each fitted against the whole take the journal's descriptors together.
    #[test]
    fn all_parts_together_are_no_more_than_there_is() {
        for files in [280, 512, 1_024, 4_096, 65_536, 1 << 20] {
            let shared = share(files, 3).expect("it is enough");
            let own = files - shared.clients - shared.admin;
            assert!(own >= OWN_MIN && own >= (files / 4).min(OWN_MAX), "{files}: {shared:?}");
            assert!(shared.clients >= CLIENTS_MIN && shared.admin >= 16, "{files}: {shared:?}");
        }
        assert_eq!(share(1_024, 3), Ok(Shared { clients: 628, admin: 128 }));
        assert_eq!(share(200, 3), Err(270));
        assert!(share(270, 3).is_ok(), "what is said to be needed is enough");
    }
}
