//! Questions to this host's shards: what each is for, and the messages that they go in.

use crate::gateway::Gateway;
use crate::gateway::connection::EntrySeq;
use crate::wire::{Query, WatchSeq};
use kernel::{Bytes, Cx, NodeId};
use mason::{Gsn, Questions, Space, To};
use std::collections::BTreeMap;

/// What a shard's answer begins with: the global sequence number of what it shows, and a code.
pub(crate) const ANSWER_HEAD_BYTES: usize = 12;

/// What an answer is for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Part {
        node: NodeId,
        seq: EntrySeq,
        part: usize,
        at_least: u64,
        /// The registration that it may leave, and the question itself.
        watch: Option<(WatchSeq, Bytes)>,
        /// The version of the shard map by which its shard was chosen.
        shard_map: u64,
    },
    Sizes(Space),
    /// Of this round.
    Quotas(u64),
    Reapable,
    /// The config node.
    Config,
    /// To forget what this question names.
    Forget(Bytes),
}

#[derive(Debug)]
pub(crate) struct Reads {
    next_tag: u64,
    pub(crate) targets: BTreeMap<u64, Target>,
    questions: Questions,
    watch: WatchSeq,
    /// Some shard's mark has moved in this burst.
    pub(crate) progressed: bool,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            next_tag: 0,
            targets: BTreeMap::new(),
            questions: Questions::default(),
            watch: WatchSeq(0),
            progressed: false,
        }
    }

    /// The number of a registration.
    pub(crate) fn next_watch(&mut self) -> WatchSeq {
        self.watch = self.watch.next();
        self.watch
    }

    pub(crate) fn last_watch(&self) -> WatchSeq {
        self.watch
    }

    /// What the gateway asks for itself is of a bounded size.
    fn ask(&mut self, space: Space, shard_map: Option<u64>, body: Bytes, at_least: u64, target: Target) {
        self.ask_within(space, shard_map, body, (at_least, u64::MAX), target);
    }

    pub(crate) fn ask_within(
        &mut self,
        space: Space,
        shard_map: Option<u64>,
        body: Bytes,
        (at_least, limit): (u64, u64),
        target: Target,
    ) {
        self.next_tag += 1;
        self.targets.insert(self.next_tag, target);
        self.questions.ask(To { space, shard_map }, (self.next_tag, body), Gsn(at_least), limit);
    }

    pub(crate) fn ask_sizes(&mut self, space: Space) {
        self.ask(space, None, Query::Sizes.written().into(), 0, Target::Sizes(space));
    }

    pub(crate) fn ask_quotas(&mut self, space: Space, query: &Query<'_>, round: u64) {
        self.ask(space, None, query.written().into(), 0, Target::Quotas(round));
    }

    pub(crate) fn ask_to_forget(&mut self, space: Space, shard_map: u64, query: &Query<'_>) {
        let query = Bytes::from(query.written());
        self.ask(space, Some(shard_map), query.clone(), 0, Target::Forget(query));
    }

    pub(crate) fn ask_reapable(&mut self, space: Space, now: u64, limit: u16) {
        self.ask(space, None, Query::Reapable { now, limit }.written().into(), 0, Target::Reapable);
    }

    pub(crate) fn ask_config(&mut self, space: Space, query: &Query<'_>) {
        self.ask(space, None, query.written().into(), 0, Target::Config);
    }

    pub(crate) fn flush(&mut self, servers: &[NodeId], cx: &mut Cx<'_, Gateway>) {
        self.questions.flush(servers, cx);
    }
}
