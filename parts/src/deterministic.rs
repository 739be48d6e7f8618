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
