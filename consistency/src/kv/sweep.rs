//! Linearizability of one key whose service returned versions, in O(n log n).
//!
//! With the order of writes given, place every write as early as it can be: version v begins when version v-1
//! has begun, its own write is invoked, and every reader of v-1 is invoked. The history is linearizable iff no
//! operation of v has answered before v begins. Writes of unknown fate fill the versions that were seen but
//! that no answered write made (a bipartite matching). Absent keys read without a version go to the last
//! absent version that still began in time, and push what follows.

use super::{Expected, KvCall, KvReply, describe};
use crate::search::Interval;
use crate::terms::{Fate, Time, Value, Version};
use std::collections::BTreeMap;

/// What the sweep says. Operations are indices of the slice it was given.
pub(super) enum Swept {
    Holds,
    Violated {
        operations: Vec<usize>,
        sentences: Vec<String>,
    },
    /// Not enough versions: the search must decide.
    Unclear,
}

type Op = Interval<KvCall, KvReply>;

/// One version of the key.
#[derive(Default)]
struct Slot {
    version: u64,
    value: Option<Value>,
    writer: Option<usize>,
    readers: Vec<usize>,
    /// What the writer demands of the version before its own.
    before: Option<Expected>,
    /// Refused compare-and-sets that believed in a value this version must not have.
    refused: Vec<(usize, Value)>,
}

#[derive(Default)]
struct Slots {
    by_version: BTreeMap<u64, Slot>,
    /// Reads of the absent key that reported no version.
    loose: Vec<usize>,
    /// Unknown writes, which may have made a version that has no writer.
    spare: Vec<usize>,
}

enum Trouble {
    Unclear,
    Violated { operations: Vec<usize>, sentence: String },
}

/// Decides one key.
pub(super) fn sweep(key: &str, ops: &[&Op]) -> Swept {
    match decide(ops) {
        Ok(()) => Swept::Holds,
        Err(Trouble::Unclear) => Swept::Unclear,
        Err(Trouble::Violated { operations, sentence }) => {
            Swept::Violated { operations, sentences: vec![format!("key {key}: {sentence}")] }
        }
    }
}

fn decide(ops: &[&Op]) -> Result<(), Trouble> {
    let mut slots = Slots::default();
    slots.by_version.insert(0, Slot { value: Some(Value::Nil), ..Slot::default() });
    for (index, op) in ops.iter().enumerate() {
        slots.admit(index, op, ops)?;
    }
    let Slots { by_version, loose, spare } = slots;
    let mut slots: Vec<Slot> = by_version
        .into_iter()
        .map(|(version, mut slot)| {
            slot.version = version;
            slot
        })
        .collect();
    let spare_left = match_spare(&mut slots, &spare, ops)?;
    check_values(&slots, spare_left, ops)?;
    place(&slots, &loose, ops).map_err(|trouble| {
        // Another choice of writers might have left the loose reads more room.
        if !loose.is_empty() && !spare.is_empty() { Trouble::Unclear } else { trouble }
    })
}

impl Slots {
    fn admit(&mut self, index: usize, op: &Op, ops: &[&Op]) -> Result<(), Trouble> {
        match op.fate {
            Fate::Fail => return Ok(()),
            Fate::Unknown => {
                if op.call != KvCall::Get {
                    self.spare.push(index);
                }
                return Ok(());
            }
            Fate::Ok => {}
        }
        match (&op.call, op.reply.as_ref().ok_or(Trouble::Unclear)?) {
            (KvCall::Get, KvReply::Found { value: Some(value), version: Some(version) }) => {
                self.read(index, *version, Some(value), ops)
            }
            (KvCall::Get | KvCall::Delete, KvReply::Found { value: Some(Value::Nil), version: None }) => {
                self.loose.push(index);
                Ok(())
            }
            (KvCall::Delete, KvReply::Found { value: None | Some(Value::Nil), version: Some(version) }) => {
                self.read(index, *version, Some(&Value::Nil), ops)
            }
            (KvCall::CompareAndSet { expected, .. }, KvReply::Found { value, version: Some(version) }) => {
                self.read(index, *version, value.as_ref(), ops)?;
                match expected {
                    Expected::Version(believed) if believed == version => Err(Trouble::Violated {
                        operations: vec![index],
                        sentence: format!("{} was refused although the version was right", describe(op)),
                    }),
                    Expected::Version(_) => Ok(()),
                    Expected::Value(value) => {
                        let slot = self.by_version.entry(version.0).or_default();
                        slot.refused.push((index, value.clone()));
                        Ok(())
                    }
                }
            }
            (KvCall::Put(value), KvReply::Written { version: Some(version), .. }) => {
                self.write(index, *version, value.clone(), None, ops)
            }
            (KvCall::Delete, KvReply::Written { version: Some(version), .. }) => {
                self.write(index, *version, Value::Nil, None, ops)
            }
            (KvCall::CompareAndSet { expected, value }, KvReply::Written { version: Some(version), .. }) => {
                if let Expected::Version(believed) = expected {
                    self.by_version.entry(believed.0).or_default();
                }
                self.write(index, *version, value.clone(), Some(expected.clone()), ops)
            }
            (
                KvCall::Increment(by),
                KvReply::Written { value: Some(Value::Int(sum)), version: Some(version) },
            ) => {
                let old = sum.checked_sub(*by).ok_or(Trouble::Unclear)?;
                let before = Expected::Value(Value::Int(old));
                self.write(index, *version, Value::Int(*sum), Some(before), ops)
            }
            (KvCall::Get, _) | (KvCall::Put(_), _) | (KvCall::Delete, _) => Err(Trouble::Unclear),
            (KvCall::CompareAndSet { .. }, _) | (KvCall::Increment(_), _) => Err(Trouble::Unclear),
        }
    }

    fn read(
        &mut self,
        index: usize,
        version: Version,
        value: Option<&Value>,
        ops: &[&Op],
    ) -> Result<(), Trouble> {
        let slot = self.by_version.entry(version.0).or_default();
        slot.readers.push(index);
        slot.hold(index, value, ops)
    }

    fn write(
        &mut self,
        index: usize,
        version: Version,
        value: Value,
        before: Option<Expected>,
        ops: &[&Op],
    ) -> Result<(), Trouble> {
        let slot = self.by_version.entry(version.0).or_default();
        if version == Version::INITIAL {
            let sentence = format!("{} claims version 0, which no write makes", describe(ops[index]));
            return Err(Trouble::Violated { operations: vec![index], sentence });
        }
        if let Some(other) = slot.writer.replace(index) {
            let sentence =
                format!("{} and {} made the same version", describe(ops[other]), describe(ops[index]));
            return Err(Trouble::Violated { operations: vec![other, index], sentence });
        }
        slot.before = before;
        slot.hold(index, Some(&value), ops)
    }
}

impl Slot {
    /// Notes the value that `index` saw or wrote at this version.
    fn hold(&mut self, index: usize, value: Option<&Value>, ops: &[&Op]) -> Result<(), Trouble> {
        match (&self.value, value) {
            (_, None) => Ok(()),
            (None, Some(value)) => {
                self.value = Some(value.clone());
                Ok(())
            }
            (Some(known), Some(value)) if known == value => Ok(()),
            (Some(known), Some(_)) => {
                let sentence = format!(
                    "{} disagrees with others, for whom that version holds {known}",
                    describe(ops[index])
                );
                let operations = self.writer.into_iter().chain([index]).collect();
                Err(Trouble::Violated { operations, sentence })
            }
        }
    }

    fn operations(&self) -> impl Iterator<Item = usize> {
        self.writer.into_iter().chain(self.readers.iter().copied())
    }
}

/// Gives every version without a writer an unknown write that can have made it. Returns how many are unused.
fn match_spare(slots: &mut [Slot], spare: &[usize], ops: &[&Op]) -> Result<usize, Trouble> {
    let mut latest = vec![Time::NEVER; slots.len() + 1];
    for at in (0..slots.len()).rev() {
        let own = slots[at].operations().map(|op| ops[op].complete).min().unwrap_or(Time::NEVER);
        latest[at] = own.min(latest[at + 1]);
    }
    let missing: Vec<usize> = (1..slots.len()).filter(|at| slots[*at].writer.is_none()).collect();
    if missing.is_empty() {
        return Ok(spare.len());
    }
    let mut candidates: Vec<Vec<usize>> = Vec::with_capacity(missing.len());
    for at in &missing {
        let mut own = Vec::new();
        for (position, op) in spare.iter().enumerate() {
            if ops[*op].invoke <= latest[*at] && could_make(&slots[*at - 1], &slots[*at], &ops[*op].call)? {
                own.push(position);
            }
        }
        candidates.push(own);
    }
    let mut holder: Vec<Option<usize>> = vec![None; spare.len()];
    for which in 0..missing.len() {
        let mut tried = vec![false; spare.len()];
        if !augment(which, &candidates, &mut holder, &mut tried) {
            let slot = &slots[missing[which]];
            let operations: Vec<usize> = slot.operations().collect();
            let who = operations.first().map_or("somebody".to_owned(), |op| describe(ops[*op]));
            let rmw_in_doubt = spare.len() > missing.len() && spare.iter().any(|op| demands(&ops[*op].call));
            if rmw_in_doubt || operations.is_empty() {
                return Err(Trouble::Unclear);
            }
            let sentence = format!("{who} saw version {}, which no write can have made", slot.version);
            return Err(Trouble::Violated { operations, sentence });
        }
    }
    for (position, which) in holder.iter().enumerate() {
        if let Some(which) = which {
            slots[missing[*which]].writer = Some(spare[position]);
        }
    }
    Ok(spare.len() - missing.len())
}

fn demands(call: &KvCall) -> bool {
    matches!(call, KvCall::CompareAndSet { .. } | KvCall::Increment(_))
}

/// Whether an unknown write can have made `slot` out of `before`.
fn could_make(before: &Slot, slot: &Slot, call: &KvCall) -> Result<bool, Trouble> {
    let holds = |value: &Value| slot.value.as_ref().is_none_or(|known| known == value);
    match call {
        KvCall::Get => Ok(false),
        KvCall::Put(value) => Ok(holds(value)),
        KvCall::Delete => Ok(holds(&Value::Nil)),
        KvCall::CompareAndSet { expected: Expected::Version(version), value } => {
            Ok(holds(value) && before.version == version.0)
        }
        KvCall::CompareAndSet { expected: Expected::Value(old), value } => match &before.value {
            None => Err(Trouble::Unclear),
            Some(known) => Ok(holds(value) && known == old),
        },
        KvCall::Increment(by) => match &before.value {
            None => Err(Trouble::Unclear),
            Some(known) => {
                let sum = if *known == Value::Nil { Some(0) } else { known.as_int() };
                Ok(sum.and_then(|old| old.checked_add(*by)).is_some_and(|sum| holds(&Value::Int(sum))))
            }
        },
    }
}

fn augment(
    which: usize,
    candidates: &[Vec<usize>],
    holder: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for position in &candidates[which] {
        if std::mem::replace(&mut tried[*position], true) {
            continue;
        }
        if holder[*position].is_none_or(|other| augment(other, candidates, holder, tried)) {
            holder[*position] = Some(which);
            return true;
        }
    }
    false
}

/// Read-modify-writes must follow what they say they read, and refusals must have had a reason.
fn check_values(slots: &[Slot], spare_left: usize, ops: &[&Op]) -> Result<(), Trouble> {
    for pair in slots.windows(2) {
        let (before, slot) = (&pair[0], &pair[1]);
        let (Some(demand), Some(writer)) = (&slot.before, slot.writer) else { continue };
        let (fits, by_value) = match (demand, &before.value) {
            (Expected::Version(version), _) => (before.version == version.0, false),
            (Expected::Value(_), None) => return Err(Trouble::Unclear),
            (Expected::Value(Value::Int(0)), Some(Value::Nil)) => {
                (matches!(ops[writer].call, KvCall::Increment(_)), true)
            }
            (Expected::Value(value), Some(known)) => (value == known, true),
        };
        if fits {
            continue;
        }
        if by_value && spare_left > 0 {
            return Err(Trouble::Unclear);
        }
        let sentence = format!(
            "{} succeeded, but the version before its own is {}",
            describe(ops[writer]),
            before.describe()
        );
        return Err(Trouble::Violated {
            operations: before.writer.into_iter().chain([writer]).collect(),
            sentence,
        });
    }
    for slot in slots {
        for (index, believed) in &slot.refused {
            match &slot.value {
                None => return Err(Trouble::Unclear),
                Some(value) if value == believed => {
                    let sentence = format!("{} was refused although it held", describe(ops[*index]));
                    return Err(Trouble::Violated { operations: vec![*index], sentence });
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

impl Slot {
    fn describe(&self) -> String {
        let value = self.value.as_ref().map_or("unknown".to_owned(), Value::to_string);
        format!("{} ({value})", self.version)
    }
}

/// The earliest beginning of each version, and the operation whose invocation set it.
#[derive(Clone, Copy)]
struct Begin {
    at: Time,
    because: Option<usize>,
}

fn place(slots: &[Slot], loose: &[usize], ops: &[&Op]) -> Result<(), Trouble> {
    // The version each loose read is pinned to; none while it fits somewhere without pushing.
    let mut pinned: Vec<Option<usize>> = vec![None; loose.len()];
    let absent: Vec<usize> = (0..slots.len()).filter(|at| slots[*at].value == Some(Value::Nil)).collect();
    loop {
        let begins = begins(slots, loose, &pinned, ops)?;
        let mut moved = false;
        for (which, op) in loose.iter().enumerate() {
            let began = absent.partition_point(|at| begins[*at].at <= ops[*op].complete);
            let Some(last) = began.checked_sub(1).map(|at| absent[at]) else {
                // Version 0 begins at time 0, so only a read that answered before time 0 comes here.
                return Err(Trouble::Unclear);
            };
            let ends = begins.get(last + 1).map_or(Time::NEVER, |begin| begin.at);
            let fits = ends >= ops[*op].invoke;
            let settled = pinned[which] == Some(last) || (pinned[which].is_none() && fits);
            if !settled {
                pinned[which] = Some(last);
                moved = true;
            }
        }
        if !moved {
            return Ok(());
        }
    }
}

fn begins(
    slots: &[Slot],
    loose: &[usize],
    pinned: &[Option<usize>],
    ops: &[&Op],
) -> Result<Vec<Begin>, Trouble> {
    let mut extra: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (which, at) in pinned.iter().enumerate() {
        if let Some(at) = at {
            extra.entry(*at).or_default().push(loose[which]);
        }
    }
    let mut begins = Vec::with_capacity(slots.len());
    let mut begin = Begin { at: Time(0), because: None };
    for (at, slot) in slots.iter().enumerate() {
        if let Some(writer) = slot.writer
            && ops[writer].invoke > begin.at
        {
            begin = Begin { at: ops[writer].invoke, because: Some(writer) };
        }
        for op in slot.operations() {
            if ops[op].complete < begin.at {
                return Err(late(op, slot, begin, ops));
            }
        }
        begins.push(begin);
        let pinned_here = extra.get(&at).into_iter().flatten().copied();
        for op in slot.readers.iter().copied().chain(pinned_here) {
            if ops[op].invoke > begin.at {
                begin = Begin { at: ops[op].invoke, because: Some(op) };
            }
        }
    }
    Ok(begins)
}

fn late(op: usize, slot: &Slot, begin: Begin, ops: &[&Op]) -> Trouble {
    let because = begin.because.unwrap_or(op);
    let gap = begin.at.0 - ops[op].complete.0;
    let sentence = format!(
        "{} answered {gap} before {} was invoked, yet the latter must come first: by the versions, version {} \
         begins only after it",
        describe(ops[op]),
        describe(ops[because]),
        slot.version,
    );
    Trouble::Violated { operations: vec![because, op], sentence }
}
