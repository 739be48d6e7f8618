//! Questions to this host's shards: what each is for, and the messages that they go in.

use crate::gateway::Gateway;
use crate::gateway::connection::EntrySeq;
use crate::wire::{Query, WatchSeq};
use kernel::{Bytes, Cx, NodeId};
use mason::{Space, Stamp};
use std::collections::BTreeMap;

/// What a shard's answer begins with: the stamp of what it shows, and a code.
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
        /// The version of the spread by which its shard was chosen.
        spread: u64,
    },
    Sizes(Space),
    /// Of this round.
    Quotas(u64),
    Reapable,
    /// To forget what this question names.
    Forget(Bytes),
}

/// Questions of one message.
#[derive(Debug, Default)]
struct Outbox {
    at_least: u64,
    queries: Vec<mason::shard::Query>,
    /// For each query the largest answer that there is room for, in bytes.
    limits: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Reads {
    next_tag: u64,
    pub(crate) targets: BTreeMap<u64, Target>,
    /// By space, and the version of the spread by which it was chosen.
    outbox: BTreeMap<(Space, Option<u64>), Outbox>,
    watch: WatchSeq,
    /// Some shard's mark has moved in this burst.
    pub(crate) progressed: bool,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            next_tag: 0,
            targets: BTreeMap::new(),
            outbox: BTreeMap::new(),
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
    fn ask(&mut self, space: Space, spread: Option<u64>, body: Bytes, at_least: u64, target: Target) {
        self.ask_within(space, spread, body, (at_least, u64::MAX), target);
    }

    pub(crate) fn ask_within(
        &mut self,
        space: Space,
        spread: Option<u64>,
        body: Bytes,
        (at_least, limit): (u64, u64),
        target: Target,
    ) {
        self.next_tag += 1;
        self.targets.insert(self.next_tag, target);
        let outbox = self.outbox.entry((space, spread)).or_default();
        outbox.at_least = outbox.at_least.max(at_least);
        outbox.queries.push(mason::shard::Query { tag: self.next_tag, body });
        outbox.limits.push(limit);
    }

    pub(crate) fn ask_sizes(&mut self, space: Space) {
        self.ask(space, None, Query::Sizes.written().into(), 0, Target::Sizes(space));
    }

    pub(crate) fn ask_quotas(&mut self, space: Space, query: &Query<'_>, round: u64) {
        self.ask(space, None, query.written().into(), 0, Target::Quotas(round));
    }

    pub(crate) fn ask_to_forget(&mut self, space: Space, spread: u64, query: &Query<'_>) {
        let query = Bytes::from(query.written());
        self.ask(space, Some(spread), query.clone(), 0, Target::Forget(query));
    }

    pub(crate) fn ask_reapable(&mut self, space: Space, now: u64, limit: u16) {
        self.ask(space, None, Query::Reapable { now, limit }.written().into(), 0, Target::Reapable);
    }
}

impl Gateway {
    pub(crate) fn send_reads(&mut self, cx: &mut Cx<'_, Self>) {
        for ((space, spread), outbox) in std::mem::take(&mut self.reads.outbox) {
            if let Some(&shard) = self.settings.routes.shards.get(usize::from(space.0)) {
                let Outbox { at_least, queries: reads, limits } = outbox;
                let limits = Some(limits);
                cx.send(shard, mason::shard::Read { at_least: Stamp(at_least), reads, spread, limits });
            }
        }
    }
}
