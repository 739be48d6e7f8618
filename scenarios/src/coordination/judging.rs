//! What users find out for themselves, and must not.

use super::checks::Reported;

use super::user::Session;
use super::words::{self, Ask, Body, Watched};
use super::{CoordinationScenario, Seat, nanos};
use kernel::invariant;
use sim::Control;
use std::time::Duration;

/// What is not watched is answered so.
const NO_WATCHER: i32 = -121;

impl CoordinationScenario {
    /// Nobody loses a session whose user was there all the time, as far as a healed core is concerned.
    pub(super) fn check_refusal(&self, number: usize, session: &Session, now: u64) {
        let Some(healed_at) = self.healed_at else { return };
        let calm = session.attached_at > healed_at + nanos(Duration::from_secs(30));
        let away = now.saturating_sub(session.heard_at);
        invariant!(
            SESS,
            !calm || away > session.timeout / 2,
            "user {number} lost session {:x} though it was heard {away} ns before",
            session.id
        );
    }

    /// Nobody believes for long that a session is open which is over: its user may hold a lock that is another's by now.
    pub(super) fn check_pong(&self, number: usize, pinged_at: u64) {
        let Some(session) = &self.users[number].session else { return };
        let over_at = self.servers.over_at(session.id);
        invariant!(
            PING,
            over_at.is_none_or(|over_at| pinged_at < over_at + session.timeout),
            "user {number} had a ping of {pinged_at} answered in session {:x}, which was over at {over_at:?}",
            session.id
        );
    }

    /// Who closes a session is answered, and not disconnected because it is gone.
    /// Nor is a user turned away as one that has seen more than there is, when all hosts have come as far.
    pub(super) fn check_disconnected(&self, number: usize, reason: &[u8], now: u64) {
        let link = self.users[number].link.as_ref();
        let is_calm = self.healed_at.is_some_and(|at| now > at + nanos(Duration::from_secs(30)));
        // Who is refused has no session from then on.
        let has_come_back = link.is_some_and(|link| !link.greeted) && self.users[number].session.is_some();
        let is_turned_away = has_come_back && reason.starts_with(b"the last answer was given");
        invariant!(
            SESS,
            !(is_turned_away && is_calm && self.is_linearizable()),
            "user {number}, which has seen {:#x}, was turned away without an answer",
            self.users[number].last_zxid
        );
        let awaited = self.users[number].link.iter().flat_map(|link| &link.awaited);
        let closes = awaited.into_iter().any(|awaited| awaited.ask == Ask::Close);
        let ended = reason.starts_with(b"the session has ended");
        invariant!(
            CLOSE,
            !(closes && ended),
            "user {number} closed its session and was disconnected without an answer"
        );
    }

    /// What an answer shows of a node that the user watches, it was notified of before.
    pub(super) fn check_shown(&self, number: usize, reported: &Reported<'_>) {
        let (path, kind) = match &reported.awaited.ask {
            Ask::Exists { path, .. } | Ask::Get { path, .. } => (path, Watched::Data),
            Ask::Children { path, .. } => (path, Watched::Children),
            _ => return,
        };
        let Some(armed) = self.users[number].watches.get(&(kind, path.clone())) else { return };
        let is_reported = match (&reported.body, kind) {
            (Some(Body::Stat(stat) | Body::Data(_, stat)), Watched::Data) => {
                !armed.absent && stat.mzxid as u64 <= armed.since
            }
            (Some(Body::Names(_, stat)), Watched::Children) => stat.pzxid as u64 <= armed.since,
            (None, _) => armed.absent || reported.error != words::NO_NODE,
            (Some(_), _) => true,
        };
        invariant!(
            WATCH,
            is_reported,
            "user {number} is shown {:?} of {path}, error {}, and was not notified: {armed:?}",
            reported.body,
            reported.error
        );
    }

    /// A host watches for a connection what its answers have left, until that was announced.
    pub(super) fn on_unwatched(&mut self, number: usize, ask: &Ask, error: i32) {
        let Ask::Unwatch { path, kind, removes } = ask else { return };
        let watch = (*kind, path.clone());
        let watches = &mut self.users[number].watches;
        match (error, watches.get_mut(&watch)) {
            (0, None) => panic!("WATCH: user {number} was said to watch {watch:?}, and does not"),
            (0, Some(_)) if *removes => {
                watches.remove(&watch);
            }
            (NO_WATCHER, Some(armed)) => armed.is_denied = true,
            (_, None | Some(_)) => {}
        }
    }

    pub(super) fn check_watches(&self, number: usize) {
        let lost = self.checks.lost_watch(&self.users[number], false);
        invariant!(WATCH, lost.is_none(), "{lost:?}");
    }

    pub(super) fn mark_answer(&self, reported: &Reported<'_>, control: &mut Control<'_, Seat>) {
        if reported.error == words::BAD_VERSION {
            control.mark("coordination.version_did_not_match");
        }
        if let Some(words::Body::Steps(steps)) = &reported.body {
            let is_refused = steps.iter().any(Result::is_err);
            let marks = ["coordination.multi_was_done", "coordination.multi_was_refused"];
            control.mark(marks[usize::from(is_refused)]);
        }
    }

    pub(super) fn mark_holder(&self, number: usize, names: &[String], control: &mut Control<'_, Seat>) {
        let first = names.iter().min();
        if let (Some(queued), Some(first)) = (&self.users[number].queued, first)
            && queued.path.ends_with(first.as_str())
        {
            control.mark("coordination.held_the_lock");
        }
    }
}
