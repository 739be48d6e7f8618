//! Requests that users seldom make, in a quarter of the seeds: surveys of all shards, whole subtrees, and watches that are taken away.

use super::checks::{FLEETING, LASTING, QUEUE};
use super::user::User;
use super::words::{Ask, Watched};
use coordination::wire::{JuteOutput, op};
use kernel::Rng;

/// Below these, surveys look.
const ROOTS: [&str; 4] = ["/", "/g0", "/g1", QUEUE];
/// Subtrees that come and go as a whole.
const MOVING: [&str; 4] = ["/g0/a", "/g0/b", "/g1/a", "/g1"];

fn one_of<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.index(of.len())]
}

fn judged(opcode: i32, texts: &[&str], writes: bool) -> Ask {
    let mut body = Vec::new();
    texts.iter().for_each(|text| body.put_text(text));
    if writes {
        // As many nodes as the service takes.
        body.put_i32(0);
    }
    Ask::Judged { opcode, body, writes }
}

/// One more request behind those of an operation.
pub(crate) fn draw(user: &User, rng: &mut Rng) -> Ask {
    match rng.below(8) {
        0 => judged(op::GET_EPHEMERALS, &[one_of(&["/", "/e", "/g"], rng)], false),
        1 => judged(op::GET_ALL_CHILDREN_NUMBER, &[one_of(&ROOTS, rng)], false),
        2 => judged(op::WHO_AM_I, &[], false),
        3 => judged(op::REMOVE_RECURSIVE, &[one_of(&MOVING, rng)], true),
        4 => judged(op::RENAME, &[one_of(&MOVING, rng), one_of(&MOVING, rng)], true),
        _ => {
            let kind = one_of(&[Watched::Data, Watched::Children], rng);
            let watched = user.watches.keys().nth(rng.index(user.watches.len() + 1));
            let (kind, path) = watched.cloned().unwrap_or_else(|| {
                (kind, one_of(if rng.chance(0.5) { &LASTING[..] } else { &FLEETING[..] }, rng).to_owned())
            });
            Ask::Unwatch { path, kind, removes: rng.chance(0.7) }
        }
    }
}
