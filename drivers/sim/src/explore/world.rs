//! What the states of one exploration share, and what they are made of beside hosts.

use super::fingerprint::AsItIs;
use super::host::HostState;
use super::{ExploreBounds, Scope};
use crate::spec::RequestOf;
use kernel::{Bytes, Node, NodeId};
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;
use std::rc::Rc;

/// A message in flight.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) bytes: Bytes,
    pub(super) hash: u64,
}

/// What one input does at one host: the same wherever the rest of the cluster is.
pub(super) struct Transition<N: Node> {
    pub(super) after: Rc<HostState<N>>,
    pub(super) sent: Vec<Rc<Flying>>,
    pub(super) marks: Vec<&'static str>,
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
    pub(super) late: HashSet<u64, BuildHasherDefault<AsItIs>>,
    pub(super) timely: HashSet<u64, BuildHasherDefault<AsItIs>>,
    transitions: BTreeMap<u64, Rc<Transition<S::Node>>>,
}

/// How many transitions are remembered. Then all are forgotten, so that memory is bounded.
const TRANSITIONS_MAX: usize = 1 << 17;

impl<'a, S: Scope> World<'a, S> {
    pub(super) fn new(scope: &'a S) -> Self {
        let (requests, bounds) = (scope.requests(), scope.bounds());
        let (late, timely) = (HashSet::default(), HashSet::default());
        let transitions = BTreeMap::new();
        Self {
            scope,
            bounds,
            requests,
            marks: BTreeMap::new(),
            scratch: Vec::new(),
            late,
            timely,
            transitions,
        }
    }

    /// What the input behind `key` is known to do.
    pub(super) fn transition(&self, key: u64) -> Option<Rc<Transition<S::Node>>> {
        self.transitions.get(&key).cloned()
    }

    pub(super) fn remember(&mut self, key: u64, transition: Rc<Transition<S::Node>>) {
        if self.transitions.len() >= TRANSITIONS_MAX {
            self.transitions.clear();
        }
        self.transitions.insert(key, transition);
    }

    /// Whether any client has something to ask.
    pub(super) fn asks(&self) -> bool {
        self.requests.iter().any(|(_, requests)| !requests.is_empty())
    }
}
