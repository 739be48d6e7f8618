//! Snapshots of a shard that goes on changing: what is about to change is set aside until it is written out.

use crate::tree::Znodes;
use crate::tree::meta::{Kind, Meta};
use crate::tree::packed;
use crate::tree::table::{Node, NodeIndex, Table};
use crate::wire::{JuteInput, JuteOutput, Malformed};
use kernel::SnapshotStep;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A snapshot in flight: slots below `next` are out, the others stand in the table or aside.
#[derive(Debug)]
pub(crate) struct Snapshot {
    gsn: u64,
    begun: bool,
    next: u32,
    /// Slots that existed when it began; a node in a later one is new.
    slots: u32,
    /// Nodes as they were, with their metas; `None` where there was none.
    aside: BTreeMap<u32, Option<(Node, Meta)>>,
    /// The rest of the names of the node that was written last.
    names: Vec<Arc<Vec<u8>>>,
}

const GSN: u8 = 1;
// 2 was a node with all numbers at their full width.
/// Names of children of the node before.
const NAMES: u8 = 3;
const NODE: u8 = 4;
/// How many nodes there are about.
const SLOTS: u8 = 5;
/// More are not believed: who takes a snapshot makes room for them at once.
const SLOTS_MAX: u32 = 1 << 24;

impl Snapshot {
    pub(crate) fn begin(table: &Table, gsn: u64) -> Self {
        let slots = table.slots();
        Self { gsn, begun: false, next: 0, slots, aside: BTreeMap::new(), names: Vec::new() }
    }

    fn needs(&self, index: NodeIndex) -> bool {
        (self.next..self.slots).contains(&index.0) && !self.aside.contains_key(&index.0)
    }

    fn step(&mut self, table: &Table, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let started = chunk.len();
        if !self.begun {
            self.begun = true;
            chunk.push(GSN);
            chunk.put_u64(self.gsn);
            chunk.push(SLOTS);
            chunk.put_i32(self.slots as i32);
        }
        while chunk.len() - started < budget.max(1) {
            if let Some(names) = self.names.pop() {
                write_names(&names, chunk);
            } else if self.next < self.slots {
                let index = self.next;
                self.next += 1;
                match self.aside.remove(&index) {
                    Some(None) => {}
                    Some(Some((node, meta))) => self.write_node(&node, &meta, chunk),
                    None => {
                        if let Some(node) = table.at(NodeIndex(index)) {
                            self.write_node(node, &node.meta(&table.acls), chunk);
                        }
                    }
                }
            } else {
                return SnapshotStep::Done;
            }
        }
        SnapshotStep::More
    }

    fn write_node(&mut self, node: &Node, meta: &Meta, chunk: &mut Vec<u8>) {
        write_node(node, meta, chunk);
        if let Some(directory) = node.directory() {
            self.names = directory.names.chunks().iter().rev().cloned().collect();
        }
    }
}

/// A node without the names of its children.
pub(crate) fn write_node(node: &Node, meta: &Meta, chunk: &mut Vec<u8>) {
    chunk.push(NODE);
    packed::write(node.path(), node.data(), meta, chunk);
}

/// Some of the names of the children of the node written last.
pub(crate) fn write_names(names: &[u8], chunk: &mut Vec<u8>) {
    chunk.push(NAMES);
    chunk.put_buffer(Some(names));
}

impl Znodes {
    /// Called before a node changes, goes, or comes to stand in an empty slot.
    pub(crate) fn keep(&mut self, index: NodeIndex) {
        if let Some(snapshot) = &mut self.snapshot
            && snapshot.needs(index)
        {
            let before = self.table.at(index).map(|node| (node.clone(), node.meta(&self.table.acls)));
            snapshot.aside.insert(index.0, before);
        }
    }

    pub(crate) fn write_snapshot(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(mut snapshot) = self.snapshot.take() else { return SnapshotStep::Done };
        let step = snapshot.step(&self.table, budget, chunk);
        if step == SnapshotStep::More {
            self.snapshot = Some(snapshot);
        }
        step
    }

    /// Takes a chunk. The names of a node's children may be spread over several.
    pub(crate) fn install_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut input = JuteInput(chunk);
        while !input.0.is_empty() {
            match input.u8()? {
                GSN => self.gsn = input.u64()?,
                SLOTS => self.table.reserve((input.i32()? as u32).min(SLOTS_MAX)),
                NODE => {
                    let (path, data, meta) = packed::read(&mut input, self.table.acls.open())?;
                    self.install_node(path, data, &meta)?;
                }
                NAMES => {
                    let names = input.buffer()?.ok_or(Malformed)?;
                    let index = self.last_installed.ok_or(Malformed)?;
                    let taken = self.table.change(index, |node, _| node.names().append(names));
                    taken.filter(|&taken| taken).ok_or(Malformed)?;
                }
                _ => return Err(Malformed),
            }
        }
        Ok(())
    }

    fn install_node(&mut self, path: &str, data: Option<&[u8]>, meta: &Meta) -> Result<(), Malformed> {
        if self.table.find(path).is_some() {
            return Err(Malformed);
        }
        self.keep(self.table.next_slot());
        let index = self.table.insert(path, data, meta);
        self.quotas.inserted(index, path, data.map_or(0, <[u8]>::len));
        if meta.children > 0 {
            self.table.change(index, |node, _| {
                node.update_directory(meta);
            });
        }
        match meta.kind {
            Kind::Ephemeral(session) => {
                self.ephemerals.entry(session).or_default().insert(index);
            }
            Kind::Container | Kind::Ttl(_) => {
                self.mortal.insert(index);
            }
            Kind::Persistent => {}
        }
        self.last_installed = Some(index);
        Ok(())
    }
}
