//! Names of changes that are executed once. The engine knows an append that is sent again by what it holds; a change of an observed-remove
//! map holds what its process had seen, which is something else in each. So its name is in the node, and views remember names.
//!
//! Invariant: of the nodes of one name the first counts, in all its colours alike: they are in the same ones, and in one order there.

use super::log::MapLog;
use crate::fuzzylog::FuzzyError;
use kernel::{Bytes, Encode, planted};
use std::collections::{BTreeMap, BTreeSet};
use wire::fuzzylog::{FuzzyFailure, NUMBERS_MAX, NumberedBy};

/// Clients whose changes a view remembers; the one whose last change is the oldest is forgotten first.
pub(super) const CLIENTS_MAX: usize = 1_024;
/// What a client, and each of its names, takes in memory, about.
const CLIENT_BYTES: usize = 128;
const NAME_BYTES: usize = 48;

kernel::record! {
    /// The name of a change.
    #[derive(Copy, Eq)]
    pub struct ChangeName {
        /// Whose, and as which of its changes.
        by: NumberedBy,
        /// Distinguishes what is changed from what else may have the number.
        digest: u64,
    }
}

kernel::record! {
    /// The names of a client's changes, as a view is stored.
    pub struct StoredNames {
        /// The client.
        client: u64,
        /// It has the answers to all numbers below.
        below: u64,
        /// The position of its last change.
        used: u64,
        /// Its numbers, and what was changed under them.
        done: Vec<(u64, u64)>,
    }
}

/// What is known of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamePast {
    /// Nothing.
    New,
    /// It is executed.
    Done,
    /// Its client has said that it has the answer.
    Forgotten,
    /// Its client has changed something else under the number.
    Other,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Names {
    below: u64,
    used: u64,
    done: BTreeSet<(u64, u64)>,
}

/// The names that a view remembers: a function of its nodes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ChangeNames {
    clients: BTreeMap<u64, Names>,
    /// Clients by the positions of their last changes.
    by_use: BTreeSet<(u64, u64)>,
    bytes: usize,
}

impl Names {
    fn bytes(&self) -> usize {
        CLIENT_BYTES + NAME_BYTES * self.done.len()
    }
}

impl ChangeNames {
    /// What is known of a change.
    pub fn past(&self, name: &ChangeName) -> NamePast {
        let ChangeName { by: NumberedBy { client, number, .. }, digest } = *name;
        let Some(names) = self.clients.get(&client) else { return NamePast::New };
        let mut known = names.done.range((number, 0)..=(number, u64::MAX));
        match known.next() {
            Some(_) if names.done.contains(&(number, digest)) => NamePast::Done,
            Some(_) => NamePast::Other,
            None if number < names.below => NamePast::Forgotten,
            None => NamePast::New,
        }
    }

    /// Takes in a change that is played, and says whether it counts: it is the first of its name, and not one that its client has the
    /// answer to.
    pub fn admits(&mut self, name: &ChangeName, position: u64) -> bool {
        let past = self.past(name);
        let ChangeName { by: NumberedBy { client, number, below }, digest } = *name;
        let mut names = self.take(client).unwrap_or_default();
        if below > names.below {
            names.below = below;
            names.done = names.done.split_off(&(below, 0));
        }
        // Nobody sends a number below that again.
        let counts = matches!(past, NamePast::New | NamePast::Other) || planted!(names_not_remembered);
        if counts && number >= names.below {
            names.done.insert((number, digest));
        }
        while names.done.len() as u64 > NUMBERS_MAX
            && let Some((first, _)) = names.done.pop_first()
        {
            names.below = names.below.max(first + 1);
        }
        names.used = position;
        self.put(client, names);
        while self.clients.len() > CLIENTS_MAX {
            let Some(&(_, oldest)) = self.by_use.first() else { break };
            self.take(oldest);
        }
        counts
    }

    fn take(&mut self, client: u64) -> Option<Names> {
        let names = self.clients.remove(&client)?;
        self.by_use.remove(&(names.used, client));
        self.bytes -= names.bytes();
        Some(names)
    }

    fn put(&mut self, client: u64, names: Names) {
        self.bytes += names.bytes();
        self.by_use.insert((names.used, client));
        self.clients.insert(client, names);
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// As it is stored, behind the rest; nothing, if there is none.
    pub(super) fn store(&self, out: &mut Vec<u8>) {
        let stored = |(&client, names): (&u64, &Names)| {
            let done = names.done.iter().copied().collect();
            StoredNames { client, below: names.below, used: names.used, done }
        };
        if !self.clients.is_empty() {
            Some(self.clients.iter().map(stored).collect::<Vec<_>>()).encode(out);
        }
    }

    /// As it was stored.
    pub(super) fn of_stored(stored: Option<Vec<StoredNames>>) -> Self {
        let mut all = Self::default();
        for StoredNames { client, below, used, done } in stored.unwrap_or_default() {
            all.put(client, Names { below, used, done: done.into_iter().collect() });
        }
        all
    }
}

/// A change as a node holds it: what has no name is as it was before there were names.
pub(super) fn body_of(change: &impl Encode, name: Option<ChangeName>) -> Bytes {
    let mut body = change.encoded();
    if name.is_some() {
        name.encode(&mut body);
    }
    body.into()
}

/// Whether a change is executed already, as far as its colours' views say; an error if it may not be.
///
/// # Errors
/// Nothing was done, and nothing is to be.
pub(super) fn is_over(
    log: &impl MapLog,
    pasts: impl IntoIterator<Item = NamePast>,
) -> Result<bool, FuzzyError> {
    // Which of two is the first is not the same in all regions.
    if log.is_among_regions() {
        return Err(FuzzyError::Failed(FuzzyFailure::OtherRegion));
    }
    let mut is_over = false;
    for past in pasts {
        match past {
            NamePast::New => {}
            NamePast::Done => is_over = true,
            NamePast::Forgotten => return Err(FuzzyError::Failed(FuzzyFailure::Forgotten)),
            NamePast::Other => return Err(FuzzyError::Failed(FuzzyFailure::NumberUsed)),
        }
    }
    Ok(is_over)
}

/// The name of what is changed under a number.
pub(super) fn name_of<'a>(
    by: NumberedBy,
    changes: impl Iterator<Item = (&'a str, &'a Option<Bytes>)>,
) -> ChangeName {
    let mut bytes = by.client.encoded();
    for (key, put) in changes {
        Bytes::copy_from_slice(key.as_bytes()).encode(&mut bytes);
        put.encode(&mut bytes);
    }
    ChangeName { by, digest: super::digest(&bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Decode;

    fn name(client: u64, number: u64, below: u64, digest: u64) -> ChangeName {
        ChangeName { by: NumberedBy { client, number, below }, digest }
    }

    // A change that is sent again is executed twice; or one that was never executed is not executed at all.
    #[test]
    fn the_first_of_a_name_counts() {
        let mut names = ChangeNames::default();
        assert_eq!(names.past(&name(1, 5, 5, 7)), NamePast::New);
        assert!(names.admits(&name(1, 5, 5, 7), 0));
        assert!(!names.admits(&name(1, 5, 5, 7), 1), "it is sent again");
        assert_eq!(names.past(&name(1, 5, 5, 8)), NamePast::Other);
        assert_eq!(names.past(&name(1, 6, 5, 8)), NamePast::New);
        assert!(names.admits(&name(2, 5, 5, 7), 2), "another client's");
        assert!(names.admits(&name(1, 7, 6, 9), 3));
        assert_eq!(names.past(&name(1, 5, 5, 7)), NamePast::Forgotten);
        assert!(!names.admits(&name(1, 5, 5, 7), 4), "it was late on its way");
    }

    // A view that is loaded forgets another client than one that was played, and copies differ for good.
    #[test]
    fn a_loaded_view_goes_on_as_the_one_that_was_stored() {
        let mut played = ChangeNames::default();
        let all = CLIENTS_MAX as u64;
        for client in 0..all + 3 {
            assert!(played.admits(&name(client, 1, 1, client), client));
        }
        assert!(!played.admits(&name(5, 1, 1, 5), all + 3));
        assert_eq!(played.past(&name(2, 1, 1, 2)), NamePast::New, "the oldest are forgotten");
        let mut out = Vec::new();
        played.store(&mut out);
        let stored = Decode::decode(&mut kernel::Reader::new(out.into())).expect("it is stored");
        let mut loaded = ChangeNames::of_stored(stored);
        assert_eq!(loaded, played);
        for names in [&mut played, &mut loaded] {
            assert!(names.admits(&name(all + 9, 1, 1, 0), all + 9));
            assert_eq!(names.past(&name(3, 1, 1, 3)), NamePast::New);
            assert_eq!(names.past(&name(5, 1, 1, 5)), NamePast::Done);
            assert_eq!(names.bytes(), CLIENTS_MAX * (CLIENT_BYTES + NAME_BYTES));
        }
    }
}
