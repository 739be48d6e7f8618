//! The native protocol's front end: prefaces and frames in, messages for the batcher of this host out.

use crate::family::{self, Ordinate};
use bytes::BytesMut;
use kernel::{Bytes, Decode, Encode as _, FrameReader, FrameWriter, NodeId, Reader};
use mason::client::{ConnectionIn, Input};
use ordinate_client::protocol;
use paxos::Message;
use paxos::multipaxos::batcher::BatcherIn;
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
    /// Where a message becomes a frame. One for all connections: it stays as large as the largest answers.
    pub writer: Rc<RefCell<FrameWriter>>,
}

/// Clients of a host that serves them no more are sent away this soon.
const GATE_WATCHED_EVERY: Duration = Duration::from_secs(1);
const SENT_ELSEWHERE: CloseReason = CloseReason("other hosts serve clients");

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
    writer: Rc<RefCell<FrameWriter>>,
}

impl Session<Ordinate> for Connection {
    fn on_input(
        &mut self,
        input: &mut BytesMut,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        if !self.greeted && !self.greet(input, cx)? {
            return Ok(());
        }
        loop {
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
        let mut writer = self.writer.borrow_mut();
        match message {
            family::Message::Kv(message) => writer.message(&message),
            // The gateways of the sequence and of the log write the message themselves.
            family::Message::Mason(mason::Message::Connection(ConnectionIn::Output(message))) => {
                message.bytes.encode(writer.body());
            }
            family::Message::Mason(_) | family::Message::Corfu(_) => return Ok(()),
        }
        let bytes = writer.bytes();
        cx.output().extend_from_slice(bytes);
        bytes.clear();
        bytes.shrink_to(WRITER_KEPT_BYTES);
        Ok(())
    }

    fn on_tick(&mut self, _cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        if self.greeted && self.gate.is_closed() { Err(SENT_ELSEWHERE) } else { Ok(()) }
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

    /// Hands a frame's messages to the batcher; what only servers may say closes the connection.
    fn take(&mut self, body: Bytes, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        let mut body = Reader::new(body);
        while body.remaining() > 0 {
            let message = Bytes::decode(&mut body).map_err(|_| CloseReason("message cut short"))?;
            if message.first() == Some(&sequence::native::TO_HOST) {
                let Some(gateway) = self.sequence else {
                    return Err(CloseReason("call of the sequence, which is off"));
                };
                cx.send(gateway, family::Message::Mason(Input { bytes: message }.into()));
                continue;
            }
            if message.first() == Some(&shared_log::native::TO_HOST) {
                let Some(gateway) = self.logs else {
                    return Err(CloseReason("call of the log, which is off"));
                };
                cx.send(gateway, family::Message::Mason(Input { bytes: message }.into()));
                continue;
            }
            let message = match Message::decoded(&message) {
                Ok(Message::Batcher(message)) => message,
                Ok(_) => return Err(CloseReason("message that clients may not send")),
                Err(_) => return Err(CloseReason("message that does not decode")),
            };
            match message {
                BatcherIn::Submit(message) => cx.send(self.batcher, Message::from(message)),
                BatcherIn::Query(message) => cx.send(self.batcher, Message::from(message)),
                BatcherIn::Reconfigure(message) => cx.send(self.batcher, Message::from(message)),
                BatcherIn::PreReadAck(_)
                | BatcherIn::Superseded(_)
                | BatcherIn::Heartbeat(_)
                | BatcherIn::Done(_) => return Err(CloseReason("message that clients may not send")),
            }
        }
        Ok(())
    }
}
