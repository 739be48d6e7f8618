//! What roles say of themselves, for the simulator to hold against what is so.

use crate::id::NodeId;
use crate::recount::Recount;
use std::collections::BTreeSet;

/// What a role says of its state.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Statement {
    /// Numbers that it keeps beside what they count.
    pub recounts: Vec<Recount>,
    /// What is left to be done, and how much of it: nothing, once the cluster is at rest.
    pub unfinished: Vec<(&'static str, usize)>,
    /// What it holds of something, and the most that it may hold.
    pub bounds: Vec<(&'static str, usize, usize)>,
    /// Whom it shows beacons, if it knows.
    pub beacons: Option<BTreeSet<NodeId>>,
}
