//! The archive that all hosts share: objects that are written once and stay. It takes time, fails, and may have written what it says
//! it has not; some hosts may not reach it for a while.

use crate::draw::{Purpose, mix, root};
use crate::plan::{HostIndex, HostMask};
use kernel::{ArchiveObject, Bytes};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug)]
pub struct SimulatedArchive {
    objects: BTreeMap<String, Bytes>,
    /// Who does not reach it, and until when.
    partitioned: Vec<(HostMask, u64)>,
    /// Of a hundred requests, so many fail.
    failing: u64,
    /// How many times as long as a sync a request takes, at most.
    slowness: u64,
    key: u64,
    asked: u64,
}

/// How the archive takes a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// It does what it is asked, and says so.
    Done,
    /// It does it, and the answer is lost.
    Unheard,
    /// It does nothing.
    Failed,
}

impl SimulatedArchive {
    pub(crate) fn new(seed: u64) -> Self {
        let key = root(seed, Purpose::Archive);
        let failing = [0, 0, 10, 40][(mix(key, 0) % 4) as usize];
        let slowness = 1 << (mix(key, 1) % 9);
        Self { objects: BTreeMap::new(), partitioned: Vec::new(), failing, slowness, key, asked: 0 }
    }

    /// Everything in it, by name.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.objects.iter().map(|(name, object)| (name.as_str(), object))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// True if nothing was ever archived.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(crate) fn partition(&mut self, hosts: HostMask, until: u64) {
        self.partitioned.push((hosts, until));
    }

    /// Everybody reaches it from now on, and it does not fail.
    pub(crate) fn heal(&mut self) {
        self.partitioned.clear();
        self.failing = 0;
    }

    /// How long the next request takes, where a sync takes `sync` nanoseconds.
    pub(crate) fn lasts(&mut self, sync: u64) -> u64 {
        self.asked += 1;
        sync + mix(self.key, 2 * self.asked) % (sync * self.slowness + 1)
    }

    /// What becomes of a request of `host` that is due now.
    pub(crate) fn takes(&mut self, host: HostIndex, now: u64) -> Taken {
        self.partitioned.retain(|&(_, until)| until > now);
        let draw = mix(self.key, 2 * self.asked + 1);
        self.asked += 1;
        if self.partitioned.iter().any(|(hosts, _)| hosts.has(host)) {
            Taken::Failed
        } else if draw % 100 >= self.failing {
            Taken::Done
        } else if draw >> 32 & 1 == 0 {
            Taken::Unheard
        } else {
            Taken::Failed
        }
    }

    pub(crate) fn has(&self, object: &ArchiveObject) -> bool {
        self.objects.contains_key(&object.name)
    }

    /// Adds an object. The same name must always stand for the same bytes.
    pub(crate) fn put(&mut self, object: &ArchiveObject, contents: &[u8]) {
        let bytes: Bytes = [&object.head, contents].concat().into();
        let there = self.objects.entry(object.name.clone()).or_insert_with(|| bytes.clone());
        assert!(*there == bytes, "ARCH: {} was archived with other bytes", object.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // An archive that never fails, or does after the heal, or that keeps what nobody gave it, tests nothing.
    #[test]
    fn it_fails_until_it_is_healed_and_keeps_what_it_has() {
        let object = |name: &str| ArchiveObject { name: name.to_owned(), head: Bytes::from_static(b"head ") };
        let mut reached = std::collections::BTreeMap::new();
        for seed in 0..20 {
            let mut archive = SimulatedArchive::new(seed);
            for _ in 0..50 {
                assert!((10..=10 + 10 * 256).contains(&archive.lasts(10)));
                *reached.entry(format!("{:?}", archive.takes(0, 5))).or_insert(0) += 1;
            }
            archive.partition(HostMask::of(1), 100);
            assert_eq!(archive.takes(1, 99), Taken::Failed);
            archive.heal();
            assert!((0..50).all(|_| archive.takes(1, 99) == Taken::Done));
            assert!(!archive.has(&object("a")) && archive.is_empty());
            archive.put(&object("a"), b"contents");
            archive.put(&object("a"), b"contents");
            assert_eq!(archive.objects().collect::<Vec<_>>(), [("a", &Bytes::from_static(b"head contents"))]);
        }
        assert!(reached.len() == 3 && reached.values().all(|&times| times > 20), "{reached:?}");
        let twice = std::panic::catch_unwind(|| {
            let mut archive = SimulatedArchive::new(0);
            archive.put(&object("a"), b"one");
            archive.put(&object("a"), b"another");
        });
        assert!(twice.is_err(), "one name, two contents");
    }
}
