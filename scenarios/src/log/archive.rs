//! What must be true of the archive: nothing that was trimmed is gone before it is there, and what is there is what was appended.

use super::Node;
use super::history::History;
use kernel::{Bytes, HostId, invariant};
use shared_log::Rows;
use shared_log::archive::ArchivedSegment;
use sim::{Cluster, SimulatedArchive};
use std::collections::{BTreeMap, BTreeSet};

/// How far each log, by its space and number, is in the archive from its beginning on.
#[derive(Default)]
pub(super) struct Archived {
    /// The objects that were looked at.
    seen: BTreeSet<String>,
    /// Runs of positions, by their beginnings.
    runs: BTreeMap<(u16, u64), BTreeMap<u64, u64>>,
    /// Up to where there is no gap.
    through: BTreeMap<(u16, u64), u64>,
}

fn segment_of(name: &str, object: &Bytes) -> (ArchivedSegment, Bytes) {
    let read = ArchivedSegment::read(object);
    invariant!(
        ARCH,
        read.is_ok(),
        "{name} {}",
        read.as_ref().map_or_else(ToString::to_string, |_| String::new())
    );
    let (segment, rows) = read.expect("it was checked");
    invariant!(ARCH, segment.object_name() == name, "{name} holds {}", segment.object_name());
    (segment, rows)
}

impl Archived {
    /// Takes in what is new.
    fn look(&mut self, archive: &SimulatedArchive) {
        if archive.len() == self.seen.len() {
            return;
        }
        for (name, object) in archive.objects() {
            if !self.seen.insert(name.to_owned()) {
                continue;
            }
            let (segment, _) = segment_of(name, object);
            let key = (segment.space, segment.number);
            let runs = self.runs.entry(key).or_default();
            let other = runs.insert(segment.first, segment.next);
            invariant!(ARCH, other.is_none(), "{name}: two segments begin at {}", segment.first);
            let through = self.through.entry(key).or_default();
            while let Some(next) = runs.get(through) {
                *through = *next;
            }
        }
    }

    /// What a server has let go is in the archive.
    pub(super) fn check_host(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        self.look(cluster.archive());
        for (node, member) in cluster.nodes_of(host) {
            let Node::Shard(server) = member else { continue };
            for (name, log) in server.service().logs().logs() {
                let (number, retained) = (log.number(), server.service().logs().retained(name));
                let through = self.through.get(&(server.space().0, number)).copied().unwrap_or(0);
                invariant!(
                    ARCH,
                    retained <= through,
                    "{node} keeps {name} from {retained} on; the archive has what is below {through}"
                );
            }
        }
    }

    /// Nothing waits any more.
    pub(super) fn converged(&self, core: &[HostId], cluster: &Cluster<'_, Node>) -> Result<(), String> {
        for (node, member) in core.iter().flat_map(|&host| cluster.nodes_of(host)) {
            let Node::Shard(server) = member else { continue };
            let waiting = server.service().logs().storage().waiting;
            if waiting > 0 {
                return Err(format!("{waiting} segments of {node} wait for the archive"));
            }
        }
        Ok(())
    }

    /// Every object holds what was appended.
    pub(super) fn check(&self, cluster: &Cluster<'_, Node>, history: &History) {
        for (name, object) in cluster.archive().objects() {
            let (segment, rows) = segment_of(name, object);
            for (position, entry) in (segment.first..).zip(Rows::iter(&rows)) {
                // Nobody may have seen an entry whose append had no answer.
                let known = history.entry(&segment.log, position);
                invariant!(
                    ARCH,
                    known.is_none_or(|known| known == entry),
                    "{name} has another entry at {position} than was seen there"
                );
            }
        }
    }
}
