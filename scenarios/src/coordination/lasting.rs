//! Recursive watches: as long as its connection lasts, a user is notified of every change of a node and of all below it.
//!
//! A user that loses the connection is not notified of what happened meanwhile, as ZooKeeper has it. Nor is every change announced alone that the
//! server of a shard skipped with a snapshot: what has become of a node is announced at once.

use super::calls;
use coordination::wire::parent_of;
use kernel::invariant;
use std::collections::{BTreeMap, BTreeSet};

/// What happens to a node, as events have it.
pub(crate) const CREATED: i32 = 1;
pub(crate) const DELETED: i32 = 2;
pub(crate) const DATA_CHANGED: i32 = 3;

/// What users are known to have done to nodes: by path and zxid, which kind of change, and when it was asked for.
#[derive(Default)]
pub(crate) struct Changes(BTreeMap<String, BTreeMap<u64, (i32, u64)>>);

impl Changes {
    pub(crate) fn add(&mut self, path: &str, zxid: u64, kind: i32, asked: u64) {
        self.0.entry(path.to_owned()).or_default().insert(zxid, (kind, asked));
    }
}

/// The recursive watches of a user, and what it was sent on this connection.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    /// None until the host has answered that it watches.
    watches: BTreeMap<String, Option<WatchState>>,
    reported: BTreeSet<(u64, String, i32)>,
}

/// A watch that the host has answered.
#[derive(Clone, Copy, Debug)]
struct WatchState {
    /// Changes that were asked for after this time must be announced one by one.
    since: u64,
    /// The largest zxid of an answer behind the one that announced it: what was shown before, it may announce again.
    shown: u64,
    /// The zxid of its last event.
    last: u64,
}

/// Whether a path is `above` or lies below it.
fn is_below(path: &str, above: &str) -> bool {
    above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Lasting {
    /// A connection begins, or ends: nothing is watched on it.
    pub(crate) fn forget_connection(&mut self) {
        self.watches.values_mut().for_each(|state| *state = None);
        self.reported.clear();
    }

    pub(crate) fn forget_session(&mut self) {
        *self = Self::default();
    }

    /// What a client that comes back asks for again.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.watches.keys().cloned().collect()
    }

    /// The host has answered that it watches.
    pub(crate) fn set(&mut self, path: &str, now: u64) {
        let state = WatchState { since: now, shown: 0, last: 0 };
        self.watches.entry(path.to_owned()).or_default().get_or_insert(state);
    }

    /// A server of the user's host has skipped what happened until now.
    pub(crate) fn skipped(&mut self, now: u64) {
        self.watches.values_mut().flatten().for_each(|state| state.since = now);
    }

    pub(crate) fn on_answer(&mut self, zxid: u64) {
        self.watches.values_mut().flatten().for_each(|state| state.shown = state.shown.max(zxid));
    }

    /// Events come in the order of what they announce, once, and before answers that show it.
    pub(crate) fn on_event(&mut self, kind: i32, path: &str, zxid: u64) {
        let concerned = self.watches.iter_mut().filter(|(above, _)| is_below(path, above));
        for WatchState { shown, last, .. } in concerned.filter_map(|(_, state)| state.as_mut()) {
            invariant!(
                WATCH,
                zxid > *shown,
                "event {kind} of {path} at {zxid} came after answers that show {shown}"
            );
            invariant!(ORDER, zxid >= *last, "event {kind} of {path} at {zxid} came after one at {last}");
            *last = zxid;
        }
        // One operation may write a node twice.
        let is_new = self.reported.insert((zxid, path.to_owned(), kind)) || calls::are_judged(path);
        invariant!(ONCE, is_new, "event {kind} of {path} at {zxid} was announced twice");
    }

    /// True if only a recursive watch of a node above can have announced this path.
    pub(crate) fn reports_from_above(&self, path: &str) -> bool {
        let set = self.watches.iter().filter(|(_, state)| state.is_some());
        parent_of(path).is_some_and(|parent| set.map(|(above, _)| above).any(|above| is_below(parent, above)))
    }

    /// A change that was not announced although answers have shown what came after it, or although all is at rest.
    pub(crate) fn lost(&self, changes: &Changes, at_rest: bool) -> Option<String> {
        for (above, state) in &self.watches {
            let Some(WatchState { since, shown, .. }) = *state else { continue };
            let until = if at_rest { u64::MAX } else { shown };
            for (path, changes) in changes.0.iter().filter(|(path, _)| is_below(path, above)) {
                let due = changes.range(..=until).filter(|(_, (_, asked))| *asked > since);
                for (&zxid, &(kind, asked)) in due {
                    if !self.reported.contains(&(zxid, path.clone(), kind)) {
                        return Some(format!(
                            "change {kind} of {path} at {zxid}, asked for at {asked}, was not announced to who watches all below \
                             {above} since {since} and was shown {shown}"
                        ));
                    }
                }
            }
        }
        None
    }
}
