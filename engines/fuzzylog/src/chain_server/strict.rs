//! The strict order at a head: the time of what is appended is no earlier than its arrival.
//!
//! A time is above what its user has seen, so a head writes into that how late it is at most. It stands in the row: a new head has
//! no earlier clock than what was ordered before. A time is waited out where the append is answered ([`crate::client`]), so
//! what is answered before something else begins has the smaller time, in whichever partitions they are.

use super::ChainServer;
use crate::partition::command::{Append, Command, NamedAppend, ProposeTime, TakeOver};
use crate::terms::AppendTime;
use kernel::{Cx, Wall};

/// The time that no true time of this moment is after.
pub(crate) fn latest(wall: Wall) -> AppendTime {
    AppendTime { clock: wall.latest_micros(), ..AppendTime::ZERO }
}

impl ChainServer {
    /// True if nothing that begins now can get a time: by a clock that cannot be relied on, or because of what its user has seen, which an
    /// honest clock has not come to.
    pub(super) fn cannot_date(&self, seen: AppendTime, cx: &Cx<'_, Self>) -> bool {
        self.parameters.order.is_strict() && !cx.wall().usable || self.is_to_come(seen, cx)
    }

    /// True of what no honest clock has come to: it is not to raise this partition's.
    pub(super) fn is_to_come(&self, seen: AppendTime, cx: &Cx<'_, Self>) -> bool {
        self.parameters.is_to_come(seen, cx.wall())
    }

    /// True of a take-over that may propose a time: it is dated as what begins an append is, or a sync may have missed what gets a time
    /// that had passed.
    pub(super) fn proposes(&self, command: &TakeOver) -> bool {
        !self.state.is_begun(command.id)
    }

    /// What gets a time by this command gets a later one than the present. What finishes an append has its time from there.
    pub(super) fn date(&mut self, command: &mut Command, cx: &mut Cx<'_, Self>) {
        if !self.parameters.order.is_strict() {
            return;
        }
        let latest = latest(cx.wall());
        let date = |seen: &mut AppendTime| *seen = latest.max(*seen);
        match command {
            Command::Append(Append { seen, .. }) | Command::ProposeTime(ProposeTime { seen, .. }) => {
                date(seen)
            }
            Command::AppendMany(many) => {
                many.appends.iter_mut().for_each(|NamedAppend { append, .. }| date(&mut append.seen));
            }
            Command::TakeOver(take_over) => {
                if self.proposes(take_over) {
                    self.raise(latest, cx);
                }
            }
            Command::Fix(_)
            | Command::CleanUp(_)
            | Command::Trim(_)
            | Command::Raise(_)
            | Command::ForgetClients(_)
            | Command::JoinRegions(_)
            | Command::CopyNodes(_)
            | Command::CopiedThrough(_)
            | Command::Restore(_)
            | Command::AddRegion(_)
            | Command::RemoveRegion(_)
            | Command::SealColours(_)
            | Command::TakeColours(_)
            | Command::OwnColours(_)
            | Command::ForgetColours(_)
            | Command::KeepColours(_) => {}
        }
    }
}
