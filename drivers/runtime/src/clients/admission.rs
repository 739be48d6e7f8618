//! Taking connections in, within the limits of their protocol.

use super::backlog::Backlog;
use super::output::Tally;
use super::{CLIENT_SLOTS, Client, ClientIndex, Clients, Outside};
use crate::front_end::{CloseReason, SessionFlags};
use crate::shortage::Shortage;
use crate::socket::Socket;
use crate::tls::ServerTls;
use bytes::BytesMut;
use kernel::{Family, HostSlot, NodeId};
use mio::net::TcpStream;
use mio::{Interest, Token};
use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

/// Of each port. A flood of connections takes some of every round from those who are there: with 64 they waited ten times as long.
const ACCEPTS_PER_ROUND: usize = 16;
/// Out of file descriptors, accepting rests for this long.
const ACCEPT_REST: Duration = Duration::from_millis(100);

impl<F: Family> Clients<F> {
    /// Takes new connections, at most so many a round.
    pub(crate) fn accept(&mut self, outside: &mut Outside<'_>) {
        for port in 0..self.ports.len() {
            for _ in 0..ACCEPTS_PER_ROUND {
                if !self.ports[port].acceptable || self.ports[port].rest_until.is_some() {
                    break;
                }
                match self.ports[port].listener.accept() {
                    Ok((stream, address)) => self.admit(port, stream, address, outside),
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => self.ports[port].acceptable = false,
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                        _ => {
                            // It stays with the system, and is taken when there is something again.
                            let reason = match Shortage::of(&error) {
                                Some(Shortage::Files) => "this process has no file descriptor left",
                                Some(Shortage::FilesOfSystem) => "the system has no file descriptor left",
                                Some(Shortage::Memory | Shortage::Space) => "the system has no memory left",
                                None => "the system refused a connection",
                            };
                            *outside.metrics.closes.entry(reason).or_insert(0) += 1;
                            self.ports[port].rest_until = Some(outside.now + ACCEPT_REST);
                        }
                    },
                }
            }
        }
    }

    fn admit(&mut self, port: usize, stream: TcpStream, address: SocketAddr, outside: &mut Outside<'_>) {
        let front_end = self.ports[port].front_end;
        let service = &self.services[front_end];
        let limits = &service.limits;
        let here = service.per_address.get(&address.ip()).copied().unwrap_or(0);
        if service.connections >= limits.connections_max {
            return self.turn_away(port, stream, address, CloseReason::TOO_MANY, outside);
        }
        if here >= limits.connections_per_address_max {
            return self.turn_away(port, stream, address, CloseReason::TOO_MANY_FROM_ONE_ADDRESS, outside);
        }
        let Some(descriptor) = self.descriptors.take() else {
            return self.turn_away(port, stream, address, CloseReason::NO_DESCRIPTORS, outside);
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(None);
            ClientIndex(self.table.len() - 1)
        });
        let tls = self.ports[port].tls.as_ref().map(ServerTls::accept).transpose();
        let Ok(socket) = self.open_socket(index, stream, tls, outside) else {
            self.free.push(index);
            return self.note_close(address, CloseReason("the system refused the socket"), outside);
        };
        let host_slot = self.fresh_slot();
        let id = NodeId::new(self.me, HostSlot(host_slot));
        self.by_slot.insert(host_slot, index);
        let service = &mut self.services[front_end];
        service.connections += 1;
        *service.per_address.entry(address.ip()).or_insert(0) += 1;
        service.greeting.push_back((outside.now + service.limits.handshake_within, index, id));
        let session = service.front_end.open(id, address);
        self.table[index.0] = Some(Client {
            id,
            front_end,
            address,
            socket,
            _descriptor: descriptor,
            session,
            input: BytesMut::new(),
            input_since: outside.now,
            resumed: false,
            output: Vec::new(),
            backlog: Backlog::default(),
            counted_bytes: 0,
            tally: Tally::default(),
            flags: SessionFlags::default(),
            writable: true,
            readable: true,
            listed: true,
            dirty: false,
        });
        // Bytes that came with the connection are announced only once.
        self.readable.push_back(index);
    }

    fn turn_away(
        &mut self,
        port: usize,
        mut stream: TcpStream,
        address: SocketAddr,
        reason: CloseReason,
        outside: &mut Outside<'_>,
    ) {
        if self.ports[port].tls.is_none() {
            let front_end = self.ports[port].front_end;
            let farewell = self.services[front_end].front_end.refusal(reason);
            // A client that is gone need not be notified.
            let _ = stream.write(&farewell).and_then(|_| stream.shutdown(Shutdown::Write));
        }
        self.note_close(address, reason, outside);
    }

    fn open_socket(
        &self,
        index: ClientIndex,
        mut stream: TcpStream,
        tls: Result<Option<rustls::Connection>, String>,
        outside: &Outside<'_>,
    ) -> io::Result<Socket> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        outside.registry.register(&mut stream, Token(self.token_base + index.0), interest)?;
        let socket = Socket::new(stream, tls.map_err(io::Error::other)?);
        socket.tune(None)?;
        Ok(socket)
    }

    fn fresh_slot(&mut self) -> u32 {
        loop {
            let host_slot = self.next_slot;
            self.next_slot = self.next_slot.wrapping_add(1) | CLIENT_SLOTS;
            if !self.by_slot.contains_key(&host_slot) {
                return host_slot;
            }
        }
    }
}
