//! Commands on their way, and how fresh a read must be.

use kernel::{Bytes, Decode, DecodeError, Encode, Reader};
use parts::{Sequence, Slot};

/// What a group asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// Execute the commands in whatever session has the name: for those who send nothing twice.
    Execute,
    /// Open the session.
    Open,
    /// Close the session.
    Close,
    /// Execute the commands if the session is still the one that was opened in this slot. A copy of the opening that comes
    /// late, when the session was pushed out already, opens another one, in which nothing may be executed again.
    ExecuteIn(Slot),
}

impl Encode for GroupKind {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Execute => out.push(0),
            Self::Open => out.push(1),
            Self::Close => out.push(2),
            Self::ExecuteIn(opened) => {
                out.push(3);
                opened.encode(out);
            }
        }
    }
}

impl Decode for GroupKind {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(Self::Execute),
            1 => Ok(Self::Open),
            2 => Ok(Self::Close),
            3 => Slot::decode(input).map(Self::ExecuteIn),
            tag => Err(DecodeError::UnknownTag("group kind", tag)),
        }
    }
}

/// How fresh a read must be (the paper's sections 3.4 and 3.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Sees every write that was answered before it was sent.
    Linearizable,
    /// Sees at least what this client has seen and written before.
    Sequential,
    /// Sees some prefix of the log.
    Eventual,
}

impl Encode for Level {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Linearizable => 0,
            Self::Sequential => 1,
            Self::Eventual => 2,
        });
    }
}

impl Decode for Level {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match u8::decode(input)? {
            0 => Ok(Self::Linearizable),
            1 => Ok(Self::Sequential),
            2 => Ok(Self::Eventual),
            tag => Err(DecodeError::UnknownTag("level", tag)),
        }
    }
}

/// A row of numbered byte strings: `sequence: u64 | length: u32 | bytes`, again and again.
///
/// Encoded all the way from the client's socket to the replica: nobody in between looks inside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commands(Bytes);

/// One of a row of commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command<'a> {
    /// Its number.
    pub sequence: Sequence,
    /// What to execute.
    pub bytes: &'a [u8],
}

/// What stands before a command in a row.
pub const COMMAND_HEAD_BYTES: usize = 12;

impl Commands {
    /// Appends one command to a row under construction.
    pub fn push(row: &mut Vec<u8>, sequence: Sequence, bytes: &[u8]) {
        sequence.encode(row);
        bytes.encode(row);
    }

    /// A finished row.
    pub fn from_row(row: Vec<u8>) -> Self {
        Self(row.into())
    }

    /// The commands in order. Ends early at bytes that are no command.
    pub fn iter(&self) -> impl Iterator<Item = Command<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (command, after) = split_command(rest)?;
            rest = after;
            Some(command)
        })
    }

    /// True if the row is well formed to its last byte.
    #[inline]
    pub fn is_sound(&self) -> bool {
        let mut rest = &self.0[..];
        while let Some((_, after)) = split_command(rest) {
            rest = after;
        }
        rest.is_empty()
    }

    /// Bytes on the wire.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

#[inline]
fn split_command(row: &[u8]) -> Option<(Command<'_>, &[u8])> {
    let (header, rest) = row.split_first_chunk::<COMMAND_HEAD_BYTES>()?;
    let (sequence, length) = header.split_first_chunk::<8>()?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let bytes = rest.get(..length)?;
    Some((Command { sequence: Sequence(u64::from_le_bytes(*sequence)), bytes }, &rest[length..]))
}

impl Encode for Commands {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

impl Decode for Commands {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Bytes::decode(input).map(Self)
    }
}
