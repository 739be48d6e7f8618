//! Every key of the cluster file. `ordinate config explain` prints this table; flags and environment variables are made from it.

use super::keys::{Key, OF_THE_CLUSTER, SECTIONS, SHARED};
use crate::services::SERVICES;

/// All of them, with those of every service, each section in one piece.
pub fn all() -> Vec<&'static Key> {
    let services = SERVICES.iter().flat_map(|service| service.keys);
    let mut keys: Vec<&'static Key> = OF_THE_CLUSTER.iter().chain(services).chain(SHARED).collect();
    let mut sections: Vec<&str> = Vec::new();
    for key in &keys {
        if !sections.contains(&key.section()) {
            sections.push(key.section());
        }
    }
    keys.sort_by_key(|key| sections.iter().position(|section| *section == key.section()));
    keys
}

/// Everything that a cluster file may have: all keys, and the sections whose lines the operator names.
pub fn explained() -> Vec<&'static Key> {
    let mut keys = all();
    keys.extend(SECTIONS);
    keys
}

/// The key called `name`.
pub fn find(name: &str) -> Option<&'static Key> {
    all().into_iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::keys::nearest;
    use crate::cluster::values::check_value;

    // A typo that is accepted silently runs a cluster with a default nobody asked for.
    #[test]
    fn typos_find_their_key() {
        let names = || all().into_iter().map(|key| key.name);
        assert_eq!(nearest("durability.akc", names()), Some("durability.ack"));
        assert_eq!(nearest("paxos.electiontimeout", names()), Some("paxos.election_timeout"));
        assert_eq!(nearest("zzzzzzzzzzzz", names()), None);
    }

    // A key that two services have would be read by one as the other means it.
    #[test]
    fn keys_differ_and_sections_are_in_one_piece() {
        let keys = all();
        let names: std::collections::BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), keys.len());
        let mut sections: Vec<&str> = keys.iter().map(|key| key.section()).collect();
        sections.dedup();
        let differ: std::collections::BTreeSet<&str> = sections.iter().copied().collect();
        assert_eq!(differ.len(), sections.len(), "{sections:?}");
    }

    // A default that its own kind refuses would make every start fail.
    #[test]
    fn every_default_is_valid() {
        for key in all().into_iter().filter(|key| !key.default.is_empty()) {
            assert!(check_value(key, key.default).is_ok(), "{}", key.name);
        }
    }
}
