//! A stream socket that never blocks, in the clear or under TLS.

use bytes::BytesMut;
use mio::net::TcpStream;
use rustls::pki_types::CertificateDer;
use std::io::{self, BufRead, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Asked of the system at once: large enough for hundreds of messages, small enough to come from the allocator's heap
/// and not from freshly zeroed pages.
pub(crate) const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 4 << 10;
/// Options of TCP that the library does not name yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;
/// Between hosts, a lost packet is sent again so soon at the earliest: later than the other end may delay an acknowledgement.
const RETRANSMIT_AFTER_MIN: Duration = Duration::from_millis(20);
/// And so late at the latest: the least that the system allows.
const RETRANSMIT_AFTER_MAX: Duration = Duration::from_secs(1);
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(8);
/// Connections that wait to be accepted; the system has a bound of its own, usually this one.
const BACKLOG: i32 = 4096;

/// What a read left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// Nothing: the next readiness event says when to read again.
    Drained,
    /// Perhaps more.
    More,
    /// The other side sends no more.
    Closed,
}

/// What an event says of a socket. Events come once: what is not remembered is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side has closed; bytes may be left to read.
    pub(crate) closed: bool,
}

impl Readiness {
    pub(crate) fn of(event: &mio::event::Event) -> Self {
        let closed = event.is_read_closed() || event.is_error();
        Self {
            readable: event.is_readable() || closed,
            writable: event.is_writable() || event.is_error(),
            closed,
        }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            readable: self.readable | other.readable,
            writable: self.writable | other.writable,
            closed: self.closed | other.closed,
        }
    }
}

pub(crate) struct Socket {
    stream: TcpStream,
    /// The end has been announced: a short read is then not the last.
    closed: bool,
    tls: Option<Box<rustls::Connection>>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, tls: Option<rustls::Connection>) -> Self {
        Self { stream, closed: false, tls: tls.map(Box::new) }
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Messages are small and wait for nobody; a peer that vanished is noticed within `silence`, so that a healed network
    /// is used at once and not after TCP's own long pauses.
    pub(crate) fn tune(&self, silence: Option<Duration>) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        if let Some(silence) = silence {
            set_option(&self.stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, silence.as_millis() as i32)?;
            set_option(&self.stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
            set_option(&self.stream, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 2)?;
            set_option(&self.stream, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1)?;
            self.hasten_retransmission()?;
        }
        Ok(())
    }

    /// Shortens TCP's timers where the system can (Linux 6.15 and later): a packet that is lost at the end of what was sent waits
    /// for 200 ms, and twice as long each time. Systems that cannot are left as they are.
    fn hasten_retransmission(&self) -> io::Result<()> {
        let options = [
            (TCP_RTO_MIN_US, RETRANSMIT_AFTER_MIN.as_micros() as i32),
            (TCP_DELACK_MAX_US, ACKNOWLEDGE_WITHIN.as_micros() as i32),
            (TCP_RTO_MAX_MS, RETRANSMIT_AFTER_MAX.as_millis() as i32),
            (libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
        ];
        for (option, value) in options {
            match set_option(&self.stream, libc::IPPROTO_TCP, option, value) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EINVAL)) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// What the other side has shown, in DER, its own certificate first.
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().and_then(|tls| tls.peer_certificates()).unwrap_or_default()
    }

    /// The other side's own certificate, in DER, if it has shown one.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.peer_certificates().first().map(AsRef::as_ref)
    }

    /// Remembers that the other side has closed.
    pub(crate) fn note(&mut self, ready: Readiness) {
        self.closed |= ready.closed;
    }

    /// Appends what has arrived, at most about `READ_BYTES`, and says how many bytes that were.
    pub(crate) fn read(&mut self, into: &mut BytesMut) -> io::Result<(usize, After)> {
        if into.capacity() - into.len() < READ_BYTES_MIN {
            into.reserve(READ_BYTES);
        }
        let (bytes, after) = match &mut self.tls {
            None => receive(&self.stream, into),
            Some(tls) => read_tls(&mut self.stream, tls, into),
        }?;
        match after {
            // No other event will announce the end.
            After::Drained if self.closed && bytes > 0 => Ok((bytes, After::More)),
            After::Drained | After::More | After::Closed => Ok((bytes, after)),
        }
    }

    /// Takes as many of `bytes` as can be sent without waiting.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return write_some(&mut self.stream, bytes) };
        let mut taken = 0;
        loop {
            let before = taken;
            taken += tls.writer().write(&bytes[taken..])?;
            let flushed = flush_tls(&mut self.stream, tls)?;
            if !flushed || taken == bytes.len() || taken == before {
                return Ok(taken);
            }
        }
    }

    /// Sends what TLS holds back; true if nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => flush_tls(&mut self.stream, tls),
        }
    }

    /// Says goodbye under TLS, so that the other side distinguishes an end from a broken connection.
    pub(crate) fn close_notify(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // The connection is given up either way.
            let _ = flush_tls(&mut self.stream, tls);
        }
    }

    /// The error of a connection attempt that has ended, if it failed.
    pub(crate) fn check_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Makes a listening socket the reactor's: it never blocks, and holds back more connections than the 128 of the standard
/// library, which a flood overruns; each of the rest would wait a second for its next attempt.
pub(crate) fn listening(listener: std::net::TcpListener) -> io::Result<mio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    // SAFETY: the descriptor is open and is a listening socket; to listen again only changes its backlog.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(mio::net::TcpListener::from_std(listener))
}

fn receive(stream: &TcpStream, into: &mut BytesMut) -> io::Result<(usize, After)> {
    loop {
        let spare = into.spare_capacity_mut();
        let room = spare.len();
        // SAFETY: the kernel writes at most `room` bytes into memory that `spare` borrows exclusively; it need not be
        // initialised, because recv only writes.
        let got = unsafe { libc::recv(stream.as_raw_fd(), spare.as_mut_ptr().cast(), room, 0) };
        if let Ok(got) = usize::try_from(got) {
            // SAFETY: recv has initialised the first `got` bytes of the spare capacity.
            unsafe { into.set_len(into.len() + got) };
            let after = match got {
                0 => After::Closed,
                _ if got < room => After::Drained,
                _ => After::More,
            };
            return Ok((got, after));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok((0, After::Drained)),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

fn read_tls(
    stream: &mut TcpStream,
    tls: &mut rustls::Connection,
    into: &mut BytesMut,
) -> io::Result<(usize, After)> {
    let before = into.len();
    loop {
        let read = match tls.read_tls(stream) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok((into.len() - before, After::Drained));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let outcome = tls.process_new_packets();
        if outcome.is_err() {
            // The alert says why to the other side; the connection ends with this error.
            let _ = tls.write_tls(stream);
        }
        outcome.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if tls.wants_write() {
            flush_tls(stream, tls)?;
        }
        let closed = drain_plaintext(tls, into)?;
        if closed || read == 0 {
            return Ok((into.len() - before, After::Closed));
        }
        if into.len() - before >= READ_BYTES {
            return Ok((into.len() - before, After::More));
        }
    }
}

/// Moves what is decrypted into `into`; true if the other side said goodbye.
fn drain_plaintext(tls: &mut rustls::Connection, into: &mut BytesMut) -> io::Result<bool> {
    let mut reader = tls.reader();
    loop {
        match reader.fill_buf() {
            Ok([]) => return Ok(true),
            Ok(plain) => {
                let bytes = plain.len();
                into.extend_from_slice(plain);
                reader.consume(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

fn flush_tls(stream: &mut TcpStream, tls: &mut rustls::Connection) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(stream) {
            Ok(_) => {}
            Err(error) if is_not_yet(&error) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match stream.write(&bytes[written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            // A short write means that the socket's buffer is full: asking again would have the same answer.
            Ok(more) => {
                written += more;
                if written < bytes.len() {
                    break;
                }
            }
            Err(error) if is_not_yet(&error) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// True while a socket is full, or still connecting.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected)
}

fn set_option(stream: &TcpStream, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe the `i32` that all options used here take.
    let outcome = unsafe {
        let pointer = (&raw const value).cast();
        libc::setsockopt(stream.as_raw_fd(), level, option, pointer, size_of::<i32>() as u32)
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
