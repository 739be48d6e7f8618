//! A segment in the archive: an object that says by itself what it is.
//!
//! ```text
//! head      magic "ORDARCH\0" | format: u32 | body bytes: u32 | body | digest: u64
//! body      ArchivedSegment, as messages are encoded; readers ignore what follows the fields they know
//! entries   for each its length: u32, and its bytes
//! ```
//!
//! Numbers are little-endian. The head's digest ([`parts::digest`]) covers all before it, the body has that of the entries. An object's
//! name begins with the cluster, the log and its incarnation, and holds the positions and the digest: the same segment has the same
//! name on every host, and another one has another.

use crate::Rows;
use kernel::{Bytes, Decode, Encode, Reader};

const MAGIC: &[u8; 8] = b"ORDARCH\0";
const FORMAT: u32 = 1;
/// Before the body.
const FIXED_BYTES: usize = 16;
/// A head that says more is damaged: a name has 128 bytes at most.
const BODY_BYTES_MAX: usize = 4 << 10;
/// What every object's name ends with.
pub const ARCHIVED_SUFFIX: &str = ".segment";

kernel::record! {
    /// What an object says of the segment that it holds.
    pub struct ArchivedSegment {
        /// The cluster's name.
        cluster: String,
        /// The log's name.
        log: String,
        /// When the log was made, in milliseconds since 1970; 0 if that was before logs remembered it.
        created_ms: u64,
        /// The space where it is.
        space: u16,
        /// Its number there: no other log of the space has had it.
        number: u64,
        /// The position of the first entry.
        first: u64,
        /// The position after the last.
        next: u64,
        /// When the last entry was appended, in milliseconds since 1970.
        last_ms: u64,
        /// The length of the entries as they are stored, in bytes.
        bytes: u64,
        /// [`parts::digest`] of the entries as they are stored.
        digest: u64,
    }
}

/// Why an object is no segment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArchivedError {
    /// It is truncated, or not what was written.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// Written by a later version.
    #[error("has format {0}; this version reads up to {FORMAT}")]
    NewerFormat(u32),
}

/// A log among all that have ever had its name: sorted by when they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogIncarnation {
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// The space where it is.
    pub space: u16,
    /// Its number there.
    pub number: u64,
}

impl std::fmt::Display for LogIncarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016}-{:04x}-{:016x}", self.created_ms, self.space, self.number)
    }
}

impl LogIncarnation {
    /// What [`std::fmt::Display`] wrote; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let incarnation = Self {
            created_ms: parts.next()?.parse().ok()?,
            space: u16::from_str_radix(parts.next()?, 16).ok()?,
            number: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        (incarnation.to_string() == text).then_some(incarnation)
    }
}

/// An object's name, taken apart behind the cluster, the log and the incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ArchivedName {
    /// The position of the first entry.
    pub first: u64,
    /// The position after the last.
    pub next: u64,
    /// [`ArchivedSegment::digest`].
    pub digest: u64,
}

impl ArchivedName {
    /// The last part of an object's name; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(ARCHIVED_SUFFIX)?.split('-');
        let name = Self {
            first: parts.next()?.parse().ok()?,
            next: parts.next()?.parse().ok()?,
            digest: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        (name.to_string() == text).then_some(name)
    }
}

impl std::fmt::Display for ArchivedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:020}-{:020}-{:016x}{ARCHIVED_SUFFIX}", self.first, self.next, self.digest)
    }
}

impl ArchivedSegment {
    /// Which of the logs that have had its name.
    pub fn incarnation(&self) -> LogIncarnation {
        LogIncarnation { created_ms: self.created_ms, space: self.space, number: self.number }
    }

    /// What its object is called.
    pub fn object_name(&self) -> String {
        let last = ArchivedName { first: self.first, next: self.next, digest: self.digest };
        format!("{}/{}/{}/{last}", self.cluster, self.log, self.incarnation())
    }

    /// What comes before the entries.
    pub fn head(&self) -> Bytes {
        let body = self.encoded();
        let mut head = Vec::with_capacity(FIXED_BYTES + body.len() + 8);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&FORMAT.to_le_bytes());
        head.extend_from_slice(&(body.len() as u32).to_le_bytes());
        head.extend_from_slice(&body);
        head.extend_from_slice(&parts::digest(&head).to_le_bytes());
        head.into()
    }

    /// The segment of an object, and its entries (see [`Rows`]), if all of it is what was written.
    pub fn read(object: &Bytes) -> Result<(Self, Bytes), ArchivedError> {
        let damaged = ArchivedError::Damaged;
        let truncated = || damaged("it is truncated");
        let fixed = object.first_chunk::<FIXED_BYTES>().ok_or_else(truncated)?;
        let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        if &fixed[..8] != MAGIC {
            return Err(damaged("it does not begin as a segment does"));
        }
        if u32_at(8) > FORMAT {
            return Err(ArchivedError::NewerFormat(u32_at(8)));
        }
        let body_end = FIXED_BYTES + (u32_at(12) as usize).min(BODY_BYTES_MAX);
        let (head, rest) = object.split_at_checked(body_end).ok_or_else(truncated)?;
        let (digest, rows) = rest.split_first_chunk::<8>().ok_or_else(truncated)?;
        if u64::from_le_bytes(*digest) != parts::digest(head) {
            return Err(damaged("its head's digest does not match"));
        }
        let body = object.slice(FIXED_BYTES..body_end);
        let segment = Self::decode(&mut Reader::new(body)).map_err(|_| damaged("its head makes no sense"))?;
        if rows.len() as u64 != segment.bytes {
            return Err(damaged("its length is not what its head says"));
        }
        if parts::digest(rows) != segment.digest {
            return Err(damaged("the digest of its entries does not match"));
        }
        let count = Rows::count(rows).ok_or(damaged("it holds no entries"))?;
        if segment.first.checked_add(count as u64) != Some(segment.next) {
            return Err(damaged("it does not hold the positions that its head says"));
        }
        let rows = object.slice(body_end + 8..);
        Ok((segment, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> (ArchivedSegment, Bytes) {
        let mut rows = Rows::default();
        [b"a".as_slice(), b"", b"ccc"].iter().for_each(|entry| rows.push(entry));
        let rows = rows.into_bytes();
        let segment = ArchivedSegment {
            cluster: "prod".to_owned(),
            log: "jobs".to_owned(),
            created_ms: 1_700_000_000_000,
            space: 3,
            number: 7,
            first: 10,
            next: 13,
            last_ms: 1_700_000_000_500,
            bytes: rows.len() as u64,
            digest: parts::digest(&rows),
        };
        let object = [&segment.head()[..], &rows].concat();
        (segment, object.into())
    }

    // An archive that hands out what was not written is worse than none.
    #[test]
    fn what_was_archived_reads_back_and_damage_is_reported() {
        let (segment, whole) = object();
        let (read, rows) = ArchivedSegment::read(&whole).expect("it is sound");
        assert_eq!((&read, Rows::count(&rows)), (&segment, Some(3)));
        for length in 0..whole.len() {
            assert!(ArchivedSegment::read(&whole.slice(..length)).is_err(), "truncated at {length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 1;
            assert!(ArchivedSegment::read(&damaged.into()).is_err(), "byte {at}");
        }
        let longer = [&whole[..], &[0; 4]].concat();
        assert!(ArchivedSegment::read(&longer.into()).is_err());
        let mut later = whole.to_vec();
        later[8] = 2;
        assert_eq!(ArchivedSegment::read(&later.into()), Err(ArchivedError::NewerFormat(2)));
    }

    // A name that is read as another object's hides a segment, or shows one twice.
    #[test]
    fn names_read_back_and_sort_by_position() {
        let (segment, _) = object();
        let name = segment.object_name();
        let parts: Vec<&str> = name.split('/').collect();
        assert_eq!(parts[..2], ["prod", "jobs"]);
        assert_eq!(LogIncarnation::parse(parts[2]), Some(segment.incarnation()));
        let last = ArchivedName { first: 10, next: 13, digest: segment.digest };
        assert_eq!(ArchivedName::parse(parts[3]), Some(last));
        let later = ArchivedName { first: 1_000, ..last };
        assert!(later.to_string() > last.to_string());
        for text in ["", "1-2-3.segment", &parts[3][1..], &format!("{}.tmp", parts[3])] {
            assert_eq!(ArchivedName::parse(text), None, "{text}");
        }
    }
}
