//! What a head takes, and what it turns away.

use super::row::APPENDS_MAX;
use super::{ChainServer, Submit};
use crate::messages::client::{HeadBusy, ServerSealed};
use crate::partition::command::{Append, AppendMany, Command, Restore, RowEntry};
use crate::terms::{AppendId, AppendTime, ChainEpoch, Content};
use kernel::{Cx, NodeId};
use std::collections::BTreeSet;

/// So many times as many appends are pending where they are not admitted.
const ELSEWHERE: usize = 8;
/// So many times the window is there for what finishes appends.
const FINISHING: usize = 4;

/// Why a head does not order a command now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NoRoom {
    /// It has too much to do.
    Busy,
    /// The partition has as much as it may have.
    Full,
    /// It does not know what time it is.
    NoClock,
}

/// Calls of commands that a head has ordered in this epoch, and the chain has not confirmed. Who asks again meanwhile is answered all the
/// same: on slow disks what is sent again would be written again, and make them slower.
#[derive(Clone, Debug, Default)]
pub(super) struct Unconfirmed {
    calls: BTreeSet<(NodeId, u64)>,
}

impl Unconfirmed {
    /// False if it is there already.
    fn insert(&mut self, client: NodeId, call: u64) -> bool {
        self.calls.insert((client, call))
    }

    pub(super) fn remove(&mut self, entry: &RowEntry) {
        match &entry.command {
            Command::AppendMany(many) => {
                for named in &many.appends {
                    self.calls.remove(&(entry.origin, named.call));
                }
            }
            _ => {
                self.calls.remove(&(entry.origin, entry.call));
            }
        }
    }

    /// How many there are, and how many of them these commands are.
    pub(super) fn recount<'a>(&self, entries: impl Iterator<Item = &'a RowEntry>) -> (usize, usize) {
        let mut found: BTreeSet<(NodeId, u64)> = BTreeSet::new();
        for entry in entries {
            let named = match &entry.command {
                Command::AppendMany(many) => many.appends.iter().map(|named| named.call).collect(),
                _ => vec![entry.call],
            };
            found.extend(named.into_iter().map(|call| (entry.origin, call)));
        }
        (self.calls.len(), self.calls.intersection(&found).count())
    }

    pub(super) fn forget(&mut self) {
        self.calls.clear();
    }
}

/// True of a command whose call is of it alone: several that nobody waits for have one call.
fn is_answered(command: &Command) -> bool {
    match command {
        Command::Append(_)
        | Command::AppendMany(_)
        | Command::ProposeTime(_)
        | Command::TakeOver(_)
        | Command::Fix(_)
        | Command::Trim(_)
        | Command::Restore(_) => true,
        Command::CleanUp(_)
        | Command::Raise(_)
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
        | Command::KeepColours(_) => false,
    }
}

impl ChainServer {
    /// Turns a client of another epoch away; true if it was one.
    pub(super) fn refuse(&self, client: NodeId, call: u64, epoch: ChainEpoch, cx: &mut Cx<'_, Self>) -> bool {
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
        let mut command = match command {
            Command::AppendMany(many) => match self.admitted(from, many, cx) {
                Some(many) => many.into(),
                None => return,
            },
            command => match self.no_room_for(&command, cx) {
                Some(why) => return self.turn_away(from, call, why, cx),
                None if is_answered(&command) && !self.unconfirmed.insert(from, call) => {
                    return cx.mark("chain.passed_over_what_is_on_its_way");
                }
                None => command,
            },
        };
        self.date(&mut command, cx);
        self.order(RowEntry { origin: from, call, command }, cx);
    }

    /// Those of several appends for which there is room; the others are turned away one by one.
    fn admitted(&mut self, from: NodeId, many: AppendMany, cx: &mut Cx<'_, Self>) -> Option<AppendMany> {
        let mut appends = many.appends;
        appends.retain(|named| match self.no_room_for_append(&named.append, cx) {
            Some(why) => {
                self.turn_away(from, named.call, why, cx);
                false
            }
            None => self.unconfirmed.insert(from, named.call),
        });
        (!appends.is_empty()).then_some(AppendMany { appends })
    }

    fn turn_away(&self, client: NodeId, call: u64, why: NoRoom, cx: &mut Cx<'_, Self>) {
        cx.mark(match why {
            NoRoom::Busy => "chain.head_was_busy",
            NoRoom::Full => "chain.row_was_full",
            NoRoom::NoClock => "chain.clock_cannot_be_relied_on",
        });
        cx.send(client, HeadBusy { call, partition: self.partition, is_full: why == NoRoom::Full });
    }

    /// Within the bounds, and named by what it is.
    fn is_sound(&self, command: &Command) -> bool {
        match command {
            Command::Append(command) => self.is_named(command.id, &command.content),
            Command::ProposeTime(command) => self.is_named(command.id, &command.content),
            Command::TakeOver(command) => self.is_named(command.id, &command.content),
            Command::AppendMany(AppendMany { appends }) => {
                (1..=APPENDS_MAX).contains(&appends.len())
                    && appends.iter().all(|it| self.is_named(it.append.id, &it.append.content))
            }
            Command::Restore(command) => self.is_sound_restore(command),
            Command::Fix(_) | Command::CleanUp(_) | Command::Trim(_) | Command::Raise(_) => true,
            // Heads order that by themselves.
            Command::ForgetClients(_)
            | Command::JoinRegions(_)
            | Command::CopyNodes(_)
            | Command::CopiedThrough(_)
            | Command::AddRegion(_)
            | Command::RemoveRegion(_)
            | Command::SealColours(_)
            | Command::TakeColours(_)
            | Command::OwnColours(_)
            | Command::ForgetColours(_)
            | Command::KeepColours(_) => false,
        }
    }

    fn is_sound_restore(&self, command: &Restore) -> bool {
        let bytes: usize = command.nodes.iter().map(|node| node.body.len()).sum();
        let (colours_max, bytes_max) = (self.parameters.colours_max, self.parameters.append_bytes_max);
        command.nodes.len() <= APPENDS_MAX
            && bytes <= bytes_max
            && command.nodes.iter().all(|node| node.colours.len() <= colours_max && node.across.is_none())
    }

    fn is_named(&self, id: AppendId, content: &Content) -> bool {
        let (colours, bytes) = (self.parameters.colours_max, self.parameters.append_bytes_max);
        content.flaw(colours, bytes).is_none() && id.content == content.digest()
    }

    fn no_room_for(&self, command: &Command, cx: &Cx<'_, Self>) -> Option<NoRoom> {
        let pending_max = self.parameters.pending_max;
        match command {
            Command::Append(command) => self.no_room_for_append(command, cx),
            Command::ProposeTime(command) => {
                // An append's first partition admits it. Two that are full for each other's appends would wait for each other.
                let content = &command.content;
                let first =
                    (0..content.colours.len()).filter_map(|it| content.planned(it, self.placement)).min();
                let most = if first == Some(self.partition) { pending_max } else { ELSEWHERE * pending_max };
                self.no_room_for_begun(command.id, command.seen, most, cx)
            }
            // What finishes an append has more room than what begins one.
            Command::TakeOver(command)
                if self.proposes(command) && self.cannot_date(AppendTime::ZERO, cx) =>
            {
                Some(NoRoom::NoClock)
            }
            Command::TakeOver(_) | Command::Fix(_) | Command::CleanUp(_) | Command::Raise(_) => {
                let is_busy = self.window >= FINISHING * self.parameters.window_bytes || cx.is_disk_full();
                is_busy.then_some(NoRoom::Busy)
            }
            Command::Restore(_) => match self.is_busy(usize::MAX, cx) {
                true => Some(NoRoom::Busy),
                false => self.is_full().then_some(NoRoom::Full),
            },
            Command::AppendMany(_)
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
            | Command::KeepColours(_) => self.is_busy(usize::MAX, cx).then_some(NoRoom::Busy),
        }
    }

    fn no_room_for_append(&self, append: &Append, cx: &Cx<'_, Self>) -> Option<NoRoom> {
        self.no_room_for_begun(append.id, append.seen, usize::MAX, cx)
    }

    /// What begins an append; so many to several partitions may be unfinished.
    fn no_room_for_begun(
        &self,
        id: AppendId,
        seen: AppendTime,
        several_max: usize,
        cx: &Cx<'_, Self>,
    ) -> Option<NoRoom> {
        if self.cannot_date(seen, cx) {
            return Some(NoRoom::NoClock);
        }
        let is_known = || self.state.knows_client(id.client);
        let clients_full = self.state.clients() >= self.parameters.clients_max && !is_known();
        if self.is_busy(several_max, cx) || clients_full {
            return Some(NoRoom::Busy);
        }
        // What is begun is finished all the same, what is delivered is answered again, and trims are taken.
        (self.is_full() && !self.state.is_delivered(id)).then_some(NoRoom::Full)
    }

    fn is_full(&self) -> bool {
        self.state.live_bytes() + self.window >= self.parameters.live_bytes_max
    }

    pub(super) fn is_busy(&self, several_max: usize, cx: &Cx<'_, Self>) -> bool {
        self.window >= self.parameters.window_bytes
            || self.state.unfinished_count() >= several_max
            || self.state.queued() >= 2 * ELSEWHERE * self.parameters.pending_max
            || cx.is_disk_full()
    }
}
