//! ZooKeeper's port: bytes in, bytes out; the gateway role of this host does the rest.

use super::guard::{Guard, Piece};
use super::subject;
use super::timing::Timing;
use crate::access::{Access, PortCaller};
use crate::family::{Ordinate, OrdinateMessage};
use crate::gate::Gate;
use crate::latency::Latencies;
use bytes::BytesMut;
use kernel::NodeId;
use kernel::client::{Connected, ConnectionIn, Disconnected, Event, Input, Taken};
use runtime::{CloseReason, FrontEnd, Session, SessionCx};
use std::net::SocketAddr;

/// Serves ZooKeeper's protocol on one port.
pub struct ZooKeeper {
    /// The gateway of this host.
    pub gateway: NodeId,
    /// Whether clients are served here at all.
    pub gate: Gate,
    /// The largest request.
    pub request_bytes_max: usize,
    /// How long requests take.
    pub latencies: Latencies,
    /// Who may do what.
    pub access: Access,
}

/// How many of the bytes are whole requests, or such that the gateway has to say something of them.
fn whole(input: &[u8], request_bytes_max: usize) -> usize {
    let mut at = 0;
    while let Some(length) = input[at..].first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        // Too long for a request: a four-letter word, or a mistake.
        if length > request_bytes_max {
            return input.len();
        }
        if input.len() - at < 4 + length {
            break;
        }
        at += 4 + length;
    }
    at
}

impl FrontEnd<Ordinate> for ZooKeeper {
    fn open(&mut self, _client: NodeId, address: SocketAddr) -> Box<dyn Session<Ordinate>> {
        Box::new(Connection {
            gateway: self.gateway,
            gate: self.gate.clone(),
            address,
            announced: false,
            timing: Timing::new(self.latencies.clone()),
            request_bytes_max: self.request_bytes_max,
            guard: Guard::new(PortCaller::at(&self.access, "zookeeper", address.ip())),
        })
    }
}

struct Connection {
    gateway: NodeId,
    gate: Gate,
    address: SocketAddr,
    announced: bool,
    timing: Timing,
    request_bytes_max: usize,
    guard: Guard,
}

impl Connection {
    fn notify(&self, message: impl Into<Event>, cx: &mut SessionCx<'_, Ordinate>) {
        cx.send(self.gateway, OrdinateMessage::User(message.into()));
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
            self.guard.show(cx.certificate());
            let certificate = cx.certificate().and_then(subject::of);
            self.notify(
                Connected {
                    address: self.address.ip().to_string(),
                    certificate,
                    port: Some(self.address.port()),
                },
                cx,
            );
        }
        let bytes = input.split_to(whole(input, self.request_bytes_max));
        if bytes.is_empty() {
            return Ok(());
        }
        self.timing.asked(&bytes, cx.now());
        if !self.guard.is_on() {
            self.notify(Input { bytes: bytes.freeze() }, cx);
            return Ok(());
        }
        let passed = self.guard.pass(&bytes);
        for piece in passed.pieces {
            match piece {
                Piece::Frames(frames) if frames.is_empty() => {}
                Piece::Frames(frames) => self.notify(Input { bytes: frames.into() }, cx),
                Piece::Login(proven) => self.notify(proven, cx),
            }
        }
        if passed.is_malformed {
            return Err(CloseReason("a frame of an impossible length"));
        }
        if let Some(said) = passed.refused_word {
            cx.output().extend_from_slice(said.as_bytes());
            cx.finish(CloseReason("a word that was not granted"));
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        _from: NodeId,
        message: OrdinateMessage,
        cx: &mut SessionCx<'_, Ordinate>,
    ) -> Result<(), CloseReason> {
        let OrdinateMessage::Connection(message) = message else { return Ok(()) };
        match message {
            ConnectionIn::Output(message) => {
                cx.established();
                self.timing.answered(&message.bytes, cx.now());
                cx.output().extend_from_slice(&message.bytes);
            }
            ConnectionIn::Pause(message) => cx.pause_input(message.paused),
            ConnectionIn::Close(_) => cx.finish(CloseReason("closed by the coordination service")),
        }
        Ok(())
    }

    fn on_taken(&mut self, cx: &mut SessionCx<'_, Ordinate>) -> Result<(), CloseReason> {
        self.notify(Taken { bytes: cx.taken_bytes() }, cx);
        Ok(())
    }

    fn on_close(&mut self, cx: &mut SessionCx<'_, Ordinate>) {
        if self.announced {
            self.notify(Disconnected {}, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::whole;

    // Half a request that is handed on is memory that nobody counts; a word that is held back is never answered.
    #[test]
    fn only_whole_requests_go_on() {
        let request = |length: u32, sent: usize| [&length.to_be_bytes()[..], &vec![7; sent]].concat();
        assert_eq!(whole(&[], 100), 0);
        assert_eq!(whole(&[0, 0], 100), 0);
        assert_eq!(whole(&request(10, 9), 100), 0);
        assert_eq!(whole(&request(10, 10), 100), 14);
        let two = [request(10, 10), request(100, 100), request(20, 5)].concat();
        assert_eq!(whole(&two, 100), 14 + 104);
        assert_eq!(whole(b"ruok", 1 << 20), 4);
        assert_eq!(whole(&request(101, 3), 100), 7);
        assert_eq!(whole(&request(u32::MAX, 3), 100), 7);
    }
}
