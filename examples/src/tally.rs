//! A toy service: it counts how often each word was said.

use kernel::{Bytes, DecodeError, Encode, Reader, SnapshotStep, StateMachine};
use std::collections::BTreeMap;

/// Longer words are refused.
pub const WORD_BYTES_MAX: usize = 64;
/// Beyond so many words new ones are refused.
pub const WORDS_MAX: usize = 10_000;
/// The answer to what is refused, instead of a count.
pub const REFUSED: u64 = u64::MAX;

/// The counts. A command is a word, and so is a query; the answer is its count: 8 bytes, little-endian.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: BTreeMap<Vec<u8>, u64>,
    /// Words that the snapshot at hand has still to write. A copy, because words are few; see [`StateMachine`] for what it must hold.
    unwritten: Vec<(Vec<u8>, u64)>,
}

impl StateMachine for Tally {
    fn apply(&mut self, word: &[u8], response: &mut Vec<u8>) {
        let is_new = !self.counts.contains_key(word);
        let count = if word.len() > WORD_BYTES_MAX || (is_new && self.counts.len() == WORDS_MAX) {
            REFUSED
        } else {
            let count = self.counts.entry(word.to_vec()).or_insert(0);
            *count += 1;
            *count
        };
        count.encode(response);
    }

    fn query(&self, word: &[u8], response: &mut Vec<u8>) {
        self.counts.get(word).copied().unwrap_or(0).encode(response);
    }

    fn begin_snapshot(&mut self) {
        self.unwritten = self.counts.iter().map(|(word, &count)| (word.clone(), count)).collect();
    }

    fn snapshot_step(&mut self, budget: usize, chunk: &mut Vec<u8>) -> SnapshotStep {
        while chunk.len() < budget {
            let Some((word, count)) = self.unwritten.pop() else { return SnapshotStep::Done };
            Bytes::from(word).encode(chunk);
            count.encode(chunk);
        }
        SnapshotStep::More
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn install(&mut self, chunk: &[u8]) -> Result<(), DecodeError> {
        let mut input = Reader::new(Bytes::copy_from_slice(chunk));
        while input.remaining() > 0 {
            let (word, count): (Bytes, u64) = (input.field()?, input.field()?);
            self.counts.insert(word.to_vec(), count);
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mix = |digest: u64, byte: u8| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.counts.iter().fold(0xcbf2_9ce4_8422_2325, |digest, (word, count)| {
            word.iter().copied().chain(count.to_le_bytes()).fold(digest, mix)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A snapshot that lacks a word counts it anew.
    #[test]
    fn snapshots_have_every_word() {
        let mut tally = Tally::default();
        for word in ["a", "b", "a", "c"] {
            tally.apply(word.as_bytes(), &mut Vec::new());
        }
        tally.begin_snapshot();
        tally.apply(b"later", &mut Vec::new());
        let (mut restored, mut more) = (Tally::default(), true);
        while more {
            let mut chunk = Vec::new();
            more = tally.snapshot_step(1, &mut chunk) == SnapshotStep::More;
            restored.install(&chunk).expect("it was written like this");
        }
        restored.apply(b"later", &mut Vec::new());
        assert_eq!(restored.digest(), tally.digest());
    }
}
