//! What a chain server may have of its row, in memory and in its journal, and what it must have.

use super::chains::{is_of_a_server, server};
use super::{FuzzyScenario, Node};
use ::fuzzylog::{ChainServer, FuzzyParameters};
use kernel::{HostId, NodeId, invariant};
use sim::Cluster;

/// So many windows of commands are in memory beside those for servers that join: what finishes appends has four, and what was
/// applied in a burst stays for another one.
const WINDOWS_IN_MEMORY: usize = 8;
/// What epochs, names and snapshots that were given up leave in a journal.
const JOURNAL_SLACK_BYTES: usize = 8 << 10;

impl FuzzyScenario {
    /// What a server that serves has of the row in memory stays bounded, however much was ever appended.
    pub(super) fn check_bounded(&self, host: HostId, cluster: &Cluster<'_, Node>) {
        let FuzzyParameters { row_memory_bytes, window_bytes, append_bytes_max, .. } = self.parameters;
        let most = row_memory_bytes + WINDOWS_IN_MEMORY * window_bytes + 2 * append_bytes_max;
        for (id, node) in cluster.called_nodes_of(host) {
            if let Node::ChainServer(server) = node
                && server.serves().is_some()
            {
                // And as much as the snapshot that a server takes which joins.
                let (bytes, most) = (server.row_bytes(), most + server.retained_bytes_max());
                invariant!(BOUND, bytes <= most, "{id} has {bytes} of its row in memory, of {most} at most");
            }
        }
    }

    /// Who has an append that waits is remembered, and what only grows does.
    pub(super) fn check_state(&mut self, host: HostId, cluster: &Cluster<'_, Node>) {
        for (id, node) in cluster.called_nodes_of(host) {
            let Node::ChainServer(server) = node else { continue };
            let state = server.state();
            let forgotten = state.waiting_appends().find(|append| !state.knows_client(append.client));
            invariant!(ONCE, forgotten.is_none(), "{id} has forgotten whose {forgotten:?} is, which waits");
            if server.segments_to_load() > 0 {
                // One that turns out to be lost has it begin without anything.
                continue;
            }
            let numbers = [state.clock(), state.applied().0, server.sealed().0, server.opened().0];
            self.rising.look(
                id,
                ["its clock", "what it has applied", "its seal", "the epoch opened"],
                numbers,
            );
        }
    }

    /// What is trimmed leaves the journal, too: it has hardly more than what is retained, and what came last.
    pub(super) fn journal_is_bounded(&self, id: NodeId, server: &ChainServer) -> Result<(), String> {
        let (bytes, live) = (self.disks.bytes(id), server.state().live_bytes());
        let most = 2 * self.parameters.snapshot_every_bytes + 4 * live + JOURNAL_SLACK_BYTES;
        if bytes <= most { Ok(()) } else { Err(format!("{id} has a journal of {bytes}, and {live} live")) }
    }

    /// In an epoch each server's row begins with the row of the one behind it.
    pub(super) fn check_nested(&self, host: HostId, cluster: &Cluster<'_, Node>) {
        for partition in self.chains.partitions() {
            let latest = self.chains.latest(partition);
            let nodes: Vec<NodeId> = latest.nodes().collect();
            for pair in nodes.windows(2).filter(|pair| pair.iter().any(|node| node.host() == host)) {
                let serving =
                    |id: NodeId| server(id, cluster).filter(|server| server.serves() == Some(latest.epoch));
                let (Some(upper), Some(lower)) = (serving(pair[0]), serving(pair[1])) else { continue };
                invariant!(
                    NEST,
                    upper.begins_at() <= lower.length() && lower.length() <= upper.length(),
                    "{} has commands from {} to {}, {} behind it up to {}",
                    pair[0],
                    upper.begins_at(),
                    upper.length(),
                    pair[1],
                    lower.length()
                );
            }
        }
    }

    /// What is acknowledged is on every server of the chain that has it all.
    pub(super) fn check_durable(&self, cluster: &Cluster<'_, Node>) {
        for partition in self.chains.partitions() {
            let replayed = self.truth.replayed(partition);
            for id in self.chains.latest(partition).nodes() {
                if let Some(server) = server(id, cluster) {
                    invariant!(
                        DUR,
                        server.length() >= replayed,
                        "{id} has {} commands, and {replayed} were stable",
                        server.length()
                    );
                }
            }
        }
    }

    /// True of a chain server's place.
    pub(super) fn is_server(&self, id: NodeId) -> bool {
        !self.clients.contains(&id.host()) && is_of_a_server(id.host_slot())
    }
}
