//! Entries in one piece: a length of four bytes (little-endian) and the bytes, one entry behind the other.

use kernel::Bytes;

/// Entries on their way.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rows(Vec<u8>);

impl<T: AsRef<[u8]>> FromIterator<T> for Rows {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut rows = Self::default();
        entries.into_iter().for_each(|entry| rows.push(entry.as_ref()));
        rows
    }
}

/// What an entry costs beside its bytes: its length, and its position in the index.
pub const ROW_OVERHEAD: usize = 8;

impl Rows {
    /// Adds an entry.
    pub fn push(&mut self, entry: &[u8]) {
        self.0.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        self.0.extend_from_slice(entry);
    }

    /// As bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    /// How many bytes there are so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no entry was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many entries `bytes` hold; none if they are no entries.
    pub fn count(bytes: &[u8]) -> Option<usize> {
        let mut count = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = after(rest)?.1;
            count += 1;
        }
        Some(count)
    }

    /// The entries of `bytes`, up to the first malformed one.
    pub fn iter(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let (entry, after) = after(rest)?;
            rest = after;
            Some(entry)
        })
    }
}

/// The first entry, and what follows it.
fn after(rows: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = rows.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    (length <= rest.len()).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A length that is trusted reads beyond the message.
    #[test]
    fn rows_hold_what_was_pushed_and_nothing_else() {
        let mut rows = Rows::default();
        for entry in [b"a".as_slice(), b"", b"ccc"] {
            rows.push(entry);
        }
        let bytes = rows.into_bytes();
        assert_eq!(Rows::count(&bytes), Some(3));
        assert_eq!(Rows::iter(&bytes).collect::<Vec<_>>(), [b"a".as_slice(), b"", b"ccc"]);
        for length in [1, 4, 6, bytes.len() - 1] {
            assert_eq!(Rows::count(&bytes[..length]), None, "truncated at {length}");
        }
        assert_eq!(Rows::count(&[255; 9]), None);
    }
}
