//! A session never looks back: what it reads is no older than what its earlier answers have shown.

use super::words::{Ask, Body, Step};
use kernel::invariant;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// States of nodes that were read, by their zxids, and the highest zxid that an answer had shown before.
#[derive(Default)]
pub(crate) struct Views {
    read: BTreeMap<(String, u64), u64>,
}

impl Views {
    pub(crate) fn on_answer(&mut self, ask: &Ask, body: &Body, seen: u64) {
        match (ask, body) {
            (Ask::Exists { path, .. }, Body::Stat(stat)) | (Ask::Get { path, .. }, Body::Data(_, stat)) => {
                self.add(path, stat.mzxid as u64, seen);
            }
            (Ask::GetAll { paths }, Body::Steps(steps)) => {
                for (path, step) in paths.iter().zip(steps) {
                    if let Ok(Step::Data(_, stat)) = step {
                        self.add(path, stat.mzxid as u64, seen);
                    }
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, path: &str, mzxid: u64, seen: u64) {
        if seen > mzxid {
            let known = self.read.entry((path.to_owned(), mzxid)).or_insert(seen);
            *known = seen.max(*known);
        }
    }

    /// `state` is the zxid of a known state of a node, within a range.
    pub(crate) fn check(&self, state: impl Fn(&str, RangeInclusive<u64>) -> Option<u64>) {
        for ((path, mzxid), &seen) in &self.read {
            let later = state(path, mzxid + 1..=seen);
            invariant!(
                ORDER,
                later.is_none(),
                "{path} was read as of {mzxid} in a session that had seen {seen}, and it changed at {later:?}"
            );
        }
    }
}
