//! A shard of a TXMap as its nodes make it: intentions, decisions, and what came of them. A function of the nodes alone.
//!
//! ```text
//! colour A   intention T (reads, writes of A) ......... decision A yes .. decision B yes   -> T is applied
//! colour B   ........... intention T (... of B) .. decision A yes .. decision B yes        -> T is applied
//! ```
//! Each process that plays a colour validates its part of an intention against the nodes before it, and says so by a decision in all colours of
//! the intention. That is a function of the colour's nodes, so decisions of one colour are equal, however many there are. What follows
//! an intention waits for its outcome.

use super::scan::{KeysFrom, KeysInOrder, MapKeys, MapScan};
use super::shard::MapView;
use super::{detached, entry_bytes};
use crate::fuzzylog::FuzzyNode;
use kernel::{Bytes, Decode as _, DecodeError, Encode as _, planted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

kernel::record! {
    /// Names a transaction.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct MapTxn {
        /// Drawn at random by each process.
        process: u64,
        /// Counts its transactions.
        number: u64,
    }
}

kernel::messages! {
    /// What a node of a colour says.
    pub enum TxNode {
        /// A transaction, as far as it concerns the colour.
        1 => Intention {
            /// Which.
            txn: MapTxn,
            /// All its colours.
            colours: Vec<String>,
            /// The keys that it has read here, and the position that each was last written at; none: never.
            reads: Vec<Bytes>,
            /// Those positions, plus one; 0 for none.
            versions: Vec<u64>,
            /// The keys that it writes here.
            keys: Vec<Bytes>,
            /// Their values; none deletes.
            values: Vec<Option<Bytes>>,
        },
        /// What a colour has found about its part of an intention.
        2 => Decision {
            /// Which.
            txn: MapTxn,
            /// Whose part.
            colour: String,
            /// Nothing that it has read was written since.
            is_valid: bool,
        },
    }
}

kernel::record! {
    /// The view, as it is stored: what is in doubt with the rest.
    pub struct StoredTxs {
        /// Keys, their versions and values.
        keys: Vec<(Bytes, (u64, Option<Bytes>))>,
        /// Intentions that are not applied, with their positions.
        waiting: Vec<(u64, Intention)>,
        /// What colours have found about them.
        decisions: Vec<(MapTxn, Vec<(String, bool)>)>,
        /// Decisions of this colour that its nodes do not have: whether each is valid, and for which colours.
        owed: Vec<(MapTxn, (bool, Vec<String>))>,
        /// How the last transactions ended.
        outcomes: Vec<(MapTxn, bool)>,
    }
}

/// How many transactions that are over a view remembers, for those who load it and wait for one.
const OUTCOMES_MAX: usize = 1_024;

/// A key's value, and where it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    /// The position plus one.
    pub(super) version: u64,
    pub(super) value: Option<Bytes>,
}

/// A decision that its colour's nodes do not have yet.
#[derive(Clone, Debug)]
struct Owed {
    is_valid: bool,
    colours: Vec<String>,
    /// Somebody here appends it.
    is_taken: bool,
}

/// The view.
#[derive(Clone, Default, Debug)]
pub struct TxView {
    colour: String,
    keys: BTreeMap<Bytes, Written>,
    /// Intentions that are not applied, in order, with their positions; the first one is validated.
    waiting: VecDeque<(u64, Intention)>,
    /// What keys with their values, and those intentions take in memory.
    bytes: usize,
    /// Decisions of those, and of those whose intention is still to come.
    decisions: BTreeMap<MapTxn, BTreeMap<String, bool>>,
    /// Decisions of this colour that its nodes do not have yet: whether each is valid, for which colours, and whether somebody here appends
    /// it.
    owed: BTreeMap<MapTxn, Owed>,
    /// How the last transactions ended, in order.
    outcomes: VecDeque<(MapTxn, bool)>,
    /// Transactions that somebody here waits for, and their outcomes.
    wanted: BTreeMap<MapTxn, Option<bool>>,
}

impl TxView {
    /// A view of this colour.
    pub fn of(colour: &str) -> Self {
        Self { colour: colour.to_owned(), ..Self::default() }
    }

    /// What a key holds, and which version that is.
    pub(super) fn get(&self, key: &str) -> Written {
        self.keys.get(key.as_bytes()).cloned().unwrap_or(Written { version: 0, value: None })
    }

    /// Somebody waits for a transaction's outcome.
    pub(super) fn want(&mut self, txn: MapTxn) {
        self.wanted.insert(txn, None);
    }

    /// The outcome of a transaction that was asked for; or of one of the last, which was sent again.
    pub(super) fn outcome(&mut self, txn: MapTxn) -> Option<bool> {
        if let Some(Some(outcome)) = self.wanted.get(&txn).copied() {
            self.wanted.remove(&txn);
            return Some(outcome);
        }
        self.outcomes.iter().rev().find(|(it, _)| *it == txn).map(|(_, outcome)| *outcome)
    }

    /// True if a transaction's intention was played, and it is not over.
    pub(super) fn is_open(&self, txn: MapTxn) -> bool {
        self.waiting.iter().any(|(_, it)| it.txn == txn)
    }

    /// Nobody waits for a transaction's outcome any more.
    pub(super) fn forget(&mut self, txn: MapTxn) {
        self.wanted.remove(&txn);
    }

    /// True if an intention below a position is undecided that writes the key.
    pub(super) fn is_in_doubt(&self, key: &str, below: u64) -> bool {
        let writes = |it: &Intention| it.keys.iter().any(|written| written == key.as_bytes());
        self.waiting.iter().take_while(|(position, _)| *position < below).any(|(_, it)| writes(it))
    }

    /// True if an undecided intention writes a key that is on a page of a scan from there on, or may be.
    pub(super) fn makes_doubtful<T>(&self, scan: &MapScan, after: Option<&Bytes>, page: &MapKeys<T>) -> bool {
        let last = page.next.as_ref().and_then(|next| next.after.as_ref());
        let is_doubtful = |key: &Bytes| {
            let is_behind = after.is_none_or(|after| key > after);
            is_behind && last.is_none_or(|last| key <= last) && scan.wants(key)
        };
        self.waiting.iter().any(|(_, it)| it.keys.iter().any(is_doubtful))
    }

    /// The colours whose decisions are waited for.
    pub(super) fn awaited(&self) -> Vec<String> {
        self.waiting.front().map(|(_, intention)| intention.colours.clone()).unwrap_or_default()
    }

    /// Decisions that are to be appended to these colours, by who takes them here.
    pub(super) fn take_due(&mut self) -> Vec<(Vec<String>, Decision)> {
        let mut due = Vec::new();
        for (&txn, owed) in self.owed.iter_mut().filter(|(_, owed)| !owed.is_taken) {
            owed.is_taken = true;
            let (colour, is_valid) = (self.colour.clone(), owed.is_valid);
            due.push((owed.colours.clone(), Decision { txn, colour, is_valid }));
        }
        due
    }

    /// All decisions that no node has are due: who was to append one may be gone.
    pub(super) fn remind(&mut self) {
        self.owed.values_mut().for_each(|owed| owed.is_taken = false);
    }

    fn is_valid(&self, intention: &Intention) -> bool {
        let version = |key: &Bytes| self.keys.get(key).map_or(0, |written| written.version);
        intention.reads.iter().zip(&intention.versions).all(|(key, read)| version(key) == *read)
    }

    /// Applies a transaction whose intention is at a position.
    fn write(&mut self, intention: Intention, position: u64) {
        for (key, value) in intention.keys.into_iter().zip(intention.values) {
            let size = |it: &Written| it.value.as_ref().map_or(0, |value| entry_bytes(&key, value));
            let written = Written { version: position + 1, value };
            let bytes = size(&written);
            let before = match written.value {
                Some(_) => self.keys.insert(key.clone(), written),
                None => self.keys.remove(&key),
            };
            self.bytes = self.bytes + bytes - before.as_ref().map_or(0, size);
        }
    }

    /// Decides and applies as far as that goes.
    fn go_on(&mut self) {
        while let Some((position, intention)) = self.waiting.front() {
            let (txn, position) = (intention.txn, *position);
            let own = self.colour.clone();
            let is_new = !self.decisions.get(&txn).is_some_and(|of| of.contains_key(&own));
            let is_valid = self.is_valid(intention);
            let colours: BTreeSet<String> = intention.colours.iter().cloned().collect();
            if is_new {
                // The intention is the first that is undecided: what is before it is applied, so this is final.
                self.decisions.entry(txn).or_default().insert(own.clone(), is_valid);
                if colours.len() > 1 {
                    let colours = intention.colours.clone();
                    self.owed.insert(txn, Owed { is_valid, colours, is_taken: false });
                }
            }
            let decided = self.decisions.entry(txn).or_default();
            let colours = if planted!(one_colour_decides) { BTreeSet::from([own]) } else { colours };
            if !colours.iter().all(|colour| decided.contains_key(colour)) {
                return;
            }
            let commits = colours.iter().all(|colour| decided.get(colour) == Some(&true));
            self.decisions.remove(&txn);
            let Some((_, intention)) = self.waiting.pop_front() else { return };
            self.bytes -= intention.bytes();
            if commits {
                self.write(intention, position);
            }
            if let Some(wanted) = self.wanted.get_mut(&txn) {
                *wanted = Some(commits);
            }
            if self.outcomes.len() == OUTCOMES_MAX {
                self.outcomes.pop_front();
            }
            self.outcomes.push_back((txn, commits));
        }
    }
}

impl KeysInOrder for TxView {
    /// The version, and the value.
    type Held = (u64, Bytes);

    fn keys_from(&self, from: Bound<&[u8]>) -> KeysFrom<'_, (u64, Bytes)> {
        let keys = self.keys.range::<[u8], _>((from, Bound::Unbounded));
        Box::new(keys.filter_map(|(key, it)| Some((key, (it.version, it.value.clone()?)))))
    }

    fn len_of((_, value): &(u64, Bytes)) -> usize {
        value.len()
    }
}

impl MapView for TxView {
    fn play(&mut self, node: &FuzzyNode) {
        match TxNode::decoded(&node.body) {
            Ok(TxNode::Intention(intention)) if intention.colours.contains(&self.colour) => {
                self.bytes += intention.bytes();
                self.waiting.push_back((node.position, intention.detached()));
            }
            Ok(TxNode::Decision(decision)) => {
                if decision.colour == self.colour {
                    // This process or another one has said so.
                    self.owed.remove(&decision.txn);
                }
                // One of a transaction that is over is a repetition.
                if self.is_open(decision.txn) {
                    let of = self.decisions.entry(decision.txn).or_default();
                    of.entry(decision.colour).or_insert(decision.is_valid);
                }
            }
            Ok(TxNode::Intention(_)) | Err(_) => return,
        }
        self.go_on();
    }

    fn stored(&self) -> Vec<u8> {
        let key = |(key, it): (&Bytes, &Written)| (key.clone(), (it.version, it.value.clone()));
        let decided =
            |(txn, of): (&MapTxn, &BTreeMap<String, bool>)| (*txn, of.clone().into_iter().collect());
        let owed = |(txn, it): (&MapTxn, &Owed)| (*txn, (it.is_valid, it.colours.clone()));
        let stored = StoredTxs {
            keys: self.keys.iter().map(key).collect(),
            waiting: self.waiting.iter().cloned().collect(),
            decisions: self.decisions.iter().map(decided).collect(),
            owed: self.owed.iter().map(owed).collect(),
            outcomes: self.outcomes.iter().copied().collect(),
        };
        stored.encoded()
    }

    fn load(&mut self, stored: &Bytes) -> Result<(), DecodeError> {
        let StoredTxs { keys, waiting, decisions, owed, outcomes } = StoredTxs::decoded(stored)?;
        let written = |(key, (version, value)): (Bytes, (u64, Option<Bytes>))| {
            (detached(&key), Written { version, value: value.as_ref().map(detached) })
        };
        self.keys = keys.into_iter().map(written).collect();
        self.waiting = waiting.into_iter().map(|(position, it)| (position, it.detached())).collect();
        self.decisions = decisions.into_iter().map(|(txn, of)| (txn, of.into_iter().collect())).collect();
        let size = |(key, it): (&Bytes, &Written)| entry_bytes(key, it.value.as_deref().unwrap_or_default());
        self.bytes = self.keys.iter().map(size).sum::<usize>();
        self.bytes += self.waiting.iter().map(|(_, it)| it.bytes()).sum::<usize>();
        // Nobody here may have taken what is owed.
        let due = |(is_valid, colours)| Owed { is_valid, colours, is_taken: false };
        self.owed = owed.into_iter().map(|(txn, it)| (txn, due(it))).collect();
        self.outcomes = outcomes.into();
        for (txn, outcome) in &self.outcomes {
            if let Some(wanted) = self.wanted.get_mut(txn) {
                *wanted = Some(*outcome);
            }
        }
        Ok(())
    }

    fn entries(&self) -> usize {
        self.keys.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Intention {
    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        let reads = self.reads.iter().map(|key| entry_bytes(key, &[])).sum::<usize>();
        let value = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        let writes = self.keys.iter().zip(&self.values).map(|(key, it)| entry_bytes(key, &[]) + value(it));
        let names = self.colours.iter().map(|name| entry_bytes(name.as_bytes(), &[])).sum::<usize>();
        reads + writes.sum::<usize>() + names
    }

    /// A copy that does not hold what it came with in memory.
    fn detached(mut self) -> Self {
        self.reads.iter_mut().chain(&mut self.keys).for_each(|key| *key = detached(key));
        self.values.iter_mut().flatten().for_each(|value| *value = detached(value));
        self
    }
}

/// A node's body.
pub(super) fn body_of(node: impl Into<TxNode>) -> Bytes {
    node.into().encoded().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::fuzzylog::SeenTime;

    const TXN: MapTxn = MapTxn { process: 1, number: 1 };

    fn play(view: &mut TxView, position: u64, node: impl Into<TxNode>) {
        let (colours, body) = (vec!["a".to_owned()], body_of(node));
        view.play(&FuzzyNode { position, at: SeenTime::default(), colours, body, origin: None });
    }

    fn intention(number: u64, colours: &[&str], read: Option<u64>, value: &'static str) -> Intention {
        let key = Bytes::from_static(b"k");
        Intention {
            txn: MapTxn { number, ..TXN },
            colours: colours.iter().map(|name| (*name).to_owned()).collect(),
            reads: read.map(|_| key.clone()).into_iter().collect(),
            versions: read.into_iter().collect(),
            keys: vec![key],
            values: vec![Some(Bytes::from_static(value.as_bytes()))],
        }
    }

    fn decision(number: u64, colour: &str, is_valid: bool) -> Decision {
        Decision { txn: MapTxn { number, ..TXN }, colour: colour.to_owned(), is_valid }
    }

    // A transaction that one of its colours refuses is applied in another; or one is applied before all have said yes.
    #[test]
    fn all_colours_decide() {
        for (other, outcome) in [(true, "1"), (false, "")] {
            let mut view = TxView::of("a");
            view.want(TXN);
            play(&mut view, 0, intention(1, &["a", "b"], None, "1"));
            let due = view.take_due();
            assert_eq!(due, [(vec!["a".to_owned(), "b".to_owned()], decision(1, "a", true))]);
            play(&mut view, 1, decision(1, "a", true));
            assert_eq!(view.outcome(TXN), None);
            assert!(view.is_in_doubt("k", 1) && !view.is_in_doubt("k", 0) && !view.is_in_doubt("other", 1));
            play(&mut view, 2, decision(1, "b", other));
            assert_eq!(view.outcome(TXN), Some(other));
            assert_eq!(view.get("k").value.unwrap_or_default(), outcome);
            play(&mut view, 3, decision(1, "b", !other));
            assert_eq!(view.get("k").value.unwrap_or_default(), outcome, "a repetition changes nothing");
        }
    }

    // A transaction is over in the colour that has not said so, and the other one waits for ever.
    #[test]
    fn a_decision_is_due_until_a_node_has_it() {
        let mut view = TxView::of("a");
        play(&mut view, 0, intention(1, &["a", "b"], None, "1"));
        play(&mut view, 1, decision(1, "b", true));
        assert_eq!(view.get("k").value.unwrap_or_default(), "1", "it is over here");
        let due = [(vec!["a".to_owned(), "b".to_owned()], decision(1, "a", true))];
        assert_eq!(view.take_due(), due);
        assert!(view.take_due().is_empty(), "somebody appends it");
        view.remind();
        assert_eq!(view.take_due(), due, "and was lost");
        play(&mut view, 2, decision(1, "a", true));
        view.remind();
        assert!(view.take_due().is_empty());
    }

    // Two transactions that have read the same both write, and one of the writes is lost.
    #[test]
    fn what_was_written_since_it_was_read_is_refused() {
        let mut view = TxView::of("a");
        let names = [1, 2, 3].map(|number| MapTxn { number, ..TXN });
        names.iter().for_each(|txn| view.want(*txn));
        play(&mut view, 0, intention(1, &["a"], Some(0), "1"));
        play(&mut view, 1, intention(2, &["a"], Some(0), "2"));
        play(&mut view, 2, intention(3, &["a"], Some(1), "3"));
        let outcomes = names.map(|txn| view.outcome(txn));
        assert_eq!(outcomes, [Some(true), Some(false), Some(true)]);
        assert_eq!(view.get("k"), Written { version: 3, value: Some(Bytes::from_static(b"3")) });
    }

    // An intention that is validated before the one in front of it is decided depends on who plays how fast.
    #[test]
    fn what_follows_an_undecided_intention_waits_for_it() {
        let mut view = TxView::of("a");
        let second = MapTxn { number: 2, ..TXN };
        view.want(second);
        play(&mut view, 0, intention(1, &["a", "b"], None, "1"));
        play(&mut view, 1, intention(2, &["a"], Some(0), "2"));
        assert_eq!(view.outcome(second), None);
        play(&mut view, 2, decision(1, "b", true));
        assert_eq!(view.outcome(second), Some(false), "the first one has written what it has read");
    }
}
