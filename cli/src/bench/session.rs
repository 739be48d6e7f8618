//! A session of ZooKeeper's protocol, as its load generators need one.

use coordination::wire::{JuteOutput, frame, op};
use hdrhistogram::Histogram;
use kernel::Rng;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const SESSION_TIMEOUT_MS: i32 = 30_000;
pub(super) const FOLDER: &str = "/bench";

/// What is measured, whatever is asked.
pub(super) struct Load<'a> {
    /// Client addresses of all servers.
    pub(super) endpoints: &'a [SocketAddr],
    pub(super) sessions: u64,
    /// Bytes of a node.
    pub(super) value: usize,
    pub(super) seconds: Duration,
    /// Processes of the servers, whose processor time is measured.
    pub(super) processes: &'a [u32],
}

/// A connection, from its handshake on.
pub(super) struct Session {
    pub(super) stream: TcpStream,
    pub(super) open: bool,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    pub(super) written: usize,
    pub(super) in_flight: VecDeque<Instant>,
    pub(super) xid: i32,
}

/// What all sessions have measured.
pub(super) struct Tally {
    pub(super) rng: Rng,
    pub(super) chunk: Vec<u8>,
    pub(super) latency: Histogram<u64>,
    pub(super) operations: u64,
    pub(super) failed: u64,
    pub(super) from: Instant,
    /// Names this run's new nodes.
    pub(super) run: u32,
    pub(super) created: u64,
    /// The node that is created next while the nodes are prepared; `None` behind.
    pub(super) preparing: Option<u64>,
    pub(super) prepared: u64,
    /// How many there will be, with their folder.
    pub(super) to_prepare: u64,
}

impl Session {
    pub(super) fn new(stream: TcpStream) -> Self {
        let mut output = Vec::new();
        frame(&mut output, |out| {
            out.put_i32(0);
            out.put_i64(0);
            out.put_i32(SESSION_TIMEOUT_MS);
            out.put_i64(0);
            out.put_buffer(Some(&[0; 16]));
            out.push(0);
        });
        let (input, in_flight) = (Vec::new(), VecDeque::new());
        Self { stream, open: false, input, output, written: 0, in_flight, xid: 0 }
    }

    /// Reads what has arrived.
    pub(super) fn take_in(&mut self, tally: &mut Tally) -> io::Result<()> {
        loop {
            match self.stream.read(&mut tally.chunk) {
                Ok(0) => return Err(io::Error::other("a server closed a connection")),
                Ok(count) => {
                    self.input.extend_from_slice(&tally.chunk[..count]);
                    if count < tally.chunk.len() {
                        return Ok(());
                    }
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next whole frame behind the handshake.
    pub(super) fn next_body(&mut self) -> Option<Vec<u8>> {
        loop {
            let end = 4 + u32::from_be_bytes(*self.input.first_chunk::<4>()?) as usize;
            if self.input.len() < end {
                return None;
            }
            let body = self.input.drain(..end).skip(4).collect();
            if std::mem::replace(&mut self.open, true) {
                return Some(body);
            }
        }
    }

    pub(super) fn create(&mut self, xid: i32, path: &str, value: usize) {
        self.request(xid, op::CREATE, |out| {
            out.put_text(path);
            out.put_buffer(Some(&vec![b'v'; value]));
            out.put_i32(1);
            out.put_i32(31);
            out.put_text("world");
            out.put_text("anyone");
            out.put_i32(0);
        });
    }

    pub(super) fn request(&mut self, xid: i32, opcode: i32, body: impl FnOnce(&mut Vec<u8>)) {
        frame(&mut self.output, |out| {
            out.put_i32(xid);
            out.put_i32(opcode);
            body(out);
        });
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}
