//! What every format comes down to: one operation with its fields, collected into a history.

use super::tree::Tree;
use super::{LoadError, LoadOptions, Loaded};
use crate::history::{Draft, History, Timestamp};
use crate::kv::{Expected, KvCall, KvHistory, KvReply};
use crate::level::Level;
use crate::search::{Interval, LogCall, LogReply, QueueCall, QueueReply, ZnodeCall, ZnodeReply};
use crate::terms::{Fate, Process, Time, Value, Version};
use std::collections::BTreeMap;

/// One operation as a format names it.
#[derive(Clone, Debug)]
pub(super) struct Row<'t> {
    pub(super) line: u32,
    pub(super) process: Process,
    pub(super) invoke: Time,
    pub(super) complete: Time,
    pub(super) fate: Fate,
    pub(super) f: String,
    pub(super) key: Option<&'t Tree<'t>>,
    pub(super) value: Option<&'t Tree<'t>>,
    pub(super) output: Option<&'t Tree<'t>>,
    pub(super) answer: Option<&'t Tree<'t>>,
    pub(super) expected: Option<&'t Tree<'t>>,
    pub(super) expected_version: Option<&'t Tree<'t>>,
    pub(super) timestamp: Option<Timestamp>,
    pub(super) committed: Option<Timestamp>,
    pub(super) service: Option<&'t Tree<'t>>,
    pub(super) level: Option<Level>,
    pub(super) as_of: Option<Version>,
}

/// A read or write of a register, retained until it is known whether compare-and-sets are about.
#[derive(Clone, Debug)]
struct Plain {
    draft: Draft,
    kv: KvRow,
}

#[derive(Clone, Debug)]
struct KvRow {
    process: Process,
    invoke: Time,
    complete: Time,
    fate: Fate,
    key: String,
    call: KvCall,
    reply: Option<KvReply>,
}

impl Row<'_> {
    /// A level that no model looks at would be dropped silently.
    fn has_no_level(&self) -> Result<(), String> {
        match self.level.is_some() || self.as_of.is_some() {
            true => Err(format!("{LEVELS}, and {} is none", self.f)),
            false => Ok(()),
        }
    }
}

const LEVELS: &str = "levels are for reads, writes, appends, fences and transactions";

/// The rows of one file.
pub(super) struct Rows {
    history: History,
    plain: Vec<(usize, Plain)>,
    kv: Vec<(usize, KvRow)>,
    queues: Vec<(String, Interval<QueueCall, QueueReply>)>,
    logs: Vec<(String, Interval<LogCall, LogReply>)>,
    znodes: Vec<Interval<ZnodeCall, ZnodeReply>>,
    clients: BTreeMap<String, Process>,
    count: usize,
    last_line: u32,
}

impl Rows {
    pub(super) fn new(options: &LoadOptions) -> Rows {
        let mut history = History::new();
        if let Some(initial) = &options.initial {
            history = history.with_initial(initial.clone());
        }
        if options.pipelined {
            history = history.with_pipelining();
        }
        if let Some(level) = options.level {
            history = history.with_level(level);
        }
        Rows {
            history,
            plain: Vec::new(),
            kv: Vec::new(),
            queues: Vec::new(),
            logs: Vec::new(),
            znodes: Vec::new(),
            clients: BTreeMap::new(),
            count: 0,
            last_line: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn pipelined(&mut self) {
        self.history = std::mem::take(&mut self.history).with_pipelining();
    }

    pub(super) fn initial(&mut self, value: Value) {
        self.history = std::mem::take(&mut self.history).with_initial(value);
    }

    pub(super) fn default_level(&mut self, level: Level) {
        self.history = std::mem::take(&mut self.history).with_level(level);
    }

    /// Named clients get numbers above all numbered ones.
    pub(super) fn process(&mut self, tree: &Tree<'_>) -> Result<Process, String> {
        const NAMED_FROM: u64 = 1 << 40;
        match tree {
            Tree::Int(number) => {
                u64::try_from(*number).map(Process).map_err(|_| format!("client {number} is negative"))
            }
            Tree::Text(name) => {
                let fresh = Process(NAMED_FROM + self.clients.len() as u64);
                Ok(*self.clients.entry(name.to_string()).or_insert(fresh))
            }
            _ => Err("a client is a number or a name".to_owned()),
        }
    }

    pub(super) fn message(&mut self, process: Process, at: Time, name: &Tree<'_>, sent: bool, line: u32) {
        self.history.message(process, at, name.value(), sent, line);
    }

    /// Takes one operation.
    pub(super) fn take(&mut self, row: &Row<'_>) -> Result<(), String> {
        if row.complete < row.invoke {
            return Err(format!("it returns at {}, before it is called at {}", row.complete, row.invoke));
        }
        self.count += 1;
        self.last_line = row.line;
        match &*row.f {
            "fence" => {
                self.history.add(self.draft(row).fence());
                Ok(())
            }
            "read" | "r" | "get" | "write" | "w" | "put" | "append" => self.plain(row),
            "delete" | "cas" | "compare-and-set" | "increment" | "add" => {
                let kv = row.has_no_level().and_then(|()| kv_row(row))?;
                self.kv.push((self.count, kv));
                Ok(())
            }
            "enqueue" | "dequeue" => row.has_no_level().and_then(|()| self.queue(row)),
            "log-append" | "log-read" | "log-tail" => row.has_no_level().and_then(|()| self.log(row)),
            name if name.starts_with("zk-") => row.has_no_level().and_then(|()| self.znode(row)),
            _ => self.transaction(row),
        }
    }

    fn draft(&self, row: &Row<'_>) -> Draft {
        let mut draft = Draft::new(row.process, row.invoke, row.complete).on_line(row.line);
        if let Some(service) = row.service {
            draft = draft.at_service(service.value());
        }
        if let Some(level) = row.level {
            draft = draft.at_level(level);
        }
        if let Some(as_of) = row.as_of {
            draft = draft.as_of(as_of);
        }
        match row.fate {
            Fate::Ok => draft,
            Fate::Fail => draft.failed(),
            Fate::Unknown => draft.unknown(),
        }
    }

    fn transaction(&mut self, row: &Row<'_>) -> Result<(), String> {
        let Some(parts) = row.value.and_then(Tree::seq) else {
            return Err(format!("f {:?} is not known, and its value is no list of micro-operations", row.f));
        };
        let mut draft = self.draft(row);
        for part in parts {
            let (Some([name, key, rest @ ..]), true) =
                (part.seq(), part.seq().is_some_and(|part| part.len() <= 4))
            else {
                return Err("a micro-operation is [f key value] or [f key value version]".to_owned());
            };
            let value = rest.first().unwrap_or(&Tree::Nil);
            draft = match (name.word(), value) {
                (Some("r" | "read"), Tree::Seq(list)) => {
                    draft.read_list(key.value(), list.iter().map(Tree::value))
                }
                (Some("r" | "read"), value) => draft.read(key.value(), value.value()),
                (Some("w" | "write"), value) => draft.write(key.value(), value.value()),
                (Some("append"), value) => draft.append(key.value(), value.value()),
                (other, _) => {
                    return Err(format!(
                        "micro-operation {:?} is not known: r, w or append",
                        other.unwrap_or("?")
                    ));
                }
            };
            if let Some(version) = rest.get(1).filter(|version| **version != Tree::Nil) {
                draft = draft.timestamped(timestamp(version)?);
            }
        }
        if let Some(committed) = row.committed {
            draft = draft.committed_at(committed);
        }
        self.history.add(draft);
        Ok(())
    }

    fn plain(&mut self, row: &Row<'_>) -> Result<(), String> {
        let nil = Tree::Nil;
        let key = row.key.unwrap_or(&nil);
        let mut draft = self.draft(row);
        let seen = row.output.or(row.value).unwrap_or(&nil);
        draft = match (&*row.f, seen) {
            ("read" | "r" | "get", Tree::Seq(list)) => {
                draft.read_list(key.value(), list.iter().map(Tree::value))
            }
            ("read" | "r" | "get", seen) => draft.read(key.value(), seen.value()),
            ("append", _) => draft.append(key.value(), row.value.ok_or("an append without a value")?.value()),
            (_, _) => draft.write(key.value(), row.value.ok_or("a write without a value")?.value()),
        };
        if let Some(timestamp) = row.timestamp.or(row.committed) {
            draft = draft.timestamped(timestamp);
        }
        let kv = kv_row(row)?;
        self.plain.push((self.count, Plain { draft, kv }));
        Ok(())
    }

    fn queue(&mut self, row: &Row<'_>) -> Result<(), String> {
        let name = row.key.map_or(String::new(), |key| key.value().to_string());
        let value = || row.output.or(row.value).map(Tree::value).filter(|value| *value != Value::Nil);
        let (call, reply) = match &*row.f {
            "enqueue" => {
                (QueueCall::Enqueue(value().ok_or("an enqueue without a value")?), QueueReply::Enqueued)
            }
            _ => (QueueCall::Dequeue, QueueReply::Dequeued(value())),
        };
        self.queues.push((name, interval(row, call, reply)));
        Ok(())
    }

    fn log(&mut self, row: &Row<'_>) -> Result<(), String> {
        let name = row.key.map_or(String::new(), |key| key.value().to_string());
        let position = || row.timestamp.map(|timestamp| timestamp.0[0]);
        let value = row.output.or(row.value).map(Tree::value).filter(|value| *value != Value::Nil);
        let at = |what: &str| position().map(LogReply::At).ok_or(format!("{what} without a pos"));
        let (call, reply) = match (&*row.f, row.fate) {
            ("log-append", fate) => {
                let value = value.ok_or("an append without a value")?;
                let reply = if fate == Fate::Ok { at("an answered append")? } else { LogReply::At(0) };
                (LogCall::Append(value), reply)
            }
            ("log-tail", Fate::Ok) => (LogCall::Tail, at("an answered tail")?),
            ("log-tail", _) => (LogCall::Tail, LogReply::At(0)),
            (_, _) => (LogCall::Read(position().ok_or("a log read without a pos")?), LogReply::Holds(value)),
        };
        self.logs.push((name, interval(row, call, reply)));
        Ok(())
    }

    fn znode(&mut self, row: &Row<'_>) -> Result<(), String> {
        let path = row.key.map_or("/".to_owned(), |key| key.value().to_string());
        let call = znode_call(&row.f, path, row.value, row.expected_version)?;
        let answer = row.answer.and_then(Tree::word);
        let version = || {
            row.timestamp.map(|timestamp| timestamp.0[0] as i64).ok_or("a version is wanted in the answer")
        };
        let reply = match (answer, &call) {
            (Some("refused"), _) => ZnodeReply::Refused,
            (_, _) if row.fate != Fate::Ok => ZnodeReply::Done,
            (_, ZnodeCall::Set(..)) => ZnodeReply::Version(version()?),
            (_, ZnodeCall::Get(_)) => {
                ZnodeReply::Data(row.output.map_or(Value::Nil, Tree::value), version()?)
            }
            (_, ZnodeCall::Multi(parts)) => multi_reply(parts, row.output)?,
            (_, ZnodeCall::Create(..) | ZnodeCall::Delete(..) | ZnodeCall::Check(..)) => ZnodeReply::Done,
        };
        self.znodes.push(interval(row, call, reply));
        Ok(())
    }

    /// One kind of data per file; registers become key-value operations where there are compare-and-sets.
    pub(super) fn finish(mut self) -> Result<Loaded, LoadError> {
        let transactions =
            !self.history.operations().is_empty() || !self.plain.is_empty() && self.kv.is_empty();
        let kinds =
            [!self.kv.is_empty(), !self.queues.is_empty(), !self.logs.is_empty(), !self.znodes.is_empty()];
        if usize::from(transactions) + kinds.iter().filter(|kind| **kind).count() > 1 {
            let reason = "one file mixes kinds of data that no single object has (transactions, kv, queue, log, nodes)";
            return Err(LoadError::new(self.last_line, reason));
        }
        if kinds[1] {
            return Ok(Loaded::Queues(self.queues));
        }
        if kinds[2] {
            return Ok(Loaded::Logs(self.logs));
        }
        if kinds[3] {
            return Ok(Loaded::Znodes(self.znodes));
        }
        if kinds[0] {
            let levelled = self.plain.iter().find(|(_, plain)| plain.draft.has_level());
            if let Some((_, plain)) = levelled {
                let reason =
                    format!("{LEVELS}, and not for files with deletes, increments or compare-and-sets");
                return Err(LoadError::new(plain.draft.line(), reason));
            }
            let mut rows = self.kv;
            rows.extend(self.plain.into_iter().map(|(at, plain)| (at, plain.kv)));
            rows.sort_by_key(|(at, _)| *at);
            return Ok(Loaded::Kv(kv_history(rows)));
        }
        for (_, plain) in self.plain {
            self.history.add(plain.draft);
        }
        self.history.empty_lists();
        self.history.validate()?;
        Ok(Loaded::Transactions(Box::new(self.history)))
    }
}

fn interval<C, R>(row: &Row<'_>, call: C, reply: R) -> Interval<C, R> {
    Interval {
        process: row.process,
        invoke: row.invoke,
        complete: row.complete,
        fate: row.fate,
        call,
        reply: (row.fate == Fate::Ok).then_some(reply),
    }
}

/// A version, position or timestamp; or a carstamp of up to three numbers.
pub(super) fn timestamp(tree: &Tree<'_>) -> Result<Timestamp, String> {
    let number = |tree: &Tree<'_>| {
        let number = tree.int().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| "a version is a whole number, or a carstamp of three".to_owned())
    };
    match tree {
        Tree::Seq(parts) if (1..=3).contains(&parts.len()) => {
            let mut timestamp = [0; 3];
            for (at, part) in parts.iter().enumerate() {
                timestamp[at] = number(part)?;
            }
            Ok(Timestamp(timestamp))
        }
        other => number(other).map(Timestamp::version),
    }
}

/// The level of an operation, by its word.
pub(super) fn level(tree: &Tree<'_>) -> Result<Level, String> {
    tree.word().ok_or("a level is a word")?.parse()
}

/// The timestamp that a read is as of.
pub(super) fn as_of(tree: &Tree<'_>) -> Result<Version, String> {
    let number = tree.int().and_then(|number| u64::try_from(number).ok());
    number.map(Version).ok_or_else(|| "what a read is as of is a whole number, 0 or more".to_owned())
}

fn kv_row(row: &Row<'_>) -> Result<KvRow, String> {
    let version = row.timestamp.map(|timestamp| Version(timestamp.0[0]));
    let value = || row.value.map(Tree::value).ok_or_else(|| format!("{} without a value", row.f));
    let call = match &*row.f {
        "read" | "r" | "get" => KvCall::Get,
        "write" | "w" | "put" | "append" => KvCall::Put(value()?),
        "delete" => KvCall::Delete,
        "increment" | "add" => {
            KvCall::Increment(row.value.and_then(Tree::int).ok_or("an increment adds a whole number")?)
        }
        _ => {
            let expected = match (row.expected_version, row.expected) {
                (Some(version), _) => Expected::Version(Version(timestamp(version)?.0[0])),
                (None, Some(expected)) => Expected::Value(expected.value()),
                (None, None) => return Err("a compare-and-set without what it expects".to_owned()),
            };
            KvCall::CompareAndSet { expected, value: value()? }
        }
    };
    let output = row.output.map(Tree::value);
    let found = || KvReply::Found { value: output.clone(), version };
    let reply = match (row.answer.and_then(Tree::word), &call) {
        (Some("found"), _) => found(),
        (Some("written"), _) => KvReply::Written { value: output, version },
        (Some(other), _) => return Err(format!("answer {other:?} is not known: found or written")),
        (None, KvCall::Get) => KvReply::Found {
            value: Some(output.or(row.value.map(Tree::value)).unwrap_or(Value::Nil)),
            version,
        },
        (None, KvCall::Increment(_)) => KvReply::Written { value: output, version },
        (None, KvCall::Put(_) | KvCall::Delete | KvCall::CompareAndSet { .. }) => {
            KvReply::Written { value: None, version }
        }
    };
    Ok(KvRow {
        process: row.process,
        invoke: row.invoke,
        complete: row.complete,
        fate: row.fate,
        key: row.key.map_or(String::new(), |key| key.value().to_string()),
        call,
        reply: (row.fate == Fate::Ok).then_some(reply),
    })
}

fn kv_history(rows: Vec<(usize, KvRow)>) -> KvHistory {
    let mut history = KvHistory::new();
    for (_, row) in rows {
        let op = history.invoke(row.process, &row.key, row.call, row.invoke);
        match (row.fate, row.reply) {
            (Fate::Ok, Some(reply)) => history.complete(op, reply, row.complete),
            (Fate::Fail, _) => history.fail(op, row.complete),
            (Fate::Ok | Fate::Unknown, _) => history.unknown(op),
        }
    }
    history
}

fn znode_call(
    f: &str,
    path: String,
    value: Option<&Tree<'_>>,
    expected: Option<&Tree<'_>>,
) -> Result<ZnodeCall, String> {
    let data = || value.map_or(Value::Nil, Tree::value);
    let version = expected.and_then(Tree::int);
    Ok(match f {
        "zk-create" => ZnodeCall::Create(path, data()),
        "zk-set" => ZnodeCall::Set(path, data(), version),
        "zk-delete" => ZnodeCall::Delete(path, version),
        "zk-get" => ZnodeCall::Get(path),
        "zk-check" => ZnodeCall::Check(path, version.ok_or("a check without expected-version")?),
        "zk-multi" => {
            let parts = value.and_then(Tree::seq).ok_or("a multi without its parts")?;
            let part = |part: &Tree<'_>| {
                let name = part.get("f").and_then(Tree::word).ok_or("a part of a multi without f")?;
                let path = part.get("key").map_or("/".to_owned(), |key| key.value().to_string());
                znode_call(name, path, part.get("value"), part.get("expected-version"))
            };
            ZnodeCall::Multi(parts.iter().map(part).collect::<Result<_, String>>()?)
        }
        other => return Err(format!("f {other:?} is not known")),
    })
}

fn multi_reply(parts: &[ZnodeCall], output: Option<&Tree<'_>>) -> Result<ZnodeReply, String> {
    // The answers that matter are the versions of sets, in order; creates, deletes and checks only say done.
    let versions = output.and_then(Tree::seq).unwrap_or(&[]);
    let mut answers = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        answers.push(match part {
            ZnodeCall::Set(..) => {
                let version = versions.get(at).and_then(Tree::int);
                ZnodeReply::Version(
                    version.ok_or("a multi's output names one version per part (null for others)")?,
                )
            }
            _ => ZnodeReply::Done,
        });
    }
    Ok(ZnodeReply::Multi(answers))
}
