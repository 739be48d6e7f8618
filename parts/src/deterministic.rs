//! Hash tables whose iteration order depends on the insertions alone.

use std::hash::{BuildHasherDefault, Hasher};

/// A multiply-rotate hasher with a fixed start. Not for keys that a hostile client chooses freely: those go through
/// [`crate::SessionId`]-like random identities or an ordered map.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl FixedHasher {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
}

/// A digest of bytes: the same in every process and version. Not against forgery.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = FixedHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Makes the [`digest`] of bytes that come in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digester {
    hasher: FixedHasher,
    /// The bytes that are no whole word yet.
    word: u64,
    bytes: u64,
}

impl Digester {
    /// The next piece.
    pub fn write(&mut self, mut piece: &[u8]) {
        while !self.bytes.is_multiple_of(8)
            && let Some((&first, rest)) = piece.split_first()
        {
            self.word |= u64::from(first) << (8 * (self.bytes % 8));
            self.bytes += 1;
            piece = rest;
            if self.bytes.is_multiple_of(8) {
                self.hasher.mix(std::mem::take(&mut self.word));
            }
        }
        self.bytes += piece.len() as u64;
        let (words, rest) = piece.as_chunks();
        words.iter().for_each(|word| self.hasher.mix(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.word = u64::from_le_bytes(word);
        }
    }

    /// The digest of all pieces.
    pub fn finish(mut self) -> u64 {
        if !self.bytes.is_multiple_of(8) {
            self.hasher.mix(self.word);
        }
        self.hasher.mix(self.bytes);
        self.hasher.finish()
    }
}

impl Hasher for FixedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }
}

/// A hash map with the fixed hasher.
pub type Map<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<FixedHasher>>;
/// A hash set with the fixed hasher.
pub type Set<K> = hashbrown::HashSet<K, BuildHasherDefault<FixedHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    // Digests are in journals: one that depends on how its bytes came would be another one after a restart.
    #[test]
    fn a_digest_is_the_same_in_whatever_pieces_the_bytes_come() {
        let bytes: Vec<u8> = (1..=40).collect();
        for (length, first, second) in
            (0..40).flat_map(|l| (0..=l).flat_map(move |a| (a..=l).map(move |b| (l, a, b))))
        {
            let mut digester = Digester::default();
            for piece in [&bytes[..first], &bytes[first..second], &bytes[second..length]] {
                digester.write(piece);
            }
            assert_eq!(digester.finish(), digest(&bytes[..length]), "{length}, cut at {first} and {second}");
        }
    }
}
