//! A user's connection: what it has asked, in order, and what it still has to receive.

use crate::gateway::kinds::Kinds;
use crate::gateway::marks::Marks;
use crate::gateway::survey::Survey;
use crate::wire::{Caller, ConnectionEpoch, EventKind, Identity, WatchSeq, ZkSessionId};
use kernel::client::Connected;
use kernel::{Bytes, Instant, NodeId};
use mason::Space;
use parts::Account;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

kernel::number! {
    /// Counts the requests of a connection.
    pub struct EntrySeq(u64);
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The first frame has not arrived.
    New,
    /// The handshake is in flight.
    Connecting,
    /// It has a session.
    Open,
    /// Its last words have been written.
    Closed,
}

/// An answer that waits for its turn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reply {
    /// The global sequence number of what it shows.
    pub(crate) shows: u64,
    pub(crate) error: i32,
    pub(crate) body: Bytes,
    /// What setWatches has found to be missed: goes out right before.
    pub(crate) missed: Vec<(EventKind, Arc<str>)>,
    /// The connection is closed behind it.
    pub(crate) last: bool,
}

impl Reply {
    pub(crate) fn new(shows: u64, error: i32, body: impl Into<Bytes>) -> Self {
        Self { shows, error, body: body.into(), missed: Vec::new(), last: false }
    }
}

/// What one shard was asked on behalf of a request.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) space: Space,
    pub(crate) query: Bytes,
    pub(crate) answer: Option<PartAnswer>,
    /// Room reserved for the answer, in bytes; none while it is not asked.
    pub(crate) room: Option<usize>,
    /// How large the answer is, as far as the shard has said.
    pub(crate) needs: Option<usize>,
}

impl Part {
    pub(crate) fn new(space: Space, query: Bytes) -> Self {
        Self { space, query, answer: None, room: None, needs: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PartAnswer {
    /// The global sequence number of the last change that shows in it.
    pub(crate) shows: u64,
    /// Every operation of the shard up to here was executed.
    pub(crate) covers: u64,
    pub(crate) error: i32,
    pub(crate) body: Bytes,
}

/// What a read is for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// One node; with the watch that the answer may leave.
    Node {
        opcode: i32,
        path: Arc<str>,
        watch: bool,
    },
    /// Several nodes: for each the part that has it.
    Nodes {
        parts: Vec<u16>,
    },
    /// Watches of a returning client, by part: data, exist, child.
    SetWatches {
        paths: Vec<[Vec<Arc<str>>; 3]>,
        lasting: Vec<(Arc<str>, Kinds)>,
    },
    /// A persistent watch.
    AddWatch {
        path: Arc<str>,
        kinds: Kinds,
    },
    Ephemerals,
    /// The first part says whether the node is there, the others count.
    Descendants,
    /// Whose ephemeral nodes there are, for the word `dump`.
    Dump,
    /// Whether a client that claims to have seen `last_zxid` can have.
    Greeting {
        last_zxid: u64,
        hello: Hello,
    },
    /// Reads what a write over a subtree will concern.
    Survey(Box<Survey>),
}

/// A read in flight.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) purpose: Purpose,
    pub(crate) parts: Vec<Part>,
    pub(crate) unanswered: usize,
    /// The barrier it waits for; 0 for none.
    pub(crate) barrier: u64,
    pub(crate) tries: u32,
    /// On its way, or answered.
    pub(crate) sent: bool,
    /// Counted among those in flight: some part of it was asked.
    pub(crate) counted: bool,
    /// The number of its registration, if it leaves watches.
    pub(crate) watch: WatchSeq,
    /// The version of the shard map by which the shards of its parts were chosen.
    pub(crate) shard_map: u64,
}

/// The first frame, as far as it matters later.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Hello {
    pub(crate) timeout: i32,
    pub(crate) session: u64,
    pub(crate) password: Bytes,
    pub(crate) knows_read_only: bool,
}

impl Read {
    pub(crate) fn new(
        purpose: Purpose,
        parts: Vec<Part>,
        barrier: u64,
        watch: WatchSeq,
        shard_map: u64,
    ) -> Self {
        Self {
            purpose,
            unanswered: parts.len(),
            parts,
            barrier,
            tries: 0,
            sent: false,
            counted: false,
            watch,
            shard_map,
        }
    }

    /// Its registration, if its answer may leave watches.
    pub(crate) fn leaves(&self) -> Option<WatchSeq> {
        match &self.purpose {
            Purpose::Node { watch, .. } => watch.then_some(self.watch),
            Purpose::SetWatches { .. } | Purpose::AddWatch { .. } => Some(self.watch),
            Purpose::Nodes { .. }
            | Purpose::Ephemerals
            | Purpose::Dump
            | Purpose::Descendants
            | Purpose::Greeting { .. }
            | Purpose::Survey(_) => None,
        }
    }
}

/// What is to be done for a request.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// To be sequenced.
    Write {
        body: Bytes,
        /// What it was made of, if the user did not write it; then nothing else goes on its way meanwhile.
        survey: Option<Box<Survey>>,
        sent: bool,
    },
    /// The session is to be closed.
    Close,
    /// To be opened or attached.
    Handshake {
        hello: Hello,
    },
    Read(Box<Read>),
    /// Waits for a barrier alone.
    Sync {
        barrier: u64,
        path: Arc<str>,
    },
    /// Done by the gateway when its turn has come.
    CheckWatches {
        path: Arc<str>,
        kinds: Option<Kinds>,
        remove: bool,
    },
    Done(Reply),
}

/// A request that has not been answered.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) xid: i32,
    pub(crate) opcode: i32,
    pub(crate) since: Instant,
    /// What it holds while it is not answered, if it is a write.
    pub(crate) write_bytes: usize,
    pub(crate) work: Work,
}

/// The entry of this number in a queue that begins with `first`.
pub(crate) fn entry_of(queue: &mut VecDeque<Entry>, first: EntrySeq, seq: EntrySeq) -> Option<&mut Entry> {
    let at = seq.0.checked_sub(first.0)?;
    queue.get_mut(usize::try_from(at).ok()?)
}

/// An event that waits for its turn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Waiting {
    pub(crate) kind: EventKind,
    /// The request whose answer announces the watch: the client must have that first.
    pub(crate) after: EntrySeq,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    /// 0 if it is not known.
    pub(crate) port: u16,
    pub(crate) certificate: Option<String>,
    pub(crate) caller: Caller<'static>,
    pub(crate) stage: Stage,
    pub(crate) since: Instant,
    pub(crate) session: ZkSessionId,
    pub(crate) epoch: ConnectionEpoch,
    /// In milliseconds.
    pub(crate) timeout: i32,
    /// Bytes that are not parsed yet.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) queue: VecDeque<Entry>,
    /// The number of the first entry.
    pub(crate) first: EntrySeq,
    /// The first entry that is not in flight.
    pub(crate) next: EntrySeq,
    /// Sent, and their answers not written yet: until then they may have to be asked again.
    pub(crate) reads_in_flight: usize,
    /// The group that the last write was submitted to.
    pub(crate) home: usize,
    /// The session comes to another group, which may not have it yet: one write at a time, so that none overtakes another.
    pub(crate) rehoming: bool,
    /// Submitted and not answered.
    pub(crate) writes_in_flight: usize,
    /// The largest global sequence number of its own writes.
    pub(crate) written: u64,
    /// The largest global sequence number that the client was shown.
    pub(crate) seen: u64,
    /// By global sequence number, and position within the operation.
    pub(crate) events: BTreeMap<(u64, u32, Arc<str>), Waiting>,
    /// How many watched paths are in which shard.
    pub(crate) watched_spaces: BTreeMap<Space, u32>,
    /// How many watches concern all shards.
    pub(crate) recursive: u32,
    pub(crate) watched: BTreeSet<Arc<str>>,
    /// Heard from since the last notice to the home group.
    pub(crate) heard: bool,
    /// When home groups were notified of it since one last said that the session is alive.
    pub(crate) unassured: VecDeque<Instant>,
    pub(crate) paused: bool,
    /// What it is owed.
    pub(crate) account: Account,
    /// When it last took something of what it was owed, or came to be owed something.
    pub(crate) took_at: Instant,
    /// Bytes of writes that are not answered.
    pub(crate) write_bytes: usize,
    /// Bytes of input behind the first whole request that is not looked at.
    pub(crate) parsable: usize,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl Connection {
    pub(crate) fn new(node: NodeId, message: Connected, now: Instant) -> Self {
        let Connected { address, certificate, port } = message;
        let mut identities = vec![Identity::new("ip", &address)];
        if let Some(subject) = &certificate {
            identities.push(Identity::new("x509", subject));
        }
        Self {
            node,
            address,
            port: port.unwrap_or(0),
            certificate,
            caller: Caller::of(&identities),
            stage: Stage::New,
            since: now,
            session: ZkSessionId(0),
            epoch: ConnectionEpoch(0),
            timeout: 0,
            input: Vec::new(),
            output: Vec::new(),
            queue: VecDeque::new(),
            first: EntrySeq(1),
            next: EntrySeq(1),
            reads_in_flight: 0,
            home: 0,
            rehoming: false,
            writes_in_flight: 0,
            written: 0,
            seen: 0,
            events: BTreeMap::new(),
            watched_spaces: BTreeMap::new(),
            recursive: 0,
            watched: BTreeSet::new(),
            heard: false,
            unassured: VecDeque::new(),
            paused: false,
            account: Account::default(),
            took_at: now,
            write_bytes: 0,
            parsable: 0,
            received: 0,
            sent: 0,
        }
    }

    pub(crate) fn entry(&mut self, seq: EntrySeq) -> Option<&mut Entry> {
        entry_of(&mut self.queue, self.first, seq)
    }

    pub(crate) fn push(&mut self, xid: i32, opcode: i32, since: Instant, work: Work) {
        let write_bytes = if let Work::Write { body, .. } = &work { body.len() } else { 0 };
        self.write_bytes += write_bytes;
        self.queue.push_back(Entry { xid, opcode, since, write_bytes, work });
    }

    /// A sequenced operation was answered.
    pub(crate) fn answer_write(&mut self, seq: EntrySeq, reply: Reply) {
        self.writes_in_flight = self.writes_in_flight.saturating_sub(1);
        self.written = self.written.max(reply.shows);
        if let Some(entry) = self.entry(seq) {
            entry.work = Work::Done(reply);
        }
    }

    /// Where the events of every watched shard have arrived up to.
    pub(crate) fn bound(&self, marks: &Marks) -> u64 {
        if self.watched.is_empty() {
            return u64::MAX;
        }
        if self.recursive > 0 || marks.is_mixed() {
            return marks.least();
        }
        self.watched_spaces.keys().map(|&space| marks.of(space)).min().unwrap_or(u64::MAX)
    }
}
