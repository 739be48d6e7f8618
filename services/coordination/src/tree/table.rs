//! The nodes of one shard by path: fixed records in pages, path and data of a node in one allocation.

use crate::tree::acls::{AclId, Acls};
use crate::tree::meta::{Kind, Meta};
use crate::tree::names::Names;
use hashbrown::HashTable;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A node's slot in the pages; stays while it exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeIndex(pub(crate) u32);

const PAGE: usize = 1024;

/// What only nodes with children have, or had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) pzxid: u64,
    pub(crate) creates: i32,
    pub(crate) names: Names,
}

/// A znode; 48 bytes, and one allocation for path and data.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The path, then the data.
    bytes: Box<[u8]>,
    /// Most nodes are persistent, without children, and as they were created.
    rare: Option<Box<Rare>>,
    czxid: u64,
    ctime: u64,
    shape: Shape,
    pub(crate) acl: AclId,
}

const _: () = assert!(size_of::<Option<Node>>() == 48);

/// The length of the path, whether there is data, and the tag of the kind, from the high bits down.
#[derive(Clone, Copy, Debug)]
struct Shape(u32);

impl Shape {
    const HAS_DATA: u32 = 4;
    const TAG: u32 = 3;

    /// A path comes in a request, and requests have 4 MiB at most: its length has 29 bits.
    fn of(path: &str, has_data: bool, tag: u8) -> Self {
        let data = if has_data { Self::HAS_DATA } else { 0 };
        Self((path.len() as u32) << 3 | data | u32::from(tag) & Self::TAG)
    }

    fn path_len(self) -> usize {
        (self.0 >> 3) as usize
    }

    fn has_data(self) -> bool {
        self.0 & Self::HAS_DATA != 0
    }

    fn set_has_data(&mut self, has_data: bool) {
        self.0 = self.0 & !Self::HAS_DATA | if has_data { Self::HAS_DATA } else { 0 };
    }

    fn tag(self) -> u8 {
        (self.0 & Self::TAG) as u8
    }
}

/// What most nodes do not need.
#[derive(Clone, Debug)]
struct Rare {
    changed: Changed,
    directory: Option<Box<Directory>>,
}

/// What a persistent node that nobody has changed does not need: it has the values that its creation gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Changed {
    mzxid: u64,
    mtime: u64,
    version: i32,
    aversion: i32,
    /// Of the node's kind.
    number: u64,
}

impl Changed {
    /// `number` is of the node's kind.
    fn of(meta: &Meta, number: u64) -> Self {
        let &Meta { mzxid, mtime, version, aversion, .. } = meta;
        Self { mzxid, mtime, version, aversion, number }
    }

    /// Of a persistent node that was created like this and is unchanged.
    fn at_creation(czxid: u64, ctime: u64) -> Self {
        Self { mzxid: czxid, mtime: ctime, version: 0, aversion: 0, number: 0 }
    }
}

impl Node {
    pub(crate) fn new(path: &str, data: Option<&[u8]>, meta: &Meta, acl: AclId) -> Self {
        let (tag, number) = meta.kind.parts();
        let mut node = Self {
            bytes: joined(path.as_bytes(), data),
            rare: None,
            czxid: meta.czxid,
            ctime: meta.ctime,
            shape: Shape::of(path, data.is_some(), tag),
            acl,
        };
        node.set_changed(Changed::of(meta, number));
        if meta.creates != 0 || meta.pzxid != meta.czxid {
            let directory = Directory { pzxid: meta.pzxid, creates: meta.creates, names: Names::default() };
            node.rare().directory = Some(Box::new(directory));
        }
        node
    }

    fn path_len(&self) -> usize {
        self.shape.path_len()
    }

    /// What a node with children has, or had some time.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        self.rare.as_ref()?.directory.as_deref()
    }

    /// Room for what most nodes do not need.
    fn rare(&mut self) -> &mut Rare {
        let changed = Changed::at_creation(self.czxid, self.ctime);
        self.rare.get_or_insert_with(|| Box::new(Rare { changed, directory: None }))
    }

    /// The names of its children.
    pub(crate) fn names(&mut self) -> &mut Names {
        &mut self.rare().directory.get_or_insert_default().names
    }

    pub(crate) fn path(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.path_len()]).unwrap_or_default()
    }

    fn path_bytes(&self) -> &[u8] {
        &self.bytes[..self.path_len()]
    }

    pub(crate) fn data(&self) -> Option<&[u8]> {
        self.shape.has_data().then(|| &self.bytes[self.path_len()..])
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::of_parts(self.shape.tag(), self.changed().number).unwrap_or(Kind::Persistent)
    }

    fn changed(&self) -> Changed {
        let unchanged = || Changed::at_creation(self.czxid, self.ctime);
        self.rare.as_ref().map_or_else(unchanged, |rare| rare.changed)
    }

    fn set_changed(&mut self, changed: Changed) {
        match &mut self.rare {
            Some(rare) => rare.changed = changed,
            None if changed == Changed::at_creation(self.czxid, self.ctime) => {}
            None => self.rare = Some(Box::new(Rare { changed, directory: None })),
        }
    }

    pub(crate) fn meta(&self, acls: &Acls) -> Meta {
        let directory = self.directory();
        let Changed { mzxid, mtime, version, aversion, number } = self.changed();
        Meta {
            czxid: self.czxid,
            mzxid,
            pzxid: directory.map_or(self.czxid, |directory| directory.pzxid),
            ctime: self.ctime,
            mtime,
            version,
            creates: directory.map_or(0, |directory| directory.creates),
            aversion,
            kind: Kind::of_parts(self.shape.tag(), number).unwrap_or(Kind::Persistent),
            children: directory.map_or(0, |directory| directory.names.len()),
            data_len: (self.bytes.len() - self.path_len()) as u32,
            acl: acls.list(self.acl).clone(),
        }
    }

    /// Takes over what an update of the node itself has changed, but its ACL.
    pub(crate) fn update(&mut self, meta: &Meta, data: Option<Option<&[u8]>>) {
        let number = self.changed().number;
        self.ctime = meta.ctime;
        self.set_changed(Changed::of(meta, number));
        let directory = self.directory();
        let counted = directory.map_or((self.czxid, 0), |directory| (directory.pzxid, directory.creates));
        if counted != (meta.pzxid, meta.creates) {
            self.update_directory(meta);
        }
        if let Some(data) = data {
            let at = self.path_len();
            self.shape.set_has_data(data.is_some());
            let data = data.unwrap_or_default();
            if self.bytes.len() == at + data.len() {
                self.bytes[at..].copy_from_slice(data);
            } else {
                self.bytes = joined(&self.bytes[..at], Some(data));
            }
        }
    }

    /// Takes over what a child's coming or going has changed.
    pub(crate) fn update_directory(&mut self, meta: &Meta) -> &mut Names {
        let directory = self.rare().directory.get_or_insert_default();
        (directory.pzxid, directory.creates) = (meta.pzxid, meta.creates);
        &mut directory.names
    }

    fn digest(&self, acls: &Acls) -> u64 {
        let Changed { mzxid, mtime, version, aversion, number } = self.changed();
        let fields = [
            self.czxid,
            mzxid,
            self.ctime,
            mtime,
            number,
            u64::from(version as u32) << 32 | u64::from(aversion as u32),
            (self.path_len() as u64) << 16
                | u64::from(self.shape.tag()) << 8
                | u64::from(self.shape.has_data()),
            acls.digest(self.acl),
        ];
        let directory = self.directory().map_or([0; 3], |directory| {
            [directory.pzxid, u64::from(directory.creates as u32), directory.names.digest()]
        });
        let mix = |hash: u64, field: u64| (hash ^ field).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        fields.into_iter().chain(directory).fold(xxh3_64(&self.bytes), mix)
    }
}

fn joined(path: &[u8], data: Option<&[u8]>) -> Box<[u8]> {
    let data = data.unwrap_or_default();
    let mut bytes = Vec::with_capacity(path.len() + data.len());
    bytes.extend_from_slice(path);
    bytes.extend_from_slice(data);
    bytes.into_boxed_slice()
}

/// Of the path of the node at this slot.
fn hash_at(pages: &[Vec<Option<Node>>], seed: u64, index: u32) -> u64 {
    let node = pages[index as usize / PAGE][index as usize % PAGE].as_ref();
    xxh3_64_with_seed(node.map_or(b"", |node| node.path_bytes()), seed)
}

/// The nodes of a shard.
#[derive(Debug)]
pub(crate) struct Table {
    pages: Vec<Vec<Option<Node>>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    /// Differs from process to process, so that nobody can prepare paths that collide. Nothing observable depends on it.
    hash_seed: u64,
    digest: u64,
    data_bytes: u64,
    pub(crate) acls: Acls,
}

impl Table {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self {
            pages: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            hash_seed,
            digest: 0,
            data_bytes: 0,
            acls: Acls::default(),
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.hash_seed);
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many slots there are, in use or not.
    pub(crate) fn slots(&self) -> u32 {
        (self.index.len() + self.free.len()) as u32
    }

    /// The length of all paths and data, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    fn slot(&self, index: u32) -> Option<&Option<Node>> {
        self.pages.get(index as usize / PAGE)?.get(index as usize % PAGE)
    }

    pub(crate) fn at(&self, index: NodeIndex) -> Option<&Node> {
        self.slot(index.0)?.as_ref()
    }

    pub(crate) fn find(&self, path: &str) -> Option<(NodeIndex, &Node)> {
        let hash = xxh3_64_with_seed(path.as_bytes(), self.hash_seed);
        let is_it =
            |&index: &u32| self.at(NodeIndex(index)).is_some_and(|node| node.path_bytes() == path.as_bytes());
        let index = NodeIndex(*self.index.find(hash, is_it)?);
        Some((index, self.at(index)?))
    }

    pub(crate) fn meta(&self, path: &str) -> Option<Meta> {
        self.find(path).map(|(_, node)| node.meta(&self.acls))
    }

    /// Where the next new node will stand.
    pub(crate) fn next_slot(&self) -> NodeIndex {
        NodeIndex(self.free.last().copied().unwrap_or_else(|| self.slots()))
    }

    /// Adds a node whose path is not there.
    pub(crate) fn insert(&mut self, path: &str, data: Option<&[u8]>, meta: &Meta) -> NodeIndex {
        let acl = self.acls.hold(&meta.acl);
        self.insert_node(Node::new(path, data, meta, acl))
    }

    fn insert_node(&mut self, node: Node) -> NodeIndex {
        self.digest ^= node.digest(&self.acls);
        self.data_bytes += node.bytes.len() as u64;
        let hash = xxh3_64_with_seed(node.path_bytes(), self.hash_seed);
        let slot = self.next_slot();
        if self.free.pop().is_some() {
            self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE] = Some(node);
        } else {
            if slot.0 as usize / PAGE == self.pages.len() {
                // The first page grows as it is filled: most tables of tests are small.
                self.pages.push(if self.pages.is_empty() { Vec::new() } else { Vec::with_capacity(PAGE) });
            }
            self.pages[slot.0 as usize / PAGE].push(Some(node));
        }
        let (pages, seed) = (&self.pages, self.hash_seed);
        self.index.insert_unique(hash, slot.0, |&index| hash_at(pages, seed, index));
        slot
    }

    /// Makes room in the index for so many nodes.
    pub(crate) fn reserve(&mut self, slots: u32) {
        let more = (slots as usize).saturating_sub(self.index.len());
        let (pages, seed) = (&self.pages, self.hash_seed);
        self.index.reserve(more, |&index| hash_at(pages, seed, index));
    }

    pub(crate) fn remove(&mut self, index: NodeIndex) -> Option<Node> {
        let slot = self.pages.get_mut(index.0 as usize / PAGE)?.get_mut(index.0 as usize % PAGE)?;
        let node = slot.as_ref()?;
        let hash = xxh3_64_with_seed(node.path_bytes(), self.hash_seed);
        self.digest ^= node.digest(&self.acls);
        self.data_bytes -= node.bytes.len() as u64;
        let node = slot.take();
        if let Ok(found) = self.index.find_entry(hash, |&found| found == index.0) {
            found.remove();
        }
        self.free.push(index.0);
        let node = node?;
        self.acls.release(node.acl);
        Some(node)
    }

    /// Changes a node, all but its path.
    pub(crate) fn change<T>(
        &mut self,
        index: NodeIndex,
        change: impl FnOnce(&mut Node, &mut Acls) -> T,
    ) -> Option<T> {
        let slot = self.pages.get_mut(index.0 as usize / PAGE)?.get_mut(index.0 as usize % PAGE)?;
        let node = slot.as_mut()?;
        self.digest ^= node.digest(&self.acls);
        self.data_bytes -= node.bytes.len() as u64;
        let result = change(node, &mut self.acls);
        self.digest ^= node.digest(&self.acls);
        self.data_bytes += node.bytes.len() as u64;
        Some(result)
    }

    /// All nodes, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.pages.iter().flatten().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ZkSessionId;

    // Three things share a number: one that runs into another makes a node with another path, or of another kind.
    #[test]
    fn path_data_and_kind_do_not_mix() {
        let acls = Acls::default();
        let kinds = [Kind::Persistent, Kind::Ephemeral(ZkSessionId(7)), Kind::Container, Kind::Ttl(u64::MAX)];
        for path in ["/".to_owned(), "/a/b".to_owned(), format!("/{}", "x".repeat(70_000))] {
            for (kind, data) in
                kinds.into_iter().flat_map(|kind| [None, Some(&b"data"[..])].map(|data| (kind, data)))
            {
                let (czxid, mzxid, pzxid, ctime, mtime) = (1, 2, 3, 4, 5);
                let (version, creates, aversion, children) = (6, 7, 8, 0);
                let data_len = data.map_or(0, <[u8]>::len) as u32;
                let acl = acls.open().clone();
                let mut meta = Meta {
                    czxid,
                    mzxid,
                    pzxid,
                    ctime,
                    mtime,
                    version,
                    creates,
                    aversion,
                    kind,
                    children,
                    data_len,
                    acl,
                };
                let mut node = Node::new(&path, data, &meta, AclId::default());
                assert_eq!((node.path(), node.data(), node.kind()), (&*path, data, kind));
                assert_eq!(node.meta(&acls), meta);
                for after in [Some(&b"more of it"[..]), None] {
                    (meta.mzxid, meta.data_len) = (9, after.map_or(0, <[u8]>::len) as u32);
                    node.update(&meta, Some(after));
                    assert_eq!((node.path(), node.data(), node.kind()), (&*path, after, kind));
                    assert_eq!(node.meta(&acls), meta);
                }
            }
        }
    }
}
