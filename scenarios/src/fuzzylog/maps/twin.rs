//! A twin that knows nothing of the maps' code: it makes a map's keys from the nodes in the log, of observed-remove maps in many orders that
//! agree with what changes had seen. Each process must have the same in the end.

use super::super::truth::Truth;
use super::port::ColourNames;
use super::process::{Attempt, Call, Kind, MapProcess};
use ::fuzzylog::{
    AppendTime, ColourNode, FuzzyRefusal, FuzzyRequest, FuzzyResponse, NodePosition, PlayedPage,
};
use kernel::{Bytes, Decode as _, Rng, invariant};
use ordinate_client::maps::{KeyChange, MapChange, NamedChange, NamedShardChange, PutTag};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Orders in which changes are replayed.
const ORDERS: usize = 20;
/// Questions of one call at the end.
const ROUNDS_MAX: usize = 1_000;

/// The puts of each key that nothing has taken away.
type Puts = BTreeMap<Bytes, BTreeMap<PutTag, Bytes>>;

/// What is asked at the end is answered from what is in the log; nothing is appended any more.
fn answer_of(request: &FuzzyRequest, truth: &Truth) -> FuzzyResponse {
    let page = |colour, from: NodePosition, to: Option<NodePosition>, seen| {
        let nodes = truth.nodes(colour);
        let tail = to.map_or(nodes.len(), |to| to.0 as usize).min(nodes.len());
        let nodes = nodes.get(from.0 as usize..tail).unwrap_or_default().to_vec();
        FuzzyResponse::Played(PlayedPage { colour, from, nodes, tail: NodePosition(tail as u64), seen })
    };
    match request {
        FuzzyRequest::Sync(call) => page(call.colour, call.from, None, call.seen),
        FuzzyRequest::Play(call) => page(call.colour, call.from, Some(call.to), AppendTime::ZERO),
        FuzzyRequest::Snapshot(call) => {
            let tail = |&colour| {
                let position = NodePosition(truth.nodes(colour).len() as u64);
                ::fuzzylog::partition::command::Placed { colour, position }
            };
            FuzzyResponse::Snapshotted { at: call.seen, tails: call.colours.iter().map(tail).collect() }
        }
        _ => FuzzyResponse::Refused(FuzzyRefusal::Busy),
    }
}

/// What a call of a process comes to, with all that is in the log.
fn ask(process: &mut MapProcess, kind: Kind, call: Call, truth: &Truth) -> Vec<Option<Bytes>> {
    let attempt = Attempt { call, by: None, seen: AppendTime::ZERO, read: Arc::default() };
    process.begin(u64::MAX, kind, attempt, false);
    for _ in 0..ROUNDS_MAX {
        if let Some((_, done)) = process.go_on().pop() {
            let Ok((found, _)) = done.result else {
                invariant!(TWIN, false, "{kind:?} is not read at the end: {done:?}");
                return Vec::new();
            };
            return found;
        }
        for (question, request) in process.take_questions() {
            process.answer(question, answer_of(&request, truth));
        }
    }
    invariant!(TWIN, false, "{kind:?} is not read at the end");
    Vec::new()
}

fn nodes_of<'a>(kind: Kind, names: &ColourNames, truth: &'a Truth) -> Vec<&'a [ColourNode]> {
    let own = kind.colours();
    let colours = names.all().filter(|(name, _)| own.iter().any(|it| it == name));
    colours.map(|(_, colour)| truth.nodes(colour)).collect()
}

/// The changes of a colour of an observed-remove map, without what was sent again.
fn changes_of(kind: Kind, nodes: &[ColourNode]) -> Vec<KeyChange> {
    let (mut names, mut all) = (BTreeSet::new(), Vec::new());
    for node in nodes {
        let (changes, name) = match kind {
            Kind::Crdt => match NamedChange::decoded(&node.body) {
                Ok(NamedChange { change, name }) => (vec![change], name),
                Err(_) => continue,
            },
            _ => match NamedShardChange::decoded(&node.body) {
                Ok(NamedShardChange { changes, name }) => (changes, name),
                Err(_) => continue,
            },
        };
        if name.is_none_or(|name| names.insert((name.by.client, name.by.number, name.digest))) {
            all.extend(changes);
        }
    }
    all
}

fn apply(puts: &mut Puts, change: &KeyChange) {
    let of = puts.entry(change.key.clone()).or_default();
    change.subsumes.iter().for_each(|tag| drop(of.remove(tag)));
    if let Some(value) = &change.put {
        of.insert(change.tag, value.clone());
    }
    if of.is_empty() {
        puts.remove(&change.key);
    }
}

/// Replays changes: each comes behind those that it takes away.
fn replayed(changes: &[KeyChange], rng: Option<&mut Rng>) -> Puts {
    let mut puts = Puts::new();
    let Some(rng) = rng else {
        changes.iter().for_each(|change| apply(&mut puts, change));
        return puts;
    };
    let made = |change: &KeyChange| change.put.as_ref().map(|_| (change.key.clone(), change.tag));
    let mut ahead: BTreeSet<(Bytes, PutTag)> = changes.iter().filter_map(made).collect();
    let mut left: Vec<&KeyChange> = changes.iter().collect();
    while !left.is_empty() {
        let is_ready = |change: &&KeyChange| {
            change.subsumes.iter().all(|tag| !ahead.contains(&(change.key.clone(), *tag)))
        };
        let ready: Vec<usize> = (0..left.len()).filter(|&at| is_ready(&left[at])).collect();
        invariant!(TWIN, !ready.is_empty(), "changes take each other away: {left:?}");
        let change = left.remove(ready[rng.index(ready.len())]);
        apply(&mut puts, change);
        if let Some(made) = made(change) {
            ahead.remove(&made);
        }
    }
    puts
}

/// What all keys hold, as the nodes of a map make it.
fn held(kind: Kind, names: &ColourNames, truth: &Truth) -> BTreeMap<String, (BTreeSet<Bytes>, Bytes)> {
    let mut all = BTreeMap::new();
    let text = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
    for nodes in nodes_of(kind, names, truth) {
        if !kind.asks_nobody() {
            for change in nodes.iter().filter_map(|node| MapChange::decoded(&node.body).ok()) {
                for (key, value) in change.keys.iter().zip(change.values) {
                    match value {
                        Some(value) => all.insert(text(key), (BTreeSet::from([value.clone()]), value)),
                        None => all.remove(&text(key)),
                    };
                }
            }
            continue;
        }
        let changes = changes_of(kind, nodes);
        let puts = replayed(&changes, None);
        let mut rng = Rng::seeded(nodes.len() as u64);
        for _ in 0..ORDERS {
            let other = replayed(&changes, Some(&mut rng));
            invariant!(TWIN, other == puts, "{kind:?}: {puts:?} in one order, {other:?} in another");
        }
        for (key, of) in &puts {
            if let Some((_, last)) = of.last_key_value() {
                all.insert(text(key), (of.values().cloned().collect(), last.clone()));
            }
        }
    }
    all
}

/// A process has what the nodes make. Of transactions something may be undecided, and nobody appends any more.
pub(super) fn check(process: &mut MapProcess, kinds: &[Kind], names: &ColourNames, truth: &Truth) {
    for &kind in kinds.iter().filter(|kind| **kind != Kind::Tx) {
        let expected = held(kind, names, truth);
        ask(process, kind, Call::Sync, truth);
        let keys = (0..super::KEYS).map(|key| format!("k{key}"));
        for key in keys.chain(["d0".to_owned(), "d1".to_owned()]) {
            let found = ask(process, kind, Call::Get(vec![key.clone()]), truth).pop().flatten();
            let wanted = expected.get(&key);
            invariant!(
                TWIN,
                found.as_ref() == wanted.map(|(_, last)| last),
                "{key} of {kind:?} is {found:?}, and its nodes make {wanted:?}"
            );
            if kind == Kind::Crdt {
                let all = process.concurrent(&key);
                let wanted = wanted.map(|(all, _)| all.clone()).unwrap_or_default();
                invariant!(TWIN, all == wanted, "{key} has {all:?}, and its nodes make {wanted:?}");
            }
        }
    }
}
