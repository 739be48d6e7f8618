//! Answers, written as they are made.

use super::put_bytes;

/// Writes answers without building them; what the store's hot path uses.
#[derive(Debug)]
pub struct Reply<'o>(pub &'o mut Vec<u8>);

impl<'o> Reply<'o> {
    /// Appends to `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>) -> Self {
        Self(out)
    }

    #[inline]
    pub(super) fn numbers(&mut self, tag: u8, numbers: &[u64]) {
        self.0.push(tag);
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_le_bytes()));
    }

    /// The key was written at `version`; before, it was at `previous`.
    #[inline]
    pub fn written(&mut self, version: u64, previous: u64) {
        self.numbers(1, &[version, previous]);
    }

    /// The key was deleted at `version`; before, it was at `previous`.
    pub fn deleted(&mut self, version: u64, previous: u64) {
        self.numbers(2, &[version, previous]);
    }

    /// What is found is repeated up to so many bytes.
    pub fn mismatch(&mut self, found: Option<(&[u8], u64)>, repeated_max: usize) {
        match found {
            Some((value, version)) if value.len() > repeated_max => self.numbers(11, &[version]),
            found => {
                self.0.push(3);
                self.versioned(found);
            }
        }
    }

    /// The key holds `number` now.
    pub fn counted(&mut self, number: i64, version: u64, previous: u64) {
        self.numbers(4, &[number as u64, version, previous]);
    }

    /// A get found this.
    #[inline]
    pub fn found(&mut self, found: Option<(&[u8], u64)>) {
        self.0.push(7);
        self.versioned(found);
    }

    /// A value with its version, or none.
    #[inline]
    pub fn versioned(&mut self, found: Option<(&[u8], u64)>) {
        match found {
            None => self.0.push(0),
            Some((value, version)) => {
                self.0.push(1);
                self.0.extend_from_slice(&version.to_le_bytes());
                put_bytes(value, self.0);
            }
        }
    }

    /// The command was not executed: why.
    pub fn invalid(&mut self, why: &str) {
        self.0.push(10);
        put_bytes(why.as_bytes(), self.0);
    }
}
