//! The word `dump`: sessions and their ephemeral nodes, as ZooKeeper prints them.

use crate::gateway::Gateway;
use crate::gateway::choice;
use crate::gateway::connection::{Connection, PartAnswer, Purpose, Read, Stage, Work};
use crate::wire::{JuteInput, Query};
use kernel::{Cx, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Bytes that each shard may answer, about: a word must not be a way to read everything at once.
const BYTES_MAX: u32 = 256 << 10;

impl Gateway {
    /// Asks the shards whose nodes they have; the connection is answered and closed when all have said so.
    pub(super) fn begin_dump(&mut self, node: NodeId, cx: &mut Cx<'_, Self>) {
        let query = Query::Owners { bytes_max: BYTES_MAX }.written();
        let parts = choice::everywhere(&self.settings.placement, &query.into());
        let shard_map = self.marks.shard_map().version;
        let read = Read::new(Purpose::Dump, parts, 0, self.reads.last_watch(), shard_map);
        let now = self.now;
        if let Some(connection) = self.connections.get_mut(&node) {
            connection.stage = Stage::Connecting;
            connection.push(0, 0, now, Work::Read(Box::new(read)));
            cx.mark("coordination.dumped_ephemerals");
        }
        self.runnable.insert(node);
    }

    /// All shards have answered.
    pub(super) fn dump(&mut self, node: NodeId, answers: &[PartAnswer]) {
        let mut text = String::new();
        let written = self.say_dump(answers, &mut text);
        if let Some(connection) = self.connections.get_mut(&node) {
            connection.output.extend_from_slice(if written.is_ok() { text.as_bytes() } else { b"\n" });
            connection.queue.clear();
            connection.stage = Stage::Closed;
        }
        self.runnable.insert(node);
    }

    fn say_dump(&self, answers: &[PartAnswer], out: &mut String) -> std::fmt::Result {
        let open: Vec<&Connection> =
            self.connections.values().filter(|found| found.stage == Stage::Open).collect();
        writeln!(out, "SessionTracker dump:")?;
        writeln!(out, "Sessions with connections here ({}):", open.len())?;
        open.iter().try_for_each(|found| writeln!(out, "0x{:x}\t{}ms", found.session.0, found.timeout))?;
        let mut owned: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
        let mut truncated = false;
        for answer in answers {
            let mut input = JuteInput(&answer.body);
            truncated |= !matches!(input.u8(), Ok(0));
            while let (Ok(session), Ok(path)) = (input.u64(), input.text()) {
                owned.entry(session).or_default().insert(path);
            }
        }
        writeln!(out, "ephemeral nodes dump:")?;
        writeln!(out, "Sessions with Ephemerals ({}):", owned.len())?;
        for (session, paths) in owned {
            writeln!(out, "0x{session:x}:")?;
            paths.iter().try_for_each(|path| writeln!(out, "\t{path}"))?;
        }
        if truncated {
            writeln!(out, "... more of them are not listed: {BYTES_MAX} bytes of each shard are")?;
        }
        Ok(())
    }
}
