//! The sweep and the search against every order tried one by one.

use super::sweep::{Swept, sweep};
use super::*;
use crate::dice::Dice;
use crate::search::Object;

type Op = Interval<KvCall, KvReply>;

/// Straight from the definition: is there an order of the answered and any subset of the unknown operations,
/// legal and respecting real time?
fn brute(ops: &[Op], placed: &mut Vec<usize>, state: &KvState) -> bool {
    let waits = |placed: &Vec<usize>, op: usize| !placed.contains(&op);
    if (0..ops.len()).all(|op| ops[op].fate != Fate::Ok || !waits(placed, op)) {
        return true;
    }
    for op in 0..ops.len() {
        let blocked = (0..ops.len()).any(|other| {
            waits(placed, other) && ops[other].fate == Fate::Ok && ops[other].complete < ops[op].invoke
        });
        if ops[op].fate == Fate::Fail || !waits(placed, op) || blocked {
            continue;
        }
        if let Some(after) = KvObject.step(state, &ops[op].call, ops[op].reply.as_ref()) {
            placed.push(op);
            if brute(ops, placed, &after) {
                return true;
            }
            placed.pop();
        }
    }
    false
}

fn words(ops: &[Op]) -> Vec<String> {
    ops.iter().map(describe).collect()
}

/// A real store, asked at random instants inside random intervals; sometimes an answer is then spoiled.
fn random_history(dice: &mut Dice, versions_skip: bool) -> Vec<Op> {
    let count = 2 + dice.below(5);
    let mut points: Vec<(u64, usize)> = (0..count).map(|op| (dice.below(20) as u64, op)).collect();
    points.sort_unstable();
    let (mut value, mut version, mut last_written) = (Value::Nil, 0, 0);
    let mut ops = Vec::new();
    for (at, process) in points {
        let fresh = Value::Int(dice.below(3) as i64);
        let call = match dice.below(8) {
            0..=2 => KvCall::Get,
            3..=4 => KvCall::Put(fresh),
            5 => KvCall::Delete,
            6 if dice.once_in(2) => {
                KvCall::CompareAndSet { expected: Expected::Version(Version(last_written)), value: fresh }
            }
            6 => KvCall::CompareAndSet { expected: Expected::Value(value.clone()), value: fresh },
            _ => KvCall::Increment(1 + dice.below(2) as i64),
        };
        let fate = if dice.once_in(4) { Fate::Unknown } else { Fate::Ok };
        let (mut reply, mut wrote) = (KvReply::found(value.clone(), Version(version)), None);
        match &call {
            KvCall::Get if value == Value::Nil && dice.once_in(2) => reply = KvReply::absent(),
            KvCall::Get => {}
            KvCall::Put(value) => wrote = Some(value.clone()),
            KvCall::Delete => wrote = (value != Value::Nil).then_some(Value::Nil),
            KvCall::CompareAndSet { expected, value: new } => {
                let met = match expected {
                    Expected::Version(believed) => believed.0 == version,
                    Expected::Value(believed) => *believed == value,
                };
                wrote = met.then(|| new.clone());
            }
            KvCall::Increment(by) => wrote = Some(Value::Int(value.as_int().unwrap_or(0) + by)),
        }
        if let Some(wrote) = wrote
            && (fate == Fate::Ok || dice.once_in(2))
        {
            version += 1 + if versions_skip { dice.below(2) as u64 } else { 0 };
            value = wrote;
            last_written = version;
            reply = KvReply::written(Version(version));
            if matches!(call, KvCall::Increment(_)) {
                reply = KvReply::incremented(value.as_int().unwrap_or(0), Version(version));
            }
        }
        let invoke = Time(at.saturating_sub(dice.below(6) as u64));
        let complete = if fate == Fate::Ok { Time(at + dice.below(6) as u64) } else { Time::NEVER };
        let reply = (fate == Fate::Ok).then_some(reply);
        ops.push(Op { process: Process(process as u64), invoke, complete, fate, call, reply });
    }
    if dice.once_in(2) {
        spoil(dice, &mut ops);
    }
    ops
}

fn spoil(dice: &mut Dice, ops: &mut [Op]) {
    let at = dice.below(ops.len());
    match (&mut ops[at].reply, dice.below(3)) {
        (
            Some(
                KvReply::Found { version: Some(version), .. }
                | KvReply::Written { version: Some(version), .. },
            ),
            0,
        ) => {
            version.0 = dice.below(5) as u64;
        }
        (Some(KvReply::Found { value: Some(value), .. }), 1) => *value = Value::Int(dice.below(3) as i64),
        (Some(_), _) => {
            ops[at].complete = Time(ops[at].invoke.0 + 1);
            ops[at].invoke = Time(ops[at].invoke.0.saturating_sub(1));
        }
        (None, _) => {}
    }
}

/// The same operation at a service that reports no versions.
fn without_version(op: &Op) -> Op {
    let mut op = op.clone();
    if let Some(KvReply::Found { version, .. } | KvReply::Written { version, .. }) = &mut op.reply {
        *version = None;
    }
    if let KvCall::CompareAndSet { expected, .. } = &mut op.call
        && *expected != Expected::Value(Value::Nil)
    {
        *expected = Expected::Value(Value::Int(1));
    }
    op
}

#[test]
fn agrees_with_every_order_tried() {
    // A sweep that drops a constraint passes a broken store; one too many convicts a sound one.
    let mut dice = Dice(7);
    let (mut held, mut broken, mut swept) = (0, 0, 0);
    for round in 0..100_000 {
        let ops = random_history(&mut dice, round % 2 == 0);
        let truth = brute(&ops, &mut Vec::new(), &KvObject.initial());
        let views: Vec<&Op> = ops.iter().collect();
        let searched = linearize(&KvObject, &views, &mut SearchBudget::default());
        assert_eq!(matches!(searched, Found::Holds(_)), truth, "search, round {round}: {:#?}", words(&ops));
        match sweep("k", &views) {
            Swept::Unclear => {}
            Swept::Holds => {
                swept += 1;
                assert!(truth, "sweep held, round {round}: {:#?}", words(&ops));
            }
            Swept::Violated { sentences, .. } => {
                swept += 1;
                assert!(!truth, "sweep said {sentences:?}, round {round}: {:#?}", words(&ops));
            }
        }
        if truth {
            held += 1
        } else {
            broken += 1
        }
        let blind: Vec<Op> = ops.iter().map(without_version).collect();
        let truth = brute(&blind, &mut Vec::new(), &KvObject.initial());
        let views: Vec<&Op> = blind.iter().collect();
        let decided = decide_key("k", &views, &mut SearchBudget::default());
        assert_eq!(matches!(decided, KeyVerdict::Holds), truth, "round {round}: {:#?}", words(&blind));
    }
    assert!(held > 20_000 && broken > 10_000 && swept > 60_000, "{held} {broken} {swept}");
}

#[test]
fn one_hundred_thousand_operations_with_versions() {
    // Quadratic behaviour anywhere in the sweep would not end.
    let mut history = KvHistory::new();
    let mut version = 0;
    for at in 0..100_000u64 {
        let call = if at % 2 == 0 { KvCall::Put(Value::Int(at as i64)) } else { KvCall::Get };
        let op = history.invoke(Process(at % 16), "x", call, Time(at * 10));
        if at % 2 == 0 {
            version += 1;
            history.complete(op, KvReply::written(Version(version)), Time(at * 10 + 50));
        } else {
            history.complete(op, KvReply::found(at as i64 - 1, Version(version)), Time(at * 10 + 50));
        }
    }
    assert!(history.check_linearizable().holds());
}

#[test]
fn a_deleted_and_recreated_key_keeps_growing() {
    // If delete restarted the versions, a stale read of the first incarnation would look current in the second.
    let mut history = KvHistory::new();
    let mut done = |call, reply, at: u64| {
        let op = history.invoke(Process(0), "x", call, Time(at));
        history.complete(op, reply, Time(at + 1));
        history.check_linearizable().holds()
    };
    assert!(done(KvCall::Put(Value::Int(1)), KvReply::written(Version(1)), 0));
    assert!(done(KvCall::Delete, KvReply::written(Version(2)), 10));
    assert!(done(KvCall::Get, KvReply::absent(), 20));
    assert!(done(KvCall::Put(Value::Int(1)), KvReply::written(Version(3)), 30));
    assert!(!done(KvCall::Delete, KvReply::absent(), 40));
}

#[test]
fn unknown_puts_may_land_late_and_only_once() {
    // Treating a timeout as a failure convicts a sound store; reusing it hides a resurrection.
    let mut history = KvHistory::new();
    let lost = history.invoke(Process(0), "x", KvCall::Put(Value::Int(1)), Time(0));
    history.unknown(lost);
    for (version, value) in [(1, 1), (2, 2)] {
        let op = history.invoke(Process(1), "x", KvCall::Get, Time(version * 10));
        history.complete(op, KvReply::found(value, Version(version)), Time(version * 10 + 1));
        assert_eq!(history.check_linearizable().holds(), version == 1);
    }
}

/// Compare-and-sets, puts and gets of one register by ten clients; some calls are never answered.
fn registers(dice: &mut Dice, count: u64, values: usize) -> KvHistory {
    let mut history = KvHistory::new();
    let (mut held, mut clients): (Value, Vec<u64>) = (Value::Nil, (0..10).collect());
    for at in 0..count {
        let (invoke, complete) =
            (at * 100 + 500 - dice.below(450) as u64, at * 100 + 500 + dice.below(450) as u64);
        let fresh = Value::Int(dice.below(values) as i64);
        let call = match dice.below(5) {
            0 => KvCall::Get,
            1 => KvCall::Put(fresh),
            _ => KvCall::CompareAndSet { expected: Expected::Value(held.clone()), value: fresh },
        };
        let client = &mut clients[at as usize % 10];
        let op = history.invoke(Process(*client), "x", call.clone(), Time(invoke));
        let lost = dice.below(100) < 3;
        let reply = match &call {
            KvCall::Get => KvReply::Found { value: Some(held.clone()), version: None },
            _ => KvReply::Written { value: None, version: None },
        };
        if let KvCall::Put(value) | KvCall::CompareAndSet { value, .. } = call
            && (!lost || dice.once_in(2))
        {
            held = value;
        }
        if lost {
            *client = 10 + at;
            history.unknown(op);
        } else {
            history.complete(op, reply, Time(complete));
        }
    }
    history
}

#[test]
fn calls_without_answers_do_not_exhaust_the_search() {
    // Tried wherever they fit, they are used up long before the points where they took effect.
    for values in [5, usize::MAX >> 1] {
        let history = registers(&mut Dice(3), 20_000, values);
        let verdict = history
            .check_linearizable_within(&mut SearchBudget { steps: 2_000_000, ..SearchBudget::default() });
        assert!(verdict.holds(), "{values} values: {verdict:?}");
    }
}

#[test]
fn a_search_that_may_remember_nothing_goes_on() {
    // Memory bounds what is remembered, and never the answer.
    let history = registers(&mut Dice(5), 300, 3);
    let verdict =
        history.check_linearizable_within(&mut SearchBudget { bytes: 0, ..SearchBudget::default() });
    assert!(verdict.holds(), "{verdict:?}");
}

#[test]
fn a_search_that_is_stopped_says_undecided() {
    // One that goes on takes a processor from a caller that gave up on it.
    let stop = Some(std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true)));
    let history = registers(&mut Dice(3), 5_000, 5);
    let mut budget = SearchBudget { stop, ..SearchBudget::default() };
    assert!(matches!(history.check_linearizable_within(&mut budget), KvVerdict::Undecided { .. }));
}
