//! ZooKeeper's port: bytes in, bytes out; the gateway role of this host does the rest.

use crate::family::{Message, Ordinate};
use crate::native::Gate;
use crate::subject;
use bytes::BytesMut;
use kernel::NodeId;
use mason::client::{Connected, ConnectionIn, Disconnected, Input, Taken};
use runtime::{CloseReason, FrontEnd, Session, SessionCx};
use std::net::SocketAddr;

/// Serves ZooKeeper's protocol on one port.
pub struct ZooKeeper {
    /// The gateway of this host.
    pub gateway: NodeId,
    /// Whether clients are served here at all.
    pub gate: Gate,
}

impl FrontEnd<Ordinate> for ZooKeeper {
    fn open(&mut self, _client: NodeId, address: SocketAddr) -> Box<dyn Session<Ordinate>> {
        Box::new(Connection { gateway: self.gateway, gate: self.gate.clone(), address, announced: false })
    }
}

struct Connection {
    gateway: NodeId,
    gate: Gate,
    address: SocketAddr,
    announced: bool,
}

impl Connection {
    fn tell(&self, message: impl Into<mason::Message>, cx: &mut SessionCx<'_, Ordinate>) {
        cx.send(self.gateway, message.into());
    }
}

impl Session<Ordinate> for Connection {
    fn on_input(
        &mut self,
        input: &mut BytesMut,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        // Also of those who came while this host was a member: they ping, and are to look for another one.
        if self.gate.is_closed() {
            return Err(CloseReason("this host is no member of the cluster"));
        }
        if !self.announced {
            self.announced = true;
            let certificate = cx.certificate().and_then(subject::of);
            self.tell(
                Connected {
                    address: self.address.ip().to_string(),
                    certificate,
                    port: Some(self.address.port()),
                },
                cx,
            );
        }
        self.tell(Input { bytes: input.split().freeze() }, cx);
        Ok(())
    }

    fn on_message(
        &mut self,
        _from: NodeId,
        message: Message,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        let Message::Mason(mason::Message::Connection(message)) = message else { return Ok(()) };
        match message {
            ConnectionIn::Output(message) => {
                cx.established();
                cx.output().extend_from_slice(&message.bytes);
            }
            ConnectionIn::Pause(message) => cx.pause_input(message.paused),
            ConnectionIn::Close(_) => cx.finish(CloseReason("closed by the coordination service")),
        }
        Ok(())
    }

    fn on_taken(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        self.tell(Taken { bytes: cx.taken_bytes() }, cx);
        Ok(())
    }

    fn on_close(&mut self, cx: &mut SessionCx<'_, Ordinate>) {
        if self.announced {
            self.tell(Disconnected {}, cx);
        }
    }
}
