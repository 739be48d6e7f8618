//! Histories of a strictly serializable store, for measuring the checker:
//! `generate_history lists|versions|register|kv OPERATIONS [SEED] > history.jsonl`, or `porcupine` for a JSON array
//! of register operations, of which odd seeds make one in a few hundred reads stale, or `cas OPERATIONS [SEED] [KEYS]
//! [VALUES]` for compare-and-set registers of few values, where 3 % of the calls never return.
//!
//! Every operation takes effect at one instant inside its interval; twenty clients overlap.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

/// Writes per key before a fresh key follows it, as Jepsen's generators do.
const WRITES_PER_KEY: u64 = 64;
const KEYS: u64 = 10;
const CLIENTS: u64 = 20;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|kind| kind == "porcupine") {
        return porcupine(&arguments);
    }
    if arguments.first().is_some_and(|kind| kind == "cas") {
        return compare_and_set(&arguments);
    }
    let kind = arguments.first().map_or("lists", |kind| kind);
    let count: u64 = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let mut dice = Dice(arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1));
    let mut out = BufWriter::new(io::stdout().lock());
    let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut written: Vec<u64> = vec![0; KEYS as usize];
    writeln!(out, "{{\"ordinate\":\"history\",\"format\":1}}")?;
    for operation in 0..count {
        // Effects are 100 apart; intervals reach up to nine effects to either side, never into the client's next.
        let effect = 2_000 + operation * 100;
        let (call, end) = (effect - dice.below(950), effect + dice.below(950));
        let client = operation % CLIENTS;
        let accesses = if kind == "register" || kind == "kv" { 1 } else { 1 + dice.below(4) };
        let mut parts: Vec<String> = Vec::new();
        for part in 0..accesses {
            let slot = dice.below(KEYS) as usize;
            if written[slot] % WRITES_PER_KEY == WRITES_PER_KEY - 1 && kind != "register" && kind != "kv" {
                written[slot] += KEYS * WRITES_PER_KEY;
            }
            let key = slot as u64 + written[slot] / WRITES_PER_KEY * KEYS;
            let list = lists.entry(key).or_default();
            let value = operation * 8 + part + 1;
            let writes = dice.below(2) == 0;
            if writes {
                list.push(value);
                written[slot] += u64::from(kind != "register" && kind != "kv");
            }
            let held = list.last().map_or("null".to_owned(), u64::to_string);
            let version = list.len();
            parts.push(match (kind, writes) {
                ("lists", true) => format!("[\"append\",{key},{value}]"),
                ("lists", false) => format!("[\"r\",{key},{list:?}]").replace(", ", ","),
                ("versions", true) => format!("[\"w\",{key},{value},{version}]"),
                ("versions", false) => format!("[\"r\",{key},{held},{version}]"),
                ("kv", true) => {
                    format!("\"f\":\"put\",\"key\":{key},\"value\":{value},\"version\":{version}")
                }
                ("kv", false) => {
                    format!("\"f\":\"get\",\"key\":{key},\"output\":{held},\"version\":{version}")
                }
                (_, true) => format!("\"f\":\"write\",\"key\":{key},\"value\":{value}"),
                (_, false) => format!("\"f\":\"read\",\"key\":{key},\"value\":{held}"),
            });
        }
        let body = match kind {
            "register" | "kv" => parts.join(","),
            _ => format!("\"f\":\"txn\",\"value\":[{}]", parts.join(",")),
        };
        writeln!(out, "{{\"client\":{client},{body},\"call\":{call},\"return\":{end}}}")?;
    }
    writeln!(out, "{{\"end\":{count}}}")?;
    out.flush()
}

/// Reads and writes of three registers by ten clients; every write has a value of its own, one in thirty never
/// returns, and takes effect late or not at all.
fn porcupine(arguments: &[String]) -> io::Result<()> {
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (count, seed): (u64, u64) = (number(1, 200), number(2, 1));
    let mut dice = Dice(seed);
    let mut held: Vec<Vec<u64>> = vec![Vec::new(); 3];
    let never = 10_000 + count * 100;
    let mut lines = Vec::new();
    // Writes that never return go on as clients of their own.
    let mut lost = 0;
    for operation in 0..count {
        let effect = 2_000 + operation * 100;
        let (call, end) = (effect - dice.below(450), effect + dice.below(450));
        let key = dice.below(3) as usize;
        let stale = seed % 2 == 1 && dice.below(300) == 0;
        if dice.below(2) == 0 {
            let vanishes = dice.below(30) == 0;
            if !vanishes || dice.below(2) == 0 {
                held[key].push(operation);
            }
            lost += u64::from(vanishes);
            let (client, end) = if vanishes { (10 + lost, never) } else { (operation % 10, end) };
            lines.push(format!(
                "{{\"ClientId\":{client},\"Input\":{{\"op\":\"put\",\"key\":{key},\"value\":{operation}}},\"Call\":{call},\
                 \"Output\":null,\"Return\":{end}}}"
            ));
            continue;
        }
        let back = if stale { 1 + dice.below(6) as usize } else { 0 };
        let seen = held[key].iter().rev().nth(back).map_or("null".to_owned(), u64::to_string);
        lines.push(format!(
            "{{\"ClientId\":{},\"Input\":{{\"op\":\"get\",\"key\":{key},\"value\":null}},\"Call\":{call},\
             \"Output\":{seen},\"Return\":{end}}}",
            operation % 10,
        ));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "[{}]", lines.join(",\n"))?;
    out.flush()
}

/// Gets, puts and compare-and-sets by ten clients; who never hears an answer goes on as another client.
fn compare_and_set(arguments: &[String]) -> io::Result<()> {
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (count, keys, values): (u64, u64, u64) = (number(1, 1000), number(3, 1), number(4, 5));
    let mut dice = Dice(number(2, 1));
    let mut held: Vec<Option<u64>> = vec![None; keys as usize];
    let mut clients: Vec<u64> = (0..10).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{{\"ordinate\":\"history\",\"format\":1}}")?;
    let text = |value: Option<u64>| value.map_or("null".to_owned(), |value| value.to_string());
    for operation in 0..count {
        let effect = 2_000 + operation * 100;
        let (call, end) = (effect - dice.below(450), effect + dice.below(450));
        let (key, value) = (dice.below(keys) as usize, dice.below(values));
        let slot = (operation % 10) as usize;
        let client = clients[slot];
        let vanishes = dice.below(100) < 3;
        // Half of the calls without an answer take effect.
        let effective = !vanishes || dice.below(2) == 0;
        let before = held[key];
        let (what, answered) = match dice.below(5) {
            0 => (format!("\"f\":\"get\",\"output\":{}", text(before)), true),
            1 => {
                held[key] = if effective { Some(value) } else { before };
                (format!("\"f\":\"put\",\"value\":{value}"), true)
            }
            _ => {
                let expected = if dice.below(2) == 0 { before } else { Some(dice.below(values)) };
                let meets = expected == before;
                held[key] = if meets && effective { Some(value) } else { before };
                let expected = text(expected);
                (format!("\"f\":\"cas\",\"expected\":{expected},\"value\":{value}"), meets)
            }
        };
        let fate = match (vanishes, answered) {
            (true, _) => "\"type\":\"info\"".to_owned(),
            (false, true) => format!("\"type\":\"ok\",\"return\":{end}"),
            (false, false) => format!("\"type\":\"fail\",\"return\":{end}"),
        };
        if vanishes {
            clients[slot] = 10 + operation;
        }
        writeln!(out, "{{\"client\":{client},\"key\":{key},{what},\"call\":{call},{fate}}}")?;
    }
    writeln!(out, "{{\"end\":{count}}}")?;
    out.flush()
}
