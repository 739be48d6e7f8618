//! A partition's state, in pieces.

use super::clients::DoneAppend;
use super::command::{Asker, Delivered};
use super::several::{Several, Stage};
use super::{ColourNode, PartitionState, Queued, Single};
use crate::terms::{
    AppendId, AppendTime, Colour, ColourPlacement, Content, NodePosition, Owner, PartitionId, RowIndex,
};
use kernel::{Bytes, Decode, DecodeError, Encode, NodeId, Reader, planted};

kernel::messages! {
    /// An item of a snapshot.
    pub enum SnapshotItem {
        /// What the state is but for its tables.
        1 => StateHead {
            /// The clock.
            clock: u64,
            /// When the append was delivered that was delivered last.
            last: AppendTime,
            /// Commands that were applied.
            applied: RowIndex,
            /// The digest.
            digest: u64,
        },
        /// What is remembered of a client.
        2 => ClientHead {
            /// The client.
            client: u64,
            /// It has the answers to all numbers below.
            below: u64,
            /// Its last command.
            used: RowIndex,
        },
        /// An append that is delivered, and that its client may ask for again.
        3 => ClientDone {
            /// The append.
            done: DoneAppend,
        },
        /// An append to several partitions that is not cleaned up.
        4 => SeveralState {
            /// Its name.
            id: AppendId,
            /// Who works on it.
            owner: Owner,
            /// What it is.
            content: Content,
            /// Its time; the proposed one until it is fixed.
            at: AppendTime,
            /// The time is its final one.
            is_fixed: bool,
            /// Where it is, when it is delivered.
            delivered: Option<Delivered>,
            /// Who asked last.
            node: NodeId,
            /// By which call.
            call: u64,
        },
        /// An append to this partition alone that waits.
        5 => WaitingSingle {
            /// Its name.
            id: AppendId,
            /// What it is.
            content: Content,
            /// Its time.
            at: AppendTime,
            /// Who asked last.
            node: NodeId,
            /// By which call.
            call: u64,
        },
        /// A colour, whose nodes follow.
        6 => ColourHead {
            /// The colour.
            colour: Colour,
            /// Its first node that is left.
            first: NodePosition,
            /// When its last node was delivered.
            last: AppendTime,
        },
        /// The next node of the colour.
        7 => NextNode {
            /// The colour.
            colour: Colour,
            /// The node.
            node: ColourNode,
        },
    }
}

/// Puts items into pieces of about so many bytes.
struct Pieces {
    budget: usize,
    whole: Vec<Bytes>,
    open: Vec<u8>,
}

impl Pieces {
    fn push(&mut self, item: impl Into<SnapshotItem>) {
        let bytes = item.into().encoded();
        if !self.open.is_empty() && self.open.len() + bytes.len() > self.budget {
            self.whole.push(std::mem::take(&mut self.open).into());
        }
        self.open.extend_from_slice(&bytes);
    }
}

impl PartitionState {
    /// All of the state, in pieces of about so many bytes, or of one item that is larger. At least one piece.
    pub fn pieces(&self, budget: usize) -> Vec<Bytes> {
        let mut pieces = Pieces { budget, whole: Vec::new(), open: Vec::new() };
        let (clock, last) = (self.clock, self.last);
        pieces.push(StateHead { clock, last, applied: self.applied, digest: self.digest });
        for client in self.clients.states() {
            pieces.push(ClientHead { client: client.client, below: client.below, used: client.used });
            client.done.into_iter().for_each(|done| pieces.push(ClientDone { done }));
        }
        for (&id, several) in &self.several {
            let Several { owner, content, stage, asker } = several.clone();
            let (at, is_fixed, delivered) = match stage {
                Stage::Proposed(at) => (at, false, None),
                Stage::Fixed(at) => (at, true, None),
                Stage::Delivered(delivered) => (delivered.at, true, Some(delivered)),
            };
            let Asker { node, call } = asker;
            pieces.push(SeveralState { id, owner, content, at, is_fixed, delivered, node, call });
        }
        for (&at, queued) in &self.queue {
            if let Queued::Single(Single { id, content, asker }) = queued.clone() {
                pieces.push(WaitingSingle { id, content, at, node: asker.node, call: asker.call });
            }
        }
        for (colour, chain) in self.colours.chains() {
            pieces.push(ColourHead { colour, first: chain.first, last: chain.last });
            chain.nodes.iter().for_each(|node| pieces.push(NextNode { colour, node: node.clone() }));
        }
        pieces.whole.push(pieces.open.into());
        pieces.whole
    }

    /// The state that these pieces are of.
    pub fn of_pieces(
        partition: PartitionId,
        placement: ColourPlacement,
        pieces: &[Bytes],
    ) -> Result<Self, DecodeError> {
        let mut state = Self::new(partition, placement);
        for piece in pieces {
            let mut reader = Reader::new(piece.clone());
            while reader.remaining() > 0 {
                state.take(SnapshotItem::decode(&mut reader)?);
            }
        }
        Ok(state)
    }

    fn take(&mut self, item: SnapshotItem) {
        match item {
            SnapshotItem::StateHead(StateHead { clock, last, applied, digest }) => {
                let clock = if planted!(clock_starts_from_delivered) { last.clock } else { clock };
                (self.clock, self.last, self.applied, self.digest) = (clock, last, applied, digest);
            }
            SnapshotItem::ClientHead(head) => self.clients.acknowledge(head.client, head.below, head.used),
            SnapshotItem::ClientDone(ClientDone { done }) => {
                let DoneAppend { id, at, placed } = done;
                self.clients.finish(id, &Delivered { at, placed });
            }
            SnapshotItem::SeveralState(it) => {
                let asker = Asker { node: it.node, call: it.call };
                let stage = match (it.is_fixed, it.delivered) {
                    (_, Some(delivered)) => Stage::Delivered(delivered),
                    (true, None) => {
                        self.queue.insert(it.at, Queued::Fixed(it.id));
                        Stage::Fixed(it.at)
                    }
                    (false, None) => {
                        self.queue.insert(it.at, Queued::Pending);
                        Stage::Proposed(it.at)
                    }
                };
                let (owner, content) = (it.owner, it.content);
                self.several.insert(it.id, Several { owner, content, stage, asker });
            }
            SnapshotItem::WaitingSingle(it) => {
                let asker = Asker { node: it.node, call: it.call };
                self.waiting.insert(it.id, it.at);
                let single = Single { id: it.id, content: it.content, asker };
                self.queue.insert(it.at, Queued::Single(single));
            }
            SnapshotItem::ColourHead(it) => self.colours.install(it.colour, it.first, it.last),
            SnapshotItem::NextNode(it) => self.colours.install_node(it.colour, it.node),
        }
    }
}
