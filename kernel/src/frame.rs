//! Frames: many messages under one length and one checksum, because a checksum costs more than a message's codec.
//!
//! `length: u32 | crc32c: u32 | body`, little-endian; `length` counts the body. A body between hosts is a row of
//! envelopes, `from: u64 | to: u64 | length: u32 | message`.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::id::NodeId;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;

/// Length and checksum.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Why a stream of frames cannot go on; the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// A body longer than the receiver allows.
    TooLarge {
        /// As announced.
        length: usize,
        /// The receiver's bound.
        max: usize,
    },
    /// The checksum does not match the body.
    Checksum,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { length, max } => write!(f, "frame of {length} bytes exceeds the limit of {max}"),
            Self::Checksum => write!(f, "frame checksum does not match"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Builds frames in a buffer that is sent and reused.
#[derive(Debug, Default)]
pub struct FrameWriter {
    out: Vec<u8>,
    open: Option<usize>,
}

impl FrameWriter {
    /// Adds to the open frame's body, opening one if none is.
    pub fn body(&mut self) -> &mut Vec<u8> {
        if self.open.is_none() {
            self.open = Some(self.out.len());
            self.out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        }
        &mut self.out
    }

    /// Adds one envelope to the open frame's body.
    pub fn envelope(&mut self, from: NodeId, to: NodeId, message: &impl Encode) {
        let body = self.body();
        from.encode(body);
        to.encode(body);
        prefixed(message, body);
    }

    /// Adds one length-prefixed message, as client protocols have them.
    pub fn message(&mut self, message: &impl Encode) {
        prefixed(message, self.body());
    }

    /// How long the open frame's body is by now.
    pub fn open_bytes(&self) -> usize {
        self.open.map_or(0, |start| self.out.len() - start - FRAME_HEADER_BYTES)
    }

    /// Closes the open frame, if any.
    pub fn close(&mut self) {
        if let Some(start) = self.open.take() {
            let body = start + FRAME_HEADER_BYTES;
            let length = (self.out.len() - body) as u32;
            let checksum = crc32c::crc32c(&self.out[body..]);
            self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
            self.out[start + 4..body].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    /// Everything closed so far and not yet cleared.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        self.close();
        &mut self.out
    }
}

fn prefixed(message: &impl Encode, body: &mut Vec<u8>) {
    let at = body.len();
    body.extend_from_slice(&[0; 4]);
    message.encode(body);
    let length = (body.len() - at - 4) as u32;
    body[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Takes frames off a stream.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader {
    /// The longest body allowed, in bytes.
    pub body_max: usize,
}

impl FrameReader {
    /// The body of the next whole frame in `stream`, removed from it; `None` until it has arrived.
    pub fn next(&self, stream: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(header) = stream.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, c0, c1, c2, c3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > self.body_max {
            return Err(FrameError::TooLarge { length, max: self.body_max });
        }
        if stream.len() < FRAME_HEADER_BYTES + length {
            return Ok(None);
        }
        stream.advance(FRAME_HEADER_BYTES);
        let body = stream.split_to(length).freeze();
        if crc32c::crc32c(&body) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(FrameError::Checksum);
        }
        Ok(Some(body))
    }
}

/// One message between nodes, still encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The message's encoding, sharing the frame's memory.
    pub message: Bytes,
}

impl Decode for Envelope {
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { from: NodeId::decode(input)?, to: NodeId::decode(input)?, message: Bytes::decode(input)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{HostId, HostSlot};

    fn node(slot: u32) -> NodeId {
        NodeId::new(HostId(9), HostSlot(slot))
    }

    fn two_frames() -> Vec<u8> {
        let mut writer = FrameWriter::default();
        writer.envelope(node(1), node(2), &7u64);
        writer.envelope(node(1), node(3), &8u64);
        writer.close();
        writer.envelope(node(1), node(2), &9u64);
        std::mem::take(writer.bytes())
    }

    // Bytes arrive in any pieces; a reader that needs them whole would hang or tear.
    #[test]
    fn frames_come_out_of_single_bytes() {
        let reader = FrameReader { body_max: 1 << 20 };
        let (mut stream, mut numbers) = (BytesMut::new(), Vec::new());
        for byte in two_frames() {
            stream.extend_from_slice(&[byte]);
            while let Some(body) = reader.next(&mut stream).expect("the frames are sound") {
                let mut body = Reader::new(body);
                while body.remaining() > 0 {
                    let envelope = Envelope::decode(&mut body).expect("the envelopes are sound");
                    numbers.push(u64::decoded(&envelope.message).expect("a number was sent"));
                }
            }
        }
        assert_eq!(numbers, [7, 8, 9]);
        assert!(stream.is_empty());
    }

    // A flipped bit anywhere must never deliver a message that was not sent.
    #[test]
    fn every_flipped_bit_is_noticed() {
        let frames = two_frames();
        let first = FRAME_HEADER_BYTES + 2 * 28;
        for bit in 0..first * 8 {
            let mut stream = BytesMut::from(&frames[..]);
            stream[bit / 8] ^= 1 << (bit % 8);
            let outcome = FrameReader { body_max: 1 << 20 }.next(&mut stream);
            assert!(!matches!(outcome, Ok(Some(_))), "bit {bit} went unnoticed");
        }
    }
}
