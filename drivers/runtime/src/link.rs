//! The way out to one other host: dialling, greeting, a bounded queue. What does not fit, or is queued when the
//! connection breaks, is dropped and counted: links are lossy by contract.

use crate::beacons::{BEACONS_SINCE, Shown, UNUSED_SINCE, ends};
use crate::data::Incarnation;
use crate::handshake::{GREETING_BYTES_MAX, Hello, Reply, framed, take_greeting};
use crate::marks::{MARKS, Mark, RunStart};
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::repeats::{Again, Numbered, REPEATS, REPEATS_SINCE, Repeat, Repeats, Way};
use crate::socket::{After, Readiness, Socket};
use crate::tls::PeerTls;
use bytes::BytesMut;
use kernel::{ClockReport, Encode, FrameWriter, HostId, Instant, NodeId, Rng};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Another host, as the cluster file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Its name: its identity.
    pub name: String,
    /// Where it listens, `host:port`; resolved anew at each dial.
    pub address: String,
}

const REDIAL_FIRST: Duration = Duration::from_millis(10);
const REDIAL_MAX: Duration = Duration::from_millis(500);
const DIAL_WITHIN: Duration = Duration::from_secs(2);
/// Unacknowledged for that long, a connection is given up and dialled anew.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(2);
/// A frame is closed at this length, so that its receiver can begin before the last byte is there.
const FRAME_BYTES: usize = 64 << 10;
/// What is retained of a queue's memory when it is empty.
const QUEUE_RETAINED_BYTES: usize = 256 << 10;

const NOTHING_MARKED: Mark = Mark { batches: 0, full: false, clock: None };

enum State {
    /// Waits for its time.
    Down {
        retry_at: Instant,
    },
    /// Another thread asks for the address.
    Resolving {
        since: Instant,
    },
    /// TCP, TLS and the greeting; `hello` is what has not yet been sent of it, `needs` the lowest version of the messages.
    Greeting {
        socket: Socket,
        since: Instant,
        hello: Vec<u8>,
        needs: u32,
        input: BytesMut,
    },
    Up {
        socket: Socket,
    },
}

/// The other end, as its greeting has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partner {
    /// The incarnation of its data directory.
    pub incarnation: Incarnation,
    /// The highest version of the messages that both ends understand.
    pub message_version: u32,
    /// What its journal had when its run began, if it says so; then it wants reports, too.
    pub run_start: Option<RunStart>,
}

/// A link, for status pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkStatus {
    /// The host it leads to.
    pub host: HostId,
    /// Its name and address.
    pub config: PeerConfig,
    /// The other end, while the link is up.
    pub partner: Option<Partner>,
    /// Why it went down last; none if it has been up since.
    pub complaint: Option<String>,
    /// How long ago the other host was heard last; none while it has no connection to this one.
    pub silent_for: Option<Duration>,
}

/// What a link wants its host to do.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Nothing,
    /// Look up the address and call `dial`.
    Resolve,
}

/// What a link needs from its host.
pub(crate) struct Outside<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) now: Instant,
    pub(crate) metrics: &'a mut Metrics,
    pub(crate) rng: &'a mut Rng,
}

/// Bounds and greeting shared by all links of a host.
#[derive(Clone)]
pub(crate) struct LinkSettings {
    pub(crate) hello: Hello,
    pub(crate) tls: Option<PeerTls>,
    pub(crate) queue_bytes_max: usize,
    pub(crate) queue_bytes_max_down: usize,
    pub(crate) frame_body_max: usize,
}

/// A message in the family's encoding.
struct Encoded<'a>(&'a [u8]);

impl Encode for Encoded<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

pub(crate) struct Link {
    pub(crate) host: HostId,
    pub(crate) config: PeerConfig,
    token: Token,
    state: State,
    writer: FrameWriter,
    sent: usize,
    /// The socket has room as far as we know.
    writable: bool,
    redial_after: Duration,
    /// Who welcomed us last.
    partner: Option<Partner>,
    /// Why it went down last; said once.
    complaint: Option<String>,
    /// The other end knows of more batches than this host has found.
    behind: Option<u64>,
    /// What was reported last to the other end over this connection.
    marked: Mark,
    /// What was said over this connection, and is said again.
    repeats: Repeats,
    beacons: Shown,
    pace: Pace,
}

impl Link {
    pub(crate) fn new(config: PeerConfig, token: Token, now: Instant) -> Self {
        Self {
            host: HostId::named(&config.name),
            config,
            token,
            state: State::Down { retry_at: now },
            writer: FrameWriter::default(),
            sent: 0,
            writable: true,
            redial_after: REDIAL_FIRST,
            complaint: None,
            partner: None,
            behind: None,
            marked: NOTHING_MARKED,
            repeats: Repeats::default(),
            beacons: Shown::default(),
            pace: Pace::default(),
        }
    }

    /// The host has another address: what its nodes were to see goes on.
    pub(crate) fn inherit(&mut self, before: &mut Self) {
        self.beacons = std::mem::take(&mut before.beacons);
        self.beacons.pause();
    }

    /// Who is at the other end, while the link is up.
    pub(crate) fn partner(&self) -> Option<Partner> {
        self.partner.filter(|_| self.is_up())
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    pub(crate) fn status(&self, silent_for: Option<Duration>) -> LinkStatus {
        LinkStatus {
            silent_for,
            host: self.host,
            config: self.config.clone(),
            partner: self.partner(),
            complaint: self.complaint.clone(),
        }
    }

    /// Bytes queued and not yet taken by the socket.
    pub(crate) fn queued_bytes(&mut self) -> usize {
        self.writer.bytes().len() - self.sent
    }

    /// How many batches the other end knows of, if this host has found fewer; reported once.
    pub(crate) fn take_behind(&mut self) -> Option<u64> {
        self.behind.take()
    }

    /// Says how many batches are durable, before what follows from that; true if the other end learns that the disk is full, or is
    /// not any more.
    pub(crate) fn mark(&mut self, me: HostId, mark: &Mark, settings: &LinkSettings) -> bool {
        let wanted = self.partner().is_some_and(|partner| partner.run_start.is_some());
        if !wanted || self.marked == *mark || self.queued_bytes() > settings.queue_bytes_max {
            return false;
        }
        let news = self.marked.full != mark.full;
        self.marked = mark.clone();
        self.writer.envelope(NodeId::new(me, MARKS), NodeId::new(self.host, MARKS), mark);
        news
    }

    /// Says how this host's clock stands, beside what was marked last.
    pub(crate) fn report(&mut self, me: HostId, clock: ClockReport, settings: &LinkSettings) {
        if self.is_up() && self.queued_bytes() <= settings.queue_bytes_max {
            let mark = Mark { clock: Some(clock), ..self.marked.clone() };
            self.writer.envelope(NodeId::new(me, MARKS), NodeId::new(self.host, MARKS), &mark);
        }
    }

    /// Queues a message; what is to be said again between the same two nodes leaves before.
    pub(crate) fn push(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: &impl Encode,
        settings: &LinkSettings,
        (now, metrics): (Instant, &mut Metrics),
    ) {
        if self.repeats.waits(from, to) {
            self.say_again(from.host(), settings, (now, metrics));
        }
        self.queue(from, to, message, settings, metrics);
    }

    /// Takes a message that is sent again and again: if it has not changed it leaves with others, soon.
    pub(crate) fn repeat(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: &impl Encode,
        settings: &LinkSettings,
        outside: (Instant, &mut Metrics),
    ) {
        let (now, metrics) = outside;
        if self.partner().is_none_or(|partner| partner.message_version < REPEATS_SINCE) {
            return self.push(from, to, message, settings, (now, metrics));
        }
        let bytes = message.encoded();
        match self.repeats.say(from, to, &bytes, now) {
            Way::Later => {}
            Way::Plain => self.push(from, to, message, settings, (now, metrics)),
            Way::Numbered(number) => {
                if self.repeats.waits(from, to) {
                    self.say_again(from.host(), settings, (now, metrics));
                }
                let message = Repeat::First(Numbered { number, from, to, message: bytes.into() });
                let (me, other) = (NodeId::new(from.host(), REPEATS), NodeId::new(self.host, REPEATS));
                if !self.queue(me, other, &message, settings, metrics) {
                    self.repeats.was_not_sent(from, to);
                }
            }
        }
    }

    /// Sets a beacon: the other end learns of it when something is to be said again, which is now.
    pub(crate) fn set_beacon(&mut self, from: NodeId, to: NodeId, message: &impl Encode, now: Instant) {
        self.beacons.set(from, to, message.encoded(), now);
    }

    /// Stops one.
    pub(crate) fn stop_beacon(&mut self, from: NodeId, to: NodeId, now: Instant) {
        self.beacons.stop(from, to, now);
    }

    /// From now on beacons are said so often; `at_once`: now, too.
    pub(crate) fn set_pace(&mut self, pace: Pace, at_once: bool, now: Instant) {
        self.pace = pace;
        if at_once {
            self.beacons.hasten(now);
        }
    }

    /// What the other end understands of it.
    fn pace_said(&self) -> Pace {
        let understands = self.partner().is_some_and(|partner| partner.message_version >= UNUSED_SINCE);
        if understands { self.pace } else { Pace::Used }
    }

    /// When something is to be said again.
    pub(crate) fn repeats_due(&self) -> Option<Instant> {
        self.repeats.due().into_iter().chain(self.beacons.due()).min()
    }

    /// Says what the other end does not know of beacons; true if that was something.
    fn report_beacons(
        &mut self,
        me: HostId,
        settings: &LinkSettings,
        (now, metrics): (Instant, &mut Metrics),
    ) -> bool {
        let mut beacons = std::mem::take(&mut self.beacons);
        let mut any = false;
        if self.partner().is_some_and(|partner| partner.message_version >= BEACONS_SINCE) {
            let (me, other) = ends(me, self.host);
            any = beacons.report(|repeat| self.queue(me, other, repeat, settings, metrics));
        }
        for (from, to, bytes) in beacons.unknown() {
            self.repeat(from, to, &Encoded(&bytes), settings, (now, metrics));
        }
        beacons.wait(now, self.pace);
        self.beacons = beacons;
        any
    }

    /// Says again what has not changed.
    pub(crate) fn say_again(
        &mut self,
        me: HostId,
        settings: &LinkSettings,
        outside: (Instant, &mut Metrics),
    ) {
        let (now, metrics) = outside;
        if !self.is_up() {
            self.beacons.pause();
        }
        let is_due = self.beacons.due().is_some_and(|due| due <= now);
        let has_reported = is_due && self.report_beacons(me, settings, (now, metrics));
        let numbers = self.repeats.take_again(now);
        let (me, other) = ends(me, self.host);
        // Whatever is said shows that this host is alive, but not for how long it may be trusted.
        let pace = self.pace_said();
        let is_shown = pace == Pace::Used && (has_reported || !numbers.is_empty());
        if !numbers.is_empty() {
            metrics.repeats_out += numbers.len() as u64;
            self.queue(me, other, &Repeat::Later(Again { numbers }), settings, metrics);
        }
        if is_due
            && !is_shown
            && let Some(steady) = self.beacons.steady(pace)
        {
            self.queue(me, other, &steady, settings, metrics);
        }
    }

    /// What was to be said again is not, for a fault that was asked for.
    pub(crate) fn forget_repeats(&mut self, now: Instant, metrics: &mut Metrics) {
        for _ in self.repeats.take_again(now) {
            metrics.drop_message("link severed on purpose");
        }
        self.beacons.wait(now, self.pace);
    }

    /// False if it is dropped.
    fn queue(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: &impl Encode,
        settings: &LinkSettings,
        metrics: &mut Metrics,
    ) -> bool {
        let bound = if self.is_up() { settings.queue_bytes_max } else { settings.queue_bytes_max_down };
        let before = self.writer.body().len();
        if before - self.sent > bound {
            metrics.drop_message(if self.is_up() { "queue to host full" } else { "host not connected" });
            return false;
        }
        self.writer.envelope(from, to, message);
        if self.writer.open_bytes() > settings.frame_body_max {
            if !self.retry_alone(before, from, to, message, settings.frame_body_max) {
                metrics.drop_message("message larger than a frame");
                return false;
            }
        } else if self.writer.open_bytes() > FRAME_BYTES {
            self.writer.close();
        }
        metrics.messages_out += 1;
        true
    }

    /// The open frame has become too large: closes it without this message, which gets a frame of its own.
    fn retry_alone(
        &mut self,
        before: usize,
        from: NodeId,
        to: NodeId,
        message: &impl Encode,
        frame_body_max: usize,
    ) -> bool {
        self.writer.body().truncate(before);
        self.writer.close();
        let empty = self.writer.body().len();
        self.writer.envelope(from, to, message);
        let fits = self.writer.open_bytes() <= frame_body_max;
        if !fits {
            self.writer.body().truncate(empty);
        }
        self.writer.close();
        fits
    }

    /// Sends what is queued, as far as the socket takes it.
    pub(crate) fn flush(&mut self, outside: &mut Outside<'_>) -> Option<String> {
        let State::Up { socket } = &mut self.state else { return None };
        let queue = self.writer.bytes();
        if !self.writable || (queue.len() == self.sent) {
            return None;
        }
        match socket.write(&queue[self.sent..]).and_then(|taken| Ok((taken, socket.flush()?))) {
            Ok((taken, flushed)) => {
                outside.metrics.bytes_out += taken as u64;
                self.sent += taken;
                self.writable = flushed && self.sent == queue.len();
                if self.sent == queue.len() {
                    queue.clear();
                    queue.shrink_to(QUEUE_RETAINED_BYTES);
                    self.sent = 0;
                } else if self.sent > queue.len() / 2 && self.sent > QUEUE_RETAINED_BYTES {
                    queue.drain(..self.sent);
                    self.sent = 0;
                }
                None
            }
            Err(error) => self.break_off(error.to_string(), outside),
        }
    }

    /// When `on_time` is wanted.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at } => Some(*retry_at),
            State::Resolving { since } | State::Greeting { since, .. } => Some(*since + DIAL_WITHIN),
            State::Up { .. } => None,
        }
    }

    /// Time has passed. The text is a new complaint.
    pub(crate) fn on_time(&mut self, outside: &mut Outside<'_>) -> (Wish, Option<String>) {
        match &self.state {
            State::Down { retry_at } if *retry_at <= outside.now => {
                self.state = State::Resolving { since: outside.now };
                (Wish::Resolve, None)
            }
            State::Resolving { since } | State::Greeting { since, .. }
                if *since + DIAL_WITHIN <= outside.now =>
            {
                let reason = format!("no greeting from {} within {DIAL_WITHIN:?}", self.config.address);
                (Wish::Nothing, self.break_off(reason, outside))
            }
            State::Down { .. } | State::Resolving { .. } | State::Greeting { .. } | State::Up { .. } => {
                (Wish::Nothing, None)
            }
        }
    }

    /// The address is known (or not).
    pub(crate) fn dial(
        &mut self,
        address: Result<SocketAddr, String>,
        settings: &LinkSettings,
        outside: &mut Outside<'_>,
    ) -> Option<String> {
        let State::Resolving { since } = self.state else { return None };
        match address.and_then(|address| self.connect(address, settings, outside)) {
            Ok(socket) => {
                let hello = Hello { to: self.config.name.clone(), ..settings.hello.clone() };
                let (needs, hello) = (hello.message_version_min, framed(&hello));
                self.state = State::Greeting { socket, since, hello, needs, input: BytesMut::new() };
                None
            }
            Err(reason) => self.break_off(reason, outside),
        }
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        settings: &LinkSettings,
        outside: &mut Outside<'_>,
    ) -> Result<Socket, String> {
        let text = |error: io::Error| format!("{address}: {error}");
        let tls = settings.tls.as_ref().map(|tls| tls.connect(&self.config.name)).transpose()?;
        let mut stream = TcpStream::connect(address).map_err(text)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        outside.registry.register(&mut stream, self.token, interest).map_err(text)?;
        Ok(Socket::new(stream, tls))
    }

    /// The socket is ready for something. The text is a new complaint; a link that came up is `is_up` afterwards.
    pub(crate) fn on_ready(&mut self, ready: Readiness, outside: &mut Outside<'_>) -> Option<String> {
        self.writable |= ready.writable;
        if let State::Greeting { socket, .. } | State::Up { socket } = &mut self.state {
            socket.note(ready);
        }
        match &mut self.state {
            State::Down { .. } | State::Resolving { .. } => None,
            State::Greeting { .. } => match self.greet(outside) {
                Ok(()) => None,
                Err(reason) => self.break_off(reason, outside),
            },
            State::Up { socket } if ready.readable => {
                // Nothing but the end is expected on this side.
                let mut nothing = BytesMut::new();
                match socket.read(&mut nothing) {
                    Ok((0, After::Drained | After::More)) => None,
                    Ok((0, After::Closed)) => self.break_off("closed by the other side".to_owned(), outside),
                    Ok(_) => self.break_off("the other side spoke out of turn".to_owned(), outside),
                    Err(error) => self.break_off(error.to_string(), outside),
                }
            }
            State::Up { .. } => None,
        }
    }

    fn greet(&mut self, outside: &mut Outside<'_>) -> Result<(), String> {
        let State::Greeting { socket, hello, needs, input, .. } = &mut self.state else { return Ok(()) };
        let text = |error: io::Error| error.to_string();
        if !socket.check_connected().map_err(text)? {
            return Ok(());
        }
        if !hello.is_empty() {
            socket.tune(Some(SILENCE_MAX)).map_err(text)?;
            let taken = socket.write(hello).map_err(text)?;
            hello.drain(..taken);
        }
        let mut after = After::More;
        while after == After::More && input.len() <= GREETING_BYTES_MAX {
            (_, after) = socket.read(input).map_err(text)?;
        }
        socket.flush().map_err(text)?;
        match take_greeting(input)? {
            Some(Reply::Refused { reason }) => Err(format!("refused: {reason}")),
            Some(Reply::Behind { reported }) => {
                self.behind = Some(reported);
                Err(format!("refused: this host's journal had {reported} batches"))
            }
            // One that knows of our bound has refused us; an older one leaves it to us.
            Some(Reply::Welcome { message_version, .. }) if message_version < *needs => Err(format!(
                "host {0} understands messages up to version {message_version}, this host needs {needs} at least: \
                 upgrade {0}",
                self.config.name
            )),
            Some(Reply::Welcome { incarnation, message_version, run_start }) => {
                self.partner = Some(Partner { incarnation, message_version, run_start });
                (self.marked, self.repeats) = (NOTHING_MARKED, Repeats::default());
                self.beacons.begin(outside.now);
                let before = std::mem::replace(&mut self.state, State::Down { retry_at: outside.now });
                if let State::Greeting { socket, .. } = before {
                    self.state = State::Up { socket };
                }
                self.redial_after = REDIAL_FIRST;
                self.writable = true;
                self.complaint = None;
                Ok(())
            }
            None if after == After::Closed => Err("closed during the greeting".to_owned()),
            None => Ok(()),
        }
    }

    /// Gives the connection up and forgets the queue. Returns the reason unless it was said already.
    pub(crate) fn break_off(&mut self, reason: String, outside: &mut Outside<'_>) -> Option<String> {
        let retry_at = outside.now + outside.rng.duration(self.redial_after / 2, self.redial_after);
        let was_up = self.is_up();
        match std::mem::replace(&mut self.state, State::Down { retry_at }) {
            State::Greeting { mut socket, .. } | State::Up { mut socket } => {
                // The socket is closed next, which deregisters it as well.
                let _ = outside.registry.deregister(socket.stream());
            }
            State::Down { .. } | State::Resolving { .. } => {}
        }
        self.redial_after = (self.redial_after * 2).min(REDIAL_MAX);
        if was_up {
            // A frame that was broken in the middle cannot go on over another connection.
            if self.queued_bytes() > 0 {
                outside.metrics.drop_message("queued when the link broke");
            }
            self.writer.bytes().clear();
            self.sent = 0;
            self.repeats = Repeats::default();
            self.beacons.pause();
        }
        let new = self.complaint.as_ref() != Some(&reason);
        self.complaint = Some(reason.clone());
        new.then_some(reason)
    }
}
