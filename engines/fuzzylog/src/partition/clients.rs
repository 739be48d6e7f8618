//! Which appends of users' clients are delivered: each is executed once.

use super::command::{Delivered, Placed};
use crate::terms::{AppendId, AppendTime, RowIndex};
use std::collections::BTreeMap;

kernel::record! {
    /// An append that is delivered, and that its client may ask for again.
    pub struct DoneAppend {
        /// Its name.
        id: AppendId,
        /// When.
        at: AppendTime,
        /// Where.
        placed: Vec<Placed>,
    }
}

#[derive(Clone, Debug, Default)]
struct ClientRow {
    below: u64,
    /// Its last command.
    used: RowIndex,
    /// By number, and by what was appended.
    done: BTreeMap<(u64, u64), DoneAppend>,
}

/// The table of all clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    rows: BTreeMap<u64, ClientRow>,
}

fn key(id: AppendId) -> (u64, u64) {
    (id.number, id.content)
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn knows(&self, client: u64) -> bool {
        self.rows.contains_key(&client)
    }

    /// True if a client has had no command from an index on.
    pub(super) fn has_idle(&self, used_below: RowIndex) -> bool {
        self.rows.values().any(|row| row.used < used_below)
    }

    /// Forgets the clients that have had no command from an index on, unless something of theirs is in flight.
    pub(super) fn forget(&mut self, used_below: RowIndex, is_busy: impl Fn(u64) -> bool) {
        self.rows.retain(|&client, row| row.used >= used_below || is_busy(client));
    }

    /// By its command at this index, the client has the answers to everything below.
    pub(super) fn acknowledge(&mut self, client: u64, below: u64, at: RowIndex) {
        let row = self.rows.entry(client).or_default();
        row.used = row.used.max(at);
        if below > row.below {
            row.below = below;
            row.done = row.done.split_off(&(below, 0));
        }
    }

    pub(super) fn has_forgotten(&self, id: AppendId) -> bool {
        self.rows.get(&id.client).is_some_and(|row| id.number < row.below && !row.done.contains_key(&key(id)))
    }

    pub(super) fn done(&self, id: AppendId) -> Option<&DoneAppend> {
        self.rows.get(&id.client)?.done.get(&key(id))
    }

    /// True if the client has appended something else under this number.
    pub(super) fn has_other(&self, id: AppendId) -> bool {
        let row = self.rows.get(&id.client);
        let mut of_number =
            row.into_iter().flat_map(|row| row.done.range((id.number, 0)..=(id.number, u64::MAX)));
        of_number.any(|(_, done)| done.id != id)
    }

    pub(super) fn finish(&mut self, id: AppendId, delivered: &Delivered) {
        let row = self.rows.entry(id.client).or_default();
        let Delivered { at, placed } = delivered.clone();
        row.done.insert(key(id), DoneAppend { id, at, placed });
    }
}
