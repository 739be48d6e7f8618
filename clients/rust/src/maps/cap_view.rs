//! The view of a CAPMap: what the primary region's log orders, and the fork of those that were without it.
//!
//! A node of the primary region comes behind all that its writer had played: its edges say which nodes of other regions those are. So each
//! node of another region has one place in the order of all: right before the first node of the primary region's log that comes behind it.
//! Until that is played, it is of the fork.
//!
//! Invariant: what is in order is a function of the nodes of the primary region's log that were played, and so the same in all regions.

use super::regions::{LogCounts, Origin, RegionView};
use super::scan::{KeysFrom, KeysInOrder};
use super::shard::MapView;
use super::{detached, entry_bytes};
use crate::fuzzylog::FuzzyNode;
use kernel::{Bytes, Decode as _, DecodeError, Encode as _};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use wire::fuzzylog::LogCount;

kernel::messages! {
    /// What a node of the colour does.
    pub enum CapNode {
        /// A key holds this value, or nothing.
        1 => CapPut {
            /// The key.
            key: Bytes,
            /// Its value.
            value: Option<Bytes>,
        },
        /// A node of the primary region: what its process has played is in order with it.
        2 => CapJoin {
            /// By whom.
            process: u64,
            /// Counts its own.
            count: u64,
        },
    }
}

kernel::record! {
    /// A change that is not in order yet.
    #[derive(Eq)]
    pub struct ForkedChange {
        /// The region that it is of, and which node of its log.
        region: Bytes,
        /// Which node of its region's log.
        number: u64,
        /// What of other regions comes before it.
        edges: Vec<LogCount>,
        /// Its position here.
        position: u64,
        /// What it does.
        put: Option<(Bytes, Option<Bytes>)>,
    }
}

kernel::record! {
    /// The view, as it is stored.
    pub struct StoredForks {
        /// What is in order.
        values: Vec<(Bytes, Bytes)>,
        /// How many nodes of each region's log are in order.
        ordered: Vec<LogCount>,
        /// How many were played.
        logs: Vec<LogCount>,
        /// The fork.
        fork: Vec<ForkedChange>,
    }
}

/// What a change in the fork takes in memory beside its key and value: itself, and what its key holds with it.
const FORKED_BYTES: usize = 256;

/// The view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapView {
    primary: Bytes,
    /// What is in order.
    values: BTreeMap<Bytes, Bytes>,
    /// How many nodes of each other region's log are in order.
    ordered: LogCounts,
    logs: LogCounts,
    /// The others that were played, in the order in which they were.
    fork: Vec<ForkedChange>,
    /// What keys hold with them.
    forked: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
    /// This process, and the last of its own joins that was played.
    process: u64,
    joined: u64,
}

impl CapView {
    pub(super) fn new(primary: Bytes, process: u64) -> Self {
        let (values, forked, fork) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (ordered, logs) = (LogCounts::default(), LogCounts::default());
        Self { primary, values, ordered, logs, fork, forked, bytes: 0, process, joined: 0 }
    }

    /// What a key holds by what is in order.
    pub(super) fn ordered(&self, key: &str) -> Option<Bytes> {
        self.values.get(key.as_bytes()).cloned()
    }

    /// What a key holds with the fork.
    pub(super) fn forked(&self, key: &str) -> Option<Bytes> {
        self.forked.get(key.as_bytes()).cloned().unwrap_or_else(|| self.ordered(key))
    }

    /// How many nodes the fork has.
    pub(super) fn fork_len(&self) -> usize {
        self.fork.len()
    }

    /// True if all that was played below a position is in order.
    pub(super) fn is_ordered_below(&self, position: u64) -> bool {
        self.fork.first().is_none_or(|first| first.position >= position)
    }

    /// The last of this process's joins that was played.
    pub(super) fn joined(&self) -> u64 {
        self.joined
    }

    fn set(&mut self, key: &Bytes, value: Option<&Bytes>) {
        let before = match value {
            Some(value) => self.values.insert(detached(key), detached(value)),
            None => self.values.remove(key),
        };
        let bytes = |value: Option<&Bytes>| value.map_or(0, |value| entry_bytes(key, value));
        self.bytes = self.bytes + bytes(value) - bytes(before.as_ref());
    }

    fn forked_bytes(change: &ForkedChange) -> usize {
        let put = change.put.as_ref();
        let bytes =
            put.map_or(0, |(key, value)| entry_bytes(key, value.as_ref().map_or(&[], |value| &value[..])));
        FORKED_BYTES + 2 * bytes
    }

    /// A node of the primary region's log: what comes before it is in order now.
    fn order_before(&mut self, origin: &Origin) {
        origin.edges.iter().for_each(|edge| self.ordered.raise(&edge.region, edge.count));
        let is_ordered = |it: &ForkedChange| it.number < self.ordered.of(&it.region);
        if !self.fork.iter().any(is_ordered) {
            return;
        }
        let (now, later) = std::mem::take(&mut self.fork).into_iter().partition(is_ordered);
        for change in in_one_order(now) {
            self.bytes -= Self::forked_bytes(&change);
            if let Some((key, value)) = &change.put {
                self.set(key, value.as_ref());
            }
        }
        self.fork = later;
        self.forked = self.fork.iter().filter_map(|it| it.put.clone()).collect();
    }

    fn fork(&mut self, origin: Origin, position: u64, put: Option<(Bytes, Option<Bytes>)>) {
        let Origin { region, number, edges } = origin;
        if let Some((key, value)) = &put {
            self.forked.insert(key.clone(), value.clone());
        }
        let change = ForkedChange { region, number, edges, position, put };
        self.bytes += Self::forked_bytes(&change);
        self.fork.push(change);
    }
}

/// The keys by what is in order.
pub(super) struct Ordered<'a>(pub(super) &'a CapView);

impl KeysInOrder for Ordered<'_> {
    type Held = Bytes;

    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, Bytes> {
        let keys = self.0.values.range::<[u8], _>((from, Bound::Unbounded));
        Box::new(keys.map(|(key, value)| (key, value.clone())))
    }

    fn len_of(value: &Bytes) -> usize {
        value.len()
    }
}

/// The keys with the fork.
pub(super) struct WithFork<'a>(pub(super) &'a CapView);

impl KeysInOrder for WithFork<'_> {
    type Held = Bytes;

    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, Bytes> {
        let CapView { values, forked, .. } = self.0;
        let mut ordered = values.range::<[u8], _>((from, Bound::Unbounded)).peekable();
        let mut fork = forked.range::<[u8], _>((from, Bound::Unbounded)).peekable();
        Box::new(std::iter::from_fn(move || {
            loop {
                let in_order = ordered.peek().map(|(key, _)| *key);
                let Some((key, value)) = fork.next_if(|(key, _)| in_order.is_none_or(|it| *key <= it)) else {
                    return ordered.next().map(|(key, value)| (key, value.clone()));
                };
                ordered.next_if(|(it, _)| *it == key);
                if let Some(value) = value {
                    return Some((key, value.clone()));
                }
            }
        }))
    }

    fn len_of(value: &Bytes) -> usize {
        value.len()
    }
}

/// Changes of several regions in one order, the same everywhere: each region's log in its own, behind what its edges name, and of those that
/// may be next the one whose region is first by name.
fn in_one_order(changes: Vec<ForkedChange>) -> Vec<ForkedChange> {
    let mut logs: BTreeMap<Bytes, VecDeque<ForkedChange>> = BTreeMap::new();
    let mut all = Vec::with_capacity(changes.len());
    for change in changes {
        logs.entry(change.region.clone()).or_default().push_back(change);
    }
    loop {
        let first = |region: &Bytes| logs.get(region).and_then(|log| Some(log.front()?.number));
        let is_behind = |edge: &LogCount| first(&edge.region).is_none_or(|first| first >= edge.count);
        let is_next =
            |log: &VecDeque<ForkedChange>| log.front().is_some_and(|it| it.edges.iter().all(is_behind));
        let next = logs.iter().find(|(_, log)| is_next(log)).or_else(|| logs.iter().next());
        let Some(region) = next.map(|(region, _)| region.clone()) else { return all };
        if let Some(log) = logs.get_mut(&region) {
            all.extend(log.pop_front());
            if log.is_empty() {
                logs.remove(&region);
            }
        }
    }
}

impl RegionView for CapView {
    fn logs(&self) -> &LogCounts {
        &self.logs
    }
}

impl MapView for CapView {
    fn play(&mut self, node: &FuzzyNode) {
        let origin = Origin::of(node, &self.primary);
        if !self.logs.take(&origin) {
            return;
        }
        let put = match CapNode::decoded(&node.body) {
            Ok(CapNode::CapPut(put)) => Some((detached(&put.key), put.value.as_ref().map(detached))),
            Ok(CapNode::CapJoin(join)) => {
                if join.process == self.process {
                    self.joined = join.count.max(self.joined);
                }
                None
            }
            Err(_) => None,
        };
        if origin.region != self.primary {
            return self.fork(origin, node.position, put);
        }
        self.order_before(&origin);
        if let Some((key, value)) = put {
            self.set(&key, value.as_ref());
        }
    }

    fn stored(&self) -> Vec<u8> {
        let values = self.values.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let (ordered, logs) = (self.ordered.stored(), self.logs.stored());
        StoredForks { values, ordered, logs, fork: self.fork.clone() }.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredForks { values, ordered, logs, fork } = StoredForks::decoded(stored)?;
        self.values = values.iter().map(|(key, value)| (detached(key), detached(value))).collect();
        (self.ordered, self.logs) = (LogCounts::loaded(&ordered), LogCounts::loaded(&logs));
        self.forked = BTreeMap::new();
        self.fork = Vec::new();
        self.bytes = self.values.iter().map(|(key, value)| entry_bytes(key, value)).sum();
        for change in fork {
            let ForkedChange { region, number, edges, position, put } = change;
            let put = put.map(|(key, value)| (detached(&key), value.as_ref().map(detached)));
            self.fork(Origin { region: detached(&region), number, edges }, position, put);
        }
        Ok(())
    }

    fn entries(&self) -> usize {
        self.values.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::regions::orders::{all, node};
    use super::*;

    fn put(key: &'static str, value: Option<&'static str>) -> Vec<u8> {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        CapNode::from(CapPut { key: bytes(key), value: value.map(bytes) }).encoded()
    }

    fn join(count: u64) -> Vec<u8> {
        CapNode::from(CapJoin { process: 1, count }).encoded()
    }

    /// Ohio orders; tokyo and paris were alone, and paris had seen some of tokyo's.
    fn nodes() -> Vec<FuzzyNode> {
        vec![
            node("ohio", 0, &[], put("a", Some("o0"))),
            node("ohio", 1, &[], put("a", Some("o1"))),
            node("ohio", 2, &[("tokyo", 1)], join(1)),
            node("ohio", 3, &[("tokyo", 2), ("paris", 2)], join(2)),
            node("tokyo", 0, &[("ohio", 1)], put("a", Some("t0"))),
            node("tokyo", 1, &[], put("b", Some("t1"))),
            node("tokyo", 2, &[("ohio", 4)], put("c", Some("t2"))),
            node("paris", 0, &[], put("b", Some("p0"))),
            node("paris", 1, &[("tokyo", 2)], put("b", None)),
        ]
    }

    // Regions that order what they did alone each in its own way differ for good; or in what they show before the next join.
    #[test]
    fn what_is_in_order_depends_on_the_primary_regions_log_alone() {
        let orders = all(&nodes());
        assert!(orders.len() > 40, "{} orders", orders.len());
        let mut by_count: BTreeMap<u64, BTreeMap<Bytes, Bytes>> = BTreeMap::new();
        for order in orders {
            let mut view = CapView::new(Bytes::from_static(b"ohio"), 1);
            for node in &order {
                view.play(node);
                let again = view.clone();
                order.iter().take(node.position as usize + 1).for_each(|node| view.play(node));
                assert_eq!(view, again, "a node that comes again changes nothing");
                let count = view.logs.of(&Bytes::from_static(b"ohio"));
                assert_eq!(*by_count.entry(count).or_insert_with(|| view.values.clone()), view.values);
            }
            let text = |value: Option<Bytes>| value.map(|it| String::from_utf8_lossy(&it).into_owned());
            let [a, b, c] = ["a", "b", "c"].map(|key| text(view.ordered(key)));
            assert_eq!((a.as_deref(), b, c), (Some("t0"), None, None), "behind o1, which it had not seen");
            assert_eq!(
                (view.fork_len(), view.joined(), text(view.forked("c")).as_deref()),
                (1, 2, Some("t2"))
            );
            assert!(view.is_ordered_below(8) && !view.is_ordered_below(9), "only tokyo's last one is not");
            let mut loaded = CapView::new(Bytes::from_static(b"ohio"), 1);
            loaded.load(&view.stored().into()).expect("it was stored");
            assert_eq!((loaded.stored(), loaded.bytes()), (view.stored(), view.bytes()));
            assert_eq!(loaded.forked("c"), view.forked("c"));
        }
    }

    // A process that is alone and does not show what it has done, or shows it where it is not in order.
    #[test]
    fn the_fork_is_shown_on_top_until_it_is_in_order() {
        let nodes = nodes();
        let mut view = CapView::new(Bytes::from_static(b"ohio"), 1);
        for at in [0, 4] {
            view.play(&nodes[at]);
        }
        assert_eq!((view.ordered("a"), view.forked("a")), (Some("o0".into()), Some("t0".into())));
        view.play(&nodes[1]);
        assert_eq!((view.ordered("a"), view.forked("a")), (Some("o1".into()), Some("t0".into())));
        for (key, value) in [("0", Some("first")), ("b", Some("forked")), ("c", None), ("d", None)] {
            view.forked.insert(key.into(), value.map(Bytes::from));
        }
        for (key, value) in [("aa", "x"), ("c", "taken away"), ("e", "y")] {
            view.values.insert(key.into(), value.into());
        }
        let text = |(key, value): (&Bytes, Bytes)| format!("{:?}={value:?}", key).replace(['b', '"'], "");
        let shown: Vec<String> = WithFork(&view).keys_from(Bound::Unbounded).map(text).collect();
        assert_eq!(shown, ["0=first", "a=t0", "aa=x", "=forked", "e=y"]);
        let shown: Vec<String> = Ordered(&view).keys_from(Bound::Excluded(b"aa")).map(text).collect();
        assert_eq!(shown, ["c=taken away", "e=y"]);
        (view.values, view.forked) =
            (BTreeMap::from([("a".into(), "o1".into())]), BTreeMap::from([("a".into(), Some("t0".into()))]));
        view.play(&nodes[2]);
        assert_eq!((view.ordered("a"), view.fork_len()), (Some("t0".into()), 0));
    }
}
