//! What gateways watch here: one entry a gateway and path, however many sessions of it watch.

use crate::tree::Znodes;
use crate::wire::{Acl, EventKind, WatchEvent, WatchSeq, parent_of};
use kernel::{NodeId, Recount};
use mason::{ShardOut, Space};
use std::collections::BTreeMap;

/// Fires once, on changes of data and existence.
pub(crate) const DATA: u8 = 1;
/// Fires once, on changes of children and deletion.
pub(crate) const CHILD: u8 = 2;
/// Fires always, on both.
pub(crate) const PERSISTENT: u8 = 4;
/// Fires always, on changes of data and existence of the node and all below.
pub(crate) const RECURSIVE: u8 = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) reader: NodeId,
    pub(crate) kinds: u8,
    /// Its last registration.
    pub(crate) seq: WatchSeq,
}

#[derive(Debug, Default)]
pub(crate) struct Watches {
    paths: BTreeMap<Box<str>, Vec<Watch>>,
    /// How many entries are recursive: without any, nobody walks up the tree.
    recursive: usize,
}

/// What is to be announced, by reader.
#[derive(Debug, Default)]
pub(crate) struct Notices(BTreeMap<NodeId, Vec<u8>>);

impl Notices {
    pub(crate) fn add(&mut self, reader: NodeId, position: u32, event: EventKind, path: &str, acl: &[Acl]) {
        WatchEvent::write(position, event as i32, path, acl, self.0.entry(reader).or_default());
    }

    pub(crate) fn send(self, out: &mut ShardOut) {
        for (reader, body) in self.0 {
            out.notify(reader, body);
        }
    }
}

impl Watches {
    pub(crate) fn register(&mut self, reader: NodeId, path: &str, kinds: u8, seq: WatchSeq) {
        if !self.paths.contains_key(path) {
            self.paths.insert(path.into(), Vec::new());
        }
        let Some(watches) = self.paths.get_mut(path) else { return };
        match watches.iter_mut().find(|watch| watch.reader == reader) {
            Some(watch) => {
                self.recursive += usize::from(kinds & !watch.kinds & RECURSIVE != 0);
                watch.kinds |= kinds;
                watch.seq = watch.seq.max(seq);
            }
            None => {
                self.recursive += usize::from(kinds & RECURSIVE != 0);
                watches.push(Watch { reader, kinds, seq });
            }
        }
    }

    pub(crate) fn recount(&self) -> Recount {
        let recursive = self.paths.values().flatten().filter(|watch| watch.kinds & RECURSIVE != 0).count();
        Recount::of("watches of all below", self.recursive, recursive)
    }

    pub(crate) fn is_recursive(&self) -> bool {
        self.recursive > 0
    }

    /// Takes out the entries of paths that live elsewhere, by where. Of recursive ones copies are returned; they go, too, unless
    /// this shard stays in use.
    #[expect(clippy::type_complexity, reason = "two rows of watches")]
    pub(crate) fn leave(
        &mut self,
        elsewhere: impl Fn(&str) -> Option<Space>,
        stays: bool,
    ) -> (Vec<(Space, Box<str>, Watch)>, Vec<(Box<str>, Watch)>) {
        let (mut moved, mut lasting) = (Vec::new(), Vec::new());
        for (path, watches) in &mut self.paths {
            let goes = elsewhere(path);
            for watch in watches.iter_mut() {
                let (recursive, own) = (watch.kinds & RECURSIVE, watch.kinds & !RECURSIVE);
                if recursive != 0 {
                    lasting.push((path.clone(), Watch { kinds: recursive, ..*watch }));
                }
                if let Some(space) = goes.filter(|_| own != 0) {
                    moved.push((space, path.clone(), Watch { kinds: own, ..*watch }));
                }
                watch.kinds = if goes.is_some() { 0 } else { own } | if stays { recursive } else { 0 };
            }
            watches.retain(|watch| watch.kinds != 0);
        }
        self.paths.retain(|_, watches| !watches.is_empty());
        let left = self.paths.values().flatten().filter(|watch| watch.kinds & RECURSIVE != 0);
        self.recursive = left.count();
        (moved, lasting)
    }

    /// Drops the reader's entry unless it was registered after `through`.
    pub(crate) fn forget(&mut self, reader: NodeId, path: &str, through: WatchSeq) {
        let keep = |watch: &Watch| watch.reader != reader || watch.seq > through;
        if let Some(watches) = self.paths.get_mut(path) {
            self.recursive -= retain(watches, keep);
            if watches.is_empty() {
                self.paths.remove(path);
            }
        }
    }

    pub(crate) fn forget_reader(&mut self, reader: NodeId) {
        for watches in self.paths.values_mut() {
            self.recursive -= retain(watches, |watch| watch.reader != reader);
        }
        self.paths.retain(|_, watches| !watches.is_empty());
    }

    /// Notes whom an event concerns, and takes back what fires once.
    pub(crate) fn fire(
        &mut self,
        event: EventKind,
        path: &str,
        acl: &[Acl],
        position: u32,
        notices: &mut Notices,
    ) {
        if self.paths.is_empty() {
            return;
        }
        let (concerned, spent) = match event {
            EventKind::Created | EventKind::DataChanged => (DATA | PERSISTENT | RECURSIVE, DATA),
            EventKind::Deleted => (DATA | CHILD | PERSISTENT | RECURSIVE, DATA | CHILD),
            EventKind::ChildrenChanged if kernel::planted!(child_watch_fires_again) => {
                (CHILD | PERSISTENT, 0)
            }
            EventKind::ChildrenChanged => (CHILD | PERSISTENT, CHILD),
        };
        let mut readers = Vec::new();
        if let Some(watches) = self.paths.get_mut(path) {
            readers.extend(
                watches.iter().filter(|watch| watch.kinds & concerned != 0).map(|watch| watch.reader),
            );
            for watch in watches.iter_mut() {
                watch.kinds &= !spent;
            }
            retain(watches, |watch| watch.kinds != 0);
            if watches.is_empty() {
                self.paths.remove(path);
            }
        }
        if self.recursive > 0 && event != EventKind::ChildrenChanged {
            self.recursive_readers(path, &mut readers);
        }
        readers.sort_unstable();
        readers.dedup();
        for reader in readers {
            notices.add(reader, position, event, path, acl);
        }
    }

    fn recursive_readers(&self, path: &str, readers: &mut Vec<NodeId>) {
        let mut at = path;
        while let Some(above) = parent_of(at).filter(|&above| above != at) {
            let watches = self.paths.get(above).into_iter().flatten();
            readers.extend(watches.filter(|watch| watch.kinds & RECURSIVE != 0).map(|watch| watch.reader));
            at = above;
        }
    }
}

/// Keeps what `keep` says, and counts the recursive ones that go.
fn retain(watches: &mut Vec<Watch>, keep: impl Fn(&Watch) -> bool) -> usize {
    let recursive = |watches: &[Watch]| watches.iter().filter(|watch| watch.kinds & RECURSIVE != 0).count();
    let before = recursive(watches);
    watches.retain(keep);
    before - recursive(watches)
}

/// What was watched when a snapshot was about to replace everything.
#[derive(Debug)]
pub(crate) struct Missed {
    since: u64,
    /// Watched paths, and whether a node was there.
    watched: BTreeMap<Box<str>, bool>,
}

impl Missed {
    pub(crate) fn new(since: u64, watched: BTreeMap<Box<str>, bool>) -> Self {
        Self { since, watched }
    }

    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    pub(crate) fn existed(&self, path: &str) -> bool {
        self.watched.get(path).copied().unwrap_or(false)
    }

    /// The paths of the nodes that were there.
    pub(crate) fn there(&self) -> impl Iterator<Item = &str> {
        self.watched.iter().filter(|(_, existed)| **existed).map(|(path, _)| &**path)
    }
}

impl Znodes {
    /// What is watched here: path, reader, the bits of what for, the last registration. For invariants.
    pub fn watched(&self) -> impl Iterator<Item = (&str, NodeId, u8, WatchSeq)> {
        let rows = self.watches.paths.iter();
        rows.flat_map(|(path, watches)| watches.iter().map(|it| (&**path, it.reader, it.kinds, it.seq)))
    }

    /// Before a snapshot replaces everything; a second one does not make the first forgotten.
    pub(crate) fn remember_watched(&mut self) {
        if self.watches.paths.is_empty() || self.missed.is_some() {
            return;
        }
        let here = |path: &str| self.table.find(path).is_some();
        let mut watched: BTreeMap<Box<str>, bool> =
            self.watches.paths.keys().map(|path| (path.clone(), here(path))).collect();
        if self.watches.recursive > 0 {
            watched.extend(self.table.iter().map(|node| (node.path().into(), true)));
        }
        self.missed = Some(Missed { since: self.gsn, watched });
    }

    /// After a snapshot was installed: what has become of a watched node since is announced as one event.
    pub(crate) fn notify_missed(&mut self, notices: &mut Notices) {
        if let Some(missed) = self.missed.take() {
            self.report(missed, notices);
        }
    }

    /// What has become of these since is announced as one event each.
    pub(crate) fn report(&mut self, missed: Missed, notices: &mut Notices) {
        let Missed { since, mut watched } = missed;
        let first = if self.skipped.is_empty() { since + 1 } else { self.skipped.start.min(since + 1) };
        self.skipped = first..self.gsn + 1;
        if self.watches.recursive > 0 && since < self.gsn {
            for node in self.table.iter() {
                // One that is older has come from another shard.
                let existed = node.meta(&self.table.acls).czxid <= since;
                watched.entry(node.path().into()).or_insert(existed);
            }
        }
        let open = self.table.acls.open().clone();
        let own = watched.into_iter().filter(|(path, _)| self.placement.space_of(path) == self.space);
        for (path, existed) in own {
            let meta = self.table.meta(&path);
            let event = match (existed, &meta) {
                (false, None) => None,
                (true, None) => Some(EventKind::Deleted),
                (false, Some(_)) => Some(EventKind::Created),
                (true, Some(meta)) => (meta.mzxid > since).then_some(EventKind::DataChanged),
            };
            let acl = meta.as_ref().map_or(&open, |meta| &meta.acl);
            if let Some(event) = event {
                self.watches.fire(event, &path, acl, 0, notices);
            }
            if let Some(meta) = meta.as_ref().filter(|meta| existed && meta.pzxid > since) {
                self.watches.fire(EventKind::ChildrenChanged, &path, &meta.acl, 1, notices);
            }
        }
    }
}
