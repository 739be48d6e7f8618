//! Registers: reads by value or version, orders by timestamp or by chains of read-modify-writes.

use super::sources::{BLIND, Sources};
use super::{NONE, Pending, ReadSlot, Resolved, fate, link, lists};
use crate::anomaly::{Anomalies, AnomalyKind, binding, name};
use crate::history::{Access, AccessKind, History, HistoryError, OpIndex, Symbol, Timestamp};
use crate::rules::Rules;
use crate::terms::Fate;

/// What an operation knows of a key by its own earlier accesses.
struct Known {
    key: Symbol,
    value: Symbol,
}

/// Reads the history once: registers are resolved, list reads collected, internal contradictions reported.
pub(super) fn read_all(
    history: &History,
    rules: &Rules,
    sources: &mut Sources,
    anomalies: &mut Anomalies,
) -> Result<Pending, HistoryError> {
    let mut pending = Pending { is_list: kinds(history)?, ..Pending::default() };
    let mut known: Vec<Known> = Vec::new();
    let mut views = lists::Views::default();
    for index in 0..history.operations().len() {
        if fate(history, index, rules) != Fate::Ok {
            continue;
        }
        let op = OpIndex(index as u32);
        let operation = &history.operations()[index];
        known.clear();
        views.clear();
        for (at, access) in history.accesses(operation).iter().enumerate() {
            let earlier = known.iter_mut().find(|known| known.key == access.key);
            match (&access.kind, earlier) {
                (AccessKind::Write(value), Some(earlier)) => earlier.value = *value,
                (AccessKind::Write(value), None) => known.push(Known { key: access.key, value: *value }),
                (AccessKind::Read(value), Some(earlier)) => {
                    let both_unwritten = history.is_initial(*value) && history.is_initial(earlier.value);
                    if earlier.value != *value && !both_unwritten {
                        let knew = earlier.value;
                        anomalies.add(AnomalyKind::Internal, vec![op], || {
                            let saw = binding(history, access.key, *value);
                            let knew = binding(history, access.key, knew);
                            format!("{} read {saw} although for it {knew}", name(history, op))
                        });
                    }
                }
                (AccessKind::Read(value), None) => {
                    known.push(Known { key: access.key, value: *value });
                    if let Some(source) = source(history, sources, op, at, access, *value, anomalies)? {
                        pending.reads.push(ReadSlot { vertex: op.0, key: access.key, source });
                        if let Some(own) = sources.slot_of(index, access.key) {
                            sources.follows[own as usize] = source;
                        }
                    }
                }
                (AccessKind::Append(_) | AccessKind::ReadList(_), _) => {
                    views.access(history, op, access, &mut pending.list_reads, anomalies);
                }
            }
        }
    }
    Ok(pending)
}

fn kinds(history: &History) -> Result<Vec<bool>, HistoryError> {
    let mut kinds: Vec<Option<bool>> = vec![None; history.keys().len()];
    for operation in history.operations() {
        for access in history.accesses(operation) {
            let list = matches!(access.kind, AccessKind::Append(_) | AccessKind::ReadList(_));
            match kinds[access.key.at()] {
                None => kinds[access.key.at()] = Some(list),
                Some(known) if known == list => {}
                Some(_) => {
                    let key = history.keys().value(access.key).to_string();
                    return Err(HistoryError::MixedKey { line: operation.line, key });
                }
            }
        }
    }
    Ok(kinds.into_iter().map(|list| list.unwrap_or(false)).collect())
}

/// The write that an external read saw: a slot, [`NONE`] for the initial version, nothing after an anomaly.
fn source(
    history: &History,
    sources: &mut Sources,
    op: OpIndex,
    at: usize,
    access: &Access,
    value: Symbol,
    anomalies: &mut Anomalies,
) -> Result<Option<u32>, HistoryError> {
    let saw = || format!("{} read {}", name(history, op), binding(history, access.key, value));
    if access.timestamp == Some(Timestamp::version(0)) && history.is_initial(value) {
        return Ok(Some(NONE));
    }
    let timestamped = access.timestamp.and_then(|timestamp| sources.by_timestamp(access.key, timestamp));
    if let Some(slot) = timestamped {
        let writer = &sources.slots[slot as usize];
        let both_unwritten = history.is_initial(value) && history.is_initial(writer.value);
        if writer.value != value && !both_unwritten {
            let (writer, wrote) = (writer.op, writer.value);
            anomalies.add(AnomalyKind::VersionMismatch, vec![op, writer], || {
                let wrote = binding(history, access.key, wrote);
                format!("{} at a version of which {} wrote {wrote}", saw(), name(history, writer))
            });
            return Ok(None);
        }
        return Ok(Some(slot).filter(|_| writer.op != op));
    }
    let found = sources.by_value(history, op.at(), access.key, value)?;
    let Some(instance) = found else {
        let unwritten = history.is_initial(value);
        if !unwritten {
            anomalies.add(AnomalyKind::GarbageRead, vec![op], || format!("{}, which nobody wrote", saw()));
        }
        return Ok(unwritten.then_some(NONE));
    };
    let writer = sources.slots[instance.slot as usize].op;
    if writer == op {
        if instance.access as usize > at {
            anomalies
                .add(AnomalyKind::FutureRead, vec![op], || format!("{} before it wrote that itself", saw()));
        }
        return Ok(None);
    }
    let slot = &mut sources.slots[instance.slot as usize];
    match (slot.timestamp, access.timestamp) {
        (None, Some(timestamp)) => slot.timestamp = Some(timestamp),
        (Some(notified), Some(timestamp)) if notified != timestamp => {
            anomalies.add(AnomalyKind::VersionMismatch, vec![op, writer], || {
                format!("{} at another version than {} wrote it at", saw(), name(history, writer))
            });
            return Ok(None);
        }
        (_, _) => {}
    }
    sources.observed[writer.at()] = true;
    if history.operations()[writer.at()].fate == Fate::Fail {
        anomalies.add(AnomalyKind::AbortedRead, vec![op, writer], || {
            format!("{}, which {} wrote and which failed", saw(), name(history, writer))
        });
    } else if !instance.last {
        anomalies.add(AnomalyKind::IntermediateRead, vec![op, writer], || {
            format!("{}, which {} then overwrote itself", saw(), name(history, writer))
        });
    }
    Ok(Some(instance.slot))
}

/// Orders the versions of one register by timestamps, else by read-modify-writes, else leaves them free.
pub(super) fn order(
    history: &History,
    key: usize,
    slots: &[u32],
    sources: &mut Sources,
    resolved: &mut Resolved,
    anomalies: &mut Anomalies,
) {
    let mut timestamped: Vec<u32> =
        slots.iter().copied().filter(|slot| sources.slots[*slot as usize].timestamp.is_some()).collect();
    timestamped.sort_by_key(|slot| sources.slots[*slot as usize].timestamp);
    for pair in timestamped.windows(2) {
        let (first, second) = (&sources.slots[pair[0] as usize], &sources.slots[pair[1] as usize]);
        if first.timestamp == second.timestamp {
            anomalies.add(AnomalyKind::DuplicateVersion, vec![first.op, second.op], || {
                let key = history.keys().value(first.key);
                format!(
                    "{} and {} wrote {key} at the same version",
                    name(history, first.op),
                    name(history, second.op)
                )
            });
        }
    }
    if timestamped.len() == slots.len() || slots.len() == 1 {
        return link(key, if slots.len() == 1 { slots } else { &timestamped }, &mut sources.slots, resolved);
    }
    if timestamped.is_empty()
        && let Some(chain) = chain(slots, sources)
    {
        return link(key, &chain, &mut sources.slots, resolved);
    }
    link(key, &timestamped, &mut sources.slots, resolved);
    let free =
        slots.iter().copied().filter(|slot| sources.slots[*slot as usize].timestamp.is_none()).collect();
    resolved.free.insert(Symbol(key as u32), free);
}

/// The versions as each write follows the one it read; nothing unless that orders all of them.
fn chain(slots: &[u32], sources: &Sources) -> Option<Vec<u32>> {
    let mut followers: Vec<(u32, u32)> =
        slots.iter().map(|slot| (sources.follows[*slot as usize], *slot)).collect();
    followers.sort_unstable();
    let twice = followers.windows(2).any(|pair| pair[0].0 == pair[1].0);
    if twice || followers.iter().any(|(source, _)| *source == BLIND) {
        return None;
    }
    let mut chain = Vec::with_capacity(slots.len());
    let mut last = NONE;
    while let Ok(at) = followers.binary_search_by_key(&last, |(source, _)| *source) {
        last = followers[at].1;
        chain.push(last);
    }
    (chain.len() == slots.len()).then_some(chain)
}
