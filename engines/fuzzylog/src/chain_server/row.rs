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

use super::{ChainRecord, ChainServer, DurableThrough, Forward, Ordered, Received, StableThrough};
use crate::messages::client::{CommandDone, CommandsDone, NamedOutcome};
use crate::partition::ColourNode;
use crate::partition::command::{
    Answered, Append, Command, CopyNodes, LogBegin, Raise, RowEntry, ShadowNode,
};
use crate::terms::{AppendTime, Colour, Content, RowIndex};
use kernel::{Cx, NodeId, PageBudget, planted};
use std::collections::BTreeMap;

/// Appends of one command.
pub(crate) const APPENDS_MAX: usize = 256;
/// What an entry costs beside its bodies, about.
const ENTRY_HEAD_BYTES: usize = 96;

fn content_bytes(content: &Content) -> usize {
    content.bytes() + size_of::<Colour>() * content.colours.len()
}

/// What an append costs as a part of the row, about.
pub(crate) fn append_bytes(append: &Append) -> usize {
    ENTRY_HEAD_BYTES + content_bytes(&append.content)
}

fn copied_bytes(command: &CopyNodes) -> usize {
    let begins = command.begins.as_ref().map_or(0, Vec::len);
    command.nodes.iter().map(ShadowNode::bytes).sum::<usize>() + size_of::<LogBegin>() * begins
}

pub(super) fn entry_bytes(entry: &RowEntry) -> usize {
    let content = match &entry.command {
        Command::Append(command) => Some(&command.content),
        Command::ProposeTime(command) => Some(&command.content),
        Command::TakeOver(command) => Some(&command.content),
        Command::AppendMany(command) => {
            return ENTRY_HEAD_BYTES
                + command.appends.iter().map(|it| append_bytes(&it.append)).sum::<usize>();
        }
        Command::CopyNodes(command) => {
            return ENTRY_HEAD_BYTES + copied_bytes(command);
        }
        Command::Fix(_)
        | Command::CleanUp(_)
        | Command::Trim(_)
        | Command::Raise(_)
        | Command::ForgetClients(_)
        | Command::JoinRegions(_)
        | Command::CopiedThrough(_)
        | Command::AddRegion(_)
        | Command::RemoveRegion(_)
        | Command::SealColours(_)
        | Command::OwnColours(_)
        | Command::ForgetColours(_)
        | Command::KeepColours(_) => None,
        Command::TakeColours(command) => return ENTRY_HEAD_BYTES + command.page.bytes(),
        Command::Restore(command) => {
            return ENTRY_HEAD_BYTES + command.nodes.iter().map(ColourNode::bytes).sum::<usize>();
        }
    };
    ENTRY_HEAD_BYTES + content.map_or(0, content_bytes)
}

impl ChainServer {
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
        let record = ChainRecord::from(Ordered { index, entry });
        let position = cx.append(&record);
        if let ChainRecord::Ordered(Ordered { entry, .. }) = record {
            self.row.push(position, entry);
        }
    }

    /// Brings the clock up to a time that a user has seen, so that what comes later is later.
    pub(super) fn raise(&mut self, seen: AppendTime, cx: &mut Cx<'_, Self>) {
        let entry = RowEntry { origin: cx.node(), call: 0, command: Raise { seen }.into() };
        self.order(entry, cx);
    }

    pub(super) fn on_forward(&mut self, from: NodeId, message: Forward, cx: &mut Cx<'_, Self>) {
        let Forward { epoch, first, entries, takes_many } = message;
        let me = cx.node();
        let before = self.serving_projection().filter(|it| it.epoch == epoch).and_then(|it| it.before(me));
        if before != Some(from) {
            return;
        }
        self.links.heard = true;
        self.links.owes_length = true;
        self.links.takes_many = takes_many == Some(true);
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
        let before = self
            .serving_projection()
            .filter(|it| it.epoch == epoch || planted!(durable_of_another_epoch_counts))
            .and_then(|it| it.before(me));
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
        let Received { epoch, length, ref without } = *message;
        let me = cx.node();
        let behind = self.serving_projection().filter(|it| it.epoch == epoch).and_then(|it| it.behind(me));
        if behind != Some(from) {
            return;
        }
        if length > self.length() {
            return cx.reject("a row that is longer than the one before it");
        }
        self.links.without = without.clone().unwrap_or_default();
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
            let without = Some(self.started_without(me)).filter(|it| !it.is_empty());
            cx.send(before, Received { epoch, length: self.length(), without });
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
            let takes_many = Some(self.takes_many(cx.node()));
            cx.send(behind, Forward { epoch, first, entries, takes_many });
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
            self.unconfirmed.remove(entry);
            self.state.apply(entry);
        }
        self.note_applied(window - self.window, cx);
        for mark in self.state.take_marks() {
            cx.mark(mark);
        }
        let is_tail = self.is_tail(cx.node()) || planted!(head_answers_alone) && self.is_head(cx.node());
        let answers = self.state.take_answers();
        if is_tail {
            self.answer(answers, cx);
        }
    }

    /// Everything that was appended here is durable when answers leave: this is the last disk's word.
    fn answer(&self, answers: Vec<Answered>, cx: &mut Cx<'_, Self>) {
        let partition = self.partition;
        let takes_many_in = self.serves().filter(|_| self.takes_many(cx.node()));
        let mut together: BTreeMap<NodeId, Vec<NamedOutcome>> = BTreeMap::new();
        for Answered { asker, outcome, by } in answers {
            // Who asked for what is older asks again: the epoch has changed since.
            if by < self.links.answers_from {
                continue;
            }
            let call = asker.call;
            if !self.sent_many(by, asker.node) {
                cx.send_durable(asker.node, CommandDone { call, partition, outcome, takes_many_in });
                continue;
            }
            let outcomes = together.entry(asker.node).or_default();
            outcomes.push(NamedOutcome { call, outcome });
            if outcomes.len() >= APPENDS_MAX {
                let outcomes = std::mem::take(outcomes);
                cx.send_durable(asker.node, CommandsDone { partition, outcomes });
            }
        }
        for (client, outcomes) in together.into_iter().filter(|(_, outcomes)| !outcomes.is_empty()) {
            cx.send_durable(client, CommandsDone { partition, outcomes });
        }
    }

    /// True if a command of the row has several appends of this client.
    fn sent_many(&self, index: RowIndex, client: NodeId) -> bool {
        let entry = self.row.get(index).filter(|entry| entry.origin == client);
        entry.is_some_and(|entry| matches!(entry.command, Command::AppendMany(_)))
    }

    /// True if all servers from the head to this one take several appends in one command.
    fn takes_many(&self, me: NodeId) -> bool {
        self.links.takes_many || self.is_head(me)
    }

    pub(super) fn look_after_row(&mut self, cx: &mut Cx<'_, Self>) {
        if self.serving_projection().is_none() {
            return;
        }
        let now = cx.now();
        let lags = self.state.applied() < self.length();
        let is_to_say = !self.started_without(cx.node()).is_empty();
        if lags || is_to_say || !self.links.heard && !self.is_head(cx.node()) {
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
