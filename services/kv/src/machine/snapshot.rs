//! Snapshots of a store that goes on changing: what a write is about to change is set aside until it is written out.

use super::Store;
use crate::table::Table;
use kernel::SnapshotStep;
use std::collections::BTreeMap;
use std::ops::Bound;
use wire::kv::{Fields, Reply, WireError, put_bytes};

/// A key as it was when the snapshot began; none if it did not exist.
type Before = Option<(Vec<u8>, u64)>;

/// A snapshot in flight: keys up to `written` are out, the others stand in the table or aside.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    revision: u64,
    begun: bool,
    written: Option<Vec<u8>>,
    aside: BTreeMap<Vec<u8>, Before>,
}

/// Tags of what a chunk holds.
const REVISION: u8 = 1;
const ENTRY: u8 = 2;

impl Snapshot {
    pub(crate) fn of_revision(revision: u64) -> Self {
        Self { revision, begun: false, written: None, aside: BTreeMap::new() }
    }

    fn still_needs(&self, key: &[u8]) -> bool {
        self.written.as_deref().is_none_or(|written| key > written) && !self.aside.contains_key(key)
    }

    /// Writes about `budget` bytes.
    pub(crate) fn step(&mut self, table: &Table, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        let started = chunk.len();
        if !self.begun {
            self.begun = true;
            chunk.push(REVISION);
            chunk.extend_from_slice(&self.revision.to_le_bytes());
        }
        let lower = self.written.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut in_table = table.keys_above(lower).peekable();
        let mut aside = self.aside.range::<[u8], _>((lower, Bound::Unbounded)).peekable();
        let (mut last, mut step): (Option<&[u8]>, _) = (None, SnapshotStep::More);
        while chunk.len() - started < budget {
            // The least key that is not yet out: a key that is aside may be in the table as well.
            let set_aside = aside.next_if(|(key, _)| in_table.peek().is_none_or(|other| key[..] <= **other));
            let (key, before) = match set_aside {
                Some((key, before)) => {
                    in_table.next_if(|other| key == other);
                    (&key[..], before.as_ref().map(|(value, version)| (&value[..], *version)))
                }
                None => match in_table.next() {
                    Some(key) => (key, table.get(key)),
                    None => {
                        step = SnapshotStep::Done;
                        break;
                    }
                },
            };
            if let Some(before) = before {
                chunk.push(ENTRY);
                put_bytes(key, chunk);
                Reply(chunk).versioned(Some(before));
            }
            last = Some(key);
        }
        if let Some(last) = last.map(<[u8]>::to_vec) {
            self.aside = self.aside.split_off(&last);
            self.aside.remove(&last);
            self.written = Some(last);
        }
        step
    }
}

impl Store {
    /// Called before a key changes.
    pub(crate) fn keep_for_snapshot(&mut self, key: &[u8]) {
        if let Some(snapshot) = &mut self.snapshot
            && snapshot.still_needs(key)
        {
            let before = self.table.get(key).map(|(value, version)| (value.to_vec(), version));
            snapshot.aside.insert(key.to_vec(), before);
        }
    }
}

/// Takes one chunk into an empty or growing store.
pub(crate) fn install(store: &mut Store, chunk: &[u8]) -> Result<(), WireError> {
    let mut input = Fields::of(chunk);
    while input.left() > 0 {
        match input.u8()? {
            REVISION => store.revision = input.u64()?,
            ENTRY => {
                let key = input.bytes()?;
                if input.u8()? != 1 {
                    return Err(WireError("snapshot entry"));
                }
                let version = input.u64()?;
                store.table.put(key, input.bytes()?, version);
            }
            _ => return Err(WireError("snapshot chunk")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Command, Store};
    use kernel::{SnapshotStep, StateMachine};
    use proptest::prelude::*;

    fn write(store: &mut Store, key: u8, value: Option<u8>) {
        let key = [b'k', key];
        match value {
            Some(value) => {
                store.apply_command(&Command::Put { key: &key, value: &vec![value; value as usize % 5] })
            }
            None => store.apply_command(&Command::Delete { key: &key }),
        };
    }

    proptest! {
        // A snapshot torn by concurrent writes restores a state that never was.
        #[test]
        fn a_snapshot_is_of_the_moment_it_began(
            before in prop::collection::vec((0u8..20, any::<Option<u8>>()), 0..40),
            during in prop::collection::vec((0u8..20, any::<Option<u8>>()), 0..60),
            budget in 1usize..60,
        ) {
            let mut store = Store::new(1);
            before.iter().for_each(|&(key, value)| write(&mut store, key, value));
            let expected = store.digest();
            store.begin_snapshot();
            let (mut chunks, mut during) = (Vec::new(), during.into_iter());
            loop {
                let mut chunk = Vec::new();
                let step = store.snapshot_step(budget, &mut chunk);
                chunks.push(chunk);
                if step == SnapshotStep::Done { break }
                during.by_ref().take(3).for_each(|(key, value)| write(&mut store, key, value));
            }
            let mut copy = Store::new(2);
            copy.reset();
            for chunk in &chunks {
                prop_assert!(copy.install(chunk).is_ok());
            }
            prop_assert_eq!(copy.digest(), expected);
        }
    }
}
