//! Handing nodes over when the tree is spread over more or fewer shards: whole, with their versions and the names of their children.
//!
//! Nothing happens to a node that goes to another shard, so nobody is notified. What gateways watch goes from server to server on
//! each host; a server whose state is newer than what they have seen reports to them what they missed.

use crate::tree::Znodes;
use crate::tree::meta::Kind;
use crate::tree::snapshot::{write_names, write_node};
use crate::tree::table::{Node, NodeIndex};
use crate::tree::watches::{Missed, Notices, Watch};
use crate::wire::WatchSeq;
use kernel::{Bytes, Decode, Encode, NodeId, invariant, planted};
use mason::{Gsn, ShardMap, Space};
use std::collections::BTreeMap;

kernel::record! {
    /// What a gateway watches.
    struct Given {
        path: String,
        reader: NodeId,
        kinds: u8,
        seq: u64,
    }
}

kernel::record! {
    /// Whether a node was there when its watches left.
    struct Known {
        path: String,
        existed: bool,
    }
}

kernel::record! {
    /// What is watched of nodes that leave.
    struct WatchesGiven {
        /// Readers have been sent everything up to this global sequence number.
        since: u64,
        watches: Vec<Given>,
        known: Vec<Known>,
    }
}

impl Znodes {
    /// The nodes that live in other shards by this shard map, in the order of their paths.
    fn leaving_to(&self, shard_map: &ShardMap) -> BTreeMap<Space, Vec<(&str, NodeIndex)>> {
        let placement = self.placement.over(shard_map.shards);
        let mut leaving: BTreeMap<Space, Vec<(&str, NodeIndex)>> = BTreeMap::new();
        for index in (0..self.table.slots()).map(NodeIndex) {
            let Some(path) = self.table.at(index).map(Node::path) else { continue };
            let space = placement.space_of(path);
            if space != self.space {
                leaving.entry(space).or_default().push((path, index));
            }
        }
        leaving.values_mut().for_each(|nodes| nodes.sort_unstable());
        leaving
    }

    pub(super) fn pages_leaving(&self, shard_map: &ShardMap, page_bytes: usize) -> Vec<(Space, Vec<Bytes>)> {
        let pages_of = |nodes: Vec<(&str, NodeIndex)>| {
            let (mut pages, mut page) = (Vec::new(), Vec::new());
            let mut turn = |page: &mut Vec<u8>, least: usize| {
                if page.len() >= least {
                    pages.push(Bytes::from(std::mem::take(page)));
                }
            };
            for node in nodes.into_iter().filter_map(|(_, index)| self.table.at(index)) {
                write_node(node, &node.meta(&self.table.acls), &mut page);
                turn(&mut page, page_bytes);
                for names in node.directory().into_iter().flat_map(|directory| directory.names.rewritten()) {
                    write_names(&names, &mut page);
                    turn(&mut page, page_bytes);
                }
            }
            turn(&mut page, 1);
            pages
        };
        self.leaving_to(shard_map).into_iter().map(|(space, nodes)| (space, pages_of(nodes))).collect()
    }

    pub(super) fn take_pages(&mut self, shard_map: &ShardMap, pages: &[(Space, Vec<Bytes>)]) {
        let leaving: Vec<(String, NodeIndex, Kind)> = self
            .leaving_to(shard_map)
            .into_values()
            .flatten()
            .filter_map(|(path, index)| Some((path.to_owned(), index, self.table.at(index)?.kind())))
            .collect();
        for (path, index, kind) in leaving {
            self.remove_node(index, &path, kind);
        }
        self.placement = self.placement.over(shard_map.shards);
        for (space, pages) in pages {
            self.last_installed = None;
            for page in pages {
                let taken = self.install_chunk(page);
                invariant!(
                    DUR,
                    taken.is_ok(),
                    "a page of shard {space} does not read back at shard {}",
                    self.space
                );
            }
        }
    }

    /// Takes out what gateways watch of nodes that live elsewhere by this shard map. What concerns all nodes below a path is watched in
    /// every shard: those that come into use get a copy.
    pub(super) fn take_watches_leaving(&mut self, shard_map: &ShardMap, through: Gsn) -> Vec<(Space, Bytes)> {
        let (placement, own) = (self.placement.over(shard_map.shards), self.space);
        let elsewhere = |path: &str| Some(placement.space_of(path)).filter(|&space| space != own);
        let every = self.watches.is_recursive();
        let (moved, lasting) = self.watches.leave(elsewhere, own.0 < shard_map.shards);
        let since = self.missed.as_ref().map_or(through.0, Missed::since);
        let mut given: BTreeMap<Space, WatchesGiven> = BTreeMap::new();
        let none = || WatchesGiven { since, watches: Vec::new(), known: Vec::new() };
        for (space, path, watch) in moved {
            let existed = match &self.missed {
                Some(missed) => missed.existed(&path),
                None => self.table.find(&path).is_some(),
            };
            let given = given.entry(space).or_insert_with(none);
            given.known.push(Known { path: path.to_string(), existed });
            given.watches.push(written(&path, &watch));
        }
        for space in (shard_map.before..shard_map.shards)
            .map(Space)
            .filter(|_| !planted!(new_shard_lacks_recursive_watches))
        {
            let copies = lasting.iter().map(|(path, watch)| written(path, watch));
            given.entry(space).or_insert_with(none).watches.extend(copies);
        }
        if every {
            // What has become of any node may have to be announced.
            let known: Vec<(String, Space)> = match &self.missed {
                Some(missed) => {
                    let there = missed.there().filter_map(|path| Some((path.to_owned(), elsewhere(path)?)));
                    there.collect()
                }
                None => {
                    let nodes = self.table.iter().map(Node::path);
                    nodes.filter_map(|path| Some((path.to_owned(), elsewhere(path)?))).collect()
                }
            };
            for (path, space) in known {
                given.entry(space).or_insert_with(none).known.push(Known { path, existed: true });
            }
        }
        given.into_iter().map(|(space, given)| (space, given.encoded().into())).collect()
    }

    pub(super) fn take_watches_given(&mut self, watches: &Bytes, notices: &mut Notices) {
        // Written by this host's own server of another shard.
        let Ok(WatchesGiven { since, watches, known }) = WatchesGiven::decoded(watches) else { return };
        for Given { path, reader, kinds, seq } in &watches {
            let seq = if planted!(moved_watch_loses_its_number) { 0 } else { *seq };
            self.watches.register(*reader, path, *kinds, WatchSeq(seq));
        }
        let known = known.into_iter().map(|Known { path, existed }| (path.into(), existed)).collect();
        self.report(Missed::new(since, known), notices);
    }
}

fn written(path: &str, watch: &Watch) -> Given {
    Given { path: path.to_owned(), reader: watch.reader, kinds: watch.kinds, seq: watch.seq.0 }
}
