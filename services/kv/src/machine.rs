//! The state machine: executes commands on the table.

mod snapshot;

use crate::table::Table;
use kernel::{DecodeError, Recount, SnapshotStep, StateMachine};
use snapshot::Snapshot;
use wire::kv::{Answer, Command, Expect, Query, Reply, SCAN_BYTES_MAX, WireError};

/// The whole key-value store.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) table: Table,
    pub(crate) revision: u64,
    pub(crate) snapshot: Option<Snapshot>,
    /// How large a value may be that a failed condition found and that is repeated. Of the batch at hand; no part of the state.
    repeated_max: usize,
}

/// What a key and its value come with in a snapshot: tags, two lengths, a version.
const ENTRY_HEAD_BYTES: u64 = 18;

/// What a key held before a batch touched it.
struct Undo<'a> {
    key: &'a [u8],
    before: Option<(Vec<u8>, u64)>,
}

impl Store {
    /// An empty store. `hash_seed` should differ from process to process; nothing observable depends on it.
    pub fn new(hash_seed: u64) -> Self {
        Self { table: Table::new(hash_seed), revision: 0, snapshot: None, repeated_max: usize::MAX }
    }

    /// How many keys exist.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if no key exists.
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// All keys in order, with their values and versions.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        self.table.range(b"", None)
    }

    /// How many writes have succeeded.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> (u64, u64) {
        self.keep_for_snapshot(key);
        self.revision += 1;
        let (version, previous) = (self.revision, self.table.put(key, value, self.revision));
        kernel::invariant!(LIN, previous < version, "version {version} follows {previous}");
        (version, previous)
    }

    /// The revision of the deletion, 0 if there was nothing, and the version before.
    fn delete(&mut self, key: &[u8]) -> (u64, u64) {
        if self.table.get(key).is_none() {
            return (0, 0);
        }
        self.keep_for_snapshot(key);
        self.revision += 1;
        let (version, previous) = (self.revision, self.table.remove(key));
        kernel::invariant!(LIN, previous < version, "version {version} deletes {previous}");
        (version, previous)
    }

    fn execute(&mut self, command: &Command<'_>, reply: &mut Reply<'_>) {
        match command {
            Command::Put { key, value } => {
                let (version, previous) = self.put(key, value);
                reply.written(version, previous);
            }
            Command::Delete { key } => {
                let (version, previous) = self.delete(key);
                reply.deleted(version, previous);
            }
            Command::CompareAndSet { key, expect, value } => {
                let found = self.table.get(key);
                let holds = match expect {
                    Expect::Absent => found.is_none(),
                    Expect::Version(version) => found.is_some_and(|(_, found)| {
                        found == *version
                            || kernel::planted!(earlier_version_satisfies_condition) && found > *version
                    }),
                    Expect::Value(value) => found.is_some_and(|(found, _)| found == *value),
                };
                match (holds, value) {
                    (false, _) => reply.mismatch(found, self.repeated_max),
                    (true, Some(value)) => {
                        let (version, previous) = self.put(key, value);
                        reply.written(version, previous);
                    }
                    (true, None) => {
                        let (version, previous) = self.delete(key);
                        reply.deleted(version, previous);
                    }
                }
            }
            Command::Increment { key, by } => self.increment(key, *by, reply),
            Command::Batch { commands } => self.execute_batch(commands, reply),
        }
    }

    fn increment(&mut self, key: &[u8], by: i64, reply: &mut Reply<'_>) {
        let number = match self.table.get(key) {
            None => Some(0),
            Some((value, _)) => std::str::from_utf8(value).ok().and_then(|text| text.parse::<i64>().ok()),
        };
        match number.map(|number| number.checked_add(by)) {
            Some(Some(number)) => {
                let (version, previous) = self.put(key, number.to_string().as_bytes());
                reply.counted(number, version, previous);
            }
            Some(None) => reply.invalid("increment overflows 64 bits"),
            None => reply.invalid("increment of a value that is no decimal integer"),
        }
    }

    /// Commands that can fail are tried first on what the batch would see; only then is anything changed.
    fn execute_batch(&mut self, commands: &[Command<'_>], reply: &mut Reply<'_>) {
        let (before, at) = (self.revision, reply.0.len());
        let mut undo: Vec<Undo<'_>> = Vec::new();
        reply.0.push(5);
        reply.0.extend_from_slice(&(commands.len() as u32).to_le_bytes());
        for (index, command) in commands.iter().enumerate() {
            if let Some(key) = key_of(command) {
                let before = self.table.get(key).map(|(value, version)| (value.to_vec(), version));
                undo.push(Undo { key, before });
            }
            let answer_at = reply.0.len();
            self.execute(command, reply);
            // A mismatch, reported at length or briefly, and an invalid command are the ways to fail.
            if matches!(reply.0[answer_at], 3 | 10 | 11) {
                let answer = reply.0.split_off(answer_at);
                reply.0.truncate(at);
                reply.0.push(6);
                reply.0.extend_from_slice(&(index as u32).to_le_bytes());
                reply.0.extend_from_slice(&answer);
                return self.undo(undo, before);
            }
        }
    }

    fn undo(&mut self, undo: Vec<Undo<'_>>, revision: u64) {
        let mut undo = undo;
        if kernel::planted!(failed_batch_undone_forwards) {
            undo.reverse();
        }
        for Undo { key, before } in undo.into_iter().rev() {
            match before {
                Some((value, version)) => {
                    self.table.put(key, &value, version);
                }
                None => {
                    self.table.remove(key);
                }
            }
        }
        self.revision = revision;
    }

    fn read(&self, query: &Query<'_>, response: &mut Vec<u8>) {
        match query {
            Query::Get { key } => Reply(response).found(self.table.get(key)),
            Query::GetMany { keys } => {
                response.push(8);
                response.extend_from_slice(&(keys.len() as u32).to_le_bytes());
                for (index, key) in keys.iter().enumerate() {
                    if response.len() > SCAN_BYTES_MAX {
                        response.clear();
                        let why = format!(
                            "answer exceeds {SCAN_BYTES_MAX} bytes at key {index}; ask for fewer keys"
                        );
                        return Reply(response).invalid(&why);
                    }
                    Reply(response).versioned(self.table.get(key));
                }
            }
            Query::Scan { start, end, limit } => self.scan(start, *end, *limit, response),
        }
    }

    fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: u32, response: &mut Vec<u8>) {
        response.push(9);
        let count_at = response.len();
        response.extend_from_slice(&[0; 4]);
        let (mut count, mut next) = (0u32, None);
        for (key, value, version) in self.table.range(start, end) {
            if count >= limit || response.len() - count_at > SCAN_BYTES_MAX {
                next = Some(key);
                break;
            }
            wire::kv::put_bytes(key, response);
            Reply(response).versioned(Some((value, version)));
            count += 1;
        }
        response[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        match next {
            None => response.push(0),
            Some(key) => {
                response.push(1);
                wire::kv::put_bytes(key, response);
            }
        }
    }
}

fn key_of<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    match command {
        Command::Put { key, .. }
        | Command::Delete { key }
        | Command::CompareAndSet { key, .. }
        | Command::Increment { key, .. } => Some(key),
        Command::Batch { .. } => None,
    }
}

impl StateMachine for Store {
    fn anticipate<'a>(&self, commands: impl Iterator<Item = &'a [u8]>) {
        let touched: u64 =
            commands.filter_map(wire::kv::key_of_single).map(|key| self.table.touch(key)).sum();
        std::hint::black_box(touched);
    }

    fn repeat_at_most(&mut self, bytes: usize) {
        self.repeated_max = bytes;
    }

    fn apply(&mut self, command: &[u8], response: &mut Vec<u8>) {
        match Command::decode(command) {
            Ok(command) => self.execute(&command, &mut Reply(response)),
            Err(WireError(why)) => Reply(response).invalid(why),
        }
    }

    fn query(&self, query: &[u8], response: &mut Vec<u8>) {
        match Query::decode(query) {
            Ok(query) => self.read(&query, response),
            Err(WireError(why)) => Reply(response).invalid(why),
        }
    }

    fn begin_snapshot(&mut self) {
        self.snapshot = Some(Snapshot::of_revision(self.revision));
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let Some(mut snapshot) = self.snapshot.take() else { return SnapshotStep::Done };
        let step = snapshot.step(&self.table, budget, chunk);
        if step == SnapshotStep::More {
            self.snapshot = Some(snapshot);
        }
        step
    }

    fn snapshot_bytes(&self) -> u64 {
        self.table.bytes() + self.len() as u64 * ENTRY_HEAD_BYTES
    }

    fn reset(&mut self) {
        self.table.clear();
        self.revision = 0;
        self.snapshot = None;
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        snapshot::install(self, chunk).map_err(|WireError(what)| DecodeError::Invalid(what))
    }

    fn digest(&self) -> u64 {
        self.table.digest() ^ self.revision
    }

    fn recounts(&self) -> Vec<Recount> {
        self.table.recounts()
    }
}

impl Store {
    /// Executes a command for a caller that holds no bytes; tests and tools.
    pub fn apply_command(&mut self, command: &Command<'_>) -> Answer {
        let (mut bytes, mut response) = (Vec::new(), Vec::new());
        command.encode(&mut bytes);
        self.apply(&bytes, &mut response);
        Answer::decode(&response).unwrap_or_else(|WireError(what)| Answer::Invalid(what.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::kv::Versioned;

    fn get(store: &Store, key: &[u8]) -> Option<Versioned> {
        let (mut bytes, mut response) = (Vec::new(), Vec::new());
        Query::Get { key }.encode(&mut bytes);
        store.query(&bytes, &mut response);
        match Answer::decode(&response) {
            Ok(Answer::Found(found)) => found,
            other => panic!("a get was answered {other:?}"),
        }
    }

    // A version that repeats after a deletion would let a stale compare-and-set succeed.
    #[test]
    fn versions_grow_over_deletion_and_creation() {
        let mut store = Store::new(1);
        let put = Command::Put { key: b"k", value: b"a" };
        assert_eq!(store.apply_command(&put), Answer::Written { version: 1, previous: 0 });
        assert_eq!(
            store.apply_command(&Command::Delete { key: b"k" }),
            Answer::Deleted { version: 2, previous: 1 }
        );
        assert_eq!(
            store.apply_command(&Command::Delete { key: b"k" }),
            Answer::Deleted { version: 0, previous: 0 }
        );
        assert_eq!(store.apply_command(&put), Answer::Written { version: 3, previous: 0 });
        let stale = Command::CompareAndSet { key: b"k", expect: Expect::Version(1), value: Some(b"b") };
        let found = Some(Versioned { value: b"a".to_vec(), version: 3 });
        assert_eq!(store.apply_command(&stale), Answer::Mismatch { found });
        let fresh = Command::CompareAndSet { key: b"k", expect: Expect::Value(b"a"), value: None };
        assert_eq!(store.apply_command(&fresh), Answer::Deleted { version: 4, previous: 3 });
    }

    // A batch that stops half-way must leave nothing behind, digest and revision included.
    #[test]
    fn a_failed_batch_changes_nothing() {
        let mut store = Store::new(1);
        store.apply_command(&Command::Put { key: b"n", value: b"x" });
        let (digest, revision) = (store.digest(), store.revision());
        let failing = Command::Batch {
            commands: vec![
                Command::Put { key: b"n", value: b"1" },
                Command::Put { key: b"new", value: b"1" },
                Command::Delete { key: b"n" },
                Command::CompareAndSet { key: b"new", expect: Expect::Absent, value: Some(b"2") },
            ],
        };
        let Answer::BatchFailed { index: 3, .. } = store.apply_command(&failing) else {
            panic!("it must fail at 3")
        };
        assert_eq!((store.digest(), store.revision()), (digest, revision));
        assert_eq!(get(&store, b"new"), None);
        let passing = Command::Batch {
            commands: vec![Command::Increment { key: b"c", by: 5 }, Command::Increment { key: b"c", by: -7 }],
        };
        let Answer::Batch(answers) = store.apply_command(&passing) else { panic!("it must pass") };
        assert!(matches!(answers[1], Answer::Counted { number: -2, version: 3, previous: 2 }));
    }

    // A few bytes of commands that are each answered by a large value take all memory of every replica.
    #[test]
    fn large_values_are_not_repeated_unasked() {
        let mut store = Store::new(1);
        store.apply_command(&Command::Put { key: b"large", value: &[b'x'; 1_025] });
        store.apply_command(&Command::Put { key: b"small", value: &[b'x'; 1_024] });
        let failing =
            |key: &'static [u8]| Command::CompareAndSet { key, expect: Expect::Absent, value: None };
        let value = |bytes: usize, version| Versioned { value: vec![b'x'; bytes], version };
        let large = Answer::Mismatch { found: Some(value(1_025, 1)) };
        assert_eq!(store.apply_command(&failing(b"large")), large, "where nobody has said so");
        store.repeat_at_most(1_024);
        assert_eq!(store.apply_command(&failing(b"large")), Answer::MismatchAt { version: 1 });
        let small = Answer::Mismatch { found: Some(value(1_024, 2)) };
        assert_eq!(store.apply_command(&failing(b"small")), small);
        let absent = Command::CompareAndSet { key: b"none", expect: Expect::Version(7), value: None };
        assert_eq!(store.apply_command(&absent), Answer::Mismatch { found: None });
        let revision = store.revision();
        let put = Command::Put { key: b"new", value: b"1" };
        let batch = store.apply_command(&Command::Batch { commands: vec![put, failing(b"large")] });
        let brief = Box::new(Answer::MismatchAt { version: 1 });
        assert_eq!(batch, Answer::BatchFailed { index: 1, answer: brief });
        assert_eq!(store.revision(), revision, "nothing of the batch is left");
        store.repeat_at_most(0);
        assert_eq!(store.apply_command(&failing(b"small")), Answer::MismatchAt { version: 2 });
        assert_eq!(store.apply_command(&absent), Answer::Mismatch { found: None });
    }

    // A scan that skips or repeats a key at a page's border loses data in every export.
    #[test]
    fn pages_of_a_scan_join() {
        let mut store = Store::new(1);
        for number in 0..25 {
            store.apply_command(&Command::Put { key: format!("k{number:02}").as_bytes(), value: b"v" });
        }
        let (mut start, mut keys) = (b"k03".to_vec(), Vec::new());
        loop {
            let (mut bytes, mut response) = (Vec::new(), Vec::new());
            Query::Scan { start: &start, end: Some(b"k20"), limit: 4 }.encode(&mut bytes);
            store.query(&bytes, &mut response);
            let Ok(Answer::Page { items, next }) = Answer::decode(&response) else {
                panic!("a scan gives pages")
            };
            keys.extend(items.into_iter().map(|item| String::from_utf8_lossy(&item.key).into_owned()));
            let Some(next) = next else { break };
            start = next;
        }
        assert_eq!(keys, (3..20).map(|number| format!("k{number:02}")).collect::<Vec<_>>());
    }

    // A hostile command must be answered, never panic, and change nothing.
    #[test]
    fn malformed_commands_are_answered() {
        let mut store = Store::new(1);
        let mut bytes = Vec::new();
        Command::Put { key: b"k", value: b"v" }.encode(&mut bytes);
        for length in 0..bytes.len() {
            let mut response = Vec::new();
            store.apply(&bytes[..length], &mut response);
            assert!(matches!(Answer::decode(&response), Ok(Answer::Invalid(_))), "truncated at {length}");
        }
        assert!(store.is_empty());
        let by_text = store.apply_command(&Command::Increment { key: b"", by: 1 });
        assert!(matches!(by_text, Answer::Invalid(_)));
    }
}
