//! The way in from other hosts: accepting, checking the greeting, taking messages off frames.

use crate::data::Incarnation;
use crate::event::HostEvent;
use crate::handshake::{Hello, PROTOCOL, Reply, framed, take_greeting};
use crate::link::SILENCE_MAX;
use crate::marks::{MARKS, Mark, Marks};
use crate::metrics::Metrics;
use crate::pace::Uses;
use crate::repeats::{Heard, Lit, Out, REPEATS, Repeat};
use crate::shortage::Shortage;
use crate::socket::{After, Readiness, Socket, listening};
use crate::tls::PeerTls;
use bytes::BytesMut;
use kernel::{Bytes, Decode, Envelope, FrameReader, HostId, Instant, NodeId, Reader};
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// Which incarnations of a known host are let in.
pub enum Admission {
    /// Any: right where hosts keep nothing on disk.
    Any,
    /// The first that is seen, until this host restarts: a host that lost its disk stays out.
    FirstSeen,
    /// Somebody who knows the membership decides, by the host's name; `Err` gives the reason.
    Ask(AskAdmission),
}

/// See `Admission::Ask`. Called on the reactor's thread.
pub type AskAdmission = Box<dyn FnMut(&str, Incarnation) -> Result<(), String> + Send>;

const GREET_WITHIN: Duration = Duration::from_secs(2);
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Connections that have not yet said who they are.
const STRANGERS_MAX: usize = 64;
/// Hosts whose incarnation is remembered.
const FIRST_SEEN_MAX: usize = 4_096;

struct Inbound {
    /// No other connection of this run has it.
    number: u64,
    address: SocketAddr,
    socket: Socket,
    input: BytesMut,
    /// Who it is, once that is known.
    host: Option<HostId>,
    /// It was no peer when it called.
    joining: bool,
    deadline: Instant,
    /// When something was read from it last.
    heard_at: Instant,
    /// What it says again and again.
    heard: Heard,
    listed: bool,
}

pub(crate) struct Inbounds {
    listener: Option<TcpListener>,
    /// When it is looked again for those who call, because there was no descriptor for them.
    accept_at: Option<Instant>,
    tls: Option<PeerTls>,
    /// What we would say ourselves.
    me: Hello,
    admission: Admission,
    joining_max: usize,
    first_seen: BTreeMap<HostId, Incarnation>,
    table: Vec<Option<Inbound>>,
    connections: u64,
    readable: VecDeque<usize>,
    token_base: usize,
    frames: FrameReader,
    /// What is known of other hosts' journals.
    pub(crate) marks: Marks,
    /// Those whose disk is full.
    pub(crate) full: BTreeSet<HostId>,
    /// Who of all hosts is used.
    pub(crate) uses: Uses,
    /// Something was read that was no beacon as it was before.
    pub(crate) has_news: bool,
    pub(crate) events: Vec<HostEvent>,
}

/// What a round needs from the host.
pub(crate) struct Outside<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) now: Instant,
    pub(crate) metrics: &'a mut Metrics,
}

/// What a read found; `end` says why the connection is over.
pub(crate) struct Read {
    pub(crate) index: usize,
    pub(crate) end: Option<String>,
}

impl Inbounds {
    pub(crate) fn new(
        me: Hello,
        tls: Option<PeerTls>,
        admission: Admission,
        joining_max: usize,
        marks: Marks,
        frame_body_max: usize,
        token_base: usize,
    ) -> Self {
        Self {
            listener: None,
            accept_at: None,
            tls,
            me,
            admission,
            joining_max,
            first_seen: BTreeMap::new(),
            table: Vec::new(),
            connections: 0,
            readable: VecDeque::new(),
            token_base,
            frames: FrameReader { body_max: frame_body_max },
            marks,
            full: BTreeSet::new(),
            uses: Uses::default(),
            has_news: false,
            events: Vec::new(),
        }
    }

    pub(crate) fn listen(
        &mut self,
        listener: std::net::TcpListener,
        token: Token,
        registry: &Registry,
    ) -> std::io::Result<()> {
        let mut listener = listening(listener)?;
        registry.register(&mut listener, token, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    pub(crate) fn accept(&mut self, outside: &mut Outside<'_>) {
        while let Some(listener) = &self.listener {
            let (mut stream, address) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    // No event announces those who wait already.
                    let short = Shortage::of(&error).is_some();
                    self.accept_at = short.then(|| outside.now + ACCEPT_AGAIN_AFTER);
                    return;
                }
            };
            let strangers = self.table.iter().flatten().filter(|inbound| inbound.host.is_none()).count();
            let index = self.table.iter().position(Option::is_none).unwrap_or(self.table.len());
            let token = Token(self.token_base + index);
            let registered =
                outside.registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE);
            let tls = self.tls.as_ref().map(PeerTls::accept).transpose();
            let (Ok(()), Ok(tls), true) = (registered, tls, strangers < STRANGERS_MAX) else {
                self.refuse(address, "no room for another connection".to_owned(), outside);
                continue;
            };
            let socket = Socket::new(stream, tls);
            if socket.tune(Some(SILENCE_MAX)).is_err() {
                continue; // Gone before it was greeted.
            }
            self.connections += 1;
            let inbound = Inbound {
                number: self.connections,
                address,
                socket,
                input: BytesMut::new(),
                host: None,
                joining: false,
                deadline: outside.now + GREET_WITHIN,
                heard_at: outside.now,
                heard: Heard::default(),
                listed: true,
            };
            if index == self.table.len() {
                self.table.push(None);
            }
            self.table[index] = Some(inbound);
            self.readable.push_back(index);
        }
    }

    pub(crate) fn on_ready(&mut self, index: usize, ready: Readiness) {
        let Some(Some(inbound)) = self.table.get_mut(index) else { return };
        inbound.socket.note(ready);
        if ready.readable && !inbound.listed {
            inbound.listed = true;
            self.readable.push_back(index);
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        let strangers = self.table.iter().flatten().filter(|inbound| inbound.host.is_none());
        strangers.map(|inbound| inbound.deadline).chain(self.accept_at).min()
    }

    pub(crate) fn on_time(&mut self, outside: &mut Outside<'_>) {
        if self.accept_at.is_some_and(|at| at <= outside.now) {
            self.accept_at = None;
            self.accept(outside);
        }
        for index in 0..self.table.len() {
            let late = |inbound: &Inbound| inbound.host.is_none() && inbound.deadline <= outside.now;
            if self.table[index].as_ref().is_some_and(late) {
                self.close(index, Some(format!("no greeting within {GREET_WITHIN:?}")), outside);
            }
        }
    }

    /// When a host was heard last; none while it has no connection to this one.
    pub(crate) fn heard_at(&self, host: HostId) -> Option<Instant> {
        let of_host = self.table.iter().flatten().filter(|inbound| inbound.host == Some(host));
        of_host.map(|inbound| inbound.heard_at).max()
    }

    /// What a connection has said again and again; the caller gives it back.
    pub(crate) fn heard_of(&mut self, index: usize) -> Option<&mut Heard> {
        self.table.get_mut(index)?.as_mut().map(|inbound| &mut inbound.heard)
    }

    /// True if it is known which host a connection is from.
    pub(crate) fn is_greeted(&self, index: usize) -> bool {
        self.table.get(index).and_then(Option::as_ref).is_some_and(|inbound| inbound.host.is_some())
    }

    /// Which connection it is.
    pub(crate) fn number_of(&self, index: usize) -> Option<u64> {
        Some(self.table.get(index)?.as_ref()?.number)
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.readable.len()
    }

    /// Reads once from the next ready connection.
    pub(crate) fn read_next(&mut self, outside: &mut Outside<'_>) -> Option<Read> {
        let index = self.readable.pop_front()?;
        let Some(inbound) = &mut self.table[index] else { return Some(Read { index, end: None }) };
        inbound.listed = false;
        let (bytes, end) = match inbound.socket.read(&mut inbound.input) {
            Ok((bytes, After::Drained)) => (bytes, None),
            Ok((bytes, After::More)) => {
                inbound.listed = true;
                self.readable.push_back(index);
                (bytes, None)
            }
            Ok((bytes, After::Closed)) => (bytes, Some(CLOSED.to_owned())),
            Err(error) => (0, Some(error.to_string())),
        };
        if bytes > 0 {
            inbound.heard_at = outside.now;
        }
        outside.metrics.bytes_in += bytes as u64;
        Some(Read { index, end })
    }

    /// The body of the next whole frame, with the host it is from; greetings are dealt with here.
    pub(crate) fn next_frame(
        &mut self,
        index: usize,
        is_known: impl Fn(HostId) -> bool,
        outside: &mut Outside<'_>,
    ) -> Result<Option<(HostId, Bytes)>, String> {
        let Some(inbound) = &mut self.table[index] else { return Ok(None) };
        if inbound.host.is_none() {
            let Some(hello) = take_greeting::<Hello>(&mut inbound.input)? else { return Ok(None) };
            self.welcome(index, &hello, is_known, outside)?;
        }
        let Some(inbound) = &mut self.table[index] else { return Ok(None) };
        let Some(host) = inbound.host else { return Ok(None) };
        let body = self.frames.next(&mut inbound.input).map_err(|error| error.to_string())?;
        Ok(body.map(|body| (host, body)))
    }

    fn welcome(
        &mut self,
        index: usize,
        hello: &Hello,
        is_known: impl Fn(HostId) -> bool,
        outside: &mut Outside<'_>,
    ) -> Result<(), String> {
        let host = HostId::named(&hello.from);
        let known = is_known(host);
        let verdict = self.identify(index, hello).and_then(|()| self.judge(hello, known));
        let greeted =
            verdict.as_ref().ok().map(|()| self.marks.greet(host, hello.incarnation, hello.run_start));
        let reply = match (&verdict, greeted) {
            (Ok(()), Some(Err(behind))) => Reply::Behind { reported: behind.reported },
            (Ok(()), _) => Reply::Welcome {
                incarnation: self.me.incarnation,
                message_version: self.me.message_version.min(hello.message_version),
                run_start: self.me.run_start,
            },
            (Err(reason), _) => Reply::Refused { reason: reason.clone() },
        };
        let verdict = match greeted {
            Some(Err(behind)) => Err(format!("host {}: {behind}", hello.from)),
            Some(Ok(())) | None => verdict,
        };
        // A host dials anew only when its old connection is of no use to it.
        for old in 0..self.table.len() {
            if verdict.is_ok() && self.table[old].as_ref().is_some_and(|inbound| inbound.host == Some(host)) {
                self.close(old, None, outside);
            }
        }
        let Some(inbound) = &mut self.table[index] else { return Ok(()) };
        // A greeting fits in any socket's empty buffer; if it does not leave, the caller's time-out ends the matter.
        let _ = inbound.socket.write(&framed(&reply));
        inbound.host = Some(host);
        inbound.joining = !known;
        verdict
    }

    /// With TLS: whether the caller is the host that it says it is.
    fn identify(&self, index: usize, hello: &Hello) -> Result<(), String> {
        let (Some(tls), Some(Some(inbound))) = (&self.tls, self.table.get(index)) else { return Ok(()) };
        tls.is_host(&hello.from, inbound.socket.peer_certificates())
    }

    fn judge(&mut self, hello: &Hello, known: bool) -> Result<(), String> {
        let me = &self.me;
        if hello.protocol != PROTOCOL {
            return Err(format!("host {} speaks version {PROTOCOL} of the link protocol", me.from));
        }
        me.check_versions(&hello.from, hello.message_version, hello.message_version_min)?;
        if hello.cluster != me.cluster {
            return Err(format!("this is cluster {}, the caller is of {}", me.cluster, hello.cluster));
        }
        if hello.to != me.from {
            return Err(format!("this is host {}, not {}", me.from, hello.to));
        }
        me.check_agreement(hello)?;
        let others = |inbound: &&Inbound| inbound.joining && inbound.host != Some(HostId::named(&hello.from));
        if !known && self.table.iter().flatten().filter(others).count() >= self.joining_max {
            return Err(format!("cluster {} has no host {}", me.cluster, hello.from));
        }
        self.admit(&hello.from, hello.incarnation)
    }

    /// Whether a host of this name may take part with this incarnation, whichever of us called the other.
    pub(crate) fn admit(&mut self, name: &str, incarnation: Incarnation) -> Result<(), String> {
        match &mut self.admission {
            Admission::Any => Ok(()),
            Admission::FirstSeen => {
                let host = HostId::named(name);
                if self.first_seen.len() >= FIRST_SEEN_MAX && !self.first_seen.contains_key(&host) {
                    return Err("too many hosts have called".to_owned());
                }
                let seen = *self.first_seen.entry(host).or_insert(incarnation);
                if seen == incarnation {
                    return Ok(());
                }
                Err(format!(
                    "host {name} has lost its data directory: incarnation {:032x}, known is {:032x}",
                    incarnation.0, seen.0
                ))
            }
            Admission::Ask(ask) => ask(name, incarnation),
        }
    }

    /// Ends a connection; with a reason it is counted, and reported if it was a stranger's.
    pub(crate) fn close(&mut self, index: usize, reason: Option<String>, outside: &mut Outside<'_>) {
        let Some(mut inbound) = self.table[index].take() else { return };
        if let Some(host) = inbound.host {
            // It says so again when it calls again.
            self.full.remove(&host);
            self.uses.on_used(host);
        }
        // Dropping the socket deregisters it as well.
        let _ = outside.registry.deregister(inbound.socket.stream());
        match (reason, inbound.host) {
            (None, _) => {}
            // Its process or its machine has gone, or the network: nobody refuses it.
            (Some(reason), Some(_)) if is_end(&reason) => {
                *outside.metrics.closes.entry("host connection ended").or_insert(0) += 1;
                self.events.push(HostEvent::PeerEnded { address: inbound.address, reason });
            }
            (Some(reason), _) => self.refuse(inbound.address, reason, outside),
        }
    }

    fn refuse(&mut self, address: SocketAddr, reason: String, outside: &mut Outside<'_>) {
        *outside.metrics.closes.entry("host connection ended").or_insert(0) += 1;
        self.events.push(HostEvent::PeerRefused { address, reason });
    }

    /// Ends the connections of a host that is no longer a peer.
    pub(crate) fn forget(&mut self, host: HostId, outside: &mut Outside<'_>) {
        for index in 0..self.table.len() {
            if self.table[index].as_ref().is_some_and(|inbound| inbound.host == Some(host)) {
                self.close(index, Some("no longer a host of the cluster".to_owned()), outside);
            }
        }
    }
}

const CLOSED: &str = "closed by the other side";

/// The other side or the network has ended the connection: it was not refused here.
fn is_end(reason: &str) -> bool {
    reason == CLOSED || reason.contains("(os error ")
}

/// What a frame holds.
pub(crate) enum Item<M> {
    /// How far its sender's journal is durable.
    Mark(Mark),
    /// A message; `again`: it is the same as before.
    Message { from: NodeId, to: NodeId, message: Result<M, kernel::DecodeError>, again: bool },
    /// Some messages are the same as before: they follow.
    Repeats,
    /// All beacons are the same as before.
    Steady,
    /// The same of a host that nobody uses, which says so again within so many milliseconds.
    Unused { again_within: u32 },
    /// A beacon is lit.
    Lit { from: NodeId, to: NodeId, message: Result<M, kernel::DecodeError> },
    /// It is stopped.
    Out { from: NodeId, to: NodeId },
}

/// Calls `visit` with all that a frame's body holds; `Err` if the frame is not what a sound host sends.
pub(crate) fn each_item<M: Decode>(
    body: Bytes,
    heard: &mut Heard,
    mut visit: impl FnMut(Item<M>),
) -> Result<(), String> {
    let mut body = Reader::new(body);
    while body.remaining() > 0 {
        let Envelope { from, to, message } =
            Envelope::decode(&mut body).map_err(|error| format!("malformed frame: {error}"))?;
        let mut input = Reader::new(message);
        match to.host_slot() {
            MARKS => {
                let mark = Mark::decode(&mut input).map_err(|error| format!("malformed mark: {error}"))?;
                visit(Item::Mark(mark));
            }
            REPEATS => {
                let repeat = Repeat::decode(&mut input);
                let repeat = repeat.map_err(|error| format!("malformed repeat: {error}"))?;
                each_repeat(repeat, heard, &mut visit)?;
            }
            _ => visit(Item::Message { from, to, message: M::decode(&mut input), again: false }),
        }
    }
    Ok(())
}

fn each_repeat<M: Decode>(
    repeat: Repeat,
    heard: &mut Heard,
    visit: &mut impl FnMut(Item<M>),
) -> Result<(), String> {
    match repeat {
        Repeat::First(numbered) => {
            let (from, to) = (numbered.from, numbered.to);
            let message = M::decode(&mut Reader::new(numbered.message.clone()));
            heard.note(numbered)?;
            visit(Item::Message { from, to, message, again: false });
        }
        Repeat::Later(again) => {
            visit(Item::Repeats);
            let mut before = None;
            for number in again.numbers {
                if before >= Some(number) {
                    return Err(format!("message {number} said again twice at a time"));
                }
                before = Some(number);
                let numbered = heard.numbered(number)?;
                let (from, to) = (numbered.from, numbered.to);
                let message = M::decode(&mut Reader::new(numbered.message.clone()));
                visit(Item::Message { from, to, message, again: true });
            }
        }
        Repeat::Lit(Lit { from, to, message }) => {
            heard.beacons.light(from, to)?;
            visit(Item::Lit { from, to, message: M::decode(&mut Reader::new(message)) });
        }
        Repeat::Out(Out { from, to }) => {
            heard.beacons.put_out(from, to);
            visit(Item::Out { from, to });
        }
        Repeat::Steady(steady) => {
            heard.beacons.are(steady.lit)?;
            visit(Item::Steady);
        }
        Repeat::Unused(unused) => {
            heard.beacons.are(unused.lit)?;
            visit(Item::Unused { again_within: unused.again_within });
        }
    }
    Ok(())
}
