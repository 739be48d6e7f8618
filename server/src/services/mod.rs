//! The services: the one list of them, and what each gives the rest of the server.
//!
//! A new service is a folder here, its line in [`SERVICES`] with its slots in [`slots`], and its nodes in `family.rs`. Everything else
//! asks the list: the cluster file for keys and checks, a host for nodes and ports, the admin port for routes, status, readiness and
//! metrics, `ordinate inspect` for whose a record is.

pub mod coordination;
pub mod events;
pub mod fuzzylog;
pub mod json_bytes;
pub mod kv;
pub mod log;
pub mod mason;
pub mod native;
pub mod records;
pub mod sequence;
pub mod status;
pub mod txn;

pub use crate::cluster::description::{
    AfterStart, CannotJoin, Follower, IfOn, LargeReads, Listed, Port, ReadyProbe, Service, Slots, StartError,
    Started, Starting, client_limits,
};
pub use crate::cluster::engine::Engine;
pub use native::{Asker, NativeCalls};
pub use status::{ServiceStatus, Statuses};

use crate::admin::state::HttpRoutes;
use kernel::HostSlot;
use records::RecordOwner;

/// All services. The order is that of their nodes on a host, and of what is printed.
pub const SERVICES: &[&Listed] =
    &[&kv::LISTED, &coordination::LISTED, &sequence::LISTED, &log::LISTED, &txn::LISTED, &fuzzylog::LISTED];

/// What they serve over HTTP.
pub const HTTP_ROUTES: &[&HttpRoutes] = &[
    &kv::HTTP_ROUTES,
    &coordination::HTTP_ROUTES,
    &sequence::HTTP_ROUTES,
    &log::HTTP_ROUTES,
    &txn::HTTP_ROUTES,
    &fuzzylog::HTTP_ROUTES,
];

/// The slots of the services' nodes, the same on all hosts of all clusters. A number that was given away is never given again.
pub mod slots {
    use super::Slots;
    use mason::SLOTS_PER_DEPLOYMENT as BLOCK;

    /// Of the key-value service, and of the log that decides who the members are.
    pub const KV: Slots = Slots { first: 0x1, count: 0xff };
    /// Of the coordination service, numbered from 0 as a deployment of Mason.
    pub const COORDINATION: Slots = Slots { first: 0x100, count: BLOCK - 0x100 };
    /// Of the sequence.
    pub const SEQUENCE: Slots = Slots { first: BLOCK, count: BLOCK };
    /// Of the shared log over Mason, and over one replicated state machine.
    pub const LOG: Slots = Slots { first: 2 * BLOCK, count: BLOCK };
    /// Of the shared log over CORFU', which has slots of its own so that data of one engine are not read by another.
    pub const LOG_OVER_CORFU: Slots = Slots { first: 3 * BLOCK, count: BLOCK };
    /// Of transactions.
    pub const TXN: Slots = Slots { first: 4 * BLOCK, count: BLOCK };
    /// Of the partially ordered log.
    pub const FUZZYLOG: Slots = Slots { first: 5 * BLOCK, count: BLOCK };
    /// Of what orders the shared log over FuzzyLog. Its gateway and shards are where they are over Mason.
    pub const LOG_OVER_FUZZYLOG: Slots = Slots { first: 6 * BLOCK, count: BLOCK };
    /// Of what orders the coordination service over FuzzyLog. Its gateway and shards are where they are over Mason.
    pub const COORDINATION_OVER_FUZZYLOG: Slots = Slots { first: 7 * BLOCK, count: BLOCK };
}

/// The role that has this slot in every cluster.
pub fn owner_of(host_slot: HostSlot) -> RecordOwner {
    SERVICES.iter().find_map(|service| (service.owner)(host_slot)).unwrap_or_else(RecordOwner::unknown)
}

// A slot or a tag that is two services' would have one take what is the other's.
const _: () = {
    let mut one = 0;
    while one < SERVICES.len() {
        let mut other = one + 1;
        while other < SERVICES.len() {
            assert!(!share_slots(SERVICES[one].slots, SERVICES[other].slots), "two services share slots");
            assert!(
                !share_tags(SERVICES[one].receivers, SERVICES[other].receivers),
                "two services share a receiver's tag"
            );
            other += 1;
        }
        one += 1;
    }
};

const fn share_slots(ours: &[Slots], theirs: &[Slots]) -> bool {
    let mut one = 0;
    while one < ours.len() {
        let mut other = 0;
        while other < theirs.len() {
            if ours[one].overlaps(theirs[other]) {
                return true;
            }
            other += 1;
        }
        one += 1;
    }
    false
}

const fn share_tags(ours: &[u8], theirs: &[u8]) -> bool {
    let mut one = 0;
    while one < ours.len() {
        let mut other = 0;
        while other < theirs.len() {
            if ours[one] == theirs[other] {
                return true;
            }
            other += 1;
        }
        one += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterFile;
    use crate::cluster::file::Overrides;
    use std::path::Path;

    fn file(settings: &str) -> ClusterFile {
        let text = format!("cluster = \"c\"\n{settings}\n[hosts]\na = \"a:1\"\nb = \"b:1\"\nc = \"c:1\"\n");
        ClusterFile::parse(&text, Path::new("."), &Overrides::default()).expect("it is sound")
    }

    const ALL: &str = "[coordination]\nengine = \"mason\"\n[sequence]\nspaces = [\"s\"]\n[log]\nspaces = 2\n[txn]\nshards = 2\n[fuzzylog]\npartitions = 2\n";

    // Slots that are not a service's own are another's one day, and its journal is read as that one's.
    #[test]
    fn nodes_stay_in_the_slots_of_their_service_and_have_owners() {
        let mut engines_seen = Vec::new();
        let over_paxos =
            ALL.replace("mason", "paxos").replace("spaces = 2", "engine = \"paxos\"\nspaces = 2");
        let over_corfu = ALL.replace("spaces = 2", "engine = \"corfu\"\nspaces = 1");
        let over_fuzzylog = ALL
            .replace("engine = \"mason\"", "engine = \"fuzzylog\"")
            .replace("spaces = 2", "engine = \"fuzzylog\"\nspaces = 2");
        for settings in [ALL, &over_paxos, &over_corfu, &over_fuzzylog] {
            let file = file(settings);
            assert_eq!(file.services().len(), SERVICES.len());
            assert!(SERVICES.iter().map(|it| it.name).eq(HTTP_ROUTES.iter().map(|it| it.service.name)));
            for listed in SERVICES {
                let on = file.on(listed).expect("all are on");
                let has_calls = on.native(&file, "a").is_some();
                assert_eq!(has_calls, !listed.receivers.is_empty(), "the native port of {}", listed.name);
            }
            for service in file.services() {
                let listed = service.listed();
                engines_seen.push((listed.name, service.engine()));
                for (host_slot, _) in service.nodes(&file, "a", false) {
                    let home = listed.slots.iter().any(|slots| slots.contains(host_slot));
                    assert!(home, "{} has a node at {:#x}", listed.name, host_slot.0);
                    let owner = owner_of(host_slot).name;
                    let named = owner.starts_with(listed.name);
                    assert!(named, "the owner of {:#x} is {owner}, not {}", host_slot.0, listed.name);
                }
            }
        }
        for listed in SERVICES {
            for engine in listed.engines {
                assert!(engines_seen.contains(&(listed.name, *engine)), "{} over {engine}", listed.name);
            }
        }
    }

    // An overlap that the check at compile time does not see is no check.
    #[test]
    fn overlaps_are_seen() {
        let slots = |first, count| Slots { first, count };
        assert!(share_slots(&[slots(0, 1), slots(5, 5)], &[slots(9, 1)]));
        assert!(!share_slots(&[slots(0, 1), slots(5, 5)], &[slots(10, 1), slots(1, 4)]));
        assert!(share_tags(&[1, 2], &[3, 2]) && !share_tags(&[1, 2], &[3, 4]));
    }

    // An engine that a service does not run over must not fall back to one that it does.
    #[test]
    fn other_engines_are_refused_with_those_that_there_are() {
        let parse = |settings: &str| {
            let text = format!("cluster = \"c\"\n{settings}\n[hosts]\na = \"a:1\"\n");
            ClusterFile::parse(&text, Path::new("."), &Overrides::default()).map_err(|error| error.what)
        };
        for (key, engine, possible) in [
            ("coordination.engine", "corfu", "mason, paxos, fuzzylog, none"),
            ("coordination.engine", "zab", "mason, paxos, fuzzylog, none"),
            ("log.engine", "none", "mason, paxos, corfu, fuzzylog"),
            ("kv.engine", "mason", "one of: paxos"),
        ] {
            let refused = parse(&format!("{key} = \"{engine}\"")).expect_err("it does not run over that");
            assert!(refused.contains(possible) && refused.contains(key), "{refused}");
        }
    }
}
