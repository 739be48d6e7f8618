//! Executing operations: alone where one shard knows everything, over the inputs of others where not.

use crate::tree::Znodes;
use crate::tree::meta::{Kind, Meta};
use crate::tree::transaction::{Change, Outcome, View, Writer, are_separable, plan, removal};
use crate::tree::watches::Notices;
use crate::wire::{
    Body, Code, JuteInput, JuteOutput, Malformed, Update, WriteHead, WriteOperation, ZkSessionId, op,
    parent_of, sequential_name,
};
use kernel::{Bytes, planted};
use mason::{Order, Space};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What an operation can know: this shard's nodes, what others said of theirs (a node that they do not name is not there),
/// and what its own earlier steps have changed.
struct Known<'a> {
    own: &'a Znodes,
    others: BTreeMap<&'a str, Meta>,
    changed: BTreeMap<String, Option<Meta>>,
}

impl View for Known<'_> {
    fn meta(&self, path: &str) -> Option<Meta> {
        if !self.changed.is_empty()
            && let Some(meta) = self.changed.get(path)
        {
            return meta.clone();
        }
        if self.own.owns(path) { self.own.table.meta(path) } else { self.others.get(path).cloned() }
    }
}

/// One shard knows all that the operation needs.
impl View for Znodes {
    fn meta(&self, path: &str) -> Option<Meta> {
        self.table.meta(path)
    }
}

impl Znodes {
    /// Writes the metas of the nodes of this shard that the operation names, or will name; or a vote, where that will do.
    pub(crate) fn write_inputs(&self, body: &[u8], order: &Order, out: &mut Vec<u8>) {
        match Body::read(body) {
            Ok(Body::Write { head, request }) => match head.operation(request) {
                Ok(WriteOperation::Multi(updates)) if are_separable(&updates) => {
                    self.vote(&updates, &writer_of(&head, order), out);
                }
                Ok(operation) => self.write_metas(self.named(&operation), out),
                Err(Malformed) => {}
            },
            Ok(Body::Reap { path }) => {
                let named = [Some(path), parent_of(path)].into_iter().flatten();
                self.write_metas(named.map(Cow::Borrowed).collect(), out);
            }
            Ok(Body::CleanUp { session, .. }) => {
                let graves = self.graves(session);
                let abroad =
                    graves.iter().filter(|path| parent_of(path).is_some_and(|above| !self.owns(above)));
                abroad.for_each(|path| out.put_text(path));
            }
            // One shard knows all of it.
            Ok(Body::Advertise { .. }) => {}
            // The beginning and end of sessions concerns no shard.
            Ok(Body::Open { .. } | Body::Attach { .. } | Body::Touch { .. } | Body::Close { .. })
            | Err(Malformed) => {}
        }
    }

    fn write_metas(&self, paths: BTreeSet<Cow<'_, str>>, out: &mut Vec<u8>) {
        for path in paths.iter().filter(|path| self.owns(path)) {
            if let Some(meta) = self.table.meta(path) {
                out.put_text(path);
                meta.write(out);
            }
        }
    }

    /// Every path that the operation may look at. The number of a sequential node is known here: a step is tried only after
    /// all before it have succeeded, so each create before it has advanced its parent's counter.
    fn named<'a>(&self, operation: &WriteOperation<'a>) -> BTreeSet<Cow<'a, str>> {
        let mut paths: BTreeSet<Cow<'a, str>> = BTreeSet::new();
        let mut created: BTreeMap<&str, i32> = BTreeMap::new();
        for update in operation.updates() {
            let path = update.path();
            let parent = parent_of(path);
            match update {
                Update::Create(create) => {
                    let Some(parent) = parent else { continue };
                    let before = created.entry(parent).or_default();
                    if !create.is_sequential() {
                        paths.insert(path.into());
                    } else if let Some(meta) = self.owns(parent).then(|| self.table.meta(parent)).flatten() {
                        paths.insert(sequential_name(path, meta.creates.wrapping_add(*before)).into());
                    }
                    *before = before.wrapping_add(1);
                    paths.insert(parent.into());
                }
                Update::Delete { .. } | Update::Restore(_) => {
                    paths.extend(parent.into_iter().chain([path]).map(Cow::Borrowed))
                }
                Update::SetData { .. }
                | Update::SetAcl { .. }
                | Update::Check { .. }
                | Update::CheckSame { .. } => {
                    paths.insert(path.into());
                }
            }
        }
        paths
    }

    /// The session's ephemeral nodes that live here, in the order of their paths.
    pub(crate) fn graves(&self, session: ZkSessionId) -> Vec<&str> {
        let owned = self.ephemerals.get(&session).into_iter().flatten();
        let mut paths: Vec<&str> =
            owned.filter_map(|&index| self.table.at(index)).map(|node| node.path()).collect();
        paths.sort_unstable();
        paths
    }

    /// All sessions and their ephemeral nodes that live here, until `out` is longer than `len_max`; a byte before them
    /// says whether that left some out.
    pub(crate) fn write_owners(&self, len_max: usize, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        for (session, owned) in &self.ephemerals {
            for node in owned.iter().filter_map(|&index| self.table.at(index)) {
                if out.len() > len_max {
                    out[at] = 1;
                    return;
                }
                out.put_u64(session.0);
                out.put_text(node.path());
            }
        }
    }

    pub(crate) fn execute_body(
        &mut self,
        body: &Bytes,
        order: &Order,
        others: &[(Space, Bytes)],
        answer: &mut Vec<u8>,
        notices: &mut Notices,
    ) {
        let executed = match Body::read(body) {
            Ok(Body::Write { head, request }) => {
                self.execute_write(&head, request, order, others, answer, notices)
            }
            Ok(Body::CleanUp { session, .. }) => self.clean_up(session, order, others, notices),
            Ok(Body::Reap { path }) => self.reap(path, order, others, notices),
            Ok(Body::Advertise { host, line, members }) => {
                self.advertise((host, line), &members, order, notices);
                Ok(())
            }
            Ok(Body::Open { .. } | Body::Attach { .. } | Body::Touch { .. } | Body::Close { .. })
            | Err(Malformed) => Err(Malformed),
        };
        if executed == Err(Malformed) {
            answer.clear();
            answer.put_i32(Code::MarshallingError.number());
        }
    }

    fn execute_write(
        &mut self,
        head: &WriteHead<'_>,
        request: &[u8],
        order: &Order,
        others: &[(Space, Bytes)],
        answer: &mut Vec<u8>,
        notices: &mut Notices,
    ) -> Result<(), Malformed> {
        let operation = head.operation(request)?;
        let writer = writer_of(head, order);
        match &operation {
            WriteOperation::Single(update) => {
                let planned = if others.is_empty() {
                    plan(update, self, &writer)
                } else {
                    plan(update, &self.known(others)?, &writer)
                };
                match planned {
                    Ok((change, outcome)) => {
                        answer.put_i32(Code::Ok.number());
                        write_outcome(&outcome, answer);
                        if let Some(change) = change {
                            self.apply(&change, others.is_empty(), 0, notices);
                        }
                    }
                    Err(code) => answer.put_i32(code.number()),
                }
            }
            WriteOperation::Multi(updates) if are_separable(updates) => {
                self.execute_separable(updates, &writer, others, answer, notices)?;
            }
            WriteOperation::Multi(updates) => {
                let changes = plan_multi(updates, self.known(others)?, &writer, answer);
                for (position, change) in &changes {
                    self.apply(change, others.is_empty(), *position, notices);
                }
            }
        }
        Ok(())
    }

    fn known<'a>(&'a self, others: &'a [(Space, Bytes)]) -> Result<Known<'a>, Malformed> {
        let mut known = Known { own: self, others: BTreeMap::new(), changed: BTreeMap::new() };
        for (_, bytes) in others {
            let mut input = JuteInput(bytes);
            while !input.0.is_empty() {
                let path = input.text()?;
                known.others.insert(path, Meta::read(&mut input, self.table.acls.open())?);
            }
        }
        Ok(known)
    }

    /// Every shard where the session made ephemeral nodes, or their parents are, takes its part; all under one global sequence number.
    fn clean_up(
        &mut self,
        session: ZkSessionId,
        order: &Order,
        others: &[(Space, Bytes)],
        notices: &mut Notices,
    ) -> Result<(), Malformed> {
        let mut paths: Vec<String> = self.graves(session).into_iter().map(str::to_owned).collect();
        for (_, bytes) in others {
            let mut input = JuteInput(bytes);
            while !input.0.is_empty() {
                paths.push(input.text()?.to_owned());
            }
        }
        paths.sort_unstable();
        for (position, path) in paths.iter().enumerate() {
            let parent =
                parent_of(path).filter(|above| self.owns(above)).and_then(|above| self.table.meta(above));
            let before = if self.owns(path) { self.table.meta(path) } else { None };
            let unlisted = !planted!(ended_ephemeral_stays_listed);
            let parent = parent.filter(|_| unlisted).map(|meta| Meta {
                pzxid: order.gsn.0,
                children: meta.children.saturating_sub(1),
                ..meta
            });
            let announced = !planted!(ephemeral_deletion_not_announced);
            let event = announced.then_some(crate::wire::EventKind::Deleted);
            let change = Change { path: path.into(), event, before, after: None, data: None, parent };
            self.apply(&change, others.is_empty(), position as u32, notices);
        }
        Ok(())
    }

    fn reap(
        &mut self,
        path: &str,
        order: &Order,
        others: &[(Space, Bytes)],
        notices: &mut Notices,
    ) -> Result<(), Malformed> {
        let known = self.known(others)?;
        let (meta, parent) = (known.meta(path), parent_of(path).and_then(|above| known.meta(above)));
        if let (Some(meta), Some(parent)) = (meta, parent)
            && matches!(meta.kind, Kind::Container | Kind::Ttl(_))
            && meta.has_served(order.time)
        {
            self.apply(&removal(path, meta, parent, order.gsn.0), others.is_empty(), 0, notices);
        }
        Ok(())
    }
}

fn writer_of<'a>(head: &'a WriteHead<'a>, order: &Order) -> Writer<'a> {
    Writer {
        caller: &head.caller,
        session: head.session,
        ttl_allowed: head.ttl_allowed,
        gsn: order.gsn.0,
        time: order.time,
    }
}

/// Tries the steps one after the other, each on what those before it leave. All succeed, or nothing is changed.
fn plan_multi<'a>(
    updates: &[Update<'a>],
    mut known: Known<'_>,
    writer: &Writer<'_>,
    answer: &mut Vec<u8>,
) -> Vec<(u32, Change<'a>)> {
    // The header says "fine" even when the multi has failed.
    answer.put_i32(Code::Ok.number());
    let (at, mut changes) = (answer.len(), Vec::new());
    for (position, update) in updates.iter().enumerate() {
        match plan(update, &known, writer) {
            Ok((change, outcome)) => {
                write_result(&outcome, answer);
                if let Some(change) = change {
                    if let (Some(parent), Some(above)) = (&change.parent, parent_of(&change.path)) {
                        known.changed.insert(above.to_owned(), Some(parent.clone()));
                    }
                    known.changed.insert(change.path.clone().into_owned(), change.after.clone());
                    changes.push((position as u32, change));
                }
            }
            Err(code) => {
                answer.truncate(at);
                refuse_multi(updates.len(), position, code.number(), answer);
                if !planted!(refused_multi_half_done) || known.others.is_empty() {
                    changes.clear();
                }
                break;
            }
        }
    }
    write_multi_header(-1, true, -1, answer);
    changes
}

/// The answer to a multi of which one step is refused.
pub(crate) fn refuse_multi(steps: usize, refused: usize, code: i32, answer: &mut Vec<u8>) {
    for step in 0..steps {
        let code = match step.cmp(&refused) {
            std::cmp::Ordering::Less => Code::Ok.number(),
            std::cmp::Ordering::Equal => code,
            std::cmp::Ordering::Greater => Code::RuntimeInconsistency.number(),
        };
        write_multi_header(op::ERROR, false, code, answer);
        answer.put_i32(code);
    }
}

pub(crate) fn write_multi_header(kind: i32, done: bool, error: i32, out: &mut Vec<u8>) {
    out.put_i32(kind);
    out.push(u8::from(done));
    out.put_i32(error);
}

fn write_outcome(outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    match outcome {
        Outcome::Created(path, meta) => {
            out.put_text(path);
            if let Some(meta) = meta {
                meta.stat().write(out);
            }
        }
        Outcome::Set(meta) => meta.stat().write(out),
        Outcome::Deleted | Outcome::Checked | Outcome::Restored => {}
    }
}

/// A step's part of a multi's answer.
pub(crate) fn write_result(outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    let kind = match outcome {
        Outcome::Created(_, None) => op::CREATE,
        Outcome::Created(_, Some(_)) => op::CREATE2,
        Outcome::Deleted => op::DELETE,
        Outcome::Set(_) => op::SET_DATA,
        // Restoring is no step of a multi.
        Outcome::Checked | Outcome::Restored => op::CHECK,
    };
    write_multi_header(kind, false, 0, out);
    write_outcome(outcome, out);
}
