//! How commands go down the chain, and words of disks come back.
//!
//! ```text
//! client        head              middle            tail          client
//!   | Submit     |                  |                 |              |
//!   |----------->| Forward          | Forward         |              |
//!   |            |----------------->|---------------->|              |
//!   |            | DurableThrough (after its fsync)   |              |
//!   |            |----------------->| DurableThrough (after its fsync)
//!   |            |                  |---------------->|              |
//!   |            |                  |   StableThrough | CommandDone (after its fsync)
//!   |            |<-----------------|<----------------|------------->|
//! ```
//! Commands are forwarded before they are on any disk, so all disks of a chain write at the same time. What is lost on the way is
//! sent again from where the one behind says that its row ends.

use super::{ChainServer, DurableThrough, Forward, Ordered, Received, StableThrough, Submit};
use crate::messages::client::{CommandDone, HeadBusy, ServerSealed};
use crate::partition::command::{Answered, Command, Raise, RowEntry};
use crate::terms::{AppendId, AppendTime, RowIndex};
use kernel::{Cx, NodeId, PageBudget, planted};

/// So many times as many appends are pending where they are not admitted.
const ELSEWHERE: usize = 8;
/// So many times the window is there for what finishes appends.
const FINISHING: usize = 4;
/// What an entry costs beside its bodies, about.
const ENTRY_HEAD_BYTES: usize = 96;

pub(super) fn entry_bytes(entry: &RowEntry) -> usize {
    let content = match &entry.command {
        Command::Append(command) => Some(&command.content),
        Command::ProposeTime(command) => Some(&command.content),
        Command::TakeOver(command) => Some(&command.content),
        Command::Fix(_)
        | Command::CleanUp(_)
        | Command::Trim(_)
        | Command::Raise(_)
        | Command::ForgetClients(_) => None,
    };
    ENTRY_HEAD_BYTES + content.map_or(0, |it| it.bytes() + size_of::<u64>() * it.colours.len())
}

impl ChainServer {
    /// Turns a client of another epoch away; true if it was one.
    pub(super) fn refuse(
        &self,
        client: NodeId,
        call: u64,
        epoch: crate::terms::ChainEpoch,
        cx: &mut Cx<'_, Self>,
    ) -> bool {
        if self.serves() == Some(epoch) {
            return false;
        }
        if epoch < self.sealed {
            cx.send_durable(client, ServerSealed { call, partition: self.partition, epoch: self.sealed });
        }
        // A later epoch's client knows a projection that this server has not heard of.
        true
    }

    pub(super) fn on_submit(&mut self, from: NodeId, message: Submit, cx: &mut Cx<'_, Self>) {
        let Submit { call, epoch, command } = message;
        if self.refuse(from, call, epoch, cx) {
            return;
        }
        if !self.is_head(cx.node()) {
            return cx.reject("command for a server that is not the head");
        }
        if !self.is_sound(&command) {
            return cx.reject("command with an unsound content");
        }
        if self.is_busy(&command) || cx.is_disk_full() {
            cx.mark("chain.head_was_busy");
            return cx.send(from, HeadBusy { call, partition: self.partition, is_full: false });
        }
        if self.is_full(&command) {
            cx.mark("chain.row_was_full");
            return cx.send(from, HeadBusy { call, partition: self.partition, is_full: true });
        }
        self.order(RowEntry { origin: from, call, command }, cx);
    }

    /// Within the bounds, and named by what it is.
    fn is_sound(&self, command: &Command) -> bool {
        let (id, content): (&AppendId, _) = match command {
            Command::Append(command) => (&command.id, &command.content),
            Command::ProposeTime(command) => (&command.id, &command.content),
            Command::TakeOver(command) => (&command.id, &command.content),
            Command::Fix(_) | Command::CleanUp(_) | Command::Trim(_) | Command::Raise(_) => return true,
            // Heads order that by themselves.
            Command::ForgetClients(_) => return false,
        };
        let FuzzyBounds { colours, bytes } = FuzzyBounds::of(self);
        content.flaw(colours, bytes).is_none() && id.content == content.digest()
    }

    /// Whether the partition has as much as it may have. What is begun is finished all the same, and trims are taken.
    fn is_full(&self, command: &Command) -> bool {
        let id = match command {
            Command::Append(command) => command.id,
            Command::ProposeTime(command) => command.id,
            Command::Fix(_)
            | Command::TakeOver(_)
            | Command::CleanUp(_)
            | Command::Trim(_)
            | Command::Raise(_)
            | Command::ForgetClients(_) => return false,
        };
        // What is delivered is answered again.
        self.state.live_bytes() + self.window >= self.parameters.live_bytes_max
            && !self.state.is_delivered(id)
    }

    /// Whether there is no room. What finishes an append has more than what begins one.
    fn is_busy(&self, command: &Command) -> bool {
        let pending_max = self.parameters.pending_max;
        let (client, several_max) = match command {
            Command::Append(command) => (Some(command.id.client), usize::MAX),
            Command::ProposeTime(command) => {
                // An append's first partition admits it. Two that are full for each other's appends would wait for each other.
                let first = command.content.colours.iter().map(|&it| self.placement.partition_of(it)).min();
                let most = if first == Some(self.partition) { pending_max } else { ELSEWHERE * pending_max };
                (Some(command.id.client), most)
            }
            Command::TakeOver(_) | Command::Fix(_) | Command::CleanUp(_) | Command::Raise(_) => {
                return self.window >= FINISHING * self.parameters.window_bytes;
            }
            Command::Trim(_) | Command::ForgetClients(_) => (None, usize::MAX),
        };
        let full = self.state.clients() >= self.parameters.clients_max;
        self.window >= self.parameters.window_bytes
            || self.state.unfinished_count() >= several_max
            || self.state.queued() >= 2 * ELSEWHERE * pending_max
            || full && client.is_some_and(|client| !self.state.knows_client(client))
    }

    pub(super) fn order(&mut self, entry: RowEntry, cx: &mut Cx<'_, Self>) {
        self.push(entry, cx);
        if planted!(head_answers_alone) {
            self.apply_through(self.length(), cx);
        }
    }

    pub(super) fn push(&mut self, entry: RowEntry, cx: &mut Cx<'_, Self>) {
        let index = self.length();
        let bytes = entry_bytes(&entry);
        self.window += bytes;
        self.saved.has_grown(bytes);
        let record = Ordered { index, entry };
        let position = cx.append(&record.clone().into());
        self.row.push(position, record.entry);
    }

    /// Brings the clock up to a time that a user has seen, so that what comes later is later.
    pub(super) fn raise(&mut self, seen: AppendTime, cx: &mut Cx<'_, Self>) {
        let entry = RowEntry { origin: cx.node(), call: 0, command: Raise { seen }.into() };
        self.order(entry, cx);
    }

    pub(super) fn on_forward(&mut self, from: NodeId, message: Forward, cx: &mut Cx<'_, Self>) {
        let Forward { epoch, first, entries } = message;
        let me = cx.node();
        let before = self.serving_projection().filter(|it| it.epoch == epoch).and_then(|it| it.before(me));
        if before != Some(from) {
            return;
        }
        self.links.heard = true;
        self.links.owes_length = true;
        if first > self.length() {
            return cx.mark("chain.forward_left_a_gap");
        }
        for (index, entry) in (first.0..).map(RowIndex).zip(entries) {
            match self.entry(index) {
                Some(known) => kernel::invariant!(
                    NEST,
                    *known == entry || planted!(restarted_head_goes_on),
                    "{me} has {known:?} at {index}, {from} has {entry:?}"
                ),
                // It was applied, and is not in memory any more.
                None if index < self.row.base() => {}
                None => self.push(entry, cx),
            }
        }
    }

    pub(super) fn on_durable_through(
        &mut self,
        from: NodeId,
        message: &DurableThrough,
        cx: &mut Cx<'_, Self>,
    ) {
        let DurableThrough { epoch, through } = *message;
        let me = cx.node();
        let before = self.serving_projection().filter(|it| it.epoch == epoch).and_then(|it| it.before(me));
        if before != Some(from) {
            return;
        }
        self.links.heard = true;
        self.links.above = self.links.above.max(through);
        // It lacks something, and the one before may not know from where on.
        self.links.owes_length |= through > self.length();
        // Said again, it is passed on again: something behind was lost.
        (self.links.owes_durable, self.links.owes_stable) = (true, true);
    }

    pub(super) fn on_received(&mut self, from: NodeId, message: &Received, cx: &mut Cx<'_, Self>) {
        let Received { epoch, length } = *message;
        let me = cx.node();
        let behind = self.serving_projection().filter(|it| it.epoch == epoch).and_then(|it| it.behind(me));
        if behind != Some(from) {
            return;
        }
        if length > self.length() {
            return cx.reject("a row that is longer than the one before it");
        }
        match self.links.received {
            Some(received) if received >= length => {}
            None => {
                (self.links.received, self.links.sent) = (Some(length), length);
                self.links.moved = cx.now();
            }
            Some(_) => {
                self.links.received = Some(length);
                self.links.sent = self.links.sent.max(length);
                self.links.moved = cx.now();
            }
        }
        if self.links.received == Some(length) && self.links.said.is_none_or(|said| said <= length) {
            self.links.owes_durable = true;
        }
    }

    pub(super) fn on_stable_through(&mut self, from: NodeId, message: &StableThrough, cx: &mut Cx<'_, Self>) {
        let StableThrough { epoch, through } = *message;
        let tail = self.serving_projection().filter(|it| it.epoch == epoch).and_then(|it| it.tail());
        if tail != Some(from) || self.is_tail(cx.node()) {
            return;
        }
        let length = self.length();
        kernel::invariant!(
            DUR,
            through <= length || planted!(restarted_head_goes_on),
            "{} has a row of {length}, and {through} are stable",
            cx.node()
        );
        self.links.stable = self.links.stable.max(through);
        // So much the one behind has, whether or not its word has come.
        if self.serving_projection().is_some_and(|it| it.behind(cx.node()).is_some()) {
            self.links.received = self.links.received.max(Some(through));
            self.links.sent = self.links.sent.max(through);
        }
        self.apply_through(through, cx);
    }

    /// Sends what is new to both sides.
    pub(super) fn pass_on(&mut self, cx: &mut Cx<'_, Self>) {
        let me = cx.node();
        let Some(projection) = self.serving_projection() else { return };
        let (epoch, before, behind) = (projection.epoch, projection.before(me), projection.behind(me));
        let others: Vec<NodeId> = projection.nodes().filter(|node| *node != me).collect();
        if let Some(before) = before.filter(|_| std::mem::take(&mut self.links.owes_length)) {
            cx.send(before, Received { epoch, length: self.length() });
        }
        let durable = if before.is_none() { self.length() } else { self.links.above.min(self.length()) };
        match behind {
            Some(behind) => {
                self.forward(behind, cx);
                let is_new = self.links.said < Some(durable) && self.links.received.is_some();
                if is_new || std::mem::take(&mut self.links.owes_durable) {
                    (self.links.said, self.links.owes_durable) = (Some(durable), false);
                    cx.send_durable(behind, DurableThrough { epoch, through: durable });
                }
            }
            None => {
                let is_new = durable > self.state.applied();
                self.links.stable = self.links.stable.max(durable);
                self.apply_through(durable, cx);
                if (is_new || std::mem::take(&mut self.links.owes_stable)) && before.is_some() {
                    self.links.owes_stable = false;
                    for other in others {
                        cx.send_durable(other, StableThrough { epoch, through: self.state.applied() });
                    }
                }
            }
        }
        self.answer_syncs(cx);
    }

    fn forward(&mut self, behind: NodeId, cx: &mut Cx<'_, Self>) {
        let Some(epoch) = self.serves() else { return };
        let Some(received) = self.links.received else { return };
        if self.links.sent < self.row.base() {
            // Directors let nobody in who lacks that much. One of an earlier version may have: the next change is another one's.
            self.serving = false;
            return cx.mark("chain.lacks_what_the_one_behind_needs");
        }
        let mut unheard = self.bytes_between(received, self.links.sent);
        while self.links.sent < self.length() && unheard <= self.parameters.window_bytes {
            let first = self.links.sent;
            let mut page = PageBudget::new(self.parameters.page_bytes);
            let entries = self.row.from(first);
            let entries: Vec<RowEntry> =
                entries.take_while(|entry| page.admits(entry_bytes(entry))).cloned().collect();
            unheard += entries.iter().map(entry_bytes).sum::<usize>();
            self.links.sent = first.plus(entries.len() as u64);
            cx.send(behind, Forward { epoch, first, entries });
        }
    }

    fn bytes_between(&self, from: RowIndex, to: RowIndex) -> usize {
        let count = to.0.saturating_sub(from.0) as usize;
        self.row.from(from).take(count).map(entry_bytes).sum()
    }

    /// Applies the row up to an index, and answers if it is the tail.
    pub(super) fn apply_through(&mut self, through: RowIndex, cx: &mut Cx<'_, Self>) {
        let window = self.window;
        while self.state.applied() < through
            && let Some(entry) = self.row.get(self.state.applied())
        {
            self.window = self.window.saturating_sub(entry_bytes(entry));
            self.state.apply(entry);
        }
        self.note_applied(window - self.window, cx);
        for mark in self.state.take_marks() {
            cx.mark(mark);
        }
        let is_tail = self.is_tail(cx.node()) || planted!(head_answers_alone) && self.is_head(cx.node());
        for Answered { asker, outcome, by } in self.state.take_answers() {
            // Who asked for what is older asks again: the epoch has changed since.
            if is_tail && by >= self.links.answers_from {
                let partition = self.partition;
                // The last disk's word: everything that was appended here is durable when this leaves.
                cx.send_durable(asker.node, CommandDone { call: asker.call, partition, outcome });
            }
        }
    }

    pub(super) fn look_after_row(&mut self, cx: &mut Cx<'_, Self>) {
        if self.serving_projection().is_none() {
            return;
        }
        let now = cx.now();
        let lags = self.state.applied() < self.length();
        if lags || !self.links.heard && !self.is_head(cx.node()) {
            self.links.owes_length = true;
            (self.links.owes_durable, self.links.owes_stable) = (true, true);
        }
        let is_late = now.since(self.links.moved) >= self.parameters.resend_after;
        if let Some(received) = self.links.received.filter(|&it| it < self.links.sent && is_late) {
            cx.mark("chain.forwarded_again");
            self.links.sent = received;
            self.links.moved = now;
        }
    }
}

/// What one append may have.
struct FuzzyBounds {
    colours: usize,
    bytes: usize,
}

impl FuzzyBounds {
    fn of(server: &ChainServer) -> Self {
        Self { colours: server.parameters.colours_max, bytes: server.parameters.append_bytes_max }
    }
}
