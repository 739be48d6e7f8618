//! A gateway's region among others: what its users' times and snapshots are of.

use crate::names::{Times, colour_of};
use fuzzylog::{AppendTime, Colour, ColourNode, Edge, NodePosition, RegionId};
use kernel::Bytes;
use std::collections::BTreeMap;
use wire::fuzzylog::{LogCount, NodeOrigin, SnapshotAcross, SnapshotId};

/// Regions, as users name them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionNames {
    cluster: u64,
    own: RegionId,
    names: BTreeMap<RegionId, Bytes>,
}

impl RegionNames {
    /// The regions of a cluster, of which `own` is one. `cluster` is what only those have alike that are of the same cluster.
    pub fn new(cluster: &str, own: RegionId, regions: impl IntoIterator<Item = (RegionId, String)>) -> Self {
        let cluster = parts::digest(cluster.as_bytes());
        let names = regions.into_iter().map(|(region, name)| (region, Bytes::from(name.into_bytes())));
        Self { cluster, own, names: names.collect() }
    }

    pub(crate) fn times(&self) -> Times {
        Times::of_region(self.own)
    }

    /// The name of the gateway's region.
    pub(crate) fn own_name(&self) -> Bytes {
        self.name(self.own)
    }

    fn name(&self, region: RegionId) -> Bytes {
        self.names.get(&region).cloned().unwrap_or_else(|| Bytes::from(region.0.to_string()))
    }

    fn text(&self, region: RegionId) -> String {
        String::from_utf8_lossy(&self.name(region)).into_owned()
    }

    fn named(&self, name: &str) -> Option<RegionId> {
        self.names.iter().find(|(_, known)| *known == name.as_bytes()).map(|(&region, _)| region)
    }

    /// Where a node is from.
    pub(crate) fn origin_of(&self, node: &ColourNode) -> NodeOrigin {
        let count = |edge: &Edge| LogCount { region: self.name(edge.region), count: edge.count };
        // A node that is handed out among several regions says so.
        let (region, number) = node.source().map_or((self.own, 0), |it| (it.region, it.number));
        NodeOrigin { region: self.name(region), number, edges: node.edges().iter().map(count).collect() }
    }

    /// What users here have of colours, so that other regions can compare it.
    pub(crate) fn snapshot(
        &self,
        seen: AppendTime,
        colours: impl IntoIterator<Item = (String, NodePosition, Vec<Edge>)>,
    ) -> SnapshotId {
        let (mut tails, mut logs) = (BTreeMap::new(), BTreeMap::new());
        for (colour, NodePosition(tail), counts) in colours {
            let counts = counts.iter().map(|edge| (self.text(edge.region), edge.count));
            logs.insert(colour.clone(), counts.collect());
            tails.insert(colour, tail);
        }
        let across = SnapshotAcross { cluster: self.cluster, region: self.text(self.own), logs };
        SnapshotId { seen: self.times().seen_of(seen), tails, across: Some(across) }
    }

    /// What a snapshot of this cluster has of each colour; none of another one's, or of regions that there are not.
    pub(crate) fn counts_of(&self, id: &SnapshotId) -> Option<Vec<(String, Colour, Vec<Edge>)>> {
        let across = id.across.as_ref().filter(|it| it.cluster == self.cluster)?;
        let edge = |(name, &count): (&String, &u64)| Some(Edge { region: self.named(name)?, count });
        let of = |colour: &String| {
            let logs = across.logs.get(colour).into_iter().flatten();
            Some((colour.clone(), colour_of(colour.as_bytes()), logs.map(edge).collect::<Option<_>>()?))
        };
        self.named(&across.region)?;
        id.tails.keys().map(of).collect()
    }

    /// True if what a snapshot has seen is of this region.
    pub(crate) fn is_of_here(&self, id: &SnapshotId) -> bool {
        id.across.as_ref().is_some_and(|it| self.named(&it.region) == Some(self.own))
    }
}
