//! What users asked and were answered, and what must be true of it.

use super::conditions;
use super::lies::Lies;
use super::truth::Truth;
use super::workload::{Message, Planned, Sessions};
use crate::audit::spanner::true_time;
use ::spanner::SpannerParameters;
use consistency::history::{Draft, History as Recorded, Timestamp as Version};
use consistency::{Level, Model, Process, Time, Verdict, check, operation_line};
use kernel::{Bytes, NodeId, RequestId, invariant};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use wire::txn::{
    KeyRow, KeyScan, KeyWrite, OneShot, ReadOnly, ReadRows, RowsWithin, ScannedRows, Timestamp, TxnCall,
    TxnFailure, TxnLevel, TxnReply,
};

/// One call, or an interactive transaction as a whole.
struct Asked {
    client: u16,
    incarnation: u32,
    node: NodeId,
    call: TxnCall,
    writes: Vec<KeyWrite>,
    /// The ranges that an interactive transaction reads.
    scans: Vec<KeyScan>,
    /// What an interactive transaction has read.
    read: Option<RowsWithin>,
    at: u64,
    /// An earlier call of which this is the repetition.
    again: Option<RequestId>,
    answered: Option<(u64, TxnReply)>,
}

/// All calls of one run.
#[derive(Default)]
pub(super) struct History {
    calls: BTreeMap<RequestId, Asked>,
    /// The first call of a commit that is sent again.
    commits: BTreeMap<(u64, u64), RequestId>,
    /// Fences that were answered: when, and up to which timestamp everybody sees everything.
    fences: Vec<(u64, Timestamp)>,
    messages: Vec<(Process, Process, u64, u64)>,
}

impl Asked {
    /// A commit's timestamp lies between the call and its answer, unless somebody believed a clock that lied.
    fn check_commit_wait(&self, at: Timestamp, now: u64, lies: Option<&Lies>) {
        let began = self.again.map_or(self.at, |_| 0);
        // Whose clock lies does not know the true time, until it knows that.
        let is_misled = lies.is_some_and(|lies| lies.may_have_misled((began, now)));
        if is_misled || (self.writes.is_empty() && self.read.is_none()) {
            return;
        }
        let passed = true_time(at);
        let is_later = began <= passed || self.again.is_some();
        invariant!(CW, is_later, "{at} was committed before it was asked");
        invariant!(CW, passed < now, "{at} is answered before it has passed");
    }

    /// Whether it may have believed a clock that lied.
    fn is_misled_by(&self, lies: &Lies) -> bool {
        lies.may_have_misled((self.at, self.answered.as_ref().map_or(u64::MAX, |(at, _)| *at)))
    }
}

fn process(client: u16, incarnation: u32) -> Process {
    Process(u64::from(incarnation) << 16 | u64::from(client))
}

/// Of a call that belongs to no session.
fn own_process(id: RequestId) -> Process {
    Process(1 << 60 | id.0)
}

impl History {
    pub(super) fn message_sent(&mut self, message: &Message, now: u64) {
        let Message { from, to, message } = *message;
        self.messages.push((process(from.0, from.1), process(to.0, to.1), now, message));
    }

    pub(super) fn asked(
        &mut self,
        id: RequestId,
        (client, incarnation): (u16, u32),
        node: NodeId,
        planned: &Planned,
        now: u64,
    ) {
        let mut again = None;
        let mut writes = planned.interactive.as_ref().map(|it| it.writes().to_vec()).unwrap_or_default();
        if let TxnCall::OneShot(OneShot { key: Some(key), writes: of_call, .. }) = &planned.call {
            writes = of_call.clone();
            let first = *self.commits.entry((key.session, key.number)).or_insert(id);
            again = (first != id).then_some(first);
        }
        let call = planned.call.clone();
        let scans = planned.interactive.as_ref().map(|it| it.scans().to_vec()).unwrap_or_default();
        let asked = Asked {
            client,
            incarnation,
            node,
            call,
            writes,
            scans,
            read: None,
            at: now,
            again,
            answered: None,
        };
        self.calls.insert(id, asked);
    }

    /// An interactive transaction has read; whatever becomes of it, its user has seen that.
    pub(super) fn has_read(&mut self, id: RequestId, rows: &RowsWithin) {
        if let Some(asked) = self.calls.get_mut(&id) {
            check_token(&asked.call, &TxnReply::RowsWithin(rows.clone()));
            asked.read = Some(rows.clone());
        }
    }

    pub(super) fn answered(
        &mut self,
        id: RequestId,
        reply: &TxnReply,
        now: u64,
        (parameters, lies): (&SpannerParameters, Option<&Lies>),
        sessions: &mut Sessions,
    ) {
        let first_sent = self.first_sent(id);
        let Some(asked) = self.calls.get_mut(&id) else { return };
        check_token(&asked.call, reply);
        let session = sessions.of(asked.client);
        let (token, rows) = seen_in(reply);
        session.token = session.token.max(token.unwrap_or_default());
        if matches!(asked.call, TxnCall::Begin(_)) {
            // What it has seen is shown to its user, who goes on by itself.
            let message = 1 << 40 | id.0;
            self.messages.push((own_process(id), process(asked.client, session.incarnation), now, message));
        }
        for row in rows {
            let version = if row.value.is_some() { row.version } else { Timestamp(0) };
            session.versions.insert(row.key.clone(), version);
        }
        match reply {
            TxnReply::Committed(committed) => asked.check_commit_wait(committed.at, now, lies),
            TxnReply::Fenced(fenced) => {
                let until = fenced.token.plus(parameters.fence_bound.as_micros() as u64);
                let is_misled = lies.is_some_and(|lies| lies.may_have_misled((asked.at, now)));
                invariant!(
                    FENCE,
                    is_misled || fenced.token == Timestamp(0) || true_time(until) < now,
                    "a fence of {} is over before {until} has passed",
                    fenced.token
                );
                self.fences.push((now, fenced.token));
            }
            TxnReply::Failed(failed) => {
                if failed.why == TxnFailure::Unknown {
                    session.incarnation += 1;
                    if let TxnCall::OneShot(call) = &asked.call {
                        session.unsettled = Some((call.clone(), first_sent));
                    }
                }
                if let (TxnFailure::Collected, TxnCall::ReadOnly(ReadOnly { level: TxnLevel::At(at), .. })) =
                    (failed.why, &asked.call)
                {
                    let keep = parameters.keep.as_nanos() as u64;
                    let allowed = true_time(*at).saturating_add(keep) > now;
                    invariant!(
                        GC,
                        !allowed,
                        "a read at {at} is refused, which is younger than what is retained"
                    );
                }
            }
            TxnReply::ReadRows(_)
            | TxnReply::NotMet(_)
            | TxnReply::Begun(_)
            | TxnReply::RowsWithin(_)
            | TxnReply::CommitFate(_) => {}
        }
        asked.answered = Some((now, reply.clone()));
    }

    /// A read of everything at one timestamp that was answered with all of it.
    pub(super) fn is_dump(&self, id: RequestId) -> bool {
        let Some(Asked {
            call: TxnCall::ReadOnly(call), answered: Some((_, TxnReply::ReadRows(reply))), ..
        }) = self.calls.get(&id)
        else {
            return false;
        };
        matches!(call.level, TxnLevel::At(_))
            && call.scans.iter().any(|scan| scan.range.start.is_empty() && scan.range.end.is_none())
            && reply.scans.iter().all(|found| found.next.is_none() && !found.rows.is_empty())
    }

    /// A read that was answered just now shows everything that was committed at or before it and is known by now.
    pub(super) fn check_answer(&self, id: RequestId, truth: &Truth) {
        let Some(asked) = self.calls.get(&id) else { return };
        let Some((_, TxnReply::ReadRows(reply))) = &asked.answered else { return };
        for row in &reply.rows {
            let (value, version) = truth.at(&row.key, reply.at);
            invariant!(
                SNAP,
                version <= row.version || value.is_none() && row.value.is_none(),
                "{:?} was read as of {} at {}, where it is {value:?} of {version}: {:?}",
                row.key,
                row.version,
                reply.at,
                asked.call
            );
        }
    }

    /// True if a call makes this write.
    pub(super) fn writes(&self, id: RequestId, write: &KeyWrite) -> bool {
        self.calls.get(&id).is_some_and(|asked| asked.writes.contains(write))
    }

    /// When a commit was first sent.
    fn first_sent(&self, id: RequestId) -> u64 {
        let asked = self.calls.get(&id);
        let first = asked.and_then(|asked| self.calls.get(&asked.again?));
        first.or(asked).map_or(0, |first| first.at)
    }

    pub(super) fn lost(&mut self, id: RequestId, sessions: &mut Sessions) {
        let first_sent = self.first_sent(id);
        let Some(asked) = self.calls.get(&id) else { return };
        let session = sessions.of(asked.client);
        session.incarnation += 1;
        if let TxnCall::OneShot(call) = &asked.call {
            session.unsettled = Some((call.clone(), first_sent));
        }
    }

    /// Where a call's writes were committed, as the replicas have it.
    fn commit_of(asked: &Asked, truth: &Truth) -> Option<Timestamp> {
        let (key, value) = asked.writes.iter().find_map(|write| Some((&write.key, write.value.as_ref()?)))?;
        let commits = truth.commits_of(key, value);
        invariant!(ONCE, commits.len() <= 1, "{value:?} was written to {key:?} at {commits:?}");
        let at = *commits.first()?;
        for write in &asked.writes {
            if at < truth.collected(std::iter::once(&write.key)) {
                continue;
            }
            let (value, version) = truth.at(&write.key, at);
            invariant!(
                ATOMIC,
                version == at && value == write.value.as_ref(),
                "{:?} was written at {at}, and {:?} has {value:?} of {version} then",
                asked.writes,
                write.key
            );
        }
        Some(at)
    }

    pub(super) fn check(&self, truth: &Truth, lies: Option<&Lies>) {
        for asked in self.calls.values() {
            self.check_call(asked, truth, lies);
        }
        let history = self.recorded(truth, lies);
        match check(&history, Model::ByLevel).expect("the history is well formed") {
            Verdict::Violated(witness) => {
                let operations = witness.operations.iter().map(|it| operation_line(&history, *it));
                let operations: Vec<String> = operations.collect();
                panic!("BYLEVEL: {}: {:?} {operations:?}", witness.summary, witness.sentences);
            }
            Verdict::Holds | Verdict::Undecided(_) => {}
        }
    }

    fn check_call(&self, asked: &Asked, truth: &Truth, lies: Option<&Lies>) {
        let committed = Self::commit_of(asked, truth);
        let Some((_, reply)) = &asked.answered else { return };
        match reply {
            TxnReply::ReadRows(reply) => self.check_read(asked, reply, truth, lies),
            TxnReply::Committed(reply) => {
                // What was applied when it was older than is retained was never seen.
                let collected = truth.collected(asked.writes.iter().map(|write| &write.key));
                let is_unseen = asked.writes.is_empty() || reply.at < collected;
                let at = committed.or(is_unseen.then_some(reply.at));
                invariant!(
                    DUR,
                    at == Some(reply.at),
                    "{:?} at {} is answered {reply:?}: {at:?}",
                    asked.call,
                    asked.at
                );
                conditions::check(&asked.call, reply.at, asked.again.is_some(), truth);
                check_rows(&reply.rows, reply.at.before(), asked, truth);
                if let Some(read) = &asked.read {
                    check_rows(&read.rows, reply.at.before(), asked, truth);
                    check_scans(&asked.scans, &read.scans, reply.at.before(), asked, truth);
                }
            }
            TxnReply::Failed(failed) if failed.why.is_surely_void() && asked.again.is_none() => {
                invariant!(
                    VOID,
                    committed.is_none(),
                    "{:?} failed ({}), and was committed at {committed:?}",
                    asked.call,
                    failed.why
                );
            }
            TxnReply::Failed(_)
            | TxnReply::NotMet(_)
            | TxnReply::Begun(_)
            | TxnReply::RowsWithin(_)
            | TxnReply::Fenced(_)
            | TxnReply::CommitFate(_) => {}
        }
    }

    /// A timed read equals a replay of committed writes at its timestamp, and sees what fences before it demand.
    fn check_read(&self, asked: &Asked, reply: &ReadRows, truth: &Truth, lies: Option<&Lies>) {
        check_rows(&reply.rows, reply.at, asked, truth);
        let TxnCall::ReadOnly(call) = &asked.call else { return };
        let wanted = if let TxnLevel::At(at) = call.level { Some(at) } else { None };
        invariant!(
            SNAP,
            wanted.is_none_or(|wanted| wanted == reply.at),
            "{wanted:?} was to be read, and {} is answered",
            reply.at
        );
        check_scans(&call.scans, &reply.scans, reply.at, asked, truth);
        let is_misled = lies.is_some_and(|lies| asked.is_misled_by(lies));
        if matches!(call.level, TxnLevel::Strict | TxnLevel::Rss) && !is_misled {
            for (_, token) in self.fences.iter().filter(|(at, _)| *at < asked.at) {
                for row in &reply.rows {
                    let (_, version) = truth.at(&row.key, *token);
                    invariant!(
                        FENCE,
                        row.version >= version,
                        "{:?} has {version} since a fence, and {} is read",
                        row.key,
                        row.version
                    );
                }
            }
        }
    }

    /// The whole history, each call at its level. What may have believed a clock that lied keeps no real time: sessions and messages
    /// hold by their tokens all the same.
    fn recorded(&self, truth: &Truth, lies: Option<&Lies>) -> Recorded {
        let mut recorded = Recorded::new();
        for (id, asked) in self.calls.iter().filter(|(_, asked)| asked.again.is_none()) {
            let level = match &asked.call {
                TxnCall::ReadOnly(call) => level_of(call.level),
                TxnCall::Fence(_) => Level::Rss,
                _ => Level::Strict,
            };
            let is_misled = lies.is_some_and(|lies| asked.is_misled_by(lies));
            let level = if is_misled { level.min(Level::ProcessOrdered) } else { level };
            if let Some(draft) = self.draft(*id, asked, truth) {
                recorded.add(draft.at_level(level));
            }
        }
        for (from, to, at, message) in &self.messages {
            recorded.send(*from, Time(*at), *message as i64);
            recorded.receive(*to, Time(*at), *message as i64);
        }
        recorded
    }

    /// Who has made a call. What is sent again belongs to no session, for the session went on when it did not know how it had ended; an
    /// interactive transaction goes on beside its session.
    fn process_of(&self, id: RequestId, asked: &Asked) -> Process {
        let is_repeated = self.calls.values().any(|other| other.again == Some(id));
        if is_repeated || matches!(asked.call, TxnCall::Begin(_)) {
            return own_process(id);
        }
        process(asked.client, asked.incarnation)
    }

    /// A call with all its repetitions.
    fn draft(&self, id: RequestId, asked: &Asked, truth: &Truth) -> Option<Draft> {
        let committed = Self::commit_of(asked, truth);
        let who = self.process_of(id, asked);
        let repetitions = self.calls.values().filter(|other| other.again == Some(id));
        let answers = std::iter::once(asked).chain(repetitions).filter_map(|it| it.answered.as_ref());
        let answer = answers.clone().find(|(_, reply)| matches!(reply, TxnReply::Committed(_)));
        let unknown = |at: Timestamp| {
            let draft = Draft::new(who, Time(asked.at), Time::NEVER).committed_at(Version::version(at.0));
            with_writes(draft, &asked.writes, at, truth).unknown()
        };
        let Some((at, reply)) = answer.or_else(|| answers.clone().next()) else {
            return committed.map(unknown);
        };
        let draft = Draft::new(who, Time(asked.at), Time(*at));
        match reply {
            TxnReply::ReadRows(reply) => {
                let rows = reply.rows.iter().chain(reply.scans.iter().flat_map(|scan| &scan.rows));
                Some(with_reads(draft, rows, reply.at, truth).as_of(consistency::Version(reply.at.0)))
            }
            TxnReply::Committed(reply) => {
                let before = reply.at.before();
                let mut draft = draft.committed_at(Version::version(reply.at.0));
                draft = with_reads(draft, &reply.rows, before, truth);
                if let Some(read) = &asked.read {
                    draft = with_reads(draft, &read.rows, before, truth);
                }
                Some(with_writes(draft, &asked.writes, reply.at, truth))
            }
            TxnReply::Failed(_) | TxnReply::NotMet(_) => committed.map(unknown),
            TxnReply::Fenced(_) => Some(draft.fence()),
            TxnReply::Begun(_) | TxnReply::RowsWithin(_) | TxnReply::CommitFate(_) => None,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (id, asked) in &self.calls {
            let Asked { client, incarnation, node, call, at, .. } = asked;
            let _ = writeln!(
                text,
                "{} {client}.{incarnation} {node} {at} {call:?} -> {:?}",
                id.0, asked.answered
            );
        }
        text
    }
}

/// The rows are all that there was in the ranges at a timestamp: nothing is missing, and nothing came in between.
fn check_scans(scans: &[KeyScan], found: &[ScannedRows], at: Timestamp, asked: &Asked, truth: &Truth) {
    for (scan, found) in scans.iter().zip(found) {
        let mut expected = truth.keys_at(&scan.range, at);
        if let Some(next) = &found.next {
            expected.retain(|key| key < next);
        }
        let keys: Vec<Bytes> = found.rows.iter().map(|row| row.key.clone()).collect();
        invariant!(SNAP, keys == expected, "a scan at {at} found {keys:?} of {expected:?}: {:?}", asked.call);
        check_rows(&found.rows, at, asked, truth);
    }
}

/// The rows are what the replicas had at a timestamp.
fn check_rows(rows: &[KeyRow], at: Timestamp, asked: &Asked, truth: &Truth) {
    for row in rows {
        let (value, version) = truth.at(&row.key, at);
        invariant!(
            SNAP,
            value == row.value.as_ref() && (value.is_none() || version == row.version),
            "{:?} was read as {:?} of {} at {at}, where it is {value:?} of {version}: {:?} at {}",
            row.key,
            row.value,
            row.version,
            asked.call,
            asked.at
        );
    }
}

fn with_reads<'a>(
    mut draft: Draft,
    rows: impl IntoIterator<Item = &'a KeyRow>,
    at: Timestamp,
    truth: &Truth,
) -> Draft {
    for row in rows {
        let key = text(&row.key);
        let (_, version) = truth.at(&row.key, at);
        draft = match &row.value {
            Some(value) => draft.read(key, text(value)),
            None if version == Timestamp(0) => draft.read_nothing(key),
            None => draft.read(key, format!("gone at {version}")),
        };
    }
    draft
}

/// A deletion that no replica has ever shown, because it was collected when it was made, is left out.
fn with_writes(mut draft: Draft, writes: &[KeyWrite], at: Timestamp, truth: &Truth) -> Draft {
    let is_shown = |write: &&KeyWrite| write.value.is_some() || truth.at(&write.key, at).1 == at;
    for write in writes.iter().filter(is_shown) {
        let value = write.value.as_ref().map_or_else(|| format!("gone at {at}"), text);
        draft = draft.write(text(&write.key), value);
    }
    draft
}

fn level_of(level: TxnLevel) -> Level {
    match level {
        TxnLevel::Strict => Level::Strict,
        TxnLevel::Rss => Level::Rss,
        TxnLevel::ProcessOrdered => Level::ProcessOrdered,
        TxnLevel::At(_) => Level::At,
        TxnLevel::Stale(_) => Level::Stale,
    }
}

/// The token and the rows that a reply shows.
fn seen_in(reply: &TxnReply) -> (Option<Timestamp>, &[KeyRow]) {
    match reply {
        TxnReply::ReadRows(reply) => (Some(reply.token), &reply.rows),
        TxnReply::Committed(reply) => (Some(reply.token), &reply.rows),
        TxnReply::NotMet(reply) => (Some(reply.token), &reply.rows),
        TxnReply::RowsWithin(reply) => (Some(reply.token), &reply.rows),
        TxnReply::Fenced(reply) => (Some(reply.token), &[]),
        TxnReply::Begun(_) | TxnReply::CommitFate(_) | TxnReply::Failed(_) => (None, &[]),
    }
}

/// A token covers what its session had seen before, and all that the answer shows.
fn check_token(call: &TxnCall, reply: &TxnReply) {
    let (before, level) = match call {
        TxnCall::ReadOnly(call) => (call.token, call.level),
        TxnCall::OneShot(call) => (call.token, TxnLevel::Strict),
        TxnCall::Begin(call) => (call.token, TxnLevel::Strict),
        TxnCall::Fence(call) => (call.token, TxnLevel::Strict),
        TxnCall::ReadWithin(_) | TxnCall::Commit(_) | TxnCall::GiveUp(_) | TxnCall::CommitStatus(_) => return,
    };
    let (Some(token), rows) = seen_in(reply) else { return };
    invariant!(TOKEN, token >= before, "who has seen {before} is given the token {token}: {reply:?}");
    if matches!(level, TxnLevel::At(_) | TxnLevel::Stale(_)) {
        return;
    }
    let at = match reply {
        TxnReply::ReadRows(reply) => Some(reply.at),
        TxnReply::Committed(reply) => Some(reply.at),
        TxnReply::NotMet(_)
        | TxnReply::RowsWithin(_)
        | TxnReply::Begun(_)
        | TxnReply::Fenced(_)
        | TxnReply::CommitFate(_)
        | TxnReply::Failed(_) => None,
    };
    let reads = matches!(reply, TxnReply::ReadRows(_));
    invariant!(
        TOKEN,
        at.is_none_or(|at| at <= token && (!reads || at >= before)),
        "who has seen {before} is answered as of {at:?} with the token {token}: {call:?}"
    );
    let newest = rows.iter().filter(|row| row.value.is_some()).map(|row| row.version).max();
    invariant!(TOKEN, newest <= Some(token), "{newest:?} is shown with the token {token}: {call:?}");
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
