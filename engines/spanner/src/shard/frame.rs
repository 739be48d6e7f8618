//! What the leading part needs of the role around it.

use super::LogNodes;
use super::counts::ShardCounts;
use super::questions::Questions;
use crate::directory::Directory;
use crate::parameters::SpannerParameters;
use crate::txn::ShardId;

/// What the leading part needs of the role around it.
pub(super) struct Frame<'a> {
    pub(super) shard: ShardId,
    pub(super) directory: &'a Directory,
    pub(super) parameters: &'a SpannerParameters,
    pub(super) log: LogNodes,
    pub(super) questions: &'a mut Questions,
    pub(super) counts: &'a mut ShardCounts,
}
