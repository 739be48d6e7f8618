//! Which appends of users' clients are delivered: each is executed once.

use super::command::{Delivered, MovePoint, MovedClient, Placed};
use crate::terms::{AppendId, AppendTime, Colour, RowIndex};
use kernel::{PageBudget, Recount};
use std::collections::BTreeMap;
use std::ops::Bound;

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

/// What is remembered of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientRow {
    pub(super) below: u64,
    /// Its last command.
    pub(super) used: RowIndex,
    /// By number, and by what was appended.
    done: BTreeMap<(u64, u64), DoneAppend>,
}

/// The table of all clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    rows: BTreeMap<u64, ClientRow>,
    bytes: usize,
    saved: Option<SavedClients>,
}

/// The table as it was when a snapshot began, as far as it is not written.
#[derive(Clone, Debug, Default)]
struct SavedClients {
    /// All clients up to this one are written.
    after: Option<u64>,
    /// What was remembered of clients of whom something else is remembered by now.
    was: BTreeMap<u64, Option<ClientRow>>,
}

/// What is known of an append.
pub(super) enum Past<'a> {
    /// It was not delivered.
    Unknown,
    /// It was delivered.
    Done(&'a DoneAppend),
    /// Its client has the answer.
    Forgotten,
    /// Its client has appended something else under this number.
    Other,
}

/// What a client costs in memory, about, and what each of its appends does beside its places.
const CLIENT_BYTES: usize = 128;
const DONE_BYTES: usize = 96;

/// What a client costs on a page beside its appends.
const MOVED_CLIENT_BYTES: usize = 32;

fn key(id: AppendId) -> (u64, u64) {
    (id.number, id.content)
}

fn bytes_of(done: &DoneAppend) -> usize {
    DONE_BYTES + size_of::<Placed>() * done.placed.len()
}

impl ClientRow {
    fn bytes(&self) -> usize {
        CLIENT_BYTES + self.done.values().map(bytes_of).sum::<usize>()
    }

    /// What came of an append of its to this partition alone, for which a number stands once.
    pub(super) fn past(&self, id: AppendId) -> Past<'_> {
        let mut past = if id.number < self.below { Past::Forgotten } else { Past::Unknown };
        for done in self.done.range((id.number, 0)..=(id.number, u64::MAX)).map(|(_, done)| done) {
            if done.id != id {
                return Past::Other;
            }
            past = Past::Done(done);
        }
        past
    }

    /// Drops its appends to whose numbers it has the answers.
    fn forget_acknowledged(&mut self, bytes: &mut usize) {
        while let Some(first) = self.done.first_entry().filter(|it| it.key().0 < self.below) {
            *bytes -= bytes_of(&first.remove());
        }
    }

    /// Its appends.
    pub(super) fn done(&self) -> impl Iterator<Item = &DoneAppend> {
        self.done.values()
    }
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// What the table costs in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn recount(&self) -> Recount {
        Recount::of("bytes of clients", self.bytes, self.rows.values().map(ClientRow::bytes).sum())
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
        let idle = self.rows.iter().filter(|(client, row)| row.used < used_below && !is_busy(**client));
        let idle: Vec<u64> = idle.map(|(&client, _)| client).collect();
        for client in idle {
            self.save(client);
            self.bytes -= self.rows.remove(&client).map_or(0, |row| row.bytes());
        }
    }

    /// The client's row, which may be changed.
    fn row(&mut self, client: u64) -> &mut ClientRow {
        self.save(client);
        Self::entry(&mut self.rows, &mut self.bytes, client)
    }

    fn entry<'a>(
        rows: &'a mut BTreeMap<u64, ClientRow>,
        bytes: &mut usize,
        client: u64,
    ) -> &'a mut ClientRow {
        rows.entry(client).or_insert_with(|| {
            *bytes += CLIENT_BYTES;
            ClientRow::default()
        })
    }

    /// By its command at this index, the client has the answers to everything below.
    pub(super) fn acknowledge(&mut self, client: u64, below: u64, at: RowIndex) -> &ClientRow {
        self.save(client);
        let bytes = &mut self.bytes;
        let row = Self::entry(&mut self.rows, bytes, client);
        row.used = row.used.max(at);
        if below > row.below {
            row.below = below;
            row.forget_acknowledged(bytes);
        }
        row
    }

    pub(super) fn has_forgotten(&self, id: AppendId) -> bool {
        self.rows.get(&id.client).is_some_and(|row| id.number < row.below && !row.done.contains_key(&key(id)))
    }

    pub(super) fn done(&self, id: AppendId) -> Option<&DoneAppend> {
        self.rows.get(&id.client)?.done.get(&key(id))
    }

    pub(super) fn finish(&mut self, id: AppendId, delivered: &Delivered) {
        let Delivered { at, placed } = delivered.clone();
        let done = DoneAppend { id, at, placed };
        let more = bytes_of(&done);
        let before = self.row(id.client).done.insert(key(id), done);
        self.bytes = self.bytes + more - before.as_ref().map_or(0, bytes_of);
    }
}

/// For colours that move.
impl Clients {
    /// A page of what moves with colours: what each client has answers to, and its appends to them.
    pub(super) fn moved_page(
        &self,
        at: MovePoint,
        colours: &[Colour],
        page: &mut PageBudget,
    ) -> (Vec<MovedClient>, Option<MovePoint>) {
        let mut clients = Vec::new();
        for (&client, row) in self.rows.range(at.client..) {
            let begin = if client == at.client { (at.number, at.content) } else { (0, 0) };
            let point =
                |(number, content): (u64, u64)| MovePoint { client, number, content, ..MovePoint::default() };
            // One that goes on from the page before has room for an append in any case.
            if begin == (0, 0) && !page.admits(MOVED_CLIENT_BYTES) {
                return (clients, Some(point(begin)));
            }
            let mut moved = MovedClient { client, below: row.below, done: Vec::new() };
            for (&key, done) in row.done.range(begin..) {
                let placed = parts_of(done, |colour| colours.contains(&colour));
                if placed.is_empty() {
                    continue;
                }
                let done = DoneAppend { placed, ..done.clone() };
                if !page.admits(bytes_of(&done)) {
                    clients.push(moved);
                    return (clients, Some(point(key)));
                }
                moved.done.push(done);
            }
            clients.push(moved);
        }
        (clients, None)
    }

    /// Takes what another partition remembers of a client. What of an append is here already stays. What one of the two has forgotten is
    /// forgotten as a whole: who asks for it late would be answered for a part.
    pub(super) fn take(&mut self, client: u64, below: u64, done: &[DoneAppend], at: RowIndex) {
        self.acknowledge(client, below, at);
        let row = self.rows.entry(client).or_default();
        row.forget_acknowledged(&mut self.bytes);
        let below = row.below;
        for DoneAppend { id, at, placed } in done.iter().filter(|it| it.id.number >= below) {
            let known = self.done(*id).map(|it| it.placed.clone()).unwrap_or_default();
            let is_new = |it: &&Placed| known.iter().all(|other| other.colour != it.colour);
            let mut all: Vec<Placed> = placed.iter().filter(is_new).cloned().collect();
            all.extend(known);
            all.sort_by_key(|it| it.colour);
            self.finish(*id, &Delivered { at: *at, placed: all });
        }
    }

    /// Forgets where appends are in colours that have left.
    pub(super) fn forget_colours(&mut self, colours: &[Colour]) {
        let has_left = |done: &DoneAppend| done.placed.iter().any(|it| colours.contains(&it.colour));
        let concerned = self.rows.iter().filter(|(_, row)| row.done.values().any(has_left));
        let concerned: Vec<u64> = concerned.map(|(&client, _)| client).collect();
        for client in concerned {
            self.save(client);
            let Some(row) = self.rows.get_mut(&client) else { continue };
            self.bytes -= row.bytes();
            for done in row.done.values_mut() {
                done.placed = parts_of(done, |colour| !colours.contains(&colour));
            }
            row.done.retain(|_, done| !done.placed.is_empty());
            self.bytes += row.bytes();
        }
    }
}

/// Where an append is in some of its colours.
fn parts_of(done: &DoneAppend, is_one: impl Fn(Colour) -> bool) -> Vec<Placed> {
    done.placed.iter().filter(|it| is_one(it.colour)).cloned().collect()
}

/// For snapshots.
impl Clients {
    /// The table is to be written as it is now.
    pub(super) fn begin_saving(&mut self) {
        self.saved = Some(SavedClients::default());
    }

    pub(super) fn end_saving(&mut self) {
        self.saved = None;
    }

    /// What is remembered of a client is about to change.
    fn save(&mut self, client: u64) {
        if let Some(saved) = &mut self.saved
            && saved.after.is_none_or(|after| client > after)
        {
            saved.was.entry(client).or_insert_with(|| self.rows.get(&client).cloned());
        }
    }

    /// The next client to be written, as it was when the snapshot began.
    pub(super) fn next_saved(&mut self) -> Option<(u64, ClientRow)> {
        let saved = self.saved.as_mut()?;
        loop {
            let first = saved.after.map_or(Bound::Unbounded, Bound::Excluded);
            let stored = self.rows.range((first, Bound::Unbounded)).next().map(|(&client, _)| client);
            let changed = saved.was.first_key_value().map(|(&client, _)| client);
            let client = stored.into_iter().chain(changed).min()?;
            saved.after = Some(client);
            let row = match saved.was.remove(&client) {
                Some(was) => was,
                None => self.rows.get(&client).cloned(),
            };
            if let Some(row) = row {
                return Some((client, row));
            }
        }
    }

    /// Takes a client back from a snapshot.
    pub(super) fn install(&mut self, client: u64, below: u64, used: RowIndex) {
        let row = self.row(client);
        (row.below, row.used) = (below, used);
    }
}
