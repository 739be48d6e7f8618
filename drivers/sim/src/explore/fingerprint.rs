//! Hashes of states, the same in every process.

use crate::draw::{mix, mix_bytes};
use std::hash::Hasher;

/// A hasher that does not depend on the process.
#[derive(Default)]
pub(super) struct Fingerprint(pub(super) u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = mix_bytes(self.0, bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0, number);
    }

    fn write_u8(&mut self, number: u8) {
        self.0 = mix(self.0, u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = mix(self.0, u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = mix(self.0, number as u64);
    }
}

/// For keys that are hashes already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only whole hashes are stored");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
