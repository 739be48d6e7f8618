//! What gateways watch at one server: a row for each of them and each path.

use super::tree::Happened;
use coordination::Znodes;
use coordination::wire::{EventKind, WatchEvent, WatchSeq, is_open, parent_of};
use kernel::{Bytes, NodeId, invariant};
use std::collections::{BTreeMap, BTreeSet};

/// Fires once, when data or existence change.
pub(super) const DATA: u8 = 1;
/// Fires once, when children change or the node goes.
pub(super) const CHILD: u8 = 2;
/// Fires always, on both.
pub(super) const PERSISTENT: u8 = 4;
/// Fires always, when data or existence change here or below.
pub(super) const RECURSIVE: u8 = 8;

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Watched(BTreeMap<(String, NodeId), (u8, WatchSeq)>);

/// What servers of a host had watched when shards were handed over: the last registration of each gateway and path, by the host's
/// incarnation.
#[derive(Debug, Default)]
pub(super) struct Moved(BTreeMap<(u64, NodeId, String), WatchSeq>);

impl Moved {
    /// A server has given away what was watched of nodes that live elsewhere from here on.
    pub(super) fn leave(&mut self, number: u64, before: OwnWatches, after: &OwnWatches) {
        for ((reader, path), seq) in before.into_iter().filter(|(watch, _)| !after.contains_key(watch)) {
            let known = self.0.entry((number, reader, path)).or_insert(seq);
            *known = seq.max(*known);
        }
    }

    /// A watch comes with its last registration: an order to forget an earlier one would take it away else.
    pub(super) fn check_taken(&self, number: u64, here: OwnWatches) {
        for ((reader, path), seq) in here {
            let moved = (number, reader, path);
            let before = self.0.get(&moved);
            invariant!(
                WATCH,
                before.is_none_or(|before| seq >= *before),
                "{reader} watches {} by registration {seq:?}, and did so by {before:?} before the watch moved",
                moved.2
            );
        }
    }
}

/// Who watches what at a server, and the last registration.
type OwnWatches = BTreeMap<(NodeId, String), WatchSeq>;

/// What is watched of nodes that live at a server. What is watched of all below is so at every server.
pub(super) fn own_watches(znodes: &Znodes) -> OwnWatches {
    let own = znodes.watched().filter(|(_, _, kinds, _)| kinds & !RECURSIVE != 0);
    own.map(|(path, reader, _, seq)| ((reader, path.to_owned()), seq)).collect()
}

/// An announcement: to whom, of what.
type Announced = (NodeId, u32, i32, String, bool);

impl Watched {
    /// Begins with what a server has, when that came from elsewhere.
    pub(super) fn begin_with(&mut self, znodes: &Znodes) {
        self.0 = znodes
            .watched()
            .map(|(path, reader, kinds, seq)| ((path.to_owned(), reader), (kinds, seq)))
            .collect();
    }

    pub(super) fn register(&mut self, reader: NodeId, path: &str, kinds: u8, seq: WatchSeq) {
        let known = self.0.entry((path.to_owned(), reader)).or_insert((0, seq));
        *known = (known.0 | kinds, seq.max(known.1));
    }

    pub(super) fn forget(&mut self, reader: NodeId, path: &str, through: WatchSeq) {
        let key = (path.to_owned(), reader);
        if self.0.get(&key).is_some_and(|(_, seq)| *seq <= through) {
            self.0.remove(&key);
        }
    }

    pub(super) fn forget_reader(&mut self, reader: NodeId) {
        self.0.retain(|(_, other), _| *other != reader);
    }

    /// Whom an event concerns; what fires once is over.
    fn fire(&mut self, event: &Happened, out: &mut BTreeSet<Announced>) {
        let (concerned, once) = match event.kind {
            EventKind::Created | EventKind::DataChanged => (DATA | PERSISTENT | RECURSIVE, DATA),
            EventKind::Deleted => (DATA | CHILD | PERSISTENT | RECURSIVE, DATA | CHILD),
            EventKind::ChildrenChanged => (CHILD | PERSISTENT, CHILD),
        };
        let mut above = BTreeSet::new();
        let mut at = event.path.as_str();
        while let Some(parent) = parent_of(at).filter(|&parent| parent != at) {
            above.insert(parent);
            at = parent;
        }
        let lasts = |kinds: u8| kinds & RECURSIVE != 0 && event.kind != EventKind::ChildrenChanged;
        for ((path, reader), (kinds, _)) in &mut self.0 {
            let is_here = *path == event.path;
            if is_here && *kinds & concerned != 0 || above.contains(path.as_str()) && lasts(*kinds) {
                let open = is_open(&event.acl);
                out.insert((*reader, event.position, event.kind as i32, event.path.clone(), open));
            }
            if is_here {
                *kinds &= !once;
            }
        }
        self.0.retain(|_, (kinds, _)| *kinds != 0);
    }

    /// A server has executed an operation: it announces what happened to its nodes to all that watch them, and nothing else.
    pub(super) fn judge<'a>(
        &mut self,
        gsn: u64,
        is_clean_up: bool,
        events: impl Iterator<Item = &'a Happened>,
        notices: &[(NodeId, Bytes)],
    ) {
        let mut wanted = BTreeSet::new();
        events.for_each(|event| self.fire(event, &mut wanted));
        if is_clean_up {
            wanted = wanted
                .into_iter()
                .map(|(reader, _, kind, path, open)| (reader, 0, kind, path, open))
                .collect();
        }
        let mut given = Vec::new();
        for (reader, bytes) in notices {
            let events = WatchEvent::read_all(bytes);
            invariant!(WIRE, events.is_ok(), "a notice to {reader} that does not decode: {bytes:?}");
            for event in events.unwrap_or_default() {
                let open = event.acls.is_empty() || is_open(&event.acls);
                let position = if is_clean_up { 0 } else { event.position };
                given.push((*reader, position, event.kind, event.path.to_owned(), open));
            }
        }
        let same = given.len() == wanted.len() && given.iter().all(|event| wanted.contains(event));
        invariant!(
            WATCH,
            same,
            "operation {gsn:#x} is announced as {given:?}, and the model says {wanted:?}"
        );
    }
}
