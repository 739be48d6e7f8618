//! The sequence's part of the native protocol: one message each way, distinguished from others by its first two bytes.

use kernel::{Bytes, Decode, DecodeError, Encode, Reader};

kernel::record! {
    /// Asks for one position in each of some spaces.
    pub struct Next {
        /// The client's number for this call; comes back in the answer.
        id: u64,
        /// Names of spaces.
        spaces: Vec<String>,
        /// What the position is for; remembered by the spaces.
        label: Bytes,
    }
}

kernel::record! {
    /// The answer.
    pub struct Numbered {
        /// The client's number for the call.
        id: u64,
        /// See [`Outcome`].
        status: u8,
        /// One number for each space, in the order asked; empty unless done.
        numbers: Vec<u64>,
        /// The position among all operations of all spaces; 0 unless done.
        gsn: u64,
    }
}

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// The position is the caller's.
    Done = 0,
    /// Nothing was done: too many calls wait here.
    Busy = 1,
    /// A position may have been given: the host lost track of the call.
    Unknown = 2,
    /// Nothing was done: a space is not known, none is named, or the label is too long.
    Malformed = 3,
    /// Nothing was done: the disks are full.
    DiskFull = 4,
    /// Nothing was done: the client was not granted it.
    NotGranted = 5,
}

impl Outcome {
    /// The outcome of a status; what is not known is taken for a malformed call.
    pub fn of(status: u8) -> Self {
        match status {
            0 => Self::Done,
            1 => Self::Busy,
            2 => Self::Unknown,
            4 => Self::DiskFull,
            5 => Self::NotGranted,
            _ => Self::Malformed,
        }
    }
}

/// A message of either direction.
#[derive(Clone, PartialEq, Debug)]
pub enum Native {
    /// To the host.
    Next(Next),
    /// To the client.
    Numbered(Numbered),
}

/// The receiver's tag of messages to the host's sequence.
pub const TO_HOST: u8 = 20;
/// The receiver's tag of messages to the sequence's clients.
pub const TO_CLIENT: u8 = 21;

impl Encode for Native {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Next(next) => {
                out.extend([TO_HOST, 1]);
                next.encode(out);
            }
            Self::Numbered(numbered) => {
                out.extend([TO_CLIENT, 1]);
                numbered.encode(out);
            }
        }
    }
}

impl Decode for Native {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        match (u8::decode(input)?, u8::decode(input)?) {
            (TO_HOST, 1) => Decode::decode(input).map(Self::Next),
            (TO_CLIENT, 1) => Decode::decode(input).map(Self::Numbered),
            (TO_HOST | TO_CLIENT, tag) | (tag, _) => Err(DecodeError::UnknownTag("sequence message", tag)),
        }
    }
}
