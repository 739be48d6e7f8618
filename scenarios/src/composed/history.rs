//! What users did at all services, judged as one: regular sequential serializability over the composition.

use super::session::Service;
use consistency::history::{Draft, History as Recorded, Timestamp as Version};
use consistency::{Model, Process, Time, Verdict, check, operation_line};
use kernel::{Bytes, RequestId};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use wire::txn::{KeyRow, Timestamp};

/// What was asked.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Fence,
    Write(Vec<(String, String)>),
    Read,
    Append(String),
    ReadLog,
    Set(&'static str, String),
    Get(&'static str),
}

/// What was answered.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Fenced,
    Committed(Timestamp),
    Rows(Vec<KeyRow>),
    Appended(u64),
    /// Entries from a position on, and whether the log ends behind them.
    Entries(u64, Vec<String>, bool),
    /// A node was written by this change.
    Written(u64),
    /// A node has this value, which this change has written; none: nobody has written it.
    Found(Option<(u64, String)>),
    /// Nothing was done.
    Void,
    /// Nobody knows what was done.
    Unknown,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) client: u16,
    pub(super) incarnation: u32,
    pub(super) service: Service,
    pub(super) call: Call,
    pub(super) at: u64,
}

/// Everything that happened.
#[derive(Default)]
pub(super) struct History {
    calls: BTreeMap<RequestId, (Asked, Option<(u64, Outcome)>)>,
    messages: Vec<(Process, Process, u64)>,
}

/// Where readers have found what was written: versions of values of transactions, positions of entries, changes of nodes' values.
#[derive(Default)]
struct WhereFound {
    versions: BTreeMap<String, Timestamp>,
    positions: BTreeMap<String, u64>,
    changes: BTreeMap<String, u64>,
}

fn process(client: u16, incarnation: u32) -> Process {
    Process(u64::from(incarnation) << 16 | u64::from(client))
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl History {
    pub(super) fn asked(&mut self, id: RequestId, asked: Asked) {
        self.calls.insert(id, (asked, None));
    }

    pub(super) fn of(&self, id: RequestId) -> Option<&Asked> {
        self.calls.get(&id).map(|(asked, _)| asked)
    }

    pub(super) fn answered(&mut self, id: RequestId, outcome: Outcome, now: u64) {
        if let Some((_, answered)) = self.calls.get_mut(&id) {
            *answered = Some((now, outcome));
        }
    }

    pub(super) fn message(&mut self, from: (u16, u32), to: (u16, u32), now: u64) {
        self.messages.push((process(from.0, from.1), process(to.0, to.1), now));
    }

    /// Where what nobody was notified of was found by readers.
    fn found(&self) -> WhereFound {
        let WhereFound { mut versions, mut positions, mut changes } = WhereFound::default();
        for (_, answered) in self.calls.values() {
            match answered {
                Some((_, Outcome::Rows(rows))) => {
                    let with_value =
                        rows.iter().filter_map(|row| Some((text(row.value.as_ref()?), row.version)));
                    versions.extend(with_value);
                }
                Some((_, Outcome::Entries(first, entries, _))) => {
                    positions.extend(entries.iter().cloned().zip(*first..));
                }
                Some((_, Outcome::Found(Some((zxid, value))))) => {
                    changes.insert(value.clone(), *zxid);
                }
                Some(_) | None => {}
            }
        }
        WhereFound { versions, positions, changes }
    }

    fn recorded(&self) -> Recorded {
        let found = self.found();
        let mut recorded = Recorded::new();
        for (asked, answered) in self.calls.values() {
            let known = answered.as_ref().filter(|(_, outcome)| !matches!(outcome, Outcome::Unknown));
            let until = known.map_or(Time::NEVER, |(at, _)| Time(*at));
            let draft = Draft::new(process(asked.client, asked.incarnation), Time(asked.at), until);
            let draft = draft.at_service(asked.service.word());
            if let Some(draft) = drafted(asked, known.map(|(_, outcome)| outcome), draft, &found) {
                recorded.add(draft);
            }
        }
        for (message, (from, to, at)) in (0i64..).zip(&self.messages) {
            recorded.send(*from, Time(*at), message);
            recorded.receive(*to, Time(*at), message);
        }
        recorded
    }

    pub(super) fn check(&self) {
        let recorded = self.recorded();
        match check(&recorded, Model::Rss).expect("the history is well formed") {
            Verdict::Violated(witness) => {
                let operations = witness.operations.iter().map(|it| operation_line(&recorded, *it));
                let operations: Vec<String> = operations.collect();
                panic!("RSS: {}: {:?} {operations:?}", witness.summary, witness.sentences);
            }
            Verdict::Holds | Verdict::Undecided(_) => {}
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (id, (asked, answered)) in &self.calls {
            let _ = writeln!(text, "{} {asked:?} -> {answered:?}", id.0);
        }
        text
    }
}

fn drafted(asked: &Asked, outcome: Option<&Outcome>, mut draft: Draft, found: &WhereFound) -> Option<Draft> {
    let key = |name: &str| format!("{}/{name}", asked.service.word());
    match (&asked.call, outcome) {
        (_, Some(Outcome::Void)) => None,
        (Call::Fence, Some(_)) => Some(draft.fence()),
        (Call::Write(writes), outcome) => {
            let answered = match outcome {
                Some(Outcome::Committed(at)) => Some(*at),
                Some(_) | None => None,
            };
            let at = answered
                .or_else(|| writes.iter().find_map(|(_, value)| found.versions.get(value).copied()))?;
            for (name, value) in writes {
                draft = draft.write(key(name), value.clone());
            }
            let draft = draft.committed_at(Version::version(at.0));
            Some(if answered.is_some() { draft } else { draft.unknown() })
        }
        (Call::Read, Some(Outcome::Rows(rows))) => {
            for row in rows {
                draft = match &row.value {
                    Some(value) => draft.read(key(&text(&row.key)), text(value)),
                    None => draft.read_nothing(key(&text(&row.key))),
                };
            }
            Some(draft)
        }
        (Call::Append(entry), outcome) => {
            let answered = match outcome {
                Some(Outcome::Appended(position)) => Some(*position),
                Some(_) | None => None,
            };
            let position = answered.or_else(|| found.positions.get(entry).copied())?;
            let draft = draft.write(key(&position.to_string()), entry.clone());
            Some(if answered.is_some() { draft } else { draft.unknown() })
        }
        (Call::ReadLog, Some(Outcome::Entries(first, entries, is_end))) => {
            for (position, entry) in (*first..).zip(entries) {
                draft = draft.read(key(&position.to_string()), entry.clone());
            }
            if *is_end {
                draft = draft.read_nothing(key(&(first + entries.len() as u64).to_string()));
            }
            Some(draft)
        }
        (Call::Set(path, value), outcome) => {
            let answered = match outcome {
                Some(Outcome::Written(zxid)) => Some(*zxid),
                Some(_) | None => None,
            };
            let zxid = answered.or_else(|| found.changes.get(value).copied())?;
            let draft = draft.write(key(path), value.clone()).committed_at(Version::version(zxid));
            Some(if answered.is_some() { draft } else { draft.unknown() })
        }
        (Call::Get(path), Some(Outcome::Found(Some((_, value))))) => {
            Some(draft.read(key(path), value.clone()))
        }
        (Call::Get(path), Some(Outcome::Found(None))) => Some(draft.read_nothing(key(path))),
        (Call::Fence | Call::Read | Call::ReadLog | Call::Get(_), _) => None,
    }
}
