//! The native protocol's front end: prefaces and frames in, messages for the batcher of this host out.

use bytes::BytesMut;
use kernel::{Bytes, Decode, FrameReader, FrameWriter, NodeId, Reader};
use ordinate_client::protocol;
use paxos::multipaxos::batcher::BatcherIn;
use paxos::{Message, Paxos};
use runtime::{CloseReason, FrontEnd, Session, SessionCx};
use std::net::SocketAddr;

/// Serves the native protocol on one port.
pub struct Native {
    /// The batcher of this host.
    pub batcher: NodeId,
    /// The largest frame of a client.
    pub body_max: usize,
}

impl FrontEnd<Paxos> for Native {
    fn open(&mut self, _client: NodeId, _address: SocketAddr) -> Box<dyn Session<Paxos>> {
        Box::new(Connection {
            batcher: self.batcher,
            frames: FrameReader { body_max: self.body_max },
            greeted: false,
            writer: FrameWriter::default(),
        })
    }
}

struct Connection {
    batcher: NodeId,
    frames: FrameReader,
    greeted: bool,
    writer: FrameWriter,
}

impl Session<Paxos> for Connection {
    fn on_input(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Paxos>) -> Result<(), CloseReason> {
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
        message: Message,
        cx: &mut SessionCx<'_, Paxos>,
    ) -> Result<(), CloseReason> {
        self.writer.message(&message);
        let bytes = self.writer.bytes();
        cx.output().extend_from_slice(bytes);
        bytes.clear();
        Ok(())
    }
}

impl Connection {
    fn greet(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, Paxos>) -> Result<bool, CloseReason> {
        let Some(preface) = input.first_chunk::<{ protocol::PREFACE_BYTES }>() else { return Ok(false) };
        let Some(version) = protocol::version_of(preface) else {
            return Err(CloseReason("not the native protocol"));
        };
        let _ = input.split_to(protocol::PREFACE_BYTES);
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
    fn take(&mut self, body: Bytes, cx: &mut SessionCx<'_, Paxos>) -> Result<(), CloseReason> {
        let mut body = Reader::new(body);
        while body.remaining() > 0 {
            let message = Bytes::decode(&mut body).map_err(|_| CloseReason("message cut short"))?;
            let message = match Message::decoded(&message) {
                Ok(Message::Batcher(message)) => message,
                Ok(_) => return Err(CloseReason("message that clients may not send")),
                Err(_) => return Err(CloseReason("message that does not decode")),
            };
            match message {
                BatcherIn::Submit(message) => cx.send(self.batcher, message),
                BatcherIn::Query(message) => cx.send(self.batcher, message),
                BatcherIn::Reconfigure(message) => cx.send(self.batcher, message),
                BatcherIn::PreReadAck(_)
                | BatcherIn::Superseded(_)
                | BatcherIn::Heartbeat(_)
                | BatcherIn::Done(_) => return Err(CloseReason("message that clients may not send")),
            }
        }
        Ok(())
    }
}
