//! What a shard answers to questions about more than one node, beside what the model has.

use super::tree::{Shown, Tree};
use super::{JudgedTree, code_of};
use coordination::wire::{JuteInput, Query, Stat, op};
use kernel::invariant;
use std::collections::BTreeSet;
use std::rc::Rc;

/// An answer begins with what it shows and a code.
const HEAD_BYTES: usize = 12;

impl JudgedTree {
    /// Held against the model where this server has executed all that any server of its shard has.
    pub(super) fn judge_survey(&self, query: &Query<'_>, answer: &[u8]) {
        if !self.is_newest() || code_of(answer) != Some(0) {
            return;
        }
        let body = JuteInput(answer.get(HEAD_BYTES..).unwrap_or_default());
        let tree = self.tree.0.borrow();
        let here = |path: &&str| self.owns(path);
        let is_right = match query {
            Query::Nodes { caller, reads } => {
                let wanted = reads.iter().map(|(opcode, path)| tree.shown(caller, *opcode, path));
                read_parts(body, reads).is_some_and(|parts| parts.into_iter().eq(wanted.map(answered)))
            }
            Query::Ephemerals { session, prefix } => {
                let owned = tree.owned().filter(|(owner, path)| *owner == session.0 && here(path));
                let wanted = owned.map(|(_, path)| path).filter(|path| path.starts_with(prefix));
                read_texts(body).is_some_and(|paths| paths.into_iter().eq(wanted))
            }
            Query::Owners { bytes_max } => {
                let wanted: BTreeSet<(u64, &str)> = tree.owned().filter(|(_, path)| here(path)).collect();
                let is_whole = answer.len() <= HEAD_BYTES + *bytes_max as usize;
                read_owners(body).is_some_and(|(left_out, given)| {
                    given.is_subset(&wanted)
                        && left_out == (given.len() < wanted.len())
                        && !(left_out && is_whole)
                })
            }
            Query::Descendants { path } => {
                let wanted = tree.below(path).filter(here).count() as u64;
                read_numbers(body) == Some(vec![wanted])
            }
            Query::Reapable { now, limit } => {
                let wanted: BTreeSet<&str> = tree.served(*now).filter(here).collect();
                let count = wanted.len().min(usize::from(*limit));
                read_texts(body).is_some_and(|paths| {
                    let given: BTreeSet<&str> = paths.iter().copied().collect();
                    paths.len() == count && given.len() == count && given.is_subset(&wanted)
                })
            }
            Query::Sizes => {
                let owned = tree.owned().filter(|(_, path)| here(path)).count() as u64;
                // Bytes of paths and of data.
                let (nodes, bytes) = tree.paths().filter(here).fold((0, 0), |(nodes, bytes), path| {
                    (nodes + 1, bytes + path.len() as u64 + tree.bytes(path))
                });
                read_numbers(body) == Some(vec![nodes, owned, bytes])
            }
            Query::Quotas { paths } => {
                let usage = |path: &&str| {
                    let within = tree.below(path).chain(tree.paths().filter(|at| at == path)).filter(here);
                    within.fold([0, 0], |[nodes, bytes], at| [nodes + 1, bytes + tree.bytes(at)])
                };
                read_usage(body) == Some(paths.iter().flat_map(usage).collect())
            }
            Query::Node { .. } | Query::SetWatches { .. } | Query::Forget { .. } => return,
        };
        invariant!(
            LIN,
            is_right,
            "shard {} answers {query:?} with {answer:?}, and the model does otherwise",
            self.space
        );
    }
}

type Part = Result<(Option<Rc<[u8]>>, Option<Stat>, Vec<String>), i32>;

fn answered(shown: Result<Shown, coordination::wire::Code>) -> Part {
    let Shown { stat, data, names, .. } = shown.map_err(coordination::wire::Code::number)?;
    Ok((data, Some(stat), names))
}

/// A frame for each of several reads.
fn read_parts(mut input: JuteInput<'_>, reads: &[(i32, &str)]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for &(opcode, _) in reads {
        let part = input.buffer().ok()??;
        let mut part = JuteInput(part);
        let (kind, is_end, code) = (part.i32().ok()?, part.bool().ok()?, part.i32().ok()?);
        if is_end || kind != opcode && kind != op::ERROR {
            return None;
        }
        parts.push(match kind {
            op::ERROR => Err(part.i32().ok().filter(|again| *again == code)?),
            op::GET_DATA => {
                let data = part.buffer().ok()?.map(Rc::from);
                Ok((data, Some(Stat::read(&mut part).ok()?), Vec::new()))
            }
            _ => {
                let mut names: Vec<String> = part.texts().ok()?.into_iter().map(str::to_owned).collect();
                names.sort_unstable();
                Ok((None, Some(Stat::default()), names))
            }
        });
    }
    input.0.is_empty().then_some(parts)
}

fn read_texts(mut input: JuteInput<'_>) -> Option<Vec<&str>> {
    let mut texts = Vec::new();
    while !input.0.is_empty() {
        texts.push(input.text().ok()?);
    }
    Some(texts)
}

fn read_numbers(mut input: JuteInput<'_>) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    while !input.0.is_empty() {
        numbers.push(input.u64().ok()?);
    }
    Some(numbers)
}

/// Whether some were left out, and the others.
fn read_owners(mut input: JuteInput<'_>) -> Option<(bool, BTreeSet<(u64, &str)>)> {
    let left_out = input.bool().ok()?;
    let mut owners = BTreeSet::new();
    while !input.0.is_empty() {
        owners.insert((input.u64().ok()?, input.text().ok()?));
    }
    Some((left_out, owners))
}

/// The numbers that stand behind the limits.
fn read_usage(mut input: JuteInput<'_>) -> Option<Vec<u64>> {
    for _ in 0..input.i32().ok()? {
        input.text().ok()?;
        input.buffer().ok()?;
    }
    read_numbers(input)
}

impl Tree {
    /// Sessions and their nodes, by path.
    fn owned(&self) -> impl Iterator<Item = (u64, &str)> {
        self.paths().filter_map(|path| Some((self.owner(path)?, path)))
    }

    fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a str> {
        let above = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        self.paths().filter(move |at| at.len() > above.len() && at.starts_with(&above))
    }
}
