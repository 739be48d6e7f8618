//! What a client can be sent.

use kernel::{Bytes, Decode, DecodeError, Encode, Reader};
use parts::{Sequence, SessionId, Slot};

kernel::messages! {
    /// Everything a client can be sent; part of the native protocol.
    pub enum ClientIn {
        /// From an unbatcher or a batcher: answers to calls of this session.
        1 => Results {
            /// The session.
            session: SessionId,
            /// The slot after the one written or read; 0 where nothing was executed. In the answer to an opening, the slot
            /// after the one in which the session was opened.
            executed: Slot,
            /// The answers. None at all answers the opening of the session.
            results: Row,
        },
        /// From a replica of this host: the machine has something to say. For engines that embed the log.
        2 => Notice {
            /// The machine's words.
            bytes: Bytes,
        },
    }
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Executed; the bytes are the service's answer.
    Done,
    /// Not executed: too much is waiting. Safe to send again.
    Busy,
    /// Not executed now; an earlier attempt may have been. The session is not open any more.
    SessionLost,
    /// Never executed: the message is not well formed or too large.
    Malformed,
    /// A reconfiguration lost against another one.
    Conflict,
    /// Not executed: the disks are full. Safe to send again when there is room.
    DiskFull,
    /// Never executed: the client was not granted it.
    NotGranted,
}

/// In the answer to an opening that was refused stands one row of this number.
pub const OPENING: Sequence = Sequence(u64::MAX);

impl Status {
    #[inline]
    fn tag(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Busy => 1,
            Self::SessionLost => 2,
            Self::Malformed => 3,
            Self::Conflict => 4,
            Self::DiskFull => 5,
            Self::NotGranted => 6,
        }
    }

    #[inline]
    fn from_tag(tag: u8) -> Option<Self> {
        const ALL: [Status; 7] = [
            Status::Done,
            Status::Busy,
            Status::SessionLost,
            Status::Malformed,
            Status::Conflict,
            Status::DiskFull,
            Status::NotGranted,
        ];
        ALL.get(usize::from(tag)).copied()
    }
}

/// A row of answers: `sequence: u64 | status: u8 | length: u32 | bytes`, again and again. Encoded all the way from the replica to
/// the client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row(Bytes, Vec<u8>);

/// One of a row of answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Which call.
    pub sequence: Sequence,
    /// How it ended.
    pub status: Status,
    /// The service's answer.
    pub bytes: Bytes,
}

/// One of a row of answers, where it stands in the row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnsweredView<'a> {
    /// Which call.
    pub sequence: Sequence,
    /// How it ended.
    pub status: Status,
    /// The service's answer.
    pub bytes: &'a [u8],
}

/// What stands before an answer's bytes.
const ANSWER_HEAD_BYTES: usize = 13;

#[inline]
fn split_answer(row: &[u8]) -> Option<(AnsweredView<'_>, &[u8])> {
    let (head, rest) = row.split_first_chunk::<ANSWER_HEAD_BYTES>()?;
    let (sequence, head) = head.split_first_chunk::<8>()?;
    let (status, length) = head.split_first()?;
    let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
    let bytes = rest.get(..length)?;
    let sequence = Sequence(u64::from_le_bytes(*sequence));
    Some((AnsweredView { sequence, status: Status::from_tag(*status)?, bytes }, &rest[length..]))
}

impl Row {
    /// Adds one answer.
    #[inline]
    pub fn push(&mut self, sequence: Sequence, status: Status, bytes: &[u8]) {
        sequence.encode(&mut self.1);
        self.1.push(status.tag());
        bytes.encode(&mut self.1);
    }

    /// True if there is no answer in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty() && self.1.is_empty()
    }

    /// The answers in order, in the row's own memory; ends at malformed bytes.
    pub fn views(&self) -> impl Iterator<Item = AnsweredView<'_>> {
        let mut rest: &[u8] = if self.1.is_empty() { &self.0 } else { &self.1 };
        std::iter::from_fn(move || {
            let (answer, after) = split_answer(rest)?;
            rest = after;
            Some(answer)
        })
    }

    /// The answers in order; ends at malformed bytes.
    pub fn iter(&self) -> impl Iterator<Item = Answered> + use<> {
        let bytes = if self.1.is_empty() { self.0.clone() } else { Bytes::copy_from_slice(&self.1) };
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(move || {
            let sequence = Sequence::decode(&mut reader).ok()?;
            let status = Status::from_tag(u8::decode(&mut reader).ok()?)?;
            Some(Answered { sequence, status, bytes: Bytes::decode(&mut reader).ok()? })
        })
    }
}

impl Encode for Row {
    fn encode(&self, out: &mut Vec<u8>) {
        if self.1.is_empty() { self.0.encode(out) } else { self.1.as_slice().encode(out) }
    }
}

impl Decode for Row {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Bytes::decode(input).map(|bytes| Self(bytes, Vec::new()))
    }
}
