//! Snapshot ids: how far colours go, printable and comparable (the paper's section 3).

use super::{SeenTime, check_colour};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// How far colours go, and what has been seen by then.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SnapshotId {
    /// What was seen: who goes on from here is ordered behind.
    pub seen: SeenTime,
    /// The position after the last node of each colour.
    pub tails: BTreeMap<String, u64>,
}

impl SnapshotId {
    /// Of one colour.
    pub fn of(colour: &str, tail: u64, seen: SeenTime) -> Self {
        Self { seen, tails: [(colour.to_owned(), tail)].into_iter().collect() }
    }

    /// The position after the last node of a colour; 0 of one that it does not name.
    pub fn tail(&self, colour: &str) -> u64 {
        self.tails.get(colour).copied().unwrap_or(0)
    }

    /// True if all nodes of the other one are in this one.
    pub fn subsumes(&self, other: &Self) -> bool {
        other.tails.iter().all(|(colour, &tail)| self.tail(colour) >= tail)
    }

    /// The least one that subsumes both.
    #[must_use]
    pub fn join(mut self, other: &Self) -> Self {
        self.seen = self.seen.max(other.seen);
        for (colour, &tail) in &other.tails {
            let own = self.tails.entry(colour.clone()).or_default();
            *own = tail.max(*own);
        }
        self
    }
}

/// `SEEN/COLOUR=TAIL,COLOUR=TAIL`
impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tails: Vec<String> = self.tails.iter().map(|(colour, tail)| format!("{colour}={tail}")).collect();
        write!(f, "{}/{}", self.seen, tails.join(","))
    }
}

/// A text that is no snapshot id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no snapshot id: wanted is SEEN/COLOUR=TAIL,...")]
pub struct NoSnapshotId(pub String);

impl FromStr for SnapshotId {
    type Err = NoSnapshotId;

    fn from_str(text: &str) -> Result<Self, NoSnapshotId> {
        let read = || {
            let (seen, tails) = text.split_once('/')?;
            let mut id = Self { seen: seen.parse().ok()?, tails: BTreeMap::new() };
            for tail in tails.split(',').filter(|_| !tails.is_empty()) {
                let (colour, tail) = tail.rsplit_once('=')?;
                check_colour(colour.as_bytes()).ok()?;
                let is_new = id.tails.insert(colour.to_owned(), tail.parse().ok()?).is_none();
                is_new.then_some(())?;
            }
            Some(id)
        };
        read().ok_or_else(|| NoSnapshotId(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SnapshotId {
        text.parse().expect("a snapshot id")
    }

    // A snapshot id that is read as another one skips nodes that nobody has played.
    #[test]
    fn snapshot_ids_are_read_as_they_are_written() {
        for text in ["1-2-3/", "1-2-3/a=0", "1-2-3/a=b=7,blue/x=9"] {
            assert_eq!(id(text).to_string(), text);
        }
        for bad in ["", "a=1", "1-2-3", "1-2-3/a", "1-2-3/=1", "1-2-3/a=-1", "1-2-3/a=1,a=2", "1-2-3/a=1,"] {
            assert!(bad.parse::<SnapshotId>().is_err(), "{bad}");
        }
    }

    // One that is said to subsume another and does not lets nodes be trimmed that somebody still needs.
    #[test]
    fn snapshots_are_compared_colour_by_colour() {
        let (one, other) = (id("1-0-0/a=5,b=2"), id("2-0-0/a=4,c=1"));
        assert!(!one.subsumes(&other) && !other.subsumes(&one));
        let joined = one.clone().join(&other);
        assert_eq!(joined, id("2-0-0/a=5,b=2,c=1"));
        assert!(joined.subsumes(&one) && joined.subsumes(&other) && one.subsumes(&id("9-0-0/b=2")));
    }
}
