//! A shard's server whose service keeps its state in blobs.

use super::{Did, Table, at, gateway, one, operation, restored, runs_of, sends, server, topology};
use kernel::{
    BlobEffect, BlobId, BlobNotice, BlobRange, Bytes, Decode, DecodeError, Effect, Encode, NodeId,
    SnapshotStep,
};
use mason::client::{ReadAnswer, ReadAnswers};
use mason::proxy::delivery::{Delivered, Work};
use mason::shard::{
    BlobPage, Deliver, PullBlob, PullShardSnapshot, ReadShard, ShardBehind, ShardIn, ShardQuery, ShardServer,
    ShardTimer,
};
use mason::{
    BlobBacked, BlobRef, Group, Gsn, MasonMessage, MasonParameters, Number, Order, Shard, ShardOut, Space,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// What an item holds, or the blob that does.
#[derive(Clone, Debug)]
enum Item {
    Held(Bytes),
    Stored(BlobRef),
}

/// Every operation's body is an item; one that begins with `-` drops the first. A read asks for an item by its number.
#[derive(Default, Debug)]
struct Shelf {
    items: BTreeMap<BlobId, Item>,
    count: u64,
    queue: Vec<BlobId>,
    loaded: BTreeMap<BlobId, Bytes>,
    /// With so many items that no blob holds it is full.
    held_max: Option<usize>,
    writing: Vec<u8>,
}

fn id(first: u64) -> BlobId {
    BlobId { series: 9, first }
}

impl Shard for Shelf {
    fn inputs(&self, _body: &[u8], _order: &Order, _out: &mut Vec<u8>) {}

    fn execute(&mut self, body: &Bytes, _order: &Order, _others: &[(Space, Bytes)], _out: &mut ShardOut) {
        if body.starts_with(b"-") {
            self.items.pop_first();
            return;
        }
        self.items.insert(id(self.count), Item::Held(body.clone()));
        self.queue.push(id(self.count));
        self.count += 1;
    }

    fn read(&mut self, _reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange> {
        let id = id(query[0].into());
        match (self.items.get(&id), self.loaded.get(&id)) {
            (Some(Item::Held(bytes)), _) | (Some(Item::Stored(_)), Some(bytes)) => {
                out.extend_from_slice(bytes)
            }
            (Some(Item::Stored(blob)), None) => return Some(BlobRange { id, offset: 0, bytes: blob.bytes }),
            (None, _) => out.extend_from_slice(b"gone"),
        }
        None
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn begin_snapshot(&mut self) {
        self.writing = self.count.encoded();
        for (id, item) in &self.items {
            id.encode(&mut self.writing);
            let (held, named) = match item {
                Item::Held(bytes) => (Some(bytes.clone()), None),
                Item::Stored(blob) => (None, Some((blob.bytes, blob.digest))),
            };
            held.encode(&mut self.writing);
            named.encode(&mut self.writing);
        }
    }

    fn snapshot_step(&mut self, _budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        chunk.append(&mut self.writing);
        SnapshotStep::Done
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let mut input = kernel::Reader::new(Bytes::copy_from_slice(chunk));
        self.count = u64::decode(&mut input)?;
        while input.remaining() > 0 {
            let (id, held) = (BlobId::decode(&mut input)?, Option::<Bytes>::decode(&mut input)?);
            let named = Option::<(u64, u64)>::decode(&mut input)?;
            let item = match (held, named) {
                (Some(bytes), _) => Item::Held(bytes),
                (None, named) => {
                    let (bytes, digest) = named.ok_or(DecodeError::Truncated)?;
                    Item::Stored(BlobRef { id, bytes, digest })
                }
            };
            self.items.insert(id, item);
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        self.count
    }

    fn as_blob_backed(&self) -> Option<&dyn BlobBacked> {
        Some(self)
    }

    fn as_blob_backed_mut(&mut self) -> Option<&mut dyn BlobBacked> {
        Some(self)
    }
}

impl BlobBacked for Shelf {
    fn unstored(&mut self) -> Option<(BlobId, Bytes)> {
        let id = (!self.queue.is_empty()).then(|| self.queue.remove(0))?;
        match self.items.get(&id)? {
            Item::Held(bytes) => Some((id, bytes.clone())),
            Item::Stored(_) => None,
        }
    }

    fn stored(&mut self, id: BlobId) {
        if let Some(item) = self.items.get_mut(&id)
            && let Item::Held(bytes) = item
        {
            *item = Item::Stored(BlobRef { id, bytes: bytes.len() as u64, digest: parts::digest(bytes) });
        }
    }

    fn loaded(&mut self, range: BlobRange, bytes: &Bytes) {
        self.loaded.insert(range.id, bytes.clone());
    }

    fn blobs(&self) -> Vec<BlobRef> {
        self.items.keys().filter_map(|&id| self.blob(id)).collect()
    }

    fn blob(&self, id: BlobId) -> Option<BlobRef> {
        match self.items.get(&id)? {
            Item::Held(_) => None,
            Item::Stored(blob) => Some(*blob),
        }
    }

    fn in_memory(&self, range: BlobRange) -> Option<Bytes> {
        match self.items.get(&range.id)? {
            Item::Held(bytes) => Some(bytes.slice(range.offset as usize..)),
            Item::Stored(_) => None,
        }
    }

    fn is_full(&self) -> bool {
        let held = self.items.values().filter(|item| matches!(item, Item::Held(_))).count();
        self.held_max.is_some_and(|max| held >= max)
    }
}

type Server = ShardServer<Shelf>;

/// A server that writes a snapshot after every operation, in pages of four bytes.
fn shelf(host: u32) -> Table<Server> {
    let parameters =
        MasonParameters { snapshot_every_bytes: 1, snapshot_chunk_bytes: 4, ..MasonParameters::default() };
    Table::new(ShardServer::new(Space(0), topology(), parameters, Shelf::default()), server(host, 0))
}

fn simple(number: u64, body: &'static [u8]) -> Deliver {
    let order = Order { numbers: [at(0, number)].into(), gsn: Gsn(number), time: 0 };
    let delivered = Delivered { order, work: Work::Operation(operation(number, body)) };
    Deliver { group: Group(0), runs: runs_of(0, &[delivered]), cut: None, more: false }
}

fn replica() -> NodeId {
    super::node(1, 0x99)
}

fn blobs_of(did: &Did) -> Vec<BlobEffect> {
    let blob = |effect: &Effect<_, _>| match effect {
        Effect::Blob(blob) => Some(blob.clone()),
        _ => None,
    };
    did.iter().filter_map(blob).collect()
}

fn notice(bench: &mut Table<Server>, notice: BlobNotice) -> Did {
    let mut did = bench.notice(notice);
    did.extend(bench.end());
    did
}

/// Bursts until no more of a snapshot is written.
fn write_snapshot(bench: &mut Table<Server>) -> Did {
    let mut did = Did::new();
    for _ in 0..8 {
        bench.pass(Duration::from_millis(2));
        did.extend(bench.end());
    }
    did
}

fn tick(bench: &mut Table<Server>) -> Vec<(NodeId, MasonMessage)> {
    let mut did = bench.timer(ShardTimer::Tick);
    did.extend(bench.end());
    sends(&did)
}

fn read(tag: u64, item: u8) -> ReadShard {
    ReadShard {
        at_least: Gsn(0),
        reads: vec![ShardQuery { tag, body: vec![item].into() }],
        shard_map: None,
        limits: None,
    }
}

fn answer(tag: u64, executed: u64, body: &'static [u8]) -> Vec<(NodeId, MasonMessage)> {
    let answers = vec![ReadAnswer { tag, body: Bytes::from_static(body) }];
    one(
        gateway(1),
        ReadAnswers { space: Space(0), executed: Gsn(executed), answers, refused: None, withheld: None },
    )
}

/// Has executed one operation, whose item is on the disk and in a durable snapshot by name.
fn with_a_blob(host: u32) -> Table<Server> {
    let mut bench = shelf(host);
    let did = bench.burst(replica(), simple(1, b"an item"));
    assert_eq!(blobs_of(&did), [BlobEffect::Store { id: id(0), bytes: Bytes::from_static(b"an item") }]);
    write_snapshot(&mut bench);
    assert_eq!(bench.role.blobs_named().count(), 0, "what is not stored is carried");
    notice(&mut bench, BlobNotice::Stored { id: id(0) });
    bench.burst(replica(), simple(2, b"-"));
    bench
}

// A blob that goes before a snapshot without it is durable is one that the snapshot before still names.
#[test]
fn a_blob_is_dropped_when_no_durable_snapshot_names_it() {
    let mut bench = shelf(1);
    bench.burst(replica(), simple(1, b"an item"));
    write_snapshot(&mut bench);
    notice(&mut bench, BlobNotice::Stored { id: id(0) });
    bench.journal();
    bench.burst(replica(), simple(2, &[b'+'; 400]));
    write_snapshot(&mut bench);
    assert_eq!(bench.role.blobs_named().collect::<Vec<_>>(), [id(0)]);
    let records = bench.journal();
    let did = bench.burst(replica(), simple(3, &[b'-'; 800]));
    assert_eq!(blobs_of(&did), [], "the durable snapshot names it");
    let did = write_snapshot(&mut bench);
    assert_eq!(blobs_of(&did), [BlobEffect::Drop { id: id(0) }]);
    let end =
        did.iter().position(|effect| matches!(effect, Effect::Trim { .. })).expect("a snapshot is complete");
    assert!(did[end..].contains(&Effect::Blob(BlobEffect::Drop { id: id(0) })));
    // The next incarnation knows what its snapshot names.
    let again = ShardServer::new(Space(0), topology(), MasonParameters::default(), Shelf::default());
    let mut again = Table::unstarted(restored(again, &records), server(1, 0));
    let did = again.start();
    assert_eq!(blobs_of(&did), [BlobEffect::Keep { ids: vec![id(0)] }]);
}

// A read answered with nothing because its bytes are on the disk, or never, or twice.
#[test]
fn a_read_waits_for_its_part() {
    let mut bench = shelf(1);
    bench.burst(replica(), simple(1, b"an item"));
    assert_eq!(sends(&bench.burst(gateway(1), read(1, 0))), answer(1, 1, b"an item"), "in memory");
    notice(&mut bench, BlobNotice::Stored { id: id(0) });
    let range = BlobRange { id: id(0), offset: 0, bytes: 7 };
    let did = bench.burst(gateway(1), read(2, 0));
    assert_eq!((sends(&did), blobs_of(&did)), (vec![], vec![BlobEffect::Load { range }]));
    assert_eq!(blobs_of(&bench.burst(gateway(1), read(2, 0))), [], "asked again, it waits once");
    let bytes = Bytes::from_static(b"an item");
    let did = notice(&mut bench, BlobNotice::Loaded { range, bytes: bytes.clone() });
    assert_eq!(sends(&did), answer(2, 1, b"an item"));
    assert_eq!(sends(&notice(&mut bench, BlobNotice::Loaded { range, bytes })), []);
    // What is gone meanwhile is answered, too.
    let mut bench = with_a_blob(1);
    assert_eq!(sends(&bench.burst(gateway(1), read(3, 0))), answer(3, 2, b"gone"));
}

// A server that calls a snapshot durable whose blobs only others have: once they are lost, nobody has them.
#[test]
fn what_a_peers_snapshot_names_is_fetched_before_it_counts() {
    let mut peer = shelf(2);
    peer.burst(replica(), simple(1, b"an item"));
    write_snapshot(&mut peer);
    notice(&mut peer, BlobNotice::Stored { id: id(0) });
    let mut bench = shelf(1);
    let mut asked = sends(&bench.hear(super::proxy(1, 0), ShardBehind { durable: Number(2) }));
    while let Some((to, MasonMessage::Shard(ShardIn::PullShardSnapshot(pull)))) = asked.first().cloned() {
        let PullShardSnapshot { transfer, index } = pull;
        let chunks = sends(&peer.hear(server(1, 0), PullShardSnapshot { transfer, index }));
        let Some((_, MasonMessage::Shard(chunk @ ShardIn::ShardSnapshotChunk(_)))) = chunks.first().cloned()
        else {
            break;
        };
        asked = sends(&bench.hear(to, chunk));
    }
    assert_eq!((bench.role.next(), bench.role.blobs_missing()), (Number(2), 1));
    assert_eq!(blobs_of(&bench.burst(gateway(1), read(1, 0))), [], "what is not here is not loaded");
    bench.journal();
    bench.pass(Duration::from_millis(500));
    let did = bench.end();
    assert_eq!(bench.journal(), Vec::<Bytes>::new(), "no snapshot without it");
    let (to, pull) = sends(&did)[0].clone();
    assert_eq!(pull, PullBlob { id: id(0), offset: 0, bytes: 4 }.into());
    // The peer reads it page by page; what is not what the snapshot names is not taken.
    let load = |offset| BlobEffect::Load { range: BlobRange { id: id(0), offset, bytes: 4 } };
    assert_eq!(blobs_of(&peer.burst(server(1, 0), PullBlob { id: id(0), offset: 0, bytes: 4 })), [load(0)]);
    let range = BlobRange { id: id(0), offset: 0, bytes: 4 };
    let did = notice(&mut peer, BlobNotice::Loaded { range, bytes: Bytes::from_static(b"an i") });
    let page = |offset, page| BlobPage { id: id(0), offset, page: Bytes::from_static(page) };
    assert_eq!(sends(&did), one(server(1, 0), page(0, b"an i")));
    assert_eq!(bench.hear(server(9, 0), page(0, b"an i")), [], "of somebody who was not asked");
    let next = one(to, PullBlob { id: id(0), offset: 4, bytes: 4 });
    assert_eq!(sends(&bench.hear(to, page(0, b"an i"))), next);
    assert!(table::rejects(&bench.hear(to, page(4, b"TEM"))));
    for (offset, bytes) in [(0, &b"an i"[..]), (4, &b"tem"[..])] {
        bench.pass(Duration::from_millis(500));
        let did = bench.end();
        let asked = sends(&did).into_iter().find_map(|(to, message)| match message {
            MasonMessage::Shard(ShardIn::PullBlob(pull)) => Some((to, pull.offset)),
            _ => None,
        });
        let Some((to, from)) = asked else { panic!("{offset}: nobody is asked, {did:?}") };
        assert_eq!(from, offset);
        let did = bench.hear(to, BlobPage { id: id(0), offset, page: Bytes::from_static(bytes) });
        let stored =
            blobs_of(&did) == [BlobEffect::Store { id: id(0), bytes: Bytes::from_static(b"an item") }];
        assert_eq!(stored, offset == 4);
    }
    let did = notice(&mut bench, BlobNotice::Stored { id: id(0) });
    let range = BlobRange { id: id(0), offset: 0, bytes: 7 };
    assert!(blobs_of(&did).contains(&BlobEffect::Load { range }), "the read that waits goes on");
    write_snapshot(&mut bench);
    assert_eq!(bench.role.blobs_named().collect::<Vec<_>>(), [id(0)]);
    // It rots: it is fetched again. A reader that waits for it when it is dropped instead is notified.
    let did = notice(&mut bench, BlobNotice::Lost { id: id(0) });
    assert_eq!(bench.role.blobs_missing(), 1);
    assert!(sends(&did).iter().any(|(_, it)| *it == PullBlob { id: id(0), offset: 0, bytes: 4 }.into()));
    bench.burst(gateway(1), read(2, 0));
    bench.burst(replica(), simple(2, b"-"));
    let did = tick(&mut bench);
    assert!(did.contains(&answer(2, 2, b"gone")[0]), "{did:?}");
    assert_eq!(bench.role.blobs_missing(), 0);
}

// Memory that grows while the disk is slow, or a server that never goes on.
#[test]
fn execution_waits_for_the_disk() {
    let service = Shelf { held_max: Some(1), ..Shelf::default() };
    let role = ShardServer::new(Space(0), topology(), MasonParameters::default(), service);
    let mut bench = Table::new(role, server(1, 0));
    bench.burst(replica(), simple(1, b"an item"));
    bench.burst(replica(), simple(2, b"another"));
    bench.burst(replica(), simple(3, b"a third"));
    assert_eq!((bench.role.next(), bench.role.backlog()), (Number(2), 2));
    let did = notice(&mut bench, BlobNotice::Stored { id: id(0) });
    assert_eq!((bench.role.next(), bench.role.backlog()), (Number(3), 1));
    assert_eq!(blobs_of(&did), [BlobEffect::Store { id: id(1), bytes: Bytes::from_static(b"another") }]);
}
