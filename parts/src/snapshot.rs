//! Snapshots of a state machine: written to its node's journal chunk by chunk while it goes on, so that what is before them can go; read
//! back from there after a restart; handed to peers that lag, and taken from them.
//!
//! ```text
//! journal:  Begin  Chunk  Chunk ... End        a peer that lags, and one that does not: see Transfers
//!             ^ what is before it is trimmed when End is durable
//! ```
//! One is made at a time: the machine keeps what it needs to go on meanwhile, and keeps it once.

use crate::transfer::{Look, Offer, Offered, Page, TakenPage, Transfers, WantedPage};
use kernel::{
    Bytes, Cx, Decode, DecodeError, Encode, Instant, NodeId, Position, Reader, Role, SnapshotStep, invariant,
};
use std::fmt::Display;
use std::time::Duration;

/// What a node must not forget of its snapshots. `V` says how far one goes.
#[derive(Clone, PartialEq, Debug)]
pub enum SnapshotRecord<V> {
    /// A snapshot begins; an unfinished one before it is void.
    Begin {
        /// It holds everything below.
        below: V,
    },
    /// Its next chunk.
    Chunk {
        /// The contents.
        bytes: Bytes,
    },
    /// It is complete.
    End,
}

/// The least time between two chunks written, so that a snapshot does not crowd out the votes.
const CHUNK_EVERY: Duration = Duration::from_millis(2);
/// What the last step may add beyond a chunk's budget without another allocation.
const CHUNK_SLACK_BYTES: usize = 1 << 10;

/// The snapshots of one node. `W` makes the chunks of the one at hand.
#[derive(Clone, Debug)]
pub struct Snapshots<V, W> {
    durable_below: V,
    /// How large the journal's one is.
    bytes: u64,
    job: Option<Job<V, W>>,
    restoring: Option<Restored<V>>,
    /// The one whose chunks are handed out as they are read back, and what they come to.
    streamed: Option<(V, u64)>,
    /// A record was read back.
    restored_any: bool,
    transfers: Transfers<V>,
}

#[derive(Clone, Debug)]
enum Job<V, W> {
    Writing { below: V, writer: W, begin: Position, stepped_at: Instant, bytes: u64 },
    Serving { below: V, writer: W, offer: Offer },
}

/// A snapshot that stands in the journal.
#[derive(Debug)]
pub struct WrittenSnapshot<V, W> {
    /// It holds everything below.
    pub below: V,
    /// Its first record: nothing before it is needed when its last one is durable.
    pub begin: Position,
    /// Its last record.
    pub end: Position,
    /// What has made them.
    pub writer: W,
}

/// A snapshot that was read back.
#[derive(Clone, PartialEq, Debug)]
pub struct Restored<V> {
    /// It holds everything below.
    pub below: V,
    /// All of its chunks.
    pub chunks: Vec<Bytes>,
}

/// What a record that is read back comes to.
#[derive(Clone, PartialEq, Debug)]
pub enum ReadBack<V> {
    /// Nothing by itself.
    Nothing,
    /// The next chunk of a snapshot that is whole: it may be installed at once.
    Chunk(Bytes),
    /// A snapshot is complete; with the chunks that were not handed out before.
    Whole(Restored<V>),
}

/// What a peer's question for a chunk comes to.
#[derive(Clone, PartialEq, Debug)]
pub enum Served<V> {
    /// It is late, or somebody else is served.
    Nothing,
    /// The chunk.
    Chunk {
        /// The snapshot holds everything below.
        below: V,
        /// The contents.
        bytes: Bytes,
        /// No chunk follows.
        last: bool,
    },
    /// The peer has all.
    Done,
}

/// One step of what a machine writes, and whether it is the last.
pub fn chunk_of(budget: usize, step: impl FnOnce(usize, &mut Vec<u8>) -> SnapshotStep) -> (Bytes, bool) {
    let mut chunk = Vec::with_capacity(budget + CHUNK_SLACK_BYTES);
    let step = step(budget, &mut chunk);
    (chunk.into(), step == SnapshotStep::Done)
}

impl<V: Default, W> Default for Snapshots<V, W> {
    fn default() -> Self {
        let (job, restoring, streamed, transfers) = (None, None, None, Transfers::default());
        let (durable_below, restored_any) = (V::default(), false);
        Self { durable_below, bytes: 0, job, restoring, streamed, restored_any, transfers }
    }
}

/// Writing, and reading back.
impl<V: Copy + PartialOrd + Display + Encode + Decode, W> Snapshots<V, W> {
    /// The journal's snapshot holds everything below.
    pub fn durable_below(&self) -> V {
        self.durable_below
    }

    /// The journal has a snapshot of everything below.
    pub fn set_durable(&mut self, below: V) {
        self.durable_below = below;
    }

    /// How large the journal's snapshot is; what is written again must stand in proportion to it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True while none is made.
    pub fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// True while one is written: its next chunk waits for a timer.
    pub fn is_writing(&self) -> bool {
        matches!(self.job, Some(Job::Writing { .. }))
    }

    /// Begins to write one.
    pub fn begin<R>(&mut self, below: V, writer: W, cx: &mut Cx<'_, R>)
    where
        R: Role<Record: From<SnapshotRecord<V>>>,
    {
        let begin = cx.append(&SnapshotRecord::Begin { below }.into());
        self.job = Some(Job::Writing { below, writer, begin, stepped_at: cx.now(), bytes: 0 });
    }

    /// Writes the next chunk of the one that is written, if there is one and it is time; else `timer` says when. `next` makes the chunk,
    /// and knows whether it is the last. Returns the snapshot that this completes.
    pub fn step<R>(
        &mut self,
        timer: R::Timer,
        cx: &mut Cx<'_, R>,
        next: impl FnOnce(&mut W) -> (Bytes, bool),
    ) -> Option<WrittenSnapshot<V, W>>
    where
        R: Role<Record: From<SnapshotRecord<V>>>,
    {
        let Some(Job::Writing { writer, stepped_at, bytes, .. }) = &mut self.job else { return None };
        if cx.now().since(*stepped_at) < CHUNK_EVERY {
            cx.set_timer(timer, CHUNK_EVERY);
            return None;
        }
        *stepped_at = cx.now();
        let (chunk, last) = next(writer);
        *bytes += chunk.len() as u64;
        cx.append(&SnapshotRecord::Chunk { bytes: chunk }.into());
        if !last {
            cx.set_timer(timer, CHUNK_EVERY);
            return None;
        }
        let Some(Job::Writing { below, writer, begin, bytes, .. }) = self.job.take() else { return None };
        let end = cx.append(&SnapshotRecord::End.into());
        let before = self.durable_below;
        invariant!(DUR, below >= before, "a snapshot below {below} follows one below {before}");
        (self.durable_below, self.bytes) = (below, bytes);
        Some(WrittenSnapshot { below, begin, end, writer })
    }

    /// Takes a record back after a restart; returns the snapshot that it completes.
    pub fn restore(&mut self, record: SnapshotRecord<V>) -> Option<Restored<V>> {
        match record {
            SnapshotRecord::Begin { below } => {
                self.restoring = Some(Restored { below, chunks: Vec::new() });
            }
            SnapshotRecord::Chunk { bytes } => {
                // The rest of a snapshot whose beginning was trimmed has no use.
                if let Some(restoring) = &mut self.restoring {
                    restoring.chunks.push(bytes);
                }
            }
            SnapshotRecord::End => {
                let whole = self.restoring.take()?;
                self.bytes = whole.chunks.iter().map(|chunk| chunk.len() as u64).sum();
                return Some(whole);
            }
        }
        None
    }

    /// The same for a node that can install a snapshot by its chunks: it never has more than one of them in memory.
    ///
    /// What begins where the node's journal was trimmed is whole, because nothing is trimmed before the end of what replaces it is
    /// durable. Any other may end in the middle, and is collected.
    pub fn restore_by_chunks(&mut self, position: Position, record: SnapshotRecord<V>) -> ReadBack<V> {
        let is_first = !std::mem::replace(&mut self.restored_any, true);
        match (record, &mut self.streamed) {
            (SnapshotRecord::Begin { below }, None) if is_first && position > Position(0) => {
                self.streamed = Some((below, 0));
                ReadBack::Nothing
            }
            (SnapshotRecord::Begin { below: next }, Some((below, _))) => {
                invariant!(DUR, false, "a snapshot below {next} follows the middle of one below {below}");
                ReadBack::Nothing
            }
            (SnapshotRecord::Chunk { bytes }, Some((_, sum))) => {
                *sum += bytes.len() as u64;
                ReadBack::Chunk(bytes)
            }
            (SnapshotRecord::End, &mut Some((below, bytes))) => {
                (self.streamed, self.bytes) = (None, bytes);
                ReadBack::Whole(Restored { below, chunks: Vec::new() })
            }
            (record, None) => self.restore(record).map_or(ReadBack::Nothing, ReadBack::Whole),
        }
    }

    /// All records were read back. A snapshot that the last run did not complete is of no use, and may be as large as the state.
    pub fn drop_unfinished(&mut self) {
        if let Some((below, _)) = &self.streamed {
            invariant!(DUR, false, "the snapshot below {below} has no end, though what it replaces is gone");
        }
        self.restoring = None;
    }
}

/// Handing over, and taking.
impl<V: Copy + PartialEq, W> Snapshots<V, W> {
    /// True from the first question for a peer's until all has come or the peer is given up.
    pub fn is_taking(&self) -> bool {
        self.transfers.is_in_flight()
    }

    /// The chunk of a peer's that is waited for.
    pub fn wanted(&self) -> Option<WantedPage> {
        self.transfers.wanted()
    }

    /// Takes one from `peer`.
    pub fn take_from<R: Role>(&mut self, peer: NodeId, cx: &mut Cx<'_, R>) -> WantedPage {
        let transfer = cx.rng().bits();
        self.transfers.begin(peer, transfer, cx.now())
    }

    /// Takes nothing any more.
    pub fn stop_taking(&mut self) {
        self.transfers.stop();
    }

    /// Called every now and then: whether to ask again for what is taken.
    pub fn look(&mut self, now: Instant) -> Look {
        self.transfers.look(now)
    }

    /// A chunk has come.
    pub fn on_chunk(&mut self, from: NodeId, chunk: Page<V>, now: Instant) -> TakenPage {
        self.transfers.on_page(from, chunk, now)
    }

    /// Another state was installed: the snapshot at hand is of one that there is no more.
    pub fn drop_job(&mut self) {
        self.job = None;
    }

    /// Called every now and then: a peer that has asked for nothing for long is not served any more.
    pub fn drop_abandoned(&mut self, now: Instant) {
        self.job.take_if(|job| matches!(job, Job::Serving { offer, .. } if offer.is_abandoned(now)));
    }

    /// Begins to serve a peer that has asked for the chunk at `index`. None must be made at the time.
    pub fn serve(
        &mut self,
        (to, transfer, index): (NodeId, u64, u64),
        (below, mut writer): (V, W),
        now: Instant,
        mut next: impl FnMut(&mut W) -> (Bytes, bool),
    ) {
        let mut offer = Offer::begin(to, transfer, next(&mut writer), now);
        for skipped in 1..index {
            offer.on_wanted(to, transfer, skipped, now, || next(&mut writer));
        }
        self.job = Some(Job::Serving { below, writer, offer });
    }

    /// A peer asks for a chunk.
    pub fn on_wanted(
        &mut self,
        (from, transfer, index): (NodeId, u64, u64),
        now: Instant,
        next: impl FnOnce(&mut W) -> (Bytes, bool),
    ) -> Served<V> {
        let Some(Job::Serving { below, writer, offer }) = &mut self.job else { return Served::Nothing };
        match offer.on_wanted(from, transfer, index, now, || next(writer)) {
            Offered::Stale => Served::Nothing,
            Offered::Page { bytes, last } => Served::Chunk { below: *below, bytes, last },
            Offered::Done => {
                self.job = None;
                Served::Done
            }
        }
    }
}

impl<V: Encode> Encode for SnapshotRecord<V> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin { below } => {
                out.push(1);
                below.encode(out);
            }
            Self::Chunk { bytes } => {
                out.push(2);
                bytes.encode(out);
            }
            Self::End => out.push(3),
        }
    }
}

impl<V: Decode> Decode for SnapshotRecord<V> {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match u8::decode(input)? {
            1 => Self::Begin { below: input.field()? },
            2 => Self::Chunk { bytes: input.field()? },
            3 => Self::End,
            tag => return Err(DecodeError::UnknownTag("snapshot record", tag)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{HostId, HostSlot};

    /// Makes chunks of one byte each, up to a last one.
    struct Counter {
        at: u8,
        last: u8,
    }

    fn next(counter: &mut Counter) -> (Bytes, bool) {
        counter.at += 1;
        (Bytes::copy_from_slice(&[counter.at]), counter.at == counter.last)
    }

    fn peer(host: u32) -> NodeId {
        NodeId::new(HostId(host), HostSlot(1))
    }

    fn chunk(byte: u8) -> SnapshotRecord<u64> {
        SnapshotRecord::Chunk { bytes: Bytes::copy_from_slice(&[byte]) }
    }

    // A snapshot that a crash interrupted, or whose beginning was trimmed, is half of a state.
    #[test]
    fn only_a_whole_snapshot_is_read_back() {
        let mut snapshots = Snapshots::<u64, Counter>::default();
        let interrupted = [chunk(9), SnapshotRecord::End, SnapshotRecord::Begin { below: 5 }, chunk(8)];
        assert!(interrupted.into_iter().all(|record| snapshots.restore(record).is_none()));
        let whole = [SnapshotRecord::Begin { below: 7 }, chunk(1), chunk(2)];
        assert!(whole.into_iter().all(|record| snapshots.restore(record).is_none()));
        let chunks = vec![Bytes::from_static(&[1]), Bytes::from_static(&[2])];
        assert_eq!(snapshots.restore(SnapshotRecord::End), Some(Restored { below: 7, chunks }));
        assert_eq!(snapshots.restore(SnapshotRecord::End), None);
    }

    // A snapshot that is handed out by its chunks before it is known to be whole is half of a state; one that is collected takes as much
    // memory again as the state.
    #[test]
    fn only_the_snapshot_that_a_journal_was_trimmed_to_is_handed_out_by_its_chunks() {
        let read_back = |first: u64, records: &[SnapshotRecord<u64>]| -> Vec<ReadBack<u64>> {
            let mut snapshots = Snapshots::<u64, Counter>::default();
            let records = (first..).map(Position).zip(records.iter().cloned());
            records.map(|(position, record)| snapshots.restore_by_chunks(position, record)).collect()
        };
        let (begin, end) = (SnapshotRecord::Begin { below: 7 }, SnapshotRecord::End);
        let records = [begin.clone(), chunk(1), end.clone(), begin, chunk(2), end];
        let bytes = |byte: u8| Bytes::copy_from_slice(&[byte]);
        let collected = |byte: u8| ReadBack::Whole(Restored { below: 7, chunks: vec![bytes(byte)] });
        let handed_out = ReadBack::Whole(Restored { below: 7, chunks: Vec::new() });
        let nothing = || ReadBack::Nothing;
        let later = [nothing(), nothing(), collected(2)];
        let first = [nothing(), ReadBack::Chunk(bytes(1)), handed_out];
        assert_eq!(read_back(4, &records), [&first[..], &later].concat());
        let first = [nothing(), nothing(), collected(1)];
        assert_eq!(read_back(0, &records), [&first[..], &later].concat());
        let after_the_rest = [&[chunk(9)][..], &records[..3]].concat();
        assert_eq!(read_back(4, &after_the_rest), [&[nothing()][..], &first].concat());
    }

    // A second peer that is served from the first one's chunks has a snapshot with a hole.
    #[test]
    fn one_peer_is_served_at_a_time() {
        let mut snapshots = Snapshots::<u64, Counter>::default();
        let (first, second) = (peer(1), peer(2));
        let of = |byte: u8, last| Served::Chunk { below: 7, bytes: Bytes::copy_from_slice(&[byte]), last };
        assert_eq!(snapshots.on_wanted((first, 3, 0), Instant(0), next), Served::Nothing);
        snapshots.serve((first, 3, 0), (7, Counter { at: 0, last: 2 }), Instant(0), next);
        assert_eq!(snapshots.on_wanted((first, 3, 0), Instant(0), next), of(1, false));
        assert_eq!(snapshots.on_wanted((second, 4, 0), Instant(0), next), Served::Nothing);
        assert_eq!(snapshots.on_wanted((first, 3, 1), Instant(1), next), of(2, true));
        snapshots.drop_abandoned(Instant(2));
        assert!(!snapshots.is_idle());
        assert_eq!(snapshots.on_wanted((first, 3, 2), Instant(2), next), Served::Done);
        assert!(snapshots.is_idle());
        snapshots.serve((second, 4, 0), (7, Counter { at: 0, last: 2 }), Instant(3), next);
        snapshots.drop_abandoned(Instant(3) + Duration::from_secs(3));
        assert!(snapshots.is_idle(), "a peer that asks for nothing is not waited for");
    }
}
