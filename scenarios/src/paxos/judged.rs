//! The key-value store beside a plain model of it: each answer is the model's, and so is the state that a snapshot begins with.

use kernel::{DecodeError, Recount, SnapshotStep, StateMachine, invariant};
use kv::{Answer, Command, Expect, Item, Query, Store, Versioned};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A page of more bytes than this may end early, and is not judged.
const JUDGED_BYTES_MAX: usize = 256 << 10;

/// A store that is compared with the model. Where it begins from a snapshot, the model does too: other audits compare replicas.
#[derive(Clone, Debug)]
pub struct Judged {
    store: Store,
    model: OnceCell<Model>,
    repeated_max: usize,
}

#[derive(Clone, Debug)]
struct Model {
    rows: BTreeMap<Vec<u8>, (Arc<[u8]>, u64)>,
    revision: u64,
}

impl Judged {
    pub(super) fn new() -> Self {
        Self { store: Store::new(1), model: OnceCell::new(), repeated_max: usize::MAX }
    }

    fn model(&self) -> &Model {
        self.model.get_or_init(|| Model::of(&self.store))
    }
}

impl StateMachine for Judged {
    fn anticipate<'a>(&self, commands: impl Iterator<Item = &'a [u8]>) {
        self.store.anticipate(commands);
    }

    fn repeat_at_most(&mut self, bytes: usize) {
        self.repeated_max = bytes;
        self.store.repeat_at_most(bytes);
    }

    fn apply(&mut self, command: &[u8], response: &mut Vec<u8>) {
        self.model();
        let at = response.len();
        self.store.apply(command, response);
        let (Some(model), Ok(command)) = (self.model.get_mut(), Command::decode(command)) else { return };
        let wanted = model.execute(&command, self.repeated_max);
        judge(&command, &response[at..], wanted);
    }

    fn query(&self, query: &[u8], response: &mut Vec<u8>) {
        let at = response.len();
        self.store.query(query, response);
        let Ok(query) = Query::decode(query) else { return };
        if let Some(wanted) = self.model().answer(&query) {
            judge(&query, &response[at..], wanted);
        }
    }

    fn begin_snapshot(&mut self) {
        let (model, revision) = (self.model(), self.store.revision());
        let rows = self.store.rows().map(|(key, value, version)| (key, (value, version)));
        let wanted = model.rows.iter().map(|(key, (value, version))| (&key[..], (&value[..], *version)));
        let same = rows.eq(wanted) && revision == model.revision;
        invariant!(
            LIN,
            same,
            "the store of revision {revision} is not what its commands make, of {}",
            model.revision
        );
        self.store.begin_snapshot();
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        self.store.snapshot_step(budget, chunk)
    }

    fn snapshot_bytes(&self) -> u64 {
        self.store.snapshot_bytes()
    }

    fn reset(&mut self) {
        self.model = OnceCell::new();
        self.store.reset();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        self.model = OnceCell::new();
        self.store.install(chunk)
    }

    fn digest(&self) -> u64 {
        self.store.digest()
    }

    fn recounts(&self) -> Vec<Recount> {
        self.store.recounts()
    }
}

fn judge(asked: &impl std::fmt::Debug, response: &[u8], wanted: Answer) {
    let given = Answer::decode(response).map(without_words);
    invariant!(
        LIN,
        given.as_ref() == Ok(&wanted),
        "{:.300} is answered {:.300}, and the model says {:.300}",
        format!("{asked:?}"),
        format!("{given:?}"),
        format!("{wanted:?}")
    );
}

/// Why a command is wrong is said in words that nobody relies on.
fn without_words(answer: Answer) -> Answer {
    match answer {
        Answer::Invalid(_) => invalid(),
        Answer::BatchFailed { index, answer } => {
            Answer::BatchFailed { index, answer: Box::new(without_words(*answer)) }
        }
        answer => answer,
    }
}

fn invalid() -> Answer {
    Answer::Invalid(String::new())
}

fn fails(answer: &Answer) -> bool {
    matches!(answer, Answer::Mismatch { .. } | Answer::MismatchAt { .. } | Answer::Invalid(_))
}

impl Model {
    fn of(store: &Store) -> Self {
        let rows = store.rows().map(|(key, value, version)| (key.to_vec(), (value.into(), version)));
        Self { rows: rows.collect(), revision: store.revision() }
    }

    fn find(&self, key: &[u8]) -> Option<Versioned> {
        let (value, version) = self.rows.get(key)?;
        Some(Versioned { value: value.to_vec(), version: *version })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> (u64, u64) {
        self.revision += 1;
        let before = self.rows.insert(key.to_vec(), (value.into(), self.revision));
        (self.revision, before.map_or(0, |(_, version)| version))
    }

    fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Answer {
        match value {
            Some(value) => {
                let (version, previous) = self.put(key, value);
                Answer::Written { version, previous }
            }
            None => match self.rows.remove(key) {
                Some((_, previous)) => {
                    self.revision += 1;
                    Answer::Deleted { version: self.revision, previous }
                }
                None => Answer::Deleted { version: 0, previous: 0 },
            },
        }
    }

    fn execute(&mut self, command: &Command<'_>, repeated_max: usize) -> Answer {
        match command {
            Command::Put { key, value } => self.set(key, Some(value)),
            Command::Delete { key } => self.set(key, None),
            Command::CompareAndSet { key, expect, value } => {
                let found = self.rows.get(*key);
                let holds = match (expect, found) {
                    (Expect::Absent, found) => found.is_none(),
                    (Expect::Version(_) | Expect::Value(_), None) => false,
                    (Expect::Version(expected), Some((_, version))) => expected == version,
                    (Expect::Value(expected), Some((value, _))) => *expected == &value[..],
                };
                match (holds, found) {
                    (true, _) => self.set(key, *value),
                    (false, Some((value, version))) if value.len() > repeated_max => {
                        Answer::MismatchAt { version: *version }
                    }
                    (false, _) => Answer::Mismatch { found: self.find(key) },
                }
            }
            Command::Increment { key, by } => self.increment(key, *by),
            Command::Batch { commands } => self.execute_all(commands, repeated_max),
        }
    }

    fn increment(&mut self, key: &[u8], by: i64) -> Answer {
        let text = self.rows.get(key).map(|(value, _)| String::from_utf8_lossy(value).into_owned());
        let number = text.map_or(Ok(0), |text| text.parse::<i64>());
        let Some(number) = number.ok().and_then(|number| number.checked_add(by)) else { return invalid() };
        let (version, previous) = self.put(key, number.to_string().as_bytes());
        Answer::Counted { number, version, previous }
    }

    fn execute_all(&mut self, commands: &[Command<'_>], repeated_max: usize) -> Answer {
        let (mut after, mut answers) = (self.clone(), Vec::new());
        for (command, index) in commands.iter().zip(0..) {
            let answer = after.execute(command, repeated_max);
            if fails(&answer) {
                return Answer::BatchFailed { index, answer: Box::new(answer) };
            }
            answers.push(answer);
        }
        *self = after;
        Answer::Batch(answers)
    }

    /// What a read finds, unless it is so much that pages end early.
    fn answer(&self, query: &Query<'_>) -> Option<Answer> {
        match query {
            Query::Get { key } => Some(Answer::Found(self.find(key))),
            Query::GetMany { keys } => {
                let found: Vec<_> = keys.iter().map(|key| self.find(key)).collect();
                let bytes: usize = found.iter().flatten().map(|found| found.value.len()).sum();
                (bytes <= JUDGED_BYTES_MAX).then_some(Answer::FoundMany(found))
            }
            Query::Scan { start, end, limit } => {
                let from = (Bound::Included(start.to_vec()), Bound::Unbounded);
                let mut within =
                    self.rows.range(from).filter(|(key, _)| end.is_none_or(|end| &key[..] < end));
                let items: Vec<Item> = within
                    .by_ref()
                    .take(*limit as usize)
                    .map(|(key, (value, version))| Item {
                        key: key.clone(),
                        versioned: Versioned { value: value.to_vec(), version: *version },
                    })
                    .collect();
                let bytes: usize = items.iter().map(|item| item.versioned.value.len()).sum();
                let next = within.next().map(|(key, _)| key.clone());
                (bytes <= JUDGED_BYTES_MAX).then_some(Answer::Page { items, next })
            }
        }
    }
}
