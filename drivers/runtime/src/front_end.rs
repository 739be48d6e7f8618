//! Client protocols: what a host needs to know of one to serve it beside others.

use bytes::BytesMut;
use kernel::{Family, Instant, NodeId};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// A client protocol on one listening port. Runs on the reactor's thread and need not be `Send`.
///
/// **Contract.** Nothing here may block. Sessions that share state share it through the front end that made them (an `Rc`).
pub trait FrontEnd<F: Family> {
    /// A client has connected; from now on it is the node `client`.
    fn open(&mut self, client: NodeId, address: SocketAddr) -> Box<dyn Session<F>>;

    /// What to send to a client that is turned away for `reason` before it has a session; sent in the clear only, as far as
    /// an empty socket takes it.
    fn refusal(&mut self, _reason: CloseReason) -> Vec<u8> {
        Vec::new()
    }

    /// How often `Session::on_tick` is wanted, for time-outs of the protocol; asked once.
    fn tick_every(&self) -> Option<Duration> {
        None
    }
}

/// The protocol's state of one connection.
///
/// **Contract.** Whatever the client sends, nothing panics. `Err` closes the connection at once with that reason; what
/// was written before is sent if the socket takes it. `on_close` comes once, last, whichever side closed.
pub trait Session<F: Family> {
    /// Bytes have arrived. Takes whole requests off `input` and leaves the rest; slices taken (`split_to`, `freeze`)
    /// share its memory, which is up to 64 KiB: what is retained beyond the burst should be copied.
    fn on_input(&mut self, input: &mut BytesMut, cx: &mut SessionCx<'_, F>) -> Result<(), CloseReason>;

    /// A node has sent the client a message.
    fn on_message(
        &mut self,
        from: NodeId,
        message: F::Message,
        cx: &mut SessionCx<'_, F>,
    ) -> Result<(), CloseReason>;

    /// The client has taken some of what it was sent: `SessionCx::taken_bytes` and `SessionCx::unsent_bytes` say how much. Comes
    /// after at least 4 KiB, or when nothing waits any more, and not for what the socket took at once.
    fn on_taken(&mut self, _cx: &mut SessionCx<'_, F>) -> Result<(), CloseReason> {
        Ok(())
    }

    /// Time has passed; see `FrontEnd::tick_every`.
    fn on_tick(&mut self, _cx: &mut SessionCx<'_, F>) -> Result<(), CloseReason> {
        Ok(())
    }

    /// The connection is gone; messages can still be sent to nodes, bytes no longer to the client.
    fn on_close(&mut self, _cx: &mut SessionCx<'_, F>) {}
}

/// Why a connection is closed: a stable phrase, counted and logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloseReason(pub &'static str);

/// A session's window on the host during one call.
pub struct SessionCx<'a, F: Family> {
    pub(crate) client: NodeId,
    pub(crate) certificate: Option<&'a [u8]>,
    pub(crate) now: Instant,
    pub(crate) sends: &'a mut Vec<(NodeId, NodeId, F::Message)>,
    pub(crate) output: &'a mut Vec<u8>,
    /// Written before this call, and not taken by the socket.
    pub(crate) backlog_bytes: usize,
    pub(crate) taken_bytes: u64,
    pub(crate) room: Room,
    pub(crate) flags: &'a mut SessionFlags,
}

/// What may wait for a client, and for all of its protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) of_client: usize,
    /// What is left of what may wait for all.
    pub(crate) of_service: usize,
}

/// What a session has asked for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SessionFlags {
    pub(crate) established: bool,
    pub(crate) paused: bool,
    pub(crate) finish: Option<CloseReason>,
}

impl<F: Family> SessionCx<'_, F> {
    /// The node that this client is.
    pub fn client(&self) -> NodeId {
        self.client
    }

    /// The certificate that the client has shown, in DER; it was checked before a byte came.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.certificate
    }

    /// The monotonic clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Sends a node of any host a message from this client.
    pub fn send(&mut self, to: NodeId, message: impl Into<F::Message>) {
        self.sends.push((self.client, to, message.into()));
    }

    /// Bytes for the client, to append to; sent at the end of the burst.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.output
    }

    /// Bytes written for this client that it has not taken.
    pub fn unsent_bytes(&self) -> usize {
        self.backlog_bytes + self.output.len()
    }

    /// Bytes that the client has taken since it came.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Whether another answer should be made for this client: what it has not taken is within bounds, and so is what all
    /// clients of the protocol have not. Where it is not, `Session::on_taken` says when to look again.
    pub fn has_room(&self) -> bool {
        let unsent = self.unsent_bytes();
        unsent <= UNSENT_FREE_BYTES || unsent <= (self.room.of_client / 4).min(self.room.of_service / 16)
    }

    /// The client has said who it is: the time-out for that no longer applies.
    pub fn established(&mut self) {
        self.flags.established = true;
    }

    /// Stops (`true`) or resumes reading from this client: for protocols that bound their requests in flight.
    pub fn pause_input(&mut self, paused: bool) {
        self.flags.paused = paused;
    }

    /// Closes the connection after what was written has been sent.
    pub fn finish(&mut self, reason: CloseReason) {
        self.flags.finish = Some(reason);
    }
}

impl CloseReason {
    /// There are `ClientLimits::connections_max` connections.
    pub const TOO_MANY: Self = Self("too many connections");
    /// Clients of all ports have the descriptors that they may have together.
    pub const NO_DESCRIPTORS: Self = Self("no descriptors left for clients");
    /// There are `ClientLimits::connections_per_address_max` connections from the client's address.
    pub const TOO_MANY_FROM_ONE_ADDRESS: Self = Self("too many connections from one address");
}

/// The bounds of one front end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// Connections in total.
    pub connections_max: usize,
    /// Connections from one address.
    pub connections_per_address_max: usize,
    /// Bytes of a request that is not yet whole.
    pub input_bytes_max: usize,
    /// Bytes written for a client that it does not read, beside one answer of any size; beyond it is disconnected. Reading from it stops
    /// at a quarter.
    pub output_bytes_max: usize,
    /// Bytes written for all clients of this front end together; the one furthest behind is disconnected.
    pub output_bytes_max_total: usize,
    /// How long a client may take nothing of what waits for it.
    pub unread_for_max: Duration,
    /// How long a client may take to say who it is (`SessionCx::established`).
    pub handshake_within: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: 60,
            input_bytes_max: 4 << 20,
            output_bytes_max: 4 << 20,
            output_bytes_max_total: 64 << 20,
            unread_for_max: Duration::from_secs(30),
            handshake_within: Duration::from_secs(10),
        }
    }
}

/// What may wait for any client: a client with so little to take may go on asking.
const UNSENT_FREE_BYTES: usize = 16 << 10;

/// Builds a front end on the reactor's thread.
pub type BuildFrontEnd<F> = Box<dyn FnOnce() -> Box<dyn FrontEnd<F>> + Send>;

/// A client protocol, and where it is served.
pub struct FrontEndConfig<F: Family> {
    /// The protocol's name, for metrics.
    pub name: &'static str,
    /// Where clients connect.
    pub listen: TcpListener,
    /// The protocol.
    pub build: BuildFrontEnd<F>,
    /// Its bounds, for the clients of all its ports together.
    pub limits: ClientLimits,
    /// TLS, if clients must use it.
    pub tls: Option<crate::tls::ServerTls>,
    /// Another port of the same protocol, for clients that use TLS where the first one is in the clear.
    pub secure: Option<(TcpListener, crate::tls::ServerTls)>,
}

impl<F: Family> FrontEndConfig<F> {
    /// A protocol on a port, in the clear, with the default bounds.
    pub fn new(listen: TcpListener, build: impl FnOnce() -> Box<dyn FrontEnd<F>> + Send + 'static) -> Self {
        Self {
            name: "clients",
            listen,
            build: Box::new(build),
            limits: ClientLimits::default(),
            tls: None,
            secure: None,
        }
    }
}
