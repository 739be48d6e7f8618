//! The state of a partition: a function of its row, the same on every server of its chain.
//!
//! **Order.** An append to colours of this partition alone is delivered when its turn comes. One to several partitions is proposed a
//! time in each (phase 1); the latest of those times is its own (phase 2, Skeen's algorithm). The queue has what is not delivered, by
//! its time so far, and a pending append is in the way of everything later.
//!
//! **Going ahead.** An append to this partition alone may go ahead of what is pending if its client has seen nothing later: it gets a
//! time between the append that was delivered last and the first pending one. So a client that dies in the middle of an append is in
//! nobody's way but theirs who have seen later times. The paper lets everybody wait.
//!
//! **Strict order.** Nothing goes ahead. Heads write how late it is into what their users have seen, so a time is no earlier than its
//! append's beginning: see `chain_server::strict`.
//!
//! Invariant: whatever is delivered later has a later time; the time of an append to several partitions is not before any of their
//! proposals; the clock is not behind any time that was proposed, fixed or delivered.

mod clients;
mod colours;
pub mod command;
mod copying;
mod joining;
mod moving;
mod recounts;
mod regions;
mod restoring;
mod runs;
mod scanning;
pub mod segments;
mod several;
pub mod snapshot;

use crate::parameters::FuzzyOrder;
use crate::terms::{
    AppendId, AppendTime, Colour, ColourPlacement, Content, NodePosition, Owner, PartitionId, RowIndex,
};
pub use clients::DoneAppend;
use clients::{Clients, Past};
use colours::Colours;
pub use colours::{Across, ColourNode, NodeSource};
use command::{
    Answered, Append, AppendMany, BeyondTail, Command, CommandOrigin, Conflict, Delivered, ForgetClients,
    Forgotten, Held, Moving, NamedAppend, Outcome, Placed, Raise, Restoring, RowEntry, Trim, TrimmedTo,
};
use kernel::planted;
use moving::Moves;
use parts::FixedHasher;
use regions::Regions;
pub use regions::{LogHead, OutgoingPage};
pub use runs::SegmentBlob;
pub use scanning::{ScanPage, ScannedNode, SpanDigest};
use several::Several;
pub use several::SeveralStage;
use snapshot::Saving;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

/// An append to this partition alone that waits for its turn.
#[derive(Clone, Debug)]
struct Single {
    id: AppendId,
    content: Content,
    asker: CommandOrigin,
}

/// What has a time and is not delivered.
#[derive(Clone, Debug)]
enum Queued {
    /// To several partitions; this is what this one has proposed.
    Pending,
    /// To several partitions; this is its time.
    Fixed(AppendId),
    /// To this partition alone.
    Single(Single),
}

/// What an append costs in memory, about, while it is not delivered or not cleaned up.
fn cost_of(content: &Content) -> usize {
    CONTENT_HEAD_BYTES + content.bytes() + size_of::<Colour>() * content.colours.len()
}

const CONTENT_HEAD_BYTES: usize = 256;

/// True if the name is of this content.
fn names(id: AppendId, content: &Content) -> bool {
    id.content == content.digest()
}

/// An append to several partitions that is not cleaned up, for whom it may concern.
#[derive(Clone, Debug)]
pub struct Unfinished<'a> {
    /// Its name.
    pub id: AppendId,
    /// Who works on it.
    pub owner: Owner,
    /// What it is.
    pub content: &'a Content,
    /// How far it is here.
    pub stage: SeveralStage,
}

/// The state of a partition.
#[derive(Clone, Debug)]
pub struct PartitionState {
    partition: PartitionId,
    placement: ColourPlacement,
    order: FuzzyOrder,
    clock: u64,
    /// When the append was delivered that was delivered last.
    last: AppendTime,
    queue: BTreeMap<AppendTime, Queued>,
    several: BTreeMap<AppendId, Several>,
    /// The times of appends to this partition alone that wait.
    waiting: BTreeMap<AppendId, AppendTime>,
    clients: Clients,
    colours: Colours,
    /// Other regions; none where there is one alone.
    regions: Option<Regions>,
    /// Colours that have moved, and that do.
    moves: Moves,
    /// Bytes of what is appended by those that are not delivered or not cleaned up.
    content_bytes: usize,
    /// A snapshot that is written.
    saving: Option<Saving>,
    /// Commands that were applied.
    applied: RowIndex,
    /// Of all commands and what they came to.
    digest: u64,
    answers: Vec<Answered>,
    marks: Vec<&'static str>,
}

impl PartitionState {
    /// A partition without a command.
    pub fn new(partition: PartitionId, placement: ColourPlacement, order: FuzzyOrder) -> Self {
        Self {
            partition,
            placement,
            order,
            clock: 0,
            last: AppendTime::ZERO,
            queue: BTreeMap::new(),
            several: BTreeMap::new(),
            waiting: BTreeMap::new(),
            clients: Clients::default(),
            colours: Colours::default(),
            regions: None,
            moves: Moves::default(),
            content_bytes: 0,
            saving: None,
            applied: RowIndex(0),
            digest: 0,
            answers: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Commands that were applied.
    pub fn applied(&self) -> RowIndex {
        self.applied
    }

    /// Equal where the same commands were applied.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The logical clock.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The time of the first append that is not delivered.
    pub fn first_queued(&self) -> Option<AppendTime> {
        self.queue.first_key_value().map(|(&at, _)| at)
    }

    /// How many appends wait for their turn.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many appends to several partitions are not cleaned up.
    pub fn unfinished_count(&self) -> usize {
        self.several.len()
    }

    /// Appends to several partitions that are not cleaned up.
    pub fn unfinished(&self) -> impl Iterator<Item = Unfinished<'_>> {
        self.several.iter().map(|(&id, several)| Unfinished {
            id,
            owner: several.owner,
            content: &several.content,
            stage: several.stage.name(),
        })
    }

    /// Appends to this partition alone that wait behind others, and who is to be answered.
    pub fn waiting(&self) -> impl Iterator<Item = CommandOrigin> {
        self.queue.values().filter_map(|queued| match queued {
            Queued::Single(single) => Some(single.asker),
            Queued::Pending | Queued::Fixed(_) => None,
        })
    }

    /// Appends to this partition alone that wait behind others, for invariants.
    pub fn waiting_appends(&self) -> impl Iterator<Item = AppendId> {
        self.waiting.keys().copied()
    }

    /// Users' clients that are remembered.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// True if a client has had no command from an index on.
    pub fn has_idle_clients(&self, used_below: RowIndex) -> bool {
        self.clients.has_idle(used_below)
    }

    /// True of an append to several partitions that has a time here, proposed or known.
    pub fn is_begun(&self, id: AppendId) -> bool {
        self.several.contains_key(&id) || self.outcome_so_far(id).is_some()
    }

    /// True if its client may still ask for an append that is delivered here.
    pub fn is_delivered(&self, id: AppendId) -> bool {
        self.delivered(id).is_some()
    }

    /// True if something is remembered of the client.
    pub fn knows_client(&self, client: u64) -> bool {
        self.clients.knows(client)
    }

    /// The position after a colour's last node.
    pub fn tail(&self, colour: Colour) -> NodePosition {
        self.colours.tail(colour)
    }

    /// A colour's first node that is left.
    pub fn first(&self, colour: Colour) -> NodePosition {
        self.colours.first(colour)
    }

    /// When a colour's last node was delivered.
    pub fn last_time(&self, colour: Colour) -> AppendTime {
        self.colours.last_time(colour)
    }

    /// A colour's nodes from a position on.
    pub fn nodes(&self, colour: Colour, from: NodePosition) -> impl Iterator<Item = &ColourNode> {
        self.colours.nodes(colour, from)
    }

    /// The colours that have had a node.
    pub fn colours(&self) -> impl Iterator<Item = Colour> {
        self.colours.chains().map(|(colour, _)| colour)
    }

    /// The colours in view from one on, in the order of their numbers: each with its first node that is left, and the position after its
    /// last one.
    pub fn colours_from(&self, first: Colour) -> impl Iterator<Item = (Colour, NodePosition, NodePosition)> {
        self.colours.chains_from(first).map(|(colour, chain)| (colour, chain.first, chain.tail()))
    }

    /// What all nodes cost, in bytes.
    pub fn bytes(&self) -> usize {
        self.colours.bytes()
    }

    /// What all of it costs in memory, about, in bytes: nodes, colours, users' clients, and what is not delivered or not cleaned up.
    pub fn live_bytes(&self) -> usize {
        let regions = self.regions.as_ref().map_or(0, Regions::bytes);
        let colours = self.colours.bytes() + self.colours.head_bytes() + self.moved_bytes();
        colours + self.clients.bytes() + self.content_bytes + regions
    }

    /// Takes what is to be answered since it was called last.
    pub fn take_answers(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answers)
    }

    /// Takes the rare situations that were reached.
    pub fn take_marks(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.marks)
    }

    /// Applies the next command of the row.
    pub fn apply(&mut self, entry: &RowEntry) {
        let asker = CommandOrigin { node: entry.origin, call: entry.call };
        let answered = self.answers.len();
        match &entry.command {
            Command::Append(command) => self.append(command, asker),
            Command::AppendMany(AppendMany { appends }) => {
                for NamedAppend { call, append } in appends {
                    self.append(append, CommandOrigin { call: *call, ..asker });
                }
            }
            Command::ProposeTime(command) => self.propose(command, asker),
            Command::Fix(command) => self.fix(command, asker),
            Command::TakeOver(command) => self.take_over(command, asker),
            Command::CleanUp(command) => self.clean_up(command),
            Command::Trim(command) => self.trim(command, asker),
            Command::Raise(Raise { seen }) => self.clock = self.clock.max(seen.clock),
            Command::ForgetClients(ForgetClients { used_below }) => self.forget_clients(*used_below),
            Command::JoinRegions(command) => self.join_regions(command),
            Command::CopyNodes(command) => self.copy_nodes(command),
            Command::CopiedThrough(command) => self.copied_through(command),
            Command::Restore(command) => self.restore(command, asker),
            Command::AddRegion(command) => self.add_region(command),
            Command::RemoveRegion(command) => self.remove_region(command),
            Command::SealColours(command) => self.seal_colours(command),
            Command::TakeColours(command) => self.take_colours(command),
            Command::OwnColours(command) => self.own_colours(command),
            Command::ForgetColours(command) => self.forget_colours(command),
            Command::KeepColours(command) => self.keep_colours(command),
        }
        self.applied = self.applied.next();
        let last = self.last;
        kernel::invariant!(
            TS,
            last.clock <= self.clock || planted!(clock_not_raised),
            "the clock is {}, {last:?} is delivered",
            self.clock
        );
        self.digest = self.digest_after(entry, answered);
    }

    /// Of the digest before, a command, and what came of it. A content is in its append's name.
    fn digest_after(&self, entry: &RowEntry, answered: usize) -> u64 {
        use kernel::Encode as _;
        let mut digester = FixedHasher::default();
        let mut write = |word: u64| digester.write_u64(word);
        let time = |at: AppendTime| [at.clock, u64::from(at.partition.0), at.ahead];
        match &entry.command {
            Command::Append(_) | Command::AppendMany(_) => {}
            command => write(parts::digest(&command.encoded())),
        }
        for Append { id, below, seen, .. } in entry.command.appends() {
            [id.client, id.number, id.content, *below].into_iter().chain(time(*seen)).for_each(&mut write);
        }
        for Answered { asker, outcome, .. } in &self.answers[answered..] {
            write(asker.call);
            match outcome {
                Outcome::Delivered(Delivered { at, placed }) => {
                    time(*at).into_iter().for_each(&mut write);
                    placed.iter().flat_map(|it| [it.colour.0, it.position.0]).for_each(&mut write);
                }
                outcome => write(parts::digest(&outcome.encoded())),
            }
        }
        let sizes = [self.queue.len(), self.several.len(), self.clients.len(), self.colours.bytes()];
        let last = time(self.last);
        [self.digest, entry.call, self.clock].into_iter().chain(last).for_each(&mut write);
        sizes.into_iter().for_each(|size| write(size as u64));
        digester.finish()
    }

    fn forget_clients(&mut self, used_below: RowIndex) {
        let unfinished = self.several.keys().chain(self.waiting.keys());
        let busy: BTreeSet<u64> = unfinished.map(|id| id.client).collect();
        self.clients.forget(used_below, |client| busy.contains(&client));
    }

    fn answer(&mut self, asker: CommandOrigin, outcome: impl Into<Outcome>) {
        self.answers.push(Answered { asker, outcome: outcome.into(), by: self.applied });
    }

    /// The outcome of an append that is over for its client, if it is.
    fn outcome_so_far(&self, id: AppendId) -> Option<Outcome> {
        if let Some(delivered) = self.delivered(id) {
            return Some(delivered.into());
        }
        self.clients.has_forgotten(id).then(|| Forgotten {}.into())
    }

    /// Where an append is that is delivered, as far as that is in view: a colour that is about to come is answered for by others.
    fn delivered(&self, id: AppendId) -> Option<Delivered> {
        let done = self.clients.done(id)?;
        let placed: Vec<Placed> = done.placed.iter().filter(|it| self.is_here(it.colour)).cloned().collect();
        (!placed.is_empty()).then_some(Delivered { at: done.at, placed })
    }

    /// Why nothing of this content may begin here now.
    fn refuses_to_begin(&self, content: &Content) -> Option<Outcome> {
        if self.is_restoring(content) {
            return Some(Restoring {}.into());
        }
        self.is_for_leaving(content).then(|| Moving {}.into())
    }

    fn append(&mut self, command: &Append, asker: CommandOrigin) {
        let Append { id, below, seen, ref content } = *command;
        if !content.colours.iter().all(|&colour| self.is_here(colour)) || self.may_lack_partitions(content) {
            return self.answer(asker, self.elsewhere());
        }
        let is_sound = names(id, content);
        let row = self.clients.acknowledge(id.client, below, self.applied);
        let past = if is_sound { row.past(id) } else { Past::Other };
        let outcome = match past {
            Past::Unknown => None,
            Past::Done(done) => Some(Delivered { at: done.at, placed: done.placed.clone() }.into()),
            Past::Forgotten => Some(Forgotten {}.into()),
            Past::Other => Some(Outcome::from(Conflict {})),
        };
        if let Some(outcome) = outcome {
            return self.answer(asker, outcome);
        }
        if let Some(at) = self.waiting.get(&id) {
            // The answer goes to who asked last.
            if let Some(Queued::Single(single)) = self.queue.get_mut(at) {
                single.asker = asker;
            }
            return;
        }
        if let Some(several) = self.several.get(&id) {
            // It was begun when its colours were in several partitions, and is ended as such.
            let owner = several.owner;
            self.marks.push("partition.append_was_begun_in_several");
            return self.answer(asker, Held { owner });
        }
        if let Some(refusal) = self.refuses_to_begin(content) {
            return self.answer(asker, refusal);
        }
        let single = Single { id, content: content.compact(), asker };
        let ahead = self.ahead_of_pending(seen).filter(|_| content.opens.is_none());
        if let Some(at) = ahead.filter(|at| self.may_be_dated(content, *at)) {
            self.marks.push("partition.single_went_ahead");
            return self.deliver_single(at, single);
        }
        self.clock = self.clock.max(seen.clock) + 1;
        let at = AppendTime { clock: self.clock, partition: self.partition, ahead: 0 };
        if self.queue.is_empty() {
            return self.deliver_single(at, single);
        }
        self.marks.push("partition.single_waited");
        self.wait(at, single);
        self.deliver();
    }

    fn wait(&mut self, at: AppendTime, single: Single) {
        self.content_bytes += cost_of(&single.content);
        self.waiting.insert(single.id, at);
        self.queue.insert(at, Queued::Single(single));
    }

    /// A time between what was delivered and what is pending, if the client has seen nothing later.
    fn ahead_of_pending(&self, seen: AppendTime) -> Option<AppendTime> {
        let pending = self.first_queued()?;
        if self.order.is_strict() && !planted!(goes_ahead_in_strict_order) {
            return None;
        }
        let is_unseen = planted!(goes_ahead_of_what_was_seen) || self.order.is_strict();
        let base = if is_unseen { self.last } else { self.last.max(seen) };
        let at = AppendTime { ahead: base.ahead + 1, ..base };
        (at < pending && base.clock <= self.clock).then_some(at)
    }

    /// Delivers everything whose turn has come.
    fn deliver(&mut self) {
        loop {
            let next = self.queue.iter().find(|(_, queued)| match queued {
                Queued::Fixed(_) | Queued::Single(_) => true,
                Queued::Pending => !planted!(delivered_before_pending),
            });
            let Some((&at, Queued::Fixed(_) | Queued::Single(_))) = next else { return };
            match self.queue.remove(&at) {
                Some(Queued::Single(single)) => {
                    self.content_bytes -= cost_of(&single.content);
                    self.waiting.remove(&single.id);
                    self.deliver_single(at, single);
                }
                Some(Queued::Fixed(id)) => self.deliver_several(id, at),
                Some(Queued::Pending) | None => return,
            }
        }
    }

    fn deliver_single(&mut self, at: AppendTime, single: Single) {
        let Single { id, content, asker } = single;
        let delivered = self.place(id, at, content);
        self.clients.finish(id, &delivered);
        self.answer(asker, delivered);
    }

    /// Puts a node into its colours here; a snapshot finds how far they go.
    fn place(&mut self, id: AppendId, at: AppendTime, content: Content) -> Delivered {
        kernel::invariant!(
            TS,
            at > self.last
                || planted!(delivered_before_pending)
                || planted!(clock_not_raised)
                || planted!(repeated_proposal_is_new),
            "partition {}: {at:?} is delivered after {:?}",
            self.partition,
            self.last
        );
        self.last = self.last.max(at);
        self.clock = if planted!(clock_not_raised) { self.clock } else { self.clock.max(at.clock) };
        if let ([colour], [body]) = (&content.colours[..], &content.bodies[..]) {
            let (colour, body) = (*colour, body.clone());
            let across = self.across(colour, &content, 0);
            let node = ColourNode { id, at, colours: content.colours, body, across };
            let placed = vec![Placed { colour, position: self.colours.push(colour, node) }];
            self.retain_for_others(at, &placed);
            return Delivered { at, placed };
        }
        let opened = content.opens.map(|restore| self.colours.open(restore, at));
        let mut placed = Vec::new();
        for (index, &colour) in content.colours.iter().enumerate() {
            if !self.is_here(colour) {
                continue;
            }
            let position = if let Some(opened) = opened {
                opened
            } else if content.is_snapshot() {
                self.colours.tail(colour)
            } else {
                let (colours, body) = (content.colours.clone(), content.body(index));
                let across = self.across(colour, &content, index);
                self.colours.push(colour, ColourNode { id, at, colours, body, across })
            };
            placed.push(Placed { colour, position });
        }
        if !content.is_snapshot() {
            self.retain_for_others(at, &placed);
        }
        Delivered { at, placed }
    }

    fn trim(&mut self, command: &Trim, asker: CommandOrigin) {
        let Trim { colour, before } = *command;
        let tail = self.colours.tail(colour);
        if !self.is_here(colour) {
            return self.answer(asker, self.elsewhere());
        }
        if self.leaves(colour) {
            return self.answer(asker, Moving {});
        }
        if before > tail {
            return self.answer(asker, BeyondTail { tail });
        }
        match self.regions {
            Some(_) => self.trim_when_copied(colour, before),
            None => self.colours.trim(colour, before),
        }
        let first = self.colours.first(colour);
        self.answer(asker, TrimmedTo { first });
    }
}
