//! Snapshot ids: how far colours go, printable and comparable (the paper's section 3).

use super::{SeenTime, check_colour};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The longest text of a snapshot's id, in bytes.
pub const SNAPSHOT_BYTES_MAX: usize = 128 << 10;

/// How far colours go, and what has been seen by then.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SnapshotId {
    /// What was seen: who goes on from here is ordered behind.
    pub seen: SeenTime,
    /// The position after the last node of each colour.
    pub tails: BTreeMap<String, u64>,
    /// What of it another region can have, if it was named for that.
    pub across: Option<SnapshotAcross>,
}

/// What regions can compare of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotAcross {
    /// Which cluster: a digest of its name and its regions.
    pub cluster: u64,
    /// The region that what was seen and the positions are of.
    pub region: String,
    /// How many nodes of each region's log it has, by colours.
    pub logs: BTreeMap<String, BTreeMap<String, u64>>,
}

impl SnapshotId {
    /// Of one colour.
    pub fn of(colour: &str, tail: u64, seen: SeenTime) -> Self {
        Self { seen, tails: [(colour.to_owned(), tail)].into_iter().collect(), across: None }
    }

    /// The position after the last node of a colour; 0 of one that it does not name.
    pub fn tail(&self, colour: &str) -> u64 {
        self.tails.get(colour).copied().unwrap_or(0)
    }

    /// True if all nodes of the other one are in this one. Of two that are named for other regions, nodes of each region's log count; else
    /// positions, which are of one region alone.
    pub fn subsumes(&self, other: &Self) -> bool {
        if let (Some(own), Some(other)) = (&self.across, &other.across) {
            let has = |colour: &String, (region, count): (&String, &u64)| {
                own.logs.get(colour).and_then(|logs| logs.get(region)).is_some_and(|own| own >= count)
            };
            let mut colours = other.logs.iter();
            return own.cluster == other.cluster
                && colours.all(|(colour, logs)| logs.iter().all(|log| *log.1 == 0 || has(colour, log)));
        }
        other.tails.iter().all(|(colour, &tail)| self.tail(colour) >= tail)
    }

    /// The least one that subsumes both. Of two regions, positions and what was seen stay those of this one's region.
    #[must_use]
    pub fn join(mut self, other: &Self) -> Self {
        let is_elsewhere = match (&mut self.across, &other.across) {
            (Some(own), Some(other)) => {
                for (colour, logs) in &other.logs {
                    let known = own.logs.entry(colour.clone()).or_default();
                    for (region, &count) in logs {
                        let own = known.entry(region.clone()).or_default();
                        *own = count.max(*own);
                    }
                }
                own.region != other.region
            }
            // What has no counts for other regions makes of both one that has none.
            (own, _) => {
                *own = None;
                false
            }
        };
        if !is_elsewhere {
            self.seen = self.seen.max(other.seen);
        }
        for (colour, &tail) in &other.tails {
            let own = self.tails.entry(colour.clone()).or_default();
            *own = if is_elsewhere { *own } else { tail.max(*own) };
        }
        self
    }

    /// The text but for its check.
    fn body(&self) -> String {
        let Some(SnapshotAcross { cluster, region, logs }) = &self.across else {
            let tails: Vec<String> =
                self.tails.iter().map(|(colour, tail)| format!("{colour}={tail}")).collect();
            return format!("{}/{}", self.seen, tails.join(","));
        };
        let tails = self.tails.iter().map(|(colour, tail)| {
            let counts = logs.get(colour).into_iter().flatten();
            let counts: String = counts.map(|(region, count)| format!(":{region}:{count}")).collect();
            format!("{colour}={tail}{counts}")
        });
        let tails: Vec<String> = tails.collect();
        format!("{}@{cluster:x}:{region}/{}", self.seen, tails.join(","))
    }
}

/// `SEEN/COLOUR=TAIL,COLOUR=TAIL`. Named for other regions: `SEEN@CLUSTER:REGION/COLOUR=TAIL:REGION:COUNT:REGION:COUNT,...~CHECK`, so that a
/// text that was cut or changed is seen.
impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body();
        match &self.across {
            None => f.write_str(&body),
            Some(_) => write!(f, "{body}~{:016x}", check_of(&body)),
        }
    }
}

fn check_of(body: &str) -> u64 {
    parts::digest(body.as_bytes())
}

/// A text that is no snapshot id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no snapshot id: wanted is SEEN/COLOUR=TAIL,...")]
pub struct NoSnapshotId(pub String);

impl FromStr for SnapshotId {
    type Err = NoSnapshotId;

    fn from_str(text: &str) -> Result<Self, NoSnapshotId> {
        // What is shown of a bad one has a bound.
        let shown = || NoSnapshotId(text.chars().take(SHOWN_MAX).collect());
        if text.len() > SNAPSHOT_BYTES_MAX {
            return Err(shown());
        }
        read(text).filter(|id| id.to_string() == text || id.across.is_none()).ok_or_else(shown)
    }
}

/// Characters of a bad text that are shown.
const SHOWN_MAX: usize = 200;

fn read(text: &str) -> Option<SnapshotId> {
    let (head, tails) = text.split_once('/')?;
    let (seen, across) = match head.split_once('@') {
        None => (head, None),
        Some((seen, across)) => {
            let (cluster, region) = across.split_once(':')?;
            let cluster = u64::from_str_radix(cluster, 16).ok()?;
            let region = region.to_owned();
            (seen, Some(SnapshotAcross { cluster, region, logs: BTreeMap::new() }))
        }
    };
    let tails = if across.is_some() { tails.rsplit_once('~')?.0 } else { tails };
    let mut id = SnapshotId { seen: seen.parse().ok()?, tails: BTreeMap::new(), across };
    for tail in tails.split(',').filter(|_| !tails.is_empty()) {
        let (colour, tail) = tail.rsplit_once('=')?;
        check_colour(colour.as_bytes()).ok()?;
        let mut parts = tail.split(':');
        let is_new = id.tails.insert(colour.to_owned(), parts.next()?.parse().ok()?).is_none();
        is_new.then_some(())?;
        let Some(across) = &mut id.across else {
            parts.next().is_none().then_some(())?;
            continue;
        };
        let logs = across.logs.entry(colour.to_owned()).or_default();
        while let Some(region) = parts.next() {
            let count = parts.next()?.parse().ok()?;
            logs.insert(region.to_owned(), count).is_none().then_some(())?;
        }
    }
    Some(id)
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

    fn across(text: &str) -> SnapshotId {
        let body = text.to_owned();
        id(&format!("{body}~{:016x}", check_of(&body)))
    }

    // One that is cut, or of which a count was changed, lets a region say that it has what it has not.
    #[test]
    fn ids_for_other_regions_are_whole_or_refused() {
        let whole = across("1-2-3@5f:ohio/a=b=7:ohio:5:tokyo:2,blue=0");
        let text = whole.to_string();
        let logs = &whole.across.as_ref().expect("it has counts").logs;
        assert_eq!((whole.tail("a=b"), logs["a=b"]["ohio"], logs["a=b"]["tokyo"]), (7, 5, 2));
        for end in 0..text.len() {
            let cut = text.get(..end).map(str::parse::<SnapshotId>);
            assert!(cut.is_none_or(|it| it.is_err()), "{:?}", &text[..end]);
        }
        for (from, to) in
            [("ohio:5", "ohio:6"), ("5f:", "5e:"), ("=7", "=8"), ("1-2-3", "1-2-4"), ("blue", "red")]
        {
            let changed = text.replacen(from, to, 1);
            assert!(changed != text && changed.parse::<SnapshotId>().is_err(), "{changed}");
        }
        for bad in ["1-0-0@5f:ohio/a=1:ohio", "1-0-0@5f/a=1", "1-0-0@x:ohio/a=1", "1-0-0/a=1:ohio:1"] {
            assert!(format!("{bad}~{:016x}", check_of(bad)).parse::<SnapshotId>().is_err(), "{bad}");
        }
        assert!("x".repeat(SNAPSHOT_BYTES_MAX + 1).parse::<SnapshotId>().is_err());
    }

    // Positions of two regions that are compared say nothing.
    #[test]
    fn regions_compare_nodes_of_logs() {
        let ohio = across("9-1-0@5f:ohio/a=7:ohio:5:tokyo:2");
        let tokyo = across("4-2-0@5f:tokyo/a=9:ohio:4:tokyo:5");
        assert!(!ohio.subsumes(&tokyo) && !tokyo.subsumes(&ohio));
        let joined = ohio.clone().join(&tokyo);
        assert_eq!(joined, across("9-1-0@5f:ohio/a=7:ohio:5:tokyo:5"));
        assert!(joined.subsumes(&ohio) && joined.subsumes(&tokyo));
        assert!(!across("9-1-0@5e:ohio/a=9:ohio:9:tokyo:9").subsumes(&ohio), "of another cluster");
        assert!(tokyo.subsumes(&across("1-1-0@5f:ohio/b=0")), "it has nothing");
        let plain = id("3-0-0/a=8");
        assert_eq!(ohio.join(&plain).across, None);
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
