//! What comes back: answers of shards to questions, and of groups to operations.

use crate::gateway::Gateway;
use crate::gateway::connection::{EntrySeq, PartAnswer, Purpose, Reply, Work};
use crate::gateway::kinds::Kinds;
use crate::gateway::metrics::Sizes;
use crate::gateway::reads::{ANSWER_HEAD_BYTES, Target};
use crate::gateway::watchers::Unwatched;
use crate::wire::{Body, Code, EventKind, JuteInput, Malformed, Query, op};
use kernel::{Cx, NodeId};
use mason::client::{OperationAnswer, ReadAnswer, ReadAnswers};
use std::sync::Arc;

impl Gateway {
    pub(crate) fn on_read_answers(&mut self, message: ReadAnswers, cx: &mut Cx<'_, Self>) {
        if let Some(shard_map) = &message.refused {
            self.on_uses_shard_map(message.space, shard_map, cx);
            return self.on_refused(message.answers);
        }
        let executed = message.executed.0;
        self.highest = self.highest.max(executed);
        let through = self.marks.of(message.space);
        for (tag, bytes) in message.withheld.into_iter().flatten() {
            let Some(Target::Part { node, seq, part, watch, shard_map, .. }) =
                self.reads.targets.remove(&tag)
            else {
                continue;
            };
            if let Some((watch, query)) = watch {
                self.unneeded.answered(watch);
                // If it is asked again, that registers it again.
                self.forget(paths_of(&query));
            }
            self.on_withheld((node, seq, part), shard_map, bytes.saturating_sub(ANSWER_HEAD_BYTES as u64));
        }
        for answer in message.answers {
            let Some(target) = self.reads.targets.remove(&answer.tag) else { continue };
            let mut input = JuteInput(&answer.body);
            let (Ok(shows), Ok(error)) = (input.u64(), input.i32()) else { continue };
            let body = answer.body.slice(ANSWER_HEAD_BYTES..);
            match target {
                Target::Part { node, seq, part, at_least, watch, shard_map } => {
                    let shows = if shows == 0 { executed } else { shows };
                    let answer = PartAnswer { shows, covers: through.max(at_least), error, body };
                    let taken = self.on_part((node, seq, part), shard_map, answer);
                    if let Some((watch, query)) = watch {
                        self.unneeded.answered(watch);
                        if !taken {
                            self.forget(paths_of(&query));
                        }
                    }
                }
                Target::Sizes(space) => {
                    if let Ok(sizes) = Sizes::read(&body) {
                        self.probes.heard(space, self.now);
                        self.metrics.sizes.insert(space, sizes);
                    }
                }
                Target::Quotas(round) => self.on_quotas(round, &body),
                Target::Reapable => self.reap(&body),
                Target::Config => self.on_config(error, &body),
                Target::Forget(_) => {}
            }
        }
    }

    /// A shard does not have any more what these are about.
    fn on_refused(&mut self, answers: Vec<ReadAnswer>) {
        for answer in answers {
            match self.reads.targets.remove(&answer.tag) {
                Some(Target::Part { node, seq, watch, shard_map, .. }) => {
                    watch.into_iter().for_each(|(watch, _)| self.unneeded.answered(watch));
                    self.ask_anew(node, seq, shard_map);
                }
                Some(Target::Forget(query)) => {
                    if let Ok(Query::Forget { paths, .. }) = Query::read(&query) {
                        // Perhaps it was one of several shards.
                        let unwatched = |path: &str| Unwatched { path: path.into(), recursive: true };
                        self.forget(paths.into_iter().map(unwatched));
                    }
                }
                Some(Target::Sizes(_) | Target::Quotas(_) | Target::Reapable | Target::Config) | None => {}
            }
        }
    }

    fn reap(&mut self, body: &[u8]) {
        let mut input = JuteInput(body);
        while let Ok(path) = input.text() {
            self.submit_unasked(Body::Reap { path }.written());
        }
    }

    /// False if nobody waits for it any more.
    fn on_part(
        &mut self,
        (node, seq, at): (NodeId, EntrySeq, usize),
        shard_map: u64,
        answer: PartAnswer,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&node) else { return false };
        let Some(entry) = connection.entry(seq) else { return false };
        let Work::Read(read) = &mut entry.work else { return false };
        // Asked anew since, perhaps of other shards.
        if read.shard_map != shard_map {
            return false;
        }
        let Some(part) = read.parts.get_mut(at).filter(|part| part.answer.is_none()) else { return false };
        let left = watches_left(&read.purpose, at, &answer);
        let (bytes, retained) = (answer.body.len(), part.room.unwrap_or(0));
        part.room = Some(bytes);
        part.answer = Some(answer);
        read.unanswered -= 1;
        let whole = read.unanswered == 0;
        connection.account.learn(bytes);
        self.pool.release(&mut connection.account, retained);
        self.pool.reserve(&mut connection.account, bytes);
        self.freed |= retained > bytes;
        if whole {
            self.runnable.insert(node);
        }
        for (path, kinds) in left {
            self.watchers.register(connection, &path, kinds, seq, &self.settings.placement);
        }
        if whole {
            self.advance_blocking_read(node, seq);
        }
        true
    }

    /// Operations of a group have come back: shards' answers begin with a code, the group's own are about sessions.
    pub(crate) fn on_answered(&mut self, node: NodeId, seq: EntrySeq, answer: OperationAnswer) {
        let Some(connection) = self.connections.get_mut(&node) else { return };
        connection.rehoming = false;
        let Some(entry) = connection.entry(seq) else { return };
        match &entry.work {
            Work::Handshake { .. } => {
                self.on_handshake_answered(node, seq, &super::session_answer(&answer.body));
            }
            Work::Close => {
                connection.writes_in_flight = connection.writes_in_flight.saturating_sub(1);
                if super::session_answer(&answer.body) == crate::wire::SessionAnswer::Refused {
                    self.on_session_ended(node);
                }
            }
            Work::Write { survey: Some(survey), .. } if answer.gsn.0 > 0 => {
                let survey = survey.clone();
                connection.writes_in_flight = connection.writes_in_flight.saturating_sub(1);
                let body = answer.body.slice(4.min(answer.body.len())..);
                let next = self.after_multi(node, survey, answer.gsn.0, &body);
                if let Some(entry) = self.connections.get_mut(&node).and_then(|found| found.entry(seq)) {
                    entry.work = next;
                }
            }
            Work::Write { .. } => {
                let error = JuteInput(&answer.body).i32().unwrap_or(Code::MarshallingError.number());
                let body = answer.body.slice(4.min(answer.body.len())..);
                let ended = [Code::SessionExpired, Code::SessionMoved].map(Code::number).contains(&error);
                let reply = Reply { last: ended, ..Reply::new(answer.gsn.0, error, body) };
                connection.answer_write(seq, reply);
            }
            Work::Read(_) | Work::Sync { .. } | Work::CheckWatches { .. } | Work::Done(_) => {}
        }
    }
}

/// The paths that a question may have registered.
fn paths_of(query: &[u8]) -> Vec<Unwatched> {
    let unwatched = |path: &str, recursive| Unwatched { path: path.into(), recursive };
    match Query::read(query) {
        Ok(Query::Node { path, .. }) => vec![unwatched(path, false)],
        Ok(Query::SetWatches { paths, lasting: [persistent, recursive], .. }) => {
            let plain = paths.iter().flatten().chain(&persistent).map(|path| unwatched(path, false));
            plain.chain(recursive.iter().map(|path| unwatched(path, true))).collect()
        }
        _ => Vec::new(),
    }
}

/// What the session watches from this answer on.
fn watches_left(purpose: &Purpose, at: usize, answer: &PartAnswer) -> Vec<(Arc<str>, Kinds)> {
    match purpose {
        Purpose::Node { opcode, path, watch: true } => {
            let kinds = match (*opcode, answer.error) {
                (op::EXISTS, error) if error == 0 || error == Code::NoNode.number() => Some(Kinds::DATA),
                (op::GET_DATA, 0) => Some(Kinds::DATA),
                (op::GET_CHILDREN | op::GET_CHILDREN2, 0) => Some(Kinds::CHILD),
                _ => None,
            };
            kinds.map(|kinds| (path.clone(), kinds)).into_iter().collect()
        }
        Purpose::AddWatch { path, kinds } => vec![(path.clone(), *kinds)],
        Purpose::SetWatches { paths, lasting } => {
            let missed = missed(&answer.body).unwrap_or_default();
            let quiet = |path: &Arc<str>, events: [EventKind; 2]| {
                !missed.iter().any(|(event, missed)| missed == path && events.contains(event))
            };
            let [data, exist, child] = paths.get(at).cloned().unwrap_or_default();
            let mut left = lasting.clone();
            let data =
                data.into_iter().filter(|path| quiet(path, [EventKind::DataChanged, EventKind::Deleted]));
            left.extend(data.map(|path| (path, Kinds::DATA)));
            let exist = exist.into_iter().filter(|path| quiet(path, [EventKind::Created; 2]));
            left.extend(exist.map(|path| (path, Kinds::DATA)));
            let child = child
                .into_iter()
                .filter(|path| quiet(path, [EventKind::ChildrenChanged, EventKind::Deleted]));
            left.extend(child.map(|path| (path, Kinds::CHILD)));
            left
        }
        Purpose::Node { watch: false, .. }
        | Purpose::Nodes { .. }
        | Purpose::Ephemerals
        | Purpose::Dump
        | Purpose::Descendants
        | Purpose::Greeting { .. }
        | Purpose::Survey(_) => Vec::new(),
    }
}

/// The events in a shard's answer to setWatches.
pub(crate) fn missed(body: &[u8]) -> Result<Vec<(EventKind, Arc<str>)>, Malformed> {
    let mut input = JuteInput(body);
    let mut missed = Vec::new();
    while !input.0.is_empty() {
        let kind = EventKind::of_number(input.i32()?).ok_or(Malformed)?;
        missed.push((kind, input.text()?.into()));
    }
    Ok(missed)
}
