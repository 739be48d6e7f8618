//! Shards that execute one order, without gateways: what an engine does, in a few lines.

use coordination::wire::{Body, JuteInput, Query};
use coordination::{HomeSessions, Placement, SessionSettings, Znodes};
use kernel::{Bytes, NodeId, SnapshotStep};
use mason::{Group, Gsn, Number, Order, Placed, Resharded as _, Shard, ShardMap, ShardOut, Space, Stub};
use std::collections::BTreeMap;

pub(crate) struct Shards {
    pub(crate) placement: Placement,
    pub(crate) shards: Vec<Znodes>,
    numbers: Vec<u64>,
    shard_map: ShardMap,
    stub: HomeSessions,
}

impl Shards {
    pub(crate) fn new(shards: u16) -> Self {
        Self::of(Placement::new(shards))
    }

    pub(crate) fn of(placement: Placement) -> Self {
        let settings = SessionSettings::new(placement, [0; 32]);
        Self {
            shards: placement.spaces().map(|space| Znodes::new(space, placement, 9)).collect(),
            numbers: vec![0; usize::from(placement.shards())],
            shard_map: ShardMap::at_bootstrap(placement.shards()),
            stub: HomeSessions::new(Group(0), settings),
            placement,
        }
    }

    /// Executes; the one answer that all participants give, and what readers are sent.
    pub(crate) fn execute(
        &mut self,
        body: &Body<'_>,
        gsn: u64,
        time: u64,
    ) -> (Vec<u8>, Vec<(NodeId, Bytes)>) {
        let body = Bytes::from(body.written());
        let spaces = match Body::read(&body) {
            // A clean-up names its spaces; all of them will do.
            Ok(Body::CleanUp { .. }) => self.placement.spaces().collect(),
            _ => self.stub.spaces(&body, &self.shard_map),
        };
        let numbers = spaces.into_iter().map(|space| {
            self.numbers[usize::from(space.0)] += 1;
            Placed { space, number: Number(self.numbers[usize::from(space.0)]) }
        });
        let order = Order { numbers: numbers.collect(), gsn: Gsn(gsn), time };
        let inputs: Vec<(Space, Bytes)> = order
            .numbers
            .iter()
            .map(|placed| {
                let mut inputs = Vec::new();
                self.shards[usize::from(placed.space.0)].inputs(&body, &order, &mut inputs);
                (placed.space, inputs.into())
            })
            .collect();
        let (mut answers, mut reported) = (Vec::new(), Vec::new());
        for placed in &order.numbers {
            let others: Vec<_> = inputs.iter().filter(|(space, _)| *space != placed.space).cloned().collect();
            let mut out = ShardOut::default();
            self.shards[usize::from(placed.space.0)].execute(&body, &order, &others, &mut out);
            let (answer, notices) = out.into_parts();
            answers.push(answer);
            reported.extend(notices);
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "participants disagree: {answers:?}");
        (answers.swap_remove(0), reported)
    }

    /// The tree is distributed over so many shards from here on; what readers were sent at the resharding.
    pub(crate) fn reshard(&mut self, shards: u16, gsn: u64, page_bytes: usize) -> Vec<(NodeId, Bytes)> {
        let before = self.placement.shards();
        let shard_map = ShardMap { version: self.shard_map.version + 1, shards, before };
        for space in (self.shards.len() as u16..shards).map(Space) {
            self.shards.push(Znodes::new(space, self.placement, 9));
            self.numbers.push(0);
        }
        let order =
            Order { numbers: [Placed { space: Space(0), number: Number(0) }].into(), gsn: Gsn(gsn), time: 0 };
        let concerned = || shard_map.spaces().map(|space| usize::from(space.0));
        let left = |what: Vec<(Space, Vec<Bytes>)>| what.into_iter().collect::<BTreeMap<_, _>>();
        let mut pages: Vec<_> =
            concerned().map(|at| left(self.shards[at].leaving(&shard_map, page_bytes))).collect();
        let watches: Vec<_> =
            concerned().map(|at| self.shards[at].watches_leaving(&shard_map, Gsn(gsn))).collect();
        let mut reported = Vec::new();
        for at in concerned() {
            let here = Space(at as u16);
            let mine = pages
                .iter_mut()
                .zip(0..)
                .map(|(pages, from)| (Space(from), pages.remove(&here).unwrap_or_default()));
            let mine: Vec<_> = mine.collect();
            self.shards[at].reshard(&shard_map, &order, &mine);
            let mut out = ShardOut::default();
            for (_, watches) in watches.iter().flatten().filter(|(to, _)| *to == here) {
                self.shards[at].take_watches(watches, &mut out);
            }
            reported.extend(out.into_parts().1);
        }
        assert!(pages.iter().all(BTreeMap::is_empty), "pages for a shard that takes no part");
        (self.placement, self.shard_map) = (self.placement.over(shards), shard_map);
        reported
    }

    /// Code and body.
    pub(crate) fn read(&mut self, path: &str, query: &Query<'_>) -> (i32, Vec<u8>) {
        self.read_as(NodeId::ZERO, path, query)
    }

    pub(crate) fn read_as(&mut self, reader: NodeId, path: &str, query: &Query<'_>) -> (i32, Vec<u8>) {
        let space = self.placement.space_of(path);
        let mut out = Vec::new();
        let (shard, query) = (&mut self.shards[usize::from(space.0)], query.written());
        let known = shard.answer_bytes(&query);
        shard.read(reader, &query, &mut out);
        assert!(
            known.is_none_or(|bytes| bytes == out.len()),
            "{known:?} of {} bytes were foretold",
            out.len()
        );
        let code = JuteInput(&out[8..]).i32().expect("every answer has a code");
        (code, out.split_off(12))
    }

    /// A copy of a shard by way of a snapshot; `between` is called between its chunks.
    pub(crate) fn copy(&mut self, space: usize, budget: usize, mut between: impl FnMut(&mut Self)) -> Znodes {
        self.shards[space].begin_snapshot();
        let mut copy = Znodes::new(Space(space as u16), self.placement, 77);
        copy.reset();
        loop {
            let mut chunk = Vec::new();
            let step = self.shards[space].snapshot_step(budget, &mut chunk);
            assert_eq!(copy.install(&chunk), Ok(()));
            if step == SnapshotStep::Done {
                return copy;
            }
            between(self);
        }
    }
}
