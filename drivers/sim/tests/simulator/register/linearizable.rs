//! Decides whether a history of one register, whose written values all differ, is linearizable (Gibbons and Korach,
//! "Testing Shared Memories", 1997, section 5.1: zones).

use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    pub value: u64,
    pub writes: bool,
    pub start: u64,
    /// `u64::MAX` for an operation whose outcome is unknown.
    pub end: u64,
}

/// The zone of all operations on one value: from the first end to the last start, or the other way round.
struct Zone {
    value: u64,
    low: u64,
    high: u64,
    forward: bool,
}

/// What is wrong with the history, if anything is. Value 0 is there before all operations.
pub fn flaw(entries: &[Entry]) -> Option<String> {
    let mut clusters: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
    for &entry in entries {
        if entry.writes || entry.end != u64::MAX {
            clusters.entry(entry.value).or_default().push(entry);
        }
    }
    let before_all = Entry { value: 0, writes: true, start: 0, end: 0 };
    clusters.entry(0).or_default().push(before_all);
    let mut zones = Vec::new();
    for (&value, cluster) in &clusters {
        let Some(write) = cluster.iter().find(|entry| entry.writes) else {
            return Some(format!("{value} was read and never written"));
        };
        if let Some(read) = cluster.iter().find(|entry| entry.end < write.start) {
            return Some(format!("{value} was read at {} and written later, at {}", read.end, write.start));
        }
        if cluster.len() == 1 && write.end == u64::MAX {
            continue;
        }
        let first_end = cluster.iter().map(|entry| entry.end).min().unwrap_or(u64::MAX);
        let last_start = cluster.iter().map(|entry| entry.start).max().unwrap_or(0);
        let (low, high) = (first_end.min(last_start), first_end.max(last_start));
        zones.push(Zone { value, low, high, forward: first_end < last_start });
    }
    zones.sort_by_key(|zone| zone.low);
    let mut latest_forward: Option<&Zone> = None;
    for zone in zones.iter().filter(|zone| zone.forward) {
        if let Some(earlier) = latest_forward.filter(|earlier| earlier.high > zone.low) {
            return Some(format!(
                "{} and {} were each both before and after the other",
                earlier.value, zone.value
            ));
        }
        latest_forward = Some(zone);
    }
    for inner in zones.iter().filter(|zone| !zone.forward) {
        let around = |outer: &&Zone| outer.forward && outer.low < inner.low && inner.high < outer.high;
        if let Some(outer) = zones.iter().find(around) {
            return Some(format!("{} was read again after {} had replaced it", outer.value, inner.value));
        }
    }
    None
}
