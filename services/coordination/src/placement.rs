//! Which shard a znode is in.

use crate::wire::{JuteInput, RestoredNode, Update, WriteHead, WriteOperation, is_sequential, op, parent_of};
use mason::Space;
use xxhash_rust::xxh3::xxh3_64;

/// Where paths are: by a hash of the path; a node with a sequential name is in its parent's shard, so that creating it
/// concerns one shard, whatever number it gets. With so many
/// levels spread, a deeper node is in the shard of its ancestor at that level: a create there, and a multi below one such ancestor,
/// concern one shard.
///
/// Over one shard more, a path stays where it is or goes to the new one: what it gets is all that moves (jump consistent hashing:
/// Lamping and Veach, *A Fast, Minimal Memory, Consistent Hash Algorithm*, 2014).
///
/// Invariant: the same for all proxies, shards and gateways that go by the same [`mason::ShardMap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    shards: u16,
    /// 0 for all.
    levels: u16,
}

/// Of `count` shards, at least one, the one for a key.
fn jump(mut key: u64, count: u16) -> u16 {
    let (mut shard, mut next) = (0, 0);
    while next < u64::from(count) {
        shard = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((shard + 1) as f64 * ((1u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    shard as u16
}

/// The path, or its closest ancestor, whose name is not a sequential one.
fn numberless(mut path: &str) -> &str {
    while is_sequential(path)
        && let Some(parent) = parent_of(path)
    {
        path = parent;
    }
    path
}

impl Placement {
    /// Over `shards` shards, at least one.
    pub fn new(shards: u16) -> Self {
        Self { shards: shards.max(1), levels: 0 }
    }

    /// The same over another number of shards.
    #[must_use]
    pub fn over(&self, shards: u16) -> Self {
        Self { shards: shards.max(1), ..*self }
    }

    /// The same with the first `levels` levels below the root spread; 0 spreads all.
    #[must_use]
    pub fn resharding(self, levels: u16) -> Self {
        Self { levels, ..self }
    }

    /// All shards.
    pub fn spaces(&self) -> impl Iterator<Item = Space> + use<> {
        (0..self.shards).map(Space)
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Where a path is; any text has a shard.
    pub fn space_of(&self, path: &str) -> Space {
        if self.shards == 1 {
            return Space(0);
        }
        let mut path = numberless(path);
        while let Some(ancestor) = self.placed_ancestor(path) {
            path = numberless(ancestor);
        }
        Space(jump(xxh3_64(path.as_bytes()), self.shards))
    }

    /// The ancestor in whose shard a node is that is below the levels that are spread.
    fn placed_ancestor<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.levels == 0 {
            return None;
        }
        let mut slashes = path.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
        slashes.nth(usize::from(self.levels)).map(|(at, _)| &path[..at])
    }

    /// Where the node of a create will live: known before its number is.
    pub fn space_of_created(&self, path: &str, sequential: bool) -> Space {
        match parent_of(path) {
            Some(parent) if sequential => self.space_of(parent),
            _ => self.space_of(path),
        }
    }

    /// The shards that an operation reads or writes, sorted, each once.
    pub fn spaces_of(&self, operation: &WriteOperation<'_>) -> Vec<Space> {
        let mut spaces = Vec::with_capacity(2 * operation.updates().len().max(1));
        for update in operation.updates() {
            match update {
                Update::Create(create) => {
                    spaces.push(self.space_of_created(create.path, create.is_sequential()));
                    spaces.extend(parent_of(create.path).map(|parent| self.space_of(parent)));
                }
                Update::Delete { path, .. } | Update::Restore(RestoredNode { path, .. }) => {
                    spaces.push(self.space_of(path));
                    spaces.extend(parent_of(path).map(|parent| self.space_of(parent)));
                }
                Update::SetData { path, .. }
                | Update::SetAcl { path, .. }
                | Update::Check { path, .. }
                | Update::CheckSame { path, .. } => spaces.push(self.space_of(path)),
            }
        }
        if spaces.is_empty() {
            // An empty multi, too, has a position in the order, so that its answer comes after what was sent before.
            spaces.push(Space(0));
        }
        spaces.sort_unstable();
        spaces.dedup();
        spaces
    }

    /// The same of a request as a user sent it; of one that names one node and looks at it alone, only the path is read.
    pub fn spaces_of_request(&self, head: &WriteHead<'_>, request: &[u8]) -> Vec<Space> {
        match head.opcode {
            op::SET_DATA | op::SET_ACL => {
                JuteInput(request).text().map(|path| vec![self.space_of(path)]).unwrap_or_default()
            }
            _ => head.operation(request).map(|operation| self.spaces_of(&operation)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{JuteOutput as _, sequential_name};

    // A node whose shard depends on the number it gets could not be sequenced before the number is known.
    #[test]
    fn sequential_nodes_live_with_their_parents() {
        let placement = Placement::new(16);
        for parent in ["/", "/a", "/a/lock-0000000007", "/b/x"] {
            for counter in [0, 5, -1, i32::MIN] {
                let prefix = if parent == "/" { "/n".to_owned() } else { format!("{parent}/n") };
                let path = sequential_name(&prefix, counter);
                assert_eq!(placement.space_of(&path), placement.space_of(parent), "{path}");
                assert_eq!(placement.space_of(&path), placement.space_of_created(&prefix, true), "{path}");
            }
        }
    }

    // A leader that takes a set to another shard than its gateway and the shards has it executed by nobody.
    #[test]
    fn a_set_is_placed_by_its_path_alone() {
        let placement = Placement::new(16);
        for (opcode, node) in (0..200).flat_map(|node| [(op::SET_DATA, node), (op::SET_ACL, node)]) {
            let path = format!("/a/{node}");
            let mut request = Vec::new();
            request.put_text(&path);
            match opcode {
                op::SET_DATA => request.put_buffer(Some(b"data")),
                _ => {
                    request.put_i32(1);
                    request.put_i32(31);
                    request.put_text("world");
                    request.put_text("anyone");
                }
            }
            request.put_i32(-1);
            let (session, epoch, caller) = Default::default();
            let head = WriteHead { session, epoch, ephemeral: false, ttl_allowed: false, caller, opcode };
            let read = head.operation(&request).expect("it is well formed");
            assert_eq!(placement.spaces_of_request(&head, &request), placement.spaces_of(&read), "{path}");
        }
    }

    // A hash that favours a shard makes it the bottleneck; one that changes loses every node.
    #[test]
    fn paths_are_spread_and_stay() {
        let placement = Placement::new(4);
        let mut counts = [0u32; 4];
        (0..4000).for_each(|n| counts[usize::from(placement.space_of(&format!("/a/b{n}x")).0)] += 1);
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        let shards: Vec<u16> = ["/", "/a", "/zookeeper"].map(|path| placement.space_of(path).0).into();
        assert_eq!(shards, SHARDS_OF_FOUR);
    }

    // A child elsewhere than its parent makes an operation of two shards of a create that was to concern one.
    #[test]
    fn deeper_nodes_live_with_their_ancestors() {
        let placement = Placement::new(16).resharding(2);
        for ancestor in ["/a/b", "/a/c", "/locks/x-0000000003", "/q"] {
            for below in ["/d", "/d/e", "/d/lock-0000000007", "/d-0000000001/e", "//x"] {
                let path = format!("{ancestor}/z{below}");
                let home = if ancestor == "/q" { "/q/z" } else { ancestor };
                assert_eq!(placement.space_of(&path), placement.space_of(home), "{path}");
            }
        }
        let shard_map = (0..100).map(|n| placement.space_of(&format!("/a/{n}x")).0);
        assert!(shard_map.collect::<std::collections::BTreeSet<_>>().len() > 8, "the second level is spread");
    }

    // What goes to a shard that was there before was moved for nothing; and a shard map that is come back to must be the one it was.
    #[test]
    fn a_shard_more_takes_its_share_and_nothing_else_moves() {
        let path = |n| format!("/a/b{n}x");
        for shards in 1..8 {
            let (before, after) = (Placement::new(shards), Placement::new(shards + 1));
            let moved = (0..4000).filter(|&n| before.space_of(&path(n)) != after.space_of(&path(n)));
            let moved: Vec<u32> = moved.collect();
            assert!(moved.iter().all(|&n| after.space_of(&path(n)) == Space(shards)));
            let share = 4000 / (u32::from(shards) + 1);
            assert!(
                (share * 3 / 4..share * 5 / 4).contains(&(moved.len() as u32)),
                "{shards}: {}",
                moved.len()
            );
        }
    }

    const SHARDS_OF_FOUR: [u16; 3] = [1, 0, 0];
}
