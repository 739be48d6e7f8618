//! What the states of one exploration share, and what they are made of beside hosts.

use super::fingerprint::Fingerprint;
use super::{ExploreBounds, Scope};
use crate::spec::RequestOf;
use kernel::{Bytes, NodeId};
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;

/// A message in flight.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) bytes: Bytes,
    pub(super) hash: u64,
}

/// One client's progress through its requests.
#[derive(Clone, Copy, Default, Hash)]
pub(super) struct Progress {
    pub(super) asked: u32,
    pub(super) waits: bool,
}

/// What does not change from state to state, and what is only counted.
pub(super) struct World<'a, S: Scope> {
    pub(super) scope: &'a S,
    pub(super) bounds: ExploreBounds,
    pub(super) requests: Vec<(NodeId, Vec<RequestOf<S::Node>>)>,
    pub(super) marks: BTreeMap<&'static str, u64>,
    pub(super) scratch: Vec<u8>,
    /// Packets that change nothing at a host, and those that do, by the hash of both.
    pub(super) late: HashSet<u64, BuildHasherDefault<Fingerprint>>,
    pub(super) timely: HashSet<u64, BuildHasherDefault<Fingerprint>>,
}

impl<'a, S: Scope> World<'a, S> {
    pub(super) fn new(scope: &'a S) -> Self {
        let (requests, bounds) = (scope.requests(), scope.bounds());
        let (late, timely) = (HashSet::default(), HashSet::default());
        Self { scope, bounds, requests, marks: BTreeMap::new(), scratch: Vec::new(), late, timely }
    }

    /// Whether any client has something to ask.
    pub(super) fn asks(&self) -> bool {
        self.requests.iter().any(|(_, requests)| !requests.is_empty())
    }
}
