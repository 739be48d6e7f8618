//! What a socket did not take: in pieces that are given back one by one as they are sent, so that what is held is what is
//! counted. One growing buffer held up to four times what it was owed.

use crate::socket::Socket;
use std::collections::VecDeque;
use std::io;

/// Memory of a piece, in bytes.
pub(super) const PIECE_BYTES: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Backlog {
    /// All but the last are full.
    pieces: VecDeque<Vec<u8>>,
    /// Of the first piece.
    sent: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Memory held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.pieces.len() * PIECE_BYTES
    }

    /// Bytes not yet sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        let last = self.pieces.back().map_or(0, Vec::len);
        (self.pieces.len().saturating_sub(1)) * PIECE_BYTES + last - self.sent
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.pieces.back_mut().filter(|piece| piece.len() < PIECE_BYTES) {
                Some(piece) => {
                    let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - piece.len()));
                    piece.extend_from_slice(now);
                    bytes = later;
                }
                None => self.pieces.push_back(Vec::with_capacity(PIECE_BYTES)),
            }
        }
    }

    /// Sends what the socket takes, and says how much that was.
    pub(super) fn write_to(&mut self, socket: &mut Socket) -> io::Result<usize> {
        let mut taken = 0;
        while let Some(piece) = self.pieces.front() {
            let now = socket.write(&piece[self.sent..])?;
            taken += now;
            self.sent += now;
            if self.sent < piece.len() {
                break;
            }
            self.pieces.pop_front();
            self.sent = 0;
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    // A byte lost or doubled between two pieces breaks the client's stream; memory that is not counted is not bounded.
    #[test]
    fn pieces_are_counted_and_come_out_in_order() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let stream = std::net::TcpStream::connect(address).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        let mut socket = Socket::new(mio::net::TcpStream::from_std(stream), None);
        let (mut reader, _) = listener.accept().expect("somebody connects");
        let sent: Vec<u8> =
            (0..9_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut backlog = Backlog::default();
        for part in sent.chunks(70_001) {
            backlog.push(part);
            assert!(backlog.held_bytes() >= backlog.unsent_bytes());
            assert!(backlog.held_bytes() < backlog.unsent_bytes() + 2 * PIECE_BYTES);
        }
        assert_eq!(backlog.unsent_bytes(), sent.len());
        let (mut received, mut chunk) = (Vec::new(), vec![0; 1 << 20]);
        while received.len() < sent.len() {
            let before = backlog.unsent_bytes();
            let taken = backlog.write_to(&mut socket).expect("the reader is there");
            assert_eq!(backlog.unsent_bytes(), before - taken);
            let got = reader.read(&mut chunk).expect("bytes come");
            received.extend_from_slice(&chunk[..got]);
        }
        assert!(received == sent, "what was received is not what was sent");
        assert!(backlog.is_empty() && backlog.held_bytes() == 0);
    }
}
