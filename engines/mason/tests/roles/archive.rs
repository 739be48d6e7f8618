//! A shard's server whose service has blobs that are to be archived before they may go.

use super::{Did, Table, gateway, one, sends, server, topology};
use kernel::{
    ArchiveObject, BlobEffect, BlobId, BlobNotice, Bytes, DecodeError, Effect, NodeId, SnapshotStep,
};
use mason::client::Overfull;
use mason::shard::{Attach, ShardIn, ShardServer, ShardTimer, WereArchived, WhetherArchived};
use mason::{Archived, BlobBacked, BlobRef, MasonMessage, MasonParameters, Order, Shard, ShardOut, Space};
use std::collections::BTreeSet;
use std::time::Duration;

/// Blobs that wait for the archive, and nothing else.
#[derive(Default, Debug)]
struct Attic {
    waiting: BTreeSet<BlobId>,
    /// With so many it is overfull.
    most: usize,
}

fn id(first: u64) -> BlobId {
    BlobId { series: 0, first }
}

impl Shard for Attic {
    fn inputs(&self, _body: &[u8], _order: &Order, _out: &mut Vec<u8>) {}

    fn execute(&mut self, _body: &Bytes, _order: &Order, _others: &[(Space, Bytes)], _out: &mut ShardOut) {}

    fn read(&mut self, _reader: NodeId, _query: &[u8], _out: &mut Vec<u8>) -> Option<kernel::BlobRange> {
        None
    }

    fn forget_reader(&mut self, _reader: NodeId) {}

    fn begin_snapshot(&mut self) {}

    fn snapshot_step(&mut self, _budget: usize, _chunk: &mut Vec<u8>) -> SnapshotStep {
        SnapshotStep::Done
    }

    fn reset(&mut self) {}

    fn install(&mut self, _chunk: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn digest(&self) -> u64 {
        0
    }

    fn as_blob_backed(&self) -> Option<&dyn BlobBacked> {
        Some(self)
    }

    fn as_blob_backed_mut(&mut self) -> Option<&mut dyn BlobBacked> {
        Some(self)
    }

    fn as_archived(&self) -> Option<&dyn Archived> {
        Some(self)
    }

    fn as_archived_mut(&mut self) -> Option<&mut dyn Archived> {
        Some(self)
    }
}

impl BlobBacked for Attic {
    fn unstored(&mut self) -> Option<(BlobId, Bytes)> {
        None
    }

    fn stored(&mut self, _id: BlobId) {}

    fn loaded(&mut self, _range: kernel::BlobRange, _bytes: &Bytes) {}

    fn in_memory(&self, _range: kernel::BlobRange) -> Option<Bytes> {
        None
    }

    fn is_full(&self) -> bool {
        false
    }

    fn blobs(&self) -> Vec<BlobRef> {
        self.waiting.iter().filter_map(|&id| self.blob(id)).collect()
    }

    fn blob(&self, id: BlobId) -> Option<BlobRef> {
        self.waiting.contains(&id).then_some(BlobRef { id, bytes: 1, digest: 0 })
    }
}

impl Archived for Attic {
    fn to_archive(&self, max: usize) -> Vec<BlobId> {
        self.waiting.iter().take(max).copied().collect()
    }

    fn archive_object(&self, id: BlobId) -> Option<ArchiveObject> {
        Some(object(id))
    }

    fn archived(&mut self, id: BlobId) {
        self.waiting.remove(&id);
    }

    fn overfull(&self) -> u64 {
        if self.waiting.len() >= self.most { self.waiting.len() as u64 } else { 0 }
    }
}

fn object(id: BlobId) -> ArchiveObject {
    ArchiveObject { name: format!("a/{id}"), head: Bytes::from_static(b"head") }
}

type Server = ShardServer<Attic>;

/// The server of host `host` with blobs 0, 1 and so on, all on its disk.
fn attic(host: u32, blobs: u64) -> Table<Server> {
    let service = Attic { waiting: (0..blobs).map(id).collect(), most: 4 };
    Table::new(ShardServer::new(Space(0), topology(), MasonParameters::default(), service), server(host, 0))
}

fn archives(did: &Did) -> Vec<BlobId> {
    let archived = did.iter().filter_map(|effect| match effect {
        Effect::Blob(BlobEffect::Archive { id, object: it }) => {
            assert_eq!(*it, object(*id));
            Some(*id)
        }
        _ => None,
    });
    archived.collect()
}

fn tick(bench: &mut Table<Server>, later: Duration) -> Did {
    bench.pass(later);
    bench.timer(ShardTimer::Tick)
}

fn notice(bench: &mut Table<Server>, notice: BlobNotice) -> Did {
    bench.notice(notice)
}

fn asked(did: &Did) -> Option<(NodeId, Vec<BlobId>)> {
    sends(did).into_iter().find_map(|(to, message)| match message {
        MasonMessage::Shard(ShardIn::WhetherArchived(asked)) => Some((to, asked.blobs)),
        _ => None,
    })
}

const TURN: Duration = Duration::from_secs(2);

// A blob that nobody archives, because each waits for another; or that all do at once, a network's worth for nothing.
#[test]
fn servers_take_turns() {
    // Blob 0 is the first host's, then the second's.
    let turns = |host: u32| {
        let mut bench = attic(host, 1);
        (0..4).position(|turn| {
            let later = if turn == 0 { Duration::ZERO } else { TURN };
            !archives(&tick(&mut bench, later)).is_empty()
        })
    };
    assert_eq!([1, 2, 3].map(turns), [Some(0), Some(1), Some(2)]);
    let mut bench = attic(1, 3);
    assert_eq!(archives(&tick(&mut bench, Duration::ZERO)), [id(0)]);
    assert_eq!(archives(&tick(&mut bench, Duration::ZERO)), [], "it is on its way");
    assert_eq!(archives(&tick(&mut bench, 2 * TURN)), [id(1), id(2)]);
}

// A blob that goes when it is on its way is nowhere when the archive fails.
#[test]
fn a_blob_waits_until_the_archive_has_it_and_failures_are_patient() {
    let mut bench = attic(1, 1);
    assert_eq!(archives(&tick(&mut bench, Duration::ZERO)), [id(0)]);
    assert!(bench.role.service().waiting.contains(&id(0)));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        notice(&mut bench, BlobNotice::Unarchived { id: id(0) });
        let mut pause = Duration::ZERO;
        while archives(&tick(&mut bench, Duration::from_millis(100))).is_empty() {
            pause += Duration::from_millis(100);
        }
        pauses.push(pause.as_millis());
    }
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]) && pauses[7] > 8 * pauses[0], "{pauses:?}");
    assert!(pauses[7] <= 16_000, "it is not given up: {pauses:?}");
    assert!(bench.role.service().waiting.contains(&id(0)));
    notice(&mut bench, BlobNotice::Archived { id: id(0) });
    assert!(bench.role.service().waiting.is_empty());
}

// A server that cannot reach the archive keeps what others have archived for ever; one that is sent too much loses it.
#[test]
fn only_a_server_that_knows_answers() {
    let (mut first, mut second) = (attic(1, 2), attic(2, 1));
    let (to, blobs) = asked(&tick(&mut second, Duration::ZERO)).expect("it waits for its turn");
    assert!([server(1, 0), server(3, 0)].contains(&to));
    assert_eq!(blobs, [id(0)]);
    assert_eq!(asked(&tick(&mut second, TURN / 4)), None, "not all the time");
    let ask = WhetherArchived { blobs: vec![id(0), id(7)] };
    assert_eq!(sends(&first.hear(server(2, 0), ask.clone())), [], "what it does not have is not archived");
    tick(&mut first, Duration::ZERO);
    notice(&mut first, BlobNotice::Archived { id: id(0) });
    let reported = WereArchived { blobs: vec![id(0)] };
    assert_eq!(sends(&first.hear(server(2, 0), ask)), one(server(2, 0), reported.clone()));
    second.hear(server(1, 0), reported);
    assert!(second.role.service().waiting.is_empty());
    // And it knows now, too.
    let ask = WhetherArchived { blobs: vec![id(0)] };
    assert_eq!(sends(&second.hear(server(3, 0), ask)).len(), 1);
}

// A gateway that does not hear of a full disk lets it grow; one that does not hear of its end serves nobody.
#[test]
fn gateways_of_the_host_hear_when_too_much_waits() {
    let mut bench = attic(1, 4);
    let overfull = |bytes| one(gateway(1), Overfull { space: Space(0), bytes });
    let did = bench.hear(gateway(1), Attach {});
    assert!(sends(&did).contains(&overfull(4)[0]));
    let did = bench.end();
    assert!(sends(&did).iter().all(|it| *it == overfull(4)[0]));
    assert_eq!(archives(&tick(&mut bench, Duration::ZERO)), [id(0), id(3)]);
    assert!(sends(&notice(&mut bench, BlobNotice::Archived { id: id(0) })).contains(&overfull(0)[0]));
    assert_eq!(sends(&bench.end()), []);
}

// A blob that rotted is asked for for ever, and never fetched.
#[test]
fn a_lost_blob_is_fetched_and_archived_then() {
    let mut bench = attic(1, 1);
    assert_eq!(archives(&tick(&mut bench, Duration::ZERO)), [id(0)]);
    notice(&mut bench, BlobNotice::Lost { id: id(0) });
    assert_eq!(bench.role.blobs_missing(), 1);
    assert_eq!(archives(&tick(&mut bench, TURN)), [], "it is not here");
    assert_eq!(archives(&tick(&mut bench, 9 * TURN)), [id(0)], "it may be there, and nobody remember it");
    notice(&mut bench, BlobNotice::Lost { id: id(0) });
    assert_eq!(archives(&tick(&mut bench, TURN)), [], "it is neither here nor there");
    notice(&mut bench, BlobNotice::Stored { id: id(0) });
    assert_eq!(archives(&tick(&mut bench, Duration::ZERO)), [id(0)]);
}
