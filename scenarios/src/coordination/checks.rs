//! What users were sent, and what must hold of it.

use super::calls;
use super::ephemerals::Deleted;
use super::lasting::{CREATED, Changes, DATA_CHANGED, DELETED};
use super::looking_back::Views;
use super::user::{Armed, Awaited, User};
use super::words::{Ask, BAD_VERSION, Body, NO_NODE, NODE_EXISTS, SEQUENTIAL, Step, Watched};
use consistency::kv::{Expected, KvCall, KvHistory, KvReply, KvVerdict};
use consistency::search::SearchBudget;
use consistency::{Process, Time, Value, Version};
use coordination::wire::{Stat, parent_of};
use kernel::invariant;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that are made once and never deleted.
pub(crate) const LASTING: [&str; 3] = ["/r0", "/r1", "/r2"];
/// Nodes that are only made and set together.
pub(crate) const TWINS: [&str; 2] = ["/t0", "/t1"];
/// A node that is never made.
pub(crate) const NOWHERE: &str = "/none";
/// What cannot be made: it lacks a parent.
pub(crate) const ORPHAN: &str = "/void/child";
/// Nodes that come and go.
pub(crate) const FLEETING: [&str; 6] = ["/d0", "/d1", "/d0/c0", "/d0/c1", "/d1/c0", "/d1/c1"];
/// Where sequential nodes are made, and ephemeral ones that queue for a lock.
pub(crate) const QUEUE: &str = "/q";
pub(crate) const LOCK: &str = "/lock";

#[derive(Clone, PartialEq, Debug)]
struct Fact {
    czxid: u64,
    version: i32,
    value: Option<String>,
}

/// A write without an answer on a connection that is lost: it may come true, but not behind what its session writes on a later one.
struct Abandoned {
    session: u64,
    at: u64,
    /// The zxid of the first write on a later connection.
    before: Option<u64>,
}

/// All that was answered in one run.
#[derive(Default)]
pub(crate) struct Checks {
    kv: KvHistory,
    processes: u64,
    /// What a node was at each of its zxids.
    facts: BTreeMap<String, BTreeMap<u64, Fact>>,
    /// When a node came, changed or went, as far as it was announced; when children came or went.
    changes: BTreeMap<(Watched, String), BTreeSet<u64>>,
    /// True where it came, false where it went.
    existence: BTreeMap<String, BTreeMap<u64, bool>>,
    /// By zxid, when a going was asked for; by path, when the first one was whose outcome nobody knows.
    goings: BTreeMap<u64, u64>,
    doubtful_goings: BTreeMap<String, u64>,
    /// It is not known whether these came or went.
    doubtful: BTreeSet<String>,
    /// What must be announced to those who watch all below a node.
    below: Changes,
    /// Sequential names by their parents and zxids.
    names: BTreeMap<String, BTreeMap<u64, String>>,
    /// Sessions that have been closed by their users, and when that was answered.
    closed: BTreeMap<u64, u64>,
    /// Nodes and their versions that a multi has checked, and the zxid of what it wrote.
    checked: Vec<(String, i32, u64)>,
    /// Values that sessions wrote on connections that they have lost.
    abandoned: BTreeMap<String, Abandoned>,
    /// Sessions of which somebody has seen that they are over, and when.
    doomed: BTreeMap<u64, u64>,
    pub(crate) answered: u64,
    views: Views,
}

/// One answer, with all that is known of it.
pub(crate) struct Reported<'a> {
    pub(crate) awaited: &'a Awaited,
    /// A read shows what was there at this time, or later; none if it may be older than anything.
    pub(crate) shows_from: Option<u64>,
    /// The highest zxid of answers before.
    pub(crate) seen: u64,
    pub(crate) zxid: u64,
    pub(crate) error: i32,
    pub(crate) body: Option<Body>,
    pub(crate) now: u64,
    pub(crate) session: u64,
}

fn is_recorded(path: &str) -> bool {
    LASTING.contains(&path) || TWINS.contains(&path) || FLEETING.contains(&path)
}

fn number_of(path: &str) -> u64 {
    let digits = path.len().saturating_sub(10);
    path.get(digits..).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// How far one run's history is searched.
const SEARCH_STEPS: u64 = 1_000_000;

impl Checks {
    fn record(&mut self, path: &str, call: KvCall, reply: Option<KvReply>, reported: (u64, u64)) {
        if !is_recorded(path) {
            return;
        }
        self.processes += 1;
        let (asked, now) = reported;
        let operation = self.kv.invoke(Process(self.processes), path, call, Time(asked));
        match reply {
            Some(reply) => self.kv.complete(operation, reply, Time(now)),
            None => self.kv.unknown(operation),
        }
    }

    /// Its outcome will never be known.
    pub(crate) fn unknown(&mut self, awaited: &Awaited, session: u64, now: u64) {
        let span = (awaited.at, awaited.at);
        if let Some(value) = awaited.ask.value() {
            self.abandoned.insert(value.to_owned(), Abandoned { session, at: now, before: None });
        }
        match &awaited.ask {
            Ask::Create { path, value, .. } => {
                self.doubtful.insert(path.clone());
                self.record(path, create(value), None, span);
            }
            Ask::Delete { path, .. } => {
                self.doubtful.insert(path.clone());
                let first = self.doubtful_goings.entry(path.clone()).or_insert(awaited.at);
                *first = awaited.at.min(*first);
                self.record(path, KvCall::Delete, None, span);
            }
            Ask::Set { path, value, .. } | Ask::SetIf { path, value, .. } => {
                self.record(path, KvCall::Put(Value::from(value.as_str())), None, span);
            }
            Ask::SetAll { paths, value } => {
                for path in paths {
                    self.record(path, KvCall::Put(Value::from(value.as_str())), None, span);
                }
            }
            Ask::CreateAll { paths, value } => {
                for path in paths {
                    self.doubtful.insert(path.clone());
                    self.record(path, create(value), None, span);
                }
            }
            Ask::Exists { .. }
            | Ask::Get { .. }
            | Ask::Children { .. }
            | Ask::GetAll { .. }
            | Ask::WatchBelow { .. }
            | Ask::SetWatches { .. }
            | Ask::Unwatch { .. }
            | Ask::Sync { .. }
            | Ask::Ping
            | Ask::Close
            | Ask::Judged { .. } => {}
        }
    }

    /// An answer that says that it was done.
    fn on_done(&mut self, reported: &Reported<'_>, believed: Option<u64>, body: &Body) {
        let span = (reported.awaited.at, reported.now);
        match (&reported.awaited.ask, body) {
            (Ask::Exists { path, .. }, Body::Stat(stat)) => self.on_stat(path, stat, None, reported),
            (Ask::Get { path, .. }, Body::Data(value, stat)) => self.on_value(path, value, stat, reported),
            (Ask::Create { path, value, flags }, Body::Created(made, stat)) => {
                self.on_write(reported);
                self.on_stat(made, stat, Some(value), reported);
                self.came(made, stat.czxid as u64);
                self.below.add(made, stat.czxid as u64, CREATED, reported.awaited.at);
                if flags & SEQUENTIAL != 0 {
                    self.on_name(made, stat.czxid as u64);
                } else {
                    invariant!(WIRE, made == path, "{path} was asked for and {made} was made");
                    self.record(path, create(value), written(stat.czxid), span);
                }
            }
            (Ask::Set { path, value, version }, Body::Stat(stat)) => {
                self.on_write(reported);
                self.on_stat(path, stat, Some(value), reported);
                self.changed(path, stat.mzxid as u64);
                self.below.add(path, stat.mzxid as u64, DATA_CHANGED, reported.awaited.at);
                let call = match believed.filter(|_| *version >= 0 && LASTING.contains(&path.as_str())) {
                    Some(zxid) => KvCall::CompareAndSet {
                        expected: Expected::Version(Version(zxid)),
                        value: Value::from(value.as_str()),
                    },
                    None => KvCall::Put(Value::from(value.as_str())),
                };
                self.record(path, call, written(stat.mzxid), span);
            }
            (Ask::Delete { path, .. }, Body::Nothing) => {
                self.on_write(reported);
                self.existence.entry(path.clone()).or_default().insert(reported.zxid, false);
                self.goings.insert(reported.zxid, reported.awaited.at);
                self.below.add(path, reported.zxid, DELETED, reported.awaited.at);
                self.changed(path, reported.zxid);
                self.child_changed(path, reported.zxid);
                self.record(path, KvCall::Delete, written(reported.zxid as i64), span);
            }
            (Ask::SetAll { paths, value } | Ask::CreateAll { paths, value }, Body::Steps(steps)) => {
                self.on_multi(reported, paths, value, steps);
            }
            (Ask::SetIf { checked, version, path, value }, Body::Steps(steps)) => {
                self.on_checked(reported, (checked, *version), (path, value), steps);
            }
            (Ask::GetAll { paths }, Body::Steps(steps)) => self.on_multi_read(reported, paths, steps),
            (Ask::Close, Body::Nothing) => {
                self.closed.insert(reported.session, reported.now);
            }
            _ => {}
        }
    }

    /// An answer has come.
    pub(crate) fn on_answer(&mut self, reported: &Reported<'_>, believed: Option<u64>) {
        self.answered += 1;
        let span = (reported.awaited.at, reported.now);
        if reported.error == 0 {
            let body = reported.body.clone();
            invariant!(WIRE, body.is_some(), "an answer to {:?} that does not decode", reported.awaited.ask);
            if let Some(body) = body {
                self.views.on_answer(&reported.awaited.ask, &body, reported.seen);
                self.on_done(reported, believed, &body);
            }
            return;
        }
        match (&reported.awaited.ask, reported.error) {
            (Ask::Exists { path, .. } | Ask::Get { path, .. }, NO_NODE) => {
                self.read(path, KvReply::absent(), reported);
            }
            (Ask::Set { path, .. }, NO_NODE) => {
                self.record(path, KvCall::Get, Some(KvReply::absent()), span);
            }
            (Ask::Delete { path, .. }, NO_NODE) => {
                self.record(path, KvCall::Delete, Some(KvReply::absent()), span);
            }
            (Ask::Create { path, flags, .. }, NODE_EXISTS) if flags & SEQUENTIAL != 0 => {
                panic!("UNIQ: a sequential name under {path} had been given before");
            }
            (Ask::Create { path, value, .. }, NODE_EXISTS) => {
                let refused = KvReply::Found { value: None, version: None };
                self.record(path, create(value), Some(refused), span);
            }
            (Ask::Set { path, value, .. }, BAD_VERSION) => {
                let Some(zxid) = believed.filter(|_| LASTING.contains(&path.as_str())) else { return };
                let expected = Expected::Version(Version(zxid));
                let call = KvCall::CompareAndSet { expected, value: Value::from(value.as_str()) };
                self.record(path, call, Some(KvReply::Found { value: None, version: None }), span);
            }
            _ => {}
        }
    }

    fn on_multi(
        &mut self,
        reported: &Reported<'_>,
        paths: &[String],
        value: &str,
        steps: &[Result<Step, i32>],
    ) {
        let span = (reported.awaited.at, reported.now);
        let creates = matches!(reported.awaited.ask, Ask::CreateAll { .. });
        let mut zxids = BTreeSet::new();
        for (path, step) in paths.iter().zip(steps) {
            match step {
                Ok(Step::Stat(stat) | Step::Data(_, stat)) => {
                    zxids.insert(stat.mzxid);
                    self.on_stat(path, stat, Some(value), reported);
                    self.changed(path, stat.mzxid as u64);
                    let kind = if creates { CREATED } else { DATA_CHANGED };
                    self.below.add(path, stat.mzxid as u64, kind, reported.awaited.at);
                    let call = if creates { create(value) } else { KvCall::Put(Value::from(value)) };
                    self.record(path, call, written(stat.mzxid), span);
                }
                Err(NO_NODE) => self.record(path, KvCall::Get, Some(KvReply::absent()), span),
                Ok(Step::Checked) | Err(_) => {}
            }
        }
        let failed = steps.iter().filter(|step| step.is_err()).count();
        let whole = failed == 0 && zxids.len() == 1 || failed == steps.len();
        invariant!(ATOMIC, whole && steps.len() == paths.len(), "a multi came to {steps:?}");
        if failed == 0 {
            self.on_write(reported);
        }
    }

    /// A multi that checks a version before it writes.
    fn on_checked(
        &mut self,
        reported: &Reported<'_>,
        (checked, version): (&str, i32),
        (path, value): (&str, &str),
        steps: &[Result<Step, i32>],
    ) {
        match steps {
            [Ok(Step::Checked), Ok(Step::Stat(stat))] => {
                let zxid = stat.mzxid as u64;
                self.on_write(reported);
                self.on_stat(path, stat, Some(value), reported);
                self.changed(path, zxid);
                self.below.add(path, zxid, DATA_CHANGED, reported.awaited.at);
                let span = (reported.awaited.at, reported.now);
                self.record(path, KvCall::Put(Value::from(value)), written(stat.mzxid), span);
                self.checked.push((checked.to_owned(), version, zxid));
            }
            [Err(_), Err(_)] => {}
            _ => panic!("ATOMIC: a multi that checks {checked} came to {steps:?}"),
        }
    }

    /// Where a multi was done that checked a version, no later version had been written.
    fn check_checked(&self) {
        for (path, version, zxid) in &self.checked {
            let facts = self.facts.get(path).into_iter().flat_map(|facts| facts.range(..zxid));
            let later = facts.map(|(_, fact)| fact.version).find(|found| found > version);
            invariant!(
                LIN,
                later.is_none(),
                "{path} had version {later:?} when a multi that needs version {version} was done at {zxid}"
            );
        }
    }

    fn on_multi_read(&mut self, reported: &Reported<'_>, paths: &[String], steps: &[Result<Step, i32>]) {
        let mut seen = Vec::new();
        for (path, step) in paths.iter().zip(steps) {
            match step {
                Ok(Step::Data(value, stat)) => {
                    seen.push(Some((stat.mzxid, value.clone())));
                    self.on_value(path, value, stat, reported);
                }
                Ok(Step::Stat(_) | Step::Checked) | Err(_) => seen.push(None),
            }
        }
        invariant!(
            ATOMIC,
            seen.windows(2).all(|pair| pair[0] == pair[1]),
            "what is only written together was read as {seen:?}"
        );
    }

    fn on_value(&mut self, path: &str, value: &str, stat: &Stat, reported: &Reported<'_>) {
        self.on_stat(path, stat, Some(value), reported);
        let reply = KvReply::found(Value::from(value), Version(stat.mzxid as u64));
        self.read(path, reply, reported);
    }

    fn read(&mut self, path: &str, reply: KvReply, reported: &Reported<'_>) {
        if let Some(from) = reported.shows_from {
            self.record(path, KvCall::Get, Some(reply), (from, reported.now));
        }
    }

    /// A node at one zxid is one state, and its versions count what was done to it.
    fn on_stat(&mut self, path: &str, stat: &Stat, value: Option<&str>, reported: &Reported<'_>) {
        let (czxid, mzxid, version) = (stat.czxid as u64, stat.mzxid as u64, stat.version);
        // One operation may make a node and write it.
        let at_once = czxid == mzxid && calls::are_judged(path);
        let sound = czxid <= mzxid && ((version == 0) == (czxid == mzxid) || at_once);
        invariant!(STAT, sound, "{path}: {stat:?}");
        let owner = stat.ephemeral_owner as u64;
        let closed = self.closed.get(&owner).copied().unwrap_or(u64::MAX);
        invariant!(
            EPH,
            owner == 0 || closed >= reported.awaited.at,
            "{path} of session {owner:x} was seen after that was closed"
        );
        let facts = self.facts.entry(path.to_owned()).or_default();
        let fact = facts.entry(mzxid).or_insert(Fact { czxid, version, value: None });
        let same = (fact.czxid, fact.version) == (czxid, version)
            && (fact.value.is_none() || value.is_none() || fact.value.as_deref() == value);
        invariant!(STAT, same, "{path} at {mzxid}: {fact:?}, then {stat:?} {value:?}");
        if fact.value.is_none() {
            fact.value = value.map(str::to_owned);
        }
        let before = facts.range(..mzxid).next_back().map(|(_, fact)| (fact.czxid, fact.version));
        let after = facts.range(mzxid + 1..).next().map(|(_, fact)| (fact.czxid, fact.version));
        let rises = before.is_none_or(|before| before < (czxid, version))
            && after.is_none_or(|after| after > (czxid, version));
        invariant!(STAT, rises, "{path} at {mzxid}: {stat:?} between {before:?} and {after:?}");
    }

    fn came(&mut self, path: &str, zxid: u64) {
        self.existence.entry(path.to_owned()).or_default().insert(zxid, true);
        self.changed(path, zxid);
        self.child_changed(path, zxid);
    }

    fn changed(&mut self, path: &str, zxid: u64) {
        self.changes.entry((Watched::Data, path.to_owned())).or_default().insert(zxid);
    }

    fn child_changed(&mut self, path: &str, zxid: u64) {
        if let Some(parent) = parent_of(path) {
            self.changes.entry((Watched::Children, parent.to_owned())).or_default().insert(zxid);
        }
    }

    /// A server has deleted an ephemeral node.
    pub(crate) fn on_deleted(&mut self, deleted: &Deleted) {
        let Deleted { path, zxid, at } = deleted;
        self.changed(path, *zxid);
        self.child_changed(path, *zxid);
        self.goings.entry(*zxid).or_insert(*at);
        self.existence.entry(path.clone()).or_default().insert(*zxid, false);
        self.below.add(path, *zxid, DELETED, *at);
    }

    /// A name is given once, and a later one is larger.
    fn on_name(&mut self, path: &str, zxid: u64) {
        let parent = parent_of(path).unwrap_or("/").to_owned();
        let names = self.names.entry(parent).or_default();
        let other = names.iter().find(|(at, name)| **at != zxid && *name == path);
        invariant!(UNIQ, other.is_none(), "{path} was given at {zxid} and at {other:?}");
        names.insert(zxid, path.to_owned());
        let before = names.range(..zxid).next_back().map_or(0, |(_, name)| number_of(name) + 1);
        let after = names.range(zxid + 1..).next().map_or(u64::MAX, |(_, name)| number_of(name));
        let number = number_of(path);
        invariant!(
            UNIQ,
            before <= number && number < after,
            "{path} at {zxid} lies between {before} and {after}"
        );
    }

    /// A session that others know to be over writes no more.
    fn on_write(&mut self, reported: &Reported<'_>) {
        let doomed = self.doomed.get(&reported.session).copied().unwrap_or(u64::MAX);
        invariant!(
            EPH,
            doomed > reported.awaited.at,
            "session {:x} lost an ephemeral node at {doomed} and wrote at {}",
            reported.session,
            reported.awaited.at
        );
        let abandoned = self.abandoned.values_mut().filter(|it| it.session == reported.session);
        for it in abandoned.filter(|it| it.at <= reported.awaited.at) {
            it.before.get_or_insert(reported.zxid);
        }
    }

    /// What a session has asked on a connection is done before what it asks on a later one, or never.
    fn check_abandoned(&self) {
        for (path, facts) in &self.facts {
            for (&zxid, fact) in facts {
                let Some(it) = fact.value.as_ref().and_then(|value| self.abandoned.get(value)) else {
                    continue;
                };
                invariant!(
                    ORDER,
                    it.before.is_none_or(|before| zxid < before),
                    "session {:x} wrote {path} at {zxid} on a lost connection, and on a later one at {:?}",
                    it.session,
                    it.before
                );
            }
        }
    }

    /// Who queues for the lock was seen: a user that is not there and has not left has lost the session.
    pub(crate) fn on_queue(&mut self, names: &[String], asked: u64, now: u64, users: &[User]) {
        for queued in users.iter().filter_map(|user| user.queued.as_ref()) {
            let there = names.iter().any(|name| queued.path.ends_with(name.as_str()));
            if there {
                let closed = self.closed.get(&queued.session).copied().unwrap_or(u64::MAX);
                invariant!(EPH, closed >= asked, "{} outlives its session", queued.path);
            } else if !queued.leaving && queued.since < asked {
                self.doomed.entry(queued.session).or_insert(now);
            }
        }
    }

    /// An event ends these watches.
    pub(crate) fn on_event(&self, path: &str, kind: i32, zxid: i64, armed: &[Armed]) {
        let waits = armed.iter().any(|armed| armed.absent);
        invariant!(
            WATCH,
            kind != DELETED || !waits,
            "who waits for {path} is notified that it has gone, at {zxid}"
        );
        for armed in armed.iter().filter(|_| zxid > 0) {
            invariant!(
                WATCH,
                zxid as u64 > armed.shown,
                "event {kind} of {path} at {zxid} came after answers that show {}",
                armed.shown
            );
        }
    }

    /// A watch whose event never came although answers have shown what came after, or although all is at rest.
    pub(crate) fn lost_watch(&self, user: &User, at_rest: bool) -> Option<String> {
        for ((kind, path), armed) in &user.watches {
            if at_rest && armed.is_denied {
                return Some(format!(
                    "{kind:?} of {path} was not watched any more, and {armed:?} was not announced"
                ));
            }
            let Some(changes) = self.changes.get(&(*kind, path.clone())) else { continue };
            let until = if at_rest { u64::MAX } else { armed.shown };
            let Some(since) = self.missed_until(path, armed) else { continue };
            if since < until
                && let Some(zxid) = changes.range(since + 1..=until).next()
            {
                return Some(format!("{kind:?} of {path} changed at {zxid} and {armed:?} was not announced"));
            }
        }
        user.lasting.lost(&self.below, at_rest)
    }

    /// Up to which zxid nothing need be announced of the watch: a node may have come and gone while its user was away. None if
    /// that may be at any time.
    fn missed_until(&self, path: &str, armed: &Armed) -> Option<u64> {
        let Some(renewed) = armed.renewed_at else { return Some(armed.since) };
        if self.doubtful_goings.get(path).is_some_and(|&asked| asked < renewed) {
            return None;
        }
        let existence = self.existence.get(path).into_iter().flatten();
        let goings = existence.filter(|(_, comes)| !**comes).map(|(&zxid, _)| zxid);
        let before = goings.filter(|zxid| self.goings.get(zxid).is_some_and(|&asked| asked < renewed));
        Some(before.max().unwrap_or(0).max(armed.since))
    }

    /// The whole history; false if that took too many steps.
    pub(crate) fn check(&self) -> bool {
        self.check_abandoned();
        self.check_checked();
        self.views.check(|path, range| {
            self.facts.get(path).and_then(|facts| facts.range(range).next()).map(|(&zxid, _)| zxid)
        });
        for (path, existence) in &self.existence {
            let Some(parent) = parent_of(path).filter(|parent| FLEETING.contains(parent)) else { continue };
            for (&zxid, _) in existence.iter().filter(|(_, comes)| **comes) {
                let known =
                    self.existence.get(parent).and_then(|existence| existence.range(..zxid).next_back());
                let gone = known.is_some_and(|(_, comes)| !comes) && !self.doubtful.contains(parent);
                invariant!(ATOMIC, !gone, "{path} was made at {zxid}, when {parent} was not there");
            }
            let goings = self.existence.get(parent).into_iter().flatten().filter(|(_, comes)| !**comes);
            for (&zxid, _) in goings {
                let child = existence.range(..zxid).next_back();
                let there = child.is_some_and(|(_, comes)| *comes) && !self.doubtful.contains(path);
                invariant!(ATOMIC, !there, "{parent} was deleted at {zxid}, when {path} was there");
            }
        }
        // Enough for all but a few runs with many writes whose outcome nobody knows.
        let mut budget = SearchBudget { steps: SEARCH_STEPS, ..SearchBudget::default() };
        match self.kv.check_linearizable_within(&mut budget) {
            KvVerdict::Violated { sentences, .. } => panic!("LIN: {sentences:?}"),
            KvVerdict::Undecided { .. } => false,
            KvVerdict::Holds { .. } => true,
        }
    }

    pub(crate) fn to_text(&self) -> Option<String> {
        let mut out = Vec::new();
        self.kv.write_jsonl(&mut out).ok()?;
        String::from_utf8(out).ok()
    }
}

fn create(value: &str) -> KvCall {
    KvCall::CompareAndSet { expected: Expected::Value(Value::Nil), value: Value::from(value) }
}

fn written(zxid: i64) -> Option<KvReply> {
    Some(KvReply::written(Version(zxid as u64)))
}
