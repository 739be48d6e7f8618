//! A client of ZooKeeper's protocol as small as it can be: it sends what it is asked to, and shows what it is sent.

use super::tls::Secured;
use coordination::wire::{JuteInput, JuteOutput, frame};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session and its proof.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// 0 for a new session.
    pub session: i64,
    /// The proof.
    pub password: Vec<u8>,
}

/// What a server has said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Of the request; -1 for an event.
    pub xid: i32,
    /// The global sequence number.
    pub zxid: i64,
    /// 0 for success.
    pub error: i32,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// A way to a server, in the clear or not.
trait Stream: Read + Write + Debug + Send {
    fn set_patience(&self, patience: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

impl Stream for Secured {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.sock.set_read_timeout(Some(patience))
    }
}

/// A connection with a session.
#[derive(Debug)]
pub struct Raw {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
    output: Vec<u8>,
    xid: i32,
    /// The session.
    pub pass: Pass,
    /// In milliseconds, as granted; 0 for a session that was refused.
    pub timeout: i32,
    /// Events that nobody has taken yet.
    pub events: VecDeque<Reply>,
}

impl Raw {
    /// Connects and shakes hands.
    pub fn connect(address: SocketAddr, pass: &Pass, timeout: i32, last_zxid: i64) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Self::greet(Box::new(stream), pass, timeout, last_zxid)
    }

    /// The same under TLS, with the certificates of a folder that `ordinate tls init` made.
    pub fn connect_tls(address: SocketAddr, folder: &Path, pass: &Pass) -> io::Result<Self> {
        Self::greet(Box::new(super::tls::connect(address, folder)?), pass, 30_000, 0)
    }

    /// The same with a certificate of this name.
    pub fn connect_tls_as(address: SocketAddr, folder: &Path, name: &str) -> io::Result<Self> {
        let stream = super::tls::connect_as(address, folder, name)?;
        Self::greet(Box::new(stream), &Pass::default(), 30_000, 0)
    }

    fn greet(stream: Box<dyn Stream>, pass: &Pass, timeout: i32, last_zxid: i64) -> io::Result<Self> {
        stream.set_patience(PATIENCE)?;
        let mut raw = Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            xid: 0,
            pass: pass.clone(),
            timeout: 0,
            events: VecDeque::new(),
        };
        raw.output = hello(pass, timeout, last_zxid);
        raw.flush()?;
        let response = raw.frame()?;
        let mut input = JuteInput(&response);
        let bad = |_| io::Error::other("a malformed handshake");
        input.i32().map_err(bad)?;
        raw.timeout = input.i32().map_err(bad)?;
        let session = input.i64().map_err(bad)?;
        raw.pass = Pass { session, password: input.buffer().map_err(bad)?.unwrap_or_default().to_vec() };
        Ok(raw)
    }

    /// Waits so long for an answer, and no longer.
    pub fn set_patience(&mut self, patience: Duration) {
        self.stream.set_patience(patience).expect("more than nothing");
    }

    /// Puts a request behind those that wait to be sent; its xid.
    pub fn push(&mut self, opcode: i32, body: &[u8]) -> i32 {
        self.xid += 1;
        let xid = match opcode {
            11 => -2,
            100 => -4,
            101 | 105 => -8,
            _ => self.xid,
        };
        frame(&mut self.output, |out| {
            out.put_i32(xid);
            out.put_i32(opcode);
            out.extend_from_slice(body);
        });
        xid
    }

    /// Sends what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output)?;
        self.stream.flush()?;
        self.output.clear();
        Ok(())
    }

    /// The next answer; events before it are held apart.
    pub fn reply(&mut self) -> io::Result<Reply> {
        loop {
            let reply = self.message()?;
            if reply.xid != -1 {
                return Ok(reply);
            }
            self.events.push_back(reply);
        }
    }

    /// Asks and waits for the answer.
    pub fn call(&mut self, opcode: i32, body: &[u8]) -> io::Result<Reply> {
        self.push(opcode, body);
        self.flush()?;
        self.reply()
    }

    /// True if the server closes the connection, and says nothing before but events.
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.message() {
                Ok(message) if message.xid == -1 => self.events.push_back(message),
                Ok(_) => return false,
                Err(error) => {
                    return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                }
            }
        }
    }

    fn message(&mut self) -> io::Result<Reply> {
        let frame = self.frame()?;
        let mut input = JuteInput(&frame);
        let bad = |_| io::Error::other("a reply without header");
        let (xid, zxid) = (input.i32().map_err(bad)?, input.i64().map_err(bad)?);
        Ok(Reply { xid, zxid, error: input.i32().map_err(bad)?, body: input.0.to_vec() })
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(len) = self.input.first_chunk::<4>() {
                let end = 4 + i32::from_be_bytes(*len).unsigned_abs() as usize;
                if self.input.len() >= end {
                    let rest = self.input.split_off(end);
                    return Ok(std::mem::replace(&mut self.input, rest).split_off(4));
                }
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// The first request of a connection.
pub fn hello(pass: &Pass, timeout: i32, last_zxid: i64) -> Vec<u8> {
    let mut request = Vec::new();
    frame(&mut request, |out| {
        out.put_i32(0);
        out.put_i64(last_zxid);
        out.put_i32(timeout);
        out.put_i64(pass.session);
        out.put_buffer(Some(if pass.password.is_empty() { &[0; 16] } else { &pass.password }));
        out.push(0);
    });
    request
}

/// Asks a four-letter word.
pub fn word(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(word.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}
