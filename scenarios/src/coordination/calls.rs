//! Calls that no history records: versions, lists of who may do what, nodes that end by themselves, steps of all kinds. Each answer is held
//! against the model (`judged`).

use super::words::{Ask, EPHEMERAL, SEQUENTIAL, put_step_head, put_steps_end};
use coordination::wire::{JuteOutput, op};
use kernel::Rng;
use std::collections::VecDeque;

const PARENTS: [&str; 2] = ["/g0", "/g1"];
/// Nodes below them, and of one, which may be ephemeral, a child.
const BELOW: [&str; 5] = ["/g0/a", "/g0/a/x", "/g0/b", "/g1/a", "/g1/b"];
const CONTAINER: i32 = 4;
const TTL: i32 = 5;
const VALUE_BYTES_MAX: usize = 16;
/// What everybody may do by a list: all; all but write; all but make and delete children; read.
const LISTS: [i32; 4] = [31, 13, 19, 1];

fn one_of<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.index(of.len())]
}

/// True for nodes that these calls alone write.
pub(crate) fn are_judged(path: &str) -> bool {
    PARENTS.iter().any(|parent| path.starts_with(parent))
}

fn any_path(rng: &mut Rng) -> &'static str {
    if rng.chance(0.3) { one_of(&PARENTS, rng) } else { one_of(&BELOW, rng) }
}

/// Some calls, and whether all are sent at once.
pub(crate) fn draw(value: &str, rng: &mut Rng) -> (VecDeque<Ask>, bool) {
    // Steps are many, and one operation has room for two large values.
    let value = value.get(..VALUE_BYTES_MAX).unwrap_or(value);
    let asks: VecDeque<Ask> = (0..rng.between(1, 5)).map(|_| ask(value, rng)).collect();
    (asks, rng.chance(0.2))
}

fn ask(value: &str, rng: &mut Rng) -> Ask {
    let (path, watch) = (any_path(rng).to_owned(), rng.chance(0.5));
    match rng.below(20) {
        18 | 19 => quota(rng.chance(0.7), rng),
        16 => family(true, value, rng),
        17 => family(false, value, rng),
        0 => Ask::Exists { path, watch },
        1 => Ask::Get { path, watch },
        2 | 3 => Ask::Children { path, watch },
        4 => {
            let mut body = Vec::new();
            body.put_text(&path);
            Ask::Judged { opcode: op::GET_ACL, body, writes: false }
        }
        5 | 6 => {
            let mut body = Vec::new();
            body.put_text(one_of(&BELOW, rng));
            put_list(one_of(&LISTS, rng), &mut body);
            body.put_i32(version(rng));
            Ask::Judged { opcode: op::SET_ACL, body, writes: true }
        }
        7..=9 => {
            let mut body = Vec::new();
            for _ in 0..rng.between(1, 4) {
                let (opcode, step) = step(value, true, rng);
                put_step_head(opcode, &mut body);
                body.extend(step);
            }
            put_steps_end(&mut body);
            Ask::Judged { opcode: op::MULTI, body, writes: true }
        }
        _ => {
            let (opcode, body) = step(value, false, rng);
            Ask::Judged { opcode, body, writes: true }
        }
    }
}

/// A parent and its children come or go at once.
fn family(comes: bool, value: &str, rng: &mut Rng) -> Ask {
    let parent = one_of(&PARENTS, rng);
    let below = BELOW.iter().copied().filter(|path| path.starts_with(parent) && rng.chance(0.7));
    let mut paths: Vec<&str> = [parent].into_iter().chain(below).collect();
    if !comes {
        paths.reverse();
    }
    all_at_once(comes, paths, value.as_bytes())
}

/// A quota on a parent, which gateways have counted while it lasts: it comes, or goes.
fn quota(comes: bool, rng: &mut Rng) -> Ask {
    let of = format!("/zookeeper/quota{}", one_of(&PARENTS, rng));
    let limits = format!("{of}/zookeeper_limits");
    let paths = if comes { [&of[..], &limits] } else { [&limits[..], &of] };
    all_at_once(comes, paths, b"count=4,bytes=40")
}

/// These nodes come or go at once, in this order.
fn all_at_once<'a>(comes: bool, paths: impl IntoIterator<Item = &'a str>, value: &[u8]) -> Ask {
    let mut body = Vec::new();
    for path in paths {
        put_step_head(if comes { op::CREATE } else { op::DELETE }, &mut body);
        body.put_text(path);
        if comes {
            body.put_buffer(Some(value));
            put_list(LISTS[0], &mut body);
            body.put_i32(0);
        } else {
            body.put_i32(-1);
        }
    }
    put_steps_end(&mut body);
    Ask::Judged { opcode: op::MULTI, body, writes: true }
}

fn version(rng: &mut Rng) -> i32 {
    one_of(&[-1, -1, 0, 1, 2], rng)
}

/// One write: its opcode and its body.
fn step(value: &str, of_multi: bool, rng: &mut Rng) -> (i32, Vec<u8>) {
    let mut body = Vec::new();
    match rng.below(10) {
        0..=3 => {
            let top = rng.chance(0.4);
            body.put_text(if top { one_of(&PARENTS, rng) } else { one_of(&BELOW, rng) });
            body.put_buffer(rng.chance(0.8).then_some(value.as_bytes()));
            put_list(if top { LISTS[0] } else { one_of(&LISTS, rng) }, &mut body);
            let flags = if top { 0 } else { one_of(&[0, 0, EPHEMERAL, SEQUENTIAL, CONTAINER, TTL], rng) };
            body.put_i32(flags);
            if flags == TTL {
                body.put_i64(rng.between(100, 3_000) as i64);
                return (op::CREATE_TTL, body);
            }
            (
                if flags == CONTAINER {
                    op::CREATE_CONTAINER
                } else {
                    one_of(&[op::CREATE, op::CREATE2], rng)
                },
                body,
            )
        }
        4..=6 => {
            body.put_text(any_path(rng));
            body.put_i32(version(rng));
            (op::DELETE, body)
        }
        7 if of_multi => {
            body.put_text(any_path(rng));
            body.put_i32(version(rng));
            (op::CHECK, body)
        }
        _ => {
            body.put_text(any_path(rng));
            body.put_buffer(rng.chance(0.8).then_some(value.as_bytes()));
            body.put_i32(version(rng));
            (op::SET_DATA, body)
        }
    }
}

fn put_list(permissions: i32, out: &mut Vec<u8>) {
    out.put_count(1);
    out.put_i32(permissions);
    out.put_text("world");
    out.put_text("anyone");
}
