//! A closed loop: one thread, many connections, each with a fixed number of calls in flight. Those of the native protocol do without the
//! client library, so that the loop's own cost stays far below the server's.

use bytes::BytesMut;
use kernel::{Bytes, Decode as _, FrameReader, FrameWriter, Reader};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use ordinate_client::protocol;
use server::process::cpu_time;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Connections that make no progress for this long end the run with an error.
const STUCK_AFTER: Duration = Duration::from_secs(20);

/// A connection's socket, with what is on its way both ways.
pub(super) struct Wire {
    stream: TcpStream,
    greeted: bool,
    input: BytesMut,
    writer: FrameWriter,
    written: usize,
}

impl Wire {
    /// Dials, registers with `poll` under `token`, and says hello.
    pub(super) fn connect(endpoint: SocketAddr, poll: &Poll, token: Token) -> io::Result<Self> {
        let mut stream = TcpStream::connect(endpoint)?;
        stream.set_nodelay(true)?;
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let mut writer = FrameWriter::default();
        writer.bytes().extend_from_slice(&protocol::preface(protocol::VERSION));
        Ok(Self { stream, greeted: false, input: BytesMut::with_capacity(256 << 10), writer, written: 0 })
    }

    /// Where messages to the host go.
    pub(super) fn writer(&mut self) -> &mut FrameWriter {
        &mut self.writer
    }

    /// Reads what has come. `chunk` is the caller's, since to clear one costs as much as a call.
    pub(super) fn receive(&mut self, chunk: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(chunk) {
                Ok(0) => return Err(io::Error::other("a host closed a connection")),
                Ok(count) => {
                    self.input.extend_from_slice(&chunk[..count]);
                    if count < chunk.len() {
                        break;
                    }
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if self.greeted {
            return Ok(());
        }
        let Some(preface) = self.input.first_chunk::<{ protocol::PREFACE_BYTES }>() else { return Ok(()) };
        if protocol::version_of(preface).is_none_or(|version| version == 0) {
            return Err(io::Error::other("a host turned a connection away"));
        }
        let _ = self.input.split_to(protocol::PREFACE_BYTES);
        self.greeted = true;
        Ok(())
    }

    /// Takes the messages that have come whole.
    pub(super) fn take(&mut self, mut take: impl FnMut(Bytes) -> io::Result<()>) -> io::Result<()> {
        let frames = FrameReader { body_max: protocol::BODY_BYTES_MAX };
        while self.greeted
            && let Some(body) = frames.next(&mut self.input).map_err(io::Error::other)?
        {
            let mut body = Reader::new(body);
            while body.remaining() > 0 {
                take(Bytes::decode(&mut body).map_err(io::Error::other)?)?;
            }
        }
        Ok(())
    }

    /// Writes as much as the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let bytes = self.writer.bytes();
        while self.written < bytes.len() {
            match self.stream.write(&bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        bytes.clear();
        self.written = 0;
        Ok(())
    }
}

/// When a run is measured.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// From here on.
    pub(super) from: Instant,
    /// Up to here, if it does not end by itself.
    pub(super) until: Instant,
    /// Idle connections are served this often at the least.
    look_every: Duration,
}

impl Window {
    /// From now on after a `warm_up`.
    pub(super) fn after(warm_up: Duration, measured: Duration) -> Self {
        let from = Instant::now() + warm_up;
        Self { from, until: from + measured, look_every: Duration::from_millis(100) }
    }

    /// The same, with idle connections served that often.
    pub(super) fn looking_every(self, look_every: Duration) -> Self {
        Self { look_every, ..self }
    }

    /// From now on, for what ends by itself, or when it gets stuck.
    pub(super) fn until_done() -> Self {
        Self::after(Duration::ZERO, Duration::from_secs(u64::from(u32::MAX)))
    }
}

/// What a run took.
pub(super) struct Spent {
    /// How long it was measured.
    pub(super) seconds: f64,
    /// What the servers used meanwhile, if it is known which they are.
    pub(super) server_cpu: Option<Duration>,
}

/// Serves connections whenever something has come for them or can leave, and idle ones now and then, until one of them says that all
/// is done (`serve` returns true) or the window ends.
pub(super) fn run<C>(
    poll: &mut Poll,
    connections: &mut [C],
    window: Window,
    processes: &[u32],
    is_idle: impl Fn(&C) -> bool,
    mut serve: impl FnMut(&mut C, Instant) -> io::Result<bool>,
) -> io::Result<Spent> {
    let cpu_of = || processes.iter().map(|&process| cpu_time(process)).sum::<Option<Duration>>();
    let mut cpu_before = None;
    let mut events = Events::with_capacity(1024);
    let mut progress_at = Instant::now();
    let mut done = false;
    while !done {
        poll.poll(&mut events, Some(window.look_every))?;
        let now = Instant::now();
        if now >= window.from && cpu_before.is_none() {
            cpu_before = Some(cpu_of());
        }
        if now >= window.until {
            break;
        }
        if !events.is_empty() {
            progress_at = now;
        } else if now - progress_at > STUCK_AFTER {
            return Err(io::Error::other(
                "the cluster gives no answers: is a majority of its hosts running?",
            ));
        }
        for event in &events {
            done |= serve(&mut connections[event.token().0], now)?;
        }
        for idle in connections.iter_mut().filter(|connection| is_idle(connection)) {
            done |= serve(idle, now)?;
        }
    }
    let server_cpu = match (cpu_before.flatten(), cpu_of()) {
        (Some(before), Some(after)) if !processes.is_empty() => Some(after - before),
        _ => None,
    };
    Ok(Spent { seconds: window.from.elapsed().as_secs_f64(), server_cpu })
}
