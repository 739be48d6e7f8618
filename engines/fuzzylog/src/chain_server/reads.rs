//! Syncs, which the tail answers, and plays, which any server does.
//!
//! A sync is asked of all servers of the chain. One that is sealed refuses. Every later projection has a server that was sealed, so when
//! all have answered the epoch was in force after the question, and the tail knew of everything that was acknowledged before.
//!
//! In the strict order the others say how long their rows are, and the tail is asked then: it answers when it has applied so much, and
//! nothing is pending at a time that had passed when the sync began. What it lacks gets a later time, so no command is needed for a sync.

use super::{ChainServer, CountLogs, FindLogs, Play, Scan, Sync, SyncThrough};
use crate::messages::client::{
    ColourElsewhere, EpochInForce, InForceThrough, LogsCounted, LogsFound, NodesPage, NotThere, ScanOutdated,
    ScanTooEarly, Scanned, Synced,
};
use crate::partition::ColourNode;
use crate::terms::{AppendTime, Colour, NodePosition, RowIndex};
use kernel::{Cx, NodeId, PageBudget, planted};

/// A sync that waits until the tail has applied what it had when it was asked.
#[derive(Clone, Debug)]
pub(super) struct WaitingSync {
    client: NodeId,
    call: u64,
    colour: Colour,
    seen: AppendTime,
    /// What is at or before this time is not to be pending either.
    begun: AppendTime,
    through: RowIndex,
}

impl ChainServer {
    pub(super) fn on_sync(&mut self, from: NodeId, message: &Sync, cx: &mut Cx<'_, Self>) {
        let Sync { call, epoch, colour, seen } = *message;
        let answers_all_the_same = planted!(sealed_server_answers_syncs) && self.opened == epoch;
        if !answers_all_the_same && self.refuse(from, call, epoch, cx) {
            return;
        }
        let me = cx.node();
        self.raise_for_sync(seen, cx);
        if self.parameters.order.is_strict() {
            return cx.send(from, InForceThrough { call, epoch, length: self.length() });
        }
        if !self.is_tail(me) {
            return cx.send(from, EpochInForce { call, epoch });
        }
        let (begun, through) = (AppendTime::ZERO, RowIndex(0));
        self.wait_for_sync(WaitingSync { client: from, call, colour, seen, begun, through });
    }

    pub(super) fn on_sync_through(&mut self, from: NodeId, message: &SyncThrough, cx: &mut Cx<'_, Self>) {
        let SyncThrough { call, epoch, colour, seen, begun, through } = *message;
        if self.refuse(from, call, epoch, cx) {
            return;
        }
        if !self.is_tail(cx.node()) {
            return cx.reject("sync for a server that is not the tail");
        }
        self.raise_for_sync(seen, cx);
        self.wait_for_sync(WaitingSync { client: from, call, colour, seen, begun, through });
    }

    /// It is answered when the tail has applied what it has now, and as much as is said.
    fn wait_for_sync(&mut self, sync: WaitingSync) {
        self.syncs.retain(|it| (it.client, it.call) != (sync.client, sync.call));
        if self.syncs.len() < self.parameters.syncs_max {
            // One that has joined may lack what was acknowledged before.
            let whole_from = self.serving_projection().map_or(RowIndex(0), |it| it.whole_from);
            let through = sync.through.max(self.length()).max(whole_from);
            self.syncs.push_back(WaitingSync { through, ..sync });
        }
    }

    /// A head brings its clock up to what the user has seen.
    fn raise_for_sync(&mut self, seen: AppendTime, cx: &mut Cx<'_, Self>) {
        let is_lower =
            self.is_head(cx.node()) && self.state.clock() < seen.clock && !self.is_to_come(seen, cx);
        if is_lower && !self.raises(seen) && self.window < self.parameters.window_bytes {
            cx.mark("chain.raised_its_clock_for_a_sync");
            self.raise(seen, cx);
        }
    }

    /// True if a command that is not applied yet raises the clock so far. Looks at the newest one alone.
    fn raises(&self, seen: AppendTime) -> bool {
        use crate::partition::command::Command;
        let is_raise = |command: &Command| match command {
            Command::Raise(raise) => raise.seen.clock >= seen.clock,
            Command::Append(_)
            | Command::AppendMany(_)
            | Command::ProposeTime(_)
            | Command::Fix(_)
            | Command::TakeOver(_)
            | Command::CleanUp(_)
            | Command::Trim(_)
            | Command::ForgetClients(_)
            | Command::JoinRegions(_)
            | Command::CopyNodes(_)
            | Command::CopiedThrough(_)
            | Command::AddRegion(_)
            | Command::RemoveRegion(_)
            | Command::SealColours(_)
            | Command::TakeColours(_)
            | Command::OwnColours(_)
            | Command::ForgetColours(_)
            | Command::KeepColours(_)
            | Command::Restore(_) => false,
        };
        self.state.applied() < self.length() && self.row.last().is_some_and(|last| is_raise(&last.command))
    }

    /// Nothing that is at or before what the user has seen is still to be delivered; nor, in the strict order, at or before what may have
    /// passed when the sync began. What gets its time later gets a later one there, however low the clock is.
    fn is_past(&self, sync: &WaitingSync) -> bool {
        let until = sync.seen.max(sync.begun);
        self.state.clock() >= sync.seen.clock && self.state.first_queued().is_none_or(|first| first > until)
    }

    pub(super) fn answer_syncs(&mut self, cx: &mut Cx<'_, Self>) {
        if self.syncs.is_empty() {
            return;
        }
        let Some(epoch) = self.serves().filter(|_| self.is_tail(cx.node())) else {
            return self.syncs.clear();
        };
        let mut waiting = std::mem::take(&mut self.syncs);
        waiting.retain(|sync| {
            let is_here = self.state.may_sync(sync.colour);
            if self.state.applied() < sync.through || is_here && !self.is_past(sync) {
                return true;
            }
            if !is_here {
                self.refuse_colour(sync.client, sync.call, cx);
                return false;
            }
            let (first, tail) = (self.state.first(sync.colour), self.state.tail(sync.colour));
            let last = self.state.last_time(sync.colour);
            cx.send_durable(sync.client, Synced { call: sync.call, epoch, first, tail, last });
            false
        });
        self.syncs = waiting;
    }

    /// It is elsewhere, or leaves: what is appended there this partition does not know.
    fn refuse_colour(&self, client: NodeId, call: u64, cx: &mut Cx<'_, Self>) {
        cx.mark("chain.was_asked_for_a_colour_that_is_elsewhere");
        cx.send_durable(client, ColourElsewhere { call, version: self.state.map_version() });
    }

    pub(super) fn on_play(&mut self, from: NodeId, message: &Play, cx: &mut Cx<'_, Self>) {
        let Play { call, colour, from: first_wanted, to } = *message;
        if !self.state.is_here(colour) {
            return self.refuse_colour(from, call, cx);
        }
        if self.state.tail(colour) < to {
            return cx.send(from, NotThere { call, from: first_wanted });
        }
        let first = self.state.first(colour);
        let begin = first_wanted.max(first);
        let mut page = PageBudget::new(self.parameters.page_bytes);
        let wanted = to.0.saturating_sub(begin.0) as usize;
        let nodes: Vec<ColourNode> = self
            .state
            .nodes(colour, begin)
            .take(wanted)
            .take_while(|node| page.admits(node.bytes()))
            .zip((begin.0..).map(NodePosition))
            .map(|(node, position)| self.state.sourced(colour, position, node))
            .collect();
        // A tail applies what is durable elsewhere and may not be here yet.
        cx.send_durable(from, NodesPage { call, colour, from: first_wanted, first, nodes });
    }

    pub(super) fn on_count_logs(&mut self, from: NodeId, message: &CountLogs, cx: &mut Cx<'_, Self>) {
        let CountLogs { call, colour, below } = *message;
        if self.state.tail(colour) < below {
            return cx.send(from, NotThere { call, from: below });
        }
        let (first, counts) = (self.state.first(colour), self.state.counts_below(colour, below));
        cx.send_durable(from, LogsCounted { call, first, counts });
    }

    pub(super) fn on_scan(&mut self, from: NodeId, message: &Scan, cx: &mut Cx<'_, Self>) {
        let Scan { call, below, from: begin, to, digests } = *message;
        if self.state.is_moving() {
            // What moves is scanned in one partition, when it is over.
            return cx.send(from, ScanTooEarly { call });
        }
        if self.state.has_moved_since(below) {
            return cx.send_durable(from, ScanOutdated { call });
        }
        let budget = (!digests).then_some(self.parameters.page_bytes);
        match self.state.scan(begin, to, below, budget) {
            Some(page) => cx.send_durable(from, Scanned { call, page }),
            None => cx.send(from, ScanTooEarly { call }),
        }
    }

    /// A server that lags has not found them yet: what is found stays.
    pub(super) fn on_find_logs(&mut self, from: NodeId, message: &FindLogs, cx: &mut Cx<'_, Self>) {
        let FindLogs { call, colour, ref counts } = *message;
        let below = self.state.position_behind(colour, counts);
        let before = below.and_then(|below| Some(NodePosition(below.0.checked_sub(1)?)));
        let node = before.and_then(|it| self.state.nodes(colour, it).next());
        let at = node.map_or_else(|| self.state.last_time(colour), |node| node.at);
        cx.send_durable(from, LogsFound { call, below, at });
    }
}
