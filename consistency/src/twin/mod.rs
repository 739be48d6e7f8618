//! The checker's dumb twin: the definitions of the models, tried order by order on small random histories.

mod agreement;
mod brute;
mod weak;

use crate::dice::Dice;
use crate::history::{Draft, History, Timestamp};
use crate::{Level, Process, Time, Value, Version};

/// What a random history is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Registers with unique values and nothing else: orders must be found.
    Blind,
    /// Registers whose service returns versions.
    Timestamped,
    /// Lists.
    Lists,
}

/// How a random history is truncated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// One access an operation.
    pub(crate) single: bool,
    pub(crate) operations_max: usize,
}

const KEYS: [&str; 2] = ["x", "y"];

#[derive(Clone, Debug)]
struct Sketch {
    process: u64,
    invoke: u64,
    complete: u64,
    fate: u8,
    fence: bool,
    level: Level,
    as_of: Option<Version>,
    service: usize,
    /// (key, writes)
    accesses: Vec<(usize, bool)>,
}

/// A random history: about half of them break some model.
pub(crate) fn random_history(dice: &mut Dice, shape: Shape) -> History {
    let sketches = sketch(dice, shape);
    let mut history = History::new().with_initial(0);
    // The hidden order of each key's writes, which timestamps report and lists show; values name their writer.
    let mut orders: Vec<Vec<i64>> = vec![Vec::new(); KEYS.len()];
    for (index, sketch) in sketches.iter().enumerate() {
        for (at, (key, writes)) in sketch.accesses.iter().enumerate() {
            if *writes {
                let order = &mut orders[*key];
                // Mostly in the order of invocation, so that many histories hold.
                let position = if dice.once_in(3) { dice.below(order.len() + 1) } else { order.len() };
                order.insert(position, (index * 10 + at + 1) as i64);
            }
        }
    }
    for (index, sketch) in sketches.iter().enumerate() {
        history.add(operation(dice, shape.kind, index, sketch, &sketches, &orders));
    }
    for message in 0..dice.below(3) as i64 {
        let from = dice.below(20) as u64;
        let until = from + dice.below(8) as u64;
        history.send(Process(dice.below(4) as u64), Time(from), message);
        history.receive(Process(dice.below(4) as u64), Time(until), message);
    }
    history
}

fn sketch(dice: &mut Dice, shape: Shape) -> Vec<Sketch> {
    let count = 2 + dice.below(shape.operations_max - 1);
    let mut sketches: Vec<Sketch> = Vec::new();
    let mut clock = [0u64; 4];
    let mut ended = [false; 4];
    for _ in 0..count {
        let process = dice.below(4);
        if ended[process] {
            continue;
        }
        let invoke = clock[process] + 1 + dice.below(6) as u64;
        let complete = invoke + dice.below(8) as u64;
        clock[process] = complete;
        let fate = if dice.once_in(7) { 2 } else { u8::from(dice.once_in(14)) };
        ended[process] = fate == 2;
        let fence = dice.once_in(12);
        let accesses = match (fence, shape.single) {
            (true, _) => Vec::new(),
            (false, true) => vec![(dice.below(2), dice.once_in(2))],
            (false, false) => (0..1 + dice.below(3)).map(|_| (dice.below(2), dice.once_in(2))).collect(),
        };
        let service = accesses.first().map_or(dice.below(2), |(key, _)| *key);
        let level = Level::ALL[dice.below(Level::ALL.len())];
        let reads_alone = accesses.iter().all(|(_, writes)| !writes);
        let as_of = (reads_alone && dice.once_in(3)).then(|| Version(dice.below(5) as u64));
        let process = process as u64;
        sketches.push(Sketch { process, invoke, complete, fate, fence, level, as_of, service, accesses });
    }
    sketches.sort_by_key(|sketch| sketch.invoke);
    sketches
}

fn operation(
    dice: &mut Dice,
    kind: Kind,
    index: usize,
    sketch: &Sketch,
    sketches: &[Sketch],
    orders: &[Vec<i64>],
) -> Draft {
    let mut draft = Draft::new(Process(sketch.process), Time(sketch.invoke), Time(sketch.complete));
    // What this operation has itself done to each key.
    let mut own: Vec<Vec<i64>> = vec![Vec::new(); KEYS.len()];
    let mut read: Vec<Option<Vec<i64>>> = vec![None; KEYS.len()];
    for (at, (key, writes)) in sketch.accesses.iter().enumerate() {
        let name = KEYS[*key];
        let value = (index * 10 + at + 1) as i64;
        let others: Vec<i64> =
            orders[*key].iter().copied().filter(|value| *value as usize / 10 != index).collect();
        if *writes {
            own[*key].push(value);
            draft = match kind {
                Kind::Lists => draft.append(name, value),
                Kind::Blind => draft.write(name, value),
                Kind::Timestamped if sketch.fate == 2 => draft.write(name, value),
                Kind::Timestamped => draft.write(name, value).timestamped(timestamp(orders, *key, value)),
            };
            continue;
        }
        if kind == Kind::Lists {
            let prefix = read[*key].clone().unwrap_or_else(|| {
                let mut prefix = others[..dice.below(others.len() + 1)].to_vec();
                // Whole transactions, and rarely what failed; sometimes spoiled.
                prefix.retain(|value| sketches[*value as usize / 10].fate != 1 || dice.once_in(20));
                if prefix.len() > 1 && dice.once_in(40) {
                    prefix.swap(0, 1);
                }
                prefix
            });
            read[*key] = Some(prefix.clone());
            let list: Vec<i64> = prefix.into_iter().chain(own[*key].iter().copied()).collect();
            draft = draft.read_list(name, list.into_iter().map(Value::Int));
            continue;
        }
        let seen = own[*key].last().copied().or(read[*key].as_ref().map(|seen| seen[0])).unwrap_or_else(
            || match dice.below(others.len() + 1) {
                0 => 0,
                at => others[at - 1],
            },
        );
        read[*key] = Some(vec![seen]);
        draft = draft.read(name, seen);
        if kind == Kind::Timestamped && seen != 0 {
            draft = draft.timestamped(timestamp(orders, *key, seen));
        }
    }
    draft = draft.at_service(sketch.service as i64).at_level(sketch.level);
    if let Some(as_of) = sketch.as_of {
        draft = draft.as_of(as_of);
    }
    if sketch.fence {
        draft = draft.fence();
    }
    match sketch.fate {
        0 => draft,
        1 => draft.failed(),
        _ => draft.unknown(),
    }
}

fn timestamp(orders: &[Vec<i64>], key: usize, value: i64) -> Timestamp {
    let rank = orders[key].iter().position(|known| *known == value).unwrap_or(0);
    Timestamp::version(rank as u64 + 1)
}
