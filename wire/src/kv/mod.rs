//! Commands, queries and answers, and how they look on the wire.
//!
//! Integers are little-endian; a byte string is `length: u32 | bytes`. Tags are never reused.

mod fields;
mod reply;

use kernel::bounds::{ANSWER_BYTES_MAX, PAGE_HEAD_BYTES};
use std::fmt;

pub use fields::{Fields, put_bytes};
pub use reply::Reply;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 4 << 10;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// A scan's answer stops at about this many bytes and says where to go on.
pub const SCAN_BYTES_MAX: usize = 1 << 20;
/// Commands of one atomic batch.
const BATCH_MAX: usize = 10_000;
/// The longest answer to a command that is no failed condition: tag and three numbers.
const COMMAND_ANSWER_BYTES: usize = 25;

const _: () = {
    // The last item of a scan, or of many gets, may stand on the page as a whole.
    let page = SCAN_BYTES_MAX + 2 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) + PAGE_HEAD_BYTES;
    assert!(page <= ANSWER_BYTES_MAX, "a page of a scan is an answer");
    assert!(BATCH_MAX * COMMAND_ANSWER_BYTES + PAGE_HEAD_BYTES <= ANSWER_BYTES_MAX, "so is a batch's");
};

/// What a compare-and-set demands of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect<'a> {
    /// It does not exist.
    Absent,
    /// It was last written at this revision.
    Version(u64),
    /// It has this value.
    Value(&'a [u8]),
}

/// What changes the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// Set a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Set or remove a key if it is as expected.
    CompareAndSet {
        /// The key.
        key: &'a [u8],
        /// What must hold.
        expect: Expect<'a>,
        /// The new value; none removes the key.
        value: Option<&'a [u8]>,
    },
    /// Add to a key that holds a decimal integer; an absent one counts as 0.
    Increment {
        /// The key.
        key: &'a [u8],
        /// What to add.
        by: i64,
    },
    /// All of these, or none if one of them fails.
    Batch {
        /// In order; later ones see earlier ones.
        commands: Vec<Command<'a>>,
    },
}

/// What reads the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query<'a> {
    /// One key.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Several keys, all as of one moment.
    GetMany {
        /// The keys.
        keys: Vec<&'a [u8]>,
    },
    /// Keys in order, from `start` on and below `end`.
    Scan {
        /// The first key wanted.
        start: &'a [u8],
        /// The first key not wanted; none for no bound.
        end: Option<&'a [u8]>,
        /// At most so many.
        limit: u32,
    },
}

/// A value and the revision of its last write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// The value.
    pub value: Vec<u8>,
    /// Its version.
    pub version: u64,
}

/// One line of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// The key.
    pub key: Vec<u8>,
    /// What it holds.
    pub versioned: Versioned,
}

/// What a command or query is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Written; the key's version is the revision of this write.
    Written {
        /// The revision.
        version: u64,
        /// The key's version before; 0 if it did not exist.
        previous: u64,
    },
    /// Deleted, if it existed.
    Deleted {
        /// The revision of the deletion; 0 if there was nothing to delete.
        version: u64,
        /// The key's version before; 0 if it did not exist.
        previous: u64,
    },
    /// The key is not as expected; nothing was changed.
    Mismatch {
        /// What the key holds.
        found: Option<Versioned>,
    },
    /// The same, where what the key holds is too large to be repeated unasked.
    MismatchAt {
        /// The key's version.
        version: u64,
    },
    /// Incremented.
    Counted {
        /// The new number.
        number: i64,
        /// The revision.
        version: u64,
        /// The key's version before; 0 if it did not exist.
        previous: u64,
    },
    /// The batch was executed; one answer per command.
    Batch(Vec<Answer>),
    /// The batch was not executed, because this command failed.
    BatchFailed {
        /// The command's index.
        index: u32,
        /// How it failed.
        answer: Box<Answer>,
    },
    /// What a key holds.
    Found(Option<Versioned>),
    /// What keys hold, in the order asked.
    FoundMany(Vec<Option<Versioned>>),
    /// A page of a scan.
    Page {
        /// In order.
        items: Vec<Item>,
        /// Where to go on; none at the end.
        next: Option<Vec<u8>>,
    },
    /// The command was not executed: it is wrong in itself.
    Invalid(String),
}

/// Bytes that are no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireError(pub &'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {}", self.0)
    }
}

impl std::error::Error for WireError {}

impl<'a> Command<'a> {
    /// Reads a whole command.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut input = Fields::of(bytes);
        let command = Self::read(&mut input, true)?;
        input.finish(command)
    }

    fn read(input: &mut Fields<'a>, outermost: bool) -> Result<Self, WireError> {
        Ok(match input.u8()? {
            1 => Self::Put { key: input.key()?, value: input.value()? },
            2 => Self::Delete { key: input.key()? },
            3 => {
                let key = input.key()?;
                let expect = match input.u8()? {
                    0 => Expect::Absent,
                    1 => Expect::Version(input.u64()?),
                    2 => Expect::Value(input.value()?),
                    _ => return Err(WireError("expectation")),
                };
                Self::CompareAndSet { key, expect, value: input.option(Fields::value)? }
            }
            4 => Self::Increment { key: input.key()?, by: input.u64()? as i64 },
            5 if outermost => {
                let count = input.u32()? as usize;
                if count > BATCH_MAX {
                    return Err(WireError("batch: at most 10000 commands"));
                }
                let mut commands = Vec::with_capacity(count.min(input.left()));
                for _ in 0..count {
                    commands.push(Self::read(input, false)?);
                }
                Self::Batch { commands }
            }
            _ => return Err(WireError("command")),
        })
    }

    /// Appends the command.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Put { key, value } => {
                out.push(1);
                put_bytes(key, out);
                put_bytes(value, out);
            }
            Self::Delete { key } => {
                out.push(2);
                put_bytes(key, out);
            }
            Self::CompareAndSet { key, expect, value } => {
                out.push(3);
                put_bytes(key, out);
                match expect {
                    Expect::Absent => out.push(0),
                    Expect::Version(version) => {
                        out.push(1);
                        out.extend_from_slice(&version.to_le_bytes());
                    }
                    Expect::Value(value) => {
                        out.push(2);
                        put_bytes(value, out);
                    }
                }
                put_option(*value, out);
            }
            Self::Increment { key, by } => {
                out.push(4);
                put_bytes(key, out);
                out.extend_from_slice(&by.to_le_bytes());
            }
            Self::Batch { commands } => {
                out.push(5);
                out.extend_from_slice(&(commands.len() as u32).to_le_bytes());
                commands.iter().for_each(|command| command.encode(out));
            }
        }
    }
}

/// The key of an encoded command that has one, without a look at the rest.
#[inline]
pub fn key_of_single(command: &[u8]) -> Option<&[u8]> {
    match command.split_first() {
        Some((1..=4, rest)) => Fields::of(rest).key().ok(),
        Some(_) | None => None,
    }
}

fn put_option(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put_bytes(value, out);
        }
    }
}

impl<'a> Query<'a> {
    /// Reads a whole query.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut input = Fields::of(bytes);
        let query = match input.u8()? {
            1 => Self::Get { key: input.key()? },
            2 => {
                let count = input.u32()? as usize;
                let mut keys = Vec::with_capacity(count.min(input.left()));
                for _ in 0..count {
                    keys.push(input.key()?);
                }
                Self::GetMany { keys }
            }
            3 => Self::Scan { start: input.bytes()?, end: input.option(Fields::bytes)?, limit: input.u32()? },
            _ => return Err(WireError("query")),
        };
        input.finish(query)
    }

    /// Appends the query.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { key } => {
                out.push(1);
                put_bytes(key, out);
            }
            Self::GetMany { keys } => {
                out.push(2);
                out.extend_from_slice(&(keys.len() as u32).to_le_bytes());
                keys.iter().for_each(|key| put_bytes(key, out));
            }
            Self::Scan { start, end, limit } => {
                out.push(3);
                put_bytes(start, out);
                put_option(*end, out);
                out.extend_from_slice(&limit.to_le_bytes());
            }
        }
    }
}

impl Answer {
    /// Reads a whole answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut input = Fields::of(bytes);
        let answer = Self::read(&mut input, 2)?;
        input.finish(answer)
    }

    fn read(input: &mut Fields<'_>, depth: u32) -> Result<Self, WireError> {
        let deeper = depth.checked_sub(1).ok_or(WireError("answer: nested too deep"));
        Ok(match input.u8()? {
            1 => Self::Written { version: input.u64()?, previous: input.u64()? },
            2 => Self::Deleted { version: input.u64()?, previous: input.u64()? },
            3 => Self::Mismatch { found: read_versioned(input)? },
            4 => Self::Counted { number: input.u64()? as i64, version: input.u64()?, previous: input.u64()? },
            5 => {
                let count = input.u32()?;
                let depth = deeper?;
                Self::Batch((0..count).map(|_| Self::read(input, depth)).collect::<Result<_, _>>()?)
            }
            6 => Self::BatchFailed { index: input.u32()?, answer: Box::new(Self::read(input, deeper?)?) },
            7 => Self::Found(read_versioned(input)?),
            8 => {
                let count = input.u32()?;
                Self::FoundMany((0..count).map(|_| read_versioned(input)).collect::<Result<_, _>>()?)
            }
            9 => {
                let count = input.u32()?;
                let item = |input: &mut Fields<'_>| {
                    let key = input.bytes()?.to_vec();
                    let versioned = read_versioned(input)?.ok_or(WireError("item"))?;
                    Ok(Item { key, versioned })
                };
                let items = (0..count).map(|_| item(input)).collect::<Result<_, WireError>>()?;
                Self::Page { items, next: input.option(Fields::bytes)?.map(<[u8]>::to_vec) }
            }
            11 => Self::MismatchAt { version: input.u64()? },
            10 => Self::Invalid(String::from_utf8_lossy(input.bytes()?).into_owned()),
            _ => return Err(WireError("answer")),
        })
    }

    /// Appends the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let pair = |versioned: &Option<Versioned>, out: &mut Vec<u8>| {
            Reply(out).versioned(versioned.as_ref().map(|it| (&it.value[..], it.version)));
        };
        match self {
            Self::Written { version, previous } => Reply(out).written(*version, *previous),
            Self::Deleted { version, previous } => Reply(out).deleted(*version, *previous),
            Self::Mismatch { found } => {
                out.push(3);
                pair(found, out);
            }
            Self::MismatchAt { version } => Reply(out).numbers(11, &[*version]),
            Self::Counted { number, version, previous } => Reply(out).counted(*number, *version, *previous),
            Self::Batch(answers) => {
                out.push(5);
                out.extend_from_slice(&(answers.len() as u32).to_le_bytes());
                answers.iter().for_each(|answer| answer.encode(out));
            }
            Self::BatchFailed { index, answer } => {
                out.push(6);
                out.extend_from_slice(&index.to_le_bytes());
                answer.encode(out);
            }
            Self::Found(found) => {
                out.push(7);
                pair(found, out);
            }
            Self::FoundMany(found) => {
                out.push(8);
                out.extend_from_slice(&(found.len() as u32).to_le_bytes());
                found.iter().for_each(|found| pair(found, out));
            }
            Self::Page { items, next } => {
                out.push(9);
                out.extend_from_slice(&(items.len() as u32).to_le_bytes());
                for item in items {
                    put_bytes(&item.key, out);
                    Reply(out).versioned(Some((&item.versioned.value, item.versioned.version)));
                }
                put_option(next.as_deref(), out);
            }
            Self::Invalid(why) => Reply(out).invalid(why),
        }
    }
}

fn read_versioned(input: &mut Fields<'_>) -> Result<Option<Versioned>, WireError> {
    input.option(|input| {
        let version = input.u64()?;
        Ok(Versioned { value: input.bytes()?.to_vec(), version })
    })
}
