//! A small blocking client of ZooKeeper's protocol: one request at a time, for the command line.

use coordination::wire::{JuteInput, JuteOutput as _, Malformed, frame, op};
use ordinate_client::Tls;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// How long a server may take to take a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take to turn a stranger away.
const GREETED_WITHIN: Duration = Duration::from_secs(2);
/// The session timeout asked for, in milliseconds.
const SESSION_TIMEOUT: i32 = 10_000;
/// Replies beyond this are refused: nothing that fits on a terminal is longer.
const REPLY_BYTES_MAX: usize = 64 << 20;
const PING: i32 = -2;
const AUTH: i32 = -4;
const NOTIFICATION: i32 = -1;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ZkError {
    /// No server could be reached.
    #[error("no server answers at {0}: {1}")]
    Unreachable(String, String),
    /// The connection broke: the request may have been executed.
    #[error("the connection broke: {0}; a change may have been made")]
    Broken(#[from] io::Error),
    /// The server refused the request; it was not executed.
    #[error("{}", words(*.0))]
    Refused(i32),
    /// A step of a multi was refused, so nothing was executed.
    #[error("operation {at}, {text}: {}", words(*.code))]
    Step {
        /// From 1.
        at: usize,
        /// Its words.
        text: String,
        /// ZooKeeper's.
        code: i32,
    },
    /// One of many nodes was refused; those before it are done.
    #[error("{path}: {}", words(*.code))]
    Node {
        /// Which.
        path: String,
        /// ZooKeeper's.
        code: i32,
    },
    /// Files of a ZooKeeper cannot be used.
    #[error(transparent)]
    Files(#[from] super::files::FilesError),
    /// What was given cannot be sent.
    #[error("{0}")]
    Input(String),
    /// Something listens there, and does not answer as ZooKeeper does.
    #[error("{0} did not answer as ZooKeeper's port does, and closed the connection; nothing was changed")]
    NotGreeted(String),
    /// A server listens there, and opens no session.
    #[error("{0} takes connections, and opened no session; nothing was changed")]
    NoSession(String),
    /// The server said what this client does not understand.
    #[error("the server's reply is not ZooKeeper's protocol")]
    Strange,
}

impl From<Malformed> for ZkError {
    fn from(_: Malformed) -> Self {
        Self::Strange
    }
}

fn words(code: i32) -> String {
    let known = match code {
        -4 => "the connection is lost",
        -6 => "the server does not know this request",
        -8 => "bad arguments",
        -101 => "no such node",
        -102 => "not allowed by the node's access list, or not granted by the cluster's access file",
        -103 => "the node has another version",
        -108 => "an ephemeral node has no children",
        -110 => "the node exists already",
        -111 => "the node has children",
        -112 => "the session has expired",
        -114 => "the access list is not valid",
        -115 => "the proof of who you are is refused",
        -125 => "a quota is exceeded",
        -127 => "the server asks to slow down",
        _ => return format!("error {code}"),
    };
    format!("{known} (ZooKeeper error {code})")
}

/// A change that was watched for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub what: &'static str,
    /// Where.
    pub path: String,
}

/// Bytes both ways, in the clear or under TLS.
trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// One session.
pub struct ZkClient {
    stream: Box<dyn Stream>,
    /// The same socket, for its time-outs.
    socket: TcpStream,
    xid: i32,
    /// The session's number.
    pub session: i64,
    events: Vec<Event>,
}

impl ZkClient {
    /// Connects to the first of `servers` (`host:port`, comma-separated) that answers.
    pub fn connect(servers: &str, tls: Option<&Tls>) -> Result<Self, ZkError> {
        let mut last = "no address".to_owned();
        for server in servers.split(',').map(str::trim) {
            for address in server.to_socket_addrs().into_iter().flatten() {
                match TcpStream::connect_timeout(&address, PATIENCE) {
                    Ok(socket) => return Self::greet(server, socket, tls),
                    Err(error) => last = error.to_string(),
                }
            }
        }
        Err(ZkError::Unreachable(servers.to_owned(), last))
    }

    fn greet(server: &str, socket: TcpStream, tls: Option<&Tls>) -> Result<Self, ZkError> {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls {
            Some(tls) => Box::new(tls.blocking(server, socket.try_clone()?)?),
            None => Box::new(socket.try_clone()?),
        };
        let mut client = Self { stream, socket, xid: 0, session: 0, events: Vec::new() };
        let mut hello = Vec::new();
        frame(&mut hello, |out| {
            out.put_i32(0);
            out.put_i64(0);
            out.put_i32(SESSION_TIMEOUT);
            out.put_i64(0);
            out.put_buffer(Some(&[0; 16]));
            out.push(0);
        });
        let began = Instant::now();
        let greeted = client.stream.write_all(&hello).map_err(ZkError::from).and_then(|()| client.receive());
        let answer = greeted.map_err(|error| match error {
            // It has waited for others, and what is no ZooKeeper answers at once.
            ZkError::Broken(_) if began.elapsed() >= GREETED_WITHIN => ZkError::NoSession(server.to_owned()),
            ZkError::Broken(_) | ZkError::Strange => ZkError::NotGreeted(server.to_owned()),
            other => other,
        })?;
        let mut answer = JuteInput(&answer);
        answer.i32()?;
        answer.i32()?;
        client.session = answer.i64()?;
        Ok(client)
    }

    /// Sends one request and waits for its answer's body.
    pub fn ask(&mut self, opcode: i32, body: &[u8]) -> Result<Vec<u8>, ZkError> {
        self.xid += 1;
        self.send(self.xid, opcode, body)?;
        loop {
            let (xid, error, body) = self.next()?;
            if xid == self.xid {
                return if error == 0 { Ok(body) } else { Err(ZkError::Refused(error)) };
            }
        }
    }

    /// Sends one request and does not wait: [`Self::reply`] gives the answers in the order asked.
    pub fn push(&mut self, opcode: i32, body: &[u8]) -> Result<i32, ZkError> {
        self.xid += 1;
        self.send(self.xid, opcode, body)?;
        Ok(self.xid)
    }

    /// The next answer to what was pushed: its number, its error, its body.
    pub fn reply(&mut self) -> Result<(i32, i32, Vec<u8>), ZkError> {
        loop {
            let (xid, error, body) = self.next()?;
            if xid >= 0 {
                return Ok((xid, error, body));
            }
        }
    }

    /// Proves who the user is: `SCHEME:TOKEN`.
    pub fn authenticate(&mut self, auth: &str) -> Result<(), ZkError> {
        let Some((scheme, token)) = auth.split_once(':') else {
            return Err(ZkError::Input(format!("{auth} proves nothing: wanted SCHEME:TOKEN")));
        };
        let mut body = Vec::new();
        body.put_i32(0);
        body.put_text(scheme);
        body.put_buffer(Some(token.as_bytes()));
        self.send(AUTH, op::AUTH, &body)?;
        let (_, error, _) = self.next()?;
        if error == 0 { Ok(()) } else { Err(ZkError::Refused(error)) }
    }

    /// Keeps the session alive.
    pub fn ping(&mut self) -> Result<(), ZkError> {
        self.send(PING, op::PING, &[])?;
        self.next().map(drop)
    }

    /// Closes the session; whatever is not closed expires.
    pub fn close(&mut self) {
        let _ = self.ask(op::CLOSE, &[]);
    }

    fn send(&mut self, xid: i32, opcode: i32, body: &[u8]) -> Result<(), ZkError> {
        let mut bytes = Vec::with_capacity(body.len() + 12);
        frame(&mut bytes, |out| {
            out.put_i32(xid);
            out.put_i32(opcode);
            out.extend_from_slice(body);
        });
        Ok(self.stream.write_all(&bytes)?)
    }

    /// The next reply; notifications are put aside.
    fn next(&mut self) -> Result<(i32, i32, Vec<u8>), ZkError> {
        loop {
            let bytes = self.receive()?;
            let mut input = JuteInput(&bytes);
            let xid = input.i32()?;
            input.i64()?;
            let error = input.i32()?;
            if xid == NOTIFICATION {
                let what = match input.i32()? {
                    1 => "created",
                    2 => "deleted",
                    3 => "data changed",
                    4 => "children changed",
                    _ => "changed",
                };
                input.i32()?;
                self.events.push(Event { what, path: input.text()?.to_owned() });
                continue;
            }
            return Ok((xid, error, input.0.to_vec()));
        }
    }

    fn receive(&mut self) -> Result<Vec<u8>, ZkError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > REPLY_BYTES_MAX {
            return Err(ZkError::Strange);
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Waits for something watched to happen, and keeps the session alive meanwhile.
    pub fn wait_for_event(&mut self) -> Result<Event, ZkError> {
        self.socket.set_read_timeout(Some(Duration::from_millis(SESSION_TIMEOUT as u64)))?;
        loop {
            if !self.events.is_empty() {
                return Ok(self.events.remove(0));
            }
            // The answer to a ping ends the wait for it; an event that came before is found above.
            self.send(PING, op::PING, &[])?;
            self.next()?;
            if self.events.is_empty() {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}
