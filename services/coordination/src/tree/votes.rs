//! Multis whose steps concern one node each: no step of one shard looks at what a step of another changes. Such a multi is not
//! executed by every shard that takes part, over the metas of all its nodes; each tries its own steps and votes.
//!
//! A vote is the shard's first refusal, or what its steps come to. All see all votes, and so all know whether every step has
//! succeeded, which refusal is the first, and what the user is answered.

use crate::tree::Znodes;
use crate::tree::execute::{refuse_multi, write_multi_header, write_result};
use crate::tree::meta::Meta;
use crate::tree::transaction::{Change, View, Writer, plan};
use crate::tree::watches::Notices;
use crate::wire::{Code, JuteInput, JuteOutput, Malformed, Update};
use kernel::Bytes;
use mason::Space;
use std::collections::BTreeMap;

/// This shard's nodes as its own earlier steps leave them.
struct Own<'a> {
    znodes: &'a Znodes,
    changed: BTreeMap<&'a str, Meta>,
}

impl View for Own<'_> {
    fn meta(&self, path: &str) -> Option<Meta> {
        self.changed.get(path).cloned().or_else(|| self.znodes.meta(path))
    }
}

/// About what a step's part of an answer takes.
const RESULT_BYTES: usize = 96;

impl Znodes {
    /// Tries this shard's steps. Returns their changes by position, and writes the vote: "fine" and each step's part of the answer, or
    /// the first refusal.
    pub(crate) fn vote<'a>(
        &self,
        updates: &'a [Update<'a>],
        writer: &Writer<'_>,
        vote: &mut Vec<u8>,
    ) -> Vec<(u32, Change<'a>)> {
        let mut own = Own { znodes: self, changed: BTreeMap::new() };
        let (began, mut changes) = (vote.len(), Vec::new());
        vote.reserve(updates.len() * RESULT_BYTES);
        vote.put_i32(Code::Ok.number());
        for (position, update) in (0..).zip(updates).filter(|(_, update)| self.owns(update.path())) {
            match plan(update, &own, writer) {
                Ok((change, outcome)) => {
                    vote.put_i32(position as i32);
                    let length_at = vote.len();
                    vote.put_i32(0);
                    write_result(&outcome, vote);
                    let length = (vote.len() - length_at - 4) as i32;
                    vote[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
                    if let Some(change) = change {
                        own.changed.extend(change.after.clone().map(|after| (update.path(), after)));
                        changes.push((position, change));
                    }
                }
                Err(code) => {
                    vote.truncate(began);
                    vote.put_i32(code.number());
                    vote.put_i32(position as i32);
                    return Vec::new();
                }
            }
        }
        changes
    }

    /// Executes this shard's steps if all have voted for it.
    pub(crate) fn execute_separable(
        &mut self,
        updates: &[Update<'_>],
        writer: &Writer<'_>,
        others: &[(Space, Bytes)],
        answer: &mut Vec<u8>,
        notices: &mut Notices,
    ) -> Result<(), Malformed> {
        let mut own = Vec::new();
        let changes = self.vote(updates, writer, &mut own);
        let mut results: Vec<&[u8]> = vec![&[]; updates.len()];
        let mut refused: Option<(usize, i32)> = None;
        for vote in others.iter().map(|(_, vote)| &**vote).chain([&*own]) {
            let mut input = JuteInput(vote);
            let code = input.i32()?;
            while !input.0.is_empty() {
                let position = input.i32()? as usize;
                if code != Code::Ok.number() {
                    refused = Some(refused.map_or((position, code), |known| known.min((position, code))));
                } else {
                    *results.get_mut(position).ok_or(Malformed)? = input.buffer()?.ok_or(Malformed)?;
                }
            }
        }
        answer.put_i32(Code::Ok.number());
        if let Some((position, code)) = refused {
            refuse_multi(updates.len(), position, code, answer);
        } else {
            answer.reserve(updates.len() * RESULT_BYTES);
            results.into_iter().for_each(|result| answer.extend_from_slice(result));
            for (position, change) in &changes {
                self.apply(change, others.is_empty(), *position, notices);
            }
        }
        write_multi_header(-1, true, -1, answer);
        Ok(())
    }
}
