//! A fixed hash, so that the same history gives the same answer, order and memory every time.

use std::hash::{BuildHasher, Hasher};

/// Builds [`FixedHasher`]; no seed, no randomness.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FixedState;

impl BuildHasher for FixedState {
    type Hasher = FixedHasher;
    fn build_hasher(&self) -> FixedHasher {
        FixedHasher(0)
    }
}

/// Multiply and rotate over words; good enough for identities, not for adversaries who choose them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedHasher(u64);

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word) as u128 * ODD as u128;
        self.0 = (mixed as u64 ^ (mixed >> 64) as u64).rotate_left(5);
    }
}

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((head, tail)) = rest.split_first_chunk::<8>() {
            self.word(u64::from_le_bytes(*head));
            rest = tail;
        }
        let last = rest.iter().rev().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte));
        self.word(last);
    }
    fn write_u8(&mut self, word: u8) {
        self.word(u64::from(word) + 1);
    }
    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word) + 1);
    }
    fn write_u64(&mut self, word: u64) {
        self.word(word.wrapping_add(1));
    }
    fn write_usize(&mut self, word: usize) {
        self.word((word as u64).wrapping_add(1));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// One number from two, for sums of sets.
pub(crate) fn mix(one: u64, other: u64) -> u64 {
    let mut hasher = FixedHasher(ODD);
    hasher.word(one.wrapping_add(1));
    hasher.word(other.wrapping_add(1));
    hasher.0
}
