//! Shards that execute one order, without gateways: what an engine does, in a few lines.

use coordination::wire::{Body, JuteInput, Query};
use coordination::{Placement, SessionSettings, Sessions, Znodes};
use kernel::{Bytes, NodeId, SnapshotStep};
use mason::{Group, Number, Order, Placed, Shard, ShardOut, Space, Spread, Stamp, Stub};
use std::sync::Arc;

pub(crate) struct Shards {
    pub(crate) placement: Arc<Placement>,
    pub(crate) shards: Vec<Znodes>,
    numbers: Vec<u64>,
    stub: Sessions,
}

impl Shards {
    pub(crate) fn new(shards: u16) -> Self {
        let placement = Arc::new(Placement::new(shards));
        let settings = SessionSettings::new(placement.clone(), [0; 32]);
        Self {
            shards: placement.spaces().map(|space| Znodes::new(space, placement.clone(), 9)).collect(),
            numbers: vec![0; usize::from(shards)],
            stub: Sessions::new(Group(0), settings),
            placement,
        }
    }

    /// Executes and returns the one answer that all participants give.
    pub(crate) fn execute(&mut self, body: &Body<'_>, stamp: u64, time: u64) -> Vec<u8> {
        let body = Bytes::from(body.written());
        let spaces = match Body::read(&body) {
            // A burial names its spaces; all of them will do.
            Ok(Body::Bury { .. }) => self.placement.spaces().collect(),
            _ => self.stub.spaces(&body, &Spread::of_birth(self.placement.shards())),
        };
        let numbers = spaces.into_iter().map(|space| {
            self.numbers[usize::from(space.0)] += 1;
            Placed { space, number: Number(self.numbers[usize::from(space.0)]) }
        });
        let order = Order { numbers: numbers.collect(), stamp: Stamp(stamp), time };
        let inputs: Vec<(Space, Bytes)> = order
            .numbers
            .iter()
            .map(|placed| {
                let mut inputs = Vec::new();
                self.shards[usize::from(placed.space.0)].inputs(&body, &order, &mut inputs);
                (placed.space, inputs.into())
            })
            .collect();
        let mut answers = Vec::new();
        for placed in &order.numbers {
            let others: Vec<_> = inputs.iter().filter(|(space, _)| *space != placed.space).cloned().collect();
            let mut out = ShardOut::default();
            self.shards[usize::from(placed.space.0)].execute(&body, &order, &others, &mut out);
            answers.push(out.into_parts().0);
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "participants disagree: {answers:?}");
        answers.swap_remove(0)
    }

    /// Code and body.
    pub(crate) fn read(&mut self, path: &str, query: &Query<'_>) -> (i32, Vec<u8>) {
        let space = self.placement.space_of(path);
        let mut out = Vec::new();
        self.shards[usize::from(space.0)].read(NodeId::ZERO, &query.written(), &mut out);
        let code = JuteInput(&out[8..]).i32().expect("every answer has a code");
        (code, out.split_off(12))
    }

    /// A copy of a shard by way of a snapshot; `between` is called between its chunks.
    pub(crate) fn copy(&mut self, space: usize, budget: usize, mut between: impl FnMut(&mut Self)) -> Znodes {
        self.shards[space].begin_snapshot();
        let mut copy = Znodes::new(Space(space as u16), self.placement.clone(), 77);
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
