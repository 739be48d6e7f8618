//! All client connections of a host: limits, buffers, and the way between sessions and nodes.

mod admission;
mod backlog;
mod output;
mod untrusted;

use crate::descriptors::{Descriptor, Descriptors};
use crate::event::HostEvent;
use crate::front_end::{
    ClientLimits, CloseReason, FrontEnd, FrontEndConfig, Room, Session, SessionCx, SessionFlags,
};
use crate::metrics::{Metrics, ProtocolClients};
use crate::socket::{After, Readiness, Socket, listening};
use crate::tls::ServerTls;
use backlog::Backlog;
use bytes::BytesMut;
use kernel::{Family, HostId, Instant, NodeId};
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};
use output::Tally;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Slots from here on are clients.
pub(crate) const CLIENT_SLOTS: u32 = 0x8000_0000;
/// Output buffers retained for the next client for which something waits.
const POOLED_BUFFERS_MAX: usize = 256;
/// Messages that sessions send in one round of reading; the rest is read when those were heard.
const SENDS_MAX: usize = 1 << 12;
/// What may have come of requests that are not whole, of all clients together.
const INPUT_BYTES_MAX_TOTAL: usize = 48 << 20;
/// How long a round reads from clients.
const READ_TIME_MAX: Duration = Duration::from_millis(5);
const POOLED_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Which connection, by its slot in the table; used again after a close.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClientIndex(pub(crate) usize);

struct Client<F: Family> {
    id: NodeId,
    front_end: usize,
    address: SocketAddr,
    socket: Socket,
    _descriptor: Descriptor,
    session: Box<dyn Session<F>>,
    /// A request that is not yet whole, or that the session has put off.
    input: BytesMut,
    /// Since when there is some of that.
    input_since: Instant,
    /// The session takes up again what it has put off.
    resumed: bool,
    /// Written in this burst.
    output: Vec<u8>,
    /// Written earlier, and not taken by the socket.
    backlog: Backlog,
    /// The memory of both, as its service has counted it.
    counted_bytes: usize,
    tally: Tally,
    flags: SessionFlags,
    writable: bool,
    /// The socket may hold bytes that were not read.
    readable: bool,
    /// Is in the list of readable, respectively dirty, connections.
    listed: bool,
    dirty: bool,
}

impl<F: Family> Client<F> {
    fn unsent_bytes(&self) -> usize {
        self.output.len() + self.backlog.unsent_bytes()
    }

    fn held_bytes(&self) -> usize {
        self.output.capacity() + self.backlog.held_bytes()
    }

    /// Sends what the socket takes and keeps the rest: how much was taken, and whether that was all.
    fn send(&mut self) -> io::Result<(usize, bool)> {
        if !self.writable {
            self.backlog.push(&self.output);
            return Ok((0, false));
        }
        let taken = if self.backlog.is_empty() {
            let taken = self.socket.write(&self.output)?;
            self.backlog.push(&self.output[taken..]);
            taken
        } else {
            self.backlog.push(&self.output);
            self.backlog.write_to(&mut self.socket)?
        };
        let all = self.socket.flush()? && self.backlog.is_empty();
        self.writable = all;
        Ok((taken, all))
    }
}

/// A listening socket.
struct Port {
    listener: TcpListener,
    /// Its protocol.
    front_end: usize,
    tls: Option<ServerTls>,
    acceptable: bool,
    rest_until: Option<Instant>,
}

/// A protocol with the clients of all its ports.
struct Service<F: Family> {
    name: &'static str,
    front_end: Box<dyn FrontEnd<F>>,
    limits: ClientLimits,
    connections: usize,
    per_address: BTreeMap<IpAddr, usize>,
    /// Memory held for what clients have not been sent.
    held_bytes: usize,
    tick_every: Option<Duration>,
    tick_at: Option<Instant>,
    /// Who still has to say who he is, oldest first.
    greeting: VecDeque<(Instant, ClientIndex, NodeId)>,
}

pub(crate) struct Clients<F: Family> {
    me: HostId,
    ports: Vec<Port>,
    services: Vec<Service<F>>,
    descriptors: Descriptors,
    table: Vec<Option<Client<F>>>,
    free: Vec<ClientIndex>,
    by_slot: HashMap<u32, ClientIndex, BuildHasherDefault<SlotHasher>>,
    next_slot: u32,
    token_base: usize,
    readable: VecDeque<ClientIndex>,
    dirty: Vec<ClientIndex>,
    /// What of requests has come that are not whole, of all clients, in bytes.
    input_bytes: usize,
    /// Their sessions are to learn what was taken.
    taken: Vec<ClientIndex>,
    /// When it is looked who takes nothing.
    look_at: Option<Instant>,
    /// What sessions have sent: from, to, message.
    pub(crate) sends: Vec<(NodeId, NodeId, F::Message)>,
    pub(crate) events: Vec<HostEvent>,
    pool: Vec<Vec<u8>>,
    read_buffer: BytesMut,
}

/// What a round of clients needs from its host.
pub(crate) struct Outside<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) now: Instant,
    pub(crate) metrics: &'a mut Metrics,
}

impl<F: Family> Clients<F> {
    /// `first_slot` is drawn at random at each start, so that an answer to a client of an earlier run finds nobody.
    pub(crate) fn new(me: HostId, first_slot: u32, token_base: usize, descriptors: Descriptors) -> Self {
        Self {
            me,
            ports: Vec::new(),
            services: Vec::new(),
            descriptors,
            table: Vec::new(),
            free: Vec::new(),
            by_slot: HashMap::default(),
            next_slot: first_slot | CLIENT_SLOTS,
            token_base,
            readable: VecDeque::new(),
            dirty: Vec::new(),
            input_bytes: 0,
            taken: Vec::new(),
            look_at: None,
            sends: Vec::new(),
            events: Vec::new(),
            pool: Vec::new(),
            read_buffer: BytesMut::new(),
        }
    }

    /// Serves a protocol at its ports, whose tokens are `first_token` and the numbers of all ports.
    pub(crate) fn listen(
        &mut self,
        config: FrontEndConfig<F>,
        first_token: usize,
        registry: &Registry,
        now: Instant,
    ) -> io::Result<()> {
        let secure = config.secure.map(|(listen, tls)| (listen, Some(tls)));
        for (listen, tls) in [(config.listen, config.tls)].into_iter().chain(secure) {
            let mut listener = listening(listen)?;
            registry.register(&mut listener, Token(first_token + self.ports.len()), Interest::READABLE)?;
            let front_end = self.services.len();
            self.ports.push(Port { listener, front_end, tls, acceptable: true, rest_until: None });
        }
        let front_end = (config.build)();
        let tick_every = front_end.tick_every();
        self.services.push(Service {
            name: config.name,
            front_end,
            limits: config.limits,
            connections: 0,
            per_address: BTreeMap::new(),
            held_bytes: 0,
            tick_every,
            tick_at: tick_every.map(|every| now + every),
            greeting: VecDeque::new(),
        });
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.by_slot.len()
    }

    /// Memory held for what clients have not been sent.
    pub(crate) fn held_bytes(&self) -> usize {
        self.services.iter().map(|service| service.held_bytes).sum()
    }

    /// Connections that there may be at all ports together.
    pub(crate) fn connections_max(&self) -> usize {
        let services: usize = self.services.iter().map(|service| service.limits.connections_max).sum();
        services.min(self.descriptors.max())
    }

    /// Connections of each protocol's clients.
    pub(crate) fn by_protocol(&self) -> BTreeMap<&'static str, ProtocolClients> {
        let most = self.descriptors.max();
        let of = |service: &Service<F>| {
            let max = service.limits.connections_max.min(most);
            (service.name, ProtocolClients { open: service.connections as u64, max: max as u64 })
        };
        self.services.iter().map(of).collect()
    }

    /// Descriptors that clients have, and may have.
    pub(crate) fn descriptors(&self) -> (u64, u64) {
        (self.descriptors.taken() as u64, self.descriptors.max() as u64)
    }

    pub(crate) fn on_acceptable(&mut self, port: usize) {
        self.ports[port].acceptable = true;
    }

    pub(crate) fn on_ready(&mut self, index: ClientIndex, ready: Readiness) {
        let Some(Some(client)) = self.table.get_mut(index.0) else { return };
        client.socket.note(ready);
        if ready.writable {
            client.writable = true;
            if !client.dirty {
                client.dirty = true;
                self.dirty.push(index);
            }
        }
        if ready.readable {
            client.readable = true;
            if !client.listed {
                client.listed = true;
                self.readable.push_back(index);
            }
        }
    }

    /// True if another round would find something to do at once.
    pub(crate) fn is_ready(&self, may_read: bool) -> bool {
        (may_read && !self.readable.is_empty())
            || self.ports.iter().any(|port| port.acceptable && port.rest_until.is_none())
    }

    /// When `on_time` is wanted.
    pub(crate) fn due(&self) -> Option<Instant> {
        let greeting = |service: &Service<F>| service.greeting.front().map(|(deadline, _, _)| *deadline);
        let services = self.services.iter().flat_map(|service| [service.tick_at, greeting(service)]);
        let ports = self.ports.iter().map(|port| port.rest_until);
        services.chain(ports).chain([self.look_at]).flatten().min()
    }

    /// Time-outs and ticks.
    pub(crate) fn on_time(&mut self, outside: &mut Outside<'_>) {
        self.look_for_unread(outside);
        for port in &mut self.ports {
            port.rest_until = port.rest_until.filter(|until| *until > outside.now);
        }
        for at in 0..self.services.len() {
            while let Some(&(deadline, index, id)) = self.services[at].greeting.front()
                && deadline <= outside.now
            {
                self.services[at].greeting.pop_front();
                let late = |client: &Client<F>| client.id == id && !client.flags.established;
                if self.table[index.0].as_ref().is_some_and(late) {
                    self.close(index, CloseReason("said too late who it is"), outside);
                }
            }
            let service = &mut self.services[at];
            if service.tick_at.is_some_and(|at| at <= outside.now) {
                service.tick_at = service.tick_every.map(|every| outside.now + every);
                for index in (0..self.table.len()).map(ClientIndex) {
                    if self.table[index.0].as_ref().is_some_and(|client| client.front_end == at) {
                        self.call(index, outside, |session, cx| session.on_tick(cx));
                    }
                }
            }
        }
    }

    /// Reads from ready connections, in turn, until about `budget` bytes have come or what they ask for has taken its time.
    pub(crate) fn read(&mut self, budget: usize, outside: &mut Outside<'_>) {
        let (mut left, began) = (budget, std::time::Instant::now());
        for _ in 0..self.readable.len() {
            if left == 0 || self.sends.len() >= SENDS_MAX || began.elapsed() >= READ_TIME_MAX {
                outside.metrics.rounds_limited += 1;
                return;
            }
            let Some(index) = self.readable.pop_front() else { return };
            let Some(client) = &mut self.table[index.0] else { continue };
            client.listed = false;
            let limits = &self.services[client.front_end].limits;
            if std::mem::take(&mut client.resumed) && !client.flags.paused {
                client.listed = client.readable;
                if client.listed {
                    self.readable.push_back(index);
                }
                self.on_bytes(index, After::Drained, outside);
                continue;
            }
            let stopped = client.unsent_bytes() > limits.output_bytes_max / 4;
            outside.metrics.reads_stopped += u64::from(stopped);
            if client.flags.paused || stopped {
                continue; // It is listed again when that changes.
            }
            match client.socket.read(&mut self.read_buffer) {
                Ok((bytes, after)) => {
                    outside.metrics.bytes_in += bytes as u64;
                    left = left.saturating_sub(bytes.max(1));
                    client.readable = after == After::More;
                    if after == After::More {
                        client.listed = true;
                        self.readable.push_back(index);
                    }
                    self.on_bytes(index, after, outside);
                }
                Err(error) => {
                    self.read_buffer.clear();
                    // A plain socket has no such error.
                    let no_tls = error.kind() == io::ErrorKind::InvalidData;
                    let reason = if no_tls { untrusted::reason_of(&error) } else { BROKEN };
                    self.close(index, reason, outside);
                }
            }
        }
    }

    /// Hands what was read to the session; what it leaves is copied, so that no idle client holds a read buffer.
    fn on_bytes(&mut self, index: ClientIndex, after: After, outside: &mut Outside<'_>) {
        let Some(client) = &mut self.table[index.0] else { return };
        let id = client.id;
        let mut input = std::mem::take(&mut client.input);
        self.input_bytes -= input.len();
        let fresh = self.read_buffer.split();
        let shares_read_buffer = input.is_empty();
        if shares_read_buffer {
            input = fresh;
        } else {
            input.extend_from_slice(&fresh);
        }
        if !input.is_empty() {
            self.call(index, outside, |session, cx| session.on_input(&mut input, cx));
        }
        let Some(client) = self.table[index.0].as_mut().filter(|client| client.id == id) else { return };
        // What is put off came with one read, and nothing more is read before it is taken up.
        let too_large = input.len() > self.services[client.front_end].limits.input_bytes_max;
        if too_large && !client.flags.paused {
            return self.close(index, CloseReason("request too large"), outside);
        }
        if !input.is_empty() {
            if shares_read_buffer {
                client.input_since = outside.now;
            }
            self.input_bytes += input.len();
            client.input = if shares_read_buffer { BytesMut::from(&input[..]) } else { input };
        }
        if self.input_bytes > INPUT_BYTES_MAX_TOTAL {
            self.drop_unfinished(outside);
        }
        if after == After::Closed {
            // It may have closed its own direction only, and still listen for what is answered at once.
            self.write_out(index, outside);
            self.close(index, CLOSED_BY_CLIENT, outside);
        }
    }

    /// Closes those who have taken longest for a request, until what has come of others fits.
    fn drop_unfinished(&mut self, outside: &mut Outside<'_>) {
        while self.input_bytes > INPUT_BYTES_MAX_TOTAL {
            let waiting = self.table.iter().enumerate().filter_map(|(index, client)| {
                let client = client.as_ref().filter(|client| !client.input.is_empty())?;
                Some((client.input_since, index))
            });
            let Some((_, oldest)) = waiting.min() else { return };
            self.close(ClientIndex(oldest), CloseReason("its request is not whole for long"), outside);
        }
    }

    /// Hands a message to the session of a client.
    pub(crate) fn deliver(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: F::Message,
        outside: &mut Outside<'_>,
    ) {
        match self.by_slot.get(&to.host_slot().0) {
            Some(&index) => self.call(index, outside, |session, cx| session.on_message(from, message, cx)),
            None => outside.metrics.drop_message("client gone"),
        }
    }

    fn call(
        &mut self,
        index: ClientIndex,
        outside: &mut Outside<'_>,
        call: impl FnOnce(&mut dyn Session<F>, &mut SessionCx<'_, F>) -> Result<(), CloseReason>,
    ) {
        let Some(front_end) = self.table[index.0].as_ref().map(|client| client.front_end) else { return };
        let room = self.room_of(front_end);
        let Some(client) = &mut self.table[index.0] else { return };
        if client.output.capacity() == 0 {
            client.output = self.pool.pop().unwrap_or_default();
        }
        let before = client.output.len();
        let was_paused = client.flags.paused;
        let mut cx = SessionCx {
            client: client.id,
            certificate: client.socket.peer_certificate(),
            now: outside.now,
            sends: &mut self.sends,
            output: &mut client.output,
            backlog_bytes: client.backlog.unsent_bytes(),
            taken_bytes: client.tally.taken,
            room,
            flags: &mut client.flags,
        };
        let outcome = call(&mut *client.session, &mut cx);
        let grown = client.output.len() - before;
        client.tally.write(grown);
        if (grown > 0 || client.flags.finish.is_some()) && !client.dirty {
            client.dirty = true;
            self.dirty.push(index);
        }
        if client.output.is_empty() {
            give_back(&mut self.pool, std::mem::take(&mut client.output));
        }
        outside.metrics.reads_stopped += u64::from(!was_paused && client.flags.paused);
        client.resumed |= was_paused && !client.flags.paused && !client.input.is_empty();
        if (client.readable || client.resumed) && !client.listed && !client.flags.paused {
            client.listed = true;
            self.readable.push_back(index);
        }
        self.recount(index);
        if let Err(reason) = outcome {
            self.write_out(index, outside);
            self.close(index, reason, outside);
        } else if grown > 0 {
            self.enforce_output_bounds(index, outside);
        }
    }

    fn close(&mut self, index: ClientIndex, reason: CloseReason, outside: &mut Outside<'_>) {
        let Some(mut client) = self.table[index.0].take() else { return };
        self.free.push(index);
        self.input_bytes -= client.input.len();
        self.by_slot.remove(&client.id.host_slot().0);
        let service = &mut self.services[client.front_end];
        service.connections -= 1;
        service.held_bytes -= client.counted_bytes;
        if let Some(count) = service.per_address.get_mut(&client.address.ip()) {
            *count -= 1;
            if *count == 0 {
                service.per_address.remove(&client.address.ip());
            }
        }
        client.socket.close_notify();
        // Dropping the socket deregisters it as well.
        let _ = outside.registry.deregister(client.socket.stream());
        let mut nowhere = Vec::new();
        let mut cx = SessionCx {
            client: client.id,
            certificate: client.socket.peer_certificate(),
            now: outside.now,
            sends: &mut self.sends,
            output: &mut nowhere,
            backlog_bytes: client.backlog.unsent_bytes(),
            taken_bytes: client.tally.taken,
            room: Room { of_client: 0, of_service: 0 },
            flags: &mut client.flags,
        };
        client.session.on_close(&mut cx);
        self.note_close(client.address, reason, outside);
    }

    fn note_close(&mut self, address: SocketAddr, reason: CloseReason, outside: &mut Outside<'_>) {
        *outside.metrics.closes.entry(reason.0).or_insert(0) += 1;
        if reason != CLOSED_BY_CLIENT {
            self.events.push(HostEvent::ClientClosed { address, reason: reason.0 });
        }
    }
}

const BROKEN: CloseReason = CloseReason("connection broken");
const CLOSED_BY_CLIENT: CloseReason = CloseReason("closed by the client");

fn give_back(pool: &mut Vec<Vec<u8>>, mut buffer: Vec<u8>) {
    if buffer.capacity() > 0
        && buffer.capacity() <= POOLED_BUFFER_BYTES_MAX
        && pool.len() < POOLED_BUFFERS_MAX
    {
        buffer.clear();
        pool.push(buffer);
    }
}

/// Slots of clients are consecutive: one multiplication spreads them.
#[derive(Default)]
struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
