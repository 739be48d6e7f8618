//! The native protocol's front end: prefaces and frames in, messages for the services of this host out.

use crate::access::{Access, PortCaller};
use crate::cluster::description::Listed;
use crate::family::{self, Ordinate};
use crate::gate::Gate;
use crate::latency::Latencies;
use crate::owed::{Owed, OwedReads};
use crate::services::native::{Asker, NativeCalls, UNREADABLE};
use bytes::BytesMut;
use kernel::client::ConnectionIn;
use kernel::{Bytes, Decode, Encode as _, FrameReader, FrameWriter, NodeId, Reader};
use runtime::{CloseReason, FrontEnd, Session, SessionCx};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use wire::native as protocol;

/// A service, and what it does at the native port if it is on.
pub type NativeService = (&'static Listed, Option<Box<dyn NativeCalls>>);

/// Serves the native protocol on one port.
pub struct NativePort {
    /// All services, with what those do here that are on.
    pub services: Rc<[NativeService]>,
    /// The largest frame of a client.
    pub body_max: usize,
    /// Whether clients are served here.
    pub gate: Gate,
    /// How many connections there may be, for those who are turned away.
    pub connections_max: usize,
    /// What its connections are owed.
    pub owed: Owed,
    /// How long their calls take.
    pub latencies: Latencies,
    /// Where a message becomes a frame. One for all connections: it stays as large as the largest answers.
    pub writer: Rc<RefCell<FrameWriter>>,
    /// Who may do what.
    pub access: Access,
}

/// Clients of a host that serves them no more are sent away this soon.
const GATE_WATCHED_EVERY: Duration = Duration::from_secs(1);
/// What a client with a wrong token is sent.
const UNKNOWN_TOKEN: &str =
    "this token is not known here: the access file (access.file) has no identity with it";
const SENT_ELSEWHERE: CloseReason = CloseReason("other hosts serve clients");

/// What the writer keeps of its memory between two messages.
const WRITER_RETAINED_BYTES: usize = 256 << 10;

impl FrontEnd<Ordinate> for NativePort {
    fn open(&mut self, _client: NodeId, address: SocketAddr) -> Box<dyn Session<Ordinate>> {
        Box::new(Connection {
            services: Rc::clone(&self.services),
            frames: FrameReader { body_max: self.body_max },
            gate: self.gate.clone(),
            greeted: false,
            reads: OwedReads::new(Rc::clone(&self.owed), self.latencies.clone()),
            waiting: None,
            writer: Rc::clone(&self.writer),
            caller: PortCaller::at(&self.access, "native", address.ip()),
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

struct Connection {
    services: Rc<[NativeService]>,
    frames: FrameReader,
    gate: Gate,
    greeted: bool,
    reads: OwedReads,
    /// What is left of a frame whose next message has to wait for room.
    waiting: Option<Bytes>,
    writer: Rc<RefCell<FrameWriter>>,
    caller: PortCaller,
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
        message: family::OrdinateMessage,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        self.reads.count(cx);
        let message = self.answered(message, cx.now());
        let mut writer = self.writer.borrow_mut();
        if let family::OrdinateMessage::Kv(message) = &message {
            writer.message(message);
        } else if let family::OrdinateMessage::Connection(ConnectionIn::Output(message)) = &message {
            // The gateways of other services write the message themselves.
            message.bytes.encode(writer.body());
        } else if let family::OrdinateMessage::Connection(ConnectionIn::Close(_)) = &message {
            return Err(UNREADABLE);
        } else {
            return Ok(());
        }
        let bytes = writer.bytes();
        cx.output().extend_from_slice(bytes);
        bytes.clear();
        bytes.shrink_to(WRITER_RETAINED_BYTES);
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

    fn on_close(&mut self, cx: &mut SessionCx<'_, Ordinate>) {
        if self.greeted {
            let calls = self.services.iter().filter_map(|(_, calls)| calls.as_ref());
            calls.for_each(|calls| calls.closed(cx));
        }
    }
}

impl Connection {
    fn greet(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Ordinate>) -> Result<bool, CloseReason> {
        let Some(preface) = input.first_chunk::<{ protocol::PREFACE_BYTES }>() else { return Ok(false) };
        let Some(version) = protocol::version_of(preface) else {
            return Err(CloseReason("not the native protocol"));
        };
        let token_bytes = protocol::token_bytes(preface);
        if token_bytes > protocol::TOKEN_BYTES_MAX {
            return Err(CloseReason("a token that is too long"));
        }
        if input.len() < protocol::PREFACE_BYTES + token_bytes {
            return Ok(false);
        }
        let _ = input.split_to(protocol::PREFACE_BYTES);
        let token = input.split_to(token_bytes);
        if let Some(why) = self.gate.refusal() {
            cx.output().extend_from_slice(&protocol::refusal(&why));
            cx.finish(SENT_ELSEWHERE);
            return Ok(false);
        }
        let spoken = if version == 0 { 0 } else { version.min(protocol::VERSION) };
        self.caller.show(cx.certificate());
        if !token.is_empty() {
            let token = std::str::from_utf8(&token).unwrap_or_default();
            if self.caller.log_in_by_token(token).is_err() {
                cx.output().extend_from_slice(&protocol::refusal(UNKNOWN_TOKEN));
                cx.finish(CloseReason("a token that nobody has"));
                return Ok(false);
            }
        }
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
            let message = Bytes::decode(&mut body).map_err(|_| CloseReason("message truncated"))?;
            if !self.take_message(&message, cx)? {
                // What is held beyond the burst must not hold on to all that was read with it.
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
        let tag = message.first().ok_or(UNREADABLE)?;
        let (service, calls) =
            self.services.iter().find(|(service, _)| service.receivers.contains(tag)).ok_or(UNREADABLE)?;
        let Some(calls) = calls.as_ref() else {
            cx.output().extend_from_slice(&protocol::refusal(service.off));
            return Err(CloseReason(service.off));
        };
        let mut refusals = Vec::new();
        let mut asker = Asker { caller: &mut self.caller, reads: &mut self.reads, refusals: &mut refusals };
        let taken = calls.take(message, &mut asker, cx)?;
        let mut writer = self.writer.borrow_mut();
        for refusal in refusals {
            refusal.encode(writer.body());
            cx.output().extend_from_slice(writer.bytes());
            writer.bytes().clear();
        }
        Ok(taken)
    }

    /// Notes what is answered; each service knows its own answers.
    fn answered(
        &mut self,
        message: family::OrdinateMessage,
        now: kernel::Instant,
    ) -> family::OrdinateMessage {
        let calls = self.services.iter().filter_map(|(_, calls)| calls.as_ref());
        calls.fold(message, |message, calls| calls.answered(message, &mut self.reads, now))
    }
}
