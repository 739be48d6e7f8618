//! What a service gives Mason: a stub that runs in the proxies and shards that execute (the paper's section 6.1).

use crate::order::{Group, GroupTime, Gsn, Order, Space};
use crate::topology::{Layout, ShardMap};
use kernel::{ArchiveObject, BlobId, BlobRange, Bytes, DecodeError, NodeId, Recount, SnapshotStep};

/// The service's part in a proxy, replicated with it: decides which spaces an operation concerns, and keeps what belongs to
/// the proxy and not to a shard (sessions, for instance).
///
/// **Contract.** `spaces` depends on the operation, the shard map, and on what the stub was built with, not on its state; whether there
/// are any, not on the shard map either. `apply` and
/// `on_clock` are deterministic: the same calls in the same order on every replica of the group. Nothing panics on any bytes.
pub trait Stub: Sized + 'static {
    /// The spaces to order the operation in, sorted, each once. None: it concerns the group alone; it is replicated there, in
    /// the order of its origin, and not sequenced.
    fn spaces(&self, body: &[u8], shard_map: &ShardMap) -> Vec<Space>;

    /// The operation stands in the group's log, in the order in which its origin sent it. With an order it goes on to its
    /// shards if `Verdict::Execute` is returned; after `Verdict::Void` they execute a no-op instead, and the answer
    /// given here is all that the origin gets.
    fn apply(&mut self, body: &Bytes, order: Option<&Order>, now: GroupTime, out: &mut StubOut) -> Verdict;

    /// The group's clock has advanced to `now`. `new_leader`: it stood still for an unknown time before.
    fn on_clock(&mut self, now: GroupTime, new_leader: bool, out: &mut StubOut);

    /// True while something ends by the clock. Meanwhile the clock is logged again and again; else it stands still, and nothing is.
    fn awaits_time(&self) -> bool {
        false
    }

    /// A follow-up (see [`StubOut::follow_up`]) stands in the log, and is ordered if it has spaces.
    fn apply_follow_up(&mut self, body: &Bytes, order: Option<&Order>, now: GroupTime, out: &mut StubOut);

    /// As many groups are in use. Said when that changes, and when a saved state was loaded. `awaited`: groups that have yet to
    /// hand over what is to be had here. A service whose groups are never added or removed has nothing to do.
    fn arrange(&mut self, _layout: &Layout, _awaited: &[Group]) {}

    /// Takes out what other groups have from here on ([`Layout::home`]): rows of pages of about `page_bytes`, by group.
    fn depart(&mut self, _page_bytes: usize) -> Vec<(Group, Bytes)> {
        Vec::new()
    }

    /// Takes a page that another group's stub has written.
    fn arrive(&mut self, _page: &Bytes, _now: GroupTime) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Writes the whole state.
    fn save(&self, out: &mut Vec<u8>);

    /// Takes back what `save` wrote.
    fn load(&mut self, saved: &[u8]) -> Result<(), DecodeError>;

    /// A digest of the whole state; equal on replicas that have applied the same. A stub with a state of its own makes it of that, and
    /// not of what it saves: what that left out would be left out here.
    fn digest(&self) -> u64 {
        let mut saved = Vec::new();
        self.save(&mut saved);
        parts::digest(&saved)
    }
}

/// What becomes of an operation that stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Its shards execute it and answer.
    Execute,
    /// Its shards execute a no-op.
    Void,
}

/// What a stub asks for.
#[derive(Default, Debug)]
pub struct StubOut {
    pub(crate) answer: Option<Bytes>,
    pub(crate) elsewhere: bool,
    pub(crate) notices: Vec<(NodeId, Bytes)>,
    pub(crate) follow_ups: Vec<Bytes>,
}

impl StubOut {
    /// Answers the operation at hand; for those that no shard answers.
    pub fn answer(&mut self, body: impl Into<Bytes>) {
        self.answer = Some(body.into());
    }

    /// Notifies the origin of the operation at hand that another group has what it concerns; the verdict must be void.
    pub fn elsewhere(&mut self) {
        self.elsewhere = true;
    }

    /// True if the operation at hand belongs to another group.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Sends an origin something that it did not ask, from the group; arrives once if the origin's host has a replica of the
    /// group, and perhaps never otherwise.
    pub fn notify(&mut self, origin: NodeId, body: impl Into<Bytes>) {
        self.notices.push((origin, body.into()));
    }

    /// What was asked for: the answer, the words by their receivers, the follow-ups.
    pub fn into_parts(self) -> (Option<Bytes>, Vec<(NodeId, Bytes)>, Vec<Bytes>) {
        (self.answer, self.notices, self.follow_ups)
    }

    /// Has an operation of the group itself ordered later: surely, once, under any leader. Its shards execute it as any other; its
    /// answer goes to nobody.
    pub fn follow_up(&mut self, body: impl Into<Bytes>) {
        self.follow_ups.push(body.into());
    }
}

/// One shard of the service's state: executes its space in order, on several servers alike.
///
/// **Contract.** `inputs`, `execute` are deterministic functions of the state that the operations before have made.
/// Nothing panics on any bytes. What `read` registers (watches) is this server's own and in no snapshot.
///
/// An operation over several shards is executed by each of them whole, on the same inputs: every participant says what the
/// operation needs to know of its shard, gets what the others said, computes the same outcome, and applies its own part.
///
/// What only some shards can do stands in traits of their own: [`Resharded`], [`BlobBacked`], [`Archived`].
pub trait Shard: Sized + 'static {
    /// Appends what the other participants must know of this shard to execute the operation.
    fn inputs(&self, body: &[u8], order: &Order, out: &mut Vec<u8>);

    /// Executes. `others`: the inputs of the other participants, sorted by space; empty where the order has one space.
    fn execute(&mut self, body: &Bytes, order: &Order, others: &[(Space, Bytes)], out: &mut ShardOut);

    /// Executes a read for `reader`; what it watches from now on is reported by [`ShardOut::notify`]. If it needs a part of a blob that is
    /// not in memory, that is returned, nothing else is done, and the read comes again when the part is [`BlobBacked::loaded`].
    fn read(&mut self, reader: NodeId, query: &[u8], out: &mut Vec<u8>) -> Option<BlobRange>;

    /// How large the answer to a read will be, in bytes, where that is known without making it: one that there is no room for is not made.
    fn answer_bytes(&self, _query: &[u8]) -> Option<usize> {
        None
    }

    /// The reader has gone or has started anew: forget what it watched.
    fn forget_reader(&mut self, reader: NodeId);

    /// Starts a snapshot of the present state, while `execute` may be called between its steps; one in flight is dropped.
    fn begin_snapshot(&mut self);

    /// Appends the next chunk, of about `budget` bytes.
    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep;

    /// Back to the empty state, before the chunks of a snapshot are installed. Watches stay.
    fn reset(&mut self);

    /// Takes one chunk, in the order they were written.
    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError>;

    /// What the gateways of its host are to know of the state, in the service's words; none while that is what was said last. Asked
    /// after every burst: it is this server's own, and ordered by nobody.
    fn remark(&mut self) -> Option<Bytes> {
        None
    }

    /// The last chunk was installed: notifies readers what they missed.
    fn installed(&mut self, _out: &mut ShardOut) {}

    /// Its state can be spread over more or fewer shards while it runs.
    fn as_resharded(&self) -> Option<&dyn Resharded> {
        None
    }

    /// The same shard as in [`Shard::as_resharded`].
    fn as_resharded_mut(&mut self) -> Option<&mut dyn Resharded> {
        None
    }

    /// It writes parts of its state as blobs, instead of keeping them in memory and in snapshots.
    fn as_blob_backed(&self) -> Option<&dyn BlobBacked> {
        None
    }

    /// The same shard as in [`Shard::as_blob_backed`].
    fn as_blob_backed_mut(&mut self) -> Option<&mut dyn BlobBacked> {
        None
    }

    /// It archives blobs before it lets them go. It has blobs then.
    fn as_archived(&self) -> Option<&dyn Archived> {
        None
    }

    /// The same shard as in [`Shard::as_archived`].
    fn as_archived_mut(&mut self) -> Option<&mut dyn Archived> {
        None
    }

    /// A digest of the whole replicated state; equal on servers that have executed the same numbers.
    fn digest(&self) -> u64;

    /// The numbers that it keeps beside what they count.
    fn recounts(&self) -> Vec<Recount> {
        Vec::new()
    }
}

/// A shard whose state goes to others, or comes from them, when the shard map changes.
///
/// **Contract.** `leaving` and `reshard` are deterministic functions of the state and of what they are given.
pub trait Resharded {
    /// The state that snapshots from here on are installed into has this shard map: before [`Shard::install`], and when an incarnation
    /// begins.
    fn use_shard_map(&mut self, shard_map: &ShardMap);

    /// What goes to other shards when this shard map comes into force: pages of about `page_bytes`, for each of them in order. A
    /// function of the state alone, so that pages of several servers fit together.
    fn leaving(&self, shard_map: &ShardMap, page_bytes: usize) -> Vec<(Space, Vec<Bytes>)>;

    /// What readers watch here that other shards of this server's host have from this shard map on, taken out. They were notified of what
    /// happened up to `through`, unless a snapshot was installed since. No read is answered between this and [`Resharded::reshard`].
    fn watches_leaving(&mut self, shard_map: &ShardMap, through: Gsn) -> Vec<(Space, Bytes)>;

    /// The shard map comes into force: what leaves goes, what the others wrote for this shard comes.
    fn reshard(&mut self, shard_map: &ShardMap, order: &Order, pages: &[(Space, Vec<Bytes>)]);

    /// What [`Resharded::watches_leaving`] gave for this shard at another one of this host. Notifies readers what they missed, if the state
    /// here is newer than what they have seen there.
    fn take_watches(&mut self, watches: &Bytes, out: &mut ShardOut);
}

/// A shard that has written parts of its state to its server's disk.
///
/// **Contract.** A blob's contents are the same on every server, and never change.
pub trait BlobBacked {
    /// The next part of the state that is to be written as a blob; each is handed out once, until [`Shard::reset`]. It is still in
    /// memory and in snapshots until it is [`BlobBacked::stored`].
    fn unstored(&mut self) -> Option<(BlobId, Bytes)>;

    /// The blob is durable here: snapshots that begin from now on name it, and its contents may go from memory.
    fn stored(&mut self, id: BlobId);

    /// A part of a blob was read for a read that waits.
    fn loaded(&mut self, range: BlobRange, bytes: &Bytes);

    /// The blobs that snapshots of the present state name.
    fn blobs(&self) -> Vec<BlobRef>;

    /// One of [`BlobBacked::blobs`].
    fn blob(&self, id: BlobId) -> Option<BlobRef>;

    /// The part of a blob, if the whole of it is still in memory.
    fn in_memory(&self, range: BlobRange) -> Option<Bytes>;

    /// What waits to be stored takes so much memory that nothing more must be executed.
    fn is_full(&self) -> bool;
}

/// A shard of whose blobs some go into an archive before they go from the disk.
pub trait Archived {
    /// Blobs that the state would not be made of any more if they were in the archive, the first `max`, sorted. Those that are not
    /// stored yet are left out; the others are among [`BlobBacked::blobs`] until they are [`Archived::archived`].
    fn to_archive(&self, max: usize) -> Vec<BlobId>;

    /// What one of them becomes in the archive: the same on every server.
    fn archive_object(&self, id: BlobId) -> Option<ArchiveObject>;

    /// A blob is in the archive, and may go.
    fn archived(&mut self, id: BlobId);

    /// What waits for the archive, in bytes, if that is so much that gateways of this host must let nothing be added; 0 otherwise.
    fn overfull(&self) -> u64;
}

/// A blob as a snapshot names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobRef {
    /// Which: the same on every server.
    pub id: BlobId,
    /// Its length.
    pub bytes: u64,
    /// [`parts::digest`] of its contents.
    pub digest: u64,
}

/// What a shard asks for while it executes.
#[derive(Default, Debug)]
pub struct ShardOut {
    pub(crate) answer: Vec<u8>,
    pub(crate) notices: Vec<(NodeId, Bytes)>,
}

impl ShardOut {
    /// The buffer of the operation's answer. Every participant writes the same; the one of the first space is heard.
    pub fn answer(&mut self) -> &mut Vec<u8> {
        &mut self.answer
    }

    /// What was asked for: the answer, and the notices by their readers.
    pub fn into_parts(self) -> (Vec<u8>, Vec<(NodeId, Bytes)>) {
        (self.answer, self.notices)
    }

    /// Notifies a reader of what it watches. Notices of one server to one reader arrive in order, before the answers and reads that
    /// come after them.
    pub fn notify(&mut self, reader: NodeId, body: impl Into<Bytes>) {
        self.notices.push((reader, body.into()));
    }
}
