//! The native protocol's front end: prefaces and frames in, messages for the batcher of this host out.

use crate::family::{self, Ordinate};
use crate::owed::{Asked, Owed, Reads};
use bytes::BytesMut;
use kernel::client::{ConnectionIn, Input, Output};
use kernel::{Bytes, Decode, Encode as _, FrameReader, FrameWriter, NodeId, Reader};
use ordinate_client::protocol;
use paxos::Message;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::multipaxos::client::{ClientIn, Results, Row, Status};
use runtime::{CloseReason, FrontEnd, Session, SessionCx};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Serves the native protocol on one port.
pub struct Native {
    /// The batcher of this host.
    pub batcher: NodeId,
    /// The sequence's gateway of this host, if there is one.
    pub sequence: Option<NodeId>,
    /// The log's gateway of this host, if there is one.
    pub logs: Option<NodeId>,
    /// The largest frame of a client.
    pub body_max: usize,
    /// Whether clients are served here.
    pub gate: Gate,
    /// How many connections there may be, for those who are turned away.
    pub connections_max: usize,
    /// What its connections are owed.
    pub owed: Owed,
    /// Where a message becomes a frame. One for all connections: it stays as large as the largest answers.
    pub writer: Rc<RefCell<FrameWriter>>,
}

/// Clients of a host that serves them no more are sent away this soon.
const GATE_WATCHED_EVERY: Duration = Duration::from_secs(1);
const SENT_ELSEWHERE: CloseReason = CloseReason("other hosts serve clients");

/// What an answer takes that has nothing of what is stored in it.
const SMALL_ANSWER_BYTES: usize = 256;
/// What an answer that lists logs may take.
const LIST_ANSWER_BYTES: usize = 256 << 10;
/// What the writer keeps of its memory between two messages.
const WRITER_KEPT_BYTES: usize = 256 << 10;

impl FrontEnd<Ordinate> for Native {
    fn open(&mut self, _client: NodeId, _address: SocketAddr) -> Box<dyn Session<Ordinate>> {
        Box::new(Connection {
            batcher: self.batcher,
            sequence: self.sequence,
            logs: self.logs,
            frames: FrameReader { body_max: self.body_max },
            gate: self.gate.clone(),
            greeted: false,
            reads: Reads::new(Rc::clone(&self.owed)),
            waiting: None,
            writer: Rc::clone(&self.writer),
        })
    }

    fn refusal(&mut self, reason: CloseReason) -> Vec<u8> {
        let max = self.connections_max;
        let why = match reason {
            CloseReason::TOO_MANY => {
                format!("the host has {max} connections, which is its limits.connections_max")
            }
            CloseReason::TOO_MANY_FROM_ONE_ADDRESS => {
                "the host has limits.connections_per_address_max connections from this address".to_owned()
            }
            CloseReason(other) => other.to_owned(),
        };
        protocol::refusal(&why)
    }

    fn tick_every(&self) -> Option<Duration> {
        Some(GATE_WATCHED_EVERY)
    }
}

/// Whether this host serves clients. It is open unless somebody has said why not.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    is_closed: AtomicBool,
    why: Mutex<String>,
}

impl Gate {
    /// Closes it for a reason that clients are told, or opens it.
    pub fn set(&self, closed: Option<String>) {
        self.0.is_closed.store(closed.is_some(), Ordering::Release);
        *self.0.why.lock().unwrap_or_else(PoisonError::into_inner) = closed.unwrap_or_default();
    }

    /// True while clients are not served.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Acquire)
    }

    /// What clients are told; none if they are served.
    pub fn refusal(&self) -> Option<String> {
        self.is_closed().then(|| self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

struct Connection {
    batcher: NodeId,
    sequence: Option<NodeId>,
    logs: Option<NodeId>,
    frames: FrameReader,
    gate: Gate,
    greeted: bool,
    reads: Reads,
    /// What is left of a frame whose next message has to wait for room.
    waiting: Option<Bytes>,
    writer: Rc<RefCell<FrameWriter>>,
}

impl Session<Ordinate> for Connection {
    fn on_input(
        &mut self,
        input: &mut BytesMut,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        self.reads.count(cx);
        if !self.greeted && !self.greet(input, cx)? {
            return Ok(());
        }
        loop {
            if !self.go_on(cx)? {
                return Ok(());
            }
            match self.frames.next(input) {
                Ok(None) => return Ok(()),
                Ok(Some(body)) => self.take(body, cx)?,
                Err(kernel::FrameError::TooLarge { .. }) => {
                    return Err(CloseReason("frame larger than allowed"));
                }
                Err(kernel::FrameError::Checksum) => {
                    return Err(CloseReason("frame checksum does not match"));
                }
            }
        }
    }

    fn on_message(
        &mut self,
        _from: NodeId,
        message: family::Message,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        self.reads.count(cx);
        let message = self.answered(message);
        let mut writer = self.writer.borrow_mut();
        match message {
            family::Message::Kv(message) => writer.message(&message),
            // The gateways of the sequence and of the log write the message themselves.
            family::Message::Connection(ConnectionIn::Output(message)) => {
                message.bytes.encode(writer.body());
            }
            family::Message::Mason(_)
            | family::Message::Corfu(_)
            | family::Message::User(_)
            | family::Message::Connection(_) => return Ok(()),
        }
        let bytes = writer.bytes();
        cx.output().extend_from_slice(bytes);
        bytes.clear();
        bytes.shrink_to(WRITER_KEPT_BYTES);
        drop(writer);
        self.reads.count(cx);
        self.go_on(cx).map(|_| ())
    }

    fn on_taken(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        self.reads.count(cx);
        self.go_on(cx).map(|_| ())
    }

    fn on_tick(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        if self.greeted && self.gate.is_closed() {
            return Err(SENT_ELSEWHERE);
        }
        self.reads.tick(cx.now());
        self.reads.count(cx);
        self.go_on(cx).map(|_| ())
    }
}

impl Connection {
    fn greet(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Ordinate>) -> Result<bool, CloseReason> {
        let Some(preface) = input.first_chunk::<{ protocol::PREFACE_BYTES }>() else { return Ok(false) };
        let Some(version) = protocol::version_of(preface) else {
            return Err(CloseReason("not the native protocol"));
        };
        let _ = input.split_to(protocol::PREFACE_BYTES);
        if let Some(why) = self.gate.refusal() {
            cx.output().extend_from_slice(&protocol::refusal(&why));
            cx.finish(SENT_ELSEWHERE);
            return Ok(false);
        }
        let spoken = if version == 0 { 0 } else { version.min(protocol::VERSION) };
        cx.output().extend_from_slice(&protocol::preface(spoken));
        if spoken == 0 {
            cx.finish(CloseReason("no common protocol version"));
            return Ok(false);
        }
        self.greeted = true;
        cx.established();
        Ok(true)
    }

    /// Goes on with a frame that had to wait; false if it waits still.
    fn go_on(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<bool, CloseReason> {
        if let Some(waiting) = self.waiting.take() {
            self.take(waiting, cx)?;
        }
        cx.pause_input(self.waiting.is_some());
        Ok(self.waiting.is_none())
    }

    /// Hands a frame's messages on, as long as there is room for the answers; what only servers may say closes the connection.
    fn take(&mut self, frame: Bytes, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        let mut body = Reader::new(frame.clone());
        while body.remaining() > 0 {
            let at = body.position();
            let message = Bytes::decode(&mut body).map_err(|_| CloseReason("message cut short"))?;
            if !self.take_message(&message, cx)? {
                // What is kept beyond the burst must not hold on to all that was read with it.
                self.waiting = Some(Bytes::copy_from_slice(&frame[at..]));
                cx.pause_input(true);
                return Ok(());
            }
        }
        Ok(())
    }

    /// False if there is no room for what it would be answered.
    fn take_message(
        &mut self,
        message: &Bytes,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<bool, CloseReason> {
        if message.first() == Some(&sequence::native::TO_HOST) {
            let Some(gateway) = self.sequence else {
                return Err(CloseReason("call of the sequence, which is off"));
            };
            if !self.reads.admits(SMALL_ANSWER_BYTES) {
                return Ok(false);
            }
            cx.send(gateway, family::Message::User(Input { bytes: message.clone() }.into()));
            return Ok(true);
        }
        if message.first() == Some(&shared_log::native::TO_HOST) {
            let Some(gateway) = self.logs else {
                return Err(CloseReason("call of the log, which is off"));
            };
            let (id, bytes, waits) = answer_of_call(message);
            let bytes = self.reads.room_of_call(bytes, waits);
            if !self.reads.admits(bytes) {
                return Ok(false);
            }
            self.reads.ask(Asked::Call(id), bytes, cx.now());
            cx.send(gateway, family::Message::User(Input { bytes: message.clone() }.into()));
            return Ok(true);
        }
        let message = match Message::decoded(message) {
            Ok(Message::Batcher(message)) => message,
            Ok(_) => return Err(CloseReason("message that clients may not send")),
            Err(_) => return Err(CloseReason("message that does not decode")),
        };
        match message {
            BatcherIn::Submit(message) => {
                if !self.reads.admits(SMALL_ANSWER_BYTES) {
                    return Ok(false);
                }
                cx.send(self.batcher, Message::from(message));
            }
            BatcherIn::Query(message) => {
                let expected = self.reads.expected();
                let count = message.queries.iter().count();
                if !self.reads.admits(expected.saturating_mul(count)) {
                    return Ok(false);
                }
                for query in message.queries.iter() {
                    self.reads.ask(Asked::Query(message.session, query.sequence), expected, cx.now());
                }
                cx.send(self.batcher, Message::from(message));
            }
            BatcherIn::Reconfigure(message) => cx.send(self.batcher, Message::from(message)),
            BatcherIn::PreReadAck(_)
            | BatcherIn::Superseded(_)
            | BatcherIn::Heartbeat(_)
            | BatcherIn::Done(_) => return Err(CloseReason("message that clients may not send")),
        }
        Ok(true)
    }

    /// Notes what is answered. Answers to reads that there is no room for become the word that the host is busy: the client asks
    /// again.
    fn answered(&mut self, message: family::Message) -> family::Message {
        match message {
            family::Message::Kv(Message::Client(ClientIn::Results(results))) => {
                let Results { session, executed, results } = results;
                let bytes: usize = results.iter().map(|answer| answer.bytes.len()).sum();
                let fits = bytes <= SMALL_ANSWER_BYTES || self.reads.takes(bytes);
                let mut row = Row::default();
                for answer in results.iter() {
                    let asked = Asked::Query(session, answer.sequence);
                    let is_read = self.reads.answered(asked, answer.bytes.len());
                    if is_read && !fits {
                        row.push(answer.sequence, Status::Busy, &[]);
                    } else if !fits {
                        row.push(answer.sequence, answer.status, &answer.bytes);
                    }
                }
                let results = if fits { results } else { row };
                Message::from(Results { session, executed, results }).into()
            }
            family::Message::Connection(ConnectionIn::Output(output)) => {
                let refused =
                    reply_id(&output.bytes).filter(|&id| !self.reads.takes_call(id, output.bytes.len()));
                let output = refused.map_or(output, |id| {
                    let answer = shared_log::Answer::refused(shared_log::Why::Busy);
                    let reply = shared_log::native::Reply { id, answer };
                    Output { bytes: shared_log::native::Native::Reply(reply).encoded().into() }
                });
                family::Message::Connection(ConnectionIn::Output(output))
            }
            other => other,
        }
    }
}

/// The number of a call of the log, how large its answer may be, and whether it waits for what is not there yet.
fn answer_of_call(message: &Bytes) -> (u64, usize, bool) {
    match shared_log::native::Native::decoded(message) {
        Ok(shared_log::native::Native::Call(call)) => {
            let bytes = match &call.request {
                shared_log::Request::Read(read) | shared_log::Request::Recall(read) => {
                    read.bytes_max.min(shared_log::READ_BYTES_MAX) as usize
                }
                shared_log::Request::List(_) => LIST_ANSWER_BYTES,
                _ => 0,
            };
            let waits = matches!(&call.request, shared_log::Request::Read(read) if read.wait_ms > 0);
            (call.id, bytes + SMALL_ANSWER_BYTES, waits)
        }
        // The gateway says what is wrong with it.
        Ok(shared_log::native::Native::Reply(_)) | Err(_) => (0, SMALL_ANSWER_BYTES, false),
    }
}

/// The number of the call that a reply of the log answers.
fn reply_id(bytes: &Bytes) -> Option<u64> {
    let head = bytes.get(..10)?;
    (head[0] == shared_log::native::TO_CLIENT)
        .then(|| u64::from_le_bytes(head[2..].try_into().unwrap_or_default()))
}
