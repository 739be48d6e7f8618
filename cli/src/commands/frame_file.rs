//! Files of frames, each with its length and checksum (`length: u32 | crc32c: u32 | body`, little-endian): what dumps are written in. The
//! body of the first frame is a line that says what the file is, then JSON that says of what. Which frame is the last, the caller knows.

use bytes::BytesMut;
use kernel::{Bytes, FRAME_HEADER_BYTES, FrameReader, FrameWriter};
use std::io;

/// The largest body.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Bytes that are read or written at a time.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Writes such a file.
pub struct FrameFileWriter<W> {
    out: W,
    frame: FrameWriter,
}

impl<W: io::Write> FrameFileWriter<W> {
    /// Begins with what the file is, and of what.
    pub fn begin(out: W, first_line: &[u8], about: &serde_json::Value) -> io::Result<Self> {
        let mut writer = Self { out, frame: FrameWriter::default() };
        writer.add(|body| {
            body.extend_from_slice(first_line);
            body.extend_from_slice(about.to_string().as_bytes());
        })?;
        Ok(writer)
    }

    /// Adds a frame.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        write(self.frame.body());
        let bytes = self.frame.bytes();
        let written = self.out.write_all(bytes);
        bytes.clear();
        written
    }

    /// What it was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Reads such a file.
pub struct FrameFileReader<R> {
    input: R,
    read: BytesMut,
    /// Where the next frame begins in the file.
    at: u64,
}

/// What is wrong, and where.
pub fn unsound(at: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("at byte {at}: {what}"))
}

impl<R: io::Read> FrameFileReader<R> {
    /// From the beginning of a file.
    pub fn new(input: R) -> Self {
        Self { input, read: BytesMut::new(), at: 0 }
    }

    /// Of what the file is, if it begins with this line; `kind`: what it should be.
    pub fn about(&mut self, first_line: &[u8], kind: &str) -> io::Result<serde_json::Value> {
        let (at, body) = self.next()?.ok_or_else(|| self.truncated())?;
        let about = body.strip_prefix(first_line).and_then(|about| serde_json::from_slice(about).ok());
        about.ok_or_else(|| unsound(at, &format!("this is no {kind}")))
    }

    /// The next frame's offset and body; none where the file ends behind a whole frame.
    pub fn next(&mut self) -> io::Result<Option<(u64, Bytes)>> {
        let frames = FrameReader { body_max: BODY_BYTES_MAX };
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let frame = frames.next(&mut self.read).map_err(|error| unsound(self.at, &error.to_string()))?;
            if let Some(body) = frame {
                let at = self.at;
                self.at += (FRAME_HEADER_BYTES + body.len()) as u64;
                return Ok(Some((at, body)));
            }
            let count = self.input.read(&mut chunk)?;
            if count == 0 {
                return if self.read.is_empty() { Ok(None) } else { Err(self.truncated()) };
            }
            self.read.extend_from_slice(&chunk[..count]);
        }
    }

    /// The file ends before its end.
    pub fn truncated(&self) -> io::Error {
        unsound(self.at, "the file is truncated here")
    }
}
