//! The names of a node's children: sorted, one behind the other in chunks that a snapshot shares until they change.

use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A chunk is split when it grows beyond this.
const CHUNK_BYTES_MAX: usize = 1024;

/// A sorted set of names. An entry takes its length plus two bytes, at three quarters full on average.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    chunks: Vec<Arc<Vec<u8>>>,
    len: u32,
    digest: u64,
}

fn entries(chunk: &[u8]) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let len = chunk.get(at..)?.first_chunk::<2>().map(|len| usize::from(u16::from_be_bytes(*len)))?;
        let (start, name) = (at, chunk.get(at + 2..at + 2 + len)?);
        at += 2 + len;
        Some((start, std::str::from_utf8(name).unwrap_or_default()))
    })
}

fn first(chunk: &[u8]) -> &str {
    entries(chunk).next().map_or("", |(_, name)| name)
}

impl Names {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Of the names, whatever chunks they are in.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.chunks.iter().flat_map(|chunk| entries(chunk).map(|(_, name)| name))
    }

    /// The chunks, for a snapshot.
    pub(crate) fn chunks(&self) -> &[Arc<Vec<u8>>] {
        &self.chunks
    }

    /// The names in chunks that depend on nothing but the names.
    pub(crate) fn rewritten(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut names = self.iter().peekable();
        std::iter::from_fn(move || {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES_MAX);
            while let Some(name) =
                names.next_if(|name| chunk.is_empty() || chunk.len() + name.len() < CHUNK_BYTES_MAX)
            {
                chunk.extend_from_slice(&(name.len() as u16).to_be_bytes());
                chunk.extend_from_slice(name.as_bytes());
            }
            (!chunk.is_empty()).then_some(chunk)
        })
    }

    /// The chunk that holds `name` or should, and where in it: `Ok` if it is there.
    fn locate(&self, name: &str) -> (usize, Result<usize, usize>) {
        let after = self.chunks.partition_point(|chunk| first(chunk) <= name);
        let chunk = after.saturating_sub(1);
        let Some(bytes) = self.chunks.get(chunk) else { return (0, Err(0)) };
        for (at, found) in entries(bytes) {
            if found >= name {
                return (chunk, if found == name { Ok(at) } else { Err(at) });
            }
        }
        (chunk, Err(bytes.len()))
    }

    /// Adds a name of at most 65,535 bytes; false if it is there or too long.
    pub(crate) fn insert(&mut self, name: &str) -> bool {
        let (chunk, Err(at)) = self.locate(name) else { return false };
        let Ok(len) = u16::try_from(name.len()) else { return false };
        self.len += 1;
        self.digest ^= xxh3_64(name.as_bytes());
        let entry = [&len.to_be_bytes(), name.as_bytes()].concat();
        let last = chunk + 1 >= self.chunks.len();
        let Some(bytes) = self.chunks.get_mut(chunk) else {
            self.chunks.push(Arc::new(entry));
            return true;
        };
        if bytes.len() + entry.len() <= CHUNK_BYTES_MAX {
            Arc::make_mut(bytes).splice(at..at, entry);
        } else if last && at == bytes.len() {
            // Names that come in order fill their chunks.
            self.chunks.push(Arc::new(entry));
        } else {
            let bytes = Arc::make_mut(bytes);
            bytes.splice(at..at, entry);
            let middle = entries(bytes).map(|(at, _)| at).find(|&at| at * 2 >= bytes.len());
            // Without a border in its second half, the chunk holds one name only after that border.
            let border = middle.or_else(|| entries(bytes).map(|(at, _)| at).last()).filter(|&at| at > 0);
            if let Some(border) = border {
                let second = bytes.split_off(border);
                bytes.shrink_to_fit();
                self.chunks.insert(chunk + 1, Arc::new(second));
            }
        }
        true
    }

    /// Removes a name; false if it is not there.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let (chunk, Ok(at)) = self.locate(name) else { return false };
        self.len -= 1;
        self.digest ^= xxh3_64(name.as_bytes());
        let bytes = Arc::make_mut(&mut self.chunks[chunk]);
        bytes.drain(at..at + 2 + name.len());
        if bytes.is_empty() {
            self.chunks.remove(chunk);
        }
        true
    }

    /// Takes what [`Names::chunks`] gave, chunk by chunk in order; false if it is none.
    pub(crate) fn append(&mut self, chunk: &[u8]) -> bool {
        let (mut end, mut len, mut digest) = (0, 0, 0);
        let mut last = self.iter_last();
        for (at, name) in entries(chunk) {
            if last.is_some_and(|last| *last >= *name) {
                return false;
            }
            (last, end, len) = (Some(name), at + 2 + name.len(), len + 1);
            digest ^= xxh3_64(name.as_bytes());
        }
        let whole = end == chunk.len() && end > 0;
        if whole {
            self.chunks.push(Arc::new(chunk.to_vec()));
            self.len += len;
            self.digest ^= digest;
        }
        whole
    }

    fn iter_last(&self) -> Option<&str> {
        entries(self.chunks.last()?).last().map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Rng;
    use std::collections::BTreeSet;

    // A name lost between two chunks leaves a child that nobody can list.
    #[test]
    fn names_are_those_of_a_plain_set() {
        for (seed, shard_map) in [(1, 200), (2, 5000), (3, 100_000)] {
            let (mut rng, mut names, mut twin) = (Rng::seeded(seed), Names::default(), BTreeSet::new());
            for _ in 0..20_000 {
                let name = format!("n{}", rng.below(shard_map)).repeat(1 + rng.index(3));
                if rng.chance(0.6) {
                    assert_eq!(names.insert(&name), twin.insert(name));
                } else {
                    assert_eq!(names.remove(&name), twin.remove(&name));
                }
            }
            assert!(names.iter().eq(twin.iter().map(String::as_str)));
            assert_eq!(names.len() as usize, twin.len());
            let mut copy = Names::default();
            assert!(names.chunks().iter().all(|chunk| copy.append(chunk)));
            assert_eq!((copy.len(), copy.digest()), (names.len(), names.digest()));
            assert!(!copy.append(b"\0\x01"), "took half an entry");
        }
    }

    // Long names that do not fit a chunk must not be lost when it is split.
    #[test]
    fn long_names_stay() {
        let mut names = Names::default();
        let long = |letter: &str| letter.repeat(3000);
        for letter in ["m", "a", "z", "b", "y"] {
            assert!(names.insert(&long(letter)) && names.insert(letter));
        }
        assert_eq!(names.iter().count(), 10);
        assert!(!names.insert(&"x".repeat(70_000)));
        for letter in ["m", "a", "z", "b", "y"] {
            assert!(names.remove(&long(letter)) && names.remove(letter));
        }
        assert!(names.chunks().is_empty());
    }
}
